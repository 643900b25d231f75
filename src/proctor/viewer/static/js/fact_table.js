// What is to be said of two episodes, as a table with a column for each; what differs is marked.
//
// Rule 1: a difference is shown by weight and by a word, not by colour alone.

import { clear, el, setText } from "./dom.js";
import { sideBadge } from "./differing.js";
import { cursorFacts, lineFacts } from "./pair.js";

/** Returns {element, point(index), update()}. */
export function factsTable(pair) {
  const now = el("tbody");
  const whole = el("tbody");
  const rows = [];
  const element = el(
    "table",
    { class: "fact-table" },
    el("caption", { class: "visually-hidden" }, "Facts of both episodes"),
    el(
      "thead",
      null,
      el(
        "tr",
        null,
        el("td"),
        [0, 1].map((place) => el("th", { scope: "col" }, sideBadge(place))),
      ),
    ),
    now,
    whole,
  );
  const update = () =>
    clear(whole).append(heading("Episode"), ...lineFacts(pair.sides).map((fact) => row(fact).node));
  const point = (index) =>
    cursorFacts(pair, index).forEach((fact, at) => {
      if (rows[at] === undefined) {
        rows[at] = row(fact);
        now.append(rows[at].node);
      } else rows[at].show(fact);
    });
  now.append(heading("At the cursor"));
  update();
  return { element, point, update };
}

function heading(text) {
  return el("tr", null, el("th", { colspan: "3", scope: "rowgroup", class: "fact-group" }, text));
}

function row(fact) {
  const values = fact.values.map(() => el("td"));
  const node = el("tr", null, el("th", { scope: "row" }, fact.name), values);
  const show = ({ values: said, same }) => {
    said.forEach((text, place) => setText(values[place], text));
    node.classList.toggle("differs", !same);
    node.title = same ? "" : "differs";
  };
  show(fact);
  return { node, show };
}
