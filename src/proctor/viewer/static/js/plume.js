/*
 * A plume search on a canvas: the odor with its colours and their legend, source and goal, the way, heading and wind.
 *
 * Rule 1: everything is drawn from the scene; the looks are those of `envs/plume/drawing/picture.py`, and +y is up.
 * Rule 2: what does not change is drawn once on a layer: the field (unless it moves), the older part of the way.
 * Rule 3: where agents move in any direction without turning (a move is not along the heading), the last move is shown
 *     as the heading.
 */

import { Surface, pictureOf, rgb } from "./canvas.js";
import { el, setText } from "./dom.js";
import { number } from "./format.js";
import { PALETTE, concentrationAt, isKnownField, paint, tinted, tone } from "./plume_fields.js";
import { Trail, placeOf } from "./plume_trail.js";

const ASIDE = 50; // degrees; a move along a heading is rounded to cells, and stopped by walls
const LOOKED_AT = 400; // steps
const seen = new WeakMap();

/** Return the heading to show at an index, in degrees. */
export function headingAt(track, index) {
  const own = track.frame(index)?.agent?.heading ?? 0;
  return turns(track) ? own : lastMove(track, index) ?? own;
}

/** Say whether the moves are along the headings; of steps that are thinned out nobody can tell. */
function turns(track) {
  const known = seen.get(track) ?? { next: 1, turns: true };
  const end = track.stride > 1 ? 0 : Math.min(track.length, LOOKED_AT);
  while (known.turns && known.next < end) {
    known.turns = isAlong(track, known.next);
    known.next += 1;
  }
  seen.set(track, known);
  return known.turns;
}

function isAlong(track, index) {
  const moved = moveAt(track, index);
  const heading = track.frame(index)?.agent?.heading;
  if (moved === null || !Number.isFinite(heading)) {
    return true;
  }
  const apart = Math.abs(moved - heading) % 360;
  return Math.min(apart, 360 - apart) <= ASIDE;
}

function lastMove(track, index) {
  for (let i = index; i > Math.max(0, index - LOOKED_AT); i -= 1) {
    const moved = moveAt(track, i);
    if (moved !== null) {
      return moved;
    }
  }
  return null;
}

/** Return the direction of the move to an index, in degrees; null: it stayed. */
function moveAt(track, index) {
  const [from, to] = [placeOf(track.frame(index - 1)), placeOf(track.frame(index))];
  if (from === null || to === null || (from[0] === to[0] && from[1] === to[1])) {
    return null;
  }
  return ((Math.atan2(to[1] - from[1], to[0] - from[0]) * 180) / Math.PI + 360) % 360;
}

const TICKS = [0, 0.01, 0.03, 0.1, 0.3, 1];

/** Return a legend: `{element, point(concentration), redraw(), close()}`. */
function legend() {
  const bar = el("canvas", { class: "legend-bar", width: 256, height: 1, "aria-hidden": "true" });
  const mark = el("div", { class: "legend-mark", "aria-hidden": "true" });
  const value = el("span", { class: "legend-value" });
  const ticks = TICKS.map((tick) => placed(el("span", { class: "legend-tick" }, number(tick)), tone(tick)));
  const element = el(
    "div",
    { class: "legend" },
    el("div", { class: "legend-head" }, el("span", {}, "Concentration"), value),
    el("div", { class: "legend-scale" }, bar, mark),
    el("div", { class: "legend-ticks", "aria-hidden": "true" }, ticks),
  );
  fill(bar);
  return { element, point: (found) => point(mark, value, found), redraw: () => fill(bar), close: () => {} };
}

function placed(node, share) {
  node.style.left = `${100 * share}%`;
  return node;
}

function fill(bar) {
  const bytes = new Uint8ClampedArray(4 * 256).fill(255);
  for (let level = 0; level < 256; level += 1) {
    bytes.set(PALETTE.subarray(3 * level, 3 * level + 3), 4 * level);
  }
  bar.getContext("2d").drawImage(pictureOf(bytes, 256, 1).element, 0, 0);
}

function point(mark, value, found) {
  const isKnown = Number.isFinite(found);
  mark.hidden = !isKnown;
  placed(mark, isKnown ? tone(found) : 0);
  setText(value, isKnown ? `here ${number(found, 3)}` : "");
}

const GROUND = [7, 8, 16];
const BORDER = [104, 112, 150];
const MARK = [236, 248, 255];
const SHADE = [8, 8, 20];
const TRAIL = [112, 226, 255];
const AGENT = { ready: [255, 255, 255], terminated: [64, 224, 120], truncated: [255, 184, 32] };
const ENDED = { terminated: "The source was found.", truncated: "The time is up." };
const DART = [[1, 0], [-0.8, 0.72], [-0.42, 0], [-0.8, -0.72]];
const ARROW = [[1, 0], [0.2, 0.5], [0.2, 0.16], [-1, 0.16], [-1, -0.16], [0.2, -0.16], [0.2, -0.5]];

const MARGIN = 6;
const NARROWEST = 0.1; // of the longer side; a narrower grid is stretched
const CELL_LINES = 14; // cells of at least so many pixels are told apart by lines
const FINE = 320; // samples along the longer side of a field that stays
const COARSE = 128; // and of one that moves

export const plume = {
  name: "plume",
  fits: (head) => head.scene?.environment === "plume" && isPlume(head.scene),
  series: () => [{ name: "concentration", label: "Concentration", value: concentration }],
  describe,
  open: ({ head, track }) => new PlumeView(head.scene, track),
};

function isPlume({ static: fixed, frame }) {
  const pairs = [fixed.grid, fixed.source];
  const fitting = pairs.every((pair) => pair.length === 2 && pair.every(Number.isFinite));
  return fitting && fixed.grid.every((side) => side >= 1) && isKnownField(fixed.field) && placeOf(frame) !== null;
}

function concentration(frame, observation, scene) {
  const { field, source } = scene.static;
  return concentrationAt(field, frame.field, source, placeOf(frame));
}

function distance(frame, scene) {
  const [[x, y], [a, b]] = [placeOf(frame), scene.static.source];
  return Math.hypot(x - a, y - b);
}

function describe(frame, scene, observation, { track, index } = {}) {
  const [x, y] = placeOf(frame);
  const heading = track === undefined ? frame.agent.heading : headingAt(track, index);
  const where = `The agent is at (${number(x)}, ${number(y)}), heading ${number(heading, 0)}°`;
  const cells = number(distance(frame, scene), 1);
  const away = `${cells} ${cells === "1" ? "cell" : "cells"} from the source`;
  const smell = `concentration ${number(concentration(frame, observation, scene), 3)}`;
  return [`${where}, ${away}, ${smell}.`, windWords(frame.wind), ENDED[frame.state]].filter(Boolean).join(" ");
}

function windWords(wind) {
  return wind ? `Wind (${number(wind[0])}, ${number(wind[1])}) cells per step.` : null;
}

class PlumeView {
  #track;
  #scene;
  #surface;
  #legend = legend();
  #trail = null;
  #backdrop = null; // the layer with the field that was drawn last
  #fieldFrame = null;
  #index = 0;

  constructor(scene, track) {
    this.#track = track;
    this.#scene = scene;
    this.#surface = new Surface({ name: "stage-canvas", onResize: () => this.redraw() });
    const [width, height] = scene.static.grid;
    const longer = Math.max(width, height);
    this.shape = [Math.max(width, longer * NARROWEST), Math.max(height, longer * NARROWEST)];
    this.#surface.element.style.aspectRatio = `${this.shape[0]} / ${this.shape[1]}`;
    this.element = el("div", { class: "stage-plume" }, this.#surface.element, this.#legend.element);
    this.element.style.setProperty("--aspect", String(this.shape[0] / this.shape[1]));
  }

  redraw() {
    this.#backdrop = null;
    this.#trail = null;
    this.#legend.redraw();
    this.draw(this.#index);
  }

  draw(index) {
    this.#index = index;
    const frame = this.#track.frame(index);
    if (!this.#surface.isVisible || placeOf(frame) === null) {
      return;
    }
    const context = this.#surface.begin();
    this.#drawField(frame);
    this.#drawTrail(context, index);
    this.#drawWind(context, frame.wind);
    this.#drawAgent(context, frame, headingAt(this.#track, index));
    this.#surface.describe(describe(frame, this.#scene, null, { track: this.#track, index }));
    this.#legend.point(concentration(frame, null, this.#scene));
  }

  close() {
    this.#surface.close();
    this.#legend.close();
  }

  get #cell() {
    const [columns, rows] = this.#scene.static.grid;
    return [(this.#surface.width - 2 * MARGIN) / columns, (this.#surface.height - 2 * MARGIN) / rows];
  }

  #place(x, y) {
    const [across, up] = this.#cell;
    return [MARGIN + (x + 0.5) * across, this.#surface.height - MARGIN - (y + 0.5) * up];
  }

  get #reach() {
    return Math.min(Math.max(0.4 * Math.min(...this.#cell), 8), 22);
  }

  /** Puts the backdrop: the field with the cells' lines and the goal, drawn again only if the field is another one. */
  #drawField(frame) {
    const moving = frame.field ?? null;
    if (this.#backdrop === null || moving !== this.#fieldFrame) {
      this.#fieldFrame = moving;
      this.#backdrop ??= this.#surface.layer();
      this.#drawBackdrop(this.#backdrop.context, moving);
    }
    this.#surface.put(this.#backdrop);
  }

  #drawBackdrop(context, moving) {
    const { width, height } = this.#surface;
    context.fillStyle = rgb(GROUND);
    context.fillRect(0, 0, width, height);
    context.imageSmoothingQuality = moving === null ? "high" : "low";
    context.drawImage(this.#painted(moving).element, MARGIN, MARGIN, width - 2 * MARGIN, height - 2 * MARGIN);
    context.strokeStyle = rgb(BORDER);
    context.lineWidth = 1;
    context.strokeRect(MARGIN - 0.5, MARGIN - 0.5, width - 2 * MARGIN + 1, height - 2 * MARGIN + 1);
    this.#drawCells(context);
    this.#drawGoal(context);
  }

  #painted(moving) {
    const { field, source, grid } = this.#scene.static;
    const finest = moving === null ? FINE : COARSE;
    const longer = Math.max(this.#surface.width, this.#surface.height) * this.#surface.ratio;
    const scale = Math.min(finest, longer) / Math.max(...this.shape);
    const [columns, rows] = this.shape.map((side) => Math.max(1, Math.round(side * scale)));
    const values = paint(field, moving, source, samples(columns, grid[0]), samples(rows, grid[1]));
    return pictureOf(tinted(values, columns, rows), columns, rows);
  }

  #drawCells(context) {
    const [columns, rows] = this.#scene.static.grid;
    const [across, up] = this.#cell;
    context.fillStyle = rgb(MARK, 0.07);
    for (let column = 1; across >= CELL_LINES && column < columns; column += 1) {
      context.fillRect(Math.round(MARGIN + column * across), MARGIN, 1, rows * up);
    }
    for (let row = 1; up >= CELL_LINES && row < rows; row += 1) {
      context.fillRect(MARGIN, Math.round(MARGIN + row * up), columns * across, 1);
    }
  }

  #drawGoal(context) {
    const [x, y] = this.#place(...this.#scene.static.source);
    const radius = this.#scene.static.goal_radius;
    const [wide, high] = this.#cell.map((side) => Math.max(radius * side || 0, this.#reach + 3));
    context.save();
    clip(context, this.#surface);
    for (const [style, width] of [[rgb(SHADE, 0.75), 4], [rgb(MARK), 1.8]]) {
      context.strokeStyle = style;
      context.lineWidth = width;
      context.beginPath();
      context.ellipse(x, y, wide, high, 0, 0, 2 * Math.PI);
      context.stroke();
    }
    disc(context, x, y, 4, rgb(SHADE, 0.75));
    disc(context, x, y, 2.6, rgb(MARK));
    context.restore();
  }

  #drawTrail(context, index) {
    this.#trail ??= new Trail(this.#track, {
      makeLayer: () => this.#surface.layer(),
      place: (x, y) => this.#place(x, y),
      colour: (opacity) => rgb(TRAIL, opacity),
      shade: (opacity) => rgb(SHADE, opacity),
    });
    this.#trail.draw(context, index, (layer, opacity) => this.#surface.put(layer, opacity));
  }

  #drawAgent(context, frame, heading) {
    const [x, y] = this.#place(...placeOf(frame));
    const colour = rgb(AGENT[frame.state] ?? AGENT.ready);
    const size = this.#reach;
    polygon(context, [x, y], DART, size, radians(heading), colour);
    if (frame.state in ENDED) {
      context.strokeStyle = colour;
      context.lineWidth = 2.4;
      context.beginPath();
      context.arc(x, y, size + 5, 0, 2 * Math.PI);
      context.stroke();
    }
  }

  #drawWind(context, wind) {
    if (!wind) {
      return;
    }
    const { width, height } = this.#surface;
    const radius = Math.min(20, Math.min(width, height) / 9);
    const place = [width - MARGIN - radius - 6, MARGIN + radius + 6];
    disc(context, ...place, radius, rgb(SHADE, 0.6));
    const speed = Math.hypot(...wind);
    if (speed > 0) {
      const length = radius * 0.9 * Math.tanh(0.4 + speed);
      polygon(context, place, ARROW, length, Math.atan2(wind[1], wind[0]), rgb(TRAIL), 0);
    } else {
      disc(context, ...place, 2, rgb(TRAIL));
    }
  }
}

/** Return the cell coordinates of `count` samples over `cells` cells, ascending. */
function samples(count, cells) {
  return Float64Array.from({ length: count }, (_, i) => ((i + 0.5) * cells) / count - 0.5);
}

function radians(degrees) {
  return ((Number.isFinite(degrees) ? degrees : 0) * Math.PI) / 180;
}

function clip(context, { width, height }) {
  context.beginPath();
  context.rect(MARGIN, MARGIN, width - 2 * MARGIN, height - 2 * MARGIN);
  context.clip();
}

function disc(context, x, y, radius, colour) {
  context.fillStyle = colour;
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fill();
}

/** Fills a polygon that is given around (0, 0) with y up, turned by `angle`; dark around it. */
function polygon(context, [x, y], corners, size, angle, colour, outline = 2.5) {
  const [cos, sin] = [Math.cos(angle) * size, Math.sin(angle) * size];
  context.beginPath();
  for (const [a, b] of corners) {
    context.lineTo(x + a * cos - b * sin, y - a * sin - b * cos);
  }
  context.closePath();
  context.lineJoin = "round";
  context.strokeStyle = rgb(SHADE, 0.8);
  context.lineWidth = outline;
  if (outline > 0) {
    context.stroke();
  }
  context.fillStyle = colour;
  context.fill();
}
