/*
 * The list of episodes: filter, sort, choose two to compare. Live ones change in place.
 *
 * Rule 1: at most `PIECE` rows are made at once, and more on request: five thousand episodes open as fast as fifty.
 * Rule 2: a row is made once. An update never moves the row that has the focus, never scrolls, and never rewrites what
 *     has not changed.
 * Rule 3: what was filtered, sorted, chosen and scrolled to is there again when one comes back.
 * Rule 4: on a narrow screen a row is a card, by CSS alone; so roles are said, and cells carry their heading in `data-
 *     label`.
 */

import { COLUMNS, Catalogue, NO_FILTERS, pressed } from "./catalogue.js";
import { button, clear, el, setAttribute, setText } from "./dom.js";
import { UNKNOWN, age, counted, number, outcomeWords, shortChain, standingWords, time } from "./format.js";
import { compareAddress, episodeAddress } from "./router.js";

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

class Tools {
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

const GOOD = new Set(["conforming"]);
const BAD = new Set(["violated", "lost", "S9_SAFEMODE"]);
const WARNED = new Set(["S8_ESCALATED"]);

/** Return "good", "bad", "warn" or "" for a state or an outcome. */
export function tone(word) {
  if (GOOD.has(word)) {
    return "good";
  }
  return BAD.has(word) ? "bad" : WARNED.has(word) ? "warn" : "";
}

class Row {
  /** `onChoose(chain, isChosen)` when the box is ticked or not. */
  constructor(line, onChoose) {
    this.chain = line.chain;
    this.box = el("input", { type: "checkbox", on: { change: () => onChoose(this.chain, this.box.checked) } });
    this.link = el("a", { class: "episode-link", href: episodeAddress(line.chain) });
    this.name = el("span", { class: "episode-name" });
    this.state = el("span", { class: "badge" });
    this.outcome = el("span", { class: "badge" });
    this.agent = el("span", { class: "agent" });
    this.tier = el("span", { class: "tier-name" });
    this.age = el("time", {});
    this.cells = this.makeCells();
    this.element = el("tr", { role: "row" }, Object.values(this.cells));
    this.update(line);
  }

  makeCells() {
    return {
      choose: cell("Compare", "choose", el("label", {}, this.box)),
      environment: cell("Environment", "name", this.link, this.name),
      agent: cell("Agent", "agent-cell", this.agent),
      state: cell("State", "state", this.state),
      outcome: cell("Outcome", "outcome", this.outcome),
      steps: cell("Steps", "number"),
      return: cell("Return", "number"),
      refusals: cell("Refusals", "number"),
      tier: cell("Tier", "tier", this.tier),
      age: cell("Age", "number age", this.age),
    };
  }

  update(line) {
    this.line = line;
    setText(this.link, line.environment);
    const more = [line.num_envs ? `${line.num_envs} copies` : "", line.fork ? "fork, not recorded" : ""];
    setText(this.name, [shortChain(line.chain), ...more].filter(Boolean).join(" · "));
    setAttribute(this.name, "title", line.chain);
    setAttribute(this.box, "aria-label", `Choose ${line.environment} ${shortChain(line.chain)} to compare`);
    this.showState(line);
    this.showOutcome(line);
    this.showNumbers(line);
    setText(this.agent, line.agent || UNKNOWN);
    this.cells.agent.classList.toggle("none", line.agent === "");
    setText(this.tier, line.tier || UNKNOWN);
    this.showAge();
  }

  /** Only a change is written: the badge is more than its word, and it is in front of a reader's eyes. */
  showState(line) {
    const { state, live } = line;
    const words = standingWords(line);
    if (this.stated === `${words} ${live}`) {
      return;
    }
    this.stated = `${words} ${live}`;
    badge(this.state, live ? tone(state) || "accent" : `plain ${tone(state)}`);
    setAttribute(this.state, "title", state);
    setText(this.state, words);
    if (live) {
      this.state.prepend(el("span", { class: "dot", "aria-hidden": "true" }));
      this.state.append(el("span", { class: "visually-hidden" }, " (live)"));
    }
  }

  showOutcome({ outcome, reason }) {
    badge(this.outcome, outcome === null ? "plain quiet" : tone(outcome));
    setText(this.outcome, outcomeWords(outcome));
    setAttribute(this.cells.outcome, "title", reason);
  }

  showNumbers(line) {
    this.fill("steps", number(line.steps, 0));
    this.fill("return", line.total_reward === null ? null : number(line.total_reward));
    this.fill("refusals", line.refusals === null ? null : number(line.refusals, 0));
    this.cells.refusals.classList.toggle("warn", line.refusals > 0);
  }

  showAge(now = Date.now() / 1000) {
    setText(this.age, age(this.line.opened_at, now));
    setAttribute(this.age, "title", `Opened ${time(this.line.opened_at)}`);
  }

  choose(isChosen, isFull) {
    this.box.checked = isChosen;
    this.box.disabled = isFull && !isChosen;
    this.element.classList.toggle("chosen", isChosen);
  }

  fill(key, text) {
    setText(this.cells[key], text ?? UNKNOWN);
    this.cells[key].classList.toggle("none", text === null);
  }
}

function cell(label, kind, ...children) {
  return el("td", { role: "cell", class: kind, dataset: { label } }, ...children);
}

function badge(node, tones) {
  setAttribute(node, "class", `badge ${tones}`.trim());
}

const PIECE = 100;
const AGES_EVERY = 10_000; // ms
const ORDER_EVERY = 1_000; // ms
const SPEAK_AFTER = 700; // ms
const memory = {
  filters: { ...NO_FILTERS },
  sort: { key: "age", direction: "ascending" },
  chosen: [],
  shown: PIECE,
  scroll: 0,
};

/** Open the list; resolves when its lines are there. */
export async function listPage(context) {
  const lines = await context.source.lines();
  return new List(context, lines).open();
}

/**
 * Put `wanted` rows into `body` in this order with few moves; `pivot` (the row with the focus) itself is never moved,
 * since a node that moves loses the focus.
 */
export function placed(body, wanted, pivot) {
  const keep = new Set(wanted);
  [...body.children].filter((row) => !keep.has(row)).forEach((row) => row.remove());
  let cursor = body.firstElementChild;
  for (const row of wanted) {
    if (row === pivot) {
      while (cursor !== pivot) {
        const next = cursor.nextElementSibling;
        body.append(cursor);
        cursor = next;
      }
    }
    if (row === cursor) {
      cursor = cursor.nextElementSibling;
    } else {
      body.insertBefore(row, cursor);
    }
  }
}

class List {
  constructor(context, lines) {
    this.context = context;
    this.catalogue = new Catalogue();
    this.catalogue.merge(lines);
    this.rows = new Map();
    this.wasLive = false;
    this.timers = { order: null, speak: null, ages: null };
    this.makeParts();
  }

  open() {
    const { source } = this.context;
    const ends = [
      source.subscribe("lines", (lines) => this.told(lines)),
      source.subscribe("gone", (chains) => this.dropped(chains)),
      source.subscribe("status", (status) => this.connected(status)),
    ];
    this.unsubscribe = () => ends.forEach((end) => end());
    this.timers.ages = setInterval(() => this.rows.forEach((row) => row.showAge()), AGES_EVERY);
    this.show();
    const shown = () => scrollTo(0, memory.scroll);
    return { element: this.element, title: "Episodes", close: () => this.close(), shown };
  }

  close() {
    memory.scroll = scrollY;
    this.unsubscribe();
    clearInterval(this.timers.ages);
    clearTimeout(this.timers.order);
    clearTimeout(this.timers.speak);
  }

  // --------------------------------------------------------------------------------------------------- making
  makeParts() {
    this.tools = new Tools(memory, {
      filter: (change) => this.filter(change),
      sort: (sort, words) => this.sort(sort, words),
    });
    this.body = el("tbody", { role: "rowgroup", on: { keydown: (event) => this.moved(event) } });
    this.headings = new Map(COLUMNS.map((column) => [column.key, this.heading(column)]));
    this.table = el("table", { class: "episodes", role: "table", "aria-label": "Episodes" }, this.head(), this.body);
    this.more = el("button", { type: "button", on: { click: () => this.showMore() } });
    this.moreBox = el("div", { class: "list-more" }, this.more);
    this.box = el("div", { class: "card episodes-box" }, this.table, this.moreBox);
    this.nothing = el("div", { class: "card list-none" });
    this.bar = el("div", { class: "compare-bar", role: "region", "aria-label": "Compare" });
    this.element = el(
      "div",
      { class: "list-page" },
      el("div", { class: "page-head" }, el("h1", { tabindex: "-1" }, "Episodes")),
      remarked(this.context.source.remarks ?? []),
      this.tools.element,
      this.box,
      this.nothing,
      this.bar,
    );
  }

  head() {
    const word = el("span", { class: "visually-hidden" }, "Compare");
    const choose = el("th", { role: "columnheader", scope: "col", class: "of-choose" }, word);
    return el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, choose, [...this.headings.values()]));
  }

  heading(column) {
    const press = () => this.sort(pressed(memory.sort, column.key), `Sorted by ${column.label.toLowerCase()}`);
    const sorting = button(column.label, press, { class: "sort" });
    const kind = [`of-${column.key}`, column.number ? "number" : null];
    return el("th", { role: "columnheader", scope: "col", class: kind }, sorting);
  }

  // -------------------------------------------------------------------------------------------------- changes
  told(lines) {
    const known = this.catalogue.size;
    const changed = this.catalogue.merge(lines);
    changed.forEach((line) => this.rows.get(line.chain)?.update(line));
    if (changed.length > 0) {
      this.orderSoon(this.catalogue.size > known ? 0 : ORDER_EVERY);
    }
  }

  dropped(chains) {
    if (this.catalogue.drop(chains)) {
      this.orderSoon(0);
    }
  }

  /** What went while nobody listened is not told: whenever it listens again, everything is asked for again. */
  async connected(status) {
    const isAgain = status === "live" && this.wasLive;
    this.wasLive = this.wasLive || status === "live";
    if (!isAgain) return;
    const known = this.catalogue.chains();
    const lines = await this.context.source.lines().catch(() => null);
    if (lines === null) return;
    const there = new Set(lines.map((line) => line.chain));
    this.told(lines);
    this.dropped(known.filter((chain) => !there.has(chain)));
  }

  /** Rows change at once, their order at most once a second; a new episode is seen without delay. */
  orderSoon(wait) {
    if (wait === 0) {
      clearTimeout(this.timers.order);
      this.timers.order = null;
    }
    this.timers.order ??= setTimeout(() => {
      this.timers.order = null;
      this.show();
    }, wait);
  }

  filter(change) {
    memory.filters = { ...memory.filters, ...change };
    memory.shown = PIECE;
    this.show();
    this.speakSoon();
  }

  clearFilters() {
    this.filter(NO_FILTERS);
    this.tools.reset();
  }

  sort(sort, words) {
    memory.sort = sort;
    memory.shown = PIECE;
    this.show();
    this.context.announce(`${words}, ${sort.direction}.`);
  }

  showMore() {
    memory.shown += PIECE;
    const found = this.catalogue.view(memory.filters, memory.sort);
    const added = this.append(found.slice(0, memory.shown));
    this.showMoreButton(found.length - memory.shown);
    added[0]?.link.focus({ preventScroll: true });
  }

  /** A reader hears how many are left once typing has paused. */
  speakSoon() {
    clearTimeout(this.timers.speak);
    this.timers.speak = setTimeout(() => this.context.announce(`${this.tools.count.textContent}.`), SPEAK_AFTER);
  }

  choose(chain, isChosen) {
    const others = memory.chosen.filter((each) => each !== chain);
    memory.chosen = isChosen ? [...others, chain].slice(-2) : others;
    this.showChosen();
    this.context.announce(this.chosenWords());
  }

  /** Up and down go from row to row, in the same column of controls. */
  moved(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const row = event.target.closest("tr");
    if (step === undefined || row === null || event.altKey || event.ctrlKey || event.metaKey) {
      return;
    }
    const next = step > 0 ? row.nextElementSibling : row.previousElementSibling;
    event.preventDefault();
    next?.querySelector(event.target.tagName === "INPUT" ? "input" : "a")?.focus();
  }

  // -------------------------------------------------------------------------------------------------- showing
  show() {
    const found = this.catalogue.view(memory.filters, memory.sort);
    const visible = found.slice(0, memory.shown);
    this.showRows(visible);
    this.showMoreButton(found.length - visible.length);
    this.showNothing(found.length);
    this.showHeadings();
    this.tools.show(found.length, this.catalogue, memory);
    this.showChosen();
  }

  showRows(visible) {
    const chains = new Set(visible.map((line) => line.chain));
    [...this.rows.keys()].filter((chain) => !chains.has(chain)).forEach((chain) => this.rows.delete(chain));
    const elements = visible.map((line) => this.row(line).element);
    const active = document.activeElement;
    placed(this.body, elements, this.body.contains(active) ? active.closest("tr") : null);
  }

  /** Adds the rows that are not there yet, and touches no other; if the order changed, it is put right soon anyway. */
  append(visible) {
    const added = visible.filter((line) => !this.rows.has(line.chain)).map((line) => this.row(line));
    const isFull = memory.chosen.length === 2;
    added.forEach((row) => row.choose(memory.chosen.includes(row.chain), isFull));
    this.body.append(...added.map((row) => row.element));
    return added;
  }

  row(line) {
    const known = this.rows.get(line.chain);
    const row = known ?? new Row(line, (chain, isChosen) => this.choose(chain, isChosen));
    this.rows.set(line.chain, row);
    return row;
  }

  showMoreButton(rest) {
    this.moreBox.hidden = rest <= 0;
    setText(this.more, `Show ${number(Math.min(rest, PIECE), 0)} more of ${number(rest, 0)}`);
  }

  showNothing(found) {
    this.box.hidden = found === 0;
    this.nothing.hidden = found > 0;
    const kind = this.catalogue.size === 0 ? "empty" : "filtered";
    if (found === 0 && this.nothing.dataset.kind !== kind) {
      this.nothing.dataset.kind = kind;
      clear(this.nothing).append(...(kind === "empty" ? firstEpisode(this.context.visit) : this.noMatch()));
    }
  }

  noMatch() {
    const pressed = button("Clear the filters", () => this.clearFilters());
    return [
      el("h2", {}, "No episode matches"),
      el("p", { class: "quiet" }, "Every word of the filter must occur in an episode's line."),
      el("div", { class: "buttons" }, pressed),
    ];
  }

  showHeadings() {
    for (const [key, heading] of this.headings) {
      setAttribute(heading, "aria-sort", key === memory.sort.key ? memory.sort.direction : null);
    }
  }

  // ----------------------------------------------------------------------------------------------- comparing
  showChosen() {
    memory.chosen = memory.chosen.filter((chain) => this.catalogue.line(chain) !== null);
    const isFull = memory.chosen.length === 2;
    this.rows.forEach((row) => row.choose(memory.chosen.includes(row.chain), isFull));
    this.bar.hidden = memory.chosen.length === 0;
    if (this.bar.dataset.chosen !== memory.chosen.join("|")) {
      this.bar.dataset.chosen = memory.chosen.join("|");
      clear(this.bar).append(el("span", {}, this.chosenWords()), this.barButtons(isFull));
    }
  }

  barButtons(isFull) {
    const compare = () => this.context.navigate(compareAddress(...memory.chosen));
    const forget = () => {
      memory.chosen = [];
      this.showChosen();
      this.context.announce("Nothing chosen.");
    };
    return el(
      "span",
      { class: "buttons" },
      button("Clear", forget),
      button("Compare", compare, { class: "primary", disabled: !isFull }),
    );
  }

  chosenWords() {
    const names = memory.chosen.map(shortChain);
    if (names.length === 2) {
      return `${names[0]} and ${names[1]}`;
    }
    return names.length === 1 ? `${names[0]} chosen; choose another one to compare it with` : "Nothing chosen.";
  }
}

/** What the list leaves out, above it. */
function remarked(remarks) {
  return remarks.map((text) => el("p", { class: "notice warn", role: "note" }, text));
}

function firstEpisode(visit) {
  const isServer = Boolean(visit.can_act || visit.environment);
  const text = isServer
    ? `As soon as somebody opens a session of ${visit.environment ?? "this server"} and resets it, it is listed here.`
    : "This ledger holds no episode yet. Serve an environment with it, and whatever happens there is listed here.";
  const commands = isServer
    ? ["proctor demo --keep demo", "proctor view demo/ledger"]
    : ["proctor serve proctor/PlumeSearch-v0 --ledger records", "proctor view records"];
  return [
    el("h2", {}, "No episodes yet"),
    el("p", { class: "quiet" }, text),
    el("p", { class: "quiet" }, isServer ? "To see a governed one at once:" : "In two terminals:"),
    commands.map((command) => el("code", { class: "command" }, command)),
  ].flat();
}
