// The walk through the state machine is what the packets say.

import assert from "node:assert/strict";
import test from "node:test";

import { countWhile } from "../../../src/proctor/viewer/static/js/dom.js";
import { START, Walk, keyOf } from "../../../src/proctor/viewer/static/js/walk.js";

function packet(path, accepted = true, state = path[path.length - 1]) {
  return { path, accepted, judged: true, state, kind: "DecisionPacket" };
}

test("a walk stands where its last packet led", () => {
  const walk = new Walk();
  walk.extend([packet(["S0_IDLE"]), packet(["S0_IDLE", "S1_SENSE"]), packet(["S1_SENSE", "S2_MODEL"])]);

  assert.deepEqual(
    [0, 1, 2, 3, 99].map((count) => walk.state(count)),
    [START, START, "S1_SENSE", "S2_MODEL", "S2_MODEL"],
  );
});

test("a refusal never moves the walk and is counted where it happened", () => {
  const walk = new Walk();
  const packets = [packet(["S0_IDLE", "S1_SENSE"]), packet(["S1_SENSE"], false), packet([], false, "S1_SENSE")];
  walk.extend(packets);

  assert.equal(walk.state(3), "S1_SENSE");
  assert.deepEqual([...walk.refused(1)], []);
  assert.deepEqual([...walk.refused(2)], [["S1_SENSE", 1]]);
  assert.deepEqual([...walk.refused(3)], [["S1_SENSE", 2]]);
  assert.equal(walk.path(3, 10).moves.length, 1);
});

test("a note that was not judged leaves the walk where it is", () => {
  const walk = new Walk();
  walk.extend([packet(["S0_IDLE", "S1_SENSE"]), { ...packet([]), judged: false, state: "" }]);

  assert.equal(walk.state(2), "S1_SENSE");
});

test("micro-steps of one packet are moves of their own", () => {
  const walk = new Walk();
  walk.extend([packet(["S2_MODEL", "S3_DECIDE", "S4_VERIFY"])]);

  assert.deepEqual(
    walk.path(1, 10).moves.map(({ source, target }) => keyOf(source, target)),
    ["S2_MODEL>S3_DECIDE", "S3_DECIDE>S4_VERIFY"],
  );
});

test("staying again and again is one move, and only the last moves are told", () => {
  const walk = new Walk();
  const stays = Array.from({ length: 5 }, () => packet(["S6_EXECUTE", "S6_EXECUTE"]));
  walk.extend([
    packet(["S0_IDLE", "S1_SENSE"]),
    packet(["S5_AUTHORIZE", "S6_EXECUTE"]),
    ...stays,
    packet(["S6_EXECUTE", "S7_REVIEW"]),
  ]);

  const { earlier, moves } = walk.path(8, 3);

  assert.deepEqual(
    moves.map(({ first, last, times }) => [first, last, times]),
    [
      [1, 1, 1],
      [2, 6, 5],
      [7, 7, 1],
    ],
  );
  assert.equal(earlier, 2);
  assert.equal(walk.path(4, 9).moves.at(-1).times, 2);
});

test("what a declared set turned out to be lights the arrow that leads there", () => {
  const walk = new Walk();
  walk.extend([packet(["S6_EXECUTE", "S7_REVIEW"]), packet(["S2_MODEL", "S3_DECIDE"])]);

  const { moves } = walk.path(2, 10);

  assert.deepEqual(
    moves.map(({ source, target, told }) => [keyOf(source, target), told]),
    [
      ["S6_EXECUTE>S7_REVIEW", false],
      ["S6_EXECUTE>S2_MODEL", true],
      ["S2_MODEL>S3_DECIDE", false],
    ],
  );
});

test("the last arrow is the strongest, those of long ago keep a little", () => {
  const walk = new Walk();
  const round = [
    ["S1_SENSE", "S2_MODEL"],
    ["S2_MODEL", "S3_DECIDE"],
    ["S3_DECIDE", "S7_REVIEW"],
    ["S7_REVIEW", "S1_SENSE"],
  ];
  walk.extend([packet(["S0_IDLE", "S1_SENSE"]), ...[...round, ...round, ...round].map((path) => packet(path))]);

  const strengths = walk.strengths(13);

  assert.equal(strengths.get("S7_REVIEW>S1_SENSE"), 1);
  assert.ok(strengths.get("S3_DECIDE>S7_REVIEW") < 1);
  assert.equal(strengths.get("S0_IDLE>S1_SENSE"), 0.3);
  assert.equal(walk.strengths(1).has("S1_SENSE>S2_MODEL"), false);
});

test("a walk that grows piece by piece is the same as one read at once", () => {
  const packets = [packet(["S0_IDLE", "S1_SENSE"]), packet(["S1_SENSE"], false), packet(["S1_SENSE", "S2_MODEL"])];
  const [whole, pieces] = [new Walk(), new Walk()];
  whole.extend(packets);
  for (let end = 0; end <= 3; end += 1) pieces.extend(packets.slice(0, end));

  assert.deepEqual(pieces, whole);
});

test("what holds up to a place is counted", () => {
  for (const limit of [0, 1, 2, 3, 8, 9]) {
    const numbers = [1, 2, 2, 8];
    assert.equal(countWhile(4, (at) => numbers[at] < limit), numbers.filter((each) => each < limit).length);
  }
});
