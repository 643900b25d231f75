/*
 * The packets of an episode with their verdicts: a list that follows the cursor, and the chosen one in words.
 *
 * Rule 1: choosing a packet moves the cursor to its step; moving the cursor chooses the last packet before it.
 * Rule 2: all words come from the server or from the packet. What is known without asking is shown at once; an
 *     explanation is asked for when the cursor rests, once, and one that comes too late is dropped. Where it did not
 *     come, that is said, and it can be asked for again.
 */

import { button, choice, clear, definitions, el, fold, setText } from "./dom.js";
import { time } from "./format.js";
import { copyButton, jsonTree } from "./json_tree.js";
import {
  FILTERS,
  Kept,
  choosePacket,
  kindWords,
  packetsSeen,
  sentence,
  stateChange,
  variant,
  verdict,
  who,
} from "./packet_words.js";
import { RollingList } from "./rolling_list.js";
import { NOT_HERE } from "./source.js";

const LISTED = 4; // longer lists are folded

/** Returns what can be said of a packet alone, without the server; `missing`: why the server said nothing. */
export function stated(packet, missing = "") {
  const said = [kindWords(packet.kind), variant(packet)].filter(Boolean).join(" ");
  return {
    headline: packet.accepted ? `${said}: ${verdict(packet).word}.` : `${said} was refused.`,
    reason: packet.reason,
    pointers: packet.pointers,
    rules: packet.rules.map((rule) => ({ rule, sentence: "" })),
    legal_next: [],
    way: [],
    obligations: [],
    advice: "",
    missing,
  };
}

/** Returns the details of one packet; `explanation` is the server's, or what `stated` says. */
function explained(packet, explanation, { announce, openRow, askAgain }) {
  return el(
    "article",
    { class: "verdict", dataset: { tone: verdict(packet).tone }, "aria-label": "The selected packet" },
    head(packet, explanation),
    explanation.missing ? missing(explanation.missing, askAgain) : null,
    facts(packet),
    rules(explanation),
    chips("Legal now", explanation.legal_next),
    way(explanation.way),
    listed("Still owed", explanation.obligations),
    listed("Warnings", packet.warnings),
    explanation.advice ? el("p", { class: "advice" }, explanation.advice) : null,
    json(packet, explanation, announce),
    openRow === null ? null : fold("Raw JSON of the recorded row", { class: "verdict-json" }, openRow),
  );
}

/** Returns a small coloured word. */
function chip(word, tone = "") {
  return el("span", { class: `badge ${tone}` }, word);
}

function head(packet, { headline, reason }) {
  const { word, tone } = verdict(packet);
  const more = reason && !headline.includes(reason) ? el("p", { class: "verdict-reason" }, reason) : null;
  return el("header", null, el("h3", null, chip(word, tone), " ", headline), more);
}

function missing(why, askAgain) {
  const again = button("Ask again", askAgain, { class: "small-button" });
  return el("p", { class: "quiet" }, `The explanation could not be read: ${why} `, again);
}

function facts(packet) {
  const pairs = [
    ["who", who(packet)],
    ["step", String(packet.step)],
    ["row", String(packet.seq)],
    ["state", stateChange(packet)],
    ["tool", packet.tool],
    ["packet", packet.packet_id],
  ];
  return definitions(pairs, { class: "verdict-facts" });
}

/** Returns a list below a heading, nothing if there is nothing in it. */
function block(title, items, tag, props) {
  if (items.length === 0) return null;
  const list = el(tag, props, items.map((item) => el("li", item)));
  return el("section", { class: "verdict-block" }, el("h4", title), list);
}

function rules(explanation) {
  const items = explanation.rules.map(({ rule, sentence }) => [chip(rule, "bad"), " ", sentence]);
  return block("Broken rules", items, "ul", { class: "verdict-rules" });
}

function chips(title, words) {
  return block(title, words.map((word) => chip(word, "accent")), "ul", { class: "chips" });
}

function way(steps) {
  return block("The shortest way there", steps.map((step) => chip(step)), "ol", { class: "way" });
}

function listed(title, words) {
  if (words.length <= LISTED) return block(title, words, "ul", { class: "plain" });
  const list = el("ul", { class: "plain" }, words.map((word) => el("li", word)));
  return el("details", el("summary", `${title} (${words.length})`), list);
}

function json(packet, explanation, announce) {
  const pointers = explanation.pointers;
  const copy = copyButton(() => JSON.stringify(packet.line, null, 2), announce);
  const where = pointers.map((pointer) => el("code", pointer));
  const opened = new Set(["", "/payload"]);
  const fill = (inner) =>
    inner.append(
      ...(where.length > 0 ? [el("p", { class: "pointers" }, where)] : []),
      el("div", { class: "json-tools" }, copy),
      jsonTree(packet.line, { pointers, opened }),
    );
  const title = pointers.length > 0 ? "Where in the packet" : "Raw JSON of the packet";
  return fold(title, { class: "verdict-json", open: pointers.length > 0 }, fill);
}

const REST = 140; // milliseconds without a move before the server is asked
const PACE = 80; // milliseconds between two looks at the cursor
const REMEMBERED = 200;
const made = { panels: 0 };

/** A Panel, with `move(by)` for the page's keys besides; without packets it is one sentence. */
export class PacketsPanel {
  constructor({ head, track, player, context }) {
    made.panels += 1;
    Object.assign(this, { head, track, player, context, prefix: `packets-${made.panels}`, kept: null, position: -1 });
    Object.assign(this, { known: new Map(), shown: null, timer: null, late: null, closed: false });
    this.moved = this.followed = -Infinity;
    this.list = new RollingList({
      label: "Packets",
      row: (place) => this.row(place),
      choose: (place) => this.choose(this.kept.positions[place]),
    });
    this.count = el("span", { class: "quiet small" });
    this.details = el("div", { class: "packet-details" });
    this.none = el("p", { class: "quiet packets-none" });
    this.body = el(
      "div",
      { class: "packets-body" },
      el("div", { class: "packets-list" }, this.list.element, this.none),
      this.details,
    );
    this.element = el(
      "section",
      { class: "panel packets", "aria-label": "Packets and verdicts" },
      el("div", { class: "panel-head" }, el("h2", null, "Packets and verdicts"), this.count),
      this.filters(),
      this.body,
    );
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.unsubscribe = player.subscribe(() => this.follow());
    this.filter(FILTERS[0]);
  }

  close() {
    this.closed = true;
    this.unsubscribe();
    this.list.close();
    clearTimeout(this.timer);
    clearTimeout(this.late);
  }

  filters() {
    const choose = (name) => this.filter(FILTERS.find((each) => each.name === name));
    const options = FILTERS.map(({ name, label }) => [name, label]);
    return choice("Which packets", `${this.prefix}-filter`, options, choose, "packets-filters");
  }

  filter(filter) {
    this.kept = new Kept(filter.keeps);
    this.kept.extend(this.track.packets);
    this.list.scroll(0);
    this.list.resize(this.kept.length, true);
    this.tally();
    this.keepUp();
  }

  update() {
    const before = this.kept.length;
    this.kept.extend(this.track.packets);
    if (this.kept.length !== before) this.list.resize(this.kept.length);
    this.tally();
    this.follow();
  }

  tally() {
    const [all, shown] = [this.track.packets.length, this.kept.length];
    setText(this.count, all === shown ? `${all}` : `${shown} of ${all}`);
    const words = all > 0 ? "No packet is of this kind." : "No packet was judged in this episode.";
    setText(
      this.none,
      this.head.line.governed || all > 0 ? words : "This episode is not governed: no packets are judged.",
    );
    this.none.hidden = shown > 0;
    this.list.element.hidden = shown === 0;
  }

  /** Follows the cursor, but not in every frame: the eye cannot read that fast, and the stage needs the time. */
  follow() {
    const passed = performance.now() - this.followed;
    if (passed >= PACE) this.keepUp();
    else this.late ??= setTimeout(() => this.keepUp(), PACE - passed);
  }

  keepUp() {
    clearTimeout(this.late);
    this.late = null;
    this.followed = performance.now();
    if (!this.closed) this.select(packetsSeen(this.track, this.player) - 1);
  }

  choose(position) {
    if (this.track.packets[position] === undefined) return;
    choosePacket(this.track, this.player, position);
    this.select(position);
  }

  /** The page's keys for packets also work on this panel's own controls. */
  key(event) {
    const by = { j: 1, k: -1 }[event.key];
    if (by === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.move(by);
  }

  /** Goes to the next (1) or the previous (-1) packet of the list. */
  move(by) {
    const place = this.kept.placeOf(this.position);
    const onOne = place >= 0 && this.kept.positions[place] === this.position;
    const next = by < 0 && !onOne ? place : place + by;
    this.choose(this.kept.positions[Math.min(this.kept.length - 1, Math.max(0, next))]);
  }

  select(position) {
    const place = this.kept.placeOf(position);
    if (place !== this.list.chosen || position !== this.position) this.list.mark(place);
    this.position = place >= 0 ? this.kept.positions[place] : -1;
    this.detail(this.position);
  }

  row(place) {
    const packet = this.track.packets[this.kept.positions[place]];
    const { word, tone } = verdict(packet);
    const said = [kindWords(packet.kind), variant(packet)].filter(Boolean).join(" ");
    const rules = packet.accepted ? null : el("span", { class: "packet-rules" }, packet.rules.join(" "));
    return {
      tone,
      title: sentence(packet),
      children: [
        el("span", { class: "packet-step" }, `${packet.step}`),
        el("span", { class: "packet-time" }, time(packet.at).slice(11)),
        el("span", { class: "packet-who" }, who(packet)),
        el(
          "span",
          { class: "packet-kind" },
          said,
          packet.tool ? el("span", { class: "packet-tool" }, ` ${packet.tool}`) : null,
        ),
        el("span", { class: "packet-verdict" }, el("span", { class: `badge ${tone}` }, word), rules),
        el("span", { class: "packet-state" }, stateChange(packet)),
      ],
    };
  }

  /** While it plays or is scrubbed, the words wait until it rests. */
  detail(position) {
    if (this.shown === position) return;
    this.shown = position;
    clearTimeout(this.timer);
    const now = performance.now();
    const isResting = !this.player.playing && now - this.moved > REST;
    this.moved = now;
    if (isResting) this.drawn(position);
    else this.timer = setTimeout(() => this.drawn(position), REST);
  }

  drawn(position) {
    const packet = this.track.packets[position];
    if (packet === undefined) {
      clear(this.details).append(
        el("p", { class: "quiet" }, this.track.packets.length > 0 ? "Nothing was judged before this step." : ""),
      );
      return;
    }
    this.draw(packet, this.known.get(packet.number) ?? stated(packet));
    if (!this.known.has(packet.number)) this.timer = setTimeout(() => this.ask(packet, position), REST);
  }

  async ask(packet, position) {
    const explanation = await this.explanation(packet);
    if (this.shown === position && !this.closed) this.draw(packet, explanation);
  }

  /**
   * Returns the server's words; where it has none (a file keeps those of refusals only), the packet's own. Those of a
   * packet whose question failed are not remembered: it is asked for again.
   */
  async explanation(packet) {
    try {
      return this.remember(packet, await this.context.source.explanation(this.head.line.chain, packet.number));
    } catch (problem) {
      return problem.code === NOT_HERE ? this.remember(packet, stated(packet)) : stated(packet, problem.message);
    }
  }

  remember(packet, explanation) {
    if (this.known.size >= REMEMBERED) this.known.clear();
    this.known.set(packet.number, explanation);
    return explanation;
  }

  draw(packet, explanation) {
    clear(this.details).append(
      explained(packet, explanation, {
        announce: this.context.announce,
        openRow: (inner) => this.openRow(packet, inner),
        askAgain: () => this.ask(packet, this.shown),
      }),
    );
  }

  async openRow(packet, inner) {
    inner.append(el("p", { class: "quiet small" }, "Loading…"));
    try {
      const row = await this.context.source.raw(this.head.line.chain, packet.number);
      clear(inner).append(jsonTree(row));
    } catch (problem) {
      clear(inner).append(el("p", { class: "quiet small" }, `The row cannot be read: ${problem.message}`));
    }
  }
}
