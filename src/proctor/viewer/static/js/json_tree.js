/*
 * A JSON value as a tree that opens and closes, with what JSON pointers (RFC 6901) lead to marked; and a button that
 * copies it.
 *
 * Rule 1: every key and every value is a text node, whatever it says.
 * Rule 2: a branch is built when it is opened, in pieces: a value of any size costs nothing until somebody looks.
 * Rule 3: what was opened is kept in a set of pointers, so that the next value opens in the same places.
 */

import { button, el } from "./dom.js";
import { numeral } from "./format.js";

/** Returns the keys of a pointer. */
export function keysOf(pointer) {
  const text = String(pointer);
  if (!text.startsWith("/")) return [];
  return text
    .slice(1)
    .split("/")
    .map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
}

/** Returns the pointer of a key below another pointer. */
export function below(pointer, key) {
  return `${pointer}/${String(key).replaceAll("~", "~0").replaceAll("/", "~1")}`;
}

/** Returns {found, missing}: the longest pointer that exists in `value`, and the keys that do not. */
export function resolved(value, pointer) {
  const keys = keysOf(pointer);
  let [found, here] = ["", value];
  for (let at = 0; at < keys.length; at += 1) {
    if (!holds(here, keys[at])) return { found, missing: keys.slice(at) };
    here = here[keys[at]];
    found = below(found, keys[at]);
  }
  return { found, missing: [] };
}

/** Returns {marked: Map(pointer -> missing keys joined, "" if none), opened: Set of pointers on the way}. */
export function marks(value, pointers) {
  const marked = new Map();
  const opened = new Set();
  for (const { found, missing } of pointers.map((pointer) => resolved(value, pointer))) {
    marked.set(found, missing.join("/"));
    const keys = keysOf(found);
    let way = "";
    opened.add(way);
    for (const key of missing.length > 0 ? keys : keys.slice(0, -1)) opened.add((way = below(way, key)));
  }
  return { marked, opened };
}

function holds(value, key) {
  return typeof value === "object" && value !== null && Object.hasOwn(value, key);
}

const PIECE = 100;
const LONG = 160;

/** Returns the tree; `opened` is a Set of pointers that is read and kept up, `pointers` are to be seen at once. */
export function jsonTree(value, { pointers = [], opened = new Set([""]), name = "" } = {}) {
  const { marked, opened: needed } = marks(value, pointers);
  for (const pointer of needed) opened.add(pointer);
  return el("div", { class: "json" }, item({ key: name, value, pointer: "", marked, opened }));
}

/** Returns a button that copies the text that `said` returns. */
export function copyButton(said, announce = () => {}) {
  const copy = async () => {
    const done = await copied(said());
    pressed.textContent = done ? "Copied" : "Not copied";
    announce(done ? "Copied." : "The browser did not allow copying.");
    setTimeout(() => {
      pressed.textContent = "Copy";
    }, 1600);
  };
  const pressed = button("Copy", copy, { class: "quiet-button small-button" });
  return pressed;
}

/** Returns what a folded branch says of itself: "{3 keys}", "[10 items]". */
export function folded(value) {
  const count = Array.isArray(value) ? value.length : Object.keys(value).length;
  const noun = Array.isArray(value) ? "item" : "key";
  const words = `${count} ${noun}${count === 1 ? "" : "s"}`;
  return Array.isArray(value) ? `[${words}]` : `{${words}}`;
}

/** Return short arrays of plain values in one line, null for all others. */
export function inline(value) {
  if (!Array.isArray(value) || value.length === 0 || value.length > 12) return null;
  if (value.some(hasParts)) return null;
  const text = `[${value.map((each) => JSON.stringify(each)).join(", ")}]`;
  return text.length <= 72 ? text : null;
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

function item(spot) {
  const missing = spot.marked.get(spot.pointer);
  const classes = missing === "" ? "json-item pointed" : "json-item";
  const row = isBranch(spot.value) ? branch(spot) : leaf(spot);
  return el(
    "div",
    { class: classes },
    row,
    missing ? el("p", { class: "json-missing" }, `missing here: ${missing}`) : null,
  );
}

function isBranch(value) {
  return hasParts(value) && inline(value) === null && Object.keys(value).length > 0;
}

function hasParts(value) {
  return typeof value === "object" && value !== null && numeral(value) === null;
}

function keyLabel(key) {
  return key === ""
    ? null
    : [el("span", { class: "json-key" }, String(key)), el("span", { class: "json-colon" }, ": ")];
}

function leaf({ key, value }) {
  return el("div", { class: "json-leaf" }, keyLabel(key), plain(value));
}

function plain(value) {
  if (typeof value === "string") return string(value);
  const exact = numeral(value);
  if (exact !== null) return el("span", { class: "json-number" }, exact);
  if (hasParts(value)) {
    return el("span", { class: "json-plain" }, inline(value) ?? (Array.isArray(value) ? "[]" : "{}"));
  }
  return el("span", { class: `json-${value === null ? "null" : typeof value}` }, String(value));
}

function string(value) {
  const quoted = JSON.stringify(value);
  if (quoted.length <= LONG) return el("span", { class: "json-string" }, quoted);
  const text = el("span", { class: "json-string" }, `${quoted.slice(0, LONG)}…`);
  const show = () => {
    text.textContent = quoted;
  };
  return [text, " ", moreButton(`more (${quoted.length} characters)`, show)];
}

function branch(spot) {
  const inner = el("div", { class: "json-inner" });
  const fold = el(
    "details",
    { on: { toggle: () => turned(fold, inner, spot) } },
    el("summary", null, keyLabel(spot.key), el("span", { class: "json-fold" }, folded(spot.value))),
    inner,
  );
  if (spot.opened.has(spot.pointer)) {
    fold.open = true;
    fill(inner, spot);
  }
  return fold;
}

function turned(fold, inner, spot) {
  if (fold.open) spot.opened.add(spot.pointer);
  else spot.opened.delete(spot.pointer);
  if (fold.open && inner.childNodes.length === 0) fill(inner, spot);
}

function fill(inner, spot) {
  const entries = Object.entries(spot.value);
  const add = (start) => {
    for (const [key, value] of entries.slice(start, start + PIECE)) {
      inner.append(item({ ...spot, key, value, pointer: below(spot.pointer, key) }));
    }
    if (start + PIECE < entries.length)
      inner.append(moreButton(`show more (${entries.length - start - PIECE} left)`, () => add(start + PIECE)));
  };
  add(0);
}

/** Returns a button that goes when it was pressed. */
function moreButton(words, act) {
  const remove = () => {
    more.remove();
    act();
  };
  const more = button(words, remove, { class: "json-more" });
  return more;
}
