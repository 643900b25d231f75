// An episode as columns, grown slice by slice.

import assert from "node:assert/strict";
import test from "node:test";

import { Column } from "../../../src/proctor/viewer/static/js/track.js";
import { actionWords, missedWords } from "../../../src/proctor/viewer/static/js/stage.js";
import { Track, roomFor } from "../../../src/proctor/viewer/static/js/track.js";
import { headOf, packetAt, sliceOf } from "./episodes.mjs";

const PLUME = {
  environment: "plume",
  static: { grid: [10, 10], source: [5, 5], goal_radius: 1, field: { kind: "gaussian", sigma: 2 } },
  frame: { state: "ready", agent: { at: [5, 5], heading: 0 }, field: null, wind: null },
};

test("index 0 is the reset", () => {
  const track = new Track(headOf({ first: 7, observation: { observation: [3] } }));

  assert.equal(track.length, 1);
  assert.equal(track.number(0), 7);
  assert.equal(track.step(0), 0);
  assert.equal(track.total(0), 0);
  assert.deepEqual(track.observation(0), { observation: [3] });
  assert.ok(Number.isNaN(track.reward(0)));
});

test("totals go on from slice to slice", () => {
  const track = new Track(headOf());

  track.append(sliceOf(1, 3, { after: 1 }));
  track.append(sliceOf(4, 6, { after: 4 }));

  assert.deepEqual([1, 3, 4, 6].map((i) => track.total(i)), [1, 3, 4, 6]);
  assert.equal(track.total(track.length - 1), 6);
  assert.equal(track.last, 7);
});

test("a slice that came before changes nothing", () => {
  const track = new Track(headOf());
  track.append(sliceOf(1, 3));

  assert.equal(track.append(sliceOf(1, 3)), false);
  assert.equal(track.length, 4);
  assert.equal(track.total(track.length - 1), 3);
});

test("a step is found by its number, by its row, and where it was thinned out by the one before", () => {
  const track = new Track(headOf());
  track.append(sliceOf(1, 41, { every: 10 }));

  assert.deepEqual([0, 1, 10, 11, 15, 99].map((step) => track.indexOfStep(step)), [0, 1, 1, 2, 2, 5]);
  assert.deepEqual([0, 1, 2, 12, 13].map((row) => track.indexOfNumber(row)), [0, 0, 1, 2, 2]);
});

test("packets belong to the step that they follow", () => {
  const track = new Track(headOf());
  const packets = [packetAt(1), packetAt(3.5), packetAt(4.5, false)];
  track.append(sliceOf(1, 3, { packets }));

  assert.deepEqual([0, 1, 2, 3].map((i) => track.packetsBefore(i)), [1, 1, 2, 3]);
  assert.deepEqual(track.refusals, [packets[2]]);
});

test("a painter's measure becomes a series, and a strange frame a gap in it", () => {
  const frames = [{ ...PLUME.frame, agent: { at: [7, 5], heading: 0 } }, "nonsense"];
  const track = new Track(headOf({ scene: PLUME }));
  track.append(sliceOf(1, 2, { steps: { scene: frames } }));

  const series = track.series.find(({ name }) => name === "concentration");

  assert.equal(series.values(0), 1);
  assert.ok(Math.abs(series.values(1) - Math.exp(-0.5)) < 1e-12);
  assert.ok(Number.isNaN(series.values(2)));
  assert.deepEqual(series.range, [series.values(1), 1]);
});

test("a part of the reward that comes late has nothing before", () => {
  const track = new Track(headOf());
  track.append(sliceOf(1, 2));
  track.append(sliceOf(3, 4, { steps: { parts: { step_cost: [-0.1, -0.2] } } }));

  const series = track.series.find(({ name }) => name === "part:step_cost");

  assert.equal(series.label, "step cost");
  assert.deepEqual([0, 1, 2].map((i) => Number.isNaN(series.values(i))), [true, true, true]);
  assert.deepEqual([3, 4].map((i) => series.values(i)), [-0.1, -0.2]);
});

test("past its room a track drops every second step, and takes later ones as sparsely", () => {
  const track = new Track(headOf(), { most: 100 });
  track.append(sliceOf(1, 150));
  const before = track.length;
  track.append(sliceOf(151, 160, { after: 151 }));

  assert.equal(before, 76);
  assert.equal(track.stride, 2);
  assert.equal(track.generation, 1);
  assert.deepEqual([track.step(1), track.step(2), track.step(track.length - 1)], [2, 4, 160]);
  assert.equal(track.length, 81);
  assert.equal(track.total(track.length - 1), 160);
  assert.equal(track.series[0].column.length, track.length);
});

test("the newest step is there, however sparse the others are, and says what the sums come to", () => {
  const track = new Track(headOf(), { most: 100 });
  track.append(sliceOf(1, 150));

  track.append(sliceOf(151, 157, { after: 151 }));
  const last = track.length - 1;

  assert.equal(track.stride, 2);
  assert.deepEqual([track.step(last - 1), track.step(last), track.total(last)], [156, 157, 157]);
});

test("a step that was asked for and is not there is said", () => {
  const track = new Track(headOf());
  track.append(sliceOf(1, 2001, { every: 100 }));
  const said = (step) => missedWords(track, track.indexOfStep(step), step).replace(/\s/g, " ");

  assert.equal(said(1250), "Step 1 250 is not shown; the nearest before it is 1 201. ");
  assert.equal(said(1201), "");
  assert.equal(said(9000), "There is no step 9 000; the last one is 2 001. ");
  assert.equal(missedWords(track, 3, null), "");
});

test("an end is never dropped", () => {
  const ended = Array.from({ length: 151 }, (_, i) => (i === 74 ? 1 : 0));
  const track = new Track(headOf(), { most: 100 });
  track.append(sliceOf(1, 151, { steps: { ended } }));

  const ends = Array.from({ length: track.length }, (_, i) => i).filter((i) => track.ended(i) > 0);

  assert.deepEqual(ends.map((i) => track.step(i)), [75]);
});

test("an episode that came thinned keeps what came, and what comes later is as sparse", () => {
  const track = new Track(headOf());
  track.append(sliceOf(1, 1001, { every: 100 }));
  track.append(sliceOf(1002, 1200, { after: 1002 }));

  assert.equal(track.stride, 100);
  assert.equal(track.length, 14);
  assert.deepEqual([track.step(1), track.step(11), track.step(12), track.step(13)], [1, 1001, 1100, 1200]);
});

test("heavy frames leave room for fewer steps, but never for less than ten thousand", () => {
  assert.equal(roomFor(null, null), 200_000);
  assert.ok(roomFor({ puffs: Array(40).fill([10.123, 20.123, 3.123, 0.123]) }) < 100_000);
  assert.equal(roomFor("x".repeat(1_000_000)), 10_000);
});

test("the tools that agents used are remembered by index", () => {
  const track = new Track(headOf());
  track.append(sliceOf(1, 3, { steps: { tool: [null, "move", null] } }));

  assert.deepEqual(track.calls, [[2, "move"]]);
  assert.equal(track.tool(2), "move");
  assert.equal(track.tool(1), null);
});

test("what led to a step is said after its number", () => {
  const action = [{ action: 1 }, { actions: [1, 2] }, null, { action: "x".repeat(100) }];
  const track = new Track(headOf());
  track.append(sliceOf(1, 4, { steps: { action, tool: [null, "move", null, null] } }));

  assert.deepEqual([1, 2, 3, 4].map((i) => actionWords(track, i)),
    [", action 1", ", by move, action {\"actions\":[1,2]}", "", ""]);
});

test("a column knows its range, whatever is no number", () => {
  const column = new Column();
  [null, 3, "NaN", -2, Infinity, undefined].forEach((value) => column.push(value));

  assert.equal(column.length, 6);
  assert.deepEqual(column.range, [-2, 3]);
  assert.deepEqual([0, 2, 5, 6].map((i) => Number.isNaN(column.at(i))), [true, true, true, true]);
  assert.equal(new Column().range, null);
});

test("a column grows to any length", () => {
  const column = new Column();
  for (let i = 0; i < 5_000; i += 1) {
    column.push(i);
  }

  assert.equal(column.at(4_999), 4_999);
  assert.equal(column.search(2_500.5), 2_500);
  assert.equal(column.search(-1), 0);
});

test("a sum that is not known stays unknown, and is no smaller sum", () => {
  const track = new Track(headOf());
  const first = sliceOf(1, 3, { after: 1 });
  first.steps.total[2] = null;

  track.append(first);
  track.append(sliceOf(4, 6, { after: 4 }));

  assert.deepEqual([1, 2].map((i) => track.total(i)), [1, 2]);
  assert.ok([3, 4, 6].every((i) => Number.isNaN(track.total(i))));
});
