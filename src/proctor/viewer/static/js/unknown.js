/*
 * What no painter knows: the observation as a small table, bars or a picture, by its shape; or pictures that were
 * recorded.
 *
 * Rule 1: what is too large for a slice is fetched one by one, the cursor's first, then the next ones in the way it
 *     moves; the last ones are remembered. Until the cursor's own has come, the nearest that has is seen: a slow
 *     server drops frames only.
 * Rule 2: the rows stay while the observation keeps its shape; only what they say changes.
 * Rule 3: the words are those of the cursor's step; that there is no observation is said only where none is kept.
 */

import { Surface, colour, pictureOf } from "./canvas.js";
import { clear, el, setText } from "./dom.js";
import { number } from "./format.js";
import { needsUnpacking, partsOf, pixelsOf, rangeOf, scaleOf, unpackedParts, unwrapped } from "./observation.js";

const AHEAD = 4; // steps beyond the cursor that are fetched before they are needed

export class Ahead {
  #given;
  #come = new Map(); // by row number
  #index = 0;
  #direction = 1;
  #busy = false;
  #closed = false;

  /** `fetch(row)` brings a value, `onCome()` is told of each; where `needs(index)` is false, nothing is fetched. */
  constructor({ track, fetch, onCome, remembered, needs = () => true }) {
    this.#given = { track, fetch, onCome, remembered, needs };
  }

  /** Says where the cursor is. */
  moveTo(index) {
    this.#direction = index < this.#index ? -1 : 1;
    this.#index = index;
    this.#fetchNext();
  }

  /** Return what has come for an index, undefined if nothing has yet. */
  at(index) {
    return this.#come.get(this.#given.track.number(index));
  }

  /** Return what has come nearest to the cursor and is something, undefined if there is none. */
  nearest() {
    const row = this.#given.track.number(this.#index);
    const nearer = (one, other) => (Math.abs(other.row - row) < Math.abs(one.row - row) ? other : one);
    const found = [...this.#come.values()].filter(({ value }) => value !== null);
    return found.length === 0 ? undefined : found.reduce(nearer);
  }

  close() {
    this.#closed = true;
    this.#come.clear();
  }

  async #fetchNext() {
    const index = this.#busy || this.#closed ? undefined : this.#missing();
    if (index === undefined) {
      return;
    }
    this.#busy = true;
    const come = await this.#fetched(this.#given.track.number(index));
    this.#busy = false;
    if (!this.#closed) {
      this.#remember(come);
      this.#fetchNext(); // before anybody is told: what they do with it takes its time
      this.#given.onCome();
    }
  }

  /** Return the nearest index, from the cursor on in the way it moves, of which nothing has come. */
  #missing() {
    const { track, needs } = this.#given;
    const near = Array.from({ length: AHEAD + 1 }, (_, i) => this.#index + i * this.#direction);
    return near.find((i) => i >= 0 && i < track.length && this.at(i) === undefined && needs(i));
  }

  async #fetched(row) {
    try {
      return { row, value: (await this.#given.fetch(row)) ?? null, problem: null };
    } catch (problem) {
      return { row, value: null, problem };
    }
  }

  #remember(come) {
    if (this.#come.size >= this.#given.remembered) {
      this.#come.delete(this.#come.keys().next().value);
    }
    this.#come.set(come.row, come);
  }
}

const CHARTED = 6; // numbers of an observation that get a line in the charts
const SPOKEN = 8; // values in the words for an observation
const SPOKEN_TEXT = 40; // characters of a text in the words: it is shown whole beside them
const REMEMBERED_OBSERVATIONS = 32; // fetched observations
const NONE = "No observation is kept for this step.";
const COMING = "The observation is being fetched.";

export const unknown = {
  name: "unknown",
  fits: () => true,
  series: (head) => observationSeries(head.observation),
  describe: (frame, scene, observation) => describe(observation ?? frame),
  open: (given) => new UnknownView(given),
};

/** Return an observation's first values in words. */
export function describe(observation) {
  return observation === null || observation === undefined ? NONE : wordsOf(partsOf(observation));
}

function wordsOf(parts) {
  const words = parts.slice(0, SPOKEN).map(partWords).join("; ");
  return parts.length === 0 ? "The observation is empty." : `The observation: ${words}.`;
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
  return part.kind === "text" ? name + cut(part.text) : `${name}an array of ${part.shape.join(" × ")}`;
}

function cut(text) {
  return text.length > SPOKEN_TEXT ? `${text.slice(0, SPOKEN_TEXT)}…` : text;
}

class UnknownView {
  #track;
  #ahead;
  #onShown;
  #index = 0;
  #asked = null; // the row that was to be shown last
  #turn = 0; // counts what was to be shown
  #seen = { row: null, turn: 0, parts: [], words: COMING };
  #rows = [];
  #signature = null;
  #note = el("p", { class: "quiet seen-note", hidden: true });
  #body = el("div", { class: "seen" });
  #closed = false;

  /** `onShown()` is told when something else is seen, and said, than before. */
  constructor({ head, track, context, onShown = () => {} }) {
    this.#track = track;
    this.#onShown = onShown;
    const isKept = head.keeps === "all" && !head.line.fork; // a fork has no rows that could be fetched
    this.#ahead = isKept && context?.source ? this.#fetching(context.source, head.line.chain) : null;
    this.element = el("div", { class: "stage-unknown" }, this.#body, this.#note);
  }

  draw(index) {
    this.#index = index;
    this.#ahead?.moveTo(index);
    this.#look();
  }

  redraw() {
    this.#set(this.#seen.parts);
  }

  /** Return what is seen of an index, in words. */
  words(index) {
    return this.#seen.row === this.#track.number(index) ? this.#seen.words : COMING;
  }

  close() {
    this.#closed = true;
    this.#ahead?.close();
  }

  #fetching(source, chain) {
    const track = this.#track;
    return new Ahead({
      track,
      remembered: REMEMBERED_OBSERVATIONS,
      needs: (index) => track.observation(index) === null,
      fetch: async (row) => (row === 0 ? null : observed(await source.raw(chain, row))),
      onCome: () => this.#look(),
    });
  }

  /** Shows what is at the cursor; until that has come, the nearest that has. */
  #look() {
    const found = this.#at(this.#index) ?? this.#ahead.nearest();
    if (found !== undefined && found.row !== this.#asked) {
      this.#asked = found.row;
      this.#show(found);
    }
  }

  /** Return `{row, value, problem}` of an index, undefined while it is fetched. */
  #at(index) {
    const [row, kept] = [this.#track.number(index), this.#track.observation(index)];
    const found = kept !== null || this.#ahead === null ? { row, value: kept, problem: null } : this.#ahead.at(index);
    return found && { ...found, value: found.value ?? this.#track.frame(index) };
  }

  #show({ row, value, problem }) {
    this.#turn += 1;
    const turn = this.#turn;
    if (value === null) {
      this.#fill({ row, turn, parts: [], words: noneWords(problem) });
      return;
    }
    const fill = (parts) => this.#fill({ row, turn, parts, words: wordsOf(parts) });
    if (needsUnpacking(unwrapped(value))) {
      unpackedParts(value).then(fill);
    } else {
      fill(partsOf(value));
    }
  }

  /** Unpacking takes its time: what was asked for earlier than what is seen comes too late. */
  #fill(found) {
    if (this.#closed || found.turn < this.#seen.turn) {
      return;
    }
    this.#seen = found;
    this.#note.hidden = found.parts.length > 0;
    setText(this.#note, found.words);
    this.#set(found.parts);
    this.#onShown();
  }

  #set(parts) {
    const signature = JSON.stringify(parts.map((part) => [part.name, part.kind, part.shape]));
    if (signature !== this.#signature) {
      this.#signature = signature;
      this.#rows = parts.map(rowOf);
      clear(this.#body).append(...this.#rows.map((row) => row.element));
    }
    this.#rows.forEach((row, i) => row.set(parts[i]));
  }
}

/** Return a recorded row's observation, or those of a batch. */
function observed({ event }) {
  return event?.observation ?? event?.observations ?? null;
}

function noneWords(problem) {
  return problem === null ? NONE : `The observation cannot be fetched: ${problem.message}`;
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
  context.fillStyle = colour("--series-1"); // not the canvas's own: it may not be in the document yet
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

/** A picture, and what its numbers go from and to where these are no bytes; the scale widens with what was seen. */
function pictureRow(part) {
  const canvas = el("canvas", { class: "seen-picture", role: "img" });
  const range = el("p", { class: "quiet seen-range" });
  let scale = null;
  const set = (found) => {
    scale = scaleOf(found, scale);
    const { bytes, width, height, channels } = pixelsOf(found, scale);
    [canvas.width, canvas.height] = [width, height];
    canvas.getContext("2d").drawImage(pictureOf(bytes, width, height).element, 0, 0);
    const words = rangeWords(scale, channels);
    range.hidden = scale[0] === 0 && scale[1] === 255;
    setText(range, words);
    canvas.setAttribute("aria-label", `Picture of ${found.shape.join(" × ")} numbers: ${words}`);
  };
  return { element: block(part, canvas, range), set };
}

function rangeWords([low, high], channels) {
  const [least, most] = [number(low, 3), number(high, 3)];
  return channels === 1 ? `black is ${least}, white is ${most}` : `colours go from ${least} to ${most}`;
}

const REMEMBERED_PICTURES = 64;
const NO_PICTURE = "No picture of this step is kept.";

export const pixels = {
  name: "pixels",
  fits: (head) => head.scene?.environment === "pixels" && !head.line.fork, // a fork's pictures are kept nowhere
  series: (head) => observationSeries(head.observation),
  describe: (frame) => (frame?.pixels ? "A picture that the environment drew itself." : NO_PICTURE),
  open: (given) => new PixelsView(given),
};

class PixelsView {
  #track;
  #ahead;
  #surface;
  #note = el("p", { class: "quiet seen-note", hidden: true }, NO_PICTURE);
  #index = 0;

  constructor({ head, track, context }) {
    this.#track = track;
    this.#ahead = new Ahead({
      track,
      remembered: REMEMBERED_PICTURES,
      fetch: (row) => fetched(context.source, head.line.chain, row),
      onCome: () => this.#paint(),
    });
    this.#surface = new Surface({ name: "stage-canvas stage-pixels", onResize: () => this.#paint() });
    this.element = el("div", { class: "stage-picture" }, this.#surface.element, this.#note);
  }

  draw(index) {
    this.#index = index;
    this.#ahead.moveTo(index);
    this.#paint();
  }

  redraw() {
    this.#paint();
  }

  close() {
    this.#ahead.close();
    this.#surface.close();
  }

  #paint() {
    const own = this.#ahead.at(this.#index);
    const found = own ?? this.#ahead.nearest();
    this.#note.hidden = own === undefined || own.value !== null;
    if (found?.value && this.#surface.isVisible) {
      this.#put(found.value, this.#track.step(this.#track.indexOfNumber(found.row)));
    }
  }

  #put(picture, step) {
    const { element } = this.#surface;
    element.style.aspectRatio = `${picture.naturalWidth} / ${picture.naturalHeight}`;
    const context = this.#surface.begin();
    context.imageSmoothingEnabled = picture.naturalWidth > this.#surface.width; // small pictures keep their pixels
    context.drawImage(picture, 0, 0, this.#surface.width, this.#surface.height);
    const size = `${picture.naturalWidth} × ${picture.naturalHeight} pixels`;
    this.#surface.describe(`Picture of step ${step}, ${size}.`);
  }
}

async function fetched(source, chain, row) {
  const picture = new Image();
  picture.src = await source.pixels(chain, row);
  await picture.decode();
  return picture;
}
