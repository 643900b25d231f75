/*
 * The episode's state machine as a picture: where it stands at the cursor, which way it came, where it was refused.
 *
 * Rule 1: states and arrows, and where they are drawn, come from the server; this file knows none of them by name.
 * Rule 2: what the picture shows by colour it also says in words: names, titles, the line below, the list of the path.
 * Rule 3: moving the cursor changes classes and attributes only; the picture is built again when the panel turns from
 *     wide to tall.
 * Rule 4: the states are one stop of the Tab key; up and down go from one to the next.
 */

import { button, clear, el, setText, svg } from "./dom.js";
import { counted } from "./format.js";
import { choosePacket, kindWords, packetsSeen, shortState } from "./packet_words.js";
import { Walk, keyOf } from "./walk.js";

const EVERY = "ANY";
const EVERY_LABEL = "every state";
const made = { pictures: 0 };

/** Returns "S3 Decide". */
function named(state) {
  const short = shortState(state.name);
  return state.label.startsWith(short) ? state.label : `${short} ${state.label}`;
}

class Picture {
  constructor(machine, tall, { tell }) {
    made.pictures += 1;
    Object.assign(this, { machine, tell, prefix: `machine-${made.pictures}`, nodes: new Map(), lines: new Map() });
    const { width, height, boxes, paths } = machine[tall ? "tall" : "wide"];
    this.words = new Map(machine.states.map((state) => [state.name, state]));
    const lines = machine.edges.map((edge, at) => this.arrow(edge, paths[at]));
    const nodes = Object.entries(boxes).map(([name, box], at) => this.node(name, box, at));
    this.element = svg(
      "svg",
      {
        class: tall ? "machine-svg tall" : "machine-svg",
        viewBox: `0 0 ${Math.ceil(width)} ${Math.ceil(height)}`,
        role: "group",
        "aria-label": "The states and what leads from one to another",
        on: { keydown: (event) => this.key(event) },
      },
      this.heads(),
      svg("g", { class: "machine-lines" }, lines),
      svg("g", null, nodes),
      svg(
        "g",
        { "aria-hidden": "true" },
        [...this.nodes.values()].map(({ dot }) => dot),
      ),
    );
    this.element.style.setProperty("--natural", `${Math.ceil(width)}px`);
  }

  heads() {
    return svg(
      "defs",
      null,
      ["plain", "lit"].map((tone) =>
        svg(
          "marker",
          {
            id: `${this.prefix}-${tone}`,
            class: `machine-head ${tone}`,
            viewBox: "0 0 8 8",
            refX: "6.4",
            refY: "4",
            markerWidth: "7",
            markerHeight: "7",
            markerUnits: "userSpaceOnUse",
            orient: "auto-start-reverse",
          },
          svg("path", { d: "M0.6 0.8L7.2 4L0.6 7.2Z" }),
        ),
      ),
    );
  }

  arrow(edge, path) {
    const key = keyOf(edge.source, edge.target);
    const words = `${this.said(edge.source)} → ${this.said(edge.target)}: ${edge.labels.join("; ")}`;
    const line = svg("path", {
      class: `machine-line ${edge.line}`,
      d: path,
      "marker-end": `url(#${this.prefix}-plain)`,
    });
    const touch = svg("path", { class: "machine-touch", d: path });
    const group = svg(
      "g",
      {
        class: edge.source === edge.target ? "machine-arrow loop" : "machine-arrow",
        "aria-hidden": "true",
        on: { pointerenter: () => this.point(words, [group]), pointerleave: () => this.point(null, []) },
      },
      svg("title", null, words),
      touch,
      line,
    );
    if (!this.lines.has(key)) this.lines.set(key, []);
    this.lines.get(key).push({ group, line, edge });
    return group;
  }

  node(name, [x, y, width, height], at) {
    const [left, top] = [x - width / 2, y - height / 2];
    const rect = { x: left, y: top, width, height, rx: name === EVERY ? height / 2 : 11 };
    if (name === EVERY) return this.every(rect, x, y);
    const state = this.words.get(name);
    const words = state.label.replace(/^S\d+\s+/, "");
    const count = svg("text", { class: "machine-count", x: left + 3, y: top + 3, dy: "0.35em" });
    const dot = svg("g", { class: "machine-refusals" }, svg("circle", { cx: left + 3, cy: top + 3, r: 9.5 }), count);
    const group = svg(
      "g",
      {
        class: "machine-node",
        role: "button",
        tabindex: at === 0 ? "0" : "-1",
        dataset: { state: name },
        on: {
          pointerenter: () => this.pointNode(name),
          pointerleave: () => this.point(null, []),
          focus: () => this.pointNode(name),
          blur: () => this.point(null, []),
          click: () => this.pointNode(name),
        },
      },
      svg("rect", { class: "machine-box", ...rect }),
      svg("text", { class: "machine-short", x, y: y - 8, dy: "0.35em" }, `${shortState(name)} `),
      svg("text", { class: "machine-word", x, y: y + 8, dy: "0.35em" }, words),
    );
    this.nodes.set(name, { group, dot, count, state });
    return group;
  }

  every(rect, x, y) {
    return svg(
      "g",
      { class: "machine-every", "aria-hidden": "true" },
      svg("rect", rect),
      svg("text", { class: "machine-word", x, y, dy: "0.35em" }, EVERY_LABEL),
    );
  }

  said(name) {
    return name === EVERY ? EVERY_LABEL : shortState(name);
  }

  pointNode(name) {
    const found = this.nodes.get(name);
    const out = [...this.lines.values()].flat().filter(({ edge }) => edge.source === name && edge.target !== name);
    this.point(
      `${named(found.state)}: ${found.state.words} ${this.leads(out)}`,
      out.map(({ group }) => group),
    );
  }

  leads(out) {
    const ways = out.map(({ edge }) => `${this.said(edge.target)} by ${edge.labels.join(" or ")}`);
    return ways.length === 0 ? "" : `Leads to ${ways.join("; to ")}.`;
  }

  point(words, groups) {
    for (const group of this.pointed ?? []) group.classList.remove("pointed");
    for (const group of groups) group.classList.add("pointed");
    this.pointed = groups;
    this.element.classList.toggle("pointing", groups.length > 0);
    this.tell(words);
  }

  /** Up and down go from state to state; left and right belong to the player. */
  key(event) {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (by === undefined) return;
    const groups = [...this.nodes.values()].map(({ group }) => group);
    const at = groups.indexOf(document.activeElement);
    const next = groups[Math.min(groups.length - 1, Math.max(0, at + by))];
    for (const group of groups) group.setAttribute("tabindex", group === next ? "0" : "-1");
    next.focus();
    event.preventDefault();
    event.stopPropagation();
  }

  show(walk, count) {
    const [state, visited, refused] = [walk.state(count), walk.visited(count), walk.refused(count)];
    for (const [name, node] of this.nodes) {
      node.group.classList.toggle("current", name === state);
      node.group.classList.toggle("visited", visited.has(name));
      this.label(name, node, name === state, refused.get(name) ?? 0);
    }
    const strengths = walk.strengths(count);
    for (const [key, lines] of this.lines) for (const each of lines) this.light(each, strengths.get(key) ?? 0);
  }

  label(name, node, current, refusals) {
    node.dot.classList.toggle("some", refusals > 0);
    setText(node.count, refusals > 99 ? "99+" : String(refusals));
    const parts = [
      named(node.state),
      current ? "the current state" : "",
      refusals > 0 ? `${refusals} refused here` : "",
    ];
    node.group.setAttribute("aria-label", parts.filter(Boolean).join(", "));
    if (current) node.group.setAttribute("aria-current", "true");
    else node.group.removeAttribute("aria-current");
  }

  light({ group, line }, strength) {
    group.classList.toggle("lit", strength > 0);
    line.style.setProperty("--strength", String(strength));
    line.setAttribute("marker-end", `url(#${this.prefix}-${strength > 0 ? "lit" : "plain"})`);
  }
}

const TALL_BELOW = 600;
const LISTED = 100;
const LEGEND = [
  ["solid", "always"],
  ["dashed", "the next packet tells which"],
  ["dotted", "with an option"],
];

/** A Panel, of a governed episode. */
export class MachinePanel {
  constructor({ track, player, context }) {
    Object.assign(this, { track, player, context, walk: new Walk(), machine: null });
    Object.assign(this, { picture: null, tall: null, shown: null, pointed: null });
    this.holder = el("div", { class: "machine-picture" }, el("p", { class: "quiet" }, "Loading the state machine…"));
    this.caption = el("p", { class: "machine-caption" });
    this.notes = el("div", { class: "machine-notes" });
    this.list = el("div", { class: "machine-path" });
    const toggle = () => this.drawPath();
    this.fold = el("details", { on: { toggle } }, el("summary", "Path so far"), this.list);
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
    this.unsubscribe = player.subscribe(() => this.update());
    this.load();
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
    this.update();
  }

  update() {
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
    const list = moves.length > 0 ? el("ol", moves.map((move) => this.move(move))) : null;
    const none = list ?? el("p", { class: "quiet small" }, "It has not moved yet.");
    clear(this.list).append(...(more === null ? [none] : [more, none]));
    this.list.scrollTop = this.list.scrollHeight;
  }

  /** Returns one move as a line; staying, however often, is one. */
  move({ source, target, first, last, times, told }) {
    const { packets } = this.track;
    const [kind, from, to] = [kindWords(packets[first].kind).toLowerCase(), packets[first].step, packets[last].step];
    const where = from === to ? `step ${from}` : `steps ${from} to ${to}`;
    const go = button(where, () => choosePacket(this.track, this.player, last), { class: "link", title: "Go there" });
    const [words, how] =
      source === target
        ? [`stays in ${this.word(source)}, `, `${counted(times, "packet")}, `]
        : [`${this.word(source)} ${told ? "turned out to lead to" : "→"} ${this.word(target)}`, ` by ${kind}, `];
    return el("li", words, el("span", { class: "quiet" }, how), go);
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
  const words = machine.everywhere.map((each) => el("li", each));
  const title = el("summary", "Legal in every state, and changes none");
  const folded = el("details", title, el("ul", { class: "plain small" }, words));
  return [legend, folded];
}

function sample(line) {
  return svg(
    "svg",
    { class: "machine-sample", viewBox: "0 0 26 8", "aria-hidden": "true" },
    svg("path", { class: `machine-line ${line}`, d: "M1 4H25" }),
  );
}
