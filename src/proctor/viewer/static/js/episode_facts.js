/*
 * What is known of an episode besides its steps: its facts, its notes, and the recorded rows as JSON.
 *
 * Rule 1: what is not known is left out; what was recorded is shown as text, however strange.
 * Rule 2: a row is fetched only when the panel is open, and where the cursor rests; what was opened in one tree is
 *     open in the next.
 */

import { button, choice, clear, el, setText } from "./dom.js";
import { counted, duration, number, outcomeWords, standingWords, time } from "./format.js";
import { copyButton, jsonTree } from "./json_tree.js";
import { packetsSeen } from "./packet_words.js";

const LONG = 60; // characters; longer values get a line of their own

/** Return a Panel with the episode's facts. */
export function factsPanel({ head, track }) {
  const list = el("dl", { class: "facts-list" });
  const summary = el("summary", {}, "Settings, policy and versions");
  const element = el(
    "section",
    { class: "panel facts-panel", "aria-label": "Facts" },
    el("h2", {}, "Facts"),
    list,
    el("details", { class: "facts-more" }, summary, details(head)),
  );
  const shown = { text: "" };
  const update = () => {
    const facts = factsOf(head, track);
    const text = JSON.stringify(facts);
    if (text !== shown.text) {
      shown.text = text;
      clear(list).append(...facts.map(([name, value]) => factRow(name, value)));
    }
  };
  update();
  return { element, update, close: () => {} };
}

/** Return `[name, words]` of what is known of an episode. */
function factsOf(head, track) {
  const { line } = head;
  const facts = [
    ["Environment", line.environment],
    ["Served as", head.target === line.environment ? null : head.target],
    ["Agent", line.agent],
    ["State", standingWords(line)],
    ["Outcome", line.outcome === null || line.outcome === line.state ? null : outcomeWords(line.outcome)],
    ["How it ended", endWords(line)],
    ["Return", line.total_reward === null ? null : number(line.total_reward, 4)],
    ["Steps", stepWords(line, track)],
    ["Refusals", line.governed || line.refusals > 0 ? number(line.refusals, 0) : null],
    ["Seed", line.seed === null ? null : String(line.seed)],
    ["Batch", line.num_envs === null ? null : `${line.num_envs} environments; rewards are their means`],
    ["Isolation", line.tier],
    ["Governed", line.governed ? "yes" : null],
    ["Began", time(line.opened_at)],
    ["Lasted", lasted(line)],
    ["Session", line.session],
    ["Episode", `number ${line.epoch}${line.episode_id ? `, ${line.episode_id}` : ""}`],
    ["Observations", head.keeps === "all" ? "kept" : "digests only"],
  ];
  return facts.filter(([, words]) => words !== null && words !== undefined && words !== "");
}

function endWords(line) {
  if (line.live) {
    return null;
  }
  const flags = [line.terminated && "terminated", line.truncated && "truncated"].filter(Boolean).join(" and ");
  const reason = line.reason === "closed" ? "closed" : line.reason && `closed (${line.reason})`;
  return [flags, reason].filter(Boolean).join("; ") || null;
}

function stepWords(line, track) {
  const shown = track.stride > 1 ? `, one in ${track.stride} shown` : "";
  return `${counted(line.steps, "step")}${shown}`;
}

function lasted(line) {
  const until = line.closed_at ?? line.last_at;
  return until > line.opened_at ? duration(until - line.opened_at) : null;
}

function factRow(name, value) {
  const isLong = value.length > LONG;
  return el("div", { class: ["fact", isLong && "long"] }, el("dt", {}, name), el("dd", {}, value));
}

function details(head) {
  const blocks = [
    ["Settings", head.settings],
    ["Options of the reset", head.options],
    ["Policy", head.policy],
    ["Transforms", head.transforms.length > 0 ? head.transforms : null],
    ["Versions", head.versions],
  ];
  return el("div", { class: "facts-details" }, blocks.filter(([, value]) => hasSomething(value)).map(block));
}

function hasSomething(value) {
  return value !== null && value !== undefined && (typeof value !== "object" || Object.keys(value).length > 0);
}

function block([name, value]) {
  const text = JSON.stringify(value, null, 2);
  return el("div", {}, el("h3", {}, name), el("pre", { tabindex: "0", role: "region", "aria-label": name }, text));
}

const MOST = 50;
const GRAVE = new Set(["failed", "unreadable"]);

/** Return a Panel with the notes; hidden while there are none. */
export function notesPanel({ track, player }) {
  const list = el("ol", { class: "notes-list" });
  const props = { class: "panel notes", "aria-label": "Notes", hidden: true };
  const element = el("section", props, el("h2", {}, "Notes"), list);
  const shown = { count: 0 };
  const update = () => {
    const { length } = track.notes;
    if (length !== shown.count) {
      shown.count = length;
      element.hidden = length === 0;
      clear(list).append(...track.notes.slice(-MOST).reverse().map((note) => noteRow(note, track, player)));
    }
  };
  update();
  return { element, update, close: () => {} };
}

function noteRow(note, track, player) {
  const seek = () => {
    player.pause();
    player.seek(track.indexOfNumber(note.number));
  };
  const name = `Step ${number(note.step, 0)}`;
  return el(
    "li",
    { class: GRAVE.has(note.kind) ? "grave" : "" },
    button(name, seek, { class: "link", title: "Go there" }),
    el("span", { class: "notes-text" }, note.text),
    el("span", { class: "quiet notes-at" }, time(note.at).slice(11)),
  );
}

const REST = 160;
const made = { panels: 0 };

/** A Panel, folded. */
export class RawPanel {
  constructor({ head, track, player, context }) {
    made.panels += 1;
    Object.assign(this, { head, track, player, context, of: "step", asked: null, row: null, timer: null });
    this.opened = new Set(["", "/event"]);
    this.what = el("p", { class: "quiet small raw-what" });
    this.tree = el("div", { class: "raw-tree" });
    this.copy = copyButton(() => JSON.stringify(this.row, null, 2), context.announce);
    this.fold = el(
      "details",
      { class: "raw-fold", on: { toggle: () => this.update() } },
      el("summary", null, el("h2", null, "Raw JSON")),
      el("div", { class: "raw-tools" }, this.choice(), this.copy),
      this.what,
      this.tree,
    );
    this.element = el("section", { class: "panel raw", "aria-label": "Raw JSON" }, this.fold);
    this.unsubscribe = player.subscribe(() => this.update());
  }

  close() {
    this.unsubscribe();
    clearTimeout(this.timer);
    this.asked = null;
    this.closed = true;
  }

  choice() {
    const choose = (of) => {
      this.of = of;
      this.update();
    };
    return choice("Which row", `raw-${made.panels}`, [["step", "This step"], ["packet", "Last packet"]], choose);
  }

  /** Returns the number of the row that is wanted, null if there is none. */
  wanted() {
    if (this.of === "step") return this.track.number(this.player.index) || null;
    return this.track.packets[packetsSeen(this.track, this.player) - 1]?.number ?? null;
  }

  update() {
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
