// The two sides that episodes come from, the addresses of pages, and how a lost connection is found again.

import assert from "node:assert/strict";
import { gzipSync } from "node:zlib";
import test, { beforeEach } from "node:test";

import { refusal, success, trouble } from "../../../src/proctor/viewer/static/js/acting.js";
import { Events, waitOf } from "../../../src/proctor/viewer/static/js/events.js";
import { compareAddress, entranceOf, episodeAddress, routeOf } from "../../../src/proctor/viewer/static/js/router.js";
import { FileSource } from "../../../src/proctor/viewer/static/js/single_file.js";
import { ServedSource } from "../../../src/proctor/viewer/static/js/source.js";
import { keepToken } from "../../../src/proctor/viewer/static/js/source.js";

// ------------------------------------------------------------------------------------------------------ addresses
test("an address that was made is read back, whatever the chain is called", () => {
  for (const chain of ["a.1", "a/b?c#d.1", "~x y.2", "ü%2F.3", "a.1~fork@12"]) {
    assert.deepEqual(routeOf(episodeAddress(chain)), { name: "episode", arguments: [chain, null] });
    assert.deepEqual(routeOf(episodeAddress(chain, 7)).arguments, [chain, 7]);
    assert.deepEqual(routeOf(compareAddress(chain, "z.1")), { name: "compare", arguments: [chain, "z.1", null] });
  }
});

test("the list and the operator have addresses; the rest is unknown", () => {
  assert.equal(routeOf("").name, "list");
  assert.equal(routeOf("#/").name, "list");
  assert.equal(routeOf("#/operator").name, "operator");
  const strange = ["#/episode", "#/episode/", "#/compare/a", "#/compare//b", "#/x", "#/%E0%A4%A", "#/operator/x"];
  for (const address of strange) {
    assert.equal(routeOf(address).name, "unknown", address);
  }
});

test("a step that is no step is none", () => {
  assert.deepEqual(routeOf("#/episode/a.1?step=-1").arguments, ["a.1", null]);
  assert.deepEqual(routeOf("#/episode/a.1?step=1e5").arguments, ["a.1", null]);
});

test("a link that lets somebody in has a code, and leads nowhere but here", () => {
  assert.deepEqual(entranceOf("#code=a%2Bb"), { code: "a+b", address: "#/" });
  assert.equal(entranceOf("#code=x&to=%2Fepisode%2Fa.1").address, "#/episode/a.1");
  assert.equal(entranceOf("#code=x&to=https%3A%2F%2Felsewhere").address, "#/");
  assert.equal(entranceOf("#/"), null);
  assert.equal(entranceOf("#code="), null);
});

// ----------------------------------------------------------------------------------------------------- the server
const asked = [];
const answers = new Map();

function answer(status, value) {
  const body = typeof value === "string" ? value : JSON.stringify(value);
  return { ok: status < 400, status, text: async () => body };
}

beforeEach(() => {
  asked.length = 0;
  answers.clear();
  globalThis.fetch = async (path, options) => {
    asked.push({ path, ...options });
    const found = answers.get(path);
    if (found === undefined) {
      throw new TypeError("failed to fetch");
    }
    return Array.isArray(found) ? found.shift() : found;
  };
});

test("a visit brings the token that posts carry, and what can be done", async () => {
  const source = new ServedSource();
  answers.set("enter", answer(200, { csrf: "secret", can_act: true, can_fork: false }));
  answers.set("../operator/deny", answer(200, { accepted: true }));

  await source.enter("code");
  await source.act("deny", { id: "x" });

  assert.equal(source.canAct, true);
  assert.equal(asked[0].body, '{"code":"code"}');
  assert.equal(asked[1].headers["X-Proctor-CSRF"], "secret");
  assert.equal(asked[1].credentials, "same-origin");
});

test("where another tab came in anew, its token is taken; else a refused post stays refused", async () => {
  const kept = new Map();
  globalThis.localStorage = { getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value) };
  const source = new ServedSource();
  const refused = () => answer(403, { code: "NO_TOKEN", message: "no" });
  answers.set("enter", answer(200, { csrf: "mine", can_act: true, can_fork: false }));
  answers.set("../operator/deny", [refused(), refused(), answer(200, { accepted: true })]);
  await source.enter("code");

  await assert.rejects(source.act("deny", {}), { code: "NO_TOKEN" });
  kept.set("proctor.token", "newer");
  await source.act("deny", {});

  assert.deepEqual(asked.slice(1).map((each) => each.headers["X-Proctor-CSRF"]), ["mine", "mine", "newer"]);
  delete globalThis.localStorage;
});

test("who has a visit and no token can look and not act", async () => {
  const kept = new Map();
  globalThis.localStorage = { getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value) };
  const [source, other] = [new ServedSource(), new ServedSource()];
  keepToken("");
  answers.set("visit", [1, 2].map(() => answer(200, { csrf: null, can_act: true, can_fork: true })));

  await source.visit();
  kept.set("proctor.token", "told before");
  await other.visit();

  assert.deepEqual([source.canAct, source.canFork, other.canAct, other.canFork], [false, false, true, true]);
  delete globalThis.localStorage;
});

test("names go into addresses so that nothing in them is read as one", async () => {
  const source = new ServedSource();
  const path = "api/slice?chain=a%26b%3D1.1&after=3&most=10&thin=1";
  answers.set(path, answer(200, {}));

  await source.slice("a&b=1.1", 3, 10, true);

  assert.equal(asked[0].path, path);
  assert.equal(await source.pixels("a b.1", 4), "api/pixels?chain=a+b.1&number=4");
});

test("what the list leaves out is known after it was asked for", async () => {
  const source = new ServedSource();
  answers.set("api/lines", answer(200, { lines: [{ chain: "a" }], remarks: ["b cannot be read"] }));
  const before = source.remarks;

  const lines = await source.lines();

  assert.deepEqual([before, lines, source.remarks], [[], [{ chain: "a" }], ["b cannot be read"]]);
});

test("a refusal has the server's code and words", async () => {
  answers.set("api/head?chain=x", answer(404, { code: "VALIDATION_ERROR", message: "there is no such chain" }));

  const expected = { name: "Refusal", code: "VALIDATION_ERROR", message: "there is no such chain", status: 404 };
  await assert.rejects(new ServedSource().head("x"), expected);
});

test("whoever is not in is told so, even by words that are no JSON", async () => {
  answers.set("../operator/pending", answer(401, "Unauthorized"));

  await assert.rejects(new ServedSource().pending(), { code: "NO_VISIT", status: 401 });
});

test("a server that does not answer is unreachable", async () => {
  await assert.rejects(new ServedSource().lines(), { code: "UNREACHABLE" });
});

test("what is not answered in time is refused, and of an act nobody knows whether it was done", async () => {
  const seconds = [];
  const timeout = AbortSignal.timeout;
  AbortSignal.timeout = (wait) => {
    const soon = new AbortController();
    seconds.push(wait / 1000);
    setTimeout(() => soon.abort(), 1);
    return soon.signal;
  };
  globalThis.fetch = (path, { signal }) =>
    new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  const source = new ServedSource();

  await assert.rejects(source.lines(), { code: "TOO_LATE", message: /within 20 seconds/ });
  await assert.rejects(source.act("alert", {}), { code: "TOO_LATE", message: /may have been done/ });
  await assert.rejects(source.difference("a", "b"), { code: "TOO_LATE", message: /within 120 seconds/ });
  await assert.rejects(source.fork("a", 1, []), { code: "TOO_LATE" });
  AbortSignal.timeout = timeout;

  assert.deepEqual(seconds, [20, 20, 120, 120]);
});

test("the machine is fetched once, and again after a failure", async () => {
  const source = new ServedSource();
  await assert.rejects(source.machine());
  answers.set("api/machine", answer(200, { states: [] }));

  assert.deepEqual(await source.machine(), { states: [] });
  await source.machine();
  assert.equal(asked.length, 2);
});

test("who subscribes late hears what is known at once", () => {
  const [source, heard] = [new ServedSource(), []];
  source.tell("pending", [{ id: "a" }]);
  source.tell("status", "live");
  const end = source.subscribe("pending", (waiting) => heard.push(waiting));
  source.subscribe("status", (status) => heard.push(status));
  end();
  source.tell("pending", []);

  assert.deepEqual(heard, [[{ id: "a" }], "live"]);
});

// --------------------------------------------------------------------------------------------------------- events
class Stream {
  constructor() {
    Object.assign(this, { listeners: {}, isClosed: false });
  }
  addEventListener(kind, listener) {
    this.listeners[kind] = listener;
  }
  close() {
    this.isClosed = true;
  }
}

class Tab extends EventTarget {
  hidden = false;
  turn(hidden) {
    this.hidden = hidden;
    this.dispatchEvent(new Event("visibilitychange"));
  }
}

function listening(holds = async () => true) {
  const [streams, told, waits, page] = [[], [], [], new Tab()];
  const connect = () => streams[streams.push(new Stream()) - 1];
  const later = (run, wait) => waits.push({ run, wait });
  const tell = (...each) => told.push(each);
  const events = new Events("events", { tell, holds, ask: () => {}, connect, later, chance: () => 1, page });
  events.open();
  return { events, streams, told, waits, page };
}

test("events are told by kind", () => {
  const { streams, told } = listening();
  streams[0].onopen();
  streams[0].listeners.lines({ data: '[{"chain":"a"}]' });
  streams[0].listeners.gone({ data: '["b"]' });
  streams[0].listeners.pending({ data: '{"waiting":[1]}' });

  assert.deepEqual(told, [["status", "live"], ["lines", [{ chain: "a" }]], ["gone", ["b"]], ["pending", [1]]]);
});

test("a lost connection is tried again after a wait that grows, and a success forgets it", async () => {
  const { streams, told, waits } = listening();
  for (const at of [0, 1, 2]) {
    streams[at].onerror();
    await waits[at].run();
  }
  assert.deepEqual(waits.map((each) => each.wait), [500, 1000, 2000]);
  assert.deepEqual(told, [["status", "lost"], ["status", "lost"], ["status", "lost"]]);
  assert.ok(streams[0].isClosed);

  streams[3].onopen();
  streams[3].onerror();
  assert.equal(waits[3].wait, 500);
});

test("while the visit cannot be seen to hold, nothing is connected", async () => {
  const { streams, waits } = listening(async () => false);
  streams[0].onerror();
  await waits[0].run();

  assert.equal(streams.length, 1);
  assert.equal(waits.length, 2);
});

test("what was closed stays closed", async () => {
  const { events, streams, waits } = listening();
  streams[0].onerror();
  events.close();
  await waits[0].run();

  assert.equal(streams.length, 1);
});

test("a tab that is not seen has no stream, and a new one when it is seen again", async () => {
  const { events, streams, told, waits, page } = listening();
  page.turn(true);
  assert.equal(streams[0].isClosed, true);
  assert.deepEqual(told.at(-1), ["status", "still"]);

  page.turn(false);
  assert.equal(streams.length, 2);
  streams[1].onerror();
  page.turn(true);
  await waits[0].run();
  assert.equal(streams.length, 2);

  page.turn(false);
  events.close();
  page.turn(true);
  assert.deepEqual(streams.map((each) => each.isClosed), [true, true, true]);
});

test("no wait is longer than half a minute, and none is nothing", () => {
  for (const failures of [0, 5, 50, 5000]) {
    assert.ok(waitOf(failures, 1) <= 30_000 && waitOf(failures, 0) >= 250);
  }
});

// -------------------------------------------------------------------------------------------------------- the file
const SLICE = {
  chain: "a.1", after: 0, last: 9, more: false, ended: true, thinned: 1,
  steps: { number: [2, 4, 6], step: [1, 2, 3], reward: [1, 2, 3], total: [1, 3, 6], parts: { goal: [0, 0, 1] } },
  packets: [{ number: 3 }, { number: 5 }], notes: [{ number: 9 }],
};
const ROWS = [{ number: 2, event: { a: 1 } }, { event: "late", number: 4 }];
const RECORD = {
  lines: [{ chain: "a.1" }],
  episodes: {
    "a.1": {
      head: { line: { chain: "a.1" } }, slice: SLICE, explanations: { 3: { headline: "refused" } },
      pixels: { 2: "data:two", 6: "data:six" },
      raw: gzipSync(ROWS.map((row) => JSON.stringify(row)).join("\n")).toString("base64"),
    },
  },
  differences: { "a.1|b.1": { same: false } }, machine: { states: [] },
};

test("a file answers as a server does", async () => {
  const source = new FileSource(RECORD);

  assert.deepEqual(await source.lines(), RECORD.lines);
  assert.equal((await source.head("a.1")).line.chain, "a.1");
  assert.equal(await source.slice("a.1", 0, 10, false), SLICE);
  assert.equal((await source.explanation("a.1", 3)).headline, "refused");
  assert.equal((await source.difference("a.1", "b.1")).same, false);
  assert.deepEqual(await source.machine(), { states: [] });
  assert.deepEqual(await source.pending(), []);
});

test("a file's raw rows are unpacked on demand", async () => {
  const source = new FileSource(RECORD);

  assert.deepEqual(await source.raw("a.1", 2), ROWS[0]);
  assert.deepEqual(await source.raw("a.1", 4), ROWS[1]);
  await assert.rejects(source.raw("a.1", 3), { code: "NOT_HERE" });
});

test("the rest of a slice counts its totals from where it begins", async () => {
  const rest = await new FileSource(RECORD).slice("a.1", 4);

  assert.deepEqual(rest.steps, { number: [6], step: [3], reward: [3], total: [3], parts: { goal: [1] } });
  assert.deepEqual([rest.after, rest.packets, rest.notes.length], [4, [{ number: 5 }], 1]);
  assert.deepEqual((await new FileSource(RECORD).slice("a.1", 9)).steps.number, []);
});

test("a picture that was left out is the one before it", async () => {
  const source = new FileSource(RECORD);

  assert.equal(await source.pixels("a.1", 6), "data:six");
  assert.equal(await source.pixels("a.1", 5), "data:two");
  await assert.rejects(source.pixels("a.1", 1), { code: "NOT_HERE" });
});

test("what a file does not have is refused in words", async () => {
  const source = new FileSource(RECORD);

  const askings = [source.head("b.1"), source.head("constructor"), source.act("deny", {}), source.fork("a.1", 1, [])];
  for (const asking of askings) {
    await assert.rejects(asking, { code: "NOT_HERE" });
  }
  assert.equal(source.canAct || source.canFork, false);
});

// ------------------------------------------------------------------------------------------------- what came of it
test("what came of an act is said with its rules, its reason and the state", () => {
  const done = { accepted: false, state: "S3_DECIDE", rules: ["GOV-1", "FSM"], reason: "no live token" };

  assert.equal(
    refusal(done),
    "Refused by GOV-1, FSM: no live token. Nothing has changed; the episode is in Decide (S3_DECIDE).",
  );
  assert.equal(success({ done: "Denied." }, { state: "ready" }), "Denied. The episode is in Running (ready).");
});

test("an act without an answer is one of which nobody knows", () => {
  assert.match(trouble({ code: "UNREACHABLE", message: "x" }), /nobody knows/);
  assert.match(trouble({ code: "ENDED", message: "this episode is closed" }), /this episode is closed/);
});
