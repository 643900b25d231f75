/*
 * The keys of an episode's page, as a table; and the dialog that lists them.
 *
 * Rule 1: a key that someone types into a field, or presses on a button with a meaning of its own, is left alone.
 * Rule 2: the scrubber is the exception: its arrows are ours, so that shift means ten there as well.
 */

import { el } from "./dom.js";

/* Each row: the keys as the browser names them, as people read them, what they do, and the act's name. */
const KEYS = [
  { keys: [" "], shown: ["Space"], words: "Play or pause", act: "toggle" },
  { keys: ["ArrowLeft"], shown: ["←"], words: "Back one step; with Shift ten", act: "back" },
  { keys: ["ArrowRight"], shown: ["→"], words: "Forward one step; with Shift ten", act: "forth" },
  { keys: ["Home"], shown: ["Home"], words: "To the beginning", act: "start" },
  { keys: ["End"], shown: ["End"], words: "To the end", act: "end" },
  { keys: ["["], shown: ["["], words: "To the refusal before", act: "refusedBefore" },
  { keys: ["]"], shown: ["]"], words: "To the next refusal", act: "refusedAfter" },
  { keys: ["+", "="], shown: ["+"], words: "Faster", act: "faster" },
  { keys: ["-"], shown: ["−"], words: "Slower", act: "slower" },
  { keys: ["j"], shown: ["j"], words: "To the next packet", act: "nextPacket" },
  { keys: ["k"], shown: ["k"], words: "To the packet before", act: "packetBefore" },
  { keys: ["?"], shown: ["?"], words: "This list", act: "help" },
];
const FIELDS = "input, textarea, select, [contenteditable]";
const PRESSED = "button, a, summary, [role=button], [role=option]";

/** Return the name of the act that a key event asks for, or null. */
export function actOf(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) {
    return null;
  }
  const row = KEYS.find(({ keys }) => keys.includes(event.key));
  return row === undefined || isTaken(event.target, event.key) ? null : row.act;
}

/** Listen for keys on the document; `acts[name](event)`. Returns what ends it. */
export function listenForKeys(acts) {
  const pressed = (event) => {
    const act = acts[actOf(event)];
    if (act !== undefined) {
      event.preventDefault();
      act(event);
    }
  };
  document.addEventListener("keydown", pressed);
  return () => document.removeEventListener("keydown", pressed);
}

/** Show the list of keys. */
export function showKeys() {
  const close = el("button", { type: "button", class: "primary", on: { click: () => dialog.close() } }, "Close");
  const rows = KEYS.map(({ shown, words }) =>
    el("div", { class: "key-row" }, el("dt", {}, shown.map((key) => el("kbd", {}, key))), el("dd", {}, words)),
  );
  const dialog = el(
    "dialog",
    { class: "question", "aria-labelledby": "keys-title", on: { close: () => dialog.remove() } },
    el("h2", { id: "keys-title" }, "Keys"),
    el("dl", { class: "keys" }, rows),
    el("div", { class: "question-buttons" }, close),
  );
  document.body.append(dialog);
  dialog.showModal();
}

function isTaken(target, key) {
  if (typeof target?.closest !== "function") {
    return false;
  }
  if (target.closest("dialog") !== null) {
    return true;
  }
  if (target.type === "range") {
    return false;
  }
  return target.closest(FIELDS) !== null || (key === " " && target.closest(PRESSED) !== null);
}
