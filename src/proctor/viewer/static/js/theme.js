/*
 * Light or dark: the reader's choice, else the system's.
 *
 * Rule 1: colours live in style.css; scripts that draw ask for them here by name and draw again when told.
 * Rule 2: the choice is remembered if the browser lets us, and works if it does not (a file from disk, a notebook).
 */

import { el, setAttribute } from "./dom.js";

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
export function chosenTheme() {
  const found = document.documentElement.dataset.theme;
  return CHOICES.includes(found) ? found : "auto";
}

/** Choose a theme, remember it, and tell who draws. */
export function chooseTheme(choice) {
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
