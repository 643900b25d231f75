// The form that forks an episode: from which step, with which actions.
//
// Rule 1: nothing is sent that is no list of actions; what the server refuses is said beside the form.
// Rule 2: a fork is never recorded, and the form says so.
// Rule 3: a fork runs code. Which code, and with which settings, is said and confirmed before: the record names it, and
//   whoever wrote that may have named anything, whatever the environment is called in a list.

import { confirmed } from "./dialog.js";
import { el, setText } from "./dom.js";
import { actionsAfter, parsedActions } from "./pair.js";

const SUGGESTED = 5;
const made = { forms: 0 };

/**
 * Returns {element, follow(step), focus()}; `fork(step, actions)` is async and throws what the server refuses.
 * `last` is what the last fork was made of, to be changed and tried again.
 */
export function forkForm({ head, track, fork, last = null, ask = confirmed }) {
  return new ForkForm(head, track, fork, last, ask);
}

class ForkForm {
  constructor(head, track, fork, last, ask) {
    made.forms += 1;
    const id = `fork-${made.forms}`;
    Object.assign(this, { head, track, fork, ask, touched: false });
    this.step = el("input", {
      type: "number",
      id: `${id}-step`,
      min: "0",
      required: true,
      value: "0",
      on: { input: () => this.suggest() },
    });
    this.actions = el("textarea", {
      id: `${id}-actions`,
      rows: "2",
      spellcheck: "false",
      class: "mono",
      "aria-describedby": `${id}-help`,
      on: {
        input: () => {
          this.touched = true;
        },
      },
    });
    this.problem = el("p", { class: "bad", role: "alert" });
    this.button = el("button", { type: "submit", class: "primary" }, "Fork");
    this.element = el(
      "form",
      { class: "panel forking", "aria-label": "Fork A", on: { submit: (event) => this.submit(event) } },
      el("h2", null, "What if?"),
      el(
        "p",
        { class: "quiet small", id: `${id}-help` },
        "A is run again up to the step at the cursor, then on with these actions (a JSON list), and shown " +
          "as B. A fork is not recorded: it is gone when this page is left.",
      ),
      el(
        "div",
        { class: "forking-fields" },
        field(`${id}-step`, "After step", this.step),
        field(`${id}-actions`, "Actions", this.actions),
        this.button,
      ),
      this.problem,
    );
    if (last !== null) this.fill(last);
  }

  focus() {
    this.actions.focus();
  }

  fill({ step, actions }) {
    this.step.value = String(step);
    this.actions.value = JSON.stringify(actions);
    this.touched = true;
  }

  /** Takes the cursor's step over, as long as nobody is typing. */
  follow(step) {
    if (this.touched || document.activeElement === this.step) return;
    this.step.value = String(step);
    this.suggest();
  }

  /** Offers what was really done next, to be changed. */
  suggest() {
    if (this.touched) return;
    this.actions.value = JSON.stringify(actionsAfter(this.track, Number(this.step.value), SUGGESTED));
  }

  async submit(event) {
    event.preventDefault();
    const { actions, problem } = parsedActions(this.actions.value);
    setText(this.problem, problem ?? "");
    if (problem !== undefined) return;
    this.button.disabled = true;
    try {
      if (!(await this.ask(question(this.head)))) return;
      await this.fork(Number(this.step.value), actions);
    } catch (refusal) {
      setText(this.problem, `It was not forked: ${refusal.message}`);
    } finally {
      this.button.disabled = false;
    }
  }
}

/** What is asked before code runs. */
function question({ target, settings }) {
  return {
    title: "Run this environment?",
    body: [
      el("p", null, "A fork makes the environment that the record names, here on this machine, and runs its code:"),
      el("blockquote", { class: "mono" }, `${target}\nsettings ${JSON.stringify(settings)}`),
    ],
    action: "Fork",
  };
}

function field(id, name, input) {
  return el("div", { class: "field" }, el("label", { class: "field-name", for: id }, name), input);
}
