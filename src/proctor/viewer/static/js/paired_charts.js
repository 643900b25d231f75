// The charts of two episodes, both lines in one; they share the cursor of the page.
//
// Rule 1: what the lines are and where they end is the Pair's to say; how they are drawn is the Chart's.

import { Chart } from "./chart.js";
import { el } from "./dom.js";
import { onTheme } from "./theme.js";

/** Returns a Panel; its charts come and grow with the tracks. */
export function pairedCharts({ pair, player }) {
  return new PairedCharts(pair, player);
}

class PairedCharts {
  constructor(pair, player) {
    Object.assign(this, { pair, player, charts: new Map() });
    this.grid = el("div", { class: "charts-grid" });
    this.element = el("section", { class: "panel charts", "aria-label": "Charts of both" }, this.grid);
    this.ends = [player.subscribe(() => this.point()), onTheme(() => this.update())];
    this.update();
  }

  update() {
    for (const { name, title, series } of this.pair.charts()) {
      if (!this.charts.has(name)) this.add(name, title);
      this.charts.get(name).setSeries(series);
    }
    this.point();
  }

  close() {
    for (const end of this.ends) end();
    for (const chart of this.charts.values()) chart.close();
  }

  point() {
    const index = Math.min(this.player.index, this.pair.length - 1);
    for (const chart of this.charts.values()) chart.point(index);
  }

  add(name, title) {
    const seek = (index) => {
      this.player.pause();
      this.player.seek(index);
    };
    const chart = new Chart({ title, track: this.pair.lead.track, seek });
    this.charts.set(name, chart);
    this.grid.append(chart.element);
  }
}
