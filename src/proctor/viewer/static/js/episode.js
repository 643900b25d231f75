/*
 * An episode's page: the environment with its timeline, the charts, what was judged, and everything as it was recorded.
 *
 * Rule 1: the page owns the player and the panels; a panel never knows another one.
 * Rule 2: what grew is shown in the next animation frame, once, however many pieces came.
 * Rule 3: `close()` ends every subscription, timer and fetch.
 */

import { chartsPanel } from "./charts.js";
import { el } from "./dom.js";
import { EpisodeHead } from "./episode_head.js";
import { episodeOperator } from "./episode_operator.js";
import { factsPanel } from "./facts.js";
import { shortChain } from "./format.js";
import { listenForKeys, showKeys } from "./keys.js";
import { loadEpisode } from "./loading.js";
import { machinePanel } from "./machine.js";
import { notesPanel } from "./notes.js";
import { packetsPanel } from "./packets.js";
import { Player } from "./player.js";
import { rawPanel } from "./raw.js";
import { keepAddress } from "./resting.js";
import { episodeAddress } from "./router.js";
import { stagePanel } from "./stage.js";
import { playerKeys } from "./steering.js";
import { timelinePanel, toRefusal } from "./timeline.js";

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
  #generation = 0;
  #at = 0; // the cursor's step, for when steps are dropped and indexes mean others

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
    this.#ends.push(listenForKeys(this.#acts(track)), this.#player.subscribe(() => this.#remember(track)));
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
      this.#add(episodeOperator(given)).element,
      this.#grid(given, governed),
    );
  }

  #grid(given, governed) {
    const stage = this.#add(stagePanel(given));
    const timeline = this.#add(timelinePanel({ ...given, onHelp: showKeys }));
    const charts = this.#add(chartsPanel(given));
    const known = [factsPanel(given), notesPanel(given)].map((panel) => this.#add(panel).element);
    const machine = governed ? this.#add(machinePanel(given)) : null;
    this.#packets = governed ? this.#add(packetsPanel(given)) : null;
    const raw = this.#add(rawPanel(given));
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
    const { track } = this.#loaded;
    this.#player.grow(track.length);
    if (track.generation !== this.#generation && !this.#player.follow) {
      this.#player.relocate(track.indexOfStep(this.#at));
    }
    this.#generation = track.generation;
    this.#seekWanted(track);
    this.trouble.hidden = true;
    this.#panels.forEach((panel) => panel.update());
  }

  #remember(track) {
    if (track.generation === this.#generation) {
      this.#at = track.step(Math.min(this.#player.index, track.length - 1));
    }
  }

  #seekWanted(track) {
    const isThere = this.#step !== null && (track.step(track.length - 1) >= this.#step || !track.more);
    if (isThere) {
      this.#player.seek(track.indexOfStep(this.#step), this.#step);
      this.#step = null;
      this.#address.settle();
    }
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
