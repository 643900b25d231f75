// Two episodes, or an episode and a fork of it, side by side: one cursor, both stages, their lines in one chart.
//
// Rule 1: the page holds a Pair; whatever the cursor means for either side is asked of it.
// Rule 2: a fork has no address and no row: it lives on this page only.
// Rule 3: what cannot be compared is still shown.

import { Charts } from "./charts.js";
import { ForkForm, differenceOf, differencePanel, factsTable, isUnsettled, sideName } from "./compare_panels.js";
import { button, clear, el } from "./dom.js";
import { shortChain } from "./format.js";
import { loadEpisode } from "./loading.js";
import { Pair, SIDES, originOf, turned } from "./pair.js";
import { Player, StepKeeper, listenForKeys, playerKeys, showKeys } from "./player.js";
import { compareAddress, keepAddress, readdress } from "./router.js";
import { UNREACHABLE } from "./source.js";
import { Stage } from "./stage.js";
import { Timeline } from "./timeline.js";
import { Track } from "./track.js";

const ASKED_AGAIN = 3_000; // milliseconds between two looks for a difference in live episodes

/** Opens the page of two chains, at `step` if one is given; of the same one twice, it is about to be forked. */
export async function comparePage(context, one, other, step = null) {
  const page = new ComparePage(context, step);
  await page.open(one, other);
  const title = `${shortChain(one)} and ${shortChain(other)}`;
  return { element: page.element, title, shown: () => page.shown(), close: () => page.close() };
}

class ComparePage {
  constructor(context, wanted) {
    Object.assign(this, {
      context,
      keeper: { step: 0, wanted },
      difference: null,
      ends: [],
      loads: [],
      panels: [],
      isAsking: false,
      isFinal: false, // nobody was live when the question for the difference was asked
      problem: null,
      closed: false,
      frame: null,
      forked: null,
    });
    this.timer = setInterval(() => document.hidden || this.compareAgain(), ASKED_AGAIN);
    this.body = el("div", { class: "compare-body" });
    const swap = button("Swap A and B", () => this.swap(), { class: "swap" });
    this.element = el(
      "div",
      { class: "compare" },
      el("div", { class: "page-head compare-head" }, el("h1", { tabindex: "-1" }, "Side by side"), swap),
      this.body,
    );
  }

  async open(one, other) {
    const onGrow = () => this.growSoon();
    const started = [one, other].map((chain) => loadEpisode(this.context, chain, { onGrow }));
    const found = await Promise.allSettled(started);
    this.loads = found.filter(({ status }) => status === "fulfilled").map(({ value }) => value);
    const failed = found.find(({ status }) => status === "rejected");
    if (failed !== undefined) {
      this.close();
      throw failed.reason;
    }
    this.use(...this.loads.map(({ head, track }) => ({ head, track, fork: false })));
    this.keeper.grow();
    this.compare();
  }

  /** Called when the page is in its place: who is about to fork begins there. */
  shown() {
    const [one, other] = this.pair.sides.map(({ head }) => head.line.chain);
    if (one === other) this.form?.focus();
  }

  close() {
    this.closed = true;
    clearInterval(this.timer);
    cancelAnimationFrame(this.frame);
    this.strip();
    for (const load of this.loads) load.stop();
  }

  // ------------------------------------------------------------------------------------------------- what is shown
  /** Shows these two; the cursor stays at its step. */
  use(one, other, step = null) {
    this.strip();
    this.pair = new Pair(one, other);
    this.player = this.newPlayer();
    this.keeper = new StepKeeper(this.player, this.pair.lead.track, this.keeper.wanted);
    this.build();
    if (step !== null && !this.player.follow) this.player.seek(this.pair.cursorAt(step));
    this.choose();
  }

  /** Returns a player that goes on as the one before it did. */
  newPlayer() {
    const { speed, follow } = this.player ?? {};
    const player = new Player({ length: this.pair.length });
    player.speed = speed ?? player.speed;
    if (follow) player.setFollow(true);
    return player;
  }

  strip() {
    for (const end of this.ends) end();
    for (const panel of this.panels) panel.close();
    this.player?.close();
    [this.ends, this.panels] = [[], []];
  }

  build() {
    const { context, player, pair } = this;
    this.differs = differencePanel({ jump: () => this.jump() });
    this.timeline = new Timeline({
      ...pair.lead,
      player,
      context,
      difference: () => this.differenceIndex(),
      onHelp: showKeys,
    });
    this.stages = pair.sides.map((side, place) =>
      new Stage({
        ...side,
        player,
        context,
        title: `Environment of ${SIDES[place]}`,
        indexAt: (index) => pair.indexOf(side, index),
      }),
    );
    this.facts = factsTable(pair);
    this.charts = new Charts({ track: pair.lead.track, player, title: "Charts of both", groups: () => pair.charts() });
    this.form = this.forkForm();
    this.panels = [this.timeline, ...this.stages, this.charts];
    this.ends = [player.subscribe(() => this.point()), listenForKeys(playerKeys(player)), this.keepAddress()];
    clear(this.body).append(...this.laidOut());
    this.point();
  }

  laidOut() {
    this.names = this.pair.sides.map((side, place) =>
      el("div", { class: "compare-name" }, sideName({ side, place })),
    );
    const stages = this.stages.map((stage, place) =>
      el("div", { class: "compare-side" }, this.names[place], stage.element),
    );
    return [
      el("div", { class: "compare-stages" }, stages),
      this.timeline.element,
      el("div", { class: "compare-column" }, this.differs.element, this.charts.element, this.form?.element),
      el(
        "div",
        { class: "compare-column" },
        el("section", { class: "panel", "aria-label": "Facts of both" }, this.facts.element),
      ),
    ];
  }

  forkForm() {
    const [one] = this.pair.sides;
    if (!this.context.source.canFork || one.fork) return null;
    return new ForkForm({ ...one, last: this.forked, fork: (step, actions) => this.fork(step, actions) });
  }

  // ------------------------------------------------------------------------------------------------------- moving
  point() {
    const { index } = this.player;
    this.keeper.remember();
    this.facts.point(index);
    this.form?.follow(this.pair.sides[0].track.step(this.pair.indexOf(this.pair.sides[0], index)));
  }

  /** The address follows the cursor when it rests; a fork has none. */
  keepAddress() {
    const { pair, player } = this;
    const chains = pair.sides.map(({ head }) => head.line.chain);
    const isOurs = ({ name, arguments: shown }) => name === "compare" && chains.every((each, i) => shown[i] === each);
    const isHere = (route) => pair.sides.every(({ fork }) => !fork) && isOurs(route);
    const step = () => `?step=${player.wanted ?? this.keeper.step}`;
    const address = (follows) => compareAddress(...chains) + (follows ? "" : step());
    return keepAddress(player, { isHere, address }).close;
  }

  growSoon() {
    this.frame ??= requestAnimationFrame(() => this.grow());
  }

  /** Something came: if now the other side is the longer one, everything is laid out anew. */
  grow() {
    this.frame = null;
    if (this.pair === undefined || this.closed) return;
    if (this.pair.isOvertaken) {
      this.use(...this.pair.sides, this.keeper.step);
      if (this.difference !== null) this.differ(this.difference);
    }
    this.keeper.grow();
    for (const panel of this.panels) panel.update();
    this.facts.update();
  }

  // -------------------------------------------------------------------------------------------------- differences
  async compare() {
    const [one, other] = this.pair.sides;
    if (one.fork || other.fork) return;
    this.isFinal = !this.isLive;
    if (one.head.line.chain === other.head.line.chain) {
      const forks = this.context.source.canFork ? ", or fork it" : "";
      this.learn({ same: true, text: `Both sides show the same episode: choose another one${forks}.` });
      return;
    }
    this.isAsking = true;
    const isStill = () => !this.closed && this.pair.sides[0] === one && this.pair.sides[1] === other;
    try {
      const difference = await differenceOf(this.context.source, one.head.line.chain, other.head.line.chain);
      if (isStill()) this.learn(difference);
    } catch (problem) {
      if (isStill()) this.fail(problem);
    } finally {
      this.isAsking = false;
    }
  }

  /** Shows what is new only: a button in it may have the focus. */
  learn(difference) {
    const isKnown = this.problem === null && JSON.stringify(difference) === JSON.stringify(this.difference);
    if (!isKnown) this.differ(difference);
  }

  /** What was found before stays; only a first question that failed is told. */
  fail(problem) {
    this.isFinal = this.isFinal && problem.code !== UNREACHABLE;
    if (this.difference !== null) return;
    this.problem = problem;
    this.differs.fail(problem);
  }

  differ(difference) {
    if (this.closed) return;
    this.difference = difference;
    this.problem = null;
    this.differs.show(difference);
    this.timeline.update();
  }

  /** As long as more may come, and once after that: what was the same may differ, who was behind may catch up. */
  compareAgain() {
    if (this.pair === undefined || this.isAsking) return;
    const isOpen = this.difference === null || isUnsettled(this.difference);
    if (isOpen && (this.isLive || !this.isFinal)) this.compare();
  }

  get isLive() {
    return this.pair.sides.some(({ head }) => head.line.live);
  }

  differenceIndex() {
    const step = this.difference?.same === false ? this.difference.step : null;
    return step === null ? null : this.pair.cursorAt(step);
  }

  jump() {
    const index = this.differenceIndex();
    if (index === null) return;
    this.player.pause();
    this.player.seek(index);
    this.context.announce(this.difference.text);
  }

  // ------------------------------------------------------------------------------------------ other ones, and forks
  async choose() {
    const { pair, names } = this;
    const lines = await this.context.source.lines().catch(() => []);
    if (this.closed || pair !== this.pair) return;
    pair.sides.forEach((side, place) => {
      const choose = (chain) => this.chosen(place, chain);
      clear(names[place]).append(...sideName({ side, place, lines, choose }));
    });
  }

  chosen(place, chain) {
    const chains = this.pair.sides.map(({ head, fork }) => (fork ? originOf(head.line) : head.line.chain));
    chains[place] = chain;
    this.context.navigate(compareAddress(...chains));
  }

  swap() {
    const [one, other] = this.pair.sides;
    const { step } = this.keeper;
    if (this.difference !== null) this.difference = turned(this.difference);
    this.use(other, one, step);
    if (this.difference !== null) this.differ(this.difference);
    this.compare();
    if (!one.fork && !other.fork) readdress(compareAddress(other.head.line.chain, one.head.line.chain));
  }

  async fork(step, actions) {
    const [one] = this.pair.sides;
    const { head, slice, left, difference } = await this.context.source.fork(one.head.line.chain, step, actions);
    if (this.closed) return;
    this.forked = { step, actions };
    const track = new Track(head);
    track.append(slice);
    this.use(one, { head, track, fork: true }, step);
    this.differ(difference);
    this.differs.focus(); // the form that had it is another one now
    const unused = left > 0 ? ` ${left} of the actions came after its end.` : "";
    this.context.announce(`Forked after step ${step}; the fork is shown as B.${unused}`);
  }
}
