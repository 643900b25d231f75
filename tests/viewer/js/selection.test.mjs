// A chosen packet is meant as long as the cursor stays where that led.

import assert from "node:assert/strict";
import test from "node:test";

import { choosePacket, packetsPassed, packetsSeen } from "../../../src/proctor/viewer/static/js/packet_words.js";

/** Three packets at the reset, one at step 1. */
const TRACK = {
  packets: [{ number: 1 }, { number: 2 }, { number: 3 }, { number: 5 }],
  indexOfNumber: (number) => (number > 3 ? 1 : 0),
  packetsBefore: (index) => (index === 0 ? 3 : 4),
};

function player() {
  return {
    index: 0,
    told: 0,
    follow: true,
    pause() {},
    seek(index) {
      this.index = index;
    },
    refresh() {
      this.told += 1;
    },
  };
}

test("the cursor means the last packet before the next step", () => {
  assert.equal(packetsSeen(TRACK, player()), 3);
});

test("a packet that was chosen is meant, and everyone is told", () => {
  const one = player();
  choosePacket(TRACK, one, 1);

  assert.equal(packetsSeen(TRACK, one), 2);
  assert.equal(one.told, 1);
});

test("a choice leads the cursor to its step and ends when the cursor leaves it", () => {
  const one = player();
  choosePacket(TRACK, one, 3);
  const there = one.index;
  choosePacket(TRACK, one, 0);
  one.index = 1;
  const left = packetsSeen(TRACK, one);
  one.index = 0;

  assert.deepEqual([there, left, packetsSeen(TRACK, one)], [1, 4, 3]);
});

test("who chooses a packet no longer follows, also if it is the newest", () => {
  const one = player();
  choosePacket(TRACK, one, 3);

  assert.equal(one.follow, false);
});

test("before what is meant lie the packets before the cursor's step, or before the one that was chosen", () => {
  const one = player();
  const atReset = packetsPassed(TRACK, one);
  one.index = 1;
  const atStep = packetsPassed(TRACK, one);
  choosePacket(TRACK, one, 2);

  assert.deepEqual([atReset, atStep, packetsPassed(TRACK, one)], [0, 3, 2]);
});

test("another player knows nothing of it", () => {
  const [one, other] = [player(), player()];
  choosePacket(TRACK, one, 0);

  assert.equal(packetsSeen(TRACK, other), 3);
});
