/*
 * All episodes that are known, which of them are wanted, and in which order. Pure.
 *
 * Rule 1: a line is known by its chain; a newer one takes the place of the older.
 * Rule 2: what is not known sorts last in either direction; equal ones stand newest first, then by name.
 */

/** The columns of the list: `key` names it, `value` is what it sorts by, `first` the direction of the first press. */
export const COLUMNS = [
  { key: "environment", label: "Environment", value: (line) => line.environment.toLowerCase(), first: "ascending" },
  { key: "agent", label: "Agent", value: (line) => line.agent.toLowerCase() || null, first: "ascending" },
  { key: "state", label: "State", value: (line) => `${line.live ? 0 : 1}${line.state}`, first: "ascending" },
  { key: "outcome", label: "Outcome", value: (line) => line.outcome, first: "ascending" },
  { key: "steps", label: "Steps", value: (line) => line.steps, first: "descending", number: true },
  { key: "return", label: "Return", value: (line) => line.total_reward, first: "descending", number: true },
  { key: "refusals", label: "Refusals", value: (line) => line.refusals, first: "descending", number: true },
  { key: "tier", label: "Tier", value: (line) => line.tier || null, first: "ascending" },
  { key: "age", label: "Age", value: (line) => -line.opened_at, first: "ascending", number: true },
];

export const NO_FILTERS = { text: "", live: false, governed: false, refused: false, environment: "" };

export class Catalogue {
  constructor() {
    this.byChain = new Map();
  }

  get size() {
    return this.byChain.size;
  }

  chains() {
    return [...this.byChain.keys()];
  }

  line(chain) {
    return this.byChain.get(chain) ?? null;
  }

  /** Take lines in; returns those that are new or changed. */
  merge(lines) {
    const changed = lines.filter((line) => !isSame(this.byChain.get(line.chain), line));
    changed.forEach((line) => this.byChain.set(line.chain, line));
    return changed;
  }

  /** Take out episodes that are not there any more; returns whether there were such. */
  drop(chains) {
    return chains.filter((chain) => this.byChain.delete(chain)).length > 0;
  }

  /** Return the names of environments, in order. */
  environments() {
    return [...new Set([...this.byChain.values()].map((line) => line.environment))].sort();
  }

  /** Return the lines that `filters` let through, in the order of `sort`. */
  view(filters, sort) {
    const wanted = [...this.byChain.values()].filter(matcher(filters));
    return ordered(wanted, sort);
  }
}

/** Return what tells whether a line is wanted; every word of the text must be in it somewhere. */
export function matcher(filters) {
  const words = filters.text.toLowerCase().split(/\s+/).filter(Boolean);
  return (line) =>
    (!filters.live || line.live) &&
    (!filters.governed || line.governed) &&
    (!filters.refused || line.refusals > 0) &&
    (filters.environment === "" || line.environment === filters.environment) &&
    words.every((word) => textOf(line).includes(word));
}

/** Return lines in the order of `{key, direction}`. */
export function ordered(lines, { key, direction }) {
  const column = COLUMNS.find((each) => each.key === key) ?? COLUMNS.at(-1);
  const sign = direction === "descending" ? -1 : 1;
  const keyed = lines.map((line) => ({ line, value: column.value(line) }));
  keyed.sort((one, other) => compared(one.value, other.value, sign) || settled(one.line, other.line));
  return keyed.map((each) => each.line);
}

/** Return the order after a column's button was pressed: the other direction, or a new column's own. */
export function pressed(sort, key) {
  const column = COLUMNS.find((each) => each.key === key);
  if (sort.key !== key) {
    return { key, direction: column.first };
  }
  return { key, direction: sort.direction === "ascending" ? "descending" : "ascending" };
}

function compared(one, other, sign) {
  if (one === other) {
    return 0;
  }
  if (isMissing(one) || isMissing(other)) {
    return Number(isMissing(one)) - Number(isMissing(other));
  }
  return one < other ? -sign : sign;
}

function isMissing(value) {
  return value === null || value === undefined || Number.isNaN(value);
}

function settled(one, other) {
  return other.opened_at - one.opened_at || (one.chain < other.chain ? -1 : 1);
}

function textOf(line) {
  const fields = [line.environment, line.agent, line.state, line.outcome, line.reason, line.tier, line.chain];
  return `${fields.join("\n")}\n${line.episode_id}\n${line.seed ?? ""}`.toLowerCase();
}

/** A row's number alone is not enough: a session may be found to be lost without a new row. */
function isSame(known, line) {
  return known !== undefined && Object.keys(line).every((key) => known[key] === line[key]);
}
