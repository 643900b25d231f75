/*
 * An episode's page: its head, the environment with its timeline, the charts, what was judged, and everything as it
 * was recorded.
 *
 * Rule 1: the page owns the player and the panels; a panel never knows another one.
 * Rule 2: what grew is shown in the next animation frame, once, however many pieces came.
 * Rule 3: `close()` ends every subscription, timer and fetch.
 */

import { confirmed } from "./acting.js";
import { Charts } from "./charts.js";
import { forkBadge } from "./compare_panels.js";
import { button, clear, el, field, setText } from "./dom.js";
import { RawPanel, factsPanel, notesPanel } from "./episode_facts.js";
import { age, counted, number, outcomeWords, shortChain, standingWords } from "./format.js";
import { loadEpisode } from "./loading.js";
import { MachinePanel } from "./machine.js";
import { EpisodeOperator } from "./operator.js";
import { PacketsPanel } from "./packets.js";
import { Player, StepKeeper, listenForKeys, playerKeys, showKeys } from "./player.js";
import { compareAddress, episodeAddress, keepAddress } from "./router.js";
import { Stage } from "./stage.js";
import { Timeline, toRefusal } from "./timeline.js";

const TONES = { conforming: "good", violated: "bad", terminated: "good", truncated: "warn", lost: "bad" };

class EpisodeHead {
  #given;
  #badges = el("div", { class: "episode-badges" });
  #summary = el("p", { class: "quiet episode-summary" });
  #trouble = el("p", { class: "notice warn", role: "status", hidden: true });
  #shown = "";

  constructor(given) {
    this.#given = given;
    const { line } = given.head;
    this.element = el(
      "header",
      { class: "episode-head" },
      el(
        "div",
        { class: "episode-title" },
        el("h1", { tabindex: "-1" }, line.environment || "Episode"),
        this.#badges,
        this.#summary,
        this.#trouble,
      ),
      el("div", { class: "buttons episode-buttons" }, this.#buttons()),
    );
    this.update();
  }

  update() {
    const { line } = this.#given.head;
    const shown = [line.state, line.outcome, line.live, line.closed_at].join();
    if (shown !== this.#shown) {
      this.#shown = shown;
      clear(this.#badges).append(...badgesOf(line));
    }
    setText(this.#summary, summaryOf(line));
  }

  close() {}

  #buttons() {
    const { context, head } = this.#given;
    const { chain } = head.line;
    return [
      context.source.canFork ? button("Fork here…", () => this.#fork()) : null,
      this.#compareButton(context.source),
      context.source.kind === "served" ? saveLink(context.source.page(chain), head.line) : null,
    ];
  }

  /** A file may hold no other episode to compare with. */
  #compareButton(source) {
    const found = button("Compare with…", () => this.#compare());
    if (source.kind === "file") {
      found.hidden = true;
      source.lines().then((lines) => {
        found.hidden = lines.length < 2;
      });
    }
    return found;
  }

  #fork() {
    const { context, head, track, player } = this.#given;
    const step = track.step(Math.min(player.index, track.length - 1));
    context.navigate(`${compareAddress(head.line.chain, head.line.chain)}?step=${step}`);
  }

  async #compare() {
    const { context, head } = this.#given;
    const lines = await this.#others();
    if (lines.length === 0) {
      return;
    }
    const choice = el("select", { "aria-label": "The other episode" }, lines.map(option));
    const body = field("The other episode", choice);
    if (await confirmed({ title: "Compare with", body, action: "Compare" })) {
      context.navigate(compareAddress(head.line.chain, choice.value));
    }
  }

  /** Return the other episodes' lines; where there are none, it is said why. */
  async #others() {
    const { context, head } = this.#given;
    try {
      const lines = (await context.source.lines()).filter((line) => line.chain !== head.line.chain);
      this.#say(lines.length === 0 ? "There is no other episode to compare with." : "");
      return lines;
    } catch (problem) {
      this.#say(`The other episodes are not known now: ${problem.message}`);
      return [];
    }
  }

  #say(words) {
    this.#trouble.hidden = words === "";
    setText(this.#trouble, words);
  }
}

function saveLink(address, line) {
  return el("a", { class: "button", href: address, download: fileName(line) }, "Save as one file");
}

function fileName({ environment, chain }) {
  return `${`${environment}-${chain}`.replace(/[^\w.-]+/g, "-").slice(0, 120)}.html`;
}

function option(line) {
  const { environment, agent, steps, opened_at: began, chain } = line;
  const words = [environment, agent, counted(steps, "step"), age(began), shortChain(chain)];
  return el("option", { value: line.chain }, words.filter(Boolean).join(" · "));
}

function badgesOf(line) {
  const dot = el("span", { class: "dot beating", "aria-hidden": "true" });
  const live = line.live ? el("span", { class: "badge accent" }, dot, "Live") : null;
  const state = el("span", { class: ["badge", TONES[line.state]] }, standingWords(line));
  const isOther = line.outcome !== null && line.outcome !== line.state && line.outcome !== "open";
  const outcome = isOther ? el("span", { class: ["badge", TONES[line.outcome]] }, outcomeWords(line.outcome)) : null;
  return [line.fork ? forkBadge() : null, live, state, outcome].filter(Boolean);
}

function summaryOf(line) {
  const parts = [
    line.agent && `agent ${line.agent}`,
    counted(line.steps, "step"),
    line.total_reward === null ? null : `return ${number(line.total_reward, 3)}`,
    line.refusals ? counted(line.refusals, "refusal") : null,
    line.seed === null ? null : `seed ${line.seed}`,
    shortChain(line.chain),
  ];
  return parts.filter(Boolean).join(" · ");
}

/** Open an episode's page, at `step` if one is given. */
export async function episodePage(context, chain, step = null) {
  const page = new EpisodePage(context, chain, step);
  try {
    await page.open();
  } catch (error) {
    page.close();
    throw error;
  }
  return page;
}

class EpisodePage {
  #context;
  #chain;
  #step; // where to go as soon as it is there
  #player = new Player();
  #panels = [];
  #packets = null;
  #ends = [];
  #loaded = null;
  #address = null;
  #frame = null;
  #keeper = null;

  constructor(context, chain, step) {
    this.#context = context;
    this.#chain = chain;
    this.#step = step;
  }

  async open() {
    const [onGrow, onTrouble] = [() => this.#growSoon(), (error) => this.#trouble(error)];
    this.#loaded = await loadEpisode(this.#context, this.#chain, { onGrow, onTrouble });
    const { head, track } = this.#loaded;
    this.title = `${head.line.environment} ${shortChain(this.#chain)}`;
    this.#player.follow = head.line.live && this.#step === null;
    this.#player.grow(track.length);
    this.#build({ head, track, player: this.#player, context: this.#context });
    this.#keeper = new StepKeeper(this.#player, track, this.#step);
    this.#ends.push(listenForKeys(this.#acts(track)), this.#player.subscribe(() => this.#keeper.remember()));
    this.#address = this.#keepAddress(track);
    this.#ends.push(this.#address.close);
    this.#grow();
  }

  /** Called when the page is in its place: the first picture is there after the next frame. */
  shown() {
    this.#player.refresh();
    const end = this.#player.subscribe(() => {
      end();
      performance.mark("proctor:episode-ready");
    });
  }

  close() {
    this.#loaded?.stop();
    this.#player.close();
    cancelAnimationFrame(this.#frame);
    this.#ends.forEach((end) => end());
    this.#panels.forEach((panel) => panel.close());
    this.#panels = [];
  }

  #build(given) {
    const { head } = given;
    this.head = this.#add(new EpisodeHead(given));
    const governed = head.line.governed;
    this.trouble = el("p", { class: "notice warn", role: "status", hidden: true });
    this.element = el(
      "div",
      { class: ["episode", governed ? "governed" : "free"] },
      this.head.element,
      this.trouble,
      this.#add(new EpisodeOperator(given)).element,
      this.#grid(given, governed),
    );
  }

  #grid(given, governed) {
    const stage = this.#add(new Stage(given));
    const timeline = this.#add(new Timeline({ ...given, onHelp: showKeys }));
    const charts = this.#add(new Charts(given));
    const known = [factsPanel(given), notesPanel(given)].map((panel) => this.#add(panel).element);
    const machine = governed ? this.#add(new MachinePanel(given)) : null;
    this.#packets = governed ? this.#add(new PacketsPanel(given)) : null;
    const raw = this.#add(new RawPanel(given));
    return el(
      "div",
      { class: "episode-grid" },
      el("div", { class: "episode-left" }, stage.element, timeline.element, machine?.element),
      el(
        "div",
        { class: "episode-right" },
        charts.element,
        this.#packets?.element,
        el("div", { class: "episode-know" }, known),
      ),
      raw.element,
    );
  }

  #add(panel) {
    this.#panels.push(panel);
    return panel;
  }

  #growSoon() {
    this.#frame ??= requestAnimationFrame(() => this.#grow());
  }

  #grow() {
    this.#frame = null;
    if (this.#keeper.grow()) {
      this.#address.settle();
    }
    this.trouble.hidden = true;
    this.#panels.forEach((panel) => panel.update());
  }

  /** The address follows the cursor when it rests. */
  #keepAddress(track) {
    const isHere = ({ name, arguments: [chain] }) => name === "episode" && chain === this.#chain;
    const step = () => this.#player.wanted ?? track.step(Math.min(this.#player.index, track.length - 1));
    const address = (follows) => episodeAddress(this.#chain, follows ? null : step());
    return keepAddress(this.#player, { isHere, address });
  }

  #trouble(error) {
    this.trouble.hidden = false;
    this.trouble.textContent = `The rest of the episode cannot be fetched now: ${error.message}`;
  }

  #acts(track) {
    const player = this.#player;
    return {
      ...playerKeys(player),
      refusedBefore: () => toRefusal(track, player, -1),
      refusedAfter: () => toRefusal(track, player, 1),
      nextPacket: () => this.#packets?.move(1),
      packetBefore: () => this.#packets?.move(-1),
    };
  }
}
