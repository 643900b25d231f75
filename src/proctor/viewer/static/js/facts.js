/*
 * What an episode is: environment, seed, agent, tier, policy, versions, settings, and how it ended.
 *
 * Rule 1: what is not known is left out; what was recorded is shown as text, however strange.
 */

import { clear, el } from "./dom.js";
import { counted, duration, number, outcomeWords, standingWords, time } from "./format.js";

const LONG = 60; // characters; longer values get a line of their own

/** Return a Panel with the episode's facts. */
export function factsPanel({ head, track }) {
  const list = el("dl", { class: "facts-list" });
  const summary = el("summary", {}, "Settings, policy and versions");
  const element = el(
    "section",
    { class: "panel facts-panel", "aria-label": "Facts" },
    el("h2", {}, "Facts"),
    list,
    el("details", { class: "facts-more" }, summary, details(head)),
  );
  const shown = { text: "" };
  const update = () => {
    const facts = factsOf(head, track);
    const text = JSON.stringify(facts);
    if (text !== shown.text) {
      shown.text = text;
      clear(list).append(...facts.map(([name, value]) => row(name, value)));
    }
  };
  update();
  return { element, update, close: () => {} };
}

/** Return `[name, words]` of what is known of an episode. */
export function factsOf(head, track) {
  const { line } = head;
  const facts = [
    ["Environment", line.environment],
    ["Served as", head.target === line.environment ? null : head.target],
    ["Agent", line.agent],
    ["State", standingWords(line)],
    ["Outcome", line.outcome === null || line.outcome === line.state ? null : outcomeWords(line.outcome)],
    ["How it ended", endWords(line)],
    ["Return", line.total_reward === null ? null : number(line.total_reward, 4)],
    ["Steps", stepWords(line, track)],
    ["Refusals", line.governed || line.refusals > 0 ? number(line.refusals, 0) : null],
    ["Seed", line.seed === null ? null : String(line.seed)],
    ["Batch", line.num_envs === null ? null : `${line.num_envs} environments; rewards are their means`],
    ["Isolation", line.tier],
    ["Governed", line.governed ? "yes" : null],
    ["Began", time(line.opened_at)],
    ["Lasted", lasted(line)],
    ["Session", line.session],
    ["Episode", `number ${line.epoch}${line.episode_id ? `, ${line.episode_id}` : ""}`],
    ["Observations", head.keeps === "all" ? "kept" : "digests only"],
  ];
  return facts.filter(([, words]) => words !== null && words !== undefined && words !== "");
}

function endWords(line) {
  if (line.live) {
    return null;
  }
  const flags = [line.terminated && "terminated", line.truncated && "truncated"].filter(Boolean).join(" and ");
  const reason = line.reason === "closed" ? "closed" : line.reason && `closed (${line.reason})`;
  return [flags, reason].filter(Boolean).join("; ") || null;
}

function stepWords(line, track) {
  const shown = track.stride > 1 ? `, one in ${track.stride} shown` : "";
  return `${counted(line.steps, "step")}${shown}`;
}

function lasted(line) {
  const until = line.closed_at ?? line.last_at;
  return until > line.opened_at ? duration(until - line.opened_at) : null;
}

function row(name, value) {
  const isLong = value.length > LONG;
  return el("div", { class: ["fact", isLong && "long"] }, el("dt", {}, name), el("dd", {}, value));
}

function details(head) {
  const blocks = [
    ["Settings", head.settings],
    ["Options of the reset", head.options],
    ["Policy", head.policy],
    ["Transforms", head.transforms.length > 0 ? head.transforms : null],
    ["Versions", head.versions],
  ];
  return el("div", { class: "facts-details" }, blocks.filter(([, value]) => hasSomething(value)).map(block));
}

function hasSomething(value) {
  return value !== null && value !== undefined && (typeof value !== "object" || Object.keys(value).length > 0);
}

function block([name, value]) {
  const text = JSON.stringify(value, null, 2);
  return el("div", {}, el("h3", {}, name), el("pre", { tabindex: "0", role: "region", "aria-label": name }, text));
}
