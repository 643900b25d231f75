// The picture of the state machine: no arrow runs through a box, and a walk is what the packets say.

import assert from "node:assert/strict";
import test from "node:test";

import { inside, sampled } from "../../../src/proctor/viewer/static/js/curves.js";
import { EVERY, keyOf, layout } from "../../../src/proctor/viewer/static/js/machine_layout.js";
import { routes } from "../../../src/proctor/viewer/static/js/machine_routes.js";
import { START, Walk, below } from "../../../src/proctor/viewer/static/js/walk.js";

const PLACES = {
  S0_IDLE: [0, 0],
  S1_SENSE: [1, 0],
  S2_MODEL: [2, 0],
  S4_VERIFY: [3, 0],
  S7_REVIEW: [1, 1],
  S3_DECIDE: [2, 1],
  S8_ESCALATED: [3, 1],
  S9_SAFEMODE: [0, 2],
  S6_EXECUTE: [2, 2],
  S5_AUTHORIZE: [3, 2],
};
const WAYS =
  `01 00 11 12 13 22 23 34 35 36 38 37 33 44 42 49 48 55 56 66 67 62 69 68 77 71 70 88 83 97 99 90 A9`.split(" ");
const NAMES = Object.fromEntries(Object.keys(PLACES).map((name) => [name[1], name]));

function machine() {
  const states = Object.entries(PLACES).map(([name, [x, y]]) => ({ name, label: name, words: "", x, y }));
  const edges = WAYS.map(([from, to]) => ({
    source: from === "A" ? EVERY : NAMES[from],
    target: NAMES[to],
    labels: [],
    line: "solid",
  }));
  return { states, edges, everywhere: [] };
}

function packet(path, accepted = true, state = path[path.length - 1]) {
  return { path, accepted, judged: true, state, kind: "DecisionPacket" };
}

/** Returns the points of a path of one cubic curve. */
function points(path) {
  const numbers = path.match(/-?[\d.]+/g).map(Number);
  const curve = [0, 2, 4, 6].map((at) => ({ x: numbers[at], y: numbers[at + 1] }));
  return sampled(curve, 60);
}

for (const tall of [false, true]) {
  const name = tall ? "tall" : "wide";

  test(`no arrow of the ${name} picture runs through a box of others`, () => {
    const { boxes, arrows } = layout(machine(), tall);

    for (const { edge, path, loop } of arrows.filter((arrow) => !arrow.loop)) {
      const strangers = boxes.filter((box) => box.name !== edge.source && box.name !== edge.target);
      const hit = strangers.find((box) => points(path).some((point) => inside(point, box)));
      assert.equal(hit, undefined, `${edge.source} to ${edge.target} runs through ${hit?.name}`);
      assert.equal(loop, false);
    }
  });

  test(`the boxes of the ${name} picture do not overlap and lie inside it`, () => {
    const { boxes, width, height } = layout(machine(), tall);

    assert.equal(boxes.length, 11);
    for (const one of boxes) {
      assert.ok(one.x - one.width / 2 >= 0 && one.x + one.width / 2 <= width);
      assert.ok(one.y - one.height / 2 >= 0 && one.y + one.height / 2 <= height);
      for (const two of boxes.filter((box) => box !== one)) {
        const apart =
          Math.abs(one.x - two.x) >= (one.width + two.width) / 2 ||
          Math.abs(one.y - two.y) >= (one.height + two.height) / 2;
        assert.ok(apart, `${one.name} and ${two.name} overlap`);
      }
    }
  });

  test(`every way of the table is one arrow of the ${name} picture`, () => {
    const { arrows } = layout(machine(), tall);

    assert.deepEqual(
      arrows.map(({ edge }) => keyOf(edge.source, edge.target)).sort(),
      arrows.map(({ key }) => key).sort(),
    );
    assert.equal(arrows.length, WAYS.length);
  });
}

test("the tall picture is narrower than the wide one", () => {
  assert.ok(layout(machine(), true).width < 340);
  assert.ok(layout(machine(), false).width > 500);
});

test("an arrow to a state that is not there is left out", () => {
  const table = machine();
  table.edges.push({ source: "S0_IDLE", target: "S77_NOWHERE", labels: [], line: "solid" });

  assert.equal(layout(table, false).arrows.length, WAYS.length);
});

test("two arrows between the same boxes, there and back, keep apart", () => {
  const one = { x: 50, y: 50, width: 80, height: 40 };
  const two = { x: 350, y: 50, width: 80, height: 40 };

  const [there, back] = routes(
    [
      { source: one, target: two },
      { source: two, target: one },
    ],
    [one, two],
    null,
  );

  const middles = [there, back].map((curve) => sampled(curve, 20)[10].y);
  assert.ok(Math.abs(middles[0] - middles[1]) > 8, `their middles are at ${middles}`);
});

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

test("below counts what lies under a limit", () => {
  for (const limit of [0, 1, 2, 3, 8, 9]) {
    assert.equal(below([1, 2, 2, 8], limit), [1, 2, 2, 8].filter((each) => each < limit).length);
  }
});
