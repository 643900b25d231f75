/*
 * Alerts and their end: how an operator stops a session's agents, and lets them go on.
 *
 * Rule 1: CRITICAL is safe mode, and the dialog says so before anything is sent.
 * Rule 2: safe mode can be cleared where the episode is in it, and nowhere else: the button is not there otherwise.
 * Rule 3: an act names the episode that was seen when it was begun: if its session has gone on by then, it is refused.
 */

import { Acting } from "./acting.js";
import { el, setText } from "./dom.js";
import { shortChain } from "./format.js";

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

function field(name, control) {
  return el("label", { class: "field" }, el("span", { class: "field-name" }, name), control);
}
