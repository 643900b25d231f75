// Which episodes are wanted and in which order; and that rows find their places without the focused one moving.

import assert from "node:assert/strict";
import test from "node:test";

import { Catalogue, NO_FILTERS, matcher, ordered, pressed } from "../../../src/proctor/viewer/static/js/catalogue.js";
import { placed } from "../../../src/proctor/viewer/static/js/list.js";
import { tone } from "../../../src/proctor/viewer/static/js/list.js";

const line = (chain, more = {}) => ({
  chain, session: chain, epoch: 1, episode_id: `ep-${chain}`, environment: "Plume", agent: "", state: "ready",
  outcome: null, reason: null,
  steps: 0, total_reward: null, refusals: null, tier: "none", opened_at: 0, live: false, governed: false,
  seed: null, last: 1, ...more,
});
const chains = (lines) => lines.map((each) => each.chain).join("");

test("a line is taken in once, and again only if it changed", () => {
  const catalogue = new Catalogue();

  assert.equal(catalogue.merge([line("a"), line("b")]).length, 2);
  assert.equal(catalogue.merge([line("a"), line("b", { steps: 3 })]).length, 1);
  assert.equal(catalogue.size, 2);
  assert.equal(catalogue.line("b").steps, 3);
});

test("an episode that is found lost without a new row has changed", () => {
  const catalogue = new Catalogue();
  catalogue.merge([line("a", { live: true })]);

  assert.equal(catalogue.merge([line("a", { state: "lost" })]).length, 1);
});

test("every word of the filter must be somewhere, in any field and any case", () => {
  const matches = (text, more) => matcher({ ...NO_FILTERS, text })(line("abc.1", more));

  assert.ok(matches("plume ABC"));
  assert.ok(matches("planner", { agent: "Planner-A" }));
  assert.ok(matches("violated", { outcome: "violated" }));
  assert.ok(matches("   "));
  assert.ok(!matches("plume nowhere"));
});

test("filters narrow to live, governed, refused and one environment, together", () => {
  const all = [
    line("a", { live: true }), line("b", { governed: true, refusals: 2 }), line("c", { governed: true, refusals: 0 }),
    line("d", { environment: "Popper" }),
  ];
  const found = (filters) => chains(all.filter(matcher({ ...NO_FILTERS, ...filters })));

  assert.equal(found({}), "abcd");
  assert.equal(found({ live: true }), "a");
  assert.equal(found({ governed: true }), "bc");
  assert.equal(found({ refused: true }), "b");
  assert.equal(found({ environment: "Popper" }), "d");
  assert.equal(found({ live: true, governed: true }), "");
});

test("what is not known sorts last in either direction", () => {
  const all = [line("a"), line("b", { total_reward: 1 }), line("c", { total_reward: -1 })];

  assert.equal(chains(ordered(all, { key: "return", direction: "ascending" })), "cba");
  assert.equal(chains(ordered(all, { key: "return", direction: "descending" })), "bca");
});

test("equal ones stand newest first, then by name", () => {
  const all = [line("b"), line("a"), line("c", { opened_at: 5 })];

  assert.equal(chains(ordered(all, { key: "steps", direction: "ascending" })), "cab");
});

test("the youngest has the smallest age", () => {
  const all = [line("a", { opened_at: 1 }), line("b", { opened_at: 2 })];

  assert.equal(chains(ordered(all, { key: "age", direction: "ascending" })), "ba");
});

test("pressing a heading sorts by it, pressing it again turns it round", () => {
  const first = pressed({ key: "age", direction: "ascending" }, "steps");

  assert.deepEqual(first, { key: "steps", direction: "descending" });
  assert.deepEqual(pressed(first, "steps"), { key: "steps", direction: "ascending" });
});

test("what went wrong is told from what went well", () => {
  assert.equal(tone("conforming"), "good");
  assert.equal(tone("violated"), "bad");
  assert.equal(tone("S8_ESCALATED"), "warn");
  assert.equal(tone("terminated"), "");
});

class Body {
  constructor(names) {
    this.children = [];
    this.moved = [];
    names.forEach((name) => this.append(new Item(this, name)));
    this.moved = [];
  }
  get firstElementChild() {
    return this.children[0] ?? null;
  }
  insertBefore(item, before) {
    this.moved.push(item.name);
    item.body = this;
    this.children = this.children.filter((each) => each !== item);
    this.children.splice(before === null ? this.children.length : this.children.indexOf(before), 0, item);
  }
  append(item) {
    this.insertBefore(item, null);
  }
}

class Item {
  constructor(body, name) {
    Object.assign(this, { body, name });
  }
  get nextElementSibling() {
    return this.body.children[this.body.children.indexOf(this) + 1] ?? null;
  }
  remove() {
    this.body.children = this.body.children.filter((each) => each !== this);
  }
}

const permutations = (items) =>
  items.length < 2
    ? [items]
    : items.flatMap((item) => permutations(items.filter((each) => each !== item)).map((rest) => [item, ...rest]));

test("rows come into any order, and the focused one never moves", () => {
  for (const order of permutations(["a", "b", "c", "d", "new"])) {
    const body = new Body(["a", "gone", "b", "c", "d"]);
    const known = new Map(body.children.map((item) => [item.name, item]));
    const wanted = order.map((name) => known.get(name) ?? new Item(body, name));

    placed(body, wanted, known.get("c"));

    assert.deepEqual(body.children, wanted);
    assert.ok(!body.moved.includes("c"), order.join());
  }
});

test("rows that are in their places are left alone", () => {
  const body = new Body(["a", "b", "c"]);

  placed(body, [...body.children], null);

  assert.deepEqual(body.moved, []);
});

test("an episode that is gone is taken out", () => {
  const catalogue = new Catalogue();
  catalogue.merge([line("a"), line("b")]);

  assert.ok(catalogue.drop(["a", "c"]));
  assert.ok(!catalogue.drop(["a"]));
  assert.equal(chains(catalogue.view(NO_FILTERS, { key: "age", direction: "ascending" })), "b");
});
