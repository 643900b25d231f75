// The cursor: seek, step, play, follow; told at most once per frame.

import assert from "node:assert/strict";
import test from "node:test";

import { actOf } from "../../../src/proctor/viewer/static/js/player.js";
import { columnsOf, marksOf, wordsFor } from "../../../src/proctor/viewer/static/js/timeline.js";
import { Player, rate } from "../../../src/proctor/viewer/static/js/player.js";
import { packetsSeen } from "../../../src/proctor/viewer/static/js/packet_words.js";
import { toRefusal } from "../../../src/proctor/viewer/static/js/timeline.js";
import { Track } from "../../../src/proctor/viewer/static/js/track.js";
import { headOf, packetAt, sliceOf } from "./episodes.mjs";

/** Frames that pass when a test says so. */
class Frames {
  waiting = new Map();
  asked = 0;

  request(callback) {
    this.asked += 1;
    this.waiting.set(this.asked, callback);
    return this.asked;
  }

  cancel(handle) {
    this.waiting.delete(handle);
  }

  pass(now) {
    const due = [...this.waiting.values()];
    this.waiting.clear();
    due.forEach((callback) => callback(now));
  }
}

function playerOf(length) {
  const frames = new Frames();
  const player = new Player({ length, frames });
  const told = [];
  player.subscribe((index) => told.push(index));
  return { player, frames, told };
}

test("many moves in one frame are told once, as the last of them", () => {
  const { player, frames, told } = playerOf(100);

  [3, 50, 7].forEach((index) => player.seek(index));
  frames.pass(0);
  frames.pass(16);

  assert.deepEqual(told, [7]);
});

test("the cursor stays within the episode", () => {
  const { player } = playerOf(10);

  player.seek(99);
  assert.equal(player.index, 9);
  player.step(-50);
  assert.equal(player.index, 0);
  player.seek("3");
  assert.equal(player.index, 3);
  player.seek(NaN);
  assert.equal(player.index, 0);
});

test("the step that was asked for is known for as long as the cursor stays", () => {
  const { player, frames, told } = playerOf(10);

  player.seek(3, 35);
  assert.equal(player.wanted, 35);
  player.seek(3, 36);
  player.grow(3);
  player.relocate(1);
  frames.pass(0);

  assert.equal(player.wanted, 36);
  assert.deepEqual(told, [1]);
  player.step(1);
  assert.equal(player.wanted, null);
});

test("it plays ten steps a second at 1x, and stops at the end", () => {
  const { player, frames } = playerOf(6);

  player.toggle();
  [0, 100, 200, 300].forEach((now) => frames.pass(now));
  assert.equal(player.index, 3);
  assert.equal(player.playing, true);
  [400, 500, 600].forEach((now) => frames.pass(now));

  assert.equal(player.index, 5);
  assert.equal(player.playing, false);
  assert.equal(frames.waiting.size, 0);
});

test("playing at the end begins again", () => {
  const { player, frames } = playerOf(6);
  player.seek(5);

  player.toggle();
  frames.pass(0);

  assert.equal(player.index, 0);
});

test("a tab that slept goes on from where it was", () => {
  const { player, frames } = playerOf(1000);

  player.toggle();
  frames.pass(0);
  frames.pass(60_000);

  assert.equal(player.index, 2);
});

test("a step by hand ends the play", () => {
  const { player } = playerOf(100);
  player.toggle();

  player.step(1);

  assert.equal(player.playing, false);
});

test("max crosses any episode in five seconds", () => {
  assert.equal(rate("max", 100_000), 20_000);
  assert.equal(rate("max", 10), 500);
  assert.equal(rate(5, 10), 50);
});

test("one who follows moves with the end; one who looks back does not", () => {
  const { player } = playerOf(10);

  player.setFollow(true);
  player.grow(20);
  assert.equal(player.index, 19);
  player.seek(4);
  player.grow(30);

  assert.equal(player.index, 4);
  assert.equal(player.follow, false);
});

test("speeds go up and down by places, and no further than there are", () => {
  const { player } = playerOf(10);

  [1, 1, 1].forEach((by) => player.shiftSpeed(by));
  assert.equal(player.speed, 10);
  [1, 1, 1].forEach((by) => player.shiftSpeed(by));
  assert.equal(player.speed, "max");
  Array(9).fill(-1).forEach((by) => player.shiftSpeed(by));

  assert.equal(player.speed, 1);
});

test("after close nobody is told, and no frame is asked for", () => {
  const { player, frames, told } = playerOf(10);
  player.toggle();

  player.close();
  frames.pass(0);

  assert.deepEqual(told, []);
  assert.equal(frames.waiting.size, 0);
});

test("who unsubscribed is not told", () => {
  const { player, frames, told } = playerOf(10);
  const more = [];
  const end = player.subscribe((index) => more.push(index));

  end();
  player.seek(2);
  frames.pass(0);

  assert.deepEqual([told, more], [[2], []]);
});

test("refusals before and after what is chosen are found, also two of one step", () => {
  const packets = [packetAt(5, false), packetAt(5.2), packetAt(5.5, false), packetAt(8), packetAt(12, false)];
  const { player } = playerOf(21);
  const track = new Track(headOf());
  track.append(sliceOf(1, 20, { packets }));
  const way = [1, 1, 1, 1, -1, -1, -1].map((direction) => {
    toRefusal(track, player, direction);
    return [player.index, packetsSeen(track, player)];
  });

  assert.deepEqual(way, [[4, 1], [4, 3], [11, 5], [11, 5], [4, 3], [4, 1], [4, 1]]);
});

test("the refusals of the cursor's own step come first, but not the one that is shown already", () => {
  const packets = [packetAt(1.2, false), packetAt(1.5), packetAt(5, false), packetAt(5.5, false), packetAt(9, false)];
  const { player } = playerOf(21);
  const track = new Track(headOf());
  track.append(sliceOf(1, 20, { packets }));
  const from = (index, direction) => {
    player.seek(20);
    packetsSeen(track, player);
    player.seek(index);
    toRefusal(track, player, direction);
    return packetsSeen(track, player);
  };

  assert.deepEqual([from(0, 1), from(1, 1), from(4, 1), from(8, -1)], [1, 3, 3, 4]);
});

test("a pixel shows the gravest of what is marked there", () => {
  const track = new Track(headOf());
  const steps = { tool: Array(100).fill("move"), ended: Array.from({ length: 100 }, (_, i) => (i === 99 ? 1 : 0)) };
  const packets = [packetAt(51), packetAt(51.5, false), packetAt(60, true, { warnings: ["W"] })];
  track.append(sliceOf(1, 100, { steps, packets }));

  const marks = marksOf(track);
  const columns = columnsOf(marks, track.length, 11);

  assert.deepEqual([columns[0], columns[5], columns[6], columns[10]], [0, 3, 2, 4]);
  assert.match(wordsFor(marks), /refusals: 1/);
  assert.match(wordsFor([]), /No marks/);
});

test("a key that is typed into a field is not ours, but the scrubber's are", () => {
  const within = (selector) => ({ closest: (asked) => (asked.split(", ").includes(selector) ? {} : null) });

  assert.equal(actOf({ key: " ", target: null }), "toggle");
  assert.equal(actOf({ key: "ArrowLeft", target: within("input") }), null);
  assert.equal(actOf({ key: "ArrowLeft", target: { ...within("input"), type: "range" } }), "back");
  assert.equal(actOf({ key: " ", target: within("button") }), null);
  assert.equal(actOf({ key: "j", target: within("button") }), "nextPacket");
  assert.equal(actOf({ key: "]", target: within("[role=listbox]") }), "refusedAfter");
  assert.equal(actOf({ key: "j", target: within("dialog") }), null);
  assert.equal(actOf({ key: "k", ctrlKey: true, target: null }), null);
  assert.equal(actOf({ key: "x", target: null }), null);
});
