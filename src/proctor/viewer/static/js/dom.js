/*
 * Elements, built by calls: the only way in which this page makes markup.
 *
 * Rule 1: text is text. There is no innerHTML here or anywhere else; whatever an agent wrote is a text node.
 * Rule 2: no attribute can carry code or style: `on...`, `style`, `srcdoc` and addresses that run scripts are refused.
 * Rule 3: signs that turn the direction of writing are shown by their number: what is read is what is on record.
 * Rule 4: listeners are given by `on`, which is the only property that takes functions.
 */

const SVG = "http://www.w3.org/2000/svg";
const FORBIDDEN = /^(on.*|style|srcdoc|innerhtml|outerhtml)$/i;
const ADDRESSES = new Set(["href", "src", "action", "formaction", "xlink:href"]);
const TURNING = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const READ = new Set(["title", "alt", "placeholder", "aria-label", "aria-description"]);
const SCRIPT = /^(javascript|vbscript|data:text)/i;

/**
 * Return a new element. `props`: `class` (a string or a list), `text`, `on: {event: listener}`, `dataset`, any
 * attribute (true: empty; null, undefined and false: absent). Children: nodes, strings, numbers, lists of them, null.
 */
export function el(tag, props, ...children) {
  return built(document.createElement(tag), props, children);
}

/** Return a new SVG element; the same properties as `el`. */
export function svg(tag, props, ...children) {
  return built(document.createElementNS(SVG, tag), props, children);
}

/** Return a button that does something. */
export function button(words, act, props = {}) {
  return el("button", { type: "button", ...props, on: { click: act } }, words);
}

/** Return a page that is only words. */
export function messagePage(title, children) {
  const element = el("div", { class: "card message" }, el("h1", { tabindex: "-1" }, title), children);
  return { element, title, close: () => {} };
}

/** Return something to be filled in, below its name. */
export function field(name, control) {
  return el("label", { class: "field" }, el("span", { class: "field-name" }, name), control);
}

/** Return a part that opens and closes; `fill(inner)` is called when it is first opened. */
export function fold(summary, props, fill) {
  const inner = el("div");
  const toggle = () => whole.open && opened();
  const whole = el("details", { ...props, on: { toggle } }, el("summary", summary), inner);
  const opened = () => inner.childNodes.length === 0 && fill(inner);
  if (props.open) {
    opened();
  }
  return whole;
}

/** Return names with their values; those without one are left out. */
export function definitions(pairs, props = {}) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return el("dl", props, known.map(([name, value]) => el("div", el("dt", name), el("dd", value))));
}

/** Return boxes of which one is chosen: `[value, words]` each, the first at the beginning. */
export function choice(legend, name, options, choose, kind = "") {
  const box = (value, at) => ({ type: "radio", name, value, checked: at === 0, on: { change: () => choose(value) } });
  return el(
    "fieldset",
    { class: ["toggles", kind] },
    el("legend", { class: "visually-hidden" }, legend),
    options.map(([value, words], at) => el("label", { class: "toggle" }, el("input", box(value, at)), words)),
  );
}

/** Return how many of the first `length` places something holds for: up to one of them, and then no more. */
export function countWhile(length, holds) {
  let [low, high] = [0, length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/** Take all children out of a node; returns the node. */
export function clear(node) {
  node.replaceChildren();
  return node;
}

/** Return text in which nothing turns the direction of writing unseen. */
export function visible(text) {
  return String(text).replace(TURNING, (sign) => `⟨U+${hexadecimal(sign)}⟩`);
}

/** Set a node's text, unless it is the same: an unchanged text node keeps selections and is not announced again. */
export function setText(node, text) {
  const wanted = visible(text);
  if (node.textContent !== wanted) {
    node.textContent = wanted;
  }
}

/** Set or remove one attribute, by the rules of `el`. */
export function setAttribute(node, name, value) {
  refuseCode(name, value);
  if (value === null || value === undefined || value === false) {
    node.removeAttribute(name);
  } else {
    node.setAttribute(name, value === true ? "" : READ.has(name) ? visible(value) : String(value));
  }
}

function built(node, props, children) {
  if (isChild(props)) {
    return grown(node, [props, ...children]);
  }
  for (const [name, value] of Object.entries(props ?? {})) {
    setProperty(node, name, value);
  }
  return grown(node, children);
}

function isChild(value) {
  return typeof value === "string" || typeof value === "number" || Array.isArray(value) || isNode(value);
}

function isNode(value) {
  return value !== null && typeof value === "object" && typeof value.nodeType === "number";
}

function setProperty(node, name, value) {
  if (name === "class") {
    setAttribute(node, "class", Array.isArray(value) ? value.filter(Boolean).join(" ") : value);
  } else if (name === "text") {
    node.textContent = value === null || value === undefined ? "" : visible(value);
  } else if (name === "on") {
    Object.entries(value ?? {}).forEach(([event, listener]) => node.addEventListener(event, listener));
  } else if (name === "dataset") {
    Object.entries(value ?? {}).forEach(([key, each]) => setAttribute(node, `data-${kebab(key)}`, each));
  } else {
    setAttribute(node, name, value);
  }
}

function grown(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) {
      node.append(isNode(child) ? child : visible(child));
    }
  }
  return node;
}

function hexadecimal(sign) {
  return sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0");
}

function kebab(key) {
  return key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

function refuseCode(name, value) {
  if (FORBIDDEN.test(name)) {
    throw new TypeError(`el: the attribute ${name} is not allowed`);
  }
  if (ADDRESSES.has(name.toLowerCase()) && SCRIPT.test(plain(value))) {
    throw new TypeError(`el: ${name} must not run a script`);
  }
}

/** Browsers skip control characters and blanks in front of and inside a scheme. */
function plain(address) {
  return String(address).replace(/[\u0000-\u0020]/g, "");
}
