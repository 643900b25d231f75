/*
 * Environments that draw themselves: their recorded pictures, fetched one by one.
 *
 * Rule 1: one picture is on its way at a time, and it is that of the cursor; the next ones come before they are needed.
 * Rule 2: the last pictures are remembered; the oldest are forgotten.
 */

import { el } from "./dom.js";
import { Surface } from "./surface.js";
import { observationSeries } from "./unknown.js";

const REMEMBERED = 64;
const AHEAD = 4;
const FORK = /~fork@\d+$/; // a fork's pictures are kept nowhere
const NO_PICTURE = "No picture of this step is kept.";

export const pixels = {
  name: "pixels",
  fits: (head) => head.scene?.environment === "pixels" && !FORK.test(head.line.chain),
  series: (head) => observationSeries(head.observation),
  describe: (frame) => (frame?.pixels ? "A picture that the environment drew itself." : NO_PICTURE),
  open: (given) => new PixelsView(given),
};

class PixelsView {
  #track;
  #chain;
  #source;
  #surface;
  #note = el("p", { class: "quiet seen-note", hidden: true }, NO_PICTURE);
  #pictures = new Map(); // row number -> Image, or null where there is none
  #index = 0;
  #busy = false;
  #direction = 1;
  #closed = false;

  constructor({ head, track, context }) {
    this.#track = track;
    this.#chain = head.line.chain;
    this.#source = context.source;
    this.#surface = new Surface({ name: "stage-canvas stage-pixels", onResize: () => this.#paint() });
    this.element = el("div", { class: "stage-picture" }, this.#surface.element, this.#note);
  }

  draw(index) {
    this.#direction = index < this.#index ? -1 : 1;
    this.#index = index;
    this.#paint();
    this.#fetchNext();
  }

  redraw() {
    this.#paint();
  }

  close() {
    this.#closed = true;
    this.#pictures.clear();
    this.#surface.close();
  }

  #paint() {
    const picture = this.#pictures.get(this.#track.number(this.#index));
    this.#note.hidden = picture !== null;
    if (picture && this.#surface.isVisible) {
      this.#put(picture);
    }
  }

  #put(picture) {
    const { element } = this.#surface;
    element.style.aspectRatio = `${picture.naturalWidth} / ${picture.naturalHeight}`;
    const context = this.#surface.begin();
    context.imageSmoothingEnabled = picture.naturalWidth > this.#surface.width; // small pictures keep their pixels
    context.drawImage(picture, 0, 0, this.#surface.width, this.#surface.height);
    const size = `${picture.naturalWidth} × ${picture.naturalHeight} pixels`;
    this.#surface.describe(`Picture of step ${this.#track.step(this.#index)}, ${size}.`);
  }

  async #fetchNext() {
    const wanted = this.#busy || this.#closed ? undefined : this.#missing();
    if (wanted === undefined) {
      return;
    }
    this.#busy = true;
    const picture = await this.#fetched(this.#track.number(wanted));
    this.#busy = false;
    this.#remember(this.#track.number(wanted), picture);
    if (!this.#closed) {
      this.#paint();
      this.#fetchNext();
    }
  }

  /** Return the nearest index, from the cursor on in the way it moves, whose picture is not there. */
  #missing() {
    const near = Array.from({ length: AHEAD + 1 }, (_, i) => this.#index + i * this.#direction);
    return near.find((i) => i >= 0 && i < this.#track.length && !this.#pictures.has(this.#track.number(i)));
  }

  async #fetched(row) {
    try {
      const picture = new Image();
      picture.src = await this.#source.pixels(this.#chain, row);
      await picture.decode();
      return picture;
    } catch {
      return null;
    }
  }

  #remember(row, picture) {
    if (this.#pictures.size >= REMEMBERED) {
      this.#pictures.delete(this.#pictures.keys().next().value);
    }
    this.#pictures.set(row, picture);
  }
}
