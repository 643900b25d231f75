/*
 * Where the cursor is and how it moves (seek, step, play, follow the end of a live episode), and the keys that do so.
 *
 * Rule 1: listeners are told at most once per animation frame, whatever happened in between.
 * Rule 2: the player knows a length and an index, never what is drawn.
 * Rule 3: a key that someone types into a field, or presses on a button with a meaning of its own, is left alone. The
 *     scrubber is the exception: its arrows are ours, so that shift means ten there as well.
 */

import { button, el } from "./dom.js";

export const SPEEDS = [1, 2, 5, 10, 50, "max"];

const STEPS_PER_SECOND = 10; // at 1x
const SECONDS_AT_MAX = 5; // for the whole episode
const LONGEST_PAUSE = 250; // ms; a tab that was asleep goes on from where it was
const KEPT_MEASURES = 2_000;

/** What a browser offers; tests bring their own. */
const browserFrames = {
  request: (callback) => requestAnimationFrame(callback),
  cancel: (handle) => cancelAnimationFrame(handle),
};

/** Return how many steps a second are played. */
export function rate(speed, length) {
  if (speed === "max") {
    return Math.max(STEPS_PER_SECOND * 50, length / SECONDS_AT_MAX);
  }
  return STEPS_PER_SECOND * speed;
}

export class Player {
  #listeners = new Set();
  #frames;
  #handle = null;
  #played = null; // the time of the last frame while playing
  #due = 0; // steps that are due, with fraction
  #changed = false;
  #measures = 0;

  constructor({ length = 1, frames = browserFrames } = {}) {
    this.index = 0;
    this.wanted = null; // the step that was asked for, where the cursor may be at another one
    this.length = length;
    this.playing = false;
    this.speed = 1;
    this.follow = false;
    this.#frames = frames;
  }

  get atEnd() {
    return this.index >= this.length - 1;
  }

  /**
   * Moves the cursor; whoever seeks by hand stops following, unless it is to the end. `wanted` is the step that was
   * asked for, if it was one; it is kept for as long as the cursor stays.
   */
  seek(index, wanted = null) {
    const target = clamped(index, this.length);
    if (target < this.length - 1) {
      this.follow = false;
    }
    this.#move(target);
    if (wanted !== this.wanted) {
      this.wanted = wanted;
      this.refresh();
    }
  }

  step(count) {
    this.pause();
    this.seek(this.index + count);
  }

  /** Plays or pauses; at the end it begins again. */
  toggle() {
    if (this.playing) {
      this.pause();
    } else {
      this.play();
    }
  }

  play() {
    if (this.atEnd) {
      this.#move(0);
    }
    this.follow = false;
    this.playing = true;
    this.#played = null;
    this.#due = 0;
    this.refresh();
  }

  pause() {
    if (!this.playing) {
      return;
    }
    this.playing = false;
    this.refresh();
  }

  setSpeed(speed) {
    this.speed = speed;
    this.refresh();
  }

  /** Makes it faster (1) or slower (-1) by one place. */
  shiftSpeed(by) {
    const place = SPEEDS.indexOf(this.speed) + by;
    this.setSpeed(SPEEDS[clamped(place, SPEEDS.length)]);
  }

  setFollow(follow) {
    this.follow = follow;
    if (follow) {
      this.playing = false;
      this.#move(this.length - 1);
    }
    this.refresh();
  }

  /** Says that there are `length` indexes now; one who follows moves on, nobody else does. */
  grow(length) {
    this.length = length;
    if (this.follow) {
      this.#move(length - 1);
    } else {
      this.relocate(this.index);
    }
  }

  subscribe(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  close() {
    this.playing = false;
    this.#listeners.clear();
    if (this.#handle !== null) {
      this.#frames.cancel(this.#handle);
    }
    this.#handle = null;
  }

  /** Moves the cursor to where the same step is now, after others were dropped; what was asked for stays known. */
  relocate(index) {
    const { wanted } = this;
    this.#move(clamped(index, this.length));
    this.wanted = wanted;
  }

  #move(index) {
    if (index === this.index) {
      return;
    }
    this.index = index;
    this.wanted = null;
    this.refresh();
  }

  /** Tells everyone in the next frame, though the cursor may not have moved. */
  refresh() {
    this.#changed = true;
    this.#request();
  }

  #request() {
    if (this.#handle === null) {
      this.#handle = this.#frames.request((now) => this.#frame(now));
    }
  }

  #frame(now) {
    this.#handle = null;
    if (this.playing) {
      this.#advance(now);
    }
    if (this.#changed) {
      this.#tell();
    }
    if (this.playing) {
      this.#request();
    }
  }

  #advance(now) {
    const passed = this.#played === null ? 0 : Math.min(now - this.#played, LONGEST_PAUSE);
    this.#played = now;
    this.#due += (passed / 1000) * rate(this.speed, this.length);
    const whole = Math.floor(this.#due);
    this.#due -= whole;
    if (whole > 0) {
      this.#move(Math.min(this.index + whole, this.length - 1));
    }
    if (this.atEnd) {
      this.playing = false;
      this.#changed = true;
    }
  }

  #tell() {
    this.#changed = false;
    const start = performance.now();
    for (const listener of [...this.#listeners]) {
      listener(this.index);
    }
    this.#measure(start);
  }

  #measure(start) {
    this.#measures += 1;
    if (this.#measures % KEPT_MEASURES === 0) {
      performance.clearMeasures("proctor:draw");
    }
    performance.measure("proctor:draw", { start, end: performance.now() });
  }
}

/** Keeps a player at its step while a track grows: indexes move with what is dropped, and a wanted step may yet come. */
export class StepKeeper {
  constructor(player, track, wanted = null) {
    Object.assign(this, { player, track, wanted, step: 0, generation: track.generation });
  }

  /** Take note of the step at the cursor. */
  remember() {
    const { player, track } = this;
    if (track.generation === this.generation) {
      this.step = track.step(Math.min(player.index, track.length - 1));
    }
  }

  /** Take in what came; returns whether the wanted step was among it, where the cursor is then. */
  grow() {
    const { player, track, wanted } = this;
    player.grow(track.length);
    if (track.generation !== this.generation && !player.follow) {
      player.relocate(track.indexOfStep(this.step));
    }
    this.generation = track.generation;
    const isThere = wanted !== null && (track.step(track.length - 1) >= wanted || !track.more);
    if (isThere) {
      player.seek(track.indexOfStep(wanted), wanted);
      this.wanted = null;
    }
    return isThere;
  }
}

function clamped(index, length) {
  const whole = Math.trunc(Number(index));
  return Math.max(0, Math.min(Number.isNaN(whole) ? 0 : whole, length - 1));
}

/* Each row: the keys as the browser names them, as people read them, what they do, and the act's name. */
const KEYS = [
  { keys: [" "], shown: ["Space"], words: "Play or pause", act: "toggle" },
  { keys: ["ArrowLeft"], shown: ["←"], words: "Back one step; with Shift ten", act: "back" },
  { keys: ["ArrowRight"], shown: ["→"], words: "Forward one step; with Shift ten", act: "forth" },
  { keys: ["Home"], shown: ["Home"], words: "To the beginning", act: "start" },
  { keys: ["End"], shown: ["End"], words: "To the end", act: "end" },
  { keys: ["["], shown: ["["], words: "To the refusal before", act: "refusedBefore" },
  { keys: ["]"], shown: ["]"], words: "To the next refusal", act: "refusedAfter" },
  { keys: ["+", "="], shown: ["+"], words: "Faster", act: "faster" },
  { keys: ["-"], shown: ["−"], words: "Slower", act: "slower" },
  { keys: ["j"], shown: ["j"], words: "To the next packet", act: "nextPacket" },
  { keys: ["k"], shown: ["k"], words: "To the packet before", act: "packetBefore" },
  { keys: ["?"], shown: ["?"], words: "This list", act: "help" },
];
const FIELDS = "input, textarea, select, [contenteditable]";
const PRESSED = "button, a, summary, [role=button], [role=option]";

/** Return the name of the act that a key event asks for, or null. */
export function actOf(event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) {
    return null;
  }
  const row = KEYS.find(({ keys }) => keys.includes(event.key));
  return row === undefined || isTaken(event.target, event.key) ? null : row.act;
}

/** Listen for keys on the document; `acts[name](event)`. Returns what ends it. */
export function listenForKeys(acts) {
  const pressed = (event) => {
    const act = acts[actOf(event)];
    if (act !== undefined) {
      event.preventDefault();
      act(event);
    }
  };
  document.addEventListener("keydown", pressed);
  return () => document.removeEventListener("keydown", pressed);
}

/** Show the list of keys. */
export function showKeys() {
  const close = button("Close", () => dialog.close(), { class: "primary" });
  const rows = KEYS.map(({ shown, words }) =>
    el("div", { class: "key-row" }, el("dt", {}, shown.map((key) => el("kbd", {}, key))), el("dd", {}, words)),
  );
  const dialog = el(
    "dialog",
    { class: "question", "aria-labelledby": "keys-title", on: { close: () => dialog.remove() } },
    el("h2", { id: "keys-title" }, "Keys"),
    el("dl", { class: "keys" }, rows),
    el("div", { class: "question-buttons" }, close),
  );
  document.body.append(dialog);
  dialog.showModal();
}

function isTaken(target, key) {
  if (typeof target?.closest !== "function") {
    return false;
  }
  if (target.closest("dialog") !== null) {
    return true;
  }
  if (target.type === "range") {
    return false;
  }
  return target.closest(FIELDS) !== null || (key === " " && target.closest(PRESSED) !== null);
}

// What the keys of a page do to its player.

/** Returns the acts that every page with a player has, for `listenForKeys`. */
export function playerKeys(player) {
  return {
    toggle: () => player.toggle(),
    back: (event) => player.step(event.shiftKey ? -10 : -1),
    forth: (event) => player.step(event.shiftKey ? 10 : 1),
    start: () => player.seek(0),
    end: () => player.seek(player.length - 1),
    faster: () => player.shiftSpeed(1),
    slower: () => player.shiftSpeed(-1),
    help: showKeys,
  };
}
