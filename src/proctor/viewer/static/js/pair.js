// Two episodes on one time: which of them leads, and where the other one stands then.
//
// Rule 1: pure. The cursor is an index of the longer track, the lead; the second one is found by the step.
// Rule 2: past its end an episode stays at its last step, and its lines in the charts end.

import { number, outcomeWords, shortChain, standingWords } from "./format.js";
import { Column } from "./track.js";

export const SIDES = ["A", "B"];

/** Returns the chain that a fork was made of; of what is no fork, its own. */
export function originOf({ chain }) {
  return chain.split("~")[0];
}

/** A side is {head, track, fork}: `fork` is true for what was made on this page, and has no address. */
export class Pair {
  constructor(one, other) {
    this.sides = [one, other];
    this.lead = reach(other) > reach(one) ? other : one;
  }

  /** The side that is not the lead. */
  get second() {
    return this.sides.find((side) => side !== this.lead) ?? this.lead;
  }

  /** Says whether the second one has gone further than the lead; by a little does not count while more may come. */
  get isOvertaken() {
    const slack = this.sides.every(({ track }) => track.closed) ? 0 : Math.max(20, reach(this.lead) * 0.02);
    return reach(this.second) > reach(this.lead) + slack;
  }

  get length() {
    return this.lead.track.length;
  }

  /** Returns the index of a side's own track at the cursor. */
  indexOf(side, index) {
    const { track } = this.lead;
    const at = Math.max(0, Math.min(index, track.length - 1));
    return side === this.lead ? at : side.track.indexOfStep(track.step(at));
  }

  /** Returns the cursor at a step. */
  cursorAt(step) {
    return this.lead.track.indexOfStep(step);
  }

  /** Says whether a side has ended before the cursor. */
  isOver(side, index) {
    return this.lead.track.step(Math.min(index, this.length - 1)) > lastStep(side.track);
  }

  /** Returns [{name, title, series}]: what can be charted of either, both sides' lines on the lead's indexes. */
  charts() {
    const found = new Map();
    this.sides.forEach((side, place) => {
      for (const each of side.track.series) {
        if (!found.has(each.name)) found.set(each.name, { name: each.name, title: each.label, series: [] });
        found.get(each.name).series.push(this.line(side, SIDES[place], each));
      }
    });
    return [...found.values()].filter(({ series }) => series.some(({ range }) => range !== null)).map(paired);
  }

  line(side, label, { column }) {
    const own = side === this.lead ? column : this.onLead(side, column);
    return { label, column: own, values: (i) => own.at(i), range: own.range };
  }

  /** Returns a column of the other side on the lead's indexes, without a number where there was no such step. */
  onLead(side, column) {
    const [last, found] = [lastStep(side.track), new Column()];
    const { track } = this.lead;
    for (let i = 0; i < track.length && track.step(i) <= last; i += 1)
      found.push(column.at(side.track.indexOfStep(track.step(i))));
    return found;
  }
}

/** Returns [{name, values: [A, B], same}]: what is to be said of both episodes. */
export function lineFacts(sides) {
  return facts(sides, [
    ["Episode", ({ head: { line } }) => (line.fork ? `fork of ${shortChain(originOf(line))}` : shortChain(line.chain))],
    ["Environment", ({ head }) => head.line.environment],
    ["Agent", ({ head }) => head.line.agent || "–"],
    ["Seed", ({ head }) => (head.line.seed === null ? "–" : String(head.line.seed))],
    ["State", ({ head }) => standingWords(head.line)],
    ["Outcome", ({ head }) => outcomeWords(head.line.outcome)],
    ["Steps", ({ track }) => number(lastStep(track), 0)],
    ["Return", ({ track }) => number(track.total(track.length - 1), 3)],
    ["Refusals", ({ head }) => (head.line.refusals === null ? "–" : number(head.line.refusals, 0))],
  ]);
}

/** Returns the same of the cursor. */
export function cursorFacts(pair, index) {
  const at = (side) => pair.indexOf(side, index);
  return facts(pair.sides, [
    ["Step", (side) => number(side.track.step(at(side)), 0) + (pair.isOver(side, index) ? " (its last)" : "")],
    ["Action", (side) => brief(side.track.action(at(side)))],
    ["Reward", (side) => number(side.track.reward(at(side)), 4)],
    ["Return so far", (side) => number(side.track.total(at(side)), 4)],
  ]);
}

/** Returns a value as JSON, not longer than `most` characters. */
export function brief(value, most = 90) {
  if (value === null || value === undefined) return "–";
  const text = JSON.stringify(value);
  return text.length > most ? `${text.slice(0, most)}…` : text;
}

/** Returns what people type in a list of actions: `{"action": 1}` as 1. */
export function bareAction(action) {
  const isWrapped = typeof action === "object" && action !== null && Object.keys(action).join() === "action";
  return isWrapped ? action.action : action;
}

/** Returns the recorded actions after a step, at most `most`. */
export function actionsAfter(track, step, most) {
  const first = track.indexOfStep(step) + 1;
  const found = [];
  for (let i = first; i < track.length && found.length < most; i += 1) found.push(bareAction(track.action(i)));
  return found;
}

/** Returns {actions} of a text, or {problem} in a sentence. */
export function parsedActions(text) {
  let actions;
  try {
    actions = JSON.parse(text);
  } catch {
    return { problem: "The actions are not JSON. Write a list, for example [1, 0, 2]." };
  }
  if (!Array.isArray(actions)) return { problem: "The actions must be a list, for example [1, 0, 2]." };
  return actions.length === 0 ? { problem: "The list of actions is empty." } : { actions };
}

/** Returns a difference as seen from the other side; the server gave a sentence for either. */
export function turned(difference) {
  const { one, other, number_one: first, number_other: second, left, right, text } = difference;
  return {
    ...difference,
    one: other,
    other: one,
    number_one: second,
    number_other: first,
    left: right,
    right: left,
    text: difference.turned ?? text,
    turned: text,
  };
}

function facts(sides, rows) {
  return rows.map(([name, say]) => {
    const values = sides.map(say);
    return { name, values, same: values[0] === values[1] };
  });
}

/** Returns how far a side goes, as far as is known: its rest may be on its way. */
function reach({ head, track }) {
  return Math.max(lastStep(track), head.line.steps);
}

function lastStep(track) {
  return track.step(track.length - 1) || 0;
}

function paired(chart) {
  const missing = SIDES.filter((label) => chart.series.every((each) => each.label !== label));
  const none = new Column();
  const empty = missing.map((label) => ({ label, column: none, values: () => NaN, range: null }));
  const series = [...chart.series, ...empty].sort((a, b) => SIDES.indexOf(a.label) - SIDES.indexOf(b.label));
  return { ...chart, series };
}
