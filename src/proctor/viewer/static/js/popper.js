/*
 * A game of Column Popper: the board on a canvas, score and clocks beside it as text.
 *
 * Rule 1: everything is drawn from the scene; the colours are those of `envs/popper/drawing/picture.py`, and row 0 is
 *     on top.
 * Rule 2: any block shows its number, so that no one needs to tell colours apart.
 * Rule 3: a pop is a mark that stays while its step is shown; it moves once, for those who did not ask for less motion.
 */

import { Surface, rgb } from "./canvas.js";
import { el, setText } from "./dom.js";
import { number } from "./format.js";

const WHITE = [255, 255, 255];
const SHADE = [8, 8, 20];
const GROUND = [7, 8, 16];
const MARK = [236, 248, 255];
const SLOT = [18, 20, 40];
const DANGER_SLOT = [56, 18, 30];
const FAINT = [104, 112, 150];
const RAIL = [58, 62, 90];
const RED = [255, 64, 72];
const BORDER = [104, 112, 150];

const COLOURS = [
  SLOT,
  [118, 209, 255],
  [232, 187, 39],
  [3, 143, 126],
  [237, 47, 26],
  [206, 255, 246],
  [143, 78, 250],
  [214, 120, 201],
  [250, 231, 122],
  [140, 62, 151],
];
const MARGIN = 10;
const FOOT = 20; // below the board: the columns' numbers
const RAYS = 10;
const MOVING = 350; // ms

/** The blocks' colours by their number, and the colour of the number on them. */
export const BLOCKS = Object.assign([...COLOURS], { ink: (value) => (isBright(value) ? SHADE : WHITE) });

function isBright(value) {
  const [red, green, blue] = COLOURS[value].map((part) => (part / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18;
}

function wantsMotion() {
  return !matchMedia("(prefers-reduced-motion: reduce)").matches;
}

class Board {
  #surface;
  #rows;
  #columns;
  #shown = null;
  #handle = null;
  #began = 0;

  constructor({ height, columns }, onResize) {
    this.#rows = height;
    this.#columns = columns;
    this.#surface = new Surface({ name: "stage-canvas popper-board", onResize });
    this.element = this.#surface.element;
    // Cells are five wide by four high, as on the environment's own pictures.
    this.element.style.aspectRatio = `${columns * 50 + 2 * MARGIN} / ${height * 40 + 2 * MARGIN + FOOT}`;
  }

  describe(words) {
    this.#surface.describe(words);
  }

  /** Draws a frame; `held` and `burst` are cells, `ended` dims the board. */
  draw(frame, { held, burst, ended }) {
    if (!this.#surface.isVisible) {
      return;
    }
    const isNew = this.#shown?.frame !== frame;
    this.#shown = { frame, held, burst, ended };
    if (isNew) {
      this.#stopMoving();
      this.#began = burst.length > 0 && wantsMotion() ? performance.now() : -Infinity;
    }
    this.#paint(performance.now());
  }

  close() {
    this.#stopMoving();
    this.#surface.close();
  }

  #stopMoving() {
    cancelAnimationFrame(this.#handle);
    this.#handle = null;
  }

  #paint(now) {
    const share = Math.min(1, (now - this.#began) / MOVING);
    const context = this.#surface.begin();
    this.#backdrop(context);
    this.#cells(context);
    this.#shown.burst.forEach((cell) => this.#burst(context, cell, share));
    if (this.#shown.held) {
      this.#held(context, this.#shown.held);
    }
    if (share < 1 && this.#handle === null) {
      this.#handle = requestAnimationFrame((next) => {
        this.#handle = null;
        this.#paint(next);
      });
    }
  }

  get #cell() {
    const { width, height } = this.#surface;
    return [(width - 2 * MARGIN) / this.#columns, (height - 2 * MARGIN - FOOT) / this.#rows];
  }

  #box(row, column) {
    const [wide, high] = this.#cell;
    return [MARGIN + column * wide, MARGIN + row * high, wide, high];
  }

  #backdrop(context) {
    const [wide, high] = this.#cell;
    const [width, height] = [wide * this.#columns, high * this.#rows];
    rounded(context, [0, 0, this.#surface.width, this.#surface.height], 8, rgb(GROUND));
    rounded(context, [MARGIN - 4, MARGIN - 4, width + 8, height + 8], 6, rgb(RAIL));
    rounded(context, [MARGIN - 2.5, MARGIN - 2.5, width + 5, height + 5], 5, rgb(GROUND));
    context.fillStyle = rgb(BORDER);
    context.fillRect(MARGIN, MARGIN - 3.5, width, 3);
    context.fillStyle = rgb(RED);
    context.fillRect(MARGIN, MARGIN + height + 0.5, width, 3);
    this.#numbers(context, wide, MARGIN + height + FOOT / 2 + 4);
  }

  #numbers(context, wide, y) {
    if (wide < 14) {
      return;
    }
    lettering(context, 11, rgb(FAINT));
    for (let column = 0; column < this.#columns; column += 1) {
      context.fillText(String(column), MARGIN + (column + 0.5) * wide, y);
    }
  }

  #cells(context) {
    const { frame, held, ended } = this.#shown;
    frame.board.forEach((row, y) => row.forEach((value, x) => {
      const isHeld = held !== null && held[0] === y && held[1] === x;
      this.#block(context, this.#box(y, x), isHeld ? 0 : value, y === this.#rows - 1);
    }));
    if (ended) {
      const [left, top] = this.#box(0, 0);
      const [wide, high] = this.#cell;
      context.fillStyle = rgb(frame.state === "truncated" ? [255, 184, 32] : RED, 0.22);
      context.fillRect(left, top, wide * this.#columns, high * this.#rows);
    }
  }

  #block(context, [left, top, wide, high], value, isDanger = false) {
    const gap = high < 20 ? 1 : 2;
    const box = [left + gap, top + gap, wide - 2 * gap, high - 2 * gap];
    const radius = 0.2 * high;
    rounded(context, box, radius, rgb(isDanger ? DANGER_SLOT : SLOT));
    if (value > 0) {
      this.#face(context, box, radius, value);
    }
  }

  #face(context, [left, top, wide, high], radius, value) {
    const lip = Math.max(1, 0.07 * high);
    rounded(context, [left, top, wide, high], radius, rgb(COLOURS[value].map((part) => Math.trunc(0.55 * part))));
    rounded(context, [left, top, wide, high - lip], radius, rgb(COLOURS[value]));
    rounded(context, [left + 2, top + 2, wide - 4, high * 0.36], radius * 0.8, rgb(WHITE, 0.13));
    lettering(context, Math.max(8, 0.56 * high), rgb(BLOCKS.ink(value)));
    context.fillText(String(value), left + wide / 2, top + (high - lip) / 2 + 0.5);
  }

  #held(context, [row, column]) {
    const [left, top, wide, high] = this.#box(row, column);
    const value = this.#shown.frame.board[row][column];
    const lift = Math.max(2, high / 8);
    context.save();
    context.shadowColor = rgb(COLOURS[value]);
    context.shadowBlur = 14;
    rounded(context, [left, top + lift, wide, high], 0.22 * high, rgb(WHITE));
    context.restore();
    this.#block(context, [left, top + lift, wide, high], value);
    pointer(context, left + wide / 2, top + lift + high + 3, Math.max(3, 0.14 * high));
  }

  #burst(context, [row, column, value], share) {
    const [left, top, wide, high] = this.#box(row, column);
    const reach = Math.min(10, high / 2) * share;
    context.save();
    rounded(context, [left + 2, top + 2, wide - 4, high - 4], 0.2 * high, rgb(COLOURS[value], 0.14));
    for (const [part, opacity] of [[0, 0.9], [0.4, 0.45], [0.8, 0.2]]) {
      const grown = part * reach - 2;
      const box = [left - grown, top - grown, wide + 2 * grown, high + 2 * grown];
      outlined(context, box, 0.2 * high, rgb(COLOURS[value], opacity));
    }
    rays(context, [left + wide / 2, top + high / 2], [wide / 2, high / 2], share);
    context.restore();
  }
}

function rounded(context, [left, top, wide, high], radius, colour) {
  context.fillStyle = colour;
  context.beginPath();
  context.roundRect(left, top, Math.max(0, wide), Math.max(0, high), Math.max(0, radius));
  context.fill();
}

function outlined(context, [left, top, wide, high], radius, colour) {
  context.strokeStyle = colour;
  context.lineWidth = 1.6;
  context.beginPath();
  context.roundRect(left, top, Math.max(0, wide), Math.max(0, high), radius);
  context.stroke();
}

function lettering(context, size, colour) {
  context.font = `600 ${size}px system-ui, sans-serif`;
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillStyle = colour;
}

function pointer(context, x, y, size) {
  context.fillStyle = rgb(WHITE);
  context.beginPath();
  context.moveTo(x, y);
  context.lineTo(x - size, y + 1.4 * size);
  context.lineTo(x + size, y + 1.4 * size);
  context.fill();
}

function rays(context, [x, y], [across, up], share) {
  context.strokeStyle = rgb(MARK, 0.75);
  context.lineWidth = 1.6;
  for (let ray = 0; ray < RAYS; ray += 1) {
    const angle = (2 * Math.PI * ray) / RAYS;
    const [cos, sin] = [across * Math.cos(angle), up * Math.sin(angle)];
    const [from, to] = [0.2 + 0.22 * share, 0.3 + 0.42 * share];
    context.beginPath();
    context.moveTo(x + cos * from, y + sin * from);
    context.lineTo(x + cos * to, y + sin * to);
    context.stroke();
  }
}

const VERDICTS = {
  overflow: "Overflow",
  invalid_full_drop: "Full column",
  truncated: "Time up",
  terminated: "Game over",
};
const HURRY = 0.2; // the share of the time from which on the clock warns

export const popper = {
  name: "popper",
  fits: (head) => head.scene?.environment === "popper" && isPopper(head.scene),
  series: () => [{ name: "score", label: "Score", value: (frame) => frame.score }],
  describe,
  open: ({ head, track }) => new PopperView(head.scene, track),
};

function isPopper({ static: fixed, frame }) {
  return fixed.height >= 1 && fixed.columns >= 1 && fixed.duration_ms > 0 && isBoard(frame, fixed);
}

/** Return whether a frame has a board of the right size with numbers from 0 to 9. */
export function isBoard(frame, fixed) {
  const isRow = (row) => row.length === fixed.columns && row.every((value) => value >= 0 && value <= 9);
  return frame?.board?.length === fixed.height && frame.board.every(isRow);
}

/** Return how many rows the stack of a column reaches down. */
export function depth(board, column) {
  return board.findLastIndex((row) => row[column] > 0) + 1;
}

/** Return where the held block is, `[row, column]`: the lowest of its column; null where nothing is held. */
export function heldCell(frame) {
  const column = frame.held ?? null;
  return column === null || depth(frame.board, column) === 0 ? null : [depth(frame.board, column) - 1, column];
}

/** Return the cells that this step emptied and nothing has filled since: `[row, column, value]` each. */
export function burstCells({ popped, board }) {
  if (!popped) {
    return [];
  }
  const cells = Array.from({ length: popped.count }, (_, below) => [popped.row + below, popped.column, popped.value]);
  return cells.filter(([row, column]) => board[row]?.[column] === 0);
}

/** Return how the game ended, in words; null while it goes on. */
export function verdict(frame) {
  if (frame.state !== "terminated" && frame.state !== "truncated") {
    return null;
  }
  return (frame.state === "terminated" ? VERDICTS[frame.fault] : null) ?? VERDICTS[frame.state];
}

function seconds(milliseconds) {
  return `${((milliseconds ?? 0) / 1000).toFixed(1)} s`;
}

function describe(frame, scene) {
  if (!isBoard(frame, scene.static)) {
    return "This frame has no board that could be drawn.";
  }
  const [left, fall] = [seconds(frame.time_left_ms), seconds(frame.next_fall_ms)];
  const words = [
    `Column Popper: score ${number(frame.score)}, ${left} left, next fall in ${fall}.`,
    heldWords(frame),
    poppedWords(frame),
    stackWords(frame.board),
    verdict(frame),
  ];
  return words.filter(Boolean).join(" ");
}

function heldWords(frame) {
  const cell = heldCell(frame);
  return cell ? `A ${frame.board[cell[0]][cell[1]]} from column ${cell[1]} is held.` : null;
}

function poppedWords({ popped }) {
  return popped ? `${popped.count} blocks of ${popped.value} popped in column ${popped.column}.` : null;
}

function stackWords(board) {
  const stacks = board[0].map((_, column) => board.map((row) => row[column]).filter(Boolean).join(" ") || "empty");
  return `Columns from the top: ${stacks.map((stack, column) => `${column}: ${stack}`).join("; ")}.`;
}

class PopperView {
  #track;
  #scene;
  #board;
  #panel = scorePanel();
  #index = 0;

  constructor(scene, track) {
    this.#track = track;
    this.#scene = scene;
    this.#board = new Board(scene.static, () => this.draw(this.#index));
    this.element = el("div", { class: "stage-popper" }, this.#board.element, this.#panel.element);
  }

  redraw() {
    this.draw(this.#index);
  }

  draw(index) {
    this.#index = index;
    const frame = this.#track.frame(index);
    if (isBoard(frame, this.#scene.static)) {
      this.#board.draw(frame, { held: heldCell(frame), burst: burstCells(frame), ended: verdict(frame) !== null });
      this.#board.describe(describe(frame, this.#scene));
      this.#panel.show(frame, this.#scene.static);
    }
  }

  close() {
    this.#board.close();
  }
}

function scorePanel() {
  const score = el("output", { class: "popper-score" }, "0");
  const time = clock("Time left");
  const fall = clock("Next fall");
  const held = el("span", { class: "popper-held" });
  const ended = el("p", { class: "popper-verdict", hidden: true });
  const element = el(
    "div",
    { class: "popper-panel" },
    el("div", { class: "popper-line" }, el("span", { class: "popper-label" }, "Score"), score),
    time.element,
    fall.element,
    el("div", { class: "popper-line" }, el("span", { class: "popper-label" }, "Held"), held),
    ended,
  );
  return { element, show: (frame, fixed) => show({ score, time, fall, held, ended }, frame, fixed) };
}

function clock(label) {
  const value = el("span", { class: "popper-value" });
  const bar = el("span", { class: "popper-fill" });
  const element = el(
    "div",
    { class: "popper-clock" },
    el("div", { class: "popper-line" }, el("span", { class: "popper-label" }, label), value),
    el("div", { class: "popper-bar", "aria-hidden": "true" }, bar),
  );
  return { element, value, bar };
}

function setClock({ element, value, bar }, milliseconds, whole, isUrgent) {
  setText(value, seconds(milliseconds));
  bar.style.transform = `scaleX(${Math.max(0, Math.min(1, milliseconds / whole || 0))})`;
  element.classList.toggle("urgent", isUrgent);
}

function show({ score, time, fall, held, ended }, frame, fixed) {
  const cell = heldCell(frame);
  const value = cell ? frame.board[cell[0]][cell[1]] : null;
  setText(score, number(frame.score));
  setClock(time, frame.time_left_ms, fixed.duration_ms, frame.time_left_ms <= HURRY * fixed.duration_ms);
  setClock(fall, frame.next_fall_ms, frame.fall_interval_ms, frame.board.at(-1).some(Boolean));
  setText(held, value ?? "nothing");
  held.classList.toggle("block", value !== null);
  held.style.backgroundColor = value === null ? "" : rgb(BLOCKS[value]);
  held.style.color = value === null ? "" : rgb(BLOCKS.ink(value));
  ended.hidden = verdict(frame) === null;
  setText(ended, verdict(frame) ?? "");
  ended.classList.toggle("amber", frame.state === "truncated");
}
