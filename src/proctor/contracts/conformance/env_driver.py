"""An environment being driven: every call is written down, so that a counterexample can be repeated by hand.

Rule 1: calls go to the environment as its factory made it, wrappers included; what it keeps to itself is read from
    `env.unwrapped`. What a foreign environment does not have cannot be told, and is never guessed.
Rule 2: `settings` lists the small worlds first. They are used where the factory and the environment's constructor
    take the keywords, and left out where the subject's other settings do not fit them.
"""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from proctor.contracts.conformance.report import CannotTell, Cases, CheckProbe, expect_refusal, shorten
from proctor.contracts.conformance.samples import samples
from proctor.contracts.lifecycle import AFTER_STEP, EnvironmentState
from proctor.errors import ProctorError, StateError

LONGEST: Final = 2048
SHORT: Final = 64
SEEDS: Final = (0, 1)
# On one cell a step ends at the goal, on 25 a first step can end nothing or only the time; a game of a step ends by time.
SMALL_SETTINGS: Final[tuple[dict[str, Any], ...]] = (
    {"grid_size": (1, 1), "max_steps": 1},
    {"grid_size": (5, 5), "max_steps": 1},
    {"grid_size": (5, 5), "max_steps": 4},
    {"duration_ms": 1, "action_ms": 1},
    {"duration_ms": 4, "action_ms": 1},
)
PARTS: Final = ("_action_proc", "_obs_model", "_reward_fn", "_plume")
PRIVATE_ATTRIBUTES: Final = ("_state", "_agent_state", "_step_count", "_episode_count", "_seed", "_max_steps", *PARTS)


class StateView(dict[str, Any]):
    """What an environment keeps to itself at one moment; asking for what it does not have cannot be told."""

    def __missing__(self, name: str) -> Any:
        raise CannotTell(f"the environment has no attribute `{name}`")


class EnvDriver:
    """One environment with the calls made to it so far."""

    def __init__(self, probe: CheckProbe, settings: dict[str, Any] | None = None) -> None:
        settings = settings or {}
        self._probe = probe
        self._calls = [f"make({_keywords(settings)})"]
        probe.doing = self
        self.env: Any = probe.make(**settings)

    def reset(self, **arguments: Any) -> Any:
        """Call `reset`."""
        self._note(f"reset({_keywords(arguments)})")
        return self.env.reset(**arguments)

    def step(self, action: Any) -> Any:
        """Call `step`."""
        plain = action.tolist() if isinstance(action, np.generic | np.ndarray) else action
        self._note(f"step({shorten(plain)})")
        return self.env.step(action)

    def render(self) -> Any:
        """Call `render`."""
        self._note("render()")
        return self.env.render()

    def close(self) -> None:
        """Call `close`."""
        self._note("close()")
        self.env.close()

    @property
    def legal_action(self) -> Any:
        """A member of the action space, always the same one."""
        return next(samples(self.env.action_space, 1))

    def call(self, method: str) -> Any:
        """Call a method of the lifecycle with good arguments."""
        if method == "reset":
            return self.reset(seed=SEEDS[0])
        return self.step(self.legal_action) if method == "step" else getattr(self, method)()

    def refuses(self, *methods: str) -> str | None:
        """Return None if each of `methods` raises a StateError, else what the first that does not answers."""
        answers = (expect_refusal((StateError,), self.call, method) for method in methods)
        return next((answer for answer in answers if answer is not None), None)

    def get(self, name: str) -> Any:
        """Return an attribute of the unwrapped environment."""
        if not hasattr(self.env.unwrapped, name):
            raise CannotTell(f"the environment has no attribute `{name}`")
        return getattr(self.env.unwrapped, name)

    def find_other(self, name: str, expected: object) -> str | None:
        """Return None if an attribute is `expected`, else what it is."""
        found = self.get(name)
        return None if found == expected else f"{name} is {shorten(found)}, expected {shorten(expected)}"

    def view(self) -> StateView:
        """Return what the environment keeps to itself now."""
        inner = self.env.unwrapped
        return StateView({name: getattr(inner, name) for name in PRIVATE_ATTRIBUTES if hasattr(inner, name)})

    def find_changes(self, before: StateView) -> list[str]:
        """Return the names of what is another value now than in `before`."""
        after = self.view()
        return [name for name, value in before.items() if after[name] is not value and after[name] != value]

    def _note(self, call: str) -> None:
        self._calls.append(call)
        self._probe.doing = self

    def __str__(self) -> str:
        calls = self._calls
        shown = calls if len(calls) <= 8 else [*calls[:3], f"… {len(calls) - 6} calls …", *calls[-3:]]
        return ", ".join(shown)


def _keywords(arguments: dict[str, Any]) -> str:
    return ", ".join(f"{name}={shorten(value)}" for name, value in arguments.items())


def accepts_keyword(probe: CheckProbe, name: str) -> bool:
    """Return whether the factory passes the keyword `name` on and the environment's constructor names it."""
    constructor = inspect.signature(type(probe.make().unwrapped)).parameters
    maker = inspect.signature(probe.make).parameters
    passes = name in maker or any(parameter.kind is parameter.VAR_KEYWORD for parameter in maker.values())
    return passes and name in constructor


def require_keyword(probe: CheckProbe, name: str) -> None:
    """Give up on the check if a keyword cannot be passed."""
    if not accepts_keyword(probe, name):
        raise CannotTell(f"the factory or the environment's constructor takes no `{name}`")


def iterate_settings(probe: CheckProbe) -> Iterator[dict[str, Any]]:
    """Return what to make environments with, the smallest world first, the subject as it comes last."""
    if probe.worlds is None:
        probe.worlds = [*_iterate_small_settings(probe), {}]
    return iter(probe.worlds)


def _iterate_small_settings(probe: CheckProbe) -> Iterator[dict[str, Any]]:
    for small in SMALL_SETTINGS:
        if all(accepts_keyword(probe, name) for name in small):
            try:
                probe.make(**small)
            except ProctorError:
                continue
            yield small


def drives(probe: CheckProbe) -> Iterator[tuple[EnvDriver, int]]:
    """Yield a new environment with the seed to begin with: in every size, with two seeds."""
    return ((EnvDriver(probe, small), seed) for small in iterate_settings(probe) for seed in SEEDS)


@dataclass(frozen=True, slots=True)
class ObservedStep:
    """A step that was just made."""

    drive: EnvDriver
    before: StateView
    action: Any
    result: Any


def walk(drive: EnvDriver, seed: int, most: int) -> Iterator[ObservedStep]:
    """Reset, then yield each step until the episode ends or `most` are done."""
    drive.reset(seed=seed)
    for action in samples(drive.env.action_space, most):
        before = drive.view()
        result = drive.step(action)
        yield ObservedStep(drive, before, action, result)
        if result[2] or result[3]:
            return


def iterate_steps(probe: CheckProbe) -> Iterator[tuple[ObservedStep]]:
    """Yield every step of short walks, in every size, with two seeds."""
    return ((step,) for drive, seed in drives(probe) for step in walk(drive, seed, SHORT))


def _reaches(drive: EnvDriver, state: EnvironmentState, seed: int) -> bool:
    """Bring a new environment towards `state`; return whether it got there."""
    if state is EnvironmentState.CREATED:
        return True
    if state in (EnvironmentState.READY, EnvironmentState.CLOSED):
        drive.reset(seed=seed)
        if state is EnvironmentState.CLOSED:
            drive.close()
        return True
    *_, last = walk(drive, seed, LONGEST)
    return AFTER_STEP[bool(last.result[2]), bool(last.result[3])] is state


def reach_each_state(probe: CheckProbe, *states: EnvironmentState) -> Iterator[tuple[EnvironmentState, EnvDriver]]:
    """Yield the smallest environment in each of `states` that can be reached; if none can, the check cannot tell."""
    arrived = False
    for state in states:
        drive = next((drive for drive, seed in drives(probe) if _reaches(drive, state, seed)), None)
        if drive is not None:
            arrived = True
            yield state, drive
    if not arrived:
        raise CannotTell(f"no episode of {LONGEST} steps ended {' or '.join(states)}")


def in_each_state(*states: EnvironmentState) -> Cases:
    """Return the cases of an environment in each of `states` that can be reached."""
    return lambda probe: ((drive,) for _, drive in reach_each_state(probe, *states))
