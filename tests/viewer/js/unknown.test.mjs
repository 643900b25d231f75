// Observations of any space: arrays out of JSON, and what they are shown as.

import assert from "node:assert/strict";
import test from "node:test";
import { deflateSync } from "node:zlib";

import { arrayOf, unpacked } from "../../../src/proctor/viewer/static/js/observation.js";
import { exactly } from "../../../src/proctor/viewer/static/js/format.js";
import { kindOf, layoutOf, needsUnpacking, partsOf, pixelsOf, scaleOf, unpackedParts, unwrapped } from "../../../src/proctor/viewer/static/js/observation.js";
import { painterOf } from "../../../src/proctor/viewer/static/js/stage.js";
import { describe, observationSeries } from "../../../src/proctor/viewer/static/js/unknown.js";
import { headOf } from "./episodes.mjs";

const base64 = (bytes) => Buffer.from(bytes).toString("base64");
const packed = (dtype, shape, bytes, more = {}) => ({ dtype, shape, data: base64(bytes), ...more });
const bytesOf = (array) => Buffer.from(array.buffer);

test("nested lists are arrays; ragged ones and words are none", () => {
  assert.deepEqual(arrayOf([[1, 2, 3], [4, 5, 6]]).shape, [2, 3]);
  assert.deepEqual([...arrayOf([true, "Infinity", "-Infinity"]).flat], [1, Infinity, -Infinity]);
  for (const other of [[1, [2]], [[1], [2, 3]], ["a"], "text", 5, null]) {
    assert.equal(arrayOf(other), null);
  }
  assert.deepEqual(arrayOf([]).shape, [0]);
});

test("packed arrays of every dtype are read", () => {
  const rows = [["|b1", Uint8Array.of(1, 0)], ["|i1", Int8Array.of(-1, 2)], ["|u1", Uint8Array.of(255, 2)],
    ["<i2", Int16Array.of(-300, 2)], ["<u2", Uint16Array.of(65_000, 2)], ["<i4", Int32Array.of(-70_000, 2)],
    ["<u4", Uint32Array.of(4_000_000_000, 2)], ["<f4", Float32Array.of(1.5, -2)], ["<f8", Float64Array.of(0.1, -2)]];
  for (const [dtype, array] of rows) {
    assert.deepEqual([...arrayOf(packed(dtype, [2], bytesOf(array))).flat], [...array], dtype);
  }
  assert.deepEqual([...arrayOf(packed("<i8", [2], bytesOf(BigInt64Array.of(-5n, 2n)))).flat], [-5, 2]);
  assert.deepEqual([...arrayOf(packed("<f2", [4], bytesOf(Uint16Array.of(0x3c00, 0xc000, 0x7c00, 0x0001)))).flat],
    [1, -2, Infinity, 2 ** -24]);
});

test("a packed array that its bytes do not fit is none", () => {
  const bad = [packed("|u1", [3], [1, 2]), packed("<f8", [1], [1, 2]), packed("V8", [1], [1]), packed("|u1", [-1], []),
    packed("|u1", [1e9, 1e9], []), { dtype: "|u1", shape: [1], data: "%%%" }];

  assert.deepEqual(bad.map(arrayOf), bad.map(() => null));
});

test("compressed arrays are unpacked, and not beyond what their shape says", async () => {
  const zipped = deflateSync(bytesOf(Float32Array.of(1, 2, 3, 4)));
  const bomb = deflateSync(Buffer.alloc(1_000_000));

  assert.equal(arrayOf(packed("<f4", [4], zipped, { zip: "zlib" })), null);
  assert.deepEqual([...(await unpacked(packed("<f4", [4], zipped, { zip: "zlib" }))).flat], [1, 2, 3, 4]);
  assert.equal(await unpacked(packed("<f4", [5], zipped, { zip: "zlib" })), null);
  assert.equal(await unpacked(packed("|u1", [10], bomb, { zip: "zlib" })), null);
  assert.equal(await unpacked(packed("|u1", [10], [1, 2, 3], { zip: "zlib" })), null);
  assert.equal(await unpacked(packed("|u1", [10], zipped, { zip: "lzma" })), null);
});

test("shapes are shown as what they most likely are", () => {
  const kinds = [[[4], "vector"], [[4, 1], "vector"], [[200], "bars"], [[12, 3], "table"], [[64, 64], "picture"],
    [[96, 96, 3], "picture"], [[3, 96, 96], "picture"], [[4, 84, 84], "picture"], [[2, 3, 4, 5], "text"],
    [[0], "text"]];
  for (const [shape, kind] of kinds) {
    const flat = new Float64Array(shape.reduce((product, side) => product * side, 1));
    assert.equal(kindOf({ shape, flat }), kind, shape.join());
  }
});

test("a record is taken apart by its names", () => {
  const parts = partsOf({ observation: { where: [1, 2], deep: { on: true, name: "x" }, nothing: null } });

  assert.deepEqual(parts.map(({ name, kind }) => [name, kind]),
    [["where", "vector"], ["deep.on", "value"], ["deep.name", "text"], ["nothing", "text"]]);
});

test("a list that is no array is taken apart by its places, in it too what is compressed", async () => {
  const zip = packed("|u1", [2], deflateSync(Buffer.of(7, 8)), { zip: "zlib" });
  const mixed = { observation: [3, [[0.5, 1], [0, 1]], "words", { deep: [1, [2]] }] };
  const deep = Array(50).fill(0).reduce((inside) => [inside], "x");

  assert.deepEqual(partsOf(mixed).map(({ name, kind }) => [name, kind]),
    [["0", "value"], ["1", "table"], ["2", "text"], ["3.deep.0", "value"], ["3.deep.1", "vector"]]);
  assert.equal(needsUnpacking([3, zip]), true);
  assert.deepEqual((await unpackedParts([3, zip])).map(({ name, kind }) => [name, kind]),
    [["0", "value"], ["1", "vector"]]);
  assert.deepEqual(partsOf(deep).map(({ kind }) => kind), ["text"]);
});

test("numbers that were read to the last digit are numbers", async () => {
  const zip = packed("|u1", [2], deflateSync(Buffer.of(7, 8)), { zip: "zlib" });
  const read = exactly(`{"at": [0.0, 1e-07, 2, "NaN"], "speed": 1.0, "view": ${JSON.stringify(zip)}}`);

  assert.deepEqual([...arrayOf(read.at).flat], [0, 1e-7, 2, NaN]);
  assert.deepEqual((await unpackedParts(read)).map(({ name, kind, value }) => [name, kind, value]),
    [["at", "vector", undefined], ["speed", "value", 1], ["view", "vector", undefined]]);
});

test("only the envelope is taken off", () => {
  assert.deepEqual(unwrapped({ observation: [1] }), [1]);
  assert.deepEqual(unwrapped({ observation: [1], score: 2 }), { observation: [1], score: 2 });
  assert.deepEqual(unwrapped([1]), [1]);
});

test("compressed parts are found wherever they are", async () => {
  const zip = packed("|u1", [2], deflateSync(Buffer.of(7, 8)), { zip: "zlib" });

  assert.equal(needsUnpacking({ a: { b: zip } }), true);
  assert.equal(needsUnpacking({ a: [1] }), false);
  assert.deepEqual([...(await unpackedParts({ a: { b: zip } }))[0].flat], [7, 8]);
});

test("pictures keep their colours; grey ones stretch from black to white", () => {
  const bytes = Float64Array.from({ length: 75 }, (_, i) => [10, 20, 30][i] ?? 255);
  const colours = pixelsOf({ shape: [5, 5, 3], flat: bytes }, [0, 255]);
  const grey = pixelsOf({ shape: [1, 2], flat: Float64Array.of(-1, 1) }, [-1, 1]);

  assert.deepEqual([...colours.bytes.slice(0, 4)], [10, 20, 30, 255]);
  assert.deepEqual([...grey.bytes], [0, 0, 0, 255, 255, 255, 255, 255]);
});

test("bytes go from 0 to 255, however dark they are, also when they were compressed", async () => {
  const zip = packed("|u1", [64, 64], deflateSync(Buffer.alloc(4096, 12)), { zip: "zlib" });
  const [part] = await unpackedParts({ observation: zip });

  assert.deepEqual([part.kind, part.dtype], ["picture", "|u1"]);
  assert.deepEqual(scaleOf(part), [0, 255]);
  assert.deepEqual(scaleOf({ flat: Float64Array.of(1, 1), dtype: "|b1" }), [0, 1]);
});

test("the scale of other pictures is that from 0 to 1, or it widens from one to the next", () => {
  const scales = [[0.2, 0.4], [0.1, 0.3], [-1, 2], [0.5, 0.5]].reduce(
    (found, values) => [...found, scaleOf({ flat: Float64Array.from(values), dtype: "<f4" }, found.at(-1))], [null]);

  assert.deepEqual(scales.slice(1), [[0, 1], [0, 1], [-1, 2], [-1, 2]]);
  assert.deepEqual(scaleOf({ flat: Float64Array.of(0, 200), dtype: null }, [0, 12]), [0, 255]);
});

test("a stack of pictures stands side by side", () => {
  const flat = Float64Array.from({ length: 4 * 6 * 6 }, (_, i) => Math.floor(i / 36));
  const { bytes, width, height } = pixelsOf({ shape: [4, 6, 6], flat }, [0, 3]);

  assert.deepEqual([width, height], [24, 6]);
  assert.deepEqual([0, 6, 12, 18].map((x) => bytes[4 * x]), [0, 85, 170, 255]);
  assert.equal(layoutOf([3, 3, 3, 3]), null);
});

test("an observation is said in words, as far as that helps", () => {
  assert.equal(describe({ observation: [1, 0.25] }), "The observation: 1, 0.25.");
  assert.equal(describe({ speed: 3, view: Array(100).fill(0) }), "The observation: speed 3; view an array of 100.");
  assert.equal(describe({ observation: "a".repeat(150) }), `The observation: ${"a".repeat(40)}….`);
  assert.equal(describe({}), "The observation is empty.");
  assert.match(describe(null), /No observation/);
});

test("a few numbers are charted, many are not", () => {
  const series = observationSeries({ observation: { at: [1, 2], speed: 3 } });

  assert.deepEqual(series.map(({ label }) => label), ["at[0]", "at[1]", "speed"]);
  assert.deepEqual(series.map(({ value }) => value(null, { observation: { at: [5, 6], speed: 7 } })), [5, 6, 7]);
  assert.ok(Number.isNaN(series[0].value(null, null)));
  assert.deepEqual(observationSeries({ observation: Array(50).fill(0) }), []);
  assert.deepEqual(observationSeries(null), []);
});

test("whatever the scene, there is a painter", () => {
  const scenes = [null, 5, "plume", [], { environment: "plume" }, { environment: "plume", static: null, frame: 3 },
    { environment: "popper", static: {} }, { environment: "else" }];

  assert.deepEqual(scenes.map((scene) => painterOf(headOf({ scene })).name), scenes.map(() => "unknown"));
});

test("pictures are fetched where there are some, and a fork has none", () => {
  const scene = { environment: "pixels", frame: { pixels: true } };

  assert.equal(painterOf(headOf({ scene })).name, "pixels");
  assert.equal(painterOf(headOf({ scene, line: { fork: true } })).name, "unknown");
});
