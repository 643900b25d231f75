// The drawing of the state machine: boxes, arrows, the current state, the arrows taken, the refusals.
//
// Rule 1: moving the cursor (`show`) changes classes and attributes only.
// Rule 2: colours are the style sheet's; how fresh an arrow is goes there as `--strength`.
// Rule 3: the states are one stop of the Tab key; up and down go from one to the next.

import { setText, svg } from "./dom.js";
import { EVERY, EVERY_LABEL, layout } from "./machine_layout.js";
import { shortState } from "./packet_words.js";

const made = { pictures: 0 };

/** Returns "S3 Decide". */
export function named(state) {
  const short = shortState(state.name);
  return state.label.startsWith(short) ? state.label : `${short} ${state.label}`;
}

export class Picture {
  constructor(machine, tall, { tell }) {
    made.pictures += 1;
    Object.assign(this, { machine, tell, prefix: `machine-${made.pictures}`, nodes: new Map(), lines: new Map() });
    const plan = layout(machine, tall);
    this.words = new Map(machine.states.map((state) => [state.name, state]));
    const lines = plan.arrows.map((arrow) => this.arrow(arrow));
    const nodes = plan.boxes.map((box, at) => this.node(box, at));
    this.element = svg(
      "svg",
      {
        class: tall ? "machine-svg tall" : "machine-svg",
        viewBox: `0 0 ${Math.ceil(plan.width)} ${Math.ceil(plan.height)}`,
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
    this.element.style.setProperty("--natural", `${Math.ceil(plan.width)}px`);
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

  arrow({ key, edge, path, loop }) {
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
        class: loop ? "machine-arrow loop" : "machine-arrow",
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

  node(box, at) {
    const [left, top] = [box.x - box.width / 2, box.y - box.height / 2];
    const rect = {
      x: left,
      y: top,
      width: box.width,
      height: box.height,
      rx: box.name === EVERY ? box.height / 2 : 11,
    };
    if (box.name === EVERY) return this.every(box, rect);
    const state = this.words.get(box.name);
    const [name, words] = [shortState(state.name), state.label.replace(/^S\d+\s+/, "")];
    const count = svg("text", { class: "machine-count", x: left + 3, y: top + 3, dy: "0.35em" });
    const dot = svg("g", { class: "machine-refusals" }, svg("circle", { cx: left + 3, cy: top + 3, r: 9.5 }), count);
    const group = svg(
      "g",
      {
        class: "machine-node",
        role: "button",
        tabindex: at === 0 ? "0" : "-1",
        dataset: { state: box.name },
        on: {
          pointerenter: () => this.pointNode(box.name),
          pointerleave: () => this.point(null, []),
          focus: () => this.pointNode(box.name),
          blur: () => this.point(null, []),
          click: () => this.pointNode(box.name),
        },
      },
      svg("rect", { class: "machine-box", ...rect }),
      svg("text", { class: "machine-short", x: box.x, y: box.y - 8, dy: "0.35em" }, `${name} `),
      svg("text", { class: "machine-word", x: box.x, y: box.y + 8, dy: "0.35em" }, words),
    );
    this.nodes.set(box.name, { group, dot, count, state });
    return group;
  }

  every(box, rect) {
    return svg(
      "g",
      { class: "machine-every", "aria-hidden": "true" },
      svg("rect", rect),
      svg("text", { class: "machine-word", x: box.x, y: box.y, dy: "0.35em" }, EVERY_LABEL),
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
