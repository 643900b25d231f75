/*
 * What no painter knows: the observation as a small table, bars or a picture, by its shape.
 *
 * Rule 1: whatever was recorded is shown; a value that is too large for a slice is fetched when it is looked at.
 * Rule 2: the rows stay while the observation keeps its shape; only what they say changes.
 */

import { clear, el, setText } from "./dom.js";
import { number } from "./format.js";
import { needsUnpacking, partsOf, pixelsOf, rangeOf, unpackedParts, unwrapped } from "./observation.js";
import { pictureOf } from "./surface.js";

const CHARTED = 6; // numbers of an observation that get a line in the charts
const SPOKEN = 8; // values in the words for an observation
const REMEMBERED = 32; // fetched observations
const PATIENCE = 90; // ms that the cursor rests before something is fetched

export const unknown = {
  name: "unknown",
  fits: () => true,
  series: (head) => observationSeries(head.observation),
  describe: (frame, scene, observation) => describe(observation ?? frame),
  open: (given) => new UnknownView(given),
};

/** Return an observation's first values in words. */
export function describe(observation) {
  if (observation === null || observation === undefined) {
    return "No observation is kept for this step.";
  }
  const words = partsOf(observation).slice(0, SPOKEN).map(partWords);
  return `The observation: ${words.join("; ")}.`;
}

/** Return the series of a small vector or of a few named values, from the first observation. */
export function observationSeries(first) {
  const parts = first === null || first === undefined || needsUnpacking(first) ? [] : partsOf(first);
  const places = parts.flatMap(placesOf);
  return places.length > CHARTED ? [] : places.map(({ name, read }) => seriesOf(name, read));
}

function placesOf(part) {
  if (part.kind === "value") {
    return [{ name: part.name || "observation", read: (found) => byName(found, part.name)?.value }];
  }
  if (part.kind === "vector") {
    const label = (i) => `${part.name || "observation"}[${i}]`;
    return Array.from(part.flat, (_, i) => ({ name: label(i), read: (found) => byName(found, part.name)?.flat?.[i] }));
  }
  return [];
}

function byName(parts, name) {
  return parts.find((part) => part.name === name);
}

function seriesOf(name, read) {
  const value = (frame, observation) => (observation === null ? NaN : read(partsOf(observation)) ?? NaN);
  return { name: `seen:${name}`, label: name, group: "observation", value };
}

function partWords(part) {
  const name = part.name === "" ? "" : `${part.name} `;
  if (part.kind === "value") {
    return `${name}${number(part.value, 4)}`;
  }
  if (part.kind === "vector") {
    return name + Array.from(part.flat, (value) => number(value, 4)).join(", ");
  }
  return part.kind === "text" ? name + part.text : `${name}an array of ${part.shape.join(" × ")}`;
}

class UnknownView {
  #track;
  #chain;
  #keeps;
  #source;
  #fetched = new Map();
  #timer = null;
  #index = 0;
  #rows = [];
  #signature = null;
  #note = el("p", { class: "quiet seen-note", hidden: true });
  #body = el("div", { class: "seen" });
  #closed = false;

  constructor({ head, track, context }) {
    this.#track = track;
    this.#chain = head.line.chain;
    this.#keeps = head.keeps;
    this.#source = context?.source ?? null;
    this.element = el("div", { class: "stage-unknown" }, this.#body, this.#note);
  }

  draw(index) {
    this.#index = index;
    const value = this.#track.observation(index) ?? this.#fetched.get(this.#track.number(index)) ?? null;
    clearTimeout(this.#timer);
    if (value !== null) {
      this.#show(value, index);
    } else if (this.#keeps === "all" && this.#source !== null) {
      this.#timer = setTimeout(() => this.#fetch(index), PATIENCE);
    } else {
      this.#show(this.#track.frame(index), index);
    }
  }

  redraw() {
    this.draw(this.#index);
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
  }

  async #fetch(index) {
    const row = this.#track.number(index);
    try {
      const found = await this.#source.raw(this.#chain, row);
      this.#remember(row, found.event?.observation ?? null);
    } catch {
      this.#remember(row, null);
    }
    if (!this.#closed && index === this.#index) {
      this.#show(this.#fetched.get(row) ?? this.#track.frame(index), index);
    }
  }

  #remember(row, value) {
    if (this.#fetched.size >= REMEMBERED) {
      this.#fetched.delete(this.#fetched.keys().next().value);
    }
    this.#fetched.set(row, value);
  }

  async #show(value, index) {
    this.#note.hidden = value !== null && value !== undefined;
    setText(this.#note, "No observation is kept for this step.");
    if (value === null || value === undefined) {
      return;
    }
    const parts = needsUnpacking(unwrapped(value)) ? await unpackedParts(value) : partsOf(value);
    if (!this.#closed && index === this.#index) {
      this.#fill(parts);
    }
  }

  #fill(parts) {
    const signature = JSON.stringify(parts.map((part) => [part.name, part.kind, part.shape]));
    if (signature !== this.#signature) {
      this.#signature = signature;
      this.#rows = parts.map(rowOf);
      clear(this.#body).append(...this.#rows.map((row) => row.element));
    }
    this.#rows.forEach((row, i) => row.set(parts[i]));
  }
}

const ROWS = { value: valueRow, text: textRow, vector: vectorRow, bars: barsRow, table: tableRow, picture: pictureRow };

function rowOf(part) {
  return ROWS[part.kind](part);
}

function block(part, ...children) {
  const name = part.name || "observation";
  return el("div", { class: `seen-part seen-${part.kind}` }, el("div", { class: "seen-name" }, name), ...children);
}

function valueRow(part) {
  const value = el("div", { class: "seen-number" });
  return { element: block(part, value), set: ({ value: found }) => setText(value, number(found, 6)) };
}

function textRow(part) {
  const text = el("div", { class: "seen-text" });
  return { element: block(part, text), set: (found) => setText(text, found.text) };
}

/** A row per number, each with a bar around zero; the scale widens with what was seen. */
function vectorRow(part) {
  const seen = [0, 0];
  const rows = Array.from(part.flat, (_, i) => {
    const bar = el("span", { class: "seen-fill" });
    const value = el("td", { class: "seen-number" });
    const track = el("td", { class: "seen-track", "aria-hidden": "true" }, bar);
    return { bar, value, element: el("tr", {}, el("th", { scope: "row" }, String(i)), value, track) };
  });
  const set = ({ flat }) => {
    const [low, high] = rangeOf(flat);
    [seen[0], seen[1]] = [Math.min(seen[0], low), Math.max(seen[1], high)];
    rows.forEach((row, i) => setBar(row, flat[i], seen));
  };
  const body = el("tbody", {}, rows.map((row) => row.element));
  return { element: block(part, el("table", { class: "seen-rows" }, body)), set };
}

function setBar({ bar, value }, found, [low, high]) {
  setText(value, number(found, 4));
  const width = high - low || 1;
  const [from, to] = [Math.min(found, 0), Math.max(found, 0)].map((edge) => (edge - low) / width);
  bar.style.left = `${100 * (Number.isFinite(from) ? from : 0)}%`;
  bar.style.width = `${100 * (Number.isFinite(to - from) ? to - from : 0)}%`;
}

/** Many numbers as a row of bars on a canvas. */
function barsRow(part) {
  const canvas = el("canvas", { class: "seen-canvas", role: "img", width: part.flat.length, height: 64 });
  const set = ({ flat }) => {
    const [low, high] = rangeOf(flat);
    canvas.setAttribute("aria-label", `${flat.length} numbers from ${number(low, 4)} to ${number(high, 4)}`);
    drawBars(canvas, flat, Math.min(low, 0), Math.max(high, 0));
  };
  return { element: block(part, canvas), set };
}

function drawBars(canvas, flat, low, high) {
  const context = canvas.getContext("2d");
  const level = (value) => canvas.height * (1 - (value - low) / (high - low || 1));
  context.clearRect(0, 0, canvas.width, canvas.height);
  context.fillStyle = getComputedStyle(canvas).color;
  flat.forEach((value, i) => {
    const [top, bottom] = [level(Math.max(value, 0)), level(Math.min(value, 0))];
    context.fillRect(i, top, 1, Math.max(1, bottom - top));
  });
}

function tableRow(part) {
  const [rows, columns] = part.shape;
  const cells = Array.from(part.flat, () => el("td"));
  const lines = Array.from({ length: rows }, (_, row) => el("tr", {}, cells.slice(row * columns, (row + 1) * columns)));
  const set = ({ flat }) => cells.forEach((cell, i) => setText(cell, number(flat[i], 3)));
  const table = el("table", { class: "seen-numbers" }, el("tbody", {}, lines));
  const box = { class: "seen-scroll", tabindex: "0", role: "region", "aria-label": part.name || "observation" };
  return { element: block(part, el("div", box, table)), set };
}

function pictureRow(part) {
  const canvas = el("canvas", { class: "seen-picture", role: "img" });
  const set = (found) => {
    const { bytes, width, height, low, high, channels } = pixelsOf(found);
    [canvas.width, canvas.height] = [width, height];
    canvas.getContext("2d").drawImage(pictureOf(bytes, width, height).element, 0, 0);
    const range = channels === 1 ? `, black is ${number(low, 3)}, white is ${number(high, 3)}` : "";
    canvas.setAttribute("aria-label", `Picture of ${found.shape.join(" × ")} numbers${range}`);
  };
  return { element: block(part, canvas), set };
}
