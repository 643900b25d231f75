/*
 * The cards of the operator's side: one for each governed session, one for each question or token request that waits.
 *
 * Rule 1: a card is made once and stays until it is settled: what is typed in it stays, a button in it keeps the focus.
 * Rule 2: all that an agent stated is shown as text, and may have any form: nothing is relied on.
 * Rule 3: an act names the session, the epoch and the question, and the dialog shows what is answered.
 */

import { Acting, ActsPanel } from "./acting.js";
import { button, clear, definitions, el, field, setAttribute, setText } from "./dom.js";
import { age, counted, number, shortChain, stateWords, time } from "./format.js";
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
    const pressed = button("Take back…", take, { class: "small-button" });
    setAttribute(pressed, "aria-label", `Take back the token ${token}`);
    return el("li", { class: "token" }, el("code", {}, token), pressed);
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

const ids = { made: 0 };

export class WaitingCard {
  constructor(waiting, acting) {
    this.waiting = waiting;
    this.acting = acting;
    this.settled = Promise.resolve(false); // whether the latest act upon it was accepted
    this.id = `waiting-${(ids.made += 1)}`;
    this.since = el("time", { class: "since quiet small", title: time(waiting.since) });
    this.text = el("textarea", { id: `${this.id}-text`, maxlength: 10000, rows: 2 });
    this.problem = el("p", { class: "bad small", role: "alert", hidden: true });
    this.element = el(
      "li",
      { class: "card waiting", "aria-labelledby": `${this.id}-question` },
      this.head(),
      el("p", { class: "question-text", id: `${this.id}-question` }, waiting.question),
      this.isToken() ? this.tokenForm() : this.answerForm(),
      whole(waiting.packet),
    );
    this.showAge();
  }

  isToken() {
    return this.waiting.kind === "token";
  }

  showAge() {
    setText(this.since, `asked ${age(this.waiting.since)}`);
  }

  /** Return what every act upon this says of it. */
  named() {
    const { session, epoch, id } = this.waiting;
    return { session, epoch, id };
  }

  /** Return what was typed for the agent. */
  draft() {
    return this.text.value.trim();
  }

  head() {
    const { session, epoch, agent } = this.waiting;
    const chain = `${session}.${epoch}`;
    const kind = this.isToken() ? "Token request" : "Question";
    return el(
      "div",
      { class: "waiting-head" },
      el("span", { class: "badge warn" }, kind),
      agent ? el("strong", { class: "agent-cell", title: "The agent that asks" }, agent) : null,
      el("a", { class: "mono small", href: episodeAddress(chain), title: chain }, shortChain(chain)),
      this.since,
    );
  }

  // ------------------------------------------------------------------------------------------------ questions
  answerForm() {
    const stated = objectOr(this.waiting.packet?.payload);
    return el(
      "form",
      { class: "waiting-form", on: { submit: (event) => this.submitted(event, () => this.answer()) } },
      advice(stated),
      this.options(listOr(stated.top_options)),
      this.words("What you say to the agent"),
      this.problem,
      el("div", { class: "buttons" }, el("button", { type: "submit", class: "primary" }, "Answer…")),
    );
  }

  options(stated) {
    const rows = this.waiting.options.map((option) => this.option(option, stated));
    return el("fieldset", { class: "options" }, el("legend", {}, "Options"), rows);
  }

  option(option, stated) {
    const more = objectOr(stated.find((each) => objectOr(each).option_id === option.option_id));
    const radio = el("input", { type: "radio", name: `${this.id}-choice`, value: option.option_id });
    const lines = [["For", more.pros], ["Against", more.cons], ["Risk", more.risk_summary]].map(([name, said]) => {
      const text = listOr(said).map(String).join("; ");
      return text === "" ? null : el("small", {}, `${name}: ${text}`);
    });
    const name = el("small", { class: "option-id" }, option.option_id);
    return el("label", { class: "option" }, radio, el("span", {}, option.description, name, lines));
  }

  answer() {
    const choice = this.element.querySelector("input[type=radio]:checked")?.value ?? null;
    const text = this.draft();
    if (choice === null && text === "") {
      return this.complain("Choose an option, or say something.");
    }
    const option = this.waiting.options.find((each) => each.option_id === choice);
    const words = option ? `“${option.description}” (${choice})` : "none of the options";
    return this.perform({
      title: "Answer the agent's question?",
      asked: this.waiting.question,
      says: [
        `You choose ${words}.`,
        text ? "The agent goes on with your answer, and is told:" : "The agent goes on with your answer.",
      ],
      quote: text,
      action: "Answer",
      name: "answer",
      about: questionKey(this.waiting),
      body: { ...this.named(), choice, text },
      done: "Answered.",
    });
  }

  // --------------------------------------------------------------------------------------------------- tokens
  tokenForm() {
    const asked = objectOr(this.waiting.packet);
    this.uses = this.amount("uses", { min: 1, step: 1, placeholder: `as asked: ${asked.uses ?? "?"}` });
    this.life = this.amount("life", { min: 1, step: "any", placeholder: "as the policy says" });
    const deny = button("Deny…", () => this.deny(), { class: "danger" });
    const limits = [field("Uses", this.uses), field("Life in seconds", this.life)];
    return el(
      "form",
      { class: "waiting-form", on: { submit: (event) => this.submitted(event, () => this.approve()) } },
      el("div", { class: "pair" }, limits),
      this.words("What you say about it"),
      this.problem,
      el("div", { class: "buttons" }, el("button", { type: "submit", class: "primary" }, "Approve…"), deny),
    );
  }

  approve() {
    const [uses, life] = [amountOf(this.uses), amountOf(this.life)];
    const text = this.draft();
    const count = uses === null ? "as often as it asked for" : counted(uses, "time");
    const lasting = life === null ? "as long as the policy says" : counted(life, "second");
    return this.perform({
      title: "Approve the token?",
      asked: this.waiting.question,
      says: [`The agent gets a token that it can use ${count}, for ${lasting}.`, ...(text ? ["You say:"] : [])],
      quote: text,
      action: "Approve",
      name: "approve",
      about: questionKey(this.waiting),
      body: { ...this.named(), uses, life_seconds: life, text },
      done: "Approved: the token is issued.",
    });
  }

  deny() {
    const text = this.draft();
    return this.perform({
      title: "Deny the token?",
      asked: this.waiting.question,
      says: ["No token is issued; the agent is told that its request was denied.", ...(text ? ["You say:"] : [])],
      quote: text,
      action: "Deny",
      danger: true,
      name: "deny",
      about: questionKey(this.waiting),
      body: { ...this.named(), text },
      done: "Denied: no token is issued.",
    });
  }

  // --------------------------------------------------------------------------------------------------- inside
  /** While an act is on its way, another one is not begun, and does not settle this either. */
  perform(act) {
    if (!this.acting.busy) {
      this.settled = this.acting.perform(act);
    }
    return this.settled;
  }

  submitted(event, act) {
    event.preventDefault();
    this.problem.hidden = true;
    act();
  }

  complain(sentence) {
    this.problem.hidden = false;
    setText(this.problem, sentence);
    this.element.querySelector("input, textarea").focus();
    return false;
  }

  amount(name, limits) {
    return el("input", { type: "number", id: `${this.id}-${name}`, inputmode: "numeric", ...limits });
  }

  words(label) {
    return field(`${label} (optional)`, this.text);
  }
}

/** Return what tells a question from all others, of whatever session. */
export function questionKey({ session, epoch, id }) {
  return JSON.stringify([session, epoch, id]);
}

function advice(stated) {
  const step = objectOr(stated.recommended_next_step).step;
  const gaps = listOr(stated.evidence_gaps).map((each) => objectOr(each).gap).filter(Boolean).map(String);
  const facts = [["The agent would", step && String(step)], ["It does not know", gaps.join("; ")]];
  return facts.some(([, text]) => text) ? definitions(facts, { class: "facts wide" }) : null;
}

function whole(packet) {
  const text = JSON.stringify(packet, null, 2) ?? "";
  const said = el("pre", { class: "said said-whole", tabindex: "0", "aria-label": "All that the agent stated" }, text);
  return el("details", {}, el("summary", {}, "All that the agent stated"), said);
}

function amountOf(input) {
  return input.value === "" || Number.isNaN(input.valueAsNumber) ? null : input.valueAsNumber;
}

function objectOr(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? value : {};
}

function listOr(value) {
  return Array.isArray(value) ? value : value === null || value === undefined || value === "" ? [] : [value];
}
