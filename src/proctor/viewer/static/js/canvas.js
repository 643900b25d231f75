/*
 * What is drawn on: canvases at the screen's own resolution, layers, and the colours of the theme.
 *
 * Rule 1: whoever draws does so in CSS pixels; only this file knows the device's.
 * Rule 2: a canvas is role="img" and carries a label that says in words what is seen.
 * Rule 3: colours live in style.css; who draws asks for them here by name, and draws again when told that they changed.
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
class Layer {
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

const KEY = "proctor-theme";
const CHOICES = ["auto", "light", "dark"];
const WORDS = { auto: "Auto", light: "Light", dark: "Dark" };
const listeners = new Set();
const watched = { media: null };

/** Return the computed value of a CSS custom property, `colour("--accent")` or `colour("accent")`. */
export function colour(name) {
  const property = name.startsWith("--") ? name : `--${name}`;
  return getComputedStyle(document.documentElement).getPropertyValue(property).trim();
}

/** Tell `listener` whenever colours changed; returns what ends it. */
export function onTheme(listener) {
  watchSystem();
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Return "auto", "light" or "dark". */
function chosenTheme() {
  const found = document.documentElement.dataset.theme;
  return CHOICES.includes(found) ? found : "auto";
}

/** Choose a theme, remember it, and tell who draws. */
function chooseTheme(choice) {
  apply(choice);
  remember(choice);
  listeners.forEach((listener) => listener());
}

/** Return a button that goes from auto to light to dark, having applied what was chosen before. */
export function mountThemeButton() {
  apply(remembered());
  const word = el("span", { class: "theme-word" });
  const button = el("button", { type: "button", class: "quiet-button theme-button" }, icon(), word);
  const show = () => {
    word.textContent = WORDS[chosenTheme()];
    setAttribute(button, "aria-label", `Theme: ${WORDS[chosenTheme()]}. Change it.`);
  };
  button.addEventListener("click", () => {
    chooseTheme(CHOICES[(CHOICES.indexOf(chosenTheme()) + 1) % CHOICES.length]);
    show();
  });
  show();
  return button;
}

function icon() {
  return el("span", { class: "theme-icon", "aria-hidden": "true" });
}

function apply(choice) {
  if (choice === "auto") {
    delete document.documentElement.dataset.theme;
  } else {
    document.documentElement.dataset.theme = choice;
  }
}

function watchSystem() {
  if (watched.media === null && typeof matchMedia === "function") {
    watched.media = matchMedia("(prefers-color-scheme: dark)");
    watched.media.addEventListener("change", () => listeners.forEach((listener) => listener()));
  }
}

function remember(choice) {
  try {
    localStorage.setItem(KEY, choice);
  } catch {
    // No storage here: the choice lasts as long as the page.
  }
}

function remembered() {
  try {
    const found = localStorage.getItem(KEY);
    return CHOICES.includes(found) ? found : chosenTheme();
  } catch {
    return chosenTheme();
  }
}
