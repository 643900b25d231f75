/*
 * Environments that draw themselves: their recorded pictures, fetched one by one.
 *
 * Rule 1: one picture is on its way at a time, and it is that of the cursor; the next ones come before they are needed.
 * Rule 2: the last pictures are remembered; the oldest are forgotten.
 * Rule 3: until the cursor's own picture has come, the nearest that has is seen.
 */

import { Ahead } from "./ahead.js";
import { el } from "./dom.js";
import { Surface } from "./surface.js";
import { observationSeries } from "./unknown.js";

const REMEMBERED = 64;
const NO_PICTURE = "No picture of this step is kept.";

export const pixels = {
  name: "pixels",
  fits: (head) => head.scene?.environment === "pixels" && !head.line.fork, // a fork's pictures are kept nowhere
  series: (head) => observationSeries(head.observation),
  describe: (frame) => (frame?.pixels ? "A picture that the environment drew itself." : NO_PICTURE),
  open: (given) => new PixelsView(given),
};

class PixelsView {
  #track;
  #ahead;
  #surface;
  #note = el("p", { class: "quiet seen-note", hidden: true }, NO_PICTURE);
  #index = 0;

  constructor({ head, track, context }) {
    this.#track = track;
    this.#ahead = new Ahead({
      track,
      remembered: REMEMBERED,
      fetch: (row) => fetched(context.source, head.line.chain, row),
      onCome: () => this.#paint(),
    });
    this.#surface = new Surface({ name: "stage-canvas stage-pixels", onResize: () => this.#paint() });
    this.element = el("div", { class: "stage-picture" }, this.#surface.element, this.#note);
  }

  draw(index) {
    this.#index = index;
    this.#ahead.moveTo(index);
    this.#paint();
  }

  redraw() {
    this.#paint();
  }

  close() {
    this.#ahead.close();
    this.#surface.close();
  }

  #paint() {
    const own = this.#ahead.at(this.#index);
    const found = own ?? this.#ahead.nearest();
    this.#note.hidden = own === undefined || own.value !== null;
    if (found?.value && this.#surface.isVisible) {
      this.#put(found.value, this.#track.step(this.#track.indexOfNumber(found.row)));
    }
  }

  #put(picture, step) {
    const { element } = this.#surface;
    element.style.aspectRatio = `${picture.naturalWidth} / ${picture.naturalHeight}`;
    const context = this.#surface.begin();
    context.imageSmoothingEnabled = picture.naturalWidth > this.#surface.width; // small pictures keep their pixels
    context.drawImage(picture, 0, 0, this.#surface.width, this.#surface.height);
    const size = `${picture.naturalWidth} × ${picture.naturalHeight} pixels`;
    this.#surface.describe(`Picture of step ${step}, ${size}.`);
  }
}

async function fetched(source, chain, row) {
  const picture = new Image();
  picture.src = await source.pixels(chain, row);
  await picture.decode();
  return picture;
}
