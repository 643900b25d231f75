"""Environments that behave well, badly or not at all, and a diary of what was asked of them.

A target names a member of this file, `tests.server.environments:Counting`. The setting `key` names the diary, which a
test in the same process reads; an environment in another process writes a diary of its own, which nobody sees. An
action of 9 (`TROUBLE`) asks an environment that can go wrong in a step to do so; every other action is harmless.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import registry
from pydantic import Field

from proctor.contracts.environment import Environment
from proctor.contracts.tools import ToolSafety, tool
from proctor.errors import StateError, ValidationError
from proctor.models.wire import Action, Observation, State

PATIENCE = 120.0
"""No environment waits longer, so that a test that fails ends."""
TROUBLE = 9
HIDDEN_TEXT = "swordfish is the password"
"""The text of every exception that no peer may see."""
PLAIN_TEXT = "this move is not wanted"
"""The text of every exception that was written for a peer."""


class Call(NamedTuple):
    """One call of an environment: the how-manieth of its diary, the method, the thread."""

    instance: int
    method: str
    thread: int


@dataclass
class Diary:
    """What the environments of one key did; they wait for `gate`, and set `reached` when they do."""

    made: int = 0
    calls: list[Call] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    reached: threading.Event = field(default_factory=threading.Event)

    def note(self, instance: int, method: str) -> None:
        self.calls.append(Call(instance, method, threading.get_ident()))

    def count(self, method: str, instance: int | None = None) -> int:
        return sum(call.method == method and instance in (None, call.instance) for call in self.calls)

    def methods(self) -> list[str]:
        return [call.method for call in self.calls]

    def wait(self) -> None:
        """Wait until the test opens the gate."""
        self.reached.set()
        self.gate.wait(PATIENCE)


_DIARIES: defaultdict[str, Diary] = defaultdict(Diary)


def diary(key: str) -> Diary:
    """Return the diary of this key, a new one if nobody wrote in it yet."""
    return _DIARIES[key]


def children() -> set[int]:
    """Return the ids of our processes, the dead that nobody buried among them."""
    found = set()
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError, IndexError):
            status = (entry / "stat").read_text()
            if int(status.rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(entry.name))
    return found


class Move(Action):
    """An integer from 0 to 9."""

    action: int = Field(ge=0, le=9)


class Count(Observation):
    """How many steps the episode has had."""

    observation: int


class Other(Observation):
    """An observation that no environment here declares."""

    word: str = HIDDEN_TEXT


class Counting(Environment[Move, Count, State]):
    """Counts its steps; the reward is the action. Terminates with step `end`, is cut with step `cut`."""

    def __init__(self, key: str = "", end: int = 1000, cut: int = 1000) -> None:
        self.diary = diary(key)
        self.diary.made += 1
        self.instance = self.diary.made
        self.end, self.cut = end, cut
        self.steps = 0
        self.episode_id: str | None = None

    def note(self, method: str) -> None:
        self.diary.note(self.instance, method)

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Count:
        self.note("reset")
        self.steps, self.episode_id = 0, episode_id
        return Count(observation=seed or 0, metadata={"instance": self.instance})

    def step(self, action: Move) -> Count:
        self.note("step")
        return self.stepped(action)

    def stepped(self, action: Move) -> Count:
        self.steps += 1
        return Count(
            observation=self.steps,
            reward=float(action.action),
            terminated=self.steps >= self.end,
            truncated=self.steps >= self.cut,
        )

    @property
    def state(self) -> State:
        return State(episode_id=self.episode_id, step_count=self.steps)

    def close(self) -> None:
        self.note("close")


class Quick(Counting):
    """Counts on the event loop."""

    quick = True


class Spaced(Counting):
    """Counts, and says its spaces, which does not make it a Gymnasium environment."""

    @property
    def spaces(self) -> tuple[gym.Space[Any], gym.Space[Any]]:
        return gym.spaces.Discrete(10), gym.spaces.Discrete(1001)


class Optional(Counting):
    """Takes the option `from`: where to count from."""

    def configure(self, options: dict[str, Any]) -> None:
        if set(options) != {"from"}:
            raise ValidationError("unknown reset option", found=next(iter(options)), expected="from")
        self.first = int(options["from"])

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Count:
        super().reset(seed, episode_id)
        self.steps = getattr(self, "first", 0)
        return Count(observation=self.steps)


class Paid(Counting):
    """Pays `reward` for everything: a name of a float, such as nan."""

    def __init__(self, reward: str, key: str = "") -> None:
        super().__init__(key)
        self.reward = float(reward)

    def stepped(self, action: Move) -> Count:
        return Count(observation=1, reward=self.reward)


class Blocking(Counting):
    """Waits for its diary's gate in the method `where`; in a step only if told to. `mark` is a file for its process's id."""

    def __init__(self, key: str = "", where: str = "step", mark: str = "") -> None:
        super().__init__(key)
        self.where, self.mark = where, mark
        self.hold("make")

    def hold(self, method: str) -> None:
        if method == self.where:
            if self.mark:
                Path(self.mark).write_text(str(os.getpid()))
            self.diary.wait()

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Count:
        self.hold("reset")
        return super().reset(seed, episode_id)

    def stepped(self, action: Move) -> Count:
        if action.action == TROUBLE:
            self.hold("step")
        return super().stepped(action)

    @property
    def state(self) -> State:
        self.hold("state")
        return super().state

    def close(self) -> None:
        self.hold("close")
        super().close()


class Later(Environment[Move, Count, State]):
    """Counts with coroutines; told to, a step never ends unless it is cancelled."""

    def __init__(self, key: str = "", end: int = 1000) -> None:
        self.inner = Counting(key, end)

    async def reset(self, seed: int | None = None, episode_id: str | None = None) -> Count:
        await asyncio.sleep(0)
        return self.inner.reset(seed, episode_id)

    async def step(self, action: Move) -> Count:
        self.inner.note("step")
        await asyncio.sleep(0)
        if action.action == TROUBLE:
            await self._forever()
        return self.inner.stepped(action)

    async def _forever(self) -> None:
        self.inner.diary.reached.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.inner.note("given up")

    @property
    def state(self) -> State:
        return self.inner.state

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.inner.close()


class HalfLater(Counting):
    """Steps at once, but `reset` and `close` are coroutines."""

    def reset(  # type: ignore[override]  # an Environment may choose for each method; its parent has chosen already
        self, seed: int | None = None, episode_id: str | None = None
    ) -> Awaitable[Count]:
        return self._reset(seed, episode_id)

    async def _reset(self, seed: int | None, episode_id: str | None) -> Count:
        await asyncio.sleep(0)
        return super().reset(seed, episode_id)

    def close(self) -> Awaitable[None]:  # type: ignore[override]  # as above
        return self._close()

    async def _close(self) -> None:
        await asyncio.sleep(0)
        super().close()


EXCEPTIONS: dict[str, Callable[[], BaseException]] = {
    "error": lambda: RuntimeError(HIDDEN_TEXT),
    "value": lambda: ValueError(HIDDEN_TEXT),
    "stop": lambda: StopIteration(HIDDEN_TEXT),
    "exit": lambda: SystemExit(HIDDEN_TEXT),
    "cancelled": lambda: asyncio.CancelledError(HIDDEN_TEXT),
    "validation": lambda: ValidationError(PLAIN_TEXT, found=HIDDEN_TEXT, expected="another one", clause="ENV-STEP-P1"),
    "state": lambda: StateError(PLAIN_TEXT, clause="ENV-STEP-P1"),
}


class Raising(Counting):
    """Raises `what` in the method `where`; in a step only if told to."""

    def __init__(self, where: str = "step", what: str = "error", key: str = "", quick: bool = False) -> None:
        super().__init__(key)
        self.where, self.what = where, what
        self.quick = quick
        self.trouble("make")

    def trouble(self, method: str) -> None:
        if method == self.where:
            raise EXCEPTIONS[self.what]()

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Count:
        count = super().reset(seed, episode_id)
        self.trouble("reset")
        return count

    def stepped(self, action: Move) -> Count:
        if action.action == TROUBLE:
            self.trouble("step")
        return super().stepped(action)

    @property
    def state(self) -> State:
        self.trouble("state")
        return super().state

    def close(self) -> None:
        super().close()
        self.trouble("close")


class RaisingLater(Environment[Move, Count, State]):
    """Raises as `Raising` does, in coroutines."""

    def __init__(self, where: str = "step", what: str = "error", key: str = "") -> None:
        self.inner = Raising(where, what, key)

    async def reset(self, seed: int | None = None, episode_id: str | None = None) -> Count:
        await asyncio.sleep(0)
        return self.inner.reset(seed, episode_id)

    async def step(self, action: Move) -> Count:
        await asyncio.sleep(0)
        return self.inner.step(action)

    @property
    def state(self) -> State:
        return self.inner.state

    async def close(self) -> None:
        await asyncio.sleep(0)
        self.inner.close()


class Lying(Counting):
    """Answers with another type than it declares, in the method `where`; in a step only if told to."""

    def __init__(self, where: str = "step", key: str = "") -> None:
        super().__init__(key)
        self.where = where

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Any:
        count = super().reset(seed, episode_id)
        return Other() if self.where == "reset" else count

    def stepped(self, action: Move) -> Any:
        count = super().stepped(action)
        return Other() if self.where == "step" and action.action == TROUBLE else count

    @property
    def state(self) -> Any:
        return HIDDEN_TEXT if self.where == "state" else super().state


class Process(Counting):
    """Says in its metadata which process it is in and what that process can see."""

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Count:
        files = sorted(str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink())
        return Count(
            observation=0, metadata={"pid": os.getpid(), "variables": sorted(os.environ), "files": list(files)}
        )


class Corridor(gym.Env[Any, Any]):
    """A Gymnasium environment: a corridor that is `length` steps long, right (1) is onwards. Fails with step `fails_at`."""

    observation_space = gym.spaces.Box(-1000.0, 1000.0, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(
        self, length: int = 3, key: str = "", fails_at: int = 0, reward: str = "1", render_mode: str | None = None
    ) -> None:
        if fails_at < 0:
            raise ValueError(HIDDEN_TEXT)
        self.diary = diary(key)
        self.diary.made += 1
        self.instance = self.diary.made
        self.length, self.fails_at, self.reward = length, fails_at, float(reward)
        self.render_mode = render_mode
        self.at = self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.diary.note(self.instance, "reset")
        self.at = self.steps = 0
        return self._seen(), {"at": self.at, "word": "start", "odd": {1, 2}, "pair": (1, np.float32(0.5))}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.diary.note(self.instance, "step")
        self.steps += 1
        if self.steps == self.fails_at:
            raise RuntimeError(HIDDEN_TEXT)
        self.at += int(action)
        return self._seen(), self.reward, self.at >= self.length, False, {"at": self.at}

    def _seen(self) -> Any:
        return np.array([self.at], np.float32)

    def close(self) -> None:
        self.diary.note(self.instance, "close")


def corridor(**settings: Any) -> gym.Env[Any, Any]:
    """Return a Gymnasium environment, as a factory does."""
    return Corridor(**settings)


def counting(**settings: Any) -> Counting:
    """Return an Environment, as a factory does."""
    return Counting(**settings)


def fickle(key: str = "") -> Environment[Any, Any, Any]:
    """Return an environment that steps at once, and after that only such as step later."""
    return Later(key) if diary(key).made else Quick(key)


def nothing() -> object:
    """Return what is no environment."""
    return object()


NOT_A_FACTORY = "a word"

if "Corridor-v0" not in registry:
    gym.register("Corridor-v0", entry_point="tests.server.environments:Corridor")


class Crowded(Counting):
    """Counts for two agents at once, and lets them see their reward and one thing more."""

    max_agents = 2
    shows_reward = True
    agent_info = ("count",)


class Hasty(Counting):
    """Has tools that ask for several actions, of which the third is not wanted, and for far too many."""

    def step(self, action: Move) -> Count:
        if self.steps == 2:
            raise ValidationError(PLAIN_TEXT)
        return super().step(action)

    @tool(ToolSafety.WRITE)
    def rush(self) -> list[Move]:
        """Move three times."""
        return [Move(action=1)] * 3

    @tool(ToolSafety.WRITE)
    def crowd(self) -> list[Move]:
        """Move very often."""
        return [Move(action=1)] * 100_000
