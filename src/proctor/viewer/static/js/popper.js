/*
 * A game of Column Popper: the board on a canvas, score and clocks beside it as text.
 *
 * Rule 1: everything is drawn from the scene; the colours are those of `envs/popper/drawing/palette.py`, and row 0 is on top.
 * Rule 2: a pop is a mark that stays while its step is shown; it moves only for those who did not ask for less motion.
 */

import { el, setText } from "./dom.js";
import { number } from "./format.js";
import { BLOCKS, Board } from "./popper_board.js";
import { rgb } from "./surface.js";

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
