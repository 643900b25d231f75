/*
 * What comes by rows, one at a time: the cursor's first, then the next ones in the way it moves.
 *
 * What has come is `{row, value, problem}`: of a row that cannot be fetched the value is null and the problem an error.
 *
 * Rule 1: one is on its way at a time, always the one that is wanted most by then.
 * Rule 2: what comes late is kept all the same: it may be the nearest there is. The oldest is forgotten.
 */

const AHEAD = 4; // steps beyond the cursor that are fetched before they are needed

export class Ahead {
  #given;
  #come = new Map(); // by row number
  #index = 0;
  #direction = 1;
  #busy = false;
  #closed = false;

  /** `fetch(row)` brings a value, `onCome()` is told of each; where `needs(index)` is false, nothing is fetched. */
  constructor({ track, fetch, onCome, remembered, needs = () => true }) {
    this.#given = { track, fetch, onCome, remembered, needs };
  }

  /** Says where the cursor is. */
  moveTo(index) {
    this.#direction = index < this.#index ? -1 : 1;
    this.#index = index;
    this.#fetchNext();
  }

  /** Return what has come for an index, undefined if nothing has yet. */
  at(index) {
    return this.#come.get(this.#given.track.number(index));
  }

  /** Return what has come nearest to the cursor and is something, undefined if there is none. */
  nearest() {
    const row = this.#given.track.number(this.#index);
    const nearer = (one, other) => (Math.abs(other.row - row) < Math.abs(one.row - row) ? other : one);
    const found = [...this.#come.values()].filter(({ value }) => value !== null);
    return found.length === 0 ? undefined : found.reduce(nearer);
  }

  close() {
    this.#closed = true;
    this.#come.clear();
  }

  async #fetchNext() {
    const index = this.#busy || this.#closed ? undefined : this.#missing();
    if (index === undefined) {
      return;
    }
    this.#busy = true;
    const come = await this.#fetched(this.#given.track.number(index));
    this.#busy = false;
    if (!this.#closed) {
      this.#remember(come);
      this.#fetchNext(); // before anybody is told: what they do with it takes its time
      this.#given.onCome();
    }
  }

  /** Return the nearest index, from the cursor on in the way it moves, of which nothing has come. */
  #missing() {
    const { track, needs } = this.#given;
    const near = Array.from({ length: AHEAD + 1 }, (_, i) => this.#index + i * this.#direction);
    return near.find((i) => i >= 0 && i < track.length && this.at(i) === undefined && needs(i));
  }

  async #fetched(row) {
    try {
      return { row, value: (await this.#given.fetch(row)) ?? null, problem: null };
    } catch (problem) {
      return { row, value: null, problem };
    }
  }

  #remember(come) {
    if (this.#come.size >= this.#given.remembered) {
      this.#come.delete(this.#come.keys().next().value);
    }
    this.#come.set(come.row, come);
  }
}
