// Where two episodes first differ: one sentence, both values, and a button that goes there.
//
// Rule 1: the sentence is the server's; the values are shown as they are.

import { clear, el } from "./dom.js";
import { jsonTree } from "./json_tree.js";
import { SIDES, turned } from "./pair.js";

const SO_FAR = "is here so far"; // what the server says of an open episode that is shorter than the other

/** Returns {element, show(difference), fail(problem), focus()}; `jump()` goes to the difference. */
export function differencePanel({ jump }) {
  const body = el(
    "div",
    { class: "difference-body" },
    el("p", { class: "quiet" }, "Looking for the first difference…"),
  );
  const title = el("h2", { tabindex: "-1" }, "First difference");
  const element = el(
    "section",
    { class: "panel difference", "aria-label": "First difference" },
    title,
    body,
  );
  const fill = (...nodes) => clear(body).append(...nodes.filter(Boolean));
  return {
    element,
    show: (difference) => fill(...(difference.same ? same(difference) : differing(difference, jump))),
    focus: () => title.focus(),
    fail: (problem) => fill(el("p", { class: "quiet" }, `The two cannot be compared: ${problem.message}`)),
  };
}

function same({ text }) {
  return [el("p", { class: "difference-text" }, text || "The two episodes do not differ.")];
}

function differing(difference, jump) {
  const canJump = difference.step !== null;
  return [
    el("p", { class: "difference-text" }, difference.text),
    canJump
      ? el(
          "button",
          { type: "button", class: "primary", on: { click: jump } },
          `Jump to the first difference (step ${difference.step})`,
        )
      : null,
    el(
      "div",
      { class: "difference-values" },
      [difference.left, difference.right].map((value, place) => side(value, place, difference)),
    ),
  ];
}

function side(value, place, { what, where }) {
  return el(
    "div",
    { class: "difference-value" },
    el("h3", null, sideBadge(place), `${["Left", "Right"][place]}: `, [what, where].filter(Boolean).join(" ")),
    jsonTree(value ?? null),
  );
}

/** Returns whether a difference may be another when there is more of an open episode. */
export function isUnsettled({ same, left, right }) {
  return same || left === SO_FAR || right === SO_FAR;
}

/** Returns where two chains first differ; a file holds a comparison in one order only. */
export async function differenceOf(source, one, other) {
  try {
    return await source.difference(one, other);
  } catch (problem) {
    if (source.kind !== "file") throw problem;
    return turned(await source.difference(other, one));
  }
}

/** Returns the sign of a side, in the colour of its lines. */
export function sideBadge(place) {
  return el("span", { class: `side side-${SIDES[place].toLowerCase()}` }, SIDES[place]);
}
