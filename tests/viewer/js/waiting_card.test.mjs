// What waits for an operator: an act names the session, the epoch and the question, and says what it answers.

import assert from "node:assert/strict";
import test, { before } from "node:test";

import { questionKey, WaitingCard } from "../../../src/proctor/viewer/static/js/operator_cards.js";

class Node {
  constructor() {
    Object.assign(this, { nodeType: 1, value: "", valueAsNumber: NaN, children: [], dataset: {} });
  }
  setAttribute() {}
  removeAttribute() {}
  addEventListener() {}
  append(...children) {
    this.children.push(...children);
  }
  querySelector() {
    return { value: "go" };
  }
}

before(() => {
  globalThis.document = { createElement: () => new Node() };
});

const NAMED = { session: "s", epoch: 2, id: "pkt_s_2_7" };

/** Return the act that comes of calling `act` on a card. */
function actOf(act, more = {}) {
  const options = [{ option_id: "go", description: "Go on" }, { option_id: "no", description: "Stop" }];
  const acts = [];
  const acting = { busy: false, perform: (done) => Promise.resolve(acts.push(done) > 0) };
  const waiting = { ...NAMED, kind: "token", since: 0, question: "May I?", options, packet: {}, ...more };
  const card = new WaitingCard(waiting, acting);
  card.text.value = "slowly";
  card[act]();
  return acts[0];
}

for (const [name, kind] of [["answer", "escalation"], ["approve", "token"], ["deny", "token"]]) {
  test(`to ${name} names the question and shows what is asked, apart from what is said`, () => {
    const { name: sent, asked, quote, body, about } = actOf(name, { kind });

    assert.equal(sent, name);
    assert.deepEqual({ session: body.session, epoch: body.epoch, id: body.id }, NAMED);
    assert.deepEqual([asked, quote, body.text], ["May I?", "slowly", "slowly"]);
    assert.equal(about, questionKey(NAMED));
  });
}

test("questions of one id in two episodes are two questions", () => {
  const keys = [NAMED, { ...NAMED, epoch: 3 }, { ...NAMED, session: "t" }, { session: "s", epoch: 2, id: "x" }];

  assert.equal(new Set(keys.map(questionKey)).size, 4);
});
