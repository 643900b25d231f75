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

from proctor.door.redaction import HIDDEN
from proctor.envs.code import code_of, code_of_class
from proctor.envs.targets import Target, Vector
from proctor.errors import ValidationError
from proctor.models.events import SessionOpened
from proctor.models.wire import Encoding
from proctor.replay.batch_driver import BatchDriver
from proctor.replay.batches import check_num_envs
from proctor.replay.driver import RAISED, SingleDriver

Driver = SingleDriver | BatchDriver
Result = TypeVar("Result")


def target_of(opened: SessionOpened) -> Target:
    """Return what a session served, or raise a ValidationError: a part of its settings was never recorded, or it is too large."""
    check_num_envs(opened)
    hidden = next(_hidden(opened.settings, ""), None)
    if hidden is not None:
        raise ValidationError(
            "this episode cannot be replayed: a setting that is named like a secret is not in the record",
            found=hidden,
            expected="settings without secrets",
        )
    return Target(opened.target, dict(opened.settings))


def made(opened: SessionOpened) -> Driver:
    """Return a new environment of a session, or raise a ValidationError."""
    target = target_of(opened)
    encoding = Encoding(opened.packed, opened.compress)
    count = opened.num_envs
    if count is None:
        return SingleDriver(made_by(target.make), encoding)
    return BatchDriver(made_by(lambda: target.make_batch(count, opened.autoreset_mode)), encoding, infos=opened.infos)


def made_by(make: Callable[[], Result]) -> Result:
    """Return what a factory makes; whatever it raises becomes a ValidationError."""
    try:
        return make()
    except RAISED as problem:
        raise ValidationError(
            f"this episode cannot be replayed: its environment could not be made: {problem}"
        ) from problem


class Supply:
    """Gives out environments, one at a time; the last one goes on as long as it fits."""

    def __init__(self) -> None:
        self._driver: Driver | None = None
        self._of: SessionOpened | None = None
        self.continued = False
        """Whether the environment that was given out last had had an episode before."""
        self.notes: tuple[str, ...] = ()
        """What is different here from where the latest session was served."""

    def driver(self, opened: SessionOpened, nth: int) -> Driver:
        """Return an environment of this session that has had fewer than `nth` resets."""
        driver = self._driver
        self.continued = driver is not None and self._of == opened and driver.resets < nth
        if driver is None or not self.continued:
            self.drop()
            driver = self._driver = made(opened)
            self._of = opened
            self.notes = notes(opened, driver)
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


def notes(opened: SessionOpened, driver: Driver) -> tuple[str, ...]:
    """Return what is different here from where the session was served."""
    versions = (
        ("Python", opened.python, platform.python_version()),
        ("Gymnasium", opened.gymnasium, gym.__version__),
        ("numpy", opened.numpy, np.__version__),
    )
    changed = [f"recorded with {name} {then}, replayed with {now}" for name, then, now in versions if then != now]
    return (*_changed_code(opened.code, driver), *changed)


def _changed_code(then: str, driver: Driver) -> Iterator[str]:
    now = code_of(driver.environment) if isinstance(driver, SingleDriver) else _code_of_batch(driver.vector)
    if then and now and now != then:
        yield f"the environment's code has changed: {then[:12]} when it was recorded, {now[:12]} now"


def _code_of_batch(vector: Vector) -> str:
    return code_of_class(type(vector.envs[0].unwrapped if isinstance(vector, SyncVectorEnv) else vector))


def _hidden(value: Any, name: str) -> Iterator[str]:
    if value == HIDDEN:
        yield name
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _hidden(each, str(key))
    elif isinstance(value, list):
        for each in value:
            yield from _hidden(each, name)
