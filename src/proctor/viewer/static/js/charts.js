/*
 * Small charts over the steps of one episode or of two, with one cursor for all: reward, its parts, return, what the
 * painter measures.
 *
 * Rule 1: what is drawn depends on the pixels, not on the steps: the least and the greatest number of every pixel
 *     column. No peak is lost.
 * Rule 2: lines are drawn on a layer when numbers came or the size or the colours changed; else only the cursor moves.
 */

import { Surface, colour, onTheme } from "./canvas.js";
import { clear, el, setText } from "./dom.js";
import { number, shortNumber } from "./format.js";

const ROUNDED = 1e-12; // of a number; a sum of many differs by so much from what it is

/** Return `{low, high}`, `width` numbers each, over the first `length` of `values`; NaN where a column has none. */
export function envelope(values, length, width) {
  const [low, high] = [new Float64Array(width).fill(NaN), new Float64Array(width).fill(NaN)];
  for (let column = 0; column < width; column += 1) {
    const from = Math.floor((column * length) / width);
    const until = Math.floor(((column + 1) * length) / width);
    let [least, most] = [Infinity, -Infinity];
    for (let i = from; i < until; i += 1) {
      const value = values[i];
      if (value < least) {
        least = value;
      }
      if (value > most) {
        most = value;
      }
    }
    if (least <= most) {
      low[column] = least;
      high[column] = most;
    }
  }
  return { low, high };
}

/** Return a range with a little room around it; a range without width, but for what rounding left of it, gets one. */
export function roomy([low, high]) {
  const size = Math.max(Math.abs(low), Math.abs(high));
  if (high - low <= size * ROUNDED) {
    const reach = size * 0.1 || 1;
    return [low - reach, high + reach];
  }
  const reach = (high - low) * 0.06;
  return [low - reach, high + reach];
}

/** Return the range that holds all of these, `null` among them counting for nothing; null if there is none. */
export function unionOf(ranges) {
  const known = ranges.filter((range) => range !== null);
  const [lows, highs] = [known.map(([low]) => low), known.map(([, high]) => high)];
  return known.length === 0 ? null : [Math.min(...lows), Math.max(...highs)];
}

const LEFT = 48; // room for the least and the greatest number
const RIGHT = 6;
const TOP = 6;
const BOTTOM = 6;
const COLOURS = 6;

class Chart {
  #given;
  #series = [];
  #surface;
  #layer = null;
  #range = null;
  #index = 0;
  #values = [];
  #inks = null; // colours, asked for once per redraw: asking makes the browser work out its styles

  /** `seek(index)` is called while the chart is pressed. */
  constructor(given) {
    this.#given = given;
    this.#surface = new Surface({ name: "chart-canvas", onResize: () => this.#redraw() });
    this.legend = el("div", { class: "chart-legend" });
    this.high = el("span", { class: "chart-bound chart-high", "aria-hidden": "true" });
    this.low = el("span", { class: "chart-bound chart-low", "aria-hidden": "true" });
    this.element = el(
      "figure",
      { class: "chart" },
      el("figcaption", { class: "chart-head" }, el("span", { class: "chart-title" }, given.title), this.legend),
      el("div", { class: "chart-plot" }, this.#surface.element, this.high, this.low),
    );
    this.#listen();
  }

  setSeries(series) {
    const isNew = series.length !== this.#series.length;
    this.#series = series;
    if (isNew) {
      this.#buildLegend();
    }
    this.#range = unionOf(series.map((each) => each.range));
    this.#redraw();
  }

  /** Moves the cursor to an index of the track. */
  point(index) {
    this.#index = index;
    this.#values.forEach((node, i) => setText(node, number(this.#series[i].values(index), 4)));
    this.#surface.describe(this.#words(index));
    this.#drawCursor();
  }

  close() {
    this.#surface.close();
  }

  #buildLegend() {
    const isAlone = this.#series.length === 1;
    this.#values = this.#series.map(() => el("output", { class: "chart-value" }));
    const entries = this.#series.map((each, i) =>
      el(
        "span",
        { class: ["chart-entry", `series-${(i % COLOURS) + 1}`] },
        el("span", { class: "chart-chip", "aria-hidden": "true" }),
        isAlone ? null : el("span", { class: "chart-name" }, each.label),
        this.#values[i],
      ),
    );
    clear(this.legend).append(...entries);
  }

  #words(index) {
    const { track, title } = this.#given;
    const said = this.#series.map((each) => `${each.label} ${number(each.values(index), 4)}`).join(", ");
    const [low, high] = (this.#range ?? [NaN, NaN]).map((bound) => number(bound, 4));
    return `${title} at step ${track.step(index)}: ${said}, between ${low} and ${high} in all.`;
  }

  #redraw() {
    if (!this.#surface.isVisible || this.#range === null) {
      return;
    }
    setText(this.high, shortNumber(this.#range[1]));
    setText(this.low, shortNumber(this.#range[0]));
    this.low.hidden = this.#range[0] === this.#range[1];
    this.#inks = inks();
    this.#layer = this.#surface.emptied(this.#layer);
    this.#drawLines(this.#layer.context);
    this.#drawCursor();
  }

  get #width() {
    return Math.max(1, this.#surface.width - LEFT - RIGHT);
  }

  #x(index) {
    const last = this.#given.track.length - 1;
    return LEFT + (last === 0 ? 0 : (index / last) * (this.#width - 1));
  }

  #y(value) {
    const [low, high] = roomy(this.#range);
    return TOP + (this.#surface.height - TOP - BOTTOM) * (1 - (value - low) / (high - low));
  }

  #drawLines(context) {
    this.#drawZero(context);
    this.#series.forEach((each, i) => {
      context.strokeStyle = this.#inks.series[i % COLOURS];
      context.lineWidth = 1.5;
      context.lineJoin = "round";
      if (each.column.length > 2 * this.#width) {
        this.#drawEnvelope(context, each.column);
      } else {
        this.#drawPoints(context, each.column);
      }
    });
  }

  #drawZero(context) {
    const [low, high] = roomy(this.#range);
    if (low < 0 && high > 0) {
      context.strokeStyle = this.#inks.line;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(LEFT, Math.round(this.#y(0)) + 0.5);
      context.lineTo(this.#surface.width, Math.round(this.#y(0)) + 0.5);
      context.stroke();
    }
  }

  #drawPoints(context, column) {
    let isDown = false;
    context.beginPath();
    for (let i = 0; i < column.length; i += 1) {
      const value = column.values[i];
      if (Number.isFinite(value)) {
        const [x, y] = [this.#x(i), this.#y(value)];
        if (isDown) {
          context.lineTo(x, y);
        } else {
          context.moveTo(x, y);
          context.lineTo(x + 0.01, y); // a lone point is seen
        }
      }
      isDown = Number.isFinite(value);
    }
    context.stroke();
  }

  #drawEnvelope(context, column) {
    const width = Math.floor(this.#width);
    const { low, high } = envelope(column.values, column.length, width);
    context.beginPath();
    for (let x = 0; x < width; x += 1) {
      if (Number.isFinite(low[x])) {
        const [top, bottom] = [this.#y(high[x]), this.#y(low[x])];
        const isJoined = x > 0 && Number.isFinite(low[x - 1]);
        context[isJoined ? "lineTo" : "moveTo"](LEFT + x, top);
        context.lineTo(LEFT + x, Math.max(bottom, top + 0.5));
      }
    }
    context.stroke();
  }

  #drawCursor() {
    if (this.#layer === null) {
      return;
    }
    const context = this.#surface.begin();
    this.#surface.put(this.#layer);
    const x = this.#x(this.#index);
    context.fillStyle = this.#inks.text;
    context.globalAlpha = 0.55;
    context.fillRect(Math.round(x) - 0.5, 0, 1, this.#surface.height);
    context.globalAlpha = 1;
    this.#series.forEach((each, i) => this.#drawDot(context, x, each.values(this.#index), i));
  }

  #drawDot(context, x, value, i) {
    if (Number.isFinite(value)) {
      context.fillStyle = this.#inks.series[i % COLOURS];
      context.beginPath();
      context.arc(x, this.#y(value), 3, 0, 2 * Math.PI);
      context.fill();
    }
  }

  #listen() {
    const canvas = this.#surface.element;
    const move = (event) => this.#seek(event.clientX - canvas.getBoundingClientRect().left);
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button === 0) {
        canvas.setPointerCapture(event.pointerId);
        move(event);
      }
    });
    canvas.addEventListener("pointermove", (event) => canvas.hasPointerCapture(event.pointerId) && move(event));
  }

  #seek(x) {
    const share = (x - LEFT) / Math.max(1, this.#width - 1);
    this.#given.seek(Math.round(Math.max(0, Math.min(1, share)) * (this.#given.track.length - 1)));
  }
}

function inks() {
  const series = Array.from({ length: COLOURS }, (_, i) => colour(`series-${i + 1}`));
  return { text: colour("text"), line: colour("line"), series };
}

const ORDER = ["reward", "parts", "total"];
const TITLES = { parts: "Parts of the reward", observation: "Observation" };

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

/** A Panel; `groups()` gives `[{name, title, series}]`, one chart each, which come and grow with the track. */
export class Charts {
  #given;
  #groups;
  #charts = new Map();
  #ends;

  constructor({ track, player, title = "Charts", groups = () => groupsOf(track.series) }) {
    this.#given = { track, player };
    this.#groups = groups;
    this.body = el("div", { class: "charts-grid" });
    this.element = el("section", { class: "panel charts", "aria-label": title }, this.body);
    this.#ends = [player.subscribe(() => this.#point()), onTheme(() => this.update())];
    this.update();
  }

  update() {
    const groups = this.#groups();
    groups.forEach((group) => this.#chart(group).setSeries(group.series));
    this.#arrange(groups.map((group) => this.#charts.get(group.name).element));
    this.#point();
  }

  close() {
    this.#ends.forEach((end) => end());
    this.#charts.forEach((chart) => chart.close());
  }

  #chart({ name, title }) {
    if (!this.#charts.has(name)) {
      const { track, player } = this.#given;
      const seek = (index) => {
        player.pause();
        player.seek(index);
      };
      this.#charts.set(name, new Chart({ title, track, seek }));
    }
    return this.#charts.get(name);
  }

  #arrange(elements) {
    const { children } = this.body;
    if (elements.length !== children.length || elements.some((each, i) => children[i] !== each)) {
      clear(this.body).append(...elements);
    }
  }

  #point() {
    const { player, track } = this.#given;
    const index = Math.max(0, Math.min(player.index, track.length - 1));
    this.#charts.forEach((chart) => chart.point(index));
  }
}
