/*
 * The operator's side: what waits, how governed episodes stand, and the operator's acts.
 *
 * Rule 1: panels keep what is typed: a card lives as long as what it shows, whatever else changes.
 * Rule 2: every act goes through `Acting`: asked in words, sent once, its outcome shown and said.
 * Rule 3: a card goes when somebody else was faster; what was typed in it stays until it is closed.
 */

import { Acting, closable, toHeading } from "./acting.js";
import { ActsPanel } from "./alerting.js";
import { el } from "./dom.js";
import { Sessions } from "./governed_sessions.js";
import { questionKey, WaitingCard } from "./waiting_card.js";

const NOTHING = "Nothing waits. Agents' questions and token requests appear here.";
const NO_LONGER = "This no longer waits: it was answered elsewhere, or its episode went on or ended.";
const AGES_EVERY = 5_000; // ms

/** Open the operator's page. */
export async function operatorPage(context) {
  if (!context.source.canAct) {
    return noOperator();
  }
  const sessions = await context.source.governed();
  const [waiting, standing] = [waitingPanel({ context }), new Sessions(context, sessions)];
  const element = el(
    "div",
    {},
    el("div", { class: "page-head" }, el("h1", { tabindex: "-1" }, "Operator")),
    el(
      "div",
      { class: "operator-page" },
      el("section", { "aria-labelledby": "waits" }, el("h2", { id: "waits" }, "Waiting for you"), waiting.element),
      el("section", { "aria-labelledby": "stand" }, el("h2", { id: "stand" }, "Governed episodes"), standing.element),
    ),
  );
  const close = () => [waiting, standing].forEach((part) => part.close());
  return { element, title: "Operator", close };
}

/** Return the panel of questions and token requests; of one episode only, if its session and epoch are named. */
export function waitingPanel({ context, session = null, epoch = null }) {
  return new WaitingPanel(context, (each) => session === null || (each.session === session && each.epoch === epoch));
}

/** Return the panel with which an episode's agents are stopped and let go on. */
export function actsPanel({ context, session, epoch }) {
  return new ActsPanel(context, session, epoch);
}

class WaitingPanel {
  constructor(context, isMeant) {
    this.isMeant = isMeant;
    this.acting = new Acting(context, () => this.refresh());
    this.context = context;
    this.cards = new Map();
    this.list = el("ul", { class: "waiting-list" });
    this.nothing = el("p", { class: "card nothing" }, NOTHING);
    this.drafts = el("div", { class: "outcomes" });
    this.element = el("div", { class: "acts" }, this.acting.element, this.drafts, this.list, this.nothing);
    this.show([]);
    this.unsubscribe = context.source.subscribe("pending", (waiting) => this.show(waiting));
    this.timer = setInterval(() => this.cards.forEach((card) => card.showAge()), AGES_EVERY);
    this.refresh();
  }

  update() {}

  close() {
    this.unsubscribe();
    clearInterval(this.timer);
    this.acting.withdraw();
  }

  /** What the events have not told yet is asked for. */
  refresh() {
    this.context.source.pending().catch((error) => this.acting.tell("bad", error.message));
  }

  show(waiting) {
    const wanted = waiting.filter(this.isMeant);
    const keys = new Set(wanted.map(questionKey));
    [...this.cards].filter(([key]) => !keys.has(key)).forEach(([key, card]) => this.drop(key, card));
    wanted.filter((each) => !this.cards.has(questionKey(each))).forEach((each) => this.add(each));
    this.nothing.hidden = wanted.length > 0;
  }

  add(waiting) {
    const card = new WaitingCard(waiting, this.acting);
    this.cards.set(questionKey(waiting), card);
    this.list.append(card.element);
  }

  drop(key, card) {
    const hadFocus = card.element.contains(document.activeElement);
    this.cards.delete(key);
    card.element.remove();
    this.acting.withdraw(key);
    card.settled.then((isOurs) => isOurs || this.left(card, hadFocus));
  }

  /** A card went without an act of ours: keep what was typed in it, and the focus. */
  left(card, hadFocus) {
    const isLost = () => hadFocus && document.activeElement === document.body;
    if (card.draft() !== "") {
      const box = draftBox(card);
      this.drafts.prepend(box);
      this.context.announce(`${NO_LONGER} What you typed is kept.`);
      if (isLost()) box.focus();
    }
    if (isLost()) toHeading();
  }
}

function draftBox(card) {
  const typed = el("textarea", { readonly: true, rows: 3 });
  typed.value = card.draft();
  const words = el("span", { class: "field-name" }, "What you had typed");
  const about = el("blockquote", {}, card.waiting.question);
  const field = el("label", { class: "field" }, words, typed);
  return closable(["notice", "warn", "draft", "waiting-form"], el("p", {}, NO_LONGER), about, field);
}

function noOperator() {
  const element = el(
    "div",
    { class: "card message" },
    el("h1", { tabindex: "-1" }, "There is nobody to act upon"),
    el("p", {}, "This page shows a record. Acts are possible where `proctor serve` runs governed episodes."),
    el("div", { class: "buttons" }, el("a", { class: "button", href: "#/" }, "All episodes")),
  );
  return { element, title: "Operator", close: () => {} };
}
