// The name of a side: its sign, the choice of another episode, and a link to its own page.
//
// Rule 1: those of the same environment come first; a very long list is cut, newest first.
// Rule 2: a fork says that it is not recorded; one that was made here has no page of its own.

import { sideBadge } from "./differing.js";
import { el } from "./dom.js";
import { number, shortChain } from "./format.js";
import { SIDES } from "./pair.js";
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
  return [
    isListed ? null : el("option", { value: line.chain, selected: true }, words(line)),
    group("Same environment", lines.filter(isNear), side),
    group(
      "Other environments",
      lines.filter((each) => !isNear(each)),
      side,
    ),
  ];
}

function group(label, lines, side) {
  if (lines.length === 0) return null;
  const { chain } = side.head.line;
  const shown = lines.filter((line, at) => at < MOST || line.chain === chain);
  return el(
    "optgroup",
    { label },
    shown.map((line) => el("option", { value: line.chain, selected: line.chain === chain }, words(line))),
  );
}

function words(line) {
  const paid = line.total_reward === null ? "" : `, return ${number(line.total_reward, 2)}`;
  return `${line.environment} ${shortChain(line.chain)}: ${line.steps} steps${paid}`;
}
