// Odor fields as numbers and colours; `test_fields_agree.py` compares them with the environment's own.

import assert from "node:assert/strict";
import test from "node:test";

import { plume } from "../../../src/proctor/viewer/static/js/plume.js";
import { PALETTE, concentrationAt, isKnownField, paint, tinted, tone } from "../../../src/proctor/viewer/static/js/plume_fields.js";
import { headingAt } from "../../../src/proctor/viewer/static/js/plume.js";
import { Points } from "../../../src/proctor/viewer/static/js/plume_trail.js";

const near = (one, other) => assert.ok(Math.abs(one - other) < 1e-9, `${one} is not ${other}`);
const PUFFS = { puffs: [[3, 4, 2, 0.5], [6, 4, 1, 0.9]] };
const SCENE = {
  environment: "plume",
  static: { grid: [20, 10], source: [3, 4], goal_radius: 1, field: { kind: "gaussian", sigma: 2 } },
  frame: { state: "ready", agent: { at: [3, 8], heading: 90 }, field: null, wind: [1, 0] },
};

test("the source of a plume smells most", () => {
  near(concentrationAt({ kind: "gaussian", sigma: 3 }, null, [5, 5], [5, 5]), 1);
  near(concentrationAt({ kind: "advected", wind: [1, 0], spread: 2, growth: 0.1 }, null, [5, 5], [5, 5]), 1);
});

test("one place is painted as the whole field is", () => {
  const fields = [[{ kind: "gaussian", sigma: 3 }, null], [{ kind: "puffs" }, PUFFS],
    [{ kind: "advected", wind: [1, 2], spread: 2, growth: 0.1 }, null]];
  for (const [field, frame] of fields) {
    const whole = paint(field, frame, [5, 5], [0, 1, 2, 7], [0, 4]);

    near(concentrationAt(field, frame, [5, 5], [7, 4]), whole[7]);
  }
});

test("concentrations stay in [0, 1], however many puffs lie on each other", () => {
  const many = { puffs: Array(50).fill([1, 1, 2, 1]) };

  assert.equal(paint({ kind: "puffs" }, many, [0, 0], [1], [1])[0], 1);
  assert.equal(concentrationAt({ kind: "puffs" }, many, [0, 0], [1, 1]), 1);
});

test("a kind of field that is not known is refused, and smells of nothing known", () => {
  assert.equal(isKnownField({ kind: "soup" }), false);
  assert.equal(isKnownField(null), false);
  assert.throws(() => paint({ kind: "soup" }, null, [0, 0], [0], [0]), RangeError);
  assert.ok(Number.isNaN(concentrationAt({ kind: "soup" }, null, [0, 0], [0, 0])));
});

test("the tone lifts what is faint", () => {
  near(tone(0), 0);
  near(tone(1), 1);
  assert.ok(tone(0.01) > 0.1);
});

test("the palette goes from dark to bright", () => {
  assert.deepEqual([...PALETTE.slice(0, 3)], [13, 14, 30]);
  assert.deepEqual([...PALETTE.slice(-3)], [255, 240, 196]);
});

test("the last row is on top of a picture", () => {
  const pixels = tinted([0, 0, 1, 1], 2, 2);

  assert.deepEqual([...pixels.slice(0, 4)], [255, 240, 196, 255]);
  assert.deepEqual([...pixels.slice(8, 12)], [13, 14, 30, 255]);
});

test("a scene is described in words, and its end too", () => {
  const words = plume.describe(SCENE.frame, SCENE);

  assert.match(words, /at \(3, 8\), heading 90°, 4 cells from the source, concentration 0\.135/);
  assert.match(words, /Wind \(1, 0\)/);
  assert.match(plume.describe({ ...SCENE.frame, state: "terminated" }, SCENE), /The source was found/);
});

const trackOf = (agents) => ({
  stride: 1,
  length: agents.length,
  frame: (i) => ({ ...SCENE.frame, agent: { at: agents[i].slice(0, 2), heading: agents[i][2] } }),
});

test("who moves without turning looks where it went, and says so", () => {
  const track = trackOf([[3, 8, 0], [4, 8, 0], [3, 8, 0], [3, 8, 0], [3, 9, 0]]);

  assert.deepEqual([0, 1, 2, 3, 4].map((index) => headingAt(track, index)), [0, 0, 180, 180, 90]);
  assert.match(plume.describe(track.frame(2), SCENE, null, { track, index: 2 }), /heading 180°/);
});

test("who turns looks where it was turned to, also where a move is rounded to cells", () => {
  const track = trackOf([[3, 8, 0], [3, 8, 90], [3, 9, 90], [3, 9, 120], [2, 10, 120], [2, 10, 0]]);

  assert.deepEqual([0, 1, 2, 3, 4, 5].map((index) => headingAt(track, index)), [0, 90, 90, 120, 120, 0]);
});

test("only a plume's scene that can be drawn fits", () => {
  const broken = [
    { static: { ...SCENE.static, grid: [0, 5] } },
    { static: { ...SCENE.static, field: { kind: "soup" } } },
    { frame: { agent: { at: ["x", 1] } } },
    { environment: "other" },
  ];

  assert.equal(plume.fits({ scene: SCENE }), true);
  for (const part of broken) {
    assert.equal(plume.fits({ scene: { ...SCENE, ...part } }), false);
  }
});

test("the way is read once, and again when steps were dropped", () => {
  const read = [];
  const track = { generation: 0, frame: (i) => (read.push(i), i === 2 ? null : { agent: { at: [i, 2 * i] } }) };
  const points = new Points(track);

  points.read(3);
  points.read(4);
  assert.deepEqual(read, [0, 1, 2, 3, 4]);
  assert.deepEqual([points.x[2], points.y[2]], [1, 2]);
  track.generation = 1;
  points.read(1);

  assert.deepEqual(points.x, [0, 1]);
});
