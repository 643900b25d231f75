// Values as people read them.

import assert from "node:assert/strict";
import test from "node:test";

import {
  age,
  counted,
  duration,
  number,
  shortChain,
  stateWords,
  time,
} from "../../../src/proctor/viewer/static/js/format.js";

const rows = (name, table, run) =>
  test(name, () => table.forEach(([given, wanted]) => assert.equal(run(given), wanted, JSON.stringify(given))));

rows("numbers are grouped, rounded, and never end in idle zeros", [
  [0, "0"], [-0, "0"], [1, "1"], [1234567, "1\u202f234\u202f567"], [1.005, "1"], [1.5, "1.5"], [-2.25, "−2.25"],
  [-0.001, "−0.001"], [0.00123, "0.0012"], [1e-9, "1.0e−9"], [1e21, "1.00e+21"], [12345.678, "12\u202f345.68"],
], number);

rows("what is no number is a dash; what has no end is said so", [
  [null, "–"], [undefined, "–"], [NaN, "–"], ["5", "–"], [Infinity, "∞"], [-Infinity, "−∞"],
], number);

test("a number may be asked for whole", () => {
  assert.equal(number(2.6, 0), "3");
  assert.equal(number(0.2, 0), "0");
});

rows("an age is as fine as it matters", [
  [1000, "just now"], [999, "just now"], [1010, "just now"], [998, "2 s ago"], [941, "59 s ago"], [940, "1 min ago"],
  [-2600, "1 h ago"], [-85400, "1 d ago"], [null, "–"],
], (moment) => age(moment, 1000));

test("what is older than a month is a date", () => {
  assert.match(age(0, 40 * 86400), /^(1970-01-01|1969-12-31)$/);
});

rows("lengths of time read like a clock from a minute on", [
  [0, "0 ms"], [0.34, "340 ms"], [1, "1.0 s"], [12.44, "12.4 s"], [59.96, "1:00"], [185, "3:05"], [7385, "2:03:05"],
  [-1, "0 ms"], [null, "–"], [Infinity, "–"],
], duration);

test("a moment is told in the reader's own time", () => {
  const moment = new Date(2026, 2, 1, 14, 5, 9).getTime() / 1000;

  assert.equal(time(moment), "2026-03-01 14:05:09");
  assert.equal(time(null), "–");
});

rows("a chain is short but keeps its epoch and its fork", [
  ["0123456789abcdef01234567.3", "01234567….3"], ["0123456789abcdef.3~fork@12", "01234567….3~fork@12"],
  ["demo.1", "demo.1"], ["~server.1", "~server.1"], [null, ""],
], shortChain);

rows("states are words, and an unknown one is itself", [
  ["S9_SAFEMODE", "Safe mode"], ["ready", "Running"], ["S10_NEW", "S10_NEW"], ["constructor", "constructor"],
  [null, "–"],
], stateWords);

test("one is one, and two are many", () => {
  assert.equal(counted(1, "step"), "1 step");
  assert.equal(counted(2000, "step"), "2\u202f000 steps");
});
