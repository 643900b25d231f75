/*
 * Small charts over the episode: reward, its parts, return, and what the painter measures; one cursor for all.
 *
 * Rule 1: what is drawn depends on the pixels, not on the steps: least and greatest per pixel column (`envelope`).
 * Rule 2: the lines are drawn once on a layer; a moving cursor only puts that layer there and a line on top.
 */

import { clear, el } from "./dom.js";
import { Chart } from "./chart.js";
import { onTheme } from "./theme.js";

const ORDER = ["reward", "parts", "total"];
const TITLES = { parts: "Parts of the reward", observation: "Observation" };

/** Return a Panel with the charts; `indexAt` as for the stage. */
export function chartsPanel({ track, player, indexAt = (index) => index, title = "Charts" }) {
  return new Charts({ track, player, indexAt, title });
}

/** Return `[{name, title, series}]`: what belongs together is one chart; what has no number is left out. */
export function groupsOf(series) {
  const groups = new Map();
  for (const each of series.filter(({ range }) => range !== null)) {
    groups.set(each.group, [...(groups.get(each.group) ?? []), each]);
  }
  const place = (name) => (ORDER.includes(name) ? ORDER.indexOf(name) : ORDER.length);
  return [...groups]
    .map(([name, members]) => ({ name, title: TITLES[name] ?? members[0].label, series: members }))
    .sort((one, other) => place(one.name) - place(other.name));
}

class Charts {
  #given;
  #charts = new Map();
  #ends;

  constructor(given) {
    this.#given = given;
    this.#charts = new Map();
    this.body = el("div", { class: "charts-grid" });
    this.element = el("section", { class: "panel charts", "aria-label": given.title }, this.body);
    this.#ends = [given.player.subscribe(() => this.#point()), onTheme(() => this.update())];
    this.update();
  }

  update() {
    const groups = groupsOf(this.#given.track.series);
    groups.forEach((group) => this.#chart(group).setSeries(group.series));
    this.#arrange(groups.map((group) => this.#charts.get(group.name).element));
    this.#point();
  }

  close() {
    this.#ends.forEach((end) => end());
    this.#charts.forEach((chart) => chart.close());
  }

  #chart(group) {
    if (!this.#charts.has(group.name)) {
      const { track, player } = this.#given;
      const seek = (index) => {
        player.pause();
        player.seek(index);
      };
      this.#charts.set(group.name, new Chart({ title: group.title, track, seek }));
    }
    return this.#charts.get(group.name);
  }

  #arrange(elements) {
    const { children } = this.body;
    if (elements.length !== children.length || elements.some((each, i) => children[i] !== each)) {
      clear(this.body).append(...elements);
    }
  }

  #point() {
    const { player, track, indexAt } = this.#given;
    const index = Math.max(0, Math.min(indexAt(player.index), track.length - 1));
    this.#charts.forEach((chart) => chart.point(index));
  }
}
