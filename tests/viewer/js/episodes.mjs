// Episodes for the tests of the player: heads and slices as the server sends them.

/** Returns a head; `more` replaces its fields, `line` those of its line. */
export function headOf({ line = {}, ...more } = {}) {
  return {
    line: {
      chain: "s.1", session: "s", epoch: 1, episode_id: "", environment: "env", agent: "", state: "ready",
      outcome: null, reason: null, steps: 0, total_reward: null, refusals: 0, tier: "none", opened_at: 100,
      closed_at: null, last_at: 100, live: false, governed: false, num_envs: null, seed: null, terminated: false,
      truncated: false, rows: 1, last: 1, fork: false, ...line,
    },
    target: "env", settings: {}, policy: null, transforms: [], options: null, versions: {}, scene: null,
    observation: null, keeps: "all", first: 1, ...more,
  };
}

/** Returns a slice with the steps from `from` to `to`, a row each; the reward of every step is 1. */
export function sliceOf(from, to, { after = from, every = 1, ...more } = {}) {
  const step = Array.from({ length: to - from + 1 }, (_, i) => from + i).filter((each) => (each - from) % every === 0);
  const column = (value) => step.map(value);
  return {
    chain: "s.1", after, last: to + 1, more: false, ended: false, thinned: every, packets: [], notes: [], ...more,
    steps: {
      number: column((each) => each + 1), seq: column((each) => each), step, at: column((each) => 100 + each),
      action: column(() => ({ action: 0 })), observation: column((each) => ({ observation: [each] })),
      reward: column(() => 1), raw_reward: column(() => 1), parts: {}, total: column((each) => each - from + 1),
      ended: column(() => 0), scene: column(() => null), tool: column(() => null), ...more.steps,
    },
  };
}

/** Returns a judged packet at a row. */
export function packetAt(number, accepted = true, more = {}) {
  return { number, step: number - 1, judged: accepted, accepted, warnings: [], ...more };
}
