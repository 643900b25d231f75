// Two episodes on one time, and what is said of both.

import assert from "node:assert/strict";
import test from "node:test";

import { Pair, actionsAfter, bareAction, brief, cursorFacts, lineFacts, parsedActions, turned } from "../../../src/proctor/viewer/static/js/pair.js";
import { isUnsettled } from "../../../src/proctor/viewer/static/js/compare_panels.js";
import { Column } from "../../../src/proctor/viewer/static/js/track.js";

function columnOf(values) {
  const column = new Column();
  for (const value of values) column.push(value);
  return column;
}

/** Returns a side whose track has these steps; the reward of a step is ten times its number. */
function side(steps, more = {}) {
  const rewards = columnOf(steps.map((step) => step * 10));
  const track = {
    length: steps.length,
    closed: true,
    step: (i) => steps[i],
    action: (i) => (i === 0 ? null : { action: steps[i] % 4 }),
    reward: (i) => rewards.at(i),
    total: (i) => steps[i] * 100,
    indexOfStep: (step) =>
      Math.max(
        0,
        steps.findLastIndex((each) => each <= step),
      ),
    series: [
      { name: "reward", label: "Reward", column: rewards, values: (i) => rewards.at(i), range: rewards.range },
    ],
  };
  const line = {
    chain: "abc.1",
    environment: "env",
    agent: "",
    seed: 1,
    state: "closed",
    outcome: null,
    refusals: 0,
    steps: steps[steps.length - 1],
    ...more,
  };
  return { head: { line }, track, fork: false };
}

test("the longer one leads, and the first one if both are as long", () => {
  const [short, long] = [side([0, 1, 2]), side([0, 1, 2, 3])];

  assert.equal(new Pair(short, long).lead, long);
  assert.equal(new Pair(long, short).lead, long);
  assert.equal(new Pair(short, short).lead, short);
});

test("a longer one whose steps are still on their way leads already", () => {
  const [short, coming] = [side([0, 1, 2]), side([0], { steps: 9000 })];

  assert.equal(new Pair(short, coming).lead, coming);
});

test("the lead changes only when it is clearly overtaken or nothing more comes", () => {
  const [lead, second] = [side([0, 1, 2]), side([0, 1])];
  const pair = new Pair(lead, second);
  second.head.line.steps = 3;
  const ended = pair.isOvertaken;
  second.track.closed = false;

  assert.equal(ended, true);
  assert.equal(pair.isOvertaken, false);
  second.head.line.steps = 40;
  assert.equal(pair.isOvertaken, true);
});

test("both sides show the same step, the shorter one its last", () => {
  const [short, long] = [side([0, 1, 2]), side([0, 1, 2, 3, 4])];
  const pair = new Pair(short, long);

  assert.deepEqual(
    [0, 1, 2, 3, 4].map((index) => pair.indexOf(short, index)),
    [0, 1, 2, 2, 2],
  );
  assert.deepEqual(
    [0, 4, 99].map((index) => pair.indexOf(long, index)),
    [0, 4, 4],
  );
  assert.deepEqual(
    [2, 3].map((index) => pair.isOver(short, index)),
    [false, true],
  );
});

test("a thinned track is met by its steps, not by its places", () => {
  const [thinned, whole] = [side([0, 2, 4, 6]), side([0, 1, 2, 3, 4, 5])];
  const pair = new Pair(thinned, whole);

  assert.equal(pair.lead, thinned);
  assert.deepEqual(
    [0, 1, 2, 3].map((index) => whole.track.step(pair.indexOf(whole, index))),
    [0, 2, 4, 5],
  );
  assert.equal(pair.cursorAt(5), 2);
});

test("the charts hold both lines on the lead's places, and the shorter one ends", () => {
  const [short, long] = [side([0, 1]), side([0, 1, 2, 3])];
  const [chart] = new Pair(short, long).charts();

  assert.deepEqual(
    chart.series.map(({ label }) => label),
    ["A", "B"],
  );
  assert.deepEqual(
    [0, 1, 2].map((i) => chart.series[0].values(i)),
    [0, 10, NaN],
  );
  assert.equal(chart.series[1].values(3), 30);
});

test("what only one side has is charted with an empty line beside it", () => {
  const [one, other] = [side([0, 1]), side([0, 1])];
  const score = columnOf([1, 2]);
  other.track.series.push({
    name: "score",
    label: "Score",
    column: score,
    values: (i) => score.at(i),
    range: score.range,
  });

  const chart = new Pair(one, other).charts().find(({ name }) => name === "score");

  assert.deepEqual(
    chart.series.map(({ label, range }) => [label, range]),
    [
      ["A", null],
      ["B", [1, 2]],
    ],
  );
});

test("facts say whether both are the same", () => {
  const facts = lineFacts([side([0, 1], { seed: 3 }), side([0, 1], { seed: 4 })]);
  const same = Object.fromEntries(facts.map((fact) => [fact.name, fact.same]));

  assert.equal(same.Seed, false);
  assert.equal(same.Steps, true);
  assert.deepEqual(facts.find(({ name }) => name === "Seed").values, ["3", "4"]);
});

test("the facts of the cursor say that a side has ended", () => {
  const pair = new Pair(side([0, 1]), side([0, 1, 2, 3]));

  const [step, action] = cursorFacts(pair, 3);

  assert.deepEqual(step.values, ["1 (its last)", "3"]);
  assert.deepEqual(action.values, ['{"action":1}', '{"action":3}']);
});

test("the actions that were really done next are offered bare", () => {
  const { track } = side([0, 1, 2, 3, 4, 5]);

  assert.deepEqual(actionsAfter(track, 2, 2), [3, 0]);
  assert.deepEqual(actionsAfter(track, 5, 2), []);
  assert.deepEqual(bareAction({ action: [1], more: 2 }), { action: [1], more: 2 });
  assert.equal(bareAction(null), null);
});

test("actions are a list that is not empty", () => {
  assert.deepEqual(parsedActions("[1, [2]]").actions, [1, [2]]);
  for (const text of ["", "1", "{}", "[", "[]"]) assert.equal(typeof parsedActions(text).problem, "string", text);
});

test("a difference turned twice is the same again, and what was recorded is never reworded", () => {
  const difference = {
    one: "a.1",
    other: "b.1",
    same: false,
    step: 3,
    number_one: 5,
    number_other: 9,
    what: "action",
    where: "/direction",
    left: "left",
    right: "up",
    text: 'the action differs: "left" on the left, "up" on the right.',
    turned: 'the action differs: "up" on the left, "left" on the right.',
  };

  assert.deepEqual(turned(turned(difference)), difference);
  assert.deepEqual([turned(difference).left, turned(difference).number_one], ["up", 9]);
  assert.equal(turned(difference).text, difference.turned);
});

test("that one is shorter so far is asked again, and that one has ended is not", () => {
  assert.ok(isUnsettled({ same: true, left: null, right: null }));
  assert.ok(isUnsettled({ same: false, left: "is here so far", right: "goes on" }));
  assert.ok(isUnsettled({ same: false, left: "goes on", right: "is here so far" }));
  assert.ok(!isUnsettled({ same: false, left: "ends", right: "goes on" }));
});

test("a long value is cut", () => {
  assert.equal(brief(null), "–");
  assert.equal(brief("x".repeat(500)).length, 91);
});
