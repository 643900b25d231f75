"""An echo that counts, written for OpenEnv the normal way, once synchronous and once asynchronous.

`bench.control_env` is the same environment written for Proctor. Episodes never end, so that only steps are measured.
"""

import os
import uuid
from typing import Any

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class EchoAction(Action):  # type: ignore[misc]  # installed for some targets only
    """What to say."""

    message: str


class EchoObservation(Observation):  # type: ignore[misc]  # likewise
    """What was said, and how often something was."""

    echoed: str = ""
    count: int = 0


class EchoEnvironment(Environment[EchoAction, EchoObservation, State]):  # type: ignore[misc]  # likewise
    """An echo, synchronous."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State()

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> EchoObservation:
        """Begin to count."""
        self._state = State(episode_id=episode_id or str(uuid.uuid4()), step_count=0)
        return EchoObservation(echoed="", count=0)

    def step(self, action: EchoAction, timeout_s: float | None = None, **_: Any) -> EchoObservation:
        """Say it again; "break the chain" is what it cannot say."""
        if action.message == "break the chain":
            raise RuntimeError("the chain broke")
        self._state.step_count += 1
        return EchoObservation(echoed=action.message, count=self._state.step_count, reward=1.0)

    @property
    def state(self) -> State:
        """The episode and the count."""
        return self._state


class AsyncEchoEnvironment(EchoEnvironment):
    """The same, asynchronous: OpenEnv runs it on its event loop."""

    async def reset_async(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> EchoObservation:
        """Begin to count."""
        return self.reset(seed, episode_id)

    async def step_async(self, action: EchoAction, timeout_s: float | None = None, **_: Any) -> EchoObservation:
        """Say it again."""
        return self.step(action)


def served() -> type[EchoEnvironment]:
    """Return the environment that `PROCTOR_BENCH_ENV` names: sync (default) or async."""
    return AsyncEchoEnvironment if os.environ.get("PROCTOR_BENCH_ENV") == "async" else EchoEnvironment
