// Elements are built from calls; nothing that is given can become code. The document is a stand-in, just large enough.

import assert from "node:assert/strict";
import test, { before } from "node:test";

import { clear, el, setAttribute, setText, svg, visible } from "../../../src/proctor/viewer/static/js/dom.js";

class Node {
  constructor(tag, namespace = null) {
    Object.assign(this, { nodeType: 1, tag, namespace, attributes: {}, children: [], listeners: {}, writes: 0 });
  }
  setAttribute(name, value) {
    this.attributes[name] = value;
  }
  removeAttribute(name) {
    delete this.attributes[name];
  }
  addEventListener(event, listener) {
    this.listeners[event] = listener;
  }
  append(...children) {
    this.children.push(...children);
  }
  replaceChildren(...children) {
    this.children = children;
  }
  get textContent() {
    return this.children.map((child) => (typeof child === "string" ? child : child.textContent)).join("");
  }
  set textContent(text) {
    this.writes += 1;
    this.children = text === "" ? [] : [text];
  }
}

before(() => {
  globalThis.document = {
    createElement: (tag) => new Node(tag),
    createElementNS: (namespace, tag) => new Node(tag, namespace),
  };
});

test("attributes are there if they are true, and absent if they are false or not known", () => {
  const node = el("input", { disabled: true, checked: false, title: null, id: undefined, min: 0, value: "" });

  assert.deepEqual(node.attributes, { disabled: "", min: "0", value: "" });
});

test("classes come as a string or as a list with gaps", () => {
  assert.equal(el("p", { class: "a b" }).attributes.class, "a b");
  assert.equal(el("p", { class: ["a", null, false, "b"] }).attributes.class, "a b");
});

test("children may be nodes, words, numbers and lists of them; null and false are nothing", () => {
  const node = el("p", {}, "a", [1, [el("b", {}, "c")]], null, false, undefined, 0);

  assert.equal(node.textContent, "a1c0");
});

test("properties can be left out", () => {
  assert.equal(el("p", "words").textContent, "words");
  assert.equal(el("p", el("b", {}, "x"), "y").textContent, "xy");
  assert.equal(el("p", ["a", "b"]).textContent, "ab");
  assert.equal(el("p").textContent, "");
});

test("markup in words stays words", () => {
  const hostile = '<img src=x onerror="alert(1)">';

  assert.deepEqual(el("p", {}, hostile).children, [hostile]);
  assert.deepEqual(el("p", { text: hostile }).children, [hostile]);
});

test("an attribute that would carry code or style is refused", () => {
  for (const name of ["onclick", "ONERROR", "style", "srcdoc", "innerHTML"]) {
    assert.throws(() => el("p", { [name]: "x" }), TypeError);
  }
});

test("an address that would run a script is refused, however it is written", () => {
  for (const address of ["javascript:alert(1)", " JavaScript:alert(1)", "java\nscript:alert(1)", "data:text/html,x"]) {
    assert.throws(() => el("a", { href: address }), TypeError);
  }
});

test("addresses of our own are let through", () => {
  for (const address of ["#/episode/javascript", "api/pixels?chain=a", "data:image/png;base64,AA", "#/"]) {
    assert.equal(el("a", { href: address }).attributes.href, address);
  }
});

test("listeners and data are set", () => {
  const pressed = () => {};
  const node = el("button", { on: { click: pressed }, dataset: { rowNumber: 3, gone: null } });

  assert.equal(node.listeners.click, pressed);
  assert.deepEqual(node.attributes, { "data-row-number": "3" });
});

test("a picture's elements are in their namespace", () => {
  assert.equal(svg("path", { d: "M0 0" }).namespace, "http://www.w3.org/2000/svg");
});

test("the same text is not written twice", () => {
  const node = el("p", {}, "same");
  setText(node, "same");
  assert.equal(node.writes, 0);

  setText(node, 5);
  assert.equal(node.textContent, "5");
});

test("an attribute can be taken away again, and a node emptied", () => {
  const node = el("p", { hidden: true }, "x");
  setAttribute(node, "hidden", false);

  assert.deepEqual(node.attributes, {});
  assert.equal(clear(node), node);
  assert.deepEqual(node.children, []);
});

test("a sign that turns the direction of writing is shown, not obeyed", () => {
  const turned = "invoice\u202egnp.exe";

  assert.equal(el("p", {}, turned).textContent, "invoice⟨U+202E⟩gnp.exe");
  assert.equal(el("p", { text: turned }).textContent, "invoice⟨U+202E⟩gnp.exe");
  assert.equal(el("p", { title: "a\u2066b" }).attributes.title, "a⟨U+2066⟩b");
  assert.equal(visible("\u061c\u202f"), "⟨U+061C⟩\u202f");
});

test("what is sent or found by is not changed", () => {
  assert.equal(el("option", { value: "a\u202eb" }).attributes.value, "a\u202eb");
});
