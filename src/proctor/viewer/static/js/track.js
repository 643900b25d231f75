/*
 * An episode in the browser: its steps as columns, its packets and notes, in order; grown slice by slice.
 *
 * Rule 1: index 0 is the reset; index i covers all rows from its own up to the next step's row.
 * Rule 2: totals go on from slice to slice; a slice that was appended before changes nothing.
 * Rule 3: past `most` steps every second one is dropped, and later ones come in as sparsely (`stride`); but the last
 *     one of a slice always comes in: an agent may rest there, and what the sums come to is said there.
 * Rule 4: what is not a finite number is NaN, and NaN is never part of a column's range.
 */

import { countWhile } from "./dom.js";
import { painterOf } from "./stage.js";

const FIRST_ROOM = 256;

/** Return `value` as a number; what is none (null, "NaN", a list) as NaN. */
function asNumber(value) {
  return typeof value === "number" ? value : NaN;
}

export class Column {
  constructor() {
    this.values = new Float64Array(FIRST_ROOM);
    this.length = 0;
    this.low = Infinity;
    this.high = -Infinity;
  }

  push(value) {
    if (this.length === this.values.length) {
      this.#grow();
    }
    const found = asNumber(value);
    this.values[this.length] = found;
    this.length += 1;
    if (Number.isFinite(found)) {
      this.#widen(found);
    }
  }

  /** Fills up with NaN until there are `length` numbers. */
  pad(length) {
    while (this.length < length) {
      this.push(NaN);
    }
  }

  at(index) {
    return index >= 0 && index < this.length ? this.values[index] : NaN;
  }

  /** The least and the greatest finite number, or null where there is none. */
  get range() {
    return this.low <= this.high ? [this.low, this.high] : null;
  }

  /** Keeps the numbers at `kept` (ascending), and no others; the range stays, as it was really reached. */
  keep(kept) {
    kept.forEach((from, to) => {
      this.values[to] = this.values[from];
    });
    this.length = kept.length;
  }

  /** Return the greatest index whose number is at most `wanted`, where the numbers ascend; 0 if there is none. */
  search(wanted) {
    return Math.max(0, countWhile(this.length, (i) => this.values[i] <= wanted) - 1);
  }

  #widen(value) {
    if (value < this.low) {
      this.low = value;
    }
    if (value > this.high) {
      this.high = value;
    }
  }

  #grow() {
    const wider = new Float64Array(this.values.length * 2);
    wider.set(this.values);
    this.values = wider;
  }
}

const MOST_STEPS = 200_000;
const LEAST_STEPS = 10_000;
const MOST_CHARACTERS = 64_000_000; // of frames and observations, as JSON

const NUMBERS = ["number", "seq", "step", "at", "reward", "raw_reward", "total", "ended"];
const VALUES = ["action", "observation", "frame", "tool"];

/** Return how many steps of this weight (a sample frame, a sample observation) a track may hold. */
export function roomFor(...sample) {
  const weight = sample.reduce((sum, value) => sum + (JSON.stringify(value ?? null)?.length ?? 0), 100);
  return Math.max(LEAST_STEPS, Math.min(MOST_STEPS, Math.floor(MOST_CHARACTERS / weight)));
}

/** Return a number, or what is none where it is not known: a sum with it is not known either. */
function known(value) {
  return value ?? NaN;
}

function partLabel(name) {
  return name.replaceAll("_", " ");
}

export class Track {
  #numbers = Object.fromEntries(NUMBERS.map((name) => [name, new Column()]));
  #values = Object.fromEntries(VALUES.map((name) => [name, []]));
  #parts = new Map();
  #seen;
  #scene;
  #sum = 0;
  #most;

  /** `most` is for tests: how many steps are kept before every second one is dropped. */
  constructor(head, { most = null } = {}) {
    this.head = head;
    this.packets = [];
    this.notes = [];
    this.refusals = []; // the packets that were refused, in order
    this.refusedAt = []; // and their places among the packets
    this.calls = []; // [index, tool] of steps that an agent's tool took
    this.last = 0; // the number of the last row that is covered
    this.more = true;
    this.closed = false;
    this.stride = 1;
    this.generation = 0; // grows when steps are dropped: indexes then mean other steps
    this.#most = most;
    this.#scene = head.scene ?? null;
    this.#seen = painterOf(head).series(head).map((each) => ({ ...each, column: new Column() }));
    this.#begin(head);
  }

  get length() {
    return this.#numbers.number.length;
  }

  number(i) {
    return this.#numbers.number.at(i);
  }

  step(i) {
    return this.#numbers.step.at(i);
  }

  reward(i) {
    return this.#numbers.reward.at(i);
  }

  total(i) {
    return this.#numbers.total.at(i);
  }

  ended(i) {
    return this.#numbers.ended.at(i);
  }

  action(i) {
    return this.#values.action[i] ?? null;
  }

  observation(i) {
    return this.#values.observation[i] ?? null;
  }

  frame(i) {
    return this.#values.frame[i] ?? null;
  }

  tool(i) {
    return this.#values.tool[i] ?? null;
  }

  /** Return the index that shows `step`: its own, or the one before it where it was thinned out. */
  indexOfStep(step) {
    return this.#numbers.step.search(step);
  }

  /** Return the index whose rows hold the row `number`. */
  indexOfNumber(number) {
    return this.#numbers.number.search(number);
  }

  /** Return how many packets had been judged before the next step ran. */
  packetsBefore(i) {
    if (i >= this.length - 1) {
      return this.packets.length;
    }
    const next = this.number(i + 1);
    return countWhile(this.packets.length, (at) => this.packets[at].number < next);
  }

  /** What can be charted: `{name, label, group, values(i), column, range}`, in the order of the charts. */
  get series() {
    return [
      this.#series("reward", "Reward", "reward", this.#numbers.reward),
      this.#series("total", "Return", "total", this.#numbers.total),
      ...[...this.#parts].map(([name, column]) => this.#series(`part:${name}`, partLabel(name), "parts", column)),
      ...this.#seen.map((each) => this.#series(each.name, each.label, each.group ?? each.name, each.column)),
    ];
  }

  /** Takes a slice in; returns whether anything came with it. */
  append(slice) {
    if (slice.last <= this.last) {
      return false;
    }
    if (this.length === 1 && slice.thinned > 1) {
      this.stride = slice.thinned;
    }
    this.#takeSteps(slice.steps, slice.thinned);
    this.#takePackets(slice.packets);
    for (const note of slice.notes) {
      this.notes.push(note);
    }
    this.last = slice.last;
    this.more = slice.more;
    this.closed = slice.ended;
    if (this.#most !== null && this.length > this.#most) {
      this.#drop();
    }
    return true;
  }

  #begin(head) {
    const row = { number: head.first, seq: 0, step: 0, at: head.line.opened_at, total: 0, ended: 0 };
    const values = { observation: head.observation ?? null, frame: this.#scene?.frame ?? null };
    for (const name of NUMBERS) {
      this.#numbers[name].push(row[name]);
    }
    for (const name of VALUES) {
      this.#values[name].push(values[name] ?? null);
    }
    this.#measure();
  }

  /** Lets the painter's series read the newest step. */
  #measure() {
    const last = this.length - 1;
    for (const each of this.#seen) {
      each.column.push(this.#measured(each, last));
    }
  }

  #measured(series, i) {
    try {
      return series.value(this.frame(i), this.observation(i), this.#scene);
    } catch {
      return NaN; // a strange frame is shown as it is elsewhere; here it is a gap
    }
  }

  #takeSteps(steps, thinned) {
    const count = steps.number.length;
    if (count === 0) {
      return;
    }
    if (this.#most === null) {
      this.#most = roomFor(steps.scene[0], steps.observation[0]);
    }
    for (const name of Object.keys(steps.parts)) {
      this.#part(name);
    }
    for (let k = 0; k < count; k += 1) {
      if (thinned >= this.stride || this.#wanted(steps, k)) {
        this.#takeStep(steps, k);
      }
    }
    this.#sum += known(steps.total[count - 1]);
  }

  #wanted(steps, k) {
    const isLast = k === steps.number.length - 1;
    return isLast || steps.ended[k] !== 0 || steps.step[k] % this.stride === 0;
  }

  #takeStep(steps, k) {
    for (const name of NUMBERS) {
      this.#numbers[name].push(name === "total" ? this.#sum + known(steps.total[k]) : steps[name][k]);
    }
    for (const name of VALUES) {
      this.#values[name].push(steps[name === "frame" ? "scene" : name][k]);
    }
    this.#measure();
    for (const [name, column] of this.#parts) {
      column.push(steps.parts[name]?.[k]);
    }
    if (steps.tool[k]) {
      this.calls.push([this.length - 1, steps.tool[k]]);
    }
  }

  #part(name) {
    if (this.#parts.has(name)) {
      return;
    }
    const column = new Column();
    column.pad(this.length);
    this.#parts.set(name, column);
  }

  #takePackets(packets) {
    for (const packet of packets) {
      this.packets.push(packet);
      if (!packet.accepted) {
        this.refusals.push(packet);
        this.refusedAt.push(this.packets.length - 1);
      }
    }
  }

  /** Drops every second step, but never the reset, an end or the last one. */
  #drop() {
    this.stride *= 2;
    this.generation += 1;
    const kept = [];
    for (let i = 0; i < this.length; i += 1) {
      if (this.#stays(i)) kept.push(i);
    }
    const seen = this.#seen.map((each) => each.column);
    const columns = [...Object.values(this.#numbers), ...this.#parts.values(), ...seen];
    for (const column of columns) {
      column.keep(kept);
    }
    for (const name of VALUES) {
      this.#values[name] = kept.map((i) => this.#values[name][i]);
    }
    this.calls = [];
    this.#values.tool.forEach((tool, i) => tool && this.calls.push([i, tool]));
  }

  #stays(i) {
    return i === 0 || i === this.length - 1 || this.ended(i) !== 0 || this.step(i) % this.stride === 0;
  }

  #series(name, label, group, column) {
    return { name, label, group, column, values: (i) => column.at(i), range: column.range };
  }
}
