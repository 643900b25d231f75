/*
 * The parts of the page with two episodes: their names and choices, where they first differ, their facts, and the form
 * that forks.
 *
 * Rule 1: the sentence of a difference is the server's; what differs is shown by weight and by a word, not by colour
 *     alone.
 * Rule 2: a fork is never recorded, and what shows one says so.
 * Rule 3: a fork runs code. Which code, and with which settings, is said and confirmed before: the record names it, and
 *   whoever wrote that may have named anything, whatever the environment is called in a list.
 */

import { confirmed } from "./acting.js";
import { button, clear, el, setText } from "./dom.js";
import { number, shortChain } from "./format.js";
import { jsonTree } from "./json_tree.js";
import { SIDES, actionsAfter, cursorFacts, lineFacts, parsedActions, turned } from "./pair.js";
import { episodeAddress } from "./router.js";

const MOST = 300;

/** Returns the nodes of a side's name; `choose(chain)` is told of a change. Without `lines` there is no choice yet. */
export function sideName({ side, place, lines = [], choose = () => {} }) {
  const { line } = side.head;
  const [id, name] = [`compare-${SIDES[place]}`, `Episode ${SIDES[place]}`];
  const options =
    lines.length > 0 ? grouped(lines, side) : [el("option", { value: line.chain, selected: true }, words(line))];
  const select = el("select", { id, "aria-label": name, on: { change: () => choose(select.value) } }, options);
  return [
    el("h2", null, sideBadge(place), el("span", { class: "visually-hidden" }, ` ${words(line)}`)),
    select,
    ...more(side, place).filter(Boolean),
  ];
}

function more(side, place) {
  const { line } = side.head;
  const props = { href: episodeAddress(line.chain), "aria-label": `Open episode ${SIDES[place]}` };
  return [line.fork ? forkBadge() : null, side.fork ? null : el("a", props, "Open")];
}

/** Returns what stands beside everything that never happened. */
export function forkBadge() {
  return el("span", { class: "badge warn" }, "fork, not recorded");
}

function grouped(lines, side) {
  const { line } = side.head;
  const isNear = ({ environment }) => environment === line.environment;
  const isListed = lines.some(({ chain }) => chain === line.chain);
  const [near, other] = [lines.filter(isNear), lines.filter((each) => !isNear(each))];
  return [
    isListed ? null : el("option", { value: line.chain, selected: true }, words(line)),
    group("Same environment", near, side),
    group("Other environments", other, side),
  ];
}

function group(label, lines, side) {
  if (lines.length === 0) return null;
  const { chain } = side.head.line;
  const shown = lines.filter((line, at) => at < MOST || line.chain === chain);
  const options = shown.map((line) => el("option", { value: line.chain, selected: line.chain === chain }, words(line)));
  return el("optgroup", { label }, options);
}

function words(line) {
  const paid = line.total_reward === null ? "" : `, return ${number(line.total_reward, 2)}`;
  return `${line.environment} ${shortChain(line.chain)}: ${line.steps} steps${paid}`;
}

const SO_FAR = "is here so far"; // what the server says of an open episode that is shorter than the other

/** Returns {element, show(difference), fail(problem), focus()}; `jump()` goes to the difference. */
export function differencePanel({ jump }) {
  const looking = el("p", { class: "quiet" }, "Looking for the first difference…");
  const body = el("div", { class: "difference-body" }, looking);
  const title = el("h2", { tabindex: "-1" }, "First difference");
  const element = el("section", { class: "panel difference", "aria-label": "First difference" }, title, body);
  const fill = (...nodes) => clear(body).append(...nodes.filter(Boolean));
  return {
    element,
    show: (difference) => fill(...(difference.same ? same(difference) : differing(difference, jump))),
    focus: () => title.focus(),
    fail: (problem) => fill(el("p", { class: "quiet" }, `The two cannot be compared: ${problem.message}`)),
  };
}

function same({ text }) {
  return [el("p", { class: "difference-text" }, text || "The two episodes do not differ.")];
}

function differing(difference, jump) {
  const { step, text, left, right } = difference;
  const words = `Jump to the first difference (step ${step})`;
  return [
    el("p", { class: "difference-text" }, text),
    step === null ? null : button(words, jump, { class: "primary" }),
    el("div", { class: "difference-values" }, [left, right].map((value, place) => side(value, place, difference))),
  ];
}

function side(value, place, { what, where }) {
  return el(
    "div",
    { class: "difference-value" },
    el("h3", null, sideBadge(place), `${["Left", "Right"][place]}: `, [what, where].filter(Boolean).join(" ")),
    jsonTree(value ?? null),
  );
}

/** Returns whether a difference may be another when there is more of an open episode. */
export function isUnsettled({ same, left, right }) {
  return same || left === SO_FAR || right === SO_FAR;
}

/** Returns where two chains first differ; a file holds a comparison in one order only. */
export async function differenceOf(source, one, other) {
  try {
    return await source.difference(one, other);
  } catch (problem) {
    if (source.kind !== "file") throw problem;
    return turned(await source.difference(other, one));
  }
}

/** Returns the sign of a side, in the colour of its lines. */
function sideBadge(place) {
  return el("span", { class: `side side-${SIDES[place].toLowerCase()}` }, SIDES[place]);
}

/** Returns {element, point(index), update()}. */
export function factsTable(pair) {
  const now = el("tbody");
  const whole = el("tbody");
  const rows = [];
  const heads = [0, 1].map((place) => el("th", { scope: "col" }, sideBadge(place)));
  const caption = el("caption", { class: "visually-hidden" }, "Facts of both episodes");
  const element = el("table", { class: "fact-table" }, caption, el("thead", el("tr", el("td"), heads)), now, whole);
  const update = () =>
    clear(whole).append(heading("Episode"), ...lineFacts(pair.sides).map((fact) => row(fact).node));
  const point = (index) =>
    cursorFacts(pair, index).forEach((fact, at) => {
      if (rows[at] === undefined) {
        rows[at] = row(fact);
        now.append(rows[at].node);
      } else rows[at].show(fact);
    });
  now.append(heading("At the cursor"));
  update();
  return { element, point, update };
}

function heading(text) {
  return el("tr", null, el("th", { colspan: "3", scope: "rowgroup", class: "fact-group" }, text));
}

function row(fact) {
  const values = fact.values.map(() => el("td"));
  const node = el("tr", null, el("th", { scope: "row" }, fact.name), values);
  const show = ({ values: said, same }) => {
    said.forEach((text, place) => setText(values[place], text));
    node.classList.toggle("differs", !same);
    node.title = same ? "" : "differs";
  };
  show(fact);
  return { node, show };
}

const SUGGESTED = 5;
const made = { forms: 0 };

/** `fork(step, actions)` is async and throws what is refused; `last` is what the last fork was made of. */
export class ForkForm {
  constructor({ head, track, fork, last = null, ask = confirmed }) {
    made.forms += 1;
    const id = `fork-${made.forms}`;
    Object.assign(this, { head, track, fork, ask, touched: false });
    const suggest = { input: () => this.suggest() };
    this.step = el("input", { type: "number", id: `${id}-step`, min: "0", required: true, value: "0", on: suggest });
    const touch = () => {
      this.touched = true;
    };
    const plain = { rows: "2", spellcheck: "false", class: "mono", "aria-describedby": `${id}-help` };
    this.actions = el("textarea", { id: `${id}-actions`, ...plain, on: { input: touch } });
    this.problem = el("p", { class: "bad", role: "alert" });
    this.button = el("button", { type: "submit", class: "primary" }, "Fork");
    this.element = el(
      "form",
      { class: "panel forking", "aria-label": "Fork A", on: { submit: (event) => this.submit(event) } },
      el("h2", null, "What if?"),
      el(
        "p",
        { class: "quiet small", id: `${id}-help` },
        "A is run again up to the step at the cursor, then on with these actions (a JSON list), and shown " +
          "as B. A fork is not recorded: it is gone when this page is left.",
      ),
      el(
        "div",
        { class: "forking-fields" },
        field(`${id}-step`, "After step", this.step),
        field(`${id}-actions`, "Actions", this.actions),
        this.button,
      ),
      this.problem,
    );
    if (last !== null) this.fill(last);
  }

  focus() {
    this.actions.focus();
  }

  fill({ step, actions }) {
    this.step.value = String(step);
    this.actions.value = JSON.stringify(actions);
    this.touched = true;
  }

  /** Takes the cursor's step over, as long as nobody is typing. */
  follow(step) {
    if (this.touched || document.activeElement === this.step) return;
    this.step.value = String(step);
    this.suggest();
  }

  /** Offers what was really done next, to be changed. */
  suggest() {
    if (this.touched) return;
    this.actions.value = JSON.stringify(actionsAfter(this.track, Number(this.step.value), SUGGESTED));
  }

  async submit(event) {
    event.preventDefault();
    const { actions, problem } = parsedActions(this.actions.value);
    setText(this.problem, problem ?? "");
    if (problem !== undefined) return;
    this.button.disabled = true;
    try {
      if (!(await this.ask(question(this.head)))) return;
      await this.fork(Number(this.step.value), actions);
    } catch (refusal) {
      setText(this.problem, `It was not forked: ${refusal.message}`);
    } finally {
      this.button.disabled = false;
    }
  }
}

/** What is asked before code runs. */
function question({ target, settings }) {
  return {
    title: "Run this environment?",
    body: [
      el("p", null, "A fork makes the environment that the record names, here on this machine, and runs its code:"),
      el("blockquote", { class: "mono" }, `${target}\nsettings ${JSON.stringify(settings)}`),
    ],
    action: "Fork",
  };
}

function field(id, name, input) {
  return el("div", { class: "field" }, el("label", { class: "field-name", for: id }, name), input);
}
