/*
 * Values as people read them, and JSON to its last digit. Pure: the time of day is passed in where it matters.
 *
 * Rule 1: what is not known is a dash, never "null" or "NaN".
 * Rule 2: moments are seconds since 1970, lengths are seconds.
 * Rule 3: a number of a record that a browser would write otherwise (beyond 2^53, or 1.0) is kept as its text.
 */

export const UNKNOWN = "–";
const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const STATES = {
  S0_IDLE: "Idle",
  S1_SENSE: "Sense",
  S2_MODEL: "Model",
  S3_DECIDE: "Decide",
  S4_VERIFY: "Verify",
  S5_AUTHORIZE: "Authorize",
  S6_EXECUTE: "Execute",
  S7_REVIEW: "Review",
  S8_ESCALATED: "Escalated",
  S9_SAFEMODE: "Safe mode",
  ready: "Running",
  terminated: "Terminated",
  truncated: "Truncated",
  lost: "Lost",
  closed: "Closed",
};
const OUTCOMES = {
  conforming: "Conforming",
  violated: "Violated",
  open: "Open",
  terminated: "Terminated",
  truncated: "Truncated",
};

const GOVERNED = /^S\d_/;

/** Return a number with groups of three; at most `digits` after the point, more only for what would read as zero. */
export function number(value, digits = 2) {
  if (typeof value !== "number" || Number.isNaN(value)) {
    return UNKNOWN;
  }
  if (!Number.isFinite(value)) {
    return value > 0 ? "∞" : "−∞";
  }
  return written(value, digits).replace("-", "−");
}

/** Return a number in at most eight characters, as there is room for beside a chart. */
export function shortNumber(value) {
  const text = number(value, 3);
  if (text.length <= 7) {
    return text;
  }
  const size = Math.abs(value);
  return size >= 1000 && size < 1e6 ? number(value, 0) : value.toExponential(1).replace("e+", "e").replaceAll("-", "−");
}

/** Return how long ago a moment was: "just now", "12 s ago", "3 min ago", "5 h ago", "2 d ago", then the date. */
export function age(moment, now = Date.now() / 1000) {
  if (!isKnown(moment)) {
    return UNKNOWN;
  }
  const seconds = now - moment;
  if (seconds < 2) {
    return "just now";
  }
  return seconds < 30 * DAY ? `${rounded(seconds)} ago` : time(moment).slice(0, 10);
}

/** Return a moment in the reader's own time, "2026-03-01 14:05:09". */
export function time(moment) {
  if (!isKnown(moment)) {
    return UNKNOWN;
  }
  const at = new Date(moment * 1000);
  const date = [at.getFullYear(), two(at.getMonth() + 1), two(at.getDate())].join("-");
  return `${date} ${[at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":")}`;
}

/** Return a length of time: "340 ms", "12.4 s", "3:05", "2:03:05". */
export function duration(seconds) {
  if (!isKnown(seconds)) {
    return UNKNOWN;
  }
  const length = Math.max(0, seconds);
  if (length < 1) {
    return `${Math.round(length * 1000)} ms`;
  }
  return length < MINUTE - 0.05 ? `${length.toFixed(1)} s` : clock(Math.round(length));
}

/** Return a chain's name with the session cut to eight characters; what follows (epoch, fork) stays whole. */
export function shortChain(chain) {
  const [, session, rest] = /^([^.~]*)(.*)$/s.exec(String(chain ?? ""));
  return (session.length > 10 ? `${session.slice(0, 8)}…` : session) + rest;
}

/** Return a state as a word: "S9_SAFEMODE" is "Safe mode"; a state that is not known is itself. */
export function stateWords(state) {
  return Object.hasOwn(STATES, state) ? STATES[state] : String(state ?? UNKNOWN);
}

/** Return an outcome as a word; one that is not known is itself. */
export function outcomeWords(outcome) {
  return Object.hasOwn(OUTCOMES, outcome) ? OUTCOMES[outcome] : outcome ?? UNKNOWN;
}

/**
 * Return how an episode stands: its state while it lives, and how it was left after that. The state of a governed one
 * is that before it was closed. A fork is driven no further by anybody.
 */
export function standingWords({ state, live, fork = false, closed_at: closed = null }) {
  const words = stateWords(state);
  if (fork) {
    return state === "ready" ? "Not ended" : words;
  }
  if (live || !(state === "ready" || GOVERNED.test(state))) {
    return words;
  }
  const how = closed === null ? "Left open" : "Closed";
  return state === "ready" || state === "S0_IDLE" ? how : `${how} in ${words}`;
}

/** Return "1 step" or "2 steps". */
export function counted(count, noun, plural = `${noun}s`) {
  return `${number(count, 0)} ${count === 1 ? noun : plural}`;
}

function isKnown(value) {
  return typeof value === "number" && Number.isFinite(value);
}

function written(value, digits) {
  const size = Math.abs(value);
  if (size >= 1e15) {
    return value.toExponential(2);
  }
  if (size !== 0 && digits > 0 && size < 0.5 * 10 ** -digits) {
    return size < 1e-6 ? value.toExponential(1) : trimmed(value.toPrecision(2));
  }
  return grouped(trimmed(value.toFixed(digits)));
}

function trimmed(text) {
  const short = text.includes(".") && !text.includes("e") ? text.replace(/\.?0+$/, "") : text;
  return short === "-0" ? "0" : short;
}

function grouped(text) {
  const [whole, part] = text.split(".");
  const groups = whole.replace(/\B(?=(\d{3})+$)/g, "\u202f");
  return part === undefined ? groups : `${groups}.${part}`;
}

function rounded(seconds) {
  if (seconds < MINUTE) {
    return `${Math.floor(seconds)} s`;
  }
  if (seconds < HOUR) {
    return `${Math.floor(seconds / MINUTE)} min`;
  }
  return seconds < DAY ? `${Math.floor(seconds / HOUR)} h` : `${Math.floor(seconds / DAY)} d`;
}

function clock(seconds) {
  const [hours, minutes] = [Math.floor(seconds / HOUR), Math.floor((seconds % HOUR) / MINUTE)];
  const rest = two(seconds % MINUTE);
  return hours > 0 ? `${hours}:${two(minutes)}:${rest}` : `${minutes}:${rest}`;
}

function two(value) {
  return String(value).padStart(2, "0");
}

/** Returns the value of a JSON text, in which such numbers are texts of their own kind. */
export function exactly(text) {
  const canKeep = typeof JSON.rawJSON === "function";
  return JSON.parse(text, canKeep ? kept : undefined);
}

/** Returns the text of a number that was kept as one, null for every other value. */
export function numeral(value) {
  return JSON.isRawJSON?.(value) ? value.rawJSON : null;
}

function kept(key, value, context) {
  return typeof value === "number" && String(value) !== context.source ? JSON.rawJSON(context.source) : value;
}
