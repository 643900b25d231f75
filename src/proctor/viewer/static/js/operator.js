/*
 * What an operator sees: the page of all that waits and of all governed episodes, and the operator's part of an
 * episode's page.
 *
 * Rule 1: a card lives as long as what it shows. When somebody else was faster, what was typed in it stays until it is
 *     closed.
 * Rule 2: the part of an episode's page belongs to this episode, not to its session: when the session goes on with
 *     another episode, nothing there acts on that one; a link leads to it.
 */

import { Acting, ActsPanel, closable, toHeading } from "./acting.js";
import { clear, el, field, messagePage } from "./dom.js";
import { shortChain } from "./format.js";
import { Sessions, WaitingCard, questionKey } from "./operator_cards.js";
import { episodeAddress } from "./router.js";

const NOTHING = "Nothing waits. Agents' questions and token requests appear here.";
const NO_LONGER = "This no longer waits: it was answered elsewhere, or its episode went on or ended.";
const AGES_EVERY = 5_000; // ms

/** Open the operator's page. */
export async function operatorPage(context) {
  if (!context.source.canAct) {
    const words = "This page shows a record. Acts are possible where `proctor serve` runs governed episodes.";
    const home = el("div", { class: "buttons" }, el("a", { class: "button", href: "#/" }, "All episodes"));
    return { ...messagePage("There is nobody to act upon", [el("p", {}, words), home]), title: "Operator" };
  }
  const sessions = await context.source.governed();
  const [waiting, standing] = [new WaitingPanel(context), new Sessions(context, sessions)];
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

/** A Panel of questions and token requests: those that `isMeant` keeps. */
class WaitingPanel {
  constructor(context, isMeant = () => true) {
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
  const about = el("blockquote", {}, card.waiting.question);
  const kind = ["notice", "warn", "draft", "waiting-form"];
  return closable(kind, el("p", {}, NO_LONGER), about, field("What you had typed", typed));
}

/** A Panel that hides itself where there is nothing to act upon. */
export class EpisodeOperator {
  #head;
  #context;
  #panels = [];
  #wasLive = null;
  #next = null; // the chain with which the session goes on
  #unsubscribe = () => {};
  #closed = false;

  constructor({ head, context }) {
    this.#head = head;
    this.#context = context;
    this.parts = el("div", { class: "episode-operator-parts" });
    this.over = el("p", { class: "notice", role: "status", hidden: true });
    const props = { class: "panel episode-operator", "aria-label": "Operator", hidden: true };
    this.element = el("section", props, el("h2", {}, "Operator"), this.over, this.parts);
    if (this.#isGoverned) {
      this.#unsubscribe = context.source.subscribe("lines", (lines) => this.#take(lines));
    }
    this.update();
  }

  update() {
    const isLive = this.#isGoverned && this.#head.line.live;
    if (isLive !== this.#wasLive) {
      this.#wasLive = isLive;
      if (isLive) {
        this.#begin();
      } else {
        this.#end();
      }
    }
    this.#panels.forEach((panel) => panel.update(this.#head.line.state));
    this.#show();
  }

  close() {
    this.#closed = true;
    this.#unsubscribe();
    this.#panels.forEach((panel) => panel.close());
  }

  get #isGoverned() {
    return this.#context.source.canAct && this.#head.line.governed;
  }

  #begin() {
    const { session, epoch } = this.#head.line;
    const context = this.#context;
    this.#next = null;
    const isMeant = (each) => each.session === session && each.epoch === epoch;
    this.#panels = [new WaitingPanel(context, isMeant), new ActsPanel(context, session, epoch)];
    clear(this.parts).append(...this.#panels.map((panel) => panel.element));
  }

  #end() {
    const [waiting] = this.#panels;
    this.#panels.forEach((panel) => panel.close());
    this.#panels = [];
    clear(this.parts).append(...(waiting ? [this.#drafts(waiting)] : []));
    if (this.#isGoverned) {
      this.#ask();
    }
  }

  /** Return what was typed in the cards of a panel that is closed; it comes when their acts are settled. */
  #drafts(waiting) {
    waiting.show([]);
    waiting.drafts.addEventListener("click", () => this.#show());
    setTimeout(() => this.#show());
    return waiting.drafts;
  }

  /** Ask whether the session goes on. A failure is no news here: the frame's head says that the connection is lost. */
  async #ask() {
    const sessions = await this.#context.source.governed().catch(() => []);
    if (!this.#closed) {
      this.#take(sessions.map(({ session, epoch }) => ({ session, epoch, chain: `${session}.${epoch}`, live: true })));
    }
  }

  #take(lines) {
    const { session, epoch } = this.#head.line;
    for (const line of lines.filter((each) => each.session === session && each.epoch > epoch)) {
      this.#next = line.live ? line.chain : this.#next === line.chain ? null : this.#next;
    }
    this.#show();
  }

  #show() {
    const goesOn = !this.#wasLive && this.#next !== null;
    if (goesOn && this.over.dataset.chain !== this.#next) {
      this.over.dataset.chain = this.#next;
      const link = el("a", { href: episodeAddress(this.#next), title: this.#next }, shortChain(this.#next));
      clear(this.over).append("This episode is over. Its session goes on as ", link, ".");
    }
    this.over.hidden = !goesOn;
    this.element.hidden = !this.#wasLive && !goesOn && this.parts.querySelector(".draft") === null;
  }
}
