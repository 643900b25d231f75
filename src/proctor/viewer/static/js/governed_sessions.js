/*
 * How all governed episodes stand: asked for now and then, and whenever something happened.
 *
 * Rule 1: a session's card lives as long as the session: what is typed in it stays, a button in it keeps the focus.
 */

import { Acting } from "./acting.js";
import { ActsPanel } from "./alerting.js";
import { clear, el, setAttribute, setText } from "./dom.js";
import { number, shortChain, stateWords } from "./format.js";
import { episodeAddress } from "./router.js";

const SESSIONS_EVERY = 4_000; // ms
const SOON = 300; // ms

export class Sessions {
  constructor(context, sessions) {
    this.context = context;
    this.acting = new Acting(context, () => this.refreshSoon());
    this.cards = new Map();
    this.list = el("ul", { class: "session-list" });
    this.nothing = el("p", { class: "card nothing" }, "No governed episode runs.");
    this.element = el("div", { class: "acts" }, this.acting.element, this.list, this.nothing);
    this.soon = null;
    this.timer = setInterval(() => document.hidden || this.refresh(), SESSIONS_EVERY);
    this.ends = ["pending", "lines"].map((kind) => context.source.subscribe(kind, () => this.refreshSoon()));
    this.show(sessions);
  }

  close() {
    this.ends.forEach((end) => end());
    clearInterval(this.timer);
    clearTimeout(this.soon);
    this.cards.forEach((card) => card.close());
  }

  refreshSoon() {
    this.soon ??= setTimeout(() => {
      this.soon = null;
      this.refresh();
    }, SOON);
  }

  /** A failure is no news here: the frame's head says that the connection is lost. */
  async refresh() {
    try {
      this.show(await this.context.source.governed());
    } catch (error) {
      console.warn(error.message);
    }
  }

  show(sessions) {
    const names = new Set(sessions.map((each) => each.session));
    for (const [name, card] of [...this.cards].filter(([name]) => !names.has(name))) {
      this.cards.delete(name);
      card.close();
      card.element.remove();
    }
    sessions.forEach((each) => this.card(each).update(each));
    this.nothing.hidden = sessions.length > 0;
  }

  card(session) {
    if (!this.cards.has(session.session)) {
      const card = new SessionCard(this.context, session, this.acting, () => this.refreshSoon());
      this.cards.set(session.session, card);
      this.list.append(card.element);
    }
    return this.cards.get(session.session);
  }
}

class SessionCard {
  constructor(context, session, acting, onDone) {
    this.acting = acting;
    this.acts = new ActsPanel(context, session.session, session.epoch, onDone);
    this.link = el("a", { class: "mono" });
    this.agent = el("strong", { class: "agent-cell", title: "Its agents" });
    this.state = el("span", { class: "badge" });
    this.policy = el("span", { class: "quiet small" });
    this.values = new Map(["Steps", "Packets", "Refused", "Waiting"].map((name) => [name, el("dd", {})]));
    this.obligations = el("ul", {});
    this.tokens = el("ul", {});
    this.element = this.make();
  }

  make() {
    const facts = [...this.values].map(([name, value]) => el("div", {}, el("dt", {}, name), value));
    const acts = el("div", { class: "alerting" }, this.acts.element);
    return el(
      "li",
      { class: "card governed-session" },
      el("div", { class: "session-head" }, this.agent, this.link, this.state, this.policy),
      el("dl", { class: "facts" }, facts),
      el("dl", { class: "facts wide" }, [
        el("div", {}, el("dt", {}, "Obligations"), el("dd", {}, this.obligations)),
        el("div", {}, el("dt", {}, "Tokens that can be used"), el("dd", {}, this.tokens)),
      ]),
      el("details", {}, el("summary", {}, "Raise an alert, or lift safe mode"), acts),
    );
  }

  close() {
    this.acts.close();
    this.acting.withdraw(this);
  }

  update(session) {
    const chain = chainOf(session);
    this.acts.epoch = session.epoch;
    this.acts.update(session.state);
    setText(this.agent, session.agent ?? "");
    this.agent.hidden = !session.agent;
    setText(this.link, shortChain(chain));
    setAttribute(this.link, "href", episodeAddress(chain));
    setAttribute(this.link, "title", chain);
    setText(this.state, stateWords(session.state));
    setAttribute(this.state, "class", `badge ${toneOf(session)}`);
    setText(this.policy, `${session.policy}${session.over ? " · the environment has ended" : ""}`);
    const values = [session.steps, session.packets, session.refusals, session.waiting];
    [...this.values.values()].forEach((node, index) => setText(node, number(values[index], 0)));
    listed(this.obligations, session.obligations, (text) => el("li", {}, text), "none");
    listed(this.tokens, session.tokens, (token) => this.token(session, token), "none");
  }

  token(session, token) {
    const take = () => this.revoke(session, token);
    const button = el("button", { type: "button", class: "small-button", on: { click: take } }, "Take back…");
    setAttribute(button, "aria-label", `Take back the token ${token}`);
    return el("li", { class: "token" }, el("code", {}, token), button);
  }

  revoke(session, token) {
    return this.acting.perform({
      title: "Take the token back?",
      says: [`The token ${token} can no longer be used in the episode ${shortChain(chainOf(session))}.`],
      action: "Take it back",
      danger: true,
      name: "revoke",
      about: this,
      body: { session: session.session, epoch: session.epoch, token_id: token },
      done: "The token is taken back.",
    });
  }
}

function chainOf({ session, epoch }) {
  return `${session}.${epoch}`;
}

/** Make a list anew only if it changed, so that a button in it keeps the focus. */
function listed(node, items, make, none) {
  const key = JSON.stringify(items);
  if (node.dataset.items !== key) {
    node.dataset.items = key;
    clear(node).append(...(items.length > 0 ? items.map(make) : [el("li", { class: "quiet" }, none)]));
  }
}

function toneOf(session) {
  if (session.safe_mode || session.state === "S9_SAFEMODE") {
    return "bad";
  }
  return session.state === "S8_ESCALATED" || session.waiting > 0 ? "warn" : "accent";
}
