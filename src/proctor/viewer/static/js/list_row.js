/*
 * One episode's row in the list. It is made once and then told what changed, so that focus and selection stay.
 *
 * Rule 1: cells carry their heading in `data-label`: on a narrow screen the row is a card, by CSS alone.
 * Rule 2: roles are said, since a table that is laid out as cards is no table any more to some readers.
 */

import { el, setAttribute, setText } from "./dom.js";
import { UNKNOWN, age, number, outcomeWords, shortChain, standingWords, time } from "./format.js";
import { episodeAddress } from "./router.js";

const GOOD = new Set(["conforming"]);
const BAD = new Set(["violated", "lost", "S9_SAFEMODE"]);
const WARNED = new Set(["S8_ESCALATED"]);

/** Return "good", "bad", "warn" or "" for a state or an outcome. */
export function tone(word) {
  if (GOOD.has(word)) {
    return "good";
  }
  return BAD.has(word) ? "bad" : WARNED.has(word) ? "warn" : "";
}

export class Row {
  /** `onChoose(chain, isChosen)` when the box is ticked or not. */
  constructor(line, onChoose) {
    this.chain = line.chain;
    this.box = el("input", { type: "checkbox", on: { change: () => onChoose(this.chain, this.box.checked) } });
    this.link = el("a", { class: "episode-link", href: episodeAddress(line.chain) });
    this.name = el("span", { class: "episode-name" });
    this.state = el("span", { class: "badge" });
    this.outcome = el("span", { class: "badge" });
    this.agent = el("span", { class: "agent" });
    this.tier = el("span", { class: "tier-name" });
    this.age = el("time", {});
    this.cells = this.makeCells();
    this.element = el("tr", { role: "row" }, Object.values(this.cells));
    this.update(line);
  }

  makeCells() {
    return {
      choose: cell("Compare", "choose", el("label", {}, this.box)),
      environment: cell("Environment", "name", this.link, this.name),
      agent: cell("Agent", "agent-cell", this.agent),
      state: cell("State", "state", this.state),
      outcome: cell("Outcome", "outcome", this.outcome),
      steps: cell("Steps", "number"),
      return: cell("Return", "number"),
      refusals: cell("Refusals", "number"),
      tier: cell("Tier", "tier", this.tier),
      age: cell("Age", "number age", this.age),
    };
  }

  update(line) {
    this.line = line;
    setText(this.link, line.environment);
    const more = [line.num_envs ? `${line.num_envs} copies` : "", line.fork ? "fork, not recorded" : ""];
    setText(this.name, [shortChain(line.chain), ...more].filter(Boolean).join(" · "));
    setAttribute(this.name, "title", line.chain);
    setAttribute(this.box, "aria-label", `Choose ${line.environment} ${shortChain(line.chain)} to compare`);
    this.showState(line);
    this.showOutcome(line);
    this.showNumbers(line);
    setText(this.agent, line.agent || UNKNOWN);
    this.cells.agent.classList.toggle("none", line.agent === "");
    setText(this.tier, line.tier || UNKNOWN);
    this.showAge();
  }

  /** Only a change is written: the badge is more than its word, and it is in front of a reader's eyes. */
  showState(line) {
    const { state, live } = line;
    const words = standingWords(line);
    if (this.stated === `${words} ${live}`) {
      return;
    }
    this.stated = `${words} ${live}`;
    badge(this.state, live ? tone(state) || "accent" : `plain ${tone(state)}`);
    setAttribute(this.state, "title", state);
    setText(this.state, words);
    if (live) {
      this.state.prepend(el("span", { class: "dot", "aria-hidden": "true" }));
      this.state.append(el("span", { class: "visually-hidden" }, " (live)"));
    }
  }

  showOutcome({ outcome, reason }) {
    badge(this.outcome, outcome === null ? "plain quiet" : tone(outcome));
    setText(this.outcome, outcomeWords(outcome));
    setAttribute(this.cells.outcome, "title", reason);
  }

  showNumbers(line) {
    this.fill("steps", number(line.steps, 0));
    this.fill("return", line.total_reward === null ? null : number(line.total_reward));
    this.fill("refusals", line.refusals === null ? null : number(line.refusals, 0));
    this.cells.refusals.classList.toggle("warn", line.refusals > 0);
  }

  showAge(now = Date.now() / 1000) {
    setText(this.age, age(this.line.opened_at, now));
    setAttribute(this.age, "title", `Opened ${time(this.line.opened_at)}`);
  }

  choose(isChosen, isFull) {
    this.box.checked = isChosen;
    this.box.disabled = isFull && !isChosen;
    this.element.classList.toggle("chosen", isChosen);
  }

  fill(key, text) {
    setText(this.cells[key], text ?? UNKNOWN);
    this.cells[key].classList.toggle("none", text === null);
  }
}

function cell(label, kind, ...children) {
  return el("td", { role: "cell", class: kind, dataset: { label } }, ...children);
}

function badge(node, tones) {
  setAttribute(node, "class", `badge ${tones}`.trim());
}
