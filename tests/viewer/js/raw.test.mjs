// Pointers into JSON, and what a folded branch says of itself.

import assert from "node:assert/strict";
import test from "node:test";

import { exactly, numeral } from "../../../src/proctor/viewer/static/js/format.js";
import { folded, inline } from "../../../src/proctor/viewer/static/js/json_tree.js";
import { below, keysOf, marks, resolved } from "../../../src/proctor/viewer/static/js/json_tree.js";

const VALUE = { payload: { "a/b": [1, { "~": true }], text: "x" } };

test("a pointer is taken apart as RFC 6901 says", () => {
  assert.deepEqual(keysOf("/payload/a~1b/1/~0"), ["payload", "a/b", "1", "~"]);
  assert.deepEqual(keysOf(""), []);
  assert.deepEqual(keysOf("no pointer"), []);
});

test("putting a key below a pointer and taking it apart gives the key again", () => {
  for (const key of ["a", "a/b", "~", "~1", "", "0"]) assert.deepEqual(keysOf(below("/x", key)), ["x", key]);
});

test("a pointer resolves to what is there", () => {
  assert.deepEqual(resolved(VALUE, "/payload/a~1b/1/~0"), { found: "/payload/a~1b/1/~0", missing: [] });
});

test("a pointer to what is missing resolves to the nearest thing that is there", () => {
  assert.deepEqual(resolved(VALUE, "/payload/token/id"), { found: "/payload", missing: ["token", "id"] });
  assert.deepEqual(resolved(VALUE, "/payload/text/length"), { found: "/payload/text", missing: ["length"] });
  assert.deepEqual(resolved(null, "/a"), { found: "", missing: ["a"] });
});

test("keys that every object inherits are missing unless they are its own", () => {
  assert.deepEqual(resolved(VALUE, "/constructor"), { found: "", missing: ["constructor"] });
});

test("the branches above a mark are to be opened", () => {
  const { marked, opened } = marks(VALUE, ["/payload/text", "/payload/gone"]);

  assert.deepEqual(
    [...marked],
    [
      ["/payload/text", ""],
      ["/payload", "gone"],
    ],
  );
  assert.deepEqual([...opened].sort(), ["", "/payload"]);
});

test("a folded branch counts what is in it", () => {
  assert.equal(folded({ a: 1 }), "{1 key}");
  assert.equal(folded([1, 2]), "[2 items]");
});

test("short plain arrays are one line, others are branches", () => {
  assert.equal(inline([1, "a", null]), '[1, "a", null]');
  assert.equal(inline([]), null);
  assert.equal(inline([[1]]), null);
  assert.equal(inline(Array(13).fill(0)), null);
  assert.equal(inline(["x".repeat(100)]), null);
  assert.equal(inline({ a: 1 }), null);
});

test("numbers are read to the last digit, and written as they were", () => {
  const text = '{"seed":18446744073709551615,"reward":1.0,"step":7,"small":1e-05,"text":"1.0"}';
  const row = exactly(text);

  assert.equal(JSON.stringify(row), text);
  assert.equal(numeral(row.seed), "18446744073709551615");
  assert.equal(numeral(row.reward), "1.0");
  assert.equal(row.step, 7);
  assert.equal(row.text, "1.0");
});

test("what only looks like such a number is none", () => {
  for (const value of [{ rawJSON: "7" }, [], null, "7", 7]) assert.equal(numeral(value), null);
});

test("exact numbers stand in one line with others", () => {
  assert.equal(inline(exactly("[1.0, 9007199254740993, 2]")), "[1.0, 9007199254740993, 2]");
});
