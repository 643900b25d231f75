"""What `proctor serve` is told to serve, as something that can make it: an id, a class or a `module:factory`.

Rule 1: a target is a value of texts and settings, so that another process can make the same environment.
Rule 2: environments of ours are served by their typed `Environment`; every other Gymnasium environment is adapted.
Rule 3: a batch is the environment's own engine where it has one that keeps the promise of seeds, else Gymnasium's sync
    vector: sub-environment i of `reset(seed=s)` is the single environment of `reset(seed=s + i)`. Engines of ours do.
Rule 4: the digest of a target's source, by which a replay knows that the code has changed since, is that of the package that
    defines the environment's class: every *.py file of its highest regular package and of the regular packages in it, by its
    path in there and its content. A module without a package is its own file. A folder that is no regular package is never
    walked: it may be a home folder or the root, hold somebody else's code, or be put beside the modules by a wheel. So a
    wheel and the checkout that it was built from have the same digest. It is a note, never a proof: what a package imports is
    not in it.
"""

import hashlib
import inspect
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import gymnasium as gym
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from proctor.contracts.environment import Environment
from proctor.envs.gym_adapter import AdaptedEnvironment, GymEnvironment
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.plume.typed_env import PlumeEnvironment
from proctor.envs.popper.env import ColumnPopperEnv
from proctor.envs.popper.typed_env import PopperEnvironment
from proctor.envs.registration import IDS
from proctor.envs.settings import (
    REFUSALS,
    Tree,
    constructor_keywords,
    find_creator,
    find_spec,
    import_member,
    make_env,
    resolve_id,
)
from proctor.errors import ComponentError, ValidationError

AnyEnvironment = Environment[Any, Any, Any]
Vector = VectorEnv[Any, Any, Any]

# The Gymnasium environments that have a typed `Environment` of their own.
TYPED_ENVIRONMENTS: Final[tuple[tuple[type[gym.Env[Any, Any]], Callable[[Any], AnyEnvironment]], ...]] = (
    (PlumeSearchEnv, PlumeEnvironment),
    (ColumnPopperEnv, PopperEnvironment),
)

MODES: Final = {mode.name.lower(): mode for mode in AutoresetMode}


@dataclass(frozen=True, slots=True)
class Target:
    """One kind of environment: `text` names it, `settings` are keywords of its constructor."""

    text: str
    settings: Tree = field(default_factory=dict)

    def make(self) -> AnyEnvironment:
        """Return a new environment."""
        found = self._make_env()
        return found if isinstance(found, Environment) else as_environment(found)

    def load(self) -> None:
        """Import what makes it, and make nothing."""
        if self._names_a_member:
            module, _, member = self.text.partition(":")
            import_member(module, member)
        else:
            find_creator(find_spec(self.text))

    def make_batch(self, num_envs: int, mode: str | None = None) -> Vector:
        """Return `num_envs` environments that are stepped together; `mode` is one of `MODES`, the first by default."""
        if mode is not None and mode not in MODES:
            raise ValidationError("unknown autoreset mode", found=mode, expected=f"one of {', '.join(MODES)}")
        wanted = MODES[mode or "next_step"]
        if not self.has_engine:
            return SyncVectorEnv([self._make_gym_env] * num_envs, autoreset_mode=wanted)
        spec = find_spec(self.text)
        keywords = constructor_keywords(self.text, find_creator(spec), self.settings)
        return gym.make_vec(
            spec, num_envs=num_envs, vectorization_mode="vector_entry_point", autoreset_mode=wanted, **keywords
        )

    @property
    def has_engine(self) -> bool:
        """Whether a batch of it is stepped by one compiled loop."""
        return not self._names_a_member and resolve_id(self.text) in IDS

    @property
    def _names_a_member(self) -> bool:
        """A member is named by identifiers; `package:Some-v0` is Gymnasium's way to import before it looks up an id."""
        _, _, member = self.text.partition(":")
        return bool(member) and all(part.isidentifier() for part in member.split("."))

    def _make_env(self) -> AnyEnvironment | gym.Env[Any, Any]:
        if not self._names_a_member:
            return make_env(self.text, self.settings)
        module, _, member = self.text.partition(":")
        maker = import_member(module, member)
        try:
            found = maker(**self.settings)
        except REFUSALS as problem:
            reason = f"{type(problem).__name__}: {problem}"
            raise ValidationError(
                f"{self.text} could not be made: {reason}", found=self.settings, expected="other settings"
            ) from problem
        if not isinstance(found, Environment | gym.Env):
            raise ComponentError(
                f"{self.text} makes no environment",
                found=type(found).__name__,
                expected="an Environment or a gymnasium.Env",
            )
        return found

    def _make_gym_env(self) -> gym.Env[Any, Any]:
        found = self._make_env()
        if isinstance(found, Environment):
            raise ValidationError(
                f"{self.text} cannot be batched", found=type(found).__name__, expected="a Gymnasium environment"
            )
        return found


def as_environment(env: gym.Env[Any, Any]) -> AnyEnvironment:
    """Return a Gymnasium environment as an `Environment`: the typed one where there is one that fits, else adapted."""
    for kind, typed in TYPED_ENVIRONMENTS:
        if isinstance(env, kind):
            # A user's own sensor may observe what the typed models have no field for.
            with suppress(ComponentError):
                return typed(env)
    return GymEnvironment(env)


def is_async(environment: AnyEnvironment) -> bool:
    """Return whether one of its calls is a coroutine, which runs on an event loop and nowhere else."""
    return any(map(inspect.iscoroutinefunction, (environment.reset, environment.step, environment.close)))


MOST_FILES: Final = 20_000  # a package with more is no environment's: nobody waits for its digest
PACKAGE_FILE: Final = "__init__.py"


def digest_environment(environment: AnyEnvironment) -> str:
    """Return the SHA-256 of the environment's source in hexadecimal digits; empty if there is none that can be read."""
    return digest_class(
        type(environment._env.unwrapped if isinstance(environment, AdaptedEnvironment) else environment)
    )


def digest_class(kind: type) -> str:
    """Return the digest of the highest regular package around the class, or of the file that defines it."""
    place = Path(getattr(sys.modules.get(kind.__module__), "__file__", None) or "")
    if place.suffix != ".py" or not place.is_file():
        return ""
    depth = kind.__module__.count(".") + (place.name == PACKAGE_FILE)
    for folder in list(place.parents)[:depth]:
        if not (folder / PACKAGE_FILE).is_file():
            break
        place = folder
    return _digest(place)


@lru_cache(maxsize=256)
def _digest(place: Path) -> str:
    """Return the digest of a file, or of all sources in a package's folder, as they were when first asked for."""
    digest = hashlib.sha256()
    try:
        named = {place.name: place} if place.is_file() else _files(place)
        for name in sorted(named):
            content = named[name].read_bytes()
            digest.update(f"{name}\0{len(content)}\0".encode())
            digest.update(content)
    # A name that is no UTF-8, or a file that has gone or may not be read.
    except (OSError, UnicodeEncodeError):
        return ""
    return digest.hexdigest() if named else ""


def _files(package: Path) -> dict[str, Path]:
    """Return the sources of a package by their paths in it; none if there are too many."""
    found: dict[str, Path] = {}
    for folder, folders, names in os.walk(package):
        folders[:] = [name for name in folders if name.isidentifier() and Path(folder, name, PACKAGE_FILE).is_file()]
        paths = (Path(folder, name) for name in names if name.endswith(".py"))
        found.update((path.relative_to(package).as_posix(), path) for path in paths)
        if len(found) > MOST_FILES:
            return {}
    return found
