/*
 * What an operator does, from the question "really?" to what came of it; and the form that stops agents and lets them
 * go on.
 *
 * Rule 1: nothing is sent before a dialog said in words what will happen and that it goes on record. Closing it in any
 *     way means no.
 * Rule 2: an act is sent once. If no answer comes, it says that nobody knows; it is never sent again by itself.
 * Rule 3: a dialog about what is no longer there closes by itself, and nothing is sent.
 * Rule 4: an act names the episode that was seen when it was begun: if its session has gone on by then, it is refused.
 * Rule 5: an act's outcome takes the place of the one before and gets the focus, unless somebody has put that
 *     elsewhere meanwhile.
 */

import { button, el, field, setText } from "./dom.js";
import { shortChain, stateWords } from "./format.js";
import { UNREACHABLE } from "./source.js";

const count = { made: 0 };

/** Ask; true only if the action's button was pressed. `body` is a node, a string or a list of them. */
export function confirmed({ title, body, action, danger = false }) {
  const { dialog, cancel } = question(title, body, action, danger);
  document.body.append(dialog);
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "yes");
    });
    dialog.showModal();
    cancel.focus();
  });
}

/** Close every dialog that is open; a question is answered with no. */
export function dismissDialogs() {
  document.querySelectorAll("dialog[open]").forEach((dialog) => dialog.close("no"));
}

function question(title, body, action, danger) {
  const id = `dialog-${(count.made += 1)}`;
  const cancel = button("Cancel", () => dialog.close("no"));
  const go = button(action, () => dialog.close("yes"), { class: danger ? "primary danger" : "primary" });
  const dialog = el(
    "dialog",
    { class: "question", "aria-labelledby": `${id}-title`, "aria-describedby": `${id}-body` },
    el("h2", { id: `${id}-title` }, title),
    el("div", { id: `${id}-body`, class: "question-body" }, body),
    el("div", { class: "question-buttons" }, cancel, go),
  );
  dialog.addEventListener("click", (event) => isOutside(dialog, event) && dialog.close("no"));
  return { dialog, cancel };
}

/** A click on the backdrop is one on the dialog itself, beside its box; a key's click on a button is at 0, 0. */
function isOutside(dialog, event) {
  if (event.target !== dialog) {
    return false;
  }
  const box = dialog.getBoundingClientRect();
  const across = event.clientX < box.left || event.clientX > box.right;
  return across || event.clientY < box.top || event.clientY > box.bottom;
}

const MOST_SHOWN = 3;
const WITHDRAWN = "What you were asked about is settled or over: nothing was sent.";
const ON_RECORD = "This goes on record as the operator's act.";

export class Acting {
  /** `onDone()` after an act was answered, whatever the answer: something may have changed. */
  constructor(context, onDone = () => {}) {
    this.context = context;
    this.onDone = onDone;
    this.element = el("div", { class: "outcomes" });
    this.busy = false;
    this.asked = null; // {about, nodes}: what a dialog asks about at the moment, and what is in it
  }

  /**
   * Ask, send and show. `act`: `{title, asked, says (sentences), quote, action, danger, name, body, done, about}`,
   * where `asked` is what an agent asks, `done` the sentence for success, and `about` what `withdraw` names. Returns
   * whether it was accepted.
   */
  async perform(act) {
    if (this.busy || !(await this.isWanted(act))) {
      return false;
    }
    this.busy = true;
    const from = document.activeElement; // the dialog has given the focus back
    forget();
    try {
      return this.answered(act, await this.context.source.act(act.name, act.body), from);
    } catch (error) {
      this.conclude("bad", trouble(error), from);
      return false;
    } finally {
      this.busy = false;
      this.onDone();
    }
  }

  async isWanted(act) {
    const nodes = explained(act);
    const asked = { about: act.about ?? null, nodes };
    this.asked = asked;
    const isYes = await confirmed({ ...act, body: nodes });
    const isStill = this.asked === asked;
    this.asked = null;
    return isYes && isStill;
  }

  /** Close the dialog about this, or about anything, if one is open: nothing is done. */
  withdraw(about = null) {
    if (this.asked === null || (about !== null && this.asked.about !== about)) {
      return;
    }
    const { nodes } = this.asked;
    this.asked = null;
    nodes[0].closest("dialog")?.close("no");
    this.conclude("warn", WITHDRAWN, null);
  }

  answered(act, done, from) {
    this.conclude(done.accepted ? "good" : "bad", done.accepted ? success(act, done) : refusal(done), from);
    return done.accepted;
  }

  /** Tell what came of an act; the focus goes there if it is still where the act began, or lost. */
  conclude(tone, sentence, from) {
    const notice = this.tell(tone, sentence);
    if ([from, document.body].includes(document.activeElement)) {
      notice.focus();
    }
  }

  /** Show a sentence, and say it to who cannot see it; returns what shows it. */
  tell(tone, sentence) {
    const notice = closable(["notice", "outcome-notice", tone], el("p", {}, sentence));
    this.element.prepend(notice);
    [...this.element.children].slice(MOST_SHOWN).forEach((old) => old.remove());
    this.context.announce(sentence);
    return notice;
  }
}

/** Return a box with a button that takes it away; the focus is then on the page's heading, not lost. */
export function closable(classes, ...children) {
  const remove = () => {
    box.remove();
    toHeading();
  };
  const close = button("Close", remove, { class: "small-button" });
  const box = el("div", { class: classes, tabindex: "-1" }, children, el("div", {}, close));
  return box;
}

/** Put the focus on the page's heading, for when what had it is gone; nothing moves. */
export function toHeading() {
  document.querySelector("main h1")?.focus({ preventScroll: true });
}

/** Every panel of a page has its own `Acting`: what was said of acts is looked for in all of them. */
function forget() {
  document.querySelectorAll(".outcome-notice").forEach((notice) => notice.remove());
}

/** Return the sentence for what the judge refused. */
export function refusal(done) {
  const rules = done.rules.length > 0 ? ` by ${done.rules.join(", ")}` : "";
  const reason = done.reason ? `: ${done.reason}` : "";
  return `Refused${rules}${reason}. Nothing has changed; the episode is in ${inState(done.state)}.`;
}

/** Return the sentence for what was done. */
export function success(act, done) {
  return `${act.done} The episode is in ${inState(done.state)}.`;
}

/** Return the sentence for what could not even be asked. */
export function trouble(error) {
  if (error.code === UNREACHABLE) {
    return "No answer came, so nobody knows whether it was done. Look at what waits before you try again.";
  }
  return `It could not be done: ${error.message}`;
}

function explained({ asked, says, quote }) {
  const question = asked ? [el("p", {}, "The agent asks:"), el("blockquote", { class: "asked" }, asked)] : [];
  const quoted = quote ? [el("blockquote", {}, quote)] : [];
  const sentences = says.map((sentence) => el("p", {}, sentence));
  return [...question, ...sentences, ...quoted, el("p", { class: "quiet" }, ON_RECORD)];
}

function inState(state) {
  const words = stateWords(state);
  return words === state ? state : `${words} (${state})`;
}

const SAFE_MODE = "S9_SAFEMODE";
const SEVERITIES = [
  ["CRITICAL", "Critical: stop the agents at once"],
  ["ERROR", "Error"],
  ["WARNING", "Warning"],
  ["INFO", "Information"],
];

export class ActsPanel {
  constructor(context, session, epoch, onDone) {
    this.session = session;
    this.epoch = epoch;
    this.acting = new Acting(context, onDone);
    this.severity = el("select", {}, SEVERITIES.map(([value, words]) => el("option", { value }, words)));
    this.summary = el("textarea", { rows: 2, maxlength: 10000 });
    this.problem = el("p", { class: "bad small", role: "alert", hidden: true });
    const clearing = { type: "button", hidden: true, on: { click: () => this.clear() } };
    this.clearing = el("button", clearing, "Clear safe mode…");
    this.element = el("div", { class: "acts" }, this.acting.element, this.form());
  }

  /** Take in where the episode stands. */
  update(state) {
    this.clearing.hidden = state !== SAFE_MODE;
  }

  close() {
    this.acting.withdraw();
  }

  /** Return the episode that an act is about, in short. */
  episode() {
    return shortChain(`${this.session}.${this.epoch}`);
  }

  form() {
    const raising = el("button", { type: "submit", class: "danger" }, "Raise alert…");
    return el(
      "form",
      { on: { submit: (event) => this.submitted(event) } },
      field("Severity", this.severity),
      field("What is wrong, or why it is safe", this.summary),
      this.problem,
      el("div", { class: "buttons" }, raising, this.clearing),
    );
  }

  submitted(event) {
    event.preventDefault();
    const summary = this.summary.value.trim();
    this.problem.hidden = summary !== "";
    if (summary === "") {
      setText(this.problem, "Say what is wrong.");
      this.summary.focus();
    } else {
      this.alert(this.severity.value, summary);
    }
  }

  async alert(severity, summary) {
    const stops = severity === "CRITICAL";
    const accepted = await this.acting.perform({
      title: stops ? "Stop the agents of this episode?" : "Raise an alert?",
      says: [
        `An alert of severity ${severity} is stated in the episode ${this.episode()}:`,
        ...(stops ? ["The episode goes into safe mode at once: nothing can be done in it until you clear it."] : []),
      ],
      quote: summary,
      action: stops ? "Stop the agents" : "Raise the alert",
      danger: stops,
      name: "alert",
      body: { session: this.session, epoch: this.epoch, severity, summary },
      done: stops ? "The agents are stopped." : "The alert is stated.",
    });
    this.spend(accepted);
  }

  async clear() {
    const summary = this.summary.value.trim();
    const accepted = await this.acting.perform({
      title: "Lift safe mode?",
      says: [`The agents of the episode ${this.episode()} can go on.`],
      quote: summary,
      action: "Lift safe mode",
      name: "clear",
      body: { session: this.session, epoch: this.epoch, summary },
      done: "Safe mode is lifted.",
    });
    this.spend(accepted);
  }

  spend(accepted) {
    this.problem.hidden = true;
    if (accepted) {
      this.summary.value = "";
    }
  }
}
