"""A random player of one served session as a child: `python -m bench.ledger_player URL`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from bench.control_load import answer_rates_of
from bench.measure import drawn_actions, stepping
from proctor.client import RemoteEnv

CHUNK: Final = 32


def playing(stack: ExitStack, url: str, steps: int) -> Callable[[], int]:
    """Return a chunk of random steps in one session that `stack` closes; where an episode ends, the next begins."""
    env = RemoteEnv(url)
    stack.callback(env.close)
    env.reset(seed=0)
    kinds = int(env.action_space.n)  # type: ignore[attr-defined]  # a Discrete space
    return stepping(env, drawn_actions(steps, kinds))


def main(url: str) -> None:
    """Answer every `go SECONDS` with the steps a second."""
    with ExitStack() as stack:
        answer_rates_of(playing(stack, url, CHUNK))


if __name__ == "__main__":
    main(*sys.argv[1:])
