// The episode's state machine as a picture: where it stands at the cursor, which way it came, where it was refused.
//
// Rule 1: states and arrows come from the server's table; this file knows none of them by name.
// Rule 2: what the picture shows by colour it also says in words: names, titles, the line below, the list of the path.
// Rule 3: the picture is built again only when the panel turns from wide to tall.

import { clear, el, setText, svg } from "./dom.js";
import { counted } from "./format.js";
import { named, Picture } from "./machine_picture.js";
import { kindWords } from "./packet_words.js";
import { choosePacket, packetsSeen } from "./selection.js";
import { Walk } from "./walk.js";

const TALL_BELOW = 600;
const LISTED = 100;
const LEGEND = [
  ["solid", "always"],
  ["dashed", "the next packet tells which"],
  ["dotted", "with an option"],
];

/** Returns the panel; of an episode that nobody governs it is one sentence. */
export function machinePanel({ head, track, player, context }) {
  if (!head.line.governed) return ungoverned();
  return new MachinePanel(track, player, context).panel();
}

function ungoverned() {
  const element = el(
    "section",
    { class: "panel machine", "aria-label": "State machine" },
    el("p", { class: "quiet" }, "This episode is not governed: no state machine watches over it."),
  );
  return { element, update() {}, close() {} };
}

class MachinePanel {
  constructor(track, player, context) {
    Object.assign(this, {
      track,
      player,
      context,
      walk: new Walk(),
      machine: null,
      picture: null,
      tall: null,
      shown: null,
      pointed: null,
    });
    this.holder = el("div", { class: "machine-picture" }, el("p", { class: "quiet" }, "Loading the state machine…"));
    this.caption = el("p", { class: "machine-caption" });
    this.notes = el("div", { class: "machine-notes" });
    this.list = el("div", { class: "machine-path" });
    this.fold = el(
      "details",
      { on: { toggle: () => this.drawPath() } },
      el("summary", null, "Path so far"),
      this.list,
    );
    this.element = el(
      "section",
      { class: "panel machine", "aria-label": "State machine" },
      el("h2", null, "State machine"),
      this.holder,
      this.caption,
      this.notes,
      this.fold,
    );
    this.sizes = new ResizeObserver(() => this.fit());
    this.unsubscribe = player.subscribe(() => this.draw());
  }

  panel() {
    this.load();
    return { element: this.element, update: () => this.draw(), close: () => this.close() };
  }

  close() {
    this.unsubscribe();
    this.sizes.disconnect();
  }

  async load() {
    try {
      this.machine = await this.context.source.machine();
    } catch (problem) {
      clear(this.holder).append(el("p", { class: "quiet" }, `The state machine cannot be shown: ${problem.message}`));
      return;
    }
    this.states = new Map(this.machine.states.map((state) => [state.name, state]));
    this.notes.append(...notes(this.machine));
    this.sizes.observe(this.holder);
    this.fit();
  }

  /** Builds the picture for the width that there is. */
  fit() {
    const tall = this.holder.clientWidth < TALL_BELOW;
    if (this.machine === null || tall === this.tall) return;
    this.tall = tall;
    this.picture = new Picture(this.machine, tall, { tell: (words) => this.tell(words) });
    clear(this.holder).append(this.picture.element);
    this.draw();
  }

  draw() {
    this.walk.extend(this.track.packets);
    if (this.picture === null) return;
    const count = packetsSeen(this.track, this.player);
    this.picture.show(this.walk, count);
    this.tell(this.pointed);
    this.drawPath();
  }

  /** Says what is pointed at, or where the episode stands. */
  tell(words) {
    this.pointed = words;
    setText(this.caption, words ?? this.standing());
  }

  standing() {
    const state = this.states.get(this.walk.state(packetsSeen(this.track, this.player)));
    return state === undefined ? "" : `Now in ${named(state)}: ${state.words}`;
  }

  drawPath() {
    if (!this.fold.open || this.machine === null) return;
    const count = packetsSeen(this.track, this.player);
    if (this.shown === count) return;
    this.shown = count;
    const { earlier, moves } = this.walk.path(count, LISTED);
    const more = earlier > 0 ? el("p", { class: "quiet small" }, "Earlier moves are not listed.") : null;
    const list =
      moves.length > 0
        ? el(
            "ol",
            null,
            moves.map((move) => this.move(move)),
          )
        : null;
    clear(this.list).append(
      ...[more, list ?? el("p", { class: "quiet small" }, "It has not moved yet.")].filter(Boolean),
    );
    this.list.scrollTop = this.list.scrollHeight;
  }

  /** Returns one move as a line; staying, however often, is one. */
  move({ source, target, first, last, times, told }) {
    const { packets } = this.track;
    const [kind, from, to] = [kindWords(packets[first].kind).toLowerCase(), packets[first].step, packets[last].step];
    const button = el(
      "button",
      {
        type: "button",
        class: "link",
        title: "Go there",
        on: {
          click: () => choosePacket(this.track, this.player, last),
        },
      },
      from === to ? `step ${from}` : `steps ${from} to ${to}`,
    );
    if (source === target)
      return el(
        "li",
        null,
        `stays in ${this.word(source)}, `,
        el("span", { class: "quiet" }, `${counted(times, "packet")}, `),
        button,
      );
    return el(
      "li",
      null,
      `${this.word(source)} ${told ? "turned out to lead to" : "→"} ${this.word(target)}`,
      el("span", { class: "quiet" }, ` by ${kind}, `),
      button,
    );
  }

  word(name) {
    const state = this.states.get(name);
    return state === undefined ? name : named(state);
  }
}

function notes(machine) {
  const used = new Set(machine.edges.map((edge) => edge.line));
  const legend = el(
    "ul",
    { class: "machine-legend", "aria-label": "Lines" },
    LEGEND.filter(([line]) => used.has(line)).map(([line, words]) => el("li", null, sample(line), words)),
    el("li", null, el("span", { class: "machine-refusal-sample", "aria-hidden": "true" }), "refusals there"),
  );
  if (machine.everywhere.length === 0) return [legend];
  const folded = el(
    "details",
    null,
    el("summary", null, "Legal in every state, and changes none"),
    el(
      "ul",
      { class: "plain small" },
      machine.everywhere.map((words) => el("li", null, words)),
    ),
  );
  return [legend, folded];
}

function sample(line) {
  return svg(
    "svg",
    { class: "machine-sample", viewBox: "0 0 26 8", "aria-hidden": "true" },
    svg("path", { class: `machine-line ${line}`, d: "M1 4H25" }),
  );
}
