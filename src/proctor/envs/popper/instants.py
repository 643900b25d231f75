"""What a batch of Column Popper can tell of an instant: each value of `info`, made when somebody looks at it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from proctor.envs.batching import Mask
from proctor.envs.deferred import PENDING, Deferred
from proctor.envs.popper import view_kernels
from proctor.envs.popper.env import VERSION
from proctor.envs.popper.game import FULL_DROP, OVERFLOW
from proctor.envs.popper.rewards import PARTS

INT8: Final = np.dtype(np.int8)
EVENTS: Final = 7
"""The first parts of a reward are what events are worth; the others are what changes are worth."""
FAULTS: Final = np.array([None, OVERFLOW, FULL_DROP, None], object)
"""By the number of the end in `view_kernels`."""


@dataclass(frozen=True, slots=True)
class Laws:
    """The settings that an instant is read by."""

    height: int
    duration_ms: int
    weights: NDArray[np.float64]


@dataclass(slots=True)
class Instant:
    """The position after a step and what the step did, as `kernels` describes the arrays; nobody writes to them.

    The info speaks of the sub-environments that `everyone` marks; of the reward's parts where a step was made.
    """

    tops: NDArray[np.int8]
    clock: NDArray[np.int32]
    seeds: NDArray[np.int64]
    events: NDArray[np.int8]
    shaping: NDArray[np.float64] | None
    everyone: Mask
    laws: Laws

    def copy(self) -> "Instant":
        """Return an instant of its own, to be changed."""
        arrays = {name: getattr(self, name).copy() for name in ("tops", "clock", "events")}
        return replace(self, **arrays)

    def info(self) -> dict[str, Any]:
        """Return the info of a step."""
        return Deferred(_STEP, self._told)

    def info_of_reset(self) -> dict[str, Any]:
        """Return the info of a reset, which has no reward."""
        return Deferred(_RESET, self._told)

    def _told(self, key: str) -> Any:
        if key == "_reward_parts":
            return self.everyone & (self.events[0] != view_kernels.BEGAN)
        return self.everyone if key.startswith("_") else TOLD[key](self)

    def time_left(self) -> NDArray[np.float64]:
        """Return the seconds until time is up."""
        left: NDArray[np.float64] = np.maximum(self.laws.duration_ms - self.clock[0], 0) / 1000
        return left

    def masks(self) -> NDArray[np.int8]:
        """Return 1 for each action that is valid, N x (columns + 1)."""
        valid: NDArray[np.int8] = np.empty(self.tops.shape, INT8)
        view_kernels.masks(self.tops, self.laws.height, valid)
        return valid.T

    def parts(self) -> dict[str, NDArray[np.float64]]:
        """Return the parts of the rewards."""
        parts: NDArray[np.float64] = np.zeros((len(PARTS), self.seeds.size))
        view_kernels.part_rewards(self.events, self.laws.weights, parts)
        if self.shaping is not None:
            parts[EVENTS:] = self.shaping
        return dict(zip(PARTS, parts, strict=True))


TOLD: Final[Mapping[str, Callable[[Instant], Any]]] = {
    "score": lambda now: now.clock[3].copy(),
    "time_left": Instant.time_left,
    "pops_this_step": lambda now: np.maximum(now.events[0], 0).astype(np.int32),
    "fall_interval": lambda now: now.clock[4] / 1000,
    "seed": lambda now: now.seeds,
    "version": lambda now: np.full(now.seeds.size, VERSION, object),
    "action_mask": Instant.masks,
    "fault": lambda now: FAULTS[now.events[1]],
    "reward_parts": Instant.parts,
}
"""How each value of the info is made."""

_STEP: Final = dict.fromkeys((*TOLD, *(f"_{key}" for key in TOLD)), PENDING)
_RESET: Final = {key: PENDING for key in _STEP if not key.endswith("reward_parts")}
