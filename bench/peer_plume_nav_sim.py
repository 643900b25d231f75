"""The child that measures plume-nav-sim: its default environment, made as its own pages say, with random actions.

It runs in the peers' virtual environment and shares `bench.measure` with us, so both sides are timed by the same code.
"""

import json
import os
import sys

import plume_nav_sim

from bench.measure import drawn_actions, rate, stepping


def main() -> None:
    """Answer every `go SECONDS` with the steps a second."""
    # Whatever the package prints goes elsewhere: standard output carries answers only.
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    env = plume_nav_sim.make_env()
    env.reset(seed=0)
    chunk = stepping(env, drawn_actions(4096, int(env.action_space.n)))
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps({"rate": rate(chunk, float(line.split()[1]))}), file=answers, flush=True)


if __name__ == "__main__":
    main()
