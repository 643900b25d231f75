"""An environment in a whole process of its own, the anchor of a worker: `python -m bench.sandbox_alone TARGET`.

It imports what a worker has imported, makes the environment and says `made`; then it resets and steps, says `stepped`, and
waits until its input ends. There is no sandbox around it.
"""

from __future__ import annotations

import sys
from typing import Final

from proctor.envs.targets import Target
from proctor.models.wire import PLAIN
from proctor.server.runtime.env_adapter import ResetRequest
from proctor.server.runtime.executors import make_adapter
from proctor.server.runtime.results import new_incident
from proctor.server.sandbox.worker import worker

ORDER: Final = ResetRequest(0, "0123456789abcdef0123", None)
ACTION: Final = b'{"action":0}'
STEPS: Final = 5
IMPORTED: Final = worker
"""A worker is forked from a process that has imported this."""


def main(target: str) -> None:
    """Make it, step it, wait."""
    adapter = make_adapter(Target(target), PLAIN, new_incident, num_envs=None, autoreset_mode=None, infos=False)
    print("made", flush=True)
    adapter.reset(ORDER)
    for _ in range(STEPS):
        adapter.step(ACTION)
    print("stepped", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
