/*
 * What narrows and orders the list: words, boxes, the environment, and an order for screens without headings.
 *
 * Rule 1: it tells what was asked for and shows what came of it; the list decides.
 */

import { clear, el, setText } from "./dom.js";
import { counted, number } from "./format.js";

const ONLY = [
  ["live", "Live"],
  ["governed", "Governed"],
  ["refused", "Refused"],
];
const ORDERS = [
  ["age", "ascending", "Newest first"],
  ["age", "descending", "Oldest first"],
  ["state", "ascending", "Live first"],
  ["steps", "descending", "Most steps"],
  ["return", "descending", "Highest return"],
  ["return", "ascending", "Lowest return"],
  ["refusals", "descending", "Most refusals"],
  ["environment", "ascending", "Environment"],
  ["agent", "ascending", "Agent"],
  ["outcome", "ascending", "Outcome"],
  ["tier", "ascending", "Tier"],
];

export class Tools {
  /** `tells`: `filter(change)` and `sort({key, direction}, words)`. */
  constructor({ filters }, tells) {
    this.tells = tells;
    this.count = el("p", { class: "list-count" });
    this.search = this.searchBox(filters.text);
    this.boxes = ONLY.map(([key, word]) => this.box(key, word, filters[key]));
    this.environment = el("select", { "aria-label": "Environment", on: { change: () => this.chosen() } });
    this.order = el(
      "select",
      { "aria-label": "Order", class: "narrow-only", on: { change: () => this.ordered() } },
      ORDERS.map(([, , words], index) => el("option", { value: index }, words)),
    );
    this.element = this.make();
  }

  make() {
    const legend = el("legend", { class: "visually-hidden" }, "Show only");
    const only = el("fieldset", { class: "toggles" }, legend, this.boxes.map((each) => each.label));
    const parts = [this.search, only, this.environment, this.order, this.count];
    return el("div", { class: "list-tools", role: "search", "aria-label": "Episodes" }, parts);
  }

  searchBox(text) {
    const input = () => this.tells.filter({ text: this.search.value });
    return el("input", {
      type: "search",
      class: "search",
      placeholder: "Filter by any word",
      "aria-label": "Filter episodes by any word",
      value: text,
      on: { input },
    });
  }

  box(key, word, isChecked) {
    const change = () => this.tells.filter({ [key]: input.checked });
    const input = el("input", { type: "checkbox", checked: isChecked, on: { change } });
    return { input, label: el("label", { class: "toggle" }, input, word) };
  }

  chosen() {
    this.tells.filter({ environment: this.environment.value });
  }

  ordered() {
    const [key, direction, words] = ORDERS[Number(this.order.value)];
    this.tells.sort({ key, direction }, words);
  }

  /** Empty everything. */
  reset() {
    this.search.value = "";
    this.boxes.forEach((each) => (each.input.checked = false));
    this.search.focus();
  }

  /** Show how many were found, and what there is to choose from. */
  show(found, catalogue, { filters, sort }) {
    const all = counted(catalogue.size, "episode");
    setText(this.count, found === catalogue.size ? all : `${number(found, 0)} of ${all}`);
    this.element.hidden = catalogue.size === 0;
    this.showEnvironments(catalogue.environments(), filters.environment);
    const at = ORDERS.findIndex(([key, direction]) => key === sort.key && direction === sort.direction);
    this.order.value = at === -1 ? "" : String(at);
  }

  showEnvironments(names, wanted) {
    if (this.environment.dataset.names !== names.join("\n")) {
      this.environment.dataset.names = names.join("\n");
      const options = names.map((name) => el("option", { value: name }, name));
      clear(this.environment).append(el("option", { value: "" }, "All environments"), ...options);
    }
    this.environment.value = wanted;
    this.environment.hidden = names.length < 2;
  }
}
