"""The environments of a replay: made from what a session said when it was opened.

Rule 1: an environment counts its resets, so the nth episode of a session is the nth reset of its environment. What the
    episode before it left can therefore go on; a new one is reset so many times first, with the same seed.
Rule 2: what cannot be made here (its module is missing, a setting was hidden in the record) is a ValidationError.
Rule 3: code or versions that have changed are notes beside a result, never errors by themselves.
"""

import platform
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import gymnasium as gym
import numpy as np
from gymnasium.vector import SyncVectorEnv

from proctor.access.redaction import HIDDEN
from proctor.envs.source_digest import digest_class, digest_environment
from proctor.envs.targets import Target, Vector
from proctor.errors import ValidationError
from proctor.models.events import SessionOpened
from proctor.models.wire import Encoding
from proctor.replay.batch_driver import BatchDriver
from proctor.replay.driver import ENVIRONMENT_ERRORS, SingleDriver
from proctor.replay.sub_episode_tracker import check_num_envs

Driver = SingleDriver | BatchDriver
Result = TypeVar("Result")


def find_target(opened: SessionOpened) -> Target:
    """Return what a session served, or raise a ValidationError: a part of its settings was never recorded, or it is too large."""
    check_num_envs(opened)
    hidden = next(_find_secrets(opened.settings, ""), None)
    if hidden is not None:
        raise ValidationError(
            "this episode cannot be replayed: a setting that is named like a secret is not in the record",
            found=hidden,
            expected="settings without secrets",
        )
    return Target(opened.target, dict(opened.settings))


def make_driver(opened: SessionOpened) -> Driver:
    """Return a new environment of a session, or raise a ValidationError."""
    target = find_target(opened)
    encoding = Encoding(opened.packed, opened.compress)
    count = opened.num_envs
    if count is None:
        return SingleDriver(call_factory(target.make), encoding)
    return BatchDriver(
        call_factory(lambda: target.make_batch(count, opened.autoreset_mode)), encoding, infos=opened.infos
    )


def call_factory(make: Callable[[], Result]) -> Result:
    """Return what a factory makes; whatever it raises becomes a ValidationError."""
    try:
        return make()
    except ENVIRONMENT_ERRORS as problem:
        raise ValidationError(
            f"this episode cannot be replayed: its environment could not be made: {problem}"
        ) from problem


class DriverCache:
    """Gives out environments, one at a time; the last one goes on as long as it fits."""

    def __init__(self) -> None:
        self._driver: Driver | None = None
        self._opened: SessionOpened | None = None
        self.is_reused = False
        """Whether the environment that was given out last had had an episode before."""
        self.notes: tuple[str, ...] = ()
        """What is different here from where the latest session was served."""

    def driver(self, opened: SessionOpened, nth: int) -> Driver:
        """Return an environment of this session that has had fewer than `nth` resets."""
        driver = self._driver
        self.is_reused = driver is not None and self._opened == opened and driver.resets < nth
        if driver is None or not self.is_reused:
            self.drop()
            driver = self._driver = make_driver(opened)
            self._opened = opened
            self.notes = describe_changes(opened, driver)
        return driver

    @property
    def current(self) -> Driver | None:
        """The environment that was given out last and is still there."""
        return self._driver

    def drop(self) -> None:
        """Let go of the environment; the next one is new."""
        driver, self._driver = self._driver, None
        if driver is not None:
            driver.close()


def describe_changes(opened: SessionOpened, driver: Driver) -> tuple[str, ...]:
    """Return what is different here from where the session was served."""
    versions = (
        ("Python", opened.python, platform.python_version()),
        ("Gymnasium", opened.gymnasium, gym.__version__),
        ("numpy", opened.numpy, np.__version__),
    )
    changed = [f"recorded with {name} {then}, replayed with {now}" for name, then, now in versions if then != now]
    return (*_describe_code_change(opened.code, driver), *changed)


def _describe_code_change(then: str, driver: Driver) -> Iterator[str]:
    now = (
        digest_environment(driver.environment) if isinstance(driver, SingleDriver) else _hash_batch_code(driver.vector)
    )
    if then and now and now != then:
        yield f"the environment's code has changed: {then[:12]} when it was recorded, {now[:12]} now"


def _hash_batch_code(vector: Vector) -> str:
    return digest_class(type(vector.envs[0].unwrapped if isinstance(vector, SyncVectorEnv) else vector))


def _find_secrets(value: Any, name: str) -> Iterator[str]:
    if value == HIDDEN:
        yield name
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _find_secrets(each, str(key))
    elif isinstance(value, list):
        for each in value:
            yield from _find_secrets(each, name)
