"""Policies by name, for any environment: each environment's own, and the one that needs to know nothing.

Rule 1: an environment's class names the module of its policies (`policies = "proctor.envs.plume.policies"`), and that
    module has the table `POLICIES`; it is imported when it is asked for. Any other environment has `ANY` alone.
Rule 2: this file knows no environment.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import gymnasium as gym

from proctor.contracts.chance import SEED_LIMIT, Chance, Stream
from proctor.envs.episodes import Env, Policy
from proctor.errors import ValidationError

RANDOM: Final = int(Stream.POLICY)
"""The stream of the random policy; those of an environment's own policies follow it."""


class RandomPolicy:
    """Every action with equal chance; for any action space."""

    def __init__(self, space: gym.Space[Any]) -> None:
        self._space = copy.deepcopy(space)

    def reset(self, seed: int) -> None:
        """Begin with a generator that is a function of `seed`."""
        self._space.seed(Chance(seed).below(SEED_LIMIT, RANDOM, 0))

    def act(self, observation: Any) -> Any:
        """Return any action."""
        return self._space.sample()


@dataclass(frozen=True, slots=True)
class Entry:
    """One policy to choose by name: what it does, and how it is made for an environment."""

    about: str
    make: Callable[[Env], Policy]


def _random(env: Env) -> Policy:
    return RandomPolicy(env.action_space)


ANY: Final[Mapping[str, Entry]] = {"random": Entry("any action, whatever is observed", _random)}
"""The policies that play any environment."""


def policies_of(env: Env) -> Mapping[str, Entry]:
    """Return the policies that play `env`, by name."""
    module = getattr(type(env.unwrapped), "policies", None)
    if not isinstance(module, str):
        return ANY
    table: Mapping[str, Entry] = import_module(module).POLICIES
    return table


def make_policy(name: str, env: Env) -> Policy:
    """Return the policy `name` for `env`; a name that is not known is a ValidationError with those that are."""
    known = policies_of(env)
    if name not in known:
        raise unknown_policy(name, env)
    return known[name].make(env)


def unknown_policy(name: str, env: Env) -> ValidationError:
    """Return the error of a policy that `env` does not have."""
    kind = type(env.unwrapped).__name__
    return ValidationError(f"unknown policy of {kind}", found=name, expected=f"one of {', '.join(policies_of(env))}")
