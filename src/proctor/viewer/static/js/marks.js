/*
 * What happened, marked over the scrubber: packets, refusals, an agent's calls, the ends, the first difference.
 *
 * Rule 1: a pixel column shows what is gravest in it; ten thousand packets cost no more than a hundred.
 * Rule 2: the marks stand where the slider's thumb would be.
 */

import { colour, onTheme } from "./theme.js";
import { Surface } from "./surface.js";

export const INSET = 8; // pixels at each side: half of the slider's thumb

/* From the lightest to the gravest: a later row covers an earlier one. */
const KINDS = [
  { name: "call", colour: "line-strong", top: 0.6, words: "tool calls" },
  { name: "packet", colour: "accent", top: 0.35, words: "packets" },
  { name: "warning", colour: "warn", top: 0.35, words: "warnings" },
  { name: "refusal", colour: "bad", top: 0, words: "refusals" },
  { name: "end", colour: "good", top: 0, words: "ends" },
  { name: "difference", colour: "accent", top: 0, words: "first difference" },
];

/** Return `[kind, index]` of everything that is marked. */
export function marksOf(track, difference = null) {
  const packets = track.packets.map((packet) => [packetKind(packet), track.indexOfNumber(packet.number)]);
  const ends = [];
  for (let i = 0; i < track.length; i += 1) {
    if (track.ended(i) > 0) {
      ends.push(["end", i]);
    }
  }
  const calls = track.calls.map(([index]) => ["call", index]);
  return [...calls, ...packets, ...ends, ...(difference === null ? [] : [["difference", difference]])];
}

function packetKind(packet) {
  if (!packet.accepted) {
    return "refusal";
  }
  return packet.warnings?.length > 0 ? "warning" : "packet";
}

/** Return for every pixel column the gravest kind in it, as a place in the table; -1 where nothing is. */
export function columnsOf(marks, length, width) {
  const columns = new Int8Array(Math.max(0, width)).fill(-1);
  const order = Object.fromEntries(KINDS.map((kind, place) => [kind.name, place]));
  for (const [kind, index] of marks) {
    const x = length > 1 ? Math.round((index / (length - 1)) * (width - 1)) : 0;
    columns[x] = Math.max(columns[x], order[kind]);
  }
  return columns;
}

export class Marks {
  #track;
  #difference;
  #surface;
  #unsubscribe;
  #drawn = "";

  constructor(track, difference) {
    this.#track = track;
    this.#difference = difference;
    this.#surface = new Surface({ name: "scrub-marks", onResize: () => this.#draw() });
    this.#unsubscribe = onTheme(() => this.#draw());
    this.element = this.#surface.element;
  }

  /** Draws again, if anything came. */
  update() {
    const { length, packets, generation } = this.#track;
    const state = [length, packets.length, generation, this.#difference()].join();
    if (state !== this.#drawn) {
      this.#drawn = state;
      this.#draw();
    }
  }

  close() {
    this.#unsubscribe();
    this.#surface.close();
  }

  #draw() {
    const { width, height, isVisible } = this.#surface;
    if (!isVisible) {
      return;
    }
    const context = this.#surface.begin();
    const marks = marksOf(this.#track, this.#difference());
    const columns = columnsOf(marks, this.#track.length, Math.floor(width) - 2 * INSET);
    const colours = KINDS.map((kind) => colour(kind.colour));
    columns.forEach((place, x) => {
      if (place >= 0) {
        const { top, name } = KINDS[place];
        const wide = name === "refusal" || name === "difference" || name === "end" ? 2 : 1;
        context.fillStyle = colours[place];
        context.fillRect(INSET + x - wide / 2, top * height, wide, height * (1 - top));
      }
    });
    this.#surface.describe(wordsFor(marks));
  }
}

/** Return how much of what is marked: "3 packets, 1 refusals" or that there is nothing. */
export function wordsFor(marks) {
  const counts = KINDS.map(({ name, words }) => [marks.filter(([kind]) => kind === name).length, words]);
  const said = counts.filter(([count]) => count > 0).map(([count, words]) => `${words}: ${count}`);
  return said.length > 0 ? `Marks on the timeline: ${said.join(", ")}.` : "No marks on the timeline.";
}
