// Many numbers on few pixels, and what belongs into one chart.

import assert from "node:assert/strict";
import test from "node:test";

import { groupsOf } from "../../../src/proctor/viewer/static/js/charts.js";
import { envelope, roomy, unionOf } from "../../../src/proctor/viewer/static/js/charts.js";

test("no peak is lost, however many numbers a pixel stands for", () => {
  const values = new Float64Array(100_000);
  values[77_777] = 5;
  values[12_345] = -3;

  const { low, high } = envelope(values, values.length, 300);

  assert.equal(Math.max(...high), 5);
  assert.equal(Math.min(...low), -3);
  assert.equal(high[Math.floor((77_777 * 300) / 100_000)], 5);
});

test("every number lies between its pixel's ends", () => {
  const values = Float64Array.from({ length: 997 }, (_, i) => Math.sin(i * 12.9898) * 43758);

  const { low, high } = envelope(values, values.length, 64);

  const misses = [...values].filter((value, i) => {
    const column = [...low.keys()].find((x) => i >= Math.floor((x * 997) / 64) && i < Math.floor(((x + 1) * 997) / 64));
    return value < low[column] || value > high[column];
  });
  assert.deepEqual(misses, []);
});

test("what is no number is a gap, and what is beyond the length is not read", () => {
  const values = Float64Array.of(1, NaN, NaN, 4, 99, 99);

  const { low, high } = envelope(values, 4, 4);

  assert.deepEqual([...low], [1, NaN, NaN, 4]);
  assert.deepEqual([...high], [1, NaN, NaN, 4]);
});

test("a range has room around it, also one without width", () => {
  assert.deepEqual(roomy([0, 100]), [-6, 106]);
  assert.deepEqual(roomy([0, 0]), [-1, 1]);
  assert.deepEqual(roomy([10, 10]), [9, 11]);
  assert.deepEqual(roomy([-0.010000000000000009, -0.01]).map((each) => each.toFixed(4)), ["-0.0110", "-0.0090"]);
});

test("a union skips what has no range", () => {
  assert.deepEqual(unionOf([null, [1, 2], [-1, 0]]), [-1, 2]);
  assert.equal(unionOf([null]), null);
});

test("reward, parts and return come first; what has no number is left out", () => {
  const series = [
    { name: "reward", label: "Reward", group: "reward", range: [0, 1] },
    { name: "total", label: "Return", group: "total", range: [0, 9] },
    { name: "part:a", label: "a", group: "parts", range: [0, 1] },
    { name: "part:b", label: "b", group: "parts", range: [0, 1] },
    { name: "score", label: "Score", group: "score", range: [0, 1] },
    { name: "empty", label: "Empty", group: "empty", range: null },
  ];

  const groups = groupsOf(series);

  assert.deepEqual(groups.map(({ name }) => name), ["reward", "parts", "total", "score"]);
  assert.equal(groups[1].title, "Parts of the reward");
  assert.deepEqual(groups[1].series.map(({ name }) => name), ["part:a", "part:b"]);
});
