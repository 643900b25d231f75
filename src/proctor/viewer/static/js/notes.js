/*
 * What else was recorded: grants, failures, resets of a batch, the end; each one sentence, with the step it belongs to.
 *
 * Rule 1: the newest are on top, and no more than are read.
 */

import { clear, el } from "./dom.js";
import { number, time } from "./format.js";

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
      clear(list).append(...track.notes.slice(-MOST).reverse().map((note) => row(note, track, player)));
    }
  };
  update();
  return { element, update, close: () => {} };
}

function row(note, track, player) {
  const seek = () => {
    player.pause();
    player.seek(track.indexOfNumber(note.number));
  };
  const name = `Step ${number(note.step, 0)}`;
  return el(
    "li",
    { class: GRAVE.has(note.kind) ? "grave" : "" },
    el("button", { type: "button", class: "link", title: "Go there", on: { click: seek } }, name),
    el("span", { class: "notes-text" }, note.text),
    el("span", { class: "quiet notes-at" }, time(note.at).slice(11)),
  );
}
