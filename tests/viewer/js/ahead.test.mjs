// What comes by rows: one at a time, the newest wanted first, and nothing that came late is lost.

import assert from "node:assert/strict";
import test from "node:test";

import { Ahead } from "../../../src/proctor/viewer/static/js/unknown.js";

/** Returns an Ahead over 100 steps, whose row numbers are their indexes + 1, and what was asked of it. */
function fetching(more = {}) {
  const asked = [];
  const track = { length: 100, number: (index) => index + 1 };
  const fetch = (row) => new Promise((bring, fail) => asked.push({ row, bring: () => bring(`row ${row}`), fail }));
  const ahead = new Ahead({ track, fetch, onCome: () => {}, remembered: 8, ...more });
  const settled = () => new Promise((resolve) => setImmediate(resolve));
  const answer = async (way = "bring") => {
    asked.at(-1)[way](new Error("gone"));
    await settled();
  };
  return { ahead, answer, rows: () => asked.map(({ row }) => row) };
}

test("one is fetched at a time: the newest that is wanted, then those ahead", async () => {
  const { ahead, answer, rows } = fetching();
  [10, 11, 12].forEach((index) => ahead.moveTo(index));
  assert.deepEqual(rows(), [11]);

  for (let i = 0; i < 7; i += 1) {
    await answer();
  }

  assert.deepEqual(rows(), [11, 13, 14, 15, 16, 17]);
  assert.equal(ahead.at(12).value, "row 13");
});

test("ahead is the way in which the cursor moves, and where something is needed", async () => {
  const { ahead, answer, rows } = fetching({ needs: (index) => index % 2 === 0 });
  ahead.moveTo(20);
  ahead.moveTo(18);
  for (let i = 0; i < 4; i += 1) {
    await answer();
  }

  assert.deepEqual(rows(), [21, 19, 17, 15]);
});

test("what comes late is not lost: it is the nearest until the cursor's own is there", async () => {
  const { ahead, answer } = fetching();
  assert.equal(ahead.nearest(), undefined);

  ahead.moveTo(10);
  ahead.moveTo(11);
  await answer();
  assert.deepEqual([ahead.at(11), ahead.nearest().row], [undefined, 11]);

  ahead.moveTo(12);
  await answer();
  assert.deepEqual([ahead.at(12), ahead.nearest().row], [undefined, 12]);
});

test("a row that cannot be fetched is not asked for again and again, nor taken for one that came", async () => {
  const { ahead, answer, rows } = fetching({ needs: (index) => index === 10 });
  ahead.moveTo(10);
  await answer("fail");
  ahead.moveTo(10);

  assert.deepEqual(rows(), [11]);
  assert.equal(ahead.at(10).problem.message, "gone");
  assert.equal(ahead.nearest(), undefined);
});

test("only the last ones are remembered, and nothing comes after the end", async () => {
  let told = 0;
  const { ahead, answer, rows } = fetching({ onCome: () => (told += 1) });
  for (let index = 0; index < 20; index += 1) {
    ahead.moveTo(index);
    await answer();
  }
  assert.equal(told, 20);
  assert.deepEqual(Array.from({ length: 30 }, (_, i) => ahead.at(i)).filter(Boolean).length, 8);

  const asked = rows().length;
  ahead.close();
  await answer();
  assert.deepEqual([told, rows().length], [20, asked]);
});
