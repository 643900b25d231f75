/*
 * A canvas at the screen's own resolution, which says when its size has changed.
 *
 * Rule 1: whoever draws does so in CSS pixels; only this file knows the device's.
 * Rule 2: a canvas is role="img" and carries a label that says in words what is seen.
 */

import { el, setAttribute } from "./dom.js";

const FINEST = 3; // device pixels per CSS pixel; more is not seen and costs much

function ratio() {
  return Math.min(window.devicePixelRatio || 1, FINEST);
}

export class Surface {
  #observer;
  #label = "";

  /** `onResize()` is called whenever there is something new to draw on; what was drawn is gone then. */
  constructor({ name, label = "", onResize }) {
    this.element = el("canvas", { class: name, role: "img", "aria-label": label });
    this.context = this.element.getContext("2d");
    this.width = 0;
    this.height = 0;
    this.ratio = 1;
    this.#observer = new ResizeObserver(() => this.#fit() && onResize());
    this.#observer.observe(this.element);
  }

  get isVisible() {
    return this.width > 0 && this.height > 0;
  }

  /** Says what is seen. */
  describe(label) {
    if (label !== this.#label) {
      this.#label = label;
      setAttribute(this.element, "aria-label", label);
    }
  }

  /** Empties the canvas and returns its context, in CSS pixels. */
  begin() {
    this.context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    this.context.clearRect(0, 0, this.width, this.height);
    return this.context;
  }

  /** Return a layer of the same size, to draw on once and to put here often. */
  layer() {
    return new Layer(this.width, this.height, this.ratio);
  }

  /** Return `layer`, empty, if it still has this size; else a new one. */
  emptied(layer) {
    const { width, height } = this.element;
    if (layer === null || layer.element.width !== width || layer.element.height !== height) {
      return this.layer();
    }
    layer.context.clearRect(0, 0, this.width, this.height);
    return layer;
  }

  /** Puts a layer here, whole. */
  put(layer, opacity = 1) {
    this.context.globalAlpha = opacity;
    this.context.drawImage(layer.element, 0, 0, this.width, this.height);
    this.context.globalAlpha = 1;
  }

  close() {
    this.#observer.disconnect();
  }

  #fit() {
    const [width, height, scale] = [this.element.clientWidth, this.element.clientHeight, ratio()];
    if (width === this.width && height === this.height && scale === this.ratio) {
      return false;
    }
    [this.width, this.height, this.ratio] = [width, height, scale];
    this.element.width = Math.max(1, Math.round(width * scale));
    this.element.height = Math.max(1, Math.round(height * scale));
    return this.isVisible;
  }
}

/** A canvas that is never on the page. */
export class Layer {
  constructor(width, height, scale = 1) {
    this.element = document.createElement("canvas");
    this.element.width = Math.max(1, Math.round(width * scale));
    this.element.height = Math.max(1, Math.round(height * scale));
    this.context = this.element.getContext("2d");
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
  }
}

/** Return a layer that holds these bytes (red, green, blue, alpha), one pixel each. */
export function pictureOf(bytes, columns, rows) {
  const layer = new Layer(columns, rows);
  layer.context.putImageData(new ImageData(bytes, columns, rows), 0, 0);
  return layer;
}

/** Return a colour of a painter's own as CSS. */
export function rgb([red, green, blue], opacity = 1) {
  return opacity === 1 ? `rgb(${red}, ${green}, ${blue})` : `rgba(${red}, ${green}, ${blue}, ${opacity})`;
}
