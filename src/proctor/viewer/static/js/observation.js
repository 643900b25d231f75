/*
 * Arrays out of JSON, and an observation of any space taken apart into what can be shown: values, vectors, tables,
 * pictures. Pure.
 *
 * Rule 1: arrays are nested lists, or packed as `models/arrays.py` does; both become `{shape, dtype, flat}`.
 * Rule 2: what a peer recorded is not trusted: a shape that its bytes do not fit, or one that is too large, is null.
 * Rule 3: every value has a place here; what is neither a number nor an array is text.
 */

import { numeral } from "./format.js";

const MOST = 4_000_000; // numbers
const NAMED = { NaN, Infinity, "-Infinity": -Infinity };
const READERS = {
  "|b1": [1, (view, at) => view.getUint8(at)],
  "|i1": [1, (view, at) => view.getInt8(at)],
  "|u1": [1, (view, at) => view.getUint8(at)],
  "<i2": [2, (view, at) => view.getInt16(at, true)],
  "<u2": [2, (view, at) => view.getUint16(at, true)],
  "<i4": [4, (view, at) => view.getInt32(at, true)],
  "<u4": [4, (view, at) => view.getUint32(at, true)],
  "<i8": [8, (view, at) => Number(view.getBigInt64(at, true))],
  "<u8": [8, (view, at) => Number(view.getBigUint64(at, true))],
  "<f2": [2, (view, at) => half(view.getUint16(at, true))],
  "<f4": [4, (view, at) => view.getFloat32(at, true)],
  "<f8": [8, (view, at) => view.getFloat64(at, true)],
};

/** Return whether a value claims to be a packed array. */
function isPacked(value) {
  const { dtype, shape, data } = isObject(value) ? value : {};
  return typeof dtype === "string" && Array.isArray(shape) && typeof data === "string";
}

/** Return whether a packed array is compressed, so that only `unpacked` can read it. */
function isZipped(value) {
  return isPacked(value) && value.zip !== undefined;
}

/** Return whether a value is an array already; JSON has no such thing, so no peer can claim it. */
function isRead(value) {
  return isObject(value) && value.flat instanceof Float64Array;
}

/** Return a number as JSON says it, also one that was kept as text or has only a name; undefined if it is none. */
function asNumber(value) {
  if (typeof value === "number") {
    return value;
  }
  if (typeof value === "boolean") {
    return Number(value);
  }
  if (typeof value === "string") {
    return Object.hasOwn(NAMED, value) ? NAMED[value] : undefined;
  }
  const text = numeral(value);
  return text === null ? undefined : Number(text);
}

/** Return nested lists of numbers, or a packed array that is not compressed, as an array; null if it is neither. */
export function arrayOf(value) {
  if (isRead(value)) {
    return value;
  }
  if (isPacked(value)) {
    return isZipped(value) ? null : read(value, bytesOf(value.data));
  }
  return Array.isArray(value) ? fromLists(value) : null;
}

/** Return a packed array, compressed or not; null if it cannot be read. */
export async function unpacked(value) {
  if (!isZipped(value)) {
    return arrayOf(value);
  }
  const bytes = bytesOf(value.data);
  return bytes === null || value.zip !== "zlib" ? null : read(value, await inflated(bytes, sizeOf(value)));
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function bytesOf(text) {
  try {
    return Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  } catch {
    return null;
  }
}

function countOf(shape) {
  const isShape = shape.length <= 8 && shape.every((side) => Number.isInteger(side) && side >= 0);
  const count = isShape ? shape.reduce((product, side) => product * side, 1) : Infinity;
  return count <= MOST ? count : null;
}

function sizeOf({ dtype, shape }) {
  const count = countOf(shape);
  return count === null || !Object.hasOwn(READERS, dtype) ? null : count * READERS[dtype][0];
}

function read(value, bytes) {
  const size = sizeOf(value);
  if (bytes === null || size === null || bytes.length !== size) {
    return null;
  }
  const [width, reader] = READERS[value.dtype];
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const flat = Float64Array.from({ length: size / width }, (_, i) => reader(view, i * width));
  return { shape: value.shape, dtype: value.dtype, flat };
}

/** Return what zlib's bytes unpack to; null if that is not `size` bytes, without reading on. */
async function inflated(bytes, size) {
  if (size === null) {
    return null;
  }
  const whole = new Uint8Array(size);
  let at = 0;
  const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate")).getReader();
  try {
    for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
      if (at + piece.value.length > size) {
        await reader.cancel();
        return null;
      }
      whole.set(piece.value, at);
      at += piece.value.length;
    }
  } catch {
    return null;
  }
  return at === size ? whole : null;
}

function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) {
    return sign * fraction * 2 ** -24;
  }
  if (exponent === 31) {
    return fraction ? NaN : sign * Infinity;
  }
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

function fromLists(value) {
  const shape = shapeOf(value);
  const count = countOf(shape);
  if (count === null) {
    return null;
  }
  const flat = new Float64Array(count);
  return fill(flat, value, shape, 0, 0) === count ? { shape, dtype: null, flat } : null;
}

function shapeOf(value) {
  const shape = [];
  for (let level = value; Array.isArray(level) && shape.length < 9; level = level[0]) {
    shape.push(level.length);
  }
  return shape;
}

/** Copy the numbers in order; returns how far it came, -1 where the lists are ragged or hold something else. */
function fill(flat, value, shape, depth, at) {
  if (depth === shape.length) {
    const found = asNumber(value);
    flat[at] = found ?? NaN;
    return found === undefined ? -1 : at + 1;
  }
  if (!Array.isArray(value) || value.length !== shape[depth]) {
    return -1;
  }
  let place = at;
  for (const each of value) {
    place = fill(flat, each, shape, depth + 1, place);
    if (place === -1) {
      return -1;
    }
  }
  return place;
}

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
