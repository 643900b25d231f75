// The recorded row behind what is seen: the current step's, or the last packet's before it, as JSON.
//
// Rule 1: nothing is fetched until somebody opens the panel, and then only where the cursor rests.
// Rule 2: what was opened in one row's tree is open in the next one's.

import { clear, el, setText } from "./dom.js";
import { copyButton, jsonTree } from "./json_tree.js";
import { packetsSeen } from "./selection.js";

const REST = 160;
const made = { panels: 0 };

/** Returns the panel, folded. */
export function rawPanel({ head, track, player, context }) {
  return new RawPanel(head, track, player, context).panel();
}

class RawPanel {
  constructor(head, track, player, context) {
    made.panels += 1;
    Object.assign(this, {
      head,
      track,
      player,
      context,
      of: "step",
      asked: null,
      row: null,
      timer: null,
      opened: new Set(["", "/event"]),
    });
    this.what = el("p", { class: "quiet small raw-what" });
    this.tree = el("div", { class: "raw-tree" });
    this.copy = copyButton(() => JSON.stringify(this.row, null, 2), context.announce);
    this.fold = el(
      "details",
      { class: "raw-fold", on: { toggle: () => this.draw() } },
      el("summary", null, el("h2", null, "Raw JSON")),
      el("div", { class: "raw-tools" }, this.choice(), this.copy),
      this.what,
      this.tree,
    );
    this.element = el("section", { class: "panel raw", "aria-label": "Raw JSON" }, this.fold);
    this.unsubscribe = player.subscribe(() => this.draw());
  }

  panel() {
    return { element: this.element, update: () => this.draw(), close: () => this.close() };
  }

  close() {
    this.unsubscribe();
    clearTimeout(this.timer);
    this.asked = null;
    this.closed = true;
  }

  choice() {
    const toggle = (value, label) =>
      el(
        "label",
        { class: "toggle" },
        el("input", {
          type: "radio",
          name: `raw-${made.panels}`,
          value,
          checked: value === this.of,
          on: {
            change: () => {
              this.of = value;
              this.draw();
            },
          },
        }),
        label,
      );
    return el(
      "fieldset",
      { class: "toggles" },
      el("legend", { class: "visually-hidden" }, "Which row"),
      toggle("step", "This step"),
      toggle("packet", "Last packet"),
    );
  }

  /** Returns the number of the row that is wanted, null if there is none. */
  wanted() {
    if (this.of === "step") return this.track.number(this.player.index) || null;
    return this.track.packets[packetsSeen(this.track, this.player) - 1]?.number ?? null;
  }

  draw() {
    if (!this.fold.open) return;
    const number = this.wanted();
    if (number === this.asked) return;
    this.asked = number;
    clearTimeout(this.timer);
    if (number === null) this.nothing();
    else this.timer = setTimeout(() => this.fetch(number), this.row === null ? 0 : REST);
  }

  nothing() {
    this.row = null;
    clear(this.tree);
    this.copy.disabled = true;
    setText(
      this.what,
      this.of === "step" ? "There is no row of this step." : "No packet was judged before this step.",
    );
  }

  async fetch(number) {
    try {
      const row = await this.context.source.raw(this.head.line.chain, number);
      if (this.asked === number && !this.closed) this.show(row);
    } catch (problem) {
      if (this.asked === number && !this.closed) this.fail(problem);
    }
  }

  show(row) {
    this.row = row;
    this.copy.disabled = false;
    setText(this.what, `Row ${row.seq} of the chain, number ${row.number} of the file.`);
    clear(this.tree).append(jsonTree(row, { opened: this.opened }));
  }

  fail(problem) {
    this.nothing();
    setText(this.what, `The row cannot be read: ${problem.message}`);
  }
}
