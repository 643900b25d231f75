/*
 * Arrays out of JSON: nested lists, or packed as `models/arrays.py` does; both become `{shape, dtype, flat}`.
 *
 * Rule 1: what a peer recorded is not trusted: a shape that its bytes do not fit, or one that is too large, is null.
 * Rule 2: pure: no document. Compressed arrays are read asynchronously, as browsers do it.
 */

import { numeral } from "./exact.js";

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
export function isPacked(value) {
  const { dtype, shape, data } = isObject(value) ? value : {};
  return typeof dtype === "string" && Array.isArray(shape) && typeof data === "string";
}

/** Return whether a packed array is compressed, so that only `unpacked` can read it. */
export function isZipped(value) {
  return isPacked(value) && value.zip !== undefined;
}

/** Return whether a value is an array already; JSON has no such thing, so no peer can claim it. */
export function isRead(value) {
  return isObject(value) && value.flat instanceof Float64Array;
}

/** Return a number as JSON says it, also one that was kept as text or has only a name; undefined if it is none. */
export function asNumber(value) {
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
