// Packets as people read them, and the lists of those that pass a filter.

import assert from "node:assert/strict";
import test from "node:test";

import { stated } from "../../../src/proctor/viewer/static/js/packets.js";
import { FILTERS, Kept, kindWords, sentence, shortState, stateChange, variant, verdict, who } from "../../../src/proctor/viewer/static/js/packet_words.js";

function packet(more = {}) {
  return {
    number: 7,
    seq: 6,
    step: 3,
    at: 0,
    principal: "agent",
    kind: "DecisionPacket",
    packet_id: "pkt_1",
    judged: true,
    accepted: true,
    path: ["S2_MODEL", "S3_DECIDE"],
    rules: [],
    pointers: [],
    reason: "",
    warnings: [],
    state: "S3_DECIDE",
    tool: "decide",
    grant: null,
    line: { payload: { decision_outcome: "ACT" } },
    ...more,
  };
}

test("kinds are words", () => {
  assert.equal(kindWords("TaskDirectivePacket"), "Task directive");
  assert.equal(kindWords("ToolAuthorizationToken"), "Tool authorization token");
  assert.equal(kindWords("user_input"), "User input record");
  assert.equal(kindWords(""), "Unreadable line");
  assert.equal(kindWords("token_request"), "Token request");
  assert.equal(kindWords("<b>_1"), "<b>_1");
});

test("a decision says what was decided, whatever its line looks like", () => {
  assert.equal(variant(packet()), "ACT");
  assert.equal(variant(packet({ line: null })), "");
  assert.equal(variant(packet({ line: { payload: { decision_outcome: { a: 1 } } } })), "");
  assert.equal(variant(packet({ kind: "EscalationPacket" })), "");
  assert.equal(variant(packet({ line: { payload: { decision_outcome: "x".repeat(500) } } })).length, 40);
});

test("a kind that is also a word of every object is no variant", () => {
  assert.equal(variant(packet({ kind: "constructor" })), "");
});

test("a verdict is one word", () => {
  assert.equal(verdict(packet()).word, "accepted");
  assert.equal(verdict(packet({ accepted: false })).word, "refused");
  assert.equal(verdict(packet({ judged: false, accepted: false })).word, "refused");
  assert.equal(verdict(packet({ judged: false })).word, "noted");
  assert.equal(verdict(packet({ warnings: ["INV-012: no"] })).word, "warned");
});

test("a state change shows its way, and a refusal where it stayed", () => {
  assert.equal(stateChange(packet()), "S2 → S3");
  assert.equal(stateChange(packet({ path: ["S2_MODEL", "S3_DECIDE", "S4_VERIFY"] })), "S2 → S3 → S4");
  assert.equal(stateChange(packet({ path: ["S3_DECIDE", "S3_DECIDE"] })), "S3");
  assert.equal(stateChange(packet({ accepted: false })), "S3");
  assert.equal(shortState("ready"), "ready");
});

test("the server itself speaks as the proctor", () => {
  assert.equal(who(packet({ principal: "system" })), "proctor");
  assert.equal(who(packet({ principal: "operator" })), "operator");
});

test("a sentence names the broken rules", () => {
  const refused = packet({ accepted: false, rules: ["FSM", "INV-007"] });

  assert.equal(sentence(refused), "Step 3, agent: Decision ACT by decide, refused, FSM, INV-007, S3");
});

test("what is known without the server has the shape of an explanation", () => {
  const said = stated(packet({ accepted: false, rules: ["FSM"], reason: "No." }));

  assert.equal(said.headline, "Decision ACT was refused.");
  assert.deepEqual(said.rules, [{ rule: "FSM", sentence: "" }]);
  assert.deepEqual([said.legal_next, said.way, said.obligations], [[], [], []]);
});

test("each filter keeps its own, also when the list grows", () => {
  const packets = [
    packet(),
    packet({ accepted: false }),
    packet({ principal: "operator" }),
    packet({ principal: "system" }),
  ];
  const kept = Object.fromEntries(FILTERS.map(({ name, keeps }) => [name, new Kept(keeps)]));
  for (const list of Object.values(kept)) {
    list.extend(packets.slice(0, 2));
    list.extend(packets);
  }

  assert.deepEqual(kept.all.positions, [0, 1, 2, 3]);
  assert.deepEqual(kept.refused.positions, [1]);
  assert.deepEqual(kept.agent.positions, [0, 1]);
  assert.deepEqual(kept.operator.positions, [2]);
});

test("the place of a packet is that of the last one at or before it", () => {
  const kept = new Kept(({ accepted }) => !accepted);
  kept.extend([true, false, true, true, false].map((accepted) => packet({ accepted })));

  assert.deepEqual(
    [-1, 0, 1, 3, 4, 9].map((position) => kept.placeOf(position)),
    [-1, -1, 0, 0, 1, 1],
  );
});
