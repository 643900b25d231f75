// An episode's walk through the machine, read from its packets: where it stood, which arrows it took, what was refused.
//
// Rule 1: pure, and grows with the packets: `extend` reads only what it has not read.
// Rule 2: a refusal never moves the machine; it is counted where it happened.
// Rule 3: what was shown and what it turned out to be may differ (a declared set): the next packet's path tells.
// Rule 4: asking for a moment costs the same at packet ten and at packet ten thousand.

import { countWhile } from "./dom.js";

export const START = "S0_IDLE";
// So many of the latest hops are told apart by their strength.
const FADES = 8;

/** Returns the name of an arrow between two states. */
export function keyOf(source, target) {
  return `${source}>${target}`;
}

export class Walk {
  constructor() {
    this.read = 0;
    this.hops = [];
    this.refusals = new Map();
    this.firsts = new Map();
    this.visits = new Map([[START, 0]]);
    this.states = [];
  }

  /** Reads the packets that came since the last time. */
  extend(packets) {
    for (; this.read < packets.length; this.read += 1) this.#take(packets[this.read], this.read);
  }

  /** Returns the state after the first `count` packets. */
  state(count) {
    return count > 0 ? (this.states[Math.min(count, this.states.length) - 1] ?? START) : START;
  }

  /** Returns {state: number of refusals} among the first `count` packets. */
  refused(count) {
    const found = new Map();
    for (const [state, where] of this.refusals) {
      const many = countWhile(where.length, (at) => where[at] < count);
      if (many > 0) found.set(state, many);
    }
    return found;
  }

  /** Returns {arrow's key: 1 for the last one taken, less for earlier ones, little for long ago}. */
  strengths(count) {
    const found = new Map();
    for (const [key, first] of this.firsts) if (first < count) found.set(key, 0.3);
    const end = this.#end(count);
    for (let at = Math.max(0, end - FADES); at < end; at += 1) {
      const { source, target } = this.hops[at];
      found.set(keyOf(source, target), 1 - 0.7 * ((end - 1 - at) / FADES));
    }
    return found;
  }

  /** Returns the states that were entered by the first `count` packets. */
  visited(count) {
    return new Set([...this.visits].filter(([, first]) => first <= count).map(([state]) => state));
  }

  /**
   * Returns the last `most` moves of the first `count` packets, oldest first, and how many hops there were before them.
   * A move is {source, target, first, last, times, told}; staying again and again is one move.
   */
  path(count, most) {
    const moves = [];
    let at = this.#end(count);
    for (; at > 0; at -= 1) {
      const { source, target, packet, told } = this.hops[at - 1];
      const next = moves[moves.length - 1];
      const stays = source === target && next?.source === source && next.target === target;
      if (!stays && moves.length === most) break;
      if (stays) Object.assign(next, { first: packet, times: next.times + 1 });
      else moves.push({ source, target, first: packet, last: packet, times: 1, told });
    }
    return { earlier: at, moves: moves.reverse() };
  }

  #end(count) {
    return countWhile(this.hops.length, (at) => this.hops[at].packet < count);
  }

  #take(packet, index) {
    const stood = this.state(index);
    if (!packet.accepted) this.#refuse(packet.state || stood, index);
    else this.#move(packet, index, stood);
  }

  #refuse(state, index) {
    if (!this.refusals.has(state)) this.refusals.set(state, []);
    this.refusals.get(state).push(index);
    this.states.push(state);
  }

  #move(packet, index, stood) {
    const path = packet.path.length > 0 ? packet.path : [stood];
    if (path[0] !== stood) this.#tell(stood, path[0], index);
    for (let at = 1; at < path.length; at += 1) this.#hop(path[at - 1], path[at], index, false);
    for (const state of path) if (!this.visits.has(state)) this.visits.set(state, index + 1);
    this.states.push(packet.state || path[path.length - 1]);
  }

  /** A declared set turned out to be another state than the one shown: the arrow taken is the one that leads there. */
  #tell(stood, found, index) {
    const last = this.hops[this.hops.length - 1];
    if (last !== undefined) this.#hop(last.target === stood ? last.source : stood, found, index, true);
  }

  #hop(source, target, index, told) {
    const key = keyOf(source, target);
    if (!this.firsts.has(key)) this.firsts.set(key, index);
    this.hops.push({ source, target, packet: index, told });
  }
}
