// A packet's verdict in words: what was refused, by which rules, where, and what would be legal instead.
//
// Rule 1: all words come from the server or from the packet; here they are only laid out, as text.
// Rule 2: what is known without asking is shown at once; the explanation replaces it when it comes. Where it did not
// come, that is said, and it can be asked for again.

import { el } from "./dom.js";
import { copyButton, jsonTree } from "./json_tree.js";
import { kindWords, stateChange, variant, verdict, who } from "./packet_words.js";

const LISTED = 4; // longer lists are folded

/** Returns what can be said of a packet alone, without the server; `missing`: why the server said nothing. */
export function stated(packet, missing = "") {
  const said = [kindWords(packet.kind), variant(packet)].filter(Boolean).join(" ");
  return {
    headline: packet.accepted ? `${said}: ${verdict(packet).word}.` : `${said} was refused.`,
    reason: packet.reason,
    pointers: packet.pointers,
    rules: packet.rules.map((rule) => ({ rule, sentence: "" })),
    legal_next: [],
    way: [],
    obligations: [],
    advice: "",
    missing,
  };
}

/** Returns the details of one packet; `explanation` is the server's, or what `stated` says. */
export function explained(packet, explanation, { announce, openRow, askAgain }) {
  return el(
    "article",
    { class: "verdict", dataset: { tone: verdict(packet).tone }, "aria-label": "The selected packet" },
    head(packet, explanation),
    explanation.missing ? missing(explanation.missing, askAgain) : null,
    facts(packet),
    rules(explanation),
    chips("Legal now", explanation.legal_next),
    way(explanation.way),
    listed("Still owed", explanation.obligations),
    listed("Warnings", packet.warnings),
    explanation.advice ? el("p", { class: "advice" }, explanation.advice) : null,
    json(packet, explanation, announce),
    openRow === null ? null : row(openRow),
  );
}

/** Returns a small coloured word. */
export function chip(word, tone = "") {
  return el("span", { class: `badge ${tone}` }, word);
}

function head(packet, { headline, reason }) {
  const { word, tone } = verdict(packet);
  const more = reason && !headline.includes(reason) ? el("p", { class: "verdict-reason" }, reason) : null;
  return el("header", null, el("h3", null, chip(word, tone), " ", headline), more);
}

function missing(why, askAgain) {
  const again = el("button", { type: "button", class: "small-button", on: { click: askAgain } }, "Ask again");
  return el("p", { class: "quiet" }, `The explanation could not be read: ${why} `, again);
}

function facts(packet) {
  const pairs = [
    ["who", who(packet)],
    ["step", String(packet.step)],
    ["row", String(packet.seq)],
    ["state", stateChange(packet)],
    ["tool", packet.tool],
    ["packet", packet.packet_id],
  ];
  return el(
    "dl",
    { class: "verdict-facts" },
    pairs
      .filter(([, value]) => value)
      .map(([name, value]) => el("div", null, el("dt", null, name), el("dd", null, value))),
  );
}

function rules(explanation) {
  if (explanation.rules.length === 0) return null;
  return block(
    "Broken rules",
    el(
      "ul",
      { class: "verdict-rules" },
      explanation.rules.map(({ rule, sentence }) => el("li", null, chip(rule, "bad"), " ", sentence)),
    ),
  );
}

function chips(title, words) {
  if (words.length === 0) return null;
  return block(
    title,
    el(
      "ul",
      { class: "chips" },
      words.map((word) => el("li", null, chip(word, "accent"))),
    ),
  );
}

function way(steps) {
  if (steps.length === 0) return null;
  return block(
    "The shortest way there",
    el(
      "ol",
      { class: "way" },
      steps.map((step) => el("li", null, chip(step))),
    ),
  );
}

function listed(title, words) {
  if (words.length === 0) return null;
  const list = el(
    "ul",
    { class: "plain" },
    words.map((word) => el("li", null, word)),
  );
  if (words.length <= LISTED) return block(title, list);
  return el("details", null, el("summary", null, `${title} (${words.length})`), list);
}

function block(title, content) {
  return el("section", { class: "verdict-block" }, el("h4", null, title), content);
}

function json(packet, explanation, announce) {
  const pointers = explanation.pointers;
  const inner = el("div");
  const copy = copyButton(() => JSON.stringify(packet.line, null, 2), announce);
  const fold = el(
    "details",
    { class: "verdict-json", on: { toggle: () => fill() } },
    el("summary", null, pointers.length > 0 ? "Where in the packet" : "Raw JSON of the packet"),
    pointers.length > 0
      ? el(
          "p",
          { class: "pointers" },
          pointers.map((pointer) => el("code", null, pointer)),
        )
      : null,
    el("div", { class: "json-tools" }, copy),
    inner,
  );
  const fill = () => {
    if (fold.open && inner.childNodes.length === 0)
      inner.append(jsonTree(packet.line, { pointers, opened: new Set(["", "/payload"]) }));
  };
  if (pointers.length > 0) {
    fold.open = true;
    fill();
  }
  return fold;
}

function row(openRow) {
  const inner = el("div");
  const fold = el(
    "details",
    {
      class: "verdict-json",
      on: {
        toggle: () => {
          if (fold.open && inner.childNodes.length === 0) openRow(inner);
        },
      },
    },
    el("summary", null, "Raw JSON of the recorded row"),
    inner,
  );
  return fold;
}
