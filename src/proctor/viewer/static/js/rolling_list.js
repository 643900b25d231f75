// A long list of which only the visible rows exist: a listbox with one chosen row.
//
// Rule 1: rows are all of one height, which the style sheet says (`--row`); the list asks for it.
// Rule 2: a row is built when it comes into view; choosing it changes its class only.

import { el } from "./dom.js";

const SPARE = 6;
const made = { lists: 0 };

export class RollingList {
  /** `row(place)` returns a row's children, title and tone; `choose(place)` is told of clicks and keys. */
  constructor({ label, row, choose }) {
    made.lists += 1;
    Object.assign(this, { row, choose, prefix: `rolling-${made.lists}` });
    Object.assign(this, { count: 0, chosen: -1, built: new Map(), height: 36 });
    this.filling = el("div", { class: "rolling-filling", role: "presentation" });
    const on = { scroll: () => this.scrolled(), keydown: (event) => this.key(event) };
    const props = { class: "rolling", role: "listbox", tabindex: "0", "aria-label": label, on };
    this.element = el("div", props, this.filling);
    // As they were last seen: asking the browser again makes it lay out the page.
    Object.assign(this, { view: 0, top: 0 });
    this.sizes = new ResizeObserver(() => this.measure());
    this.sizes.observe(this.element);
  }

  /** Says how many rows there are; `afresh` builds the visible ones again. */
  resize(count, afresh = false) {
    this.count = count;
    this.element.style.setProperty("--rows", String(count));
    this.filling.style.height = `${count * this.height}px`;
    if (afresh) this.forget();
    this.draw();
  }

  /** Marks a row as the chosen one and brings it into view. */
  mark(place) {
    if (place !== this.chosen) {
      this.dress(this.chosen, false);
      this.chosen = place;
      this.dress(place, true);
    }
    this.show(place);
  }

  dress(place, chosen) {
    const node = this.built.get(place);
    node?.classList.toggle("chosen", chosen);
    node?.setAttribute("aria-selected", String(chosen));
  }

  show(place) {
    if (place < 0 || this.view === 0) return;
    const top = place * this.height;
    const lowest = top + this.height - this.view;
    if (top < this.top) this.scroll(top);
    else if (lowest > this.top) this.scroll(lowest);
    else this.draw();
  }

  scrolled() {
    this.top = this.element.scrollTop;
    this.draw();
  }

  /** The rows come first: moving makes the browser lay out the page, and then it does so once. */
  scroll(top) {
    this.top = top;
    this.draw();
    this.element.scrollTop = top;
  }

  draw() {
    const first = Math.max(0, Math.floor(this.top / this.height) - SPARE);
    const last = Math.min(this.count, Math.ceil((this.top + this.view) / this.height) + SPARE);
    for (const [place, node] of this.built) {
      if (place < first || place >= last) {
        node.remove();
        this.built.delete(place);
      }
    }
    for (let place = first; place < last; place += 1)
      if (!this.built.has(place)) this.filling.append(this.make(place));
    if (this.built.has(this.chosen))
      this.element.setAttribute("aria-activedescendant", `${this.prefix}-${this.chosen}`);
    else this.element.removeAttribute("aria-activedescendant");
  }

  make(place) {
    const { children, tone, title } = this.row(place);
    const chosen = place === this.chosen;
    const node = el(
      "div",
      {
        class: chosen ? "rolling-row chosen" : "rolling-row",
        dataset: { tone },
        role: "option",
        id: `${this.prefix}-${place}`,
        title,
        "aria-selected": String(chosen),
        "aria-setsize": String(this.count),
        "aria-posinset": String(place + 1),
        on: { click: () => this.choose(place) },
      },
      children,
    );
    node.style.transform = `translateY(${place * this.height}px)`;
    this.built.set(place, node);
    return node;
  }

  key(event) {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 8, PageUp: -8 }[event.key];
    if (by === undefined || this.count === 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    this.choose(Math.min(this.count - 1, Math.max(0, this.chosen + by)));
  }

  measure() {
    [this.view, this.top] = [this.element.clientHeight, this.element.scrollTop];
    const told = Number.parseFloat(getComputedStyle(this.element).getPropertyValue("--row"));
    if (Number.isFinite(told) && told > 0 && told !== this.height) {
      this.height = told;
      this.resize(this.count, true);
    }
    this.show(this.chosen);
    this.draw();
  }

  forget() {
    for (const node of this.built.values()) node.remove();
    this.built.clear();
  }

  close() {
    this.sizes.disconnect();
  }
}
