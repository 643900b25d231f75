/*
 * An observation of any space, taken apart into what can be shown: values, vectors, tables, pictures.
 *
 * Rule 1: every value has a place here; what is neither a number nor an array is text.
 * Rule 2: pure: no document.
 */

import { arrayOf, asNumber, isPacked, isRead, isZipped, unpacked } from "./arrays.js";

const MOST_PARTS = 60;
const DEEPEST = 8; // what is nested deeper is text
const LONG_VECTOR = 32; // numbers; a longer one is drawn, not listed
const TABLE = 160; // cells; a larger matrix is a picture
const LONG_TEXT = 200;
const SCALES = { "|u1": [0, 255], "|b1": [0, 1] }; // what pictures of such numbers go from and to, whatever is in them

/** Return the observation without the envelope that only says "observation". */
export function unwrapped(value) {
  const keys = isRecord(value) ? Object.keys(value) : [];
  return keys.length === 1 && keys[0] === "observation" ? value.observation : value;
}

/** Return whether something inside is compressed and must be unpacked first. */
export function needsUnpacking(value, depth = 0) {
  if (isZipped(value)) {
    return true;
  }
  return isNest(value) && depth < DEEPEST && Object.values(value).some((each) => needsUnpacking(each, depth + 1));
}

/** Return the parts: `{name, kind, ...}` with kind "value" | "text" | "vector" | "bars" | "table" | "picture". */
export function partsOf(value) {
  return named("", unwrapped(value)).slice(0, MOST_PARTS);
}

/** Return the same parts, with compressed arrays read. */
export async function unpackedParts(value) {
  return partsOf(await unzipped(unwrapped(value)));
}

/** Return what an array is best shown as. */
export function kindOf({ shape, flat }) {
  if (shape.length === 0 || flat.length === 0) {
    return "text";
  }
  if (shape.length === 1 || (shape.length === 2 && shape[1] === 1)) {
    return shape[0] <= LONG_VECTOR ? "vector" : "bars";
  }
  if (shape.length === 2) {
    return flat.length <= TABLE ? "table" : "picture";
  }
  return layoutOf(shape) === null ? "text" : "picture";
}

/** Return how a picture lies in memory: `{width, height, channels, tiles, at(tile, row, column, channel)}`, or null. */
export function layoutOf(shape) {
  if (shape.length === 2) {
    const [height, width] = shape;
    return { width, height, channels: 1, tiles: 1, at: (tile, row, column) => row * width + column };
  }
  if (shape.length !== 3) {
    return null;
  }
  return channelsLast(shape) ?? channelsFirst(shape) ?? stacked(shape);
}

/** Return what is black and what is white in a picture; `before` is what it was in the one before: it only widens. */
export function scaleOf({ flat, dtype }, before = null) {
  if (Object.hasOwn(SCALES, dtype ?? "")) {
    return SCALES[dtype];
  }
  const [low, high] = looksLikeBytes(flat) ? [0, 255] : rangeOf(flat);
  const [least, most] = before === null ? [low, high] : [Math.min(low, before[0]), Math.max(high, before[1])];
  return least >= 0 && most <= 1 ? [0, 1] : [least, most];
}

/** Return a picture's pixels, red, green, blue, opaque; tiles stand side by side. */
export function pixelsOf({ shape, flat }, [low, high]) {
  const layout = layoutOf(shape);
  const scale = high > low ? 255 / (high - low) : 0;
  const width = layout.width * layout.tiles;
  const bytes = new Uint8ClampedArray(4 * width * layout.height).fill(255);
  for (let tile = 0; tile < layout.tiles; tile += 1) {
    tilePixels(bytes, flat, layout, tile, (value) => (value - low) * scale);
  }
  return { bytes, width, height: layout.height, channels: layout.channels };
}

/** Return the least and the greatest finite number; [0, 0] where there is none. */
export function rangeOf(flat) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of flat) {
    if (Number.isFinite(value)) {
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  }
  return low <= high ? [low, high] : [0, 0];
}

function isRecord(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Whether it is a record or a list to be taken apart, and not a number or an array in a record's clothes. */
function isNest(value) {
  return typeof value === "object" && value !== null && !isPacked(value) && asNumber(value) === undefined;
}

function named(name, value, depth = 0) {
  const array = arrayOf(value);
  if (array !== null) {
    return [{ name, kind: kindOf(array), ...array, text: brief(value) }];
  }
  if (isNest(value) && depth < DEEPEST) {
    const inside = Object.entries(value).slice(0, MOST_PARTS);
    return inside.flatMap(([key, each]) => named(name === "" ? key : `${name}.${key}`, each, depth + 1));
  }
  const number = asNumber(value);
  return [number === undefined ? { name, kind: "text", text: brief(value) } : { name, kind: "value", value: number }];
}

function brief(value) {
  if (isPacked(value) || isRead(value)) {
    return `${value.dtype} of shape ${value.shape.join(" × ")}`;
  }
  const text = typeof value === "string" ? value : JSON.stringify(value) ?? "";
  return text.length > LONG_TEXT ? `${text.slice(0, LONG_TEXT)}…` : text;
}

async function unzipped(value) {
  if (isZipped(value)) {
    return (await unpacked(value)) ?? brief(value);
  }
  if (!needsUnpacking(value)) {
    return value;
  }
  const keys = Object.keys(value);
  const read = await Promise.all(keys.map((key) => unzipped(value[key])));
  return Array.isArray(value) ? read : Object.fromEntries(keys.map((key, i) => [key, read[i]]));
}

function channelsLast([height, width, channels]) {
  const isPicture = [1, 3, 4].includes(channels) && height > 4 && width > 4;
  const at = (tile, row, column, channel) => (row * width + column) * channels + channel;
  return isPicture ? { width, height, channels: Math.min(channels, 3), tiles: 1, at } : null;
}

function channelsFirst([channels, height, width]) {
  const isPicture = (channels === 1 || channels === 3) && height > 4 && width > 4;
  const at = (tile, row, column, channel) => (channel * height + row) * width + column;
  return isPicture ? { width, height, channels, tiles: 1, at } : null;
}

/** A stack of a few grey pictures, one beside the other. */
function stacked([tiles, height, width]) {
  const at = (tile, row, column) => (tile * height + row) * width + column;
  return tiles <= 16 ? { width, height, channels: 1, tiles, at } : null;
}

function looksLikeBytes(flat) {
  const [low, high] = rangeOf(flat);
  return low >= 0 && high <= 255 && high > 16 && flat.every(Number.isInteger);
}

function tilePixels(bytes, flat, { width, height, channels, tiles, at }, tile, level) {
  for (let row = 0; row < height; row += 1) {
    for (let column = 0; column < width; column += 1) {
      const to = 4 * (row * width * tiles + tile * width + column);
      for (let channel = 0; channel < 3; channel += 1) {
        bytes[to + channel] = level(flat[at(tile, row, column, Math.min(channel, channels - 1))]);
      }
    }
  }
}
