// An episode comes in pieces, then lives.

import assert from "node:assert/strict";
import test from "node:test";

import { FIRST_STEPS, loadEpisode, pieceOf } from "../../../src/proctor/viewer/static/js/loading.js";
import { headOf, sliceOf } from "./episodes.mjs";

/** A source with an episode of `steps` steps that can grow; it remembers what was asked. */
class Source {
  asked = [];
  listeners = new Set();
  failures = 0;

  constructor(steps, line = {}) {
    this.steps = steps;
    this.line = { steps, last: steps + 1, ...line };
  }

  async head() {
    return headOf({ line: this.line });
  }

  async slice(chain, after, most, thin) {
    this.asked.push({ after, most, thin });
    if (this.failures > 0) {
      this.failures -= 1;
      throw new Error("no answer");
    }
    const from = Math.max(1, after);
    const every = thin ? Math.ceil((this.steps - from + 1) / most) : 1;
    const to = thin ? this.steps : Math.min(this.steps, from + most - 1);
    return { ...sliceOf(from, to, { after, every }), more: to < this.steps };
  }

  subscribe(kind, listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  grow(steps) {
    this.tell(steps, { live: true });
  }

  close(steps) {
    this.tell(steps, { live: false, state: "closed" });
  }

  tell(steps, line) {
    this.steps = steps;
    this.listeners.forEach((listener) => listener([{ ...headOf().line, steps, last: steps + 1, ...line }]));
  }
}

/** Loads; `complete` resolves when everything is there, `grown(test)` when a growth passes the test. */
async function loading(source) {
  const waiting = [];
  const told = (event) => waiting.filter(({ passes }) => passes(event)).forEach(({ resolve }) => resolve(event));
  const troubles = [];
  const loaded = await loadEpisode({ source }, "s.1", {
    onGrow: told, onTrouble: (error) => troubles.push(error.message), patience: 5,
  });
  const grown = (passes) => new Promise((resolve) => waiting.push({ passes, resolve }));
  return { ...loaded, troubles, grown };
}

test("what is there at once is asked for once", async () => {
  const source = new Source(FIRST_STEPS);

  const { track, grown, stop } = await loading(source);
  await grown(({ complete }) => complete);
  stop();

  assert.equal(track.length, FIRST_STEPS + 1);
  assert.equal(source.asked.length, 1);
});

test("the first slice is there at once, the rest follows in pieces", async () => {
  const source = new Source(10_000);

  const { track, grown, stop } = await loading(source);
  const first = track.length;
  await grown(({ complete }) => complete);
  stop();

  assert.equal(first, FIRST_STEPS + 1);
  assert.equal(track.length, 10_001);
  assert.equal(track.total(10_000), 10_000);
  assert.ok(source.asked.length > 2);
});

test("the next piece is on its way while the last one is taken in", async () => {
  const source = new Source(10_000);
  const { track, grown, stop } = await loading(source);
  const seen = [];
  const watch = grown(({ track: { last }, complete }) => {
    if (!complete) seen.push({ last, asked: source.asked.at(-1).after });
    return complete;
  });
  await watch;
  stop();

  const all = source.asked.map(({ after }) => after);
  assert.ok(seen.length > 2);
  assert.ok(seen.slice(0, -1).every(({ last, asked }) => asked === last));
  assert.deepEqual(all, [...new Set(all)]);
  assert.equal(track.length, 10_001);
});

test("a piece is as large as is read without a pause", () => {
  const light = sliceOf(1, 3);
  const puffs = Array(40).fill([1.123, 2.123, 3.123, 0.123]);
  const heavy = sliceOf(1, 3, { steps: { scene: Array(3).fill({ puffs }) } });

  assert.ok(pieceOf(light) > 2_000);
  assert.ok(pieceOf(heavy) < pieceOf(light));
  assert.equal(pieceOf(sliceOf(1, 0)), 100);
});

test("a very long episode is shown thinned, from its beginning to its end", async () => {
  const source = new Source(1_000_000);

  const { track, grown, stop } = await loading(source);
  await grown(({ complete }) => complete);
  stop();

  assert.ok(track.length < 20_000);
  assert.ok(track.stride > 50);
  assert.ok(track.step(track.length - 1) > 999_000);
});

test("an episode that there is room for is there step by step, however long it is", async () => {
  const source = new Source(120_000);

  const { track, grown, stop } = await loading(source);
  await grown(({ complete }) => complete);
  stop();

  assert.equal(track.length, 120_001);
  assert.equal(track.stride, 1);
  assert.ok(source.asked.every(({ thin }) => !thin));
});

test("what is told while an episode is still loaded is not lost", async () => {
  const source = new Source(3_000, { live: true });
  const { head, track, grown, stop } = await loading(source);

  source.close(3_010);
  await grown(({ complete }) => complete && track.last === 3_011);
  stop();

  assert.equal(head.line.live, false);
  assert.equal(head.line.state, "closed");
  assert.equal(track.length, 3_011);
});

test("what is told before the head is there is not lost either", async () => {
  const source = new Source(10, { live: true });
  const head = source.head.bind(source);
  source.head = async () => {
    const found = await head();
    source.close(10);
    return found;
  };

  const loaded = await loading(source);
  loaded.stop();

  assert.equal(loaded.head.line.state, "closed");
});

test("a live episode is followed, no more than four times a second", async () => {
  const source = new Source(10, { live: true });
  const { track, grown, stop } = await loading(source);
  await grown(({ complete }) => complete);
  const before = source.asked.length;

  const began = performance.now();
  for (let steps = 20; steps <= 200; steps += 20) {
    source.grow(steps);
  }
  await grown(() => track.step(track.length - 1) === 200);
  source.grow(300);
  await grown(() => track.step(track.length - 1) === 300);
  const passed = performance.now() - began;
  stop();

  assert.equal(source.asked.length - before, 2);
  assert.ok(passed >= 240, `${passed} ms`);
  assert.ok(source.asked.at(-1).thin);
});

test("a page that fell behind catches up in one fetch, with less detail", async () => {
  const source = new Source(10, { live: true });
  const { track, grown, stop } = await loading(source);
  await grown(({ complete }) => complete);

  source.grow(50_000);
  await grown(() => track.last === 50_001);
  stop();

  assert.ok(track.length < 600);
});

test("after stop nothing is fetched, and nobody listens", async () => {
  const source = new Source(10, { live: true });
  const { grown, stop } = await loading(source);
  await grown(({ complete }) => complete);
  const before = source.asked.length;

  stop();
  source.grow(50);
  await new Promise((resolve) => setTimeout(resolve, 20));

  assert.equal(source.asked.length, before);
  assert.equal(source.listeners.size, 0);
});

test("an episode that is not there is refused to who asked", async () => {
  const source = new Source(10);
  source.failures = 1;

  await assert.rejects(loadEpisode({ source }, "s.1"), /no answer/);
  assert.equal(source.listeners.size, 0);
});

test("a piece that failed is told, and asked for again", async () => {
  const source = new Source(10, { live: true });
  const { track, troubles, grown, stop } = await loading(source);
  await grown(({ complete }) => complete);
  source.failures = 1;

  source.grow(20);
  await grown(() => track.last === 21);
  stop();

  assert.deepEqual(troubles, ["no answer"]);
});

test("a piece that failed while the episode was still loaded is asked for again as well", async () => {
  const source = new Source(3_000);
  const { track, troubles, grown, stop } = await loading(source);
  source.failures = 1;

  await grown(({ complete }) => complete);
  stop();

  assert.deepEqual(troubles, ["no answer"]);
  assert.equal(track.length, 3_001);
});
