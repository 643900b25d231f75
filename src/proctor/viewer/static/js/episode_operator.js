/*
 * The operator's part of an episode's page: what waits in it, and how its agents are stopped.
 *
 * Rule 1: it belongs to this episode, not to its session: when the session goes on with another episode, nothing here
 *     acts on that one; a link leads to it.
 * Rule 2: it is there as long as the episode lives, also if that began after the page was opened; and afterwards as
 *     long as something is left that was typed for its agents.
 */

import { clear, el } from "./dom.js";
import { shortChain } from "./format.js";
import { actsPanel, waitingPanel } from "./operator.js";
import { episodeAddress } from "./router.js";

/** Return a Panel; it hides itself where there is nothing to act upon. */
export function episodeOperator({ head, context }) {
  return new EpisodeOperator(head, context);
}

class EpisodeOperator {
  #head;
  #context;
  #panels = [];
  #wasLive = null;
  #next = null; // the chain with which the session goes on
  #unsubscribe = () => {};
  #closed = false;

  constructor(head, context) {
    this.#head = head;
    this.#context = context;
    this.parts = el("div", { class: "episode-operator-parts" });
    this.over = el("p", { class: "notice", role: "status", hidden: true });
    const props = { class: "panel episode-operator", "aria-label": "Operator", hidden: true };
    this.element = el("section", props, el("h2", {}, "Operator"), this.over, this.parts);
    if (this.#isGoverned) {
      this.#unsubscribe = context.source.subscribe("lines", (lines) => this.#told(lines));
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
    this.#panels = [waitingPanel({ context, session, epoch }), actsPanel({ context, session, epoch })];
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

  #told(lines) {
    this.#take(lines);
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
