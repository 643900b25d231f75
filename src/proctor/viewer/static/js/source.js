/*
 * Where episodes come from: the server that served this page, or (`single_file.js`) the file that this page is. Both
 * have the same face.
 *
 *     kind canAct canFork · lines head slice explanation raw pixels difference fork machine · pending governed act
 *     subscribe("lines" | "gone" | "pending" | "status" | "visit", listener) -> unsubscribe
 *
 * Rule 1: everything is async; what cannot be done, or is not answered in time, throws a Refusal with a code and a
 *     sentence.
 * Rule 2: the only secret that ever comes here is the token of posts, told once when the code is traded. It is kept
 *     where this page's origin keeps things, which has a port: a cookie goes to every port of a host. Without it there
 *     is nothing to act with.
 * Rule 3: addresses are relative to the page, so that it works below any prefix.
 */

import { Events, Listeners } from "./events.js";
import { exactly } from "./format.js";

export const UNREACHABLE = "UNREACHABLE";
export const TOO_LATE = "TOO_LATE";
export const NO_VISIT = "NO_VISIT";
const NO_TOKEN = "NO_TOKEN"; // as the server calls it
export const NOT_HERE = "NOT_HERE";

export class Refusal extends Error {
  constructor(code, message, status = 0) {
    super(message);
    this.name = "Refusal";
    this.code = code;
    this.status = status;
  }
}

/** Return the refusal that an answer with this status and body means. */
function refusalOf(status, body) {
  const said = typeof body === "object" && body !== null ? body : {};
  const message = typeof said.message === "string" && said.message ? said.message : `The server answered ${status}.`;
  return new Refusal(status === 401 ? NO_VISIT : String(said.code ?? status), message, status);
}

const KEY = "proctor.token";
const memory = { token: "" };

export function keepToken(token) {
  memory.token = token;
  try {
    localStorage.setItem(KEY, token);
  } catch {
    // No storage here: see rule 2.
  }
}

/** Return the token, as the last of this origin's pages that came in has it; empty if there is none. */
function keptToken() {
  try {
    return localStorage.getItem(KEY) ?? memory.token;
  } catch {
    return memory.token;
  }
}

const MOST_STEPS = 5_000;
const SECONDS = 20;
const MANY_SECONDS = 120; // for what drives or judges a whole episode again

/** The server's side. `enter(code)` or `visit()` comes first; then everything works. */
export class ServedSource {
  constructor() {
    this.kind = "served";
    this.canAct = false;
    this.canFork = false;
    this.csrf = "";
    this.listeners = new Listeners();
    this.status = "still";
    this.waiting = null;
    this.remarks = [];
    this.events = null;
    this.fixed = new Map();
  }

  // ------------------------------------------------------------------------------------------------ the visit
  async enter(code) {
    return this.welcomed(await this.post("enter", { code }));
  }

  async visit() {
    return this.welcomed(await this.get("visit"));
  }

  welcomed(visit) {
    if (visit.csrf) {
      keepToken(visit.csrf);
    }
    this.csrf = keptToken();
    this.canAct = Boolean(visit.can_act && this.csrf);
    this.canFork = Boolean(visit.can_fork && this.csrf);
    return visit;
  }

  /** Begin to listen to the server's events. */
  listen() {
    if (this.events === null) {
      const tell = (kind, value) => this.tell(kind, value);
      const ask = () => (this.canAct ? this.pending().catch(() => {}) : null);
      this.events = new Events("events", { tell, ask, holds: () => this.holds() });
      this.events.open();
    }
  }

  close() {
    this.events?.close();
    this.events = null;
  }

  /** Whether the visit still holds; tells if it is known to have ended. */
  async holds() {
    try {
      await this.visit();
      return true;
    } catch (refusal) {
      if (refusal.code === NO_VISIT) {
        this.close();
        this.tell("visit", null);
      }
      return false;
    }
  }

  tell(kind, value) {
    if (kind === "status") {
      this.status = value;
    } else if (kind === "pending") {
      this.waiting = value;
    }
    this.listeners.tell(kind, value);
  }

  /** What is known of "status" and "pending" is told at once. */
  subscribe(kind, listener) {
    const end = this.listeners.add(kind, listener);
    if (kind === "status") {
      listener(this.status);
    } else if (kind === "pending" && this.waiting !== null) {
      listener(this.waiting);
    }
    return end;
  }

  // -------------------------------------------------------------------------------------------------- reading
  /** All lines; what they leave out is in `remarks` afterwards. */
  async lines() {
    const { lines, remarks } = await this.get("api/lines");
    this.remarks = remarks ?? [];
    return lines;
  }

  head(chain) {
    return this.get("api/head", { chain });
  }

  slice(chain, after = 0, most = MOST_STEPS, thin = false) {
    return this.get("api/slice", { chain, after, most, ...(thin ? { thin: 1 } : {}) });
  }

  explanation(chain, number) {
    return this.get("api/explanation", { chain, number }, MANY_SECONDS);
  }

  raw(chain, number) {
    return this.get("api/raw", { chain, number }, SECONDS, exactly);
  }

  async pixels(chain, number) {
    return `api/pixels?${new URLSearchParams({ chain, number })}`;
  }

  /** The address of the episode as a single file. */
  page(chain) {
    return `api/page?${new URLSearchParams({ chain })}`;
  }

  difference(one, other) {
    return this.get("api/difference", { one, other }, MANY_SECONDS);
  }

  machine() {
    return this.once("api/machine");
  }

  fork(chain, step, actions) {
    return this.post("api/fork", { chain, step, actions }, MANY_SECONDS);
  }

  // ------------------------------------------------------------------------------------------- the operator's
  async pending() {
    const { waiting } = await this.get("../operator/pending");
    this.tell("pending", waiting);
    return waiting;
  }

  async governed() {
    return (await this.get("../operator/sessions")).sessions;
  }

  /** Do what an operator does: "answer", "approve", "deny", "alert", "clear", "revoke" or "budget"; returns `Done`. */
  act(name, body) {
    return this.post(`../operator/${encodeURIComponent(name)}`, body);
  }

  // --------------------------------------------------------------------------------------------------- inside
  /** What never changes is fetched once; a failure is not kept. */
  once(path) {
    if (!this.fixed.has(path)) {
      const coming = this.get(path);
      coming.catch(() => this.fixed.delete(path));
      this.fixed.set(path, coming);
    }
    return this.fixed.get(path);
  }

  get(path, query = null, seconds = SECONDS, read = JSON.parse) {
    return asked(query === null ? path : `${path}?${new URLSearchParams(query)}`, { method: "GET" }, seconds, read);
  }

  /** If another tab came in anew, its token is the right one: then it is sent once more; nothing was done by then. */
  async post(path, body, seconds = SECONDS) {
    try {
      return await this.send(path, body, seconds);
    } catch (refusal) {
      if (refusal.code !== NO_TOKEN || keptToken() === this.csrf) {
        throw refusal;
      }
      this.csrf = keptToken();
      return this.send(path, body, seconds);
    }
  }

  send(path, body, seconds) {
    const headers = { "Content-Type": "application/json", "X-Proctor-CSRF": this.csrf };
    return asked(path, { method: "POST", headers, body: JSON.stringify(body) }, seconds);
  }
}

async function asked(path, options, seconds, read = JSON.parse) {
  const { answer, text } = await sent(path, options, seconds);
  if (!answer.ok) {
    throw refusalOf(answer.status, parsedOrNull(text));
  }
  return read(text);
}

async function sent(path, options, seconds) {
  const signal = AbortSignal.timeout(seconds * 1000);
  try {
    const always = { credentials: "same-origin", cache: "no-store", redirect: "error", signal };
    const answer = await fetch(path, { ...options, ...always });
    return { answer, text: await answer.text() };
  } catch {
    throw signal.aborted ? late(options.method, seconds) : unreachable();
  }
}

function late(method, seconds) {
  const doubt = method === "GET" ? "" : " What was asked for may have been done all the same.";
  const busy = "It may be busy, or too many pages of it are open.";
  return new Refusal(TOO_LATE, `The server has not answered within ${seconds} seconds. ${busy}${doubt}`);
}

function unreachable() {
  return new Refusal(UNREACHABLE, "The server does not answer. It may have been stopped, or the network is down.");
}

function parsedOrNull(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
