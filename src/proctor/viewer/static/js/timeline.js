/*
 * The scrubber and the buttons that move the cursor, with what happened marked over it.
 *
 * Rule 1: the slider is a real <input type="range">; the marks are on a canvas above it, where the slider's thumb
 *     would be.
 * Rule 2: a pixel column shows what is gravest in it; ten thousand packets cost no more than a hundred.
 * Rule 3: every button has a name, and a key that does the same.
 */

import { Surface, colour, onTheme } from "./canvas.js";
import { button, el, setAttribute, setText, svg } from "./dom.js";
import { choosePacket, packetsPassed, packetsSeen } from "./packet_words.js";
import { SPEEDS } from "./player.js";
import { lengthWords, missedWords } from "./stage.js";

const PATHS = {
  start: "M4 4h2v12H4zM16 4v12L7 10z",
  backTen: "M10 4v12L2 10zM18 4v12l-8-6z",
  back: "M14 4v12L5 10z",
  play: "M5 3l12 7-12 7z",
  pause: "M5 4h4v12H5zM11 4h4v12h-4z",
  forth: "M6 4l9 6-9 6z",
  forthTen: "M10 4l8 6-8 6zM2 4l8 6-8 6z",
  end: "M14 4h2v12h-2zM4 4l9 6-9 6z",
  refusedBefore: "M11 5v10L4 10zM13 4h3v8h-3zM13 14h3v2h-3z",
  refusedAfter: "M9 5v10l7-5zM4 4h3v8H4zM4 14h3v2H4z",
};

/** Return a new icon, hidden from screen readers: the button has a name. */
function icon(name) {
  return svg(
    "svg",
    { viewBox: "0 0 20 20", class: "icon", "aria-hidden": "true", focusable: "false" },
    svg("path", { d: PATHS[name], fill: "currentColor" }),
  );
}

/** Show another sign. */
function setIcon(node, name) {
  node.querySelector("path").setAttribute("d", PATHS[name]);
}

const INSET = 8; // pixels at each side: half of the slider's thumb

/* From the lightest to the gravest: a later row covers an earlier one. */
const KINDS = [
  { name: "call", colour: "line-strong", top: 0.6, words: "tool calls" },
  { name: "packet", colour: "accent", top: 0.35, words: "packets" },
  { name: "warning", colour: "warn", top: 0.35, words: "warnings" },
  { name: "refusal", colour: "bad", top: 0, words: "refusals" },
  { name: "end", colour: "good", top: 0, words: "ends" },
  { name: "difference", colour: "accent", top: 0, words: "first difference" },
];

/** Return `[kind, index]` of everything that is marked. */
export function marksOf(track, difference = null) {
  const packets = track.packets.map((packet) => [packetKind(packet), track.indexOfNumber(packet.number)]);
  const ends = [];
  for (let i = 0; i < track.length; i += 1) {
    if (track.ended(i) > 0) {
      ends.push(["end", i]);
    }
  }
  const calls = track.calls.map(([index]) => ["call", index]);
  return [...calls, ...packets, ...ends, ...(difference === null ? [] : [["difference", difference]])];
}

function packetKind(packet) {
  if (!packet.accepted) {
    return "refusal";
  }
  return packet.warnings?.length > 0 ? "warning" : "packet";
}

/** Return for every pixel column the gravest kind in it, as a place in the table; -1 where nothing is. */
export function columnsOf(marks, length, width) {
  const columns = new Int8Array(Math.max(0, width)).fill(-1);
  const order = Object.fromEntries(KINDS.map((kind, place) => [kind.name, place]));
  for (const [kind, index] of marks) {
    const x = length > 1 ? Math.round((index / (length - 1)) * (width - 1)) : 0;
    columns[x] = Math.max(columns[x], order[kind]);
  }
  return columns;
}

class Marks {
  #track;
  #difference;
  #surface;
  #unsubscribe;
  #drawn = "";

  constructor(track, difference) {
    this.#track = track;
    this.#difference = difference;
    this.#surface = new Surface({ name: "scrub-marks", onResize: () => this.#draw() });
    this.#unsubscribe = onTheme(() => this.#draw());
    this.element = this.#surface.element;
  }

  /** Draws again, if anything came. */
  update() {
    const { length, packets, generation } = this.#track;
    const state = [length, packets.length, generation, this.#difference()].join();
    if (state !== this.#drawn) {
      this.#drawn = state;
      this.#draw();
    }
  }

  close() {
    this.#unsubscribe();
    this.#surface.close();
  }

  #draw() {
    const { width, height, isVisible } = this.#surface;
    if (!isVisible) {
      return;
    }
    const context = this.#surface.begin();
    const marks = marksOf(this.#track, this.#difference());
    const columns = columnsOf(marks, this.#track.length, Math.floor(width) - 2 * INSET);
    const colours = KINDS.map((kind) => colour(kind.colour));
    columns.forEach((place, x) => {
      if (place >= 0) {
        const { top, name } = KINDS[place];
        const wide = name === "refusal" || name === "difference" || name === "end" ? 2 : 1;
        context.fillStyle = colours[place];
        context.fillRect(INSET + x - wide / 2, top * height, wide, height * (1 - top));
      }
    });
    this.#surface.describe(wordsFor(marks));
  }
}

/** Return how much of what is marked: "3 packets, 1 refusals" or that there is nothing. */
export function wordsFor(marks) {
  const counts = KINDS.map(({ name, words }) => [marks.filter(([kind]) => kind === name).length, words]);
  const said = counts.filter(([count]) => count > 0).map(([count, words]) => `${words}: ${count}`);
  return said.length > 0 ? `Marks on the timeline: ${said.join(", ")}.` : "No marks on the timeline.";
}

/**
 * Choose the refusal before (-1) or after (1) the packet that is meant, if there is one. Where the cursor leads, those
 * of its own step are still to come.
 */
export function toRefusal(track, player, direction) {
  const meant = packetsSeen(track, player) - 1;
  const passed = packetsPassed(track, player);
  const places = track.refusedAt.filter((place) => place !== meant);
  const found = direction > 0 ? places.find((place) => place >= passed) : places.findLast((place) => place < meant);
  if (found !== undefined) {
    choosePacket(track, player, found);
  }
}

/**
 * A Panel with the scrubber and the transport. `difference()` gives the index of the first difference, where two
 * episodes are compared, or null; `onHelp` opens the list of keys.
 */
export class Timeline {
  #given;
  #marks;
  #unsubscribe;
  #isTyping = false; // a step's number, into the field

  constructor(asked) {
    const given = { difference: () => null, onHelp: null, ...asked };
    this.#given = given;
    this.#marks = new Marks(given.track, given.difference);
    this.#build();
    this.#unsubscribe = given.player.subscribe(() => this.#show());
    this.update();
  }

  update() {
    this.#marks.update();
    this.#show();
  }

  close() {
    this.#unsubscribe();
    this.#marks.close();
  }

  #build() {
    const { player } = this.#given;
    this.slider = el("input", {
      type: "range",
      class: "scrub-slider",
      min: 0,
      step: 1,
      "aria-label": "Step",
      on: { input: () => this.#seek(Number(this.slider.value)) },
    });
    this.entry = el("input", {
      type: "number",
      class: "step-entry",
      min: 0,
      inputmode: "numeric",
      "aria-label": "Go to step",
      on: {
        input: () => this.#type(true),
        change: () => this.#enter(),
        blur: () => this.#type(false),
        keydown: (event) => event.key === "Escape" && this.#type(false),
      },
    });
    this.length = el("span", { class: "quiet step-length" });
    this.play = signButton("Play", "play", () => player.toggle(), "play-button");
    this.element = el(
      "section",
      { class: "panel timeline", "aria-label": "Timeline" },
      el("div", { class: "scrub" }, this.#marks.element, this.slider),
      el("div", { class: "transport" }, this.#moves(), this.#place(), this.#choices()),
    );
  }

  #moves() {
    const { player } = this.#given;
    return el(
      "div",
      { class: "moves", role: "group", "aria-label": "Move" },
      signButton("To the beginning", "start", () => player.seek(0), "edge"),
      signButton("Back ten steps", "backTen", () => player.step(-10), "ten"),
      signButton("Back one step", "back", () => player.step(-1)),
      this.play,
      signButton("Forward one step", "forth", () => player.step(1)),
      signButton("Forward ten steps", "forthTen", () => player.step(10), "ten"),
      signButton("To the end", "end", () => player.seek(player.length - 1), "edge"),
    );
  }

  #place() {
    const label = el("span", { class: "quiet", "aria-hidden": "true" }, "Step");
    return el("div", { class: "place" }, label, this.entry, this.length);
  }

  #choices() {
    return el("div", { class: "choices" }, this.#refusals(), this.#speeds(), this.#follows(), this.#help());
  }

  #help() {
    const { onHelp } = this.#given;
    const props = { type: "button", class: "quiet-button help-button", "aria-label": "Keys", title: "Keys" };
    return onHelp === null ? null : el("button", { ...props, on: { click: onHelp } }, "?");
  }

  #refusals() {
    const { track, player } = this.#given;
    this.before = signButton("Previous refusal", "refusedBefore", () => toRefusal(track, player, -1));
    this.after = signButton("Next refusal", "refusedAfter", () => toRefusal(track, player, 1));
    const props = { class: "moves refusals", role: "group", "aria-label": "Refusals" };
    this.refusals = el("div", props, this.before, this.after);
    return this.refusals;
  }

  #speeds() {
    const { player } = this.#given;
    const options = SPEEDS.map((speed) => el("option", { value: speed }, speed === "max" ? "max" : `${speed}×`));
    const choose = () => player.setSpeed(SPEEDS.find((speed) => String(speed) === this.speed.value));
    this.speed = el("select", { class: "speed", "aria-label": "Speed", on: { change: choose } }, options);
    return this.speed;
  }

  #follows() {
    const { player } = this.#given;
    const toggle = () => player.setFollow(!player.follow);
    const props = { type: "button", class: "follow", "aria-pressed": "false", on: { click: toggle } };
    this.follow = el("button", props, "Follow live");
    return this.follow;
  }

  /** What is being typed stays; else the field shows where the cursor is. */
  #type(isTyping) {
    this.#isTyping = isTyping;
    this.#show();
  }

  #enter() {
    const { track, player, context } = this.#given;
    const wanted = this.entry.value === "" ? NaN : Math.trunc(Number(this.entry.value));
    if (Number.isFinite(wanted)) {
      this.#seek(track.indexOfStep(wanted), wanted);
      const missed = missedWords(track, player.index, wanted);
      if (missed !== "") {
        context.announce(missed);
      }
    }
    this.#type(false);
  }

  #seek(index, wanted = null) {
    this.#given.player.pause();
    this.#given.player.seek(index, wanted);
  }

  #show() {
    const { player, track, head } = this.#given;
    const last = Math.max(0, player.length - 1);
    const index = Math.min(player.index, track.length - 1);
    this.slider.max = last;
    this.slider.value = player.index;
    setAttribute(this.slider, "aria-valuetext", `Step ${track.step(index)} of ${track.step(track.length - 1)}`);
    this.slider.style.setProperty("--share", last === 0 ? "0" : String(player.index / last));
    this.#showPlace(index);
    setIcon(this.play, player.playing ? "pause" : "play");
    setName(this.play, player.playing ? "Pause" : "Play");
    this.speed.value = String(player.speed);
    this.follow.hidden = !head.line.live;
    setAttribute(this.follow, "aria-pressed", String(player.follow));
    this.refusals.hidden = track.refusals.length === 0;
  }

  #showPlace(index) {
    const { track } = this.#given;
    if (!this.#isTyping) {
      this.entry.value = track.step(index);
    }
    this.entry.max = track.step(track.length - 1);
    setText(this.length, `of ${lengthWords(track)}`);
  }
}

function signButton(name, sign, act, kind = "") {
  return button(icon(sign), act, { class: ["move", kind], "aria-label": name, title: name });
}

function setName(node, name) {
  setAttribute(node, "aria-label", name);
  setAttribute(node, "title", name);
}
