"""What a batch of Column Popper can tell of an instant: each value of `info`, made when somebody looks at it.

Rule 1: to whoever looks, a `LazyDict` is a dict like any other: its keys are there from the start, a value is made when it
    is asked for, and whatever shows all values (a loop over items, a copy, a comparison) makes all of them. Only code in C
    that reads a dict's storage directly, such as msgspec's encoders, needs `dict(info)`.
Rule 2: what values are made from must not change meanwhile: hand over fresh arrays or copies.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from proctor.envs.popper.env import VERSION
from proctor.envs.popper.game import FULL_DROP, OVERFLOW
from proctor.envs.popper.rewards import PARTS
from proctor.envs.popper.vector import view_kernels
from proctor.envs.vector.batched_env import Mask


class _Pending:
    """Stands where a value has not been made yet."""


PENDING: Final = _Pending()

EAGER_METHODS: Final = (
    "__eq__",
    "__ior__",
    "__iter__",
    "__ne__",
    "__or__",
    "__repr__",
    "__ror__",
    "copy",
    "items",
    "pop",
    "popitem",
    "setdefault",
    "values",
)
"""The methods of a dict that show more than one value, or hand one out in another way than by its key.

A loop over the keys is one of them, because code in C copies the values of a dict that loops in the usual way.
"""


class LazyDict(dict[str, Any]):
    """The keys of `template`, whose values are `PENDING`, each made by `make(key)` at the first look."""

    __slots__ = ("_make",)
    __hash__ = None  # like any dict

    def __init__(self, template: Mapping[str, Any], make: Callable[[str], Any]) -> None:
        super().__init__(template)
        self._make = make

    def __getitem__(self, key: str) -> Any:
        value = dict.__getitem__(self, key)
        if value is PENDING:
            value = self._make(key)
            dict.__setitem__(self, key, value)
        return value

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of `key`, or the default if there is no such key."""
        return self[key] if key in self else default  # noqa: SIM401  # this is what get() is

    def _make_all(self) -> None:
        for key in dict.keys(self):
            self[key]

    def __reduce__(self) -> tuple[Any, ...]:
        return (dict, (dict(self),))


def _make_eager(name: str) -> Callable[..., Any]:
    plain = getattr(dict, name)

    def look(self: LazyDict, *arguments: Any, **named: Any) -> Any:
        self._make_all()
        return plain(self, *arguments, **named)

    look.__name__ = name
    return look


for _name in EAGER_METHODS:
    setattr(LazyDict, _name, _make_eager(_name))


INT8: Final = np.dtype(np.int8)
EVENTS: Final = 7
"""The first parts of a reward are what events are worth; the others are what changes are worth."""
FAULTS: Final = np.array([None, OVERFLOW, FULL_DROP, None], object)
"""By the number of the end in `view_kernels`."""


@dataclass(frozen=True, slots=True)
class SnapshotSettings:
    """The settings that an instant is read by."""

    height: int
    duration_ms: int
    weights: NDArray[np.float64]


@dataclass(slots=True)
class BatchSnapshot:
    """The position after a step and what the step did, as `kernels` describes the arrays; nobody writes to them.

    The info speaks of the sub-environments that `everyone` marks; of the reward's parts where a step was made.
    """

    tops: NDArray[np.int8]
    clock: NDArray[np.int32]
    seeds: NDArray[np.int64]
    events: NDArray[np.int8]
    shaping: NDArray[np.float64] | None
    everyone: Mask
    settings: SnapshotSettings

    def copy(self) -> "BatchSnapshot":
        """Return a snapshot of its own, to be changed."""
        arrays = {name: getattr(self, name).copy() for name in ("tops", "clock", "events")}
        return replace(self, **arrays)

    def info(self) -> dict[str, Any]:
        """Return the info of a step."""
        return LazyDict(_STEP, self._make_value)

    def reset_info(self) -> dict[str, Any]:
        """Return the info of a reset, which has no reward."""
        return LazyDict(_RESET, self._make_value)

    def _make_value(self, key: str) -> Any:
        if key == "_reward_parts":
            return self.everyone & (self.events[0] != view_kernels.BEGAN)
        return self.everyone if key.startswith("_") else INFO_VALUES[key](self)

    def remaining_seconds(self) -> NDArray[np.float64]:
        """Return the seconds until time is up."""
        left: NDArray[np.float64] = np.maximum(self.settings.duration_ms - self.clock[0], 0) / 1000
        return left

    def masks(self) -> NDArray[np.int8]:
        """Return 1 for each action that is valid, N x (columns + 1)."""
        valid: NDArray[np.int8] = np.empty(self.tops.shape, INT8)
        view_kernels.masks(self.tops, self.settings.height, valid)
        return valid.T

    def parts(self) -> dict[str, NDArray[np.float64]]:
        """Return the parts of the rewards."""
        parts: NDArray[np.float64] = np.zeros((len(PARTS), self.seeds.size))
        view_kernels.part_rewards(self.events, self.settings.weights, parts)
        if self.shaping is not None:
            parts[EVENTS:] = self.shaping
        return dict(zip(PARTS, parts, strict=True))


INFO_VALUES: Final[Mapping[str, Callable[[BatchSnapshot], Any]]] = {
    "score": lambda now: now.clock[3].copy(),
    "time_left": BatchSnapshot.remaining_seconds,
    "pops_this_step": lambda now: np.maximum(now.events[0], 0).astype(np.int32),
    "fall_interval": lambda now: now.clock[4] / 1000,
    "seed": lambda now: now.seeds,
    "version": lambda now: np.full(now.seeds.size, VERSION, object),
    "action_mask": BatchSnapshot.masks,
    "fault": lambda now: FAULTS[now.events[1]],
    "reward_parts": BatchSnapshot.parts,
}
"""How each value of the info is made."""

_STEP: Final = dict.fromkeys((*INFO_VALUES, *(f"_{key}" for key in INFO_VALUES)), PENDING)
_RESET: Final = {key: PENDING for key in _STEP if not key.endswith("reward_parts")}
