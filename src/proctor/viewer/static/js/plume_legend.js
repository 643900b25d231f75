/*
 * What the colours of an odor field mean: a bar with numbers, and a mark at what the agent smells now.
 *
 * Rule 1: the bar is even in brightness, so that its numbers stand where a reader sees that colour.
 */

import { el, setText } from "./dom.js";
import { number } from "./format.js";
import { PALETTE, tone } from "./plume_fields.js";
import { pictureOf } from "./surface.js";

const TICKS = [0, 0.01, 0.03, 0.1, 0.3, 1];

/** Return a legend: `{element, point(concentration), redraw(), close()}`. */
export function legend() {
  const bar = el("canvas", { class: "legend-bar", width: 256, height: 1, "aria-hidden": "true" });
  const mark = el("div", { class: "legend-mark", "aria-hidden": "true" });
  const value = el("span", { class: "legend-value" });
  const ticks = TICKS.map((tick) => placed(el("span", { class: "legend-tick" }, number(tick)), tone(tick)));
  const element = el(
    "div",
    { class: "legend" },
    el("div", { class: "legend-head" }, el("span", {}, "Concentration"), value),
    el("div", { class: "legend-scale" }, bar, mark),
    el("div", { class: "legend-ticks", "aria-hidden": "true" }, ticks),
  );
  fill(bar);
  return { element, point: (found) => point(mark, value, found), redraw: () => fill(bar), close: () => {} };
}

function placed(node, share) {
  node.style.left = `${100 * share}%`;
  return node;
}

function fill(bar) {
  const bytes = new Uint8ClampedArray(4 * 256).fill(255);
  for (let level = 0; level < 256; level += 1) {
    bytes.set(PALETTE.subarray(3 * level, 3 * level + 3), 4 * level);
  }
  bar.getContext("2d").drawImage(pictureOf(bytes, 256, 1).element, 0, 0);
}

function point(mark, value, found) {
  const isKnown = Number.isFinite(found);
  mark.hidden = !isKnown;
  placed(mark, isKnown ? tone(found) : 0);
  setText(value, isKnown ? `here ${number(found, 3)}` : "");
}
