/*
 * The way that the agent came: all of it, faint, and the last part of it fading in.
 *
 * Rule 1: what is older is on a layer that only grows; going back takes the nearest layer that was kept before.
 * Rule 2: the points are read from the track's frames once, and again only if the track dropped steps.
 */

const FRESH = 240; // the newest steps, which fade
const BATCH = 12; // of them with the same strength
const PER_PATH = 64; // segments in one path: long ones are slow to stroke
const KEPT = 12; // layers that are kept to go back to
const FIRST_DISTANCE = 512; // steps between them, until there are too many
const FAINT = 0.4;

export class Points {
  #generation = -1;

  constructor(track) {
    this.track = track;
    this.x = [];
    this.y = [];
  }

  /** Reads the frames up to `index`; one without an agent stays where it was. */
  read(index) {
    if (this.#generation !== this.track.generation) {
      this.#generation = this.track.generation;
      this.x = [];
      this.y = [];
    }
    for (let i = this.x.length; i <= index; i += 1) {
      const [x, y] = placeOf(this.track.frame(i)) ?? [this.x.at(-1) ?? NaN, this.y.at(-1) ?? NaN];
      this.x.push(x);
      this.y.push(y);
    }
    return this.#generation;
  }
}

/** Return where the agent is in a frame, or null. */
export function placeOf(frame) {
  const at = frame?.agent?.at;
  return Array.isArray(at) && at.every(Number.isFinite) && at.length === 2 ? at : null;
}

export class Trail {
  #points;
  #make;
  #place;
  #colour;
  #shade;
  #work = null; // the layer with all segments before #until
  #until = 0;
  #kept = new Map(); // until -> a copy of the layer as it was then
  #every = FIRST_DISTANCE;
  #generation = 0;

  /** `makeLayer()` gives an empty layer, `place(x, y)` a cell's pixel, `colour` and `shade` colours by opacity. */
  constructor(track, { makeLayer, place, colour, shade }) {
    this.#points = new Points(track);
    this.#make = makeLayer;
    this.#place = place;
    this.#colour = colour;
    this.#shade = shade;
  }

  /** Draws the way up to `index`; `put(layer, opacity)` puts a layer on the picture. */
  draw(context, index, put) {
    const generation = this.#points.read(index);
    if (generation !== this.#generation) {
      this.#generation = generation;
      this.#begin();
    }
    const old = Math.max(0, index - FRESH);
    if (old > 0) {
      put(this.#layerUntil(old), FAINT);
    }
    this.#fresh(context, old, index);
  }

  #begin() {
    this.#work = null;
    this.#until = 0;
    this.#kept.clear();
    this.#every = FIRST_DISTANCE;
  }

  #layerUntil(until) {
    this.#work ??= this.#brushed(this.#make());
    if (this.#until > until) {
      this.#goBack(until);
    }
    while (this.#until < until) {
      const next = Math.min(until, (Math.floor(this.#until / this.#every) + 1) * this.#every);
      this.#stroke(this.#work.context, this.#until, next);
      this.#until = next;
      this.#keep();
    }
    return this.#work;
  }

  #brushed(layer) {
    layer.context.lineCap = "round";
    layer.context.lineJoin = "round";
    layer.context.strokeStyle = this.#colour(1);
    layer.context.lineWidth = 2;
    return layer;
  }

  #goBack(until) {
    const nearest = Math.max(0, ...[...this.#kept.keys()].filter((each) => each <= until));
    copied(this.#kept.get(nearest) ?? null, this.#work);
    this.#until = nearest;
  }

  /** Keeps a copy every so often; when there are too many, only every second one, from then on twice as far apart. */
  #keep() {
    if (this.#until % this.#every !== 0 || this.#kept.has(this.#until)) {
      return;
    }
    const copy = this.#make();
    copied(this.#work, copy);
    this.#kept.set(this.#until, copy);
    if (this.#kept.size > KEPT) {
      this.#every *= 2;
      [...this.#kept.keys()].filter((each) => each % this.#every !== 0).forEach((each) => this.#kept.delete(each));
    }
  }

  #stroke(context, from, until) {
    for (let begin = from; begin < until; begin += PER_PATH) {
      this.#path(context, begin, Math.min(begin + PER_PATH, until));
      context.stroke();
    }
  }

  #path(context, from, until) {
    const { x, y } = this.#points;
    context.beginPath();
    context.moveTo(...this.#place(x[from], y[from]));
    for (let i = from + 1; i <= until; i += 1) {
      if (x[i] !== x[i - 1] || y[i] !== y[i - 1]) {
        context.lineTo(...this.#place(x[i], y[i]));
      }
    }
  }

  #fresh(context, from, index) {
    context.lineCap = "round";
    context.lineJoin = "round";
    const length = Math.max(1, index - from);
    for (let begin = from; begin < index; begin += BATCH) {
      const share = Math.min(1, (begin + BATCH / 2 - from) / length) ** 1.5;
      this.#path(context, begin, Math.min(begin + BATCH, index));
      context.lineWidth = 4;
      context.strokeStyle = this.#shade(0.35 * share);
      context.stroke();
      context.lineWidth = 2;
      context.strokeStyle = this.#colour(FAINT + (1 - FAINT) * share);
      context.stroke();
    }
  }
}

/** Makes the picture on `to` that of `from`; without one it is emptied. */
function copied(from, to) {
  const context = to.context;
  context.save();
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, to.element.width, to.element.height);
  if (from !== null) {
    context.drawImage(from.element, 0, 0);
  }
  context.restore();
}
