/*
 * A growing row of numbers: typed, doubled when full, with its range known at all times.
 *
 * Rule 1: what is not a finite number is NaN, and NaN is never part of the range.
 * Rule 2: `values` may be longer than `length`; readers stop at `length`.
 */

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
    let low = 0;
    let high = this.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.values[middle] <= wanted) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
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
