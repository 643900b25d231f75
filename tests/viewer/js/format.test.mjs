// Values as people read them.

import assert from "node:assert/strict";
import test from "node:test";

import { age, counted, duration, number, shortChain, shortNumber, standingWords, stateWords, time } from "../../../src/proctor/viewer/static/js/format.js";

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

rows("an episode that nobody drives any more is not running, and one that was closed says so", [
  [{ state: "ready", live: true, closed_at: null }, "Running"],
  [{ state: "ready", live: false, closed_at: null }, "Left open"],
  [{ state: "S7_REVIEW", live: true, closed_at: null }, "Review"],
  [{ state: "S7_REVIEW", live: false, closed_at: 12 }, "Closed in Review"],
  [{ state: "S6_EXECUTE", live: false, closed_at: null }, "Left open in Execute"],
  [{ state: "S0_IDLE", live: false, closed_at: 12 }, "Closed"],
  [{ state: "terminated", live: false, closed_at: 12 }, "Terminated"],
  [{ state: "lost", live: false, closed_at: null }, "Lost"],
], standingWords);

rows("what stands beside a chart has room there", [
  [0, "0"], [0.5, "0.5"], [-12.345, "−12.345"], [1234.5678, "1\u202f235"], [0.0000045, "4.5e−6"],
  [123456789, "1.2e8"], [-0.00001234, "−1.2e−5"], [NaN, "–"],
], shortNumber);

test("no number beside a chart is longer than eight characters", () => {
  const sizes = Array.from({ length: 40 }, (_, i) => 1.23456789 * 10 ** (i - 20));

  const long = sizes.flatMap((size) => [size, -size]).map(shortNumber).filter((text) => text.length > 8);
  assert.deepEqual(long, []);
});

test("one is one, and two are many", () => {
  assert.equal(counted(1, "step"), "1 step");
  assert.equal(counted(2000, "step"), "2\u202f000 steps");
});
