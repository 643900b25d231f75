/*
 * Episodes from the file that this page is, with the face of `source.js`. What it keeps packed is unpacked on demand.
 */

import { exactly } from "./format.js";
import { NOT_HERE, Refusal } from "./source.js";

/** The side of a single file; `record` is its JSON, parsed. */
export class FileSource {
  constructor(record) {
    this.kind = "file";
    this.canAct = false;
    this.canFork = false;
    this.record = record;
    this.remarks = []; // those of a file stand in the page itself
    this.rows = new Map();
  }

  subscribe(kind, listener) {
    if (kind === "status") {
      listener("still");
    }
    return () => {};
  }

  close() {}

  async lines() {
    return this.record.lines;
  }

  async head(chain) {
    return this.episode(chain).head;
  }

  async slice(chain, after = 0) {
    return slicedAfter(this.episode(chain).slice, after);
  }

  async explanation(chain, number) {
    const found = this.episode(chain).explanations?.[number];
    return found ?? absent("This file has no explanation of that packet; it keeps those of refused ones.");
  }

  /** The rows are unpacked when somebody first asks for one. */
  async raw(chain, number) {
    const packed = this.episode(chain).raw;
    if (!this.rows.has(chain)) {
      this.rows.set(chain, packed ? unpackedRows(packed) : Promise.resolve(new Map()));
    }
    const found = (await this.rows.get(chain)).get(number);
    return found === undefined ? absent("This file has not kept that row.") : exactly(found);
  }

  async pixels(chain, number) {
    const found = pictureAt(this.episode(chain).pixels ?? {}, number);
    return found ?? absent("This file has no picture of that step.");
  }

  async difference(one, other) {
    const found = this.record.differences?.[`${one}|${other}`];
    return found ?? absent("This file holds no comparison of these two episodes.");
  }

  async machine() {
    return this.record.machine;
  }

  async fork() {
    return absent("A file cannot run an environment; `proctor view` on the ledger can.");
  }

  async pending() {
    return [];
  }

  async governed() {
    return [];
  }

  async act() {
    return absent("A file is a record: there is nobody to act upon.");
  }

  episode(chain) {
    const episodes = this.record.episodes ?? {};
    return Object.hasOwn(episodes, chain) ? episodes[chain] : absent(`This file holds no episode ${chain}.`);
  }
}

function absent(sentence) {
  throw new Refusal(NOT_HERE, sentence);
}

/** Return the part of a whole slice with rows after `after`; totals count from there. */
function slicedAfter(slice, after) {
  if (after <= slice.after) {
    return slice;
  }
  const { steps } = slice;
  const first = firstAfter(steps.number, after);
  const before = first === 0 ? 0 : steps.total[first - 1];
  const columns = Object.entries(steps).map(([name, column]) => [name, cut(name, column, first, before)]);
  return {
    ...slice,
    after,
    last: Math.max(slice.last, after),
    steps: Object.fromEntries(columns),
    packets: slice.packets.filter((packet) => packet.number > after),
    notes: slice.notes.filter((note) => note.number > after),
  };
}

/** Return a map from a row's number to its JSON text; `packed` is base64 of gzip of JSON lines. */
async function unpackedRows(packed) {
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const text = await new Response(stream).text();
  const lines = text.split("\n").filter((line) => line !== "");
  return new Map(lines.map((line) => [numberOf(line), line]));
}

/** A row says its number first; to read all rows whole for that would take a while. */
function numberOf(line) {
  const found = /^\{"number":\s*(\d+)/.exec(line);
  return found === null ? JSON.parse(line).number : Number(found[1]);
}

/** Return the picture of a row, or of the nearest one before it: of a long episode a file keeps some only. */
function pictureAt(pictures, number) {
  const numbers = Object.keys(pictures).map(Number).filter((each) => each <= number);
  return numbers.length === 0 ? null : pictures[Math.max(...numbers)];
}

function firstAfter(numbers, after) {
  const found = numbers.findIndex((number) => number > after);
  return found === -1 ? numbers.length : found;
}

function cut(name, column, first, before) {
  if (name === "parts") {
    return Object.fromEntries(Object.entries(column).map(([part, values]) => [part, values.slice(first)]));
  }
  const rest = column.slice(first);
  return name === "total" ? rest.map((total) => total - before) : rest;
}
