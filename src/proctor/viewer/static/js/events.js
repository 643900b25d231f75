/*
 * The server's events, for as long as the page is open: connects, is cut off, waits, connects again; and who is told
 * of them.
 *
 * Rule 1: the wait doubles after every failure up to half a minute, with some chance in it; a success forgets it.
 * Rule 2: before it connects again it asks whether the visit still holds: a server that was started anew knows nobody.
 * Rule 3: a tab that is not seen has no stream: a browser has few connections to a server, and all its tabs share them.
 *     It asks for what waits for an operator now and then, and is told everything anew when it is seen again.
 * Rule 4: what keeps time and what makes connections is passed in.
 */

export class Listeners {
  constructor() {
    this.byKind = new Map();
  }

  /** Add a listener; returns what takes it away again. */
  add(kind, listener) {
    const found = this.byKind.get(kind) ?? new Set();
    this.byKind.set(kind, found.add(listener));
    return () => found.delete(listener);
  }

  /** Tell all listeners of a kind. */
  tell(kind, value) {
    for (const listener of [...(this.byKind.get(kind) ?? [])]) {
      try {
        listener(value);
      } catch (error) {
        console.error(error);
      }
    }
  }
}

const FIRST_WAIT = 500; // ms
const LONGEST_WAIT = 30_000; // ms
const UNSEEN_EVERY = 5_000; // ms
const KINDS = ["lines", "gone", "pending"];

/** Return how long to wait before attempt `failures` + 1, in ms; `chance` is between 0 and 1. */
export function waitOf(failures, chance) {
  const longest = Math.min(LONGEST_WAIT, FIRST_WAIT * 2 ** Math.min(failures, 10));
  return Math.round(longest * (0.5 + chance / 2));
}

export class Events {
  /**
   * `tell(kind, value)` gets "lines", "gone", "pending" and "status"; `holds()` says whether the visit does (async);
   * `ask()` fetches what waits.
   */
  constructor(address, parts) {
    Object.assign(this, { address, connect, later, chance: Math.random, page: globalThis.document }, parts);
    this.failures = 0;
    this.stream = null;
    this.asking = null;
    this.leaving = new AbortController();
  }

  /** Listen while the page is seen, until `close()`. */
  open() {
    this.page.addEventListener("visibilitychange", () => this.look(), { signal: this.leaving.signal });
    this.look();
  }

  close() {
    this.leaving.abort();
    this.end();
  }

  get isWanted() {
    return !this.leaving.signal.aborted && !this.page.hidden;
  }

  look() {
    this.end();
    if (this.isWanted) {
      this.begin();
    } else {
      this.tell("status", "still");
      this.asking = setInterval(() => this.ask(), UNSEEN_EVERY);
    }
  }

  begin() {
    const stream = this.connect(this.address);
    this.stream = stream;
    stream.onopen = () => this.opened();
    stream.onerror = () => this.stream === stream && this.lost();
    KINDS.forEach((kind) => stream.addEventListener(kind, (event) => this.told(kind, event.data)));
  }

  end() {
    clearInterval(this.asking);
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
    this.end();
    this.tell("status", "lost");
    this.tryLater();
  }

  tryLater() {
    this.later(() => this.again(), waitOf(this.failures, this.chance()));
    this.failures += 1;
  }

  async again() {
    if (!this.isWanted || this.stream !== null) {
      return;
    }
    const isIn = await this.holds();
    if (this.isWanted && this.stream === null) {
      isIn ? this.begin() : this.tryLater();
    }
  }
}

function connect(address) {
  return new EventSource(address);
}

function later(run, wait) {
  setTimeout(run, wait);
}
