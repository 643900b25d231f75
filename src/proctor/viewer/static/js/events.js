/*
 * The server's events, for as long as the page is open: connects, is cut off, waits, connects again.
 *
 * Rule 1: the wait doubles after every failure up to half a minute, with some chance in it; a success forgets it.
 * Rule 2: before it connects again it asks whether the visit still holds: a server that was started anew knows nobody.
 * Rule 3: what keeps time and what makes connections is passed in.
 */

const FIRST_WAIT = 500; // ms
const LONGEST_WAIT = 30_000; // ms
const KINDS = ["lines", "gone", "pending"];

/** Return how long to wait before attempt `failures` + 1, in ms; `chance` is between 0 and 1. */
export function waitOf(failures, chance) {
  const longest = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** Math.min(failures, 10));
  return Math.round(longest * (0.5 + chance / 2));
}

export class Events {
  /** `tell(kind, value)` gets "lines", "gone", "pending" and "status"; `holds()` says whether the visit does. */
  constructor(address, { tell, holds, connect = openStream, later = after, chance = Math.random }) {
    Object.assign(this, { address, tell, holds, connect, later, chance });
    this.failures = 0;
    this.stream = null;
    this.closed = false;
  }

  open() {
    if (this.closed) {
      return;
    }
    const stream = this.connect(this.address);
    this.stream = stream;
    stream.onopen = () => this.opened();
    stream.onerror = () => this.stream === stream && this.lost();
    KINDS.forEach((kind) => stream.addEventListener(kind, (event) => this.told(kind, event.data)));
  }

  close() {
    this.closed = true;
    this.stream?.close();
    this.stream = null;
  }

  opened() {
    this.failures = 0;
    this.tell("status", "live");
  }

  told(kind, text) {
    const value = JSON.parse(text);
    this.tell(kind, kind === "pending" ? value.waiting : value);
  }

  /** The browser would try again at once and for ever at the same pace; it is closed, and we wait. */
  lost() {
    this.stream.close();
    this.stream = null;
    this.tell("status", "lost");
    this.later(() => this.again(), waitOf(this.failures, this.chance()));
    this.failures += 1;
  }

  async again() {
    if (!this.closed && (await this.holds())) {
      this.open();
    } else if (!this.closed) {
      this.later(() => this.again(), waitOf(this.failures, this.chance()));
      this.failures += 1;
    }
  }
}

function after(run, wait) {
  return setTimeout(run, wait);
}

function openStream(address) {
  return new EventSource(address);
}
