"""The environment behind the client's tests: it counts, it tells which instance it is, and it waits when told to."""

import itertools
import threading

from pydantic import JsonValue

from proctor.contracts.environment import Environment
from proctor.errors import ValidationError
from proctor.models.wire import Action, Observation, State

INSTANCES = itertools.count(1)
PATIENCE = 120.0


class Gate:
    """Holds every step that asks for it until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def close(self) -> None:
        self.reached.clear()
        self.opened.clear()

    def hold(self) -> None:
        self.reached.set()
        assert self.opened.wait(PATIENCE)


GATE = Gate()
"""One for all: the server of a test runs in the test's own process."""


class Count(Action):
    """How much to add; `wait` holds the step at the gate."""

    by: int = 1
    wait: bool = False


class Counted(Observation):
    """The sum, and of which instance's which episode it is."""

    total: int
    steps: int
    episode: int
    instance: int


class CountState(State):
    """The sum."""

    total: int = 0


class Counting(Environment[Count, Counted, CountState]):
    """Adds up; ends at 100, is cut at -100; -99 raises, 13 is refused."""

    def __init__(self) -> None:
        self.instance = next(INSTANCES)
        self.episode = self.steps = self.total = 0
        self.episode_id: str | None = None
        self.start = 0

    def configure(self, options: dict[str, JsonValue]) -> None:
        start = options.get("start", 0)
        if options.keys() - {"start"} or not isinstance(start, int):
            raise ValidationError("unknown option", found=sorted(options), expected="start")
        self.start = start

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Counted:
        self.episode += 1
        self.episode_id, self.steps, self.total = episode_id, 0, self.start + (seed or 0)
        return self._seen(None)

    def step(self, action: Count) -> Counted:
        if action.wait:
            GATE.hold()
        if action.by == -99:
            raise RuntimeError("a text from inside")
        if action.by == 13:
            raise ValidationError("13 is not added", expected="another number")
        self.steps += 1
        self.total += action.by
        return self._seen(float(action.by))

    def _seen(self, reward: float | None) -> Counted:
        return Counted(
            total=self.total,
            steps=self.steps,
            episode=self.episode,
            instance=self.instance,
            reward=reward,
            terminated=self.total >= 100,
            truncated=self.total <= -100,
            metadata={"seed": 7} if reward is None else {},
        )

    @property
    def state(self) -> CountState:
        return CountState(episode_id=self.episode_id, step_count=self.steps, total=self.total)


class QuickCounting(Counting):
    """The same on the server's event loop."""

    quick = True


class SharedCounting(Counting):
    """The same for two agents at once."""

    quick = True
    max_agents = 2
