/*
 * The head of an episode's page: what it is, how it stands, and what can be done with it.
 */

import { confirmed } from "./dialog.js";
import { clear, el, setText } from "./dom.js";
import { age, counted, number, shortChain, stateWords } from "./format.js";
import { compareAddress } from "./router.js";

const TONES = { conforming: "good", violated: "bad", terminated: "good", truncated: "warn", lost: "bad" };

export class EpisodeHead {
  #given;
  #badges = el("div", { class: "episode-badges" });
  #summary = el("p", { class: "quiet episode-summary" });
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
      ),
      el("div", { class: "buttons episode-buttons" }, this.#buttons()),
    );
    this.update();
  }

  update() {
    const { line } = this.#given.head;
    const shown = [line.state, line.outcome, line.live].join();
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
      context.source.kind === "served" ? saveLink(context.source.page(chain)) : null,
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
    const lines = (await context.source.lines()).filter((line) => line.chain !== head.line.chain);
    if (lines.length === 0) {
      context.announce("There is no other episode.");
      return;
    }
    const choice = el("select", { "aria-label": "The other episode" }, lines.map(option));
    const body = el("label", { class: "field" }, el("span", { class: "field-name" }, "The other episode"), choice);
    if (await confirmed({ title: "Compare with", body, action: "Compare" })) {
      context.navigate(compareAddress(head.line.chain, choice.value));
    }
  }
}

function button(words, act) {
  return el("button", { type: "button", on: { click: act } }, words);
}

function saveLink(address) {
  return el("a", { class: "button", href: address, download: "" }, "Save as one file");
}

function option(line) {
  const { environment, agent, steps, opened_at: began, chain } = line;
  const words = [environment, agent, counted(steps, "step"), age(began), shortChain(chain)];
  return el("option", { value: line.chain }, words.filter(Boolean).join(" · "));
}

function badgesOf(line) {
  const dot = el("span", { class: "dot beating", "aria-hidden": "true" });
  const live = line.live ? el("span", { class: "badge accent" }, dot, "Live") : null;
  const state = el("span", { class: ["badge", TONES[line.state]] }, stateWords(line.state));
  const isOther = line.outcome !== null && line.outcome !== line.state && line.outcome !== "open";
  const outcome = isOther ? el("span", { class: ["badge", TONES[line.outcome]] }, line.outcome) : null;
  return [live, state, outcome].filter(Boolean);
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
