/*
 * The server's events for all tabs of a browser: one of them listens to the server, and tells the others.
 *
 * A browser has few connections to a server, and all tabs share them: with a stream for each, some tabs would take all.
 *
 * Rule 1: who holds the browser's lock listens; when that tab is closed the next one gets the lock, and is
 *     told everything anew.
 * Rule 2: a tab that comes later asks, and is told how things stand: it fetches its episodes by itself.
 * Rule 3: where there are no locks, every tab listens, as long as it is seen.
 */

import { Events } from "./events.js";

const KEPT = ["status", "pending"];
const HELLO = "hello";

export class Channel {
  /** `tell(kind, value)` gets what `Events` tells, and "visit"; `holds()` says whether the visit does (async). */
  constructor(address, { tell, holds, make = madeEvents, parts = browserParts() }) {
    Object.assign(this, { address, tell, holds, make, parts });
    this.known = new Map();
    this.leaving = new AbortController();
    this.events = null;
    this.others = null;
    this.release = () => {};
  }

  open() {
    if (this.parts.locks && this.parts.broadcast) {
      this.join();
    } else {
      this.watch();
    }
  }

  close() {
    this.leaving.abort();
    this.end();
    this.release();
    this.others?.close();
    this.others = null;
  }

  /** Tell the other tabs. */
  pass(kind, value) {
    this.others?.postMessage({ kind, value });
  }

  // ------------------------------------------------------------------------------------------------ with the others
  join() {
    const name = `proctor ${this.parts.place(this.address)}`;
    this.others = this.parts.broadcast(name);
    this.others.onmessage = (message) => this.heard(message.data);
    this.pass(HELLO, null);
    const lead = () => this.lead();
    this.parts.locks.request(name, { signal: this.leaving.signal }, lead).catch(() => this.watch());
  }

  /** Listen; the lock is held until what is returned comes to its end. */
  lead() {
    if (this.leaving.signal.aborted) {
      return null;
    }
    this.begin();
    return new Promise((resolve) => {
      this.release = resolve;
    });
  }

  heard({ kind, value }) {
    if (kind !== HELLO) {
      this.tell(kind, value);
    } else if (this.events !== null) {
      this.known.forEach((each, name) => this.pass(name, each));
    }
  }

  // --------------------------------------------------------------------------------------------------------- alone
  watch() {
    if (this.leaving.signal.aborted) {
      return;
    }
    const look = () => (this.parts.page.hidden ? this.rest() : this.begin());
    this.parts.page.addEventListener("visibilitychange", look, { signal: this.leaving.signal });
    look();
  }

  rest() {
    this.end();
    this.tell("status", "still");
  }

  // ----------------------------------------------------------------------------------------------------- the stream
  begin() {
    if (this.events === null) {
      this.events = this.make(this.address, { tell: (kind, value) => this.told(kind, value), holds: this.holds });
      this.events.open();
    }
  }

  end() {
    this.events?.close();
    this.events = null;
  }

  told(kind, value) {
    if (KEPT.includes(kind)) {
      this.known.set(kind, value);
    }
    this.pass(kind, value);
    this.tell(kind, value);
  }
}

function madeEvents(address, parts) {
  return new Events(address, parts);
}

/** What a browser has of it: an insecure address has no locks. */
function browserParts() {
  return {
    locks: navigator.locks,
    broadcast: typeof BroadcastChannel === "undefined" ? null : (name) => new BroadcastChannel(name),
    place: (address) => new URL(address, document.baseURI).pathname,
    page: document,
  };
}
