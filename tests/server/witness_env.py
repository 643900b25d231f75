"""An environment whose every observation says who it is, and a ledger of what environments were really asked to do.

Rule 1: an observation names its instance, its episode in that instance, its step and the request's own number: an answer
    that belongs to another session, episode, step or request cannot hide.
Rule 2: the ledger is written by the environments alone. What ran, ran there.
Rule 3: a step that is told to hold stays inside until `Ledger.release`; nothing here waits longer than `PATIENCE`.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import os
import threading
from collections import Counter
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from pydantic import JsonValue

from proctor.access.credentials import CONTROL
from proctor.contracts.environment import Environment
from proctor.errors import ValidationError
from proctor.models.wire import Action, Observation, State

PATIENCE: Final = 120.0
INSIDE: Final = "a text from inside, 51c7"
"""What these environments' own exceptions say; no peer may ever read it."""

How: TypeAlias = Literal["move", "end", "cut", "hold", "raise", "refuse"]
"""Go on, terminate, truncate, stay inside until released, raise an exception, refuse the action."""


class Ledger:
    """What was asked of the environments in this process, by the requests' numbers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self.clear()

    def clear(self) -> None:
        """Forget everything but the instances' numbers, which are never given twice."""
        self.asked: Counter[int] = Counter()
        self.made: set[int] = set()
        self.closed: Counter[int] = Counter()
        self._gates: dict[int, Callable[[], object]] = {}

    def new_instance(self) -> int:
        with self._lock:
            number = next(self._numbers)
            self.made.add(number)
            return number

    def ask(self, nonce: int) -> None:
        with self._lock:
            self.asked[nonce] += 1

    def close(self, instance: int) -> None:
        """Count it, unless it was made before everything was forgotten: who made it may end later than a test begins."""
        with self._lock:
            if instance in self.made:
                self.closed[instance] += 1

    def hold(self, nonce: int, release: Callable[[], object]) -> None:
        with self._lock:
            self._gates[nonce] = release

    @property
    def holding(self) -> frozenset[int]:
        """The requests that are, or were, inside and have not been released."""
        with self._lock:
            return frozenset(self._gates)

    def release(self, nonce: int) -> None:
        """Let a held request go on."""
        with self._lock:
            gate = self._gates.pop(nonce)
        gate()

    def release_all(self) -> None:
        for nonce in self.holding:
            self.release(nonce)


LEDGER: Final = Ledger()


class Deed(Action):
    """What to do; `nonce` is the request's own number."""

    nonce: int = 0
    how: How = "move"


class Sight(Observation):
    """Who answers, and where it stands."""

    instance: int
    episode: int
    step: int
    nonce: int


class Standing(State):
    """The same without a request."""

    instance: int
    episode: int


class _Witness:
    """What both kinds of witnesses do; a reset's number is its seed, and its options say `how`."""

    def __init__(self) -> None:
        self._instance = LEDGER.new_instance()
        self._episode = 0
        self._step = 0
        self._episode_id: str | None = None
        self._how: JsonValue = "move"

    def configure(self, options: dict[str, JsonValue]) -> None:
        if options.get("how") == "refuse":
            raise ValidationError("these options are refused")
        self._how = options.get("how", "move")

    @property
    def state(self) -> Standing:
        return Standing(
            episode_id=self._episode_id, step_count=self._step, instance=self._instance, episode=self._episode
        )

    def _begun(self, nonce: int, episode_id: str | None) -> Sight:
        self._episode += 1
        self._step, self._episode_id = 0, episode_id
        return Sight(instance=self._instance, episode=self._episode, step=0, nonce=nonce)

    def _how_to_begin(self, seed: int | None) -> JsonValue:
        LEDGER.ask(seed or 0)
        how, self._how = self._how, "move"
        if how == "raise":
            raise RuntimeError(INSIDE)
        return how

    def _how_to_move(self, action: Deed) -> None:
        LEDGER.ask(action.nonce)
        if action.how == "refuse":
            raise ValidationError("this action is refused")
        if action.how == "raise":
            raise RuntimeError(INSIDE)

    def _moved(self, action: Deed) -> Sight:
        self._step += 1
        return Sight(
            instance=self._instance,
            episode=self._episode,
            step=self._step,
            nonce=action.nonce,
            reward=float(action.nonce),
            terminated=action.how == "end",
            truncated=action.how == "cut",
        )


class Witness(_Witness, Environment[Deed, Sight, Standing]):
    """A witness that may block, so that a server runs it on a thread."""

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Sight:
        if self._how_to_begin(seed) == "hold":
            _wait_inside(seed or 0)
        return self._begun(seed or 0, episode_id)

    def step(self, action: Deed) -> Sight:
        self._how_to_move(action)
        if action.how == "hold":
            _wait_inside(action.nonce)
        return self._moved(action)

    def close(self) -> None:
        LEDGER.close(self._instance)


class QuickWitness(Witness):
    """A witness that a server may run on its event loop; it must not be told to hold."""

    quick = True


class AsyncWitness(_Witness, Environment[Deed, Sight, Standing]):
    """A witness whose steps are coroutines."""

    async def reset(self, seed: int | None = None, episode_id: str | None = None) -> Sight:
        if self._how_to_begin(seed) == "hold":
            await _await_inside(seed or 0)
        return self._begun(seed or 0, episode_id)

    async def step(self, action: Deed) -> Sight:
        self._how_to_move(action)
        if action.how == "hold":
            await _await_inside(action.nonce)
        return self._moved(action)

    async def close(self) -> None:
        LEDGER.close(self._instance)


class Address(Observation):
    """Which process answers, and whether it can read the control plane's secret."""

    pid: int
    knows: bool


class Whereabouts(Environment[Action, Address, State]):
    """Tells where it runs, for servers of several processes; the reward is the number of its steps."""

    def __init__(self) -> None:
        self._steps = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Address:
        self._steps = 0
        return self._address(None)

    def step(self, action: Action) -> Address:
        self._steps += 1
        return self._address(float(self._steps))

    def _address(self, reward: float | None) -> Address:
        return Address(pid=os.getpid(), knows=CONTROL.variable in os.environ, reward=reward)

    @property
    def state(self) -> State:
        return State(step_count=self._steps)


def only_at_home() -> Whereabouts:
    """Return an environment; in a process that another Python has started, end the process."""
    if multiprocessing.parent_process() is not None:
        os._exit(3)
    return Whereabouts()


class Speech(Observation):
    """Much to read."""

    text: str


class Talkative(Environment[Action, Speech, State]):
    """Answers with a megabyte, for peers that do not read."""

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Speech:
        return Speech(text="word " * 200_000)

    def step(self, action: Action) -> Speech:
        return Speech(text="word " * 200_000)

    @property
    def state(self) -> State:
        return State()


def _wait_inside(nonce: int) -> None:
    gate = threading.Event()
    LEDGER.hold(nonce, gate.set)
    if not gate.wait(PATIENCE):
        raise TimeoutError("nobody released a held step")


async def _await_inside(nonce: int) -> None:
    gate, loop = asyncio.Event(), asyncio.get_running_loop()

    def release() -> None:
        # A step that was given up holds no longer, and the loop that it ran on may be closed.
        if not loop.is_closed():
            loop.call_soon_threadsafe(gate.set)

    LEDGER.hold(nonce, release)
    await gate.wait()  # as long as the server's own time-out lets it
