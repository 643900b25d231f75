/*
 * What a single file keeps packed, unpacked: slices by row, and raw rows. Pure but for the browser's decompression.
 */

/** Return the part of a whole slice with rows after `after`; totals count from there. */
export function slicedAfter(slice, after) {
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
export async function unpackedRows(packed) {
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
export function pictureAt(pictures, number) {
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
