/*
 * The environment as it is at the cursor, by the painter that knows its scene. A painter is
 * `{name, fits(head), series(head), describe(frame, scene, observation, {track, index}), open(given)}`:
 *
 *     series   -> [{name, label, group?, value(frame, observation, scene)}], what it adds to the charts
 *     describe -> what is seen, in words, for those who do not see the canvas
 *     open     -> {element, draw(index), close()}, and `redraw()` where colours or sizes matter;
 *                 where things are seen later than drawn, `words(index)`, and it tells `given.onShown()`
 *
 * Rule 1: a painter says by `fits` whether it can draw the scene at all; what no other can, `unknown` shows as values.
 *     A scene that its painter cannot draw after all is shown as values, too; it never breaks the page.
 * Rule 2: `indexAt` says which index of the track belongs to the player's; a comparison has two tracks and one player.
 */

import { onTheme } from "./canvas.js";
import { clear, el, setText } from "./dom.js";
import { counted, number } from "./format.js";
import { plume } from "./plume.js";
import { popper } from "./popper.js";
import { pixels, unknown } from "./unknown.js";

const PAINTERS = [plume, popper, pixels];

/** Return the painter for an episode's head. */
export function painterOf(head) {
  return PAINTERS.find((painter) => fits(painter, head)) ?? unknown;
}

function fits(painter, head) {
  try {
    return painter.fits(head) === true;
  } catch {
    return false; // a scene that is stranger than its painter thought
  }
}

const LONG_ACTION = 60; // characters; a longer one is in the raw row

/** A Panel with the environment's picture; `title` names it where there are two. */
export class Stage {
  #given;
  #painter;
  #view;
  #words = el("p", { class: "stage-words" });
  #body = el("div", { class: "stage-body" });
  #ends = [];
  #drawn = ""; // which step was drawn last

  constructor(asked) {
    const given = { title: "Environment", indexAt: (index) => index, ...asked };
    this.#given = given;
    this.element = el("section", { class: "panel stage", "aria-label": given.title }, this.#body, this.#words);
    this.#use(painterOf(given.head));
    this.#ends.push(given.player.subscribe(() => this.update()), onTheme(() => this.#view.redraw?.()));
    this.update();
  }

  /** Draws the step at the cursor, unless it is the one that is seen. */
  update() {
    const index = this.#index;
    const drawn = `${index} ${this.#given.track.generation} ${this.#missed(index)}`;
    if (drawn !== this.#drawn) {
      this.#drawn = drawn;
      this.#draw(index);
    }
  }

  close() {
    this.#ends.forEach((end) => end());
    this.#view.close();
  }

  #draw(index) {
    try {
      this.#view.draw(index);
      this.#say();
    } catch (error) {
      this.#giveUp(error);
    }
  }

  #say() {
    const index = this.#index;
    setText(this.#words, `${this.#stepWords(index)} ${this.#view.words?.(index) ?? this.#describe(index)}`);
  }

  get #index() {
    const { track, player, indexAt } = this.#given;
    return Math.max(0, Math.min(indexAt(player.index), track.length - 1));
  }

  #use(painter) {
    this.#painter = painter;
    this.#view = painter.open({ ...this.#given, onShown: () => this.#say() });
    clear(this.#body).append(this.#view.element);
  }

  #describe(index) {
    const { track, head } = this.#given;
    return this.#painter.describe(track.frame(index), head.scene, track.observation(index), { track, index });
  }

  #stepWords(index) {
    const { track } = this.#given;
    const shown = index === 0 ? "Beginning." : `Step ${number(track.step(index), 0)}${actionWords(track, index)}.`;
    return `${this.#missed(index)}${shown}`;
  }

  #missed(index) {
    const { track, player } = this.#given;
    return missedWords(track, index, player.wanted ?? null);
  }

  #giveUp(error) {
    if (this.#painter === unknown) {
      setText(this.#words, `This step cannot be shown: ${error.message}`);
      return;
    }
    this.#view.close();
    this.#use(unknown);
    this.#draw(this.#index);
    this.element.prepend(el("p", { class: "quiet" }, "This scene cannot be drawn; its values are shown instead."));
  }
}

/** Return what led to a step, to be put after its number: by which tool, and which action it was. */
export function actionWords(track, index) {
  const action = track.action(index)?.action ?? track.action(index);
  const text = action === null ? "" : JSON.stringify(action);
  const tool = track.tool(index) ? `, by ${track.tool(index)}` : "";
  return `${tool}${text === "" || text.length > LONG_ACTION ? "" : `, action ${text}`}`;
}

/** Return why another step is shown than the one that was asked for, to be put before its words; "" if it is not. */
export function missedWords(track, index, wanted) {
  const step = track.step(index);
  if (wanted === null || wanted === step || wanted < 0) {
    return "";
  }
  const last = track.step(track.length - 1);
  const [asked, found] = [number(wanted, 0), number(step, 0)];
  return wanted > last
    ? `There is no step ${asked}${track.more ? " yet" : ""}; the last one is ${number(last, 0)}. `
    : `Step ${asked} is not shown; the nearest before it is ${found}. `;
}

/** Return "1 000 steps, every 4th is shown" or "1 000 steps". */
export function lengthWords(track) {
  const steps = counted(track.step(track.length - 1) || 0, "step");
  return track.stride > 1 ? `${steps}, one in ${track.stride} is shown` : steps;
}
