"""The echo of `bench.peer_openenv_env`, written for Proctor: `proctor serve bench.control_env:quick`, `:threaded`, `:asynchronous`."""

from __future__ import annotations

from proctor.contracts.environment import Environment
from proctor.models.wire import Action, Observation, State


class EchoAction(Action):
    """What to say."""

    message: str


class EchoObservation(Observation):
    """What was said, and how often something was."""

    echoed: str = ""
    count: int = 0


class EchoEnvironment(Environment[EchoAction, EchoObservation, State]):
    """An echo that counts; its episodes never end."""

    def __init__(self) -> None:
        self._episode_id: str | None = None
        self._count = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> EchoObservation:
        """Begin to count."""
        self._episode_id, self._count = episode_id, 0
        return EchoObservation()

    def step(self, action: EchoAction) -> EchoObservation:
        """Say it again; "break the chain" is what it cannot say."""
        if action.message == "break the chain":
            raise RuntimeError("the chain broke")
        self._count += 1
        return EchoObservation(echoed=action.message, count=self._count, reward=1.0)

    @property
    def state(self) -> State:
        """The episode and the count."""
        return State(episode_id=self._episode_id, step_count=self._count)


class QuickEchoEnvironment(EchoEnvironment):
    """The same, which says of itself that it may run on a server's event loop."""

    quick = True


class AsyncEchoEnvironment(Environment[EchoAction, EchoObservation, State]):
    """The same, asynchronous."""

    quick = True

    def __init__(self) -> None:
        self._inner = EchoEnvironment()

    async def reset(self, seed: int | None = None, episode_id: str | None = None) -> EchoObservation:
        """Begin to count."""
        return self._inner.reset(seed, episode_id)

    async def step(self, action: EchoAction) -> EchoObservation:
        """Say it again."""
        return self._inner.step(action)

    @property
    def state(self) -> State:
        """The episode and the count."""
        return self._inner.state


quick = QuickEchoEnvironment
threaded = EchoEnvironment
asynchronous = AsyncEchoEnvironment
