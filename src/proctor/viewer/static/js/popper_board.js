/*
 * The board of Column Popper on a canvas: blocks that hang from the ceiling, the held one, what popped.
 *
 * Rule 1: any block shows its number, so that no one needs to tell colours apart.
 * Rule 2: the burst moves outwards once, for a third of a second, then stays; the next frame ends it.
 */

import { rgb, Surface } from "./surface.js";

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

export class Board {
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
