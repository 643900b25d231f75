// What a frame of Column Popper says.

import assert from "node:assert/strict";
import test from "node:test";

import { burstCells, depth, heldCell, isBoard, popper, verdict } from "../../../src/proctor/viewer/static/js/popper.js";
import { BLOCKS } from "../../../src/proctor/viewer/static/js/popper.js";

const FIXED = { height: 3, columns: 2, duration_ms: 60_000 };
const FRAME = {
  step: 4, total_reward: 2, state: "ready", board: [[1, 2], [3, 0], [0, 0]], held: 0, score: 5, time_left_ms: 12_340,
  fall_interval_ms: 3_000, next_fall_ms: 900, popped: null, fault: null,
};
const scene = { environment: "popper", static: FIXED, frame: FRAME };

test("the held block is the lowest of its column", () => {
  assert.deepEqual(heldCell(FRAME), [1, 0]);
  assert.equal(heldCell({ ...FRAME, held: null }), null);
  assert.equal(heldCell({ ...FRAME, board: [[0, 2], [0, 0], [0, 0]] }), null);
});

test("a stack reaches down to its last block", () => {
  assert.deepEqual([0, 1].map((column) => depth(FRAME.board, column)), [2, 1]);
  assert.equal(depth([[0], [0]], 0), 0);
});

test("only cells that are still empty burst", () => {
  const popped = { column: 0, row: 1, count: 2, value: 3 };

  assert.deepEqual(burstCells({ ...FRAME, popped }), [[2, 0, 3]]);
  assert.deepEqual(burstCells(FRAME), []);
});

test("how it ended is said in words", () => {
  const ended = [["ready", null], ["truncated", null], ["terminated", "overflow"], ["terminated", "invalid_full_drop"],
    ["terminated", "something new"]];

  assert.deepEqual(ended.map(([state, fault]) => verdict({ state, fault })),
    [null, "Time up", "Overflow", "Full column", "Game over"]);
});

test("a frame is described in words", () => {
  const words = popper.describe({ ...FRAME, popped: { column: 1, row: 1, count: 3, value: 2 } }, scene);

  assert.match(words, /score 5, 12\.3 s left, next fall in 0\.9 s/);
  assert.match(words, /A 3 from column 0 is held/);
  assert.match(words, /3 blocks of 2 popped in column 1/);
  assert.match(words, /0: 1 3; 1: 2/);
});

test("a board of another size, or with other numbers, is none", () => {
  const boards = [[[1, 2], [3, 0]], [[1, 2], [3, 0], [0]], [[1, 2], [3, 10], [0, 0]], "board", undefined];

  assert.equal(isBoard(FRAME, FIXED), true);
  assert.deepEqual(boards.map((board) => popper.fits({ scene: { ...scene, frame: { ...FRAME, board } } }) === true),
    [false, false, false, false, false]);
  assert.match(popper.describe({ board: [] }, scene), /no board/);
});

test("the number on a block is dark on a bright one, and white on the others", () => {
  assert.deepEqual([1, 4, 9].map((value) => BLOCKS.ink(value)[0]), [8, 8, 255]);
});

test("the score is charted", () => {
  const [series] = popper.series();

  assert.equal(series.name, "score");
  assert.equal(series.value(FRAME), 5);
});
