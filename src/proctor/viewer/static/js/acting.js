/*
 * An operator's act, from the question "really?" to what came of it.
 *
 * Rule 1: nothing is sent before a dialog said in words what will happen, what is answered, and that it goes on record.
 * Rule 2: an act is sent once. If no answer comes, it says that nobody knows; it is never sent again by itself.
 * Rule 3: a dialog about what is no longer there closes by itself, and nothing is sent.
 * Rule 4: what the judge refused is shown with its rules and its reason, and that nothing has changed.
 * Rule 5: an act takes away what was said of the one before, and its own outcome gets the focus, unless somebody has
 *     put that elsewhere meanwhile: what was pressed is often gone by then.
 */

import { confirmed } from "./dialog.js";
import { el } from "./dom.js";
import { stateWords } from "./format.js";
import { UNREACHABLE } from "./refusal.js";

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
  const close = el("button", { type: "button", class: "small-button", on: { click: remove } }, "Close");
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
