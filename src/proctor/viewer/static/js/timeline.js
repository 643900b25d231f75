/*
 * The scrubber and the buttons that move the cursor.
 *
 * Rule 1: the slider is a real <input type="range">; what happened is marked on a canvas above it, at the same places.
 * Rule 2: every button has a name, and a key that does the same (`keys.js`).
 */

import { el, setAttribute, setText } from "./dom.js";
import { icon, setIcon } from "./icons.js";
import { Marks } from "./marks.js";
import { SPEEDS } from "./player.js";
import { choosePacket, packetsPassed, packetsSeen } from "./selection.js";
import { lengthWords, missedWords } from "./stage.js";

/**
 * Return a Panel with the scrubber and the transport. `difference()` gives the index of the first difference, where two
 * episodes are compared, or null; `onHelp` opens the list of keys.
 */
export function timelinePanel({ head, track, player, context, difference = () => null, onHelp = null }) {
  return new Timeline({ head, track, player, context, difference, onHelp });
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

class Timeline {
  #given;
  #marks;
  #unsubscribe;
  #isTyping = false; // a step's number, into the field

  constructor(given) {
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
    this.play = button("Play", "play", () => player.toggle(), "play-button");
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
      button("To the beginning", "start", () => player.seek(0), "edge"),
      button("Back ten steps", "backTen", () => player.step(-10), "ten"),
      button("Back one step", "back", () => player.step(-1)),
      this.play,
      button("Forward one step", "forth", () => player.step(1)),
      button("Forward ten steps", "forthTen", () => player.step(10), "ten"),
      button("To the end", "end", () => player.seek(player.length - 1), "edge"),
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
    this.before = button("Previous refusal", "refusedBefore", () => toRefusal(track, player, -1));
    this.after = button("Next refusal", "refusedAfter", () => toRefusal(track, player, 1));
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

function button(name, sign, act, kind = "") {
  return el(
    "button",
    { type: "button", class: ["move", kind], "aria-label": name, title: name, on: { click: act } },
    icon(sign),
  );
}

function setName(node, name) {
  setAttribute(node, "aria-label", name);
  setAttribute(node, "title", name);
}
