/*
 * The head of an episode's page: what it is, how it stands, and what can be done with it.
 */

import { forkBadge } from "./choosing.js";
import { confirmed } from "./dialog.js";
import { clear, el, setText } from "./dom.js";
import { age, counted, number, outcomeWords, shortChain, standingWords } from "./format.js";
import { compareAddress } from "./router.js";

const TONES = { conforming: "good", violated: "bad", terminated: "good", truncated: "warn", lost: "bad" };

export class EpisodeHead {
  #given;
  #badges = el("div", { class: "episode-badges" });
  #summary = el("p", { class: "quiet episode-summary" });
  #trouble = el("p", { class: "notice warn", role: "status", hidden: true });
  #shown = "";

  constructor(given) {
    this.#given = given;
    const { line } = given.head;
    this.element = el(
      "header",
      { class: "episode-head" },
      el(
        "div",
        { class: "episode-title" },
        el("h1", { tabindex: "-1" }, line.environment || "Episode"),
        this.#badges,
        this.#summary,
        this.#trouble,
      ),
      el("div", { class: "buttons episode-buttons" }, this.#buttons()),
    );
    this.update();
  }

  update() {
    const { line } = this.#given.head;
    const shown = [line.state, line.outcome, line.live, line.closed_at].join();
    if (shown !== this.#shown) {
      this.#shown = shown;
      clear(this.#badges).append(...badgesOf(line));
    }
    setText(this.#summary, summaryOf(line));
  }

  close() {}

  #buttons() {
    const { context, head } = this.#given;
    const { chain } = head.line;
    return [
      context.source.canFork ? button("Fork here…", () => this.#fork()) : null,
      this.#compareButton(context.source),
      context.source.kind === "served" ? saveLink(context.source.page(chain), head.line) : null,
    ];
  }

  /** A file may hold no other episode to compare with. */
  #compareButton(source) {
    const found = button("Compare with…", () => this.#compare());
    if (source.kind === "file") {
      found.hidden = true;
      source.lines().then((lines) => {
        found.hidden = lines.length < 2;
      });
    }
    return found;
  }

  #fork() {
    const { context, head, track, player } = this.#given;
    const step = track.step(Math.min(player.index, track.length - 1));
    context.navigate(`${compareAddress(head.line.chain, head.line.chain)}?step=${step}`);
  }

  async #compare() {
    const { context, head } = this.#given;
    const lines = await this.#others();
    if (lines.length === 0) {
      return;
    }
    const choice = el("select", { "aria-label": "The other episode" }, lines.map(option));
    const body = el("label", { class: "field" }, el("span", { class: "field-name" }, "The other episode"), choice);
    if (await confirmed({ title: "Compare with", body, action: "Compare" })) {
      context.navigate(compareAddress(head.line.chain, choice.value));
    }
  }

  /** Return the other episodes' lines; where there are none, it is said why. */
  async #others() {
    const { context, head } = this.#given;
    try {
      const lines = (await context.source.lines()).filter((line) => line.chain !== head.line.chain);
      this.#say(lines.length === 0 ? "There is no other episode to compare with." : "");
      return lines;
    } catch (problem) {
      this.#say(`The other episodes are not known now: ${problem.message}`);
      return [];
    }
  }

  #say(words) {
    this.#trouble.hidden = words === "";
    setText(this.#trouble, words);
  }
}

function button(words, act) {
  return el("button", { type: "button", on: { click: act } }, words);
}

function saveLink(address, line) {
  return el("a", { class: "button", href: address, download: fileName(line) }, "Save as one file");
}

function fileName({ environment, chain }) {
  return `${`${environment}-${chain}`.replace(/[^\w.-]+/g, "-").slice(0, 120)}.html`;
}

function option(line) {
  const { environment, agent, steps, opened_at: began, chain } = line;
  const words = [environment, agent, counted(steps, "step"), age(began), shortChain(chain)];
  return el("option", { value: line.chain }, words.filter(Boolean).join(" · "));
}

function badgesOf(line) {
  const dot = el("span", { class: "dot beating", "aria-hidden": "true" });
  const live = line.live ? el("span", { class: "badge accent" }, dot, "Live") : null;
  const state = el("span", { class: ["badge", TONES[line.state]] }, standingWords(line));
  const isOther = line.outcome !== null && line.outcome !== line.state && line.outcome !== "open";
  const outcome = isOther ? el("span", { class: ["badge", TONES[line.outcome]] }, outcomeWords(line.outcome)) : null;
  return [line.fork ? forkBadge() : null, live, state, outcome].filter(Boolean);
}

function summaryOf(line) {
  const parts = [
    line.agent && `agent ${line.agent}`,
    counted(line.steps, "step"),
    line.total_reward === null ? null : `return ${number(line.total_reward, 3)}`,
    line.refusals ? counted(line.refusals, "refusal") : null,
    line.seed === null ? null : `seed ${line.seed}`,
    shortChain(line.chain),
  ];
  return parts.filter(Boolean).join(" · ");
}
