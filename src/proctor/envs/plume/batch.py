"""Many plume searches in one: a Gymnasium vector environment whose every step is a few compiled loops.

Rule 1: sub-environment i of `reset(seed=s)` is the single environment of `reset(seed=s + i)`, value for value. Later
    episodes report their own seed, with which the single environment replays them.
Rule 2: what a step returns is the caller's: observations, rewards and flags are fresh arrays, the arrays in `info` are
    read-only, and neither is changed by a later step.
Rule 3: a batch is built from a single environment, so that both read the same settings in the same way.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from proctor.contracts.arguments import checked_count
from proctor.contracts.chance import SEED_LIMIT
from proctor.contracts.guarded import checked_options, checked_seed
from proctor.contracts.lifecycle import CLOSED, CREATED, READY, STEPPABLE, Method, guard
from proctor.contracts.spatial import heading
from proctor.envs.plume import kernels
from proctor.envs.plume.batch_fields import batched_field
from proctor.envs.plume.batch_rules import rules_of, starts_of
from proctor.envs.plume.batch_sensors import Senses, check_sensor, observe
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.plume.factories import Kind
from proctor.errors import StateError, ValidationError

Mask = NDArray[np.bool_]
Seed = int | NDArray[np.integer] | Sequence[int | None] | None

MOST_ENVS: Final = 2**31 - 1
INT32, INT64, BOOL = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.bool_)


class BatchedPlumeSearch(VectorEnv[Any, Any, Any]):
    """`num_envs` plume searches, stepped together.

    Takes the settings of `PlumeSearchEnv`, and `autoreset_mode`. `info` has the single environment's keys as arrays,
    each with a mask `_key` of the sub-environments that it speaks of; an episode that began by itself reports `seed`.
    It does not render: replay an episode by its seed in the single environment.
    """

    def __init__(
        self, num_envs: int = 1, *, autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP, **settings: Any
    ) -> None:
        self.num_envs = checked_count("num_envs", num_envs, 1, MOST_ENVS)
        self.autoreset_mode: Final = _checked_mode(autoreset_mode)
        if settings.get("render_mode") is not None:
            raise ValidationError(
                "a batch does not render",
                found=settings["render_mode"],
                expected="render_mode=None; replay an episode by its seed in the single environment",
                clause="ENV-INIT-P6",
            )
        single = PlumeSearchEnv(**settings)
        self.metadata = {**single.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = None
        self.single_action_space: Any = single.action_space
        self.single_observation_space = single.observation_space
        self.action_space = batch_space(single.action_space, self.num_envs)
        self.observation_space = batch_space(single.observation_space, self.num_envs)
        self._single = single
        self._full_info = single.config.info_level == "full"
        self._record = rules_of(single)
        self._starts = starts_of(single)
        self._field = batched_field(single.components[Kind.PLUME], self.num_envs)
        self._sensor = single.components[Kind.OBSERVATION]
        check_sensor(self._sensor)
        self._allocate()

    def _allocate(self) -> None:
        n = self.num_envs
        self._shape, self._block_shape, self._flags_shape = (n,), (3, n), (5, n)
        self._lifecycle = CREATED
        self._cells: NDArray[np.int32] = np.zeros((3, n), np.int32)
        self._sums: NDArray[np.float64] = np.zeros((3, n))
        self._seeds = np.zeros((4, n), np.int64)
        self._orientation = np.zeros(n)
        self._ended: Mask = np.zeros(n, np.bool_)
        self._everyone: Mask = np.ones(n, np.bool_)
        self._everyone.setflags(write=False)
        self._still = self._field.still
        self._waits_for_reset = self.autoreset_mode is AutoresetMode.DISABLED
        self._restarts_at_once = self.autoreset_mode is AutoresetMode.SAME_STEP
        self._senses = Senses(self._field, self._single.grid_size, self._orientation, self._seeds, self._cells)

    def reset(self, *, seed: Seed = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode everywhere, or where `options["reset_mask"]` says; `start` and `orientation` hold for all.

        A list has one seed each, None for one that is drawn. The generator begins anew only if no seed is drawn.
        """
        guard(self._lifecycle, Method.RESET)
        known = ("reset_mask", *self._single.reset_options)
        checked = checked_options(dict(options) if isinstance(options, Mapping) else options, known)
        self._single._check_options(checked)
        which = self._checked_mask(checked.get("reset_mask"))
        given = None if seed is None else self._checked_seeds(seed)

        roots = self._roots(given)
        if given is not None and None not in given:
            super().reset(seed=int(roots[0]))
        self._seeds[0, which] = self._seeds[2, which] = roots[which]
        self._seeds[1, which] = 0
        cells, sums = self._cells.copy(), self._sums.copy()
        kernels.start(which, cells, sums, self._orientation, self._seeds, self._starts, self._record)
        self._place(which, checked, cells, sums)
        self._field.begin(which, self._seeds[2])
        self._ended = self._ended & ~which
        self._commit(cells, sums)
        self._lifecycle = READY
        info = self._reset_info(which)
        info["episode"], info["_episode"] = self._seeds[3].copy(), which
        return observe(self._sensor, self._senses), info

    def _checked_mask(self, mask: Any) -> Mask:
        if mask is None:
            return np.ones(self.num_envs, np.bool_)
        if (
            not isinstance(mask, np.ndarray)
            or mask.dtype != np.bool_
            or mask.shape != (self.num_envs,)
            or not mask.any()
        ):
            raise ValidationError(
                "not a reset mask",
                found=mask,
                expected=f"a bool array of shape ({self.num_envs},) with at least one True",
                clause="ENV-RESET-P3",
            )
        if self._lifecycle is CREATED and not mask.all():
            raise StateError("the first reset must reset all", found=mask, expected="no reset_mask")
        return mask.copy()

    def _checked_seeds(self, seed: Any) -> Sequence[int | None]:
        """Return one seed for each sub-environment, None for one that is to be drawn."""
        seed = _scalar(seed)
        if isinstance(seed, Sequence | np.ndarray) and not isinstance(seed, str | bytes | bytearray | memoryview):
            if len(seed) != self.num_envs:
                raise ValidationError(
                    "not one seed each", found=len(seed), expected=f"{self.num_envs} seeds", clause="ENV-RESET-P2"
                )
            return [None if each is None else checked_seed(_scalar(each)) for each in seed]
        first = checked_seed(seed)
        checked_seed(first + self.num_envs - 1)
        return range(first, first + self.num_envs)

    def _roots(self, given: Sequence[int | None] | None) -> NDArray[np.int64]:
        """Return a root seed for every sub-environment; what is not given is drawn, neighbours if none is."""
        if given is None:
            first = int(self.np_random.integers(SEED_LIMIT - self.num_envs + 1))
            given = range(first, first + self.num_envs)
        drawn = (self.np_random.integers(SEED_LIMIT) if each is None else each for each in given)
        return np.fromiter(drawn, np.int64, self.num_envs)

    def _place(self, which: Mask, options: Mapping[str, Any], cells: Any, sums: Any) -> None:
        """Overrule the drawn starts by the options `start` and `orientation`."""
        orientation = heading(options.get("orientation", 0.0))
        start = options.get("start")
        for i in np.flatnonzero(which) if start is not None or orientation else ():
            x, y = start if start is not None else cells[:2, i]
            kernels.place(i, x, y, orientation, cells, sums, self._orientation, self._record[0])

    def step(self, actions: Any) -> tuple[Any, NDArray[np.float64], Mask, Mask, dict[str, Any]]:
        """Advance every sub-environment; those that ended before begin an episode instead, as the mode says."""
        if self._lifecycle is not STEPPABLE:
            guard(self._lifecycle, Method.STEP)
        if self._waits_for_reset:
            self._check_none_ended()
        actions = self._checked_actions(actions)
        before = self._ended
        cells: NDArray[np.int32] = np.empty(self._block_shape, INT32)
        sums: NDArray[np.float64] = np.empty(self._block_shape)
        flags: Mask = np.empty(self._flags_shape, BOOL)
        begun = kernels.step(
            actions,
            self._cells,
            self._sums,
            before,
            cells,
            sums,
            flags,
            self._orientation,
            self._seeds,
            self._starts,
            self._record,
        )
        if begun < 0:
            raise _illegal(actions[-1 - begun], -1 - begun, self.single_action_space)
        if not self._still:
            self._field.begin(before, self._seeds[2])
            self._field.advance(before, self._seeds[2], cells[2])
        reward, terminated, truncated, self._ended = sums[2], flags[0], flags[1], flags[3]
        self._commit(cells, sums)
        if self._restarts_at_once and self._ended.any():
            info = self._restart_at_once(flags)
        else:
            info = self._step_info(flags[2], flags[4])
            if begun:
                info.update(self._reset_info(before))
        return observe(self._sensor, self._senses), reward, terminated, truncated, info

    def _restart_at_once(self, flags: Mask) -> dict[str, Any]:
        """Begin the next episode where one has just ended; the last observation and info are in the info returned."""
        ended = self._ended
        last = observe(self._sensor, self._senses)
        final_info = self._step_info(flags[2], ended)
        cells, sums, begun_flags = self._cells.copy(), self._sums.copy(), flags.copy()
        kernels.restart(ended, cells, sums, begun_flags, self._orientation, self._seeds, self._starts, self._record)
        self._field.begin(ended, self._seeds[2])
        self._ended = begun_flags[3]
        self._commit(cells, sums)
        return {
            **self._step_info(begun_flags[2], ~ended),
            **self._reset_info(ended),
            "final_obs": _each(last, ended),
            "_final_obs": ended,
            "final_info": final_info,
            "_final_info": ended,
        }

    def _check_none_ended(self) -> None:
        if self._ended.any():
            raise StateError(
                "some episodes have ended",
                found=np.flatnonzero(self._ended).tolist(),
                expected="a reset with reset_mask before the next step",
                clause="NO-STEP-AFTER-END",
            )

    def _commit(self, cells: NDArray[np.int32], sums: NDArray[np.float64]) -> None:
        """Make these blocks the present ones; they go out in `info`, so nobody may write to them."""
        cells.setflags(write=False)
        sums.setflags(write=False)
        self._cells = self._senses.cells = cells
        self._sums = sums

    def _step_info(self, goal_reached: Mask, speaks_of: Mask) -> dict[str, Any]:
        """Return the info of a step for the sub-environments that `speaks_of` marks."""
        info: dict[str, Any] = {
            "step_count": self._cells[2],
            "_step_count": speaks_of,
            "total_reward": self._sums[0],
            "_total_reward": speaks_of,
            "goal_reached": goal_reached,
            "_goal_reached": speaks_of,
        }
        if self._full_info:
            info["agent_xy"], info["_agent_xy"] = self._cells[:2].T, speaks_of
            info["distance_to_source"], info["_distance_to_source"] = self._sums[1], speaks_of
        return info

    def _reset_info(self, begun: Mask) -> dict[str, Any]:
        """Return the info of the sub-environments that have begun an episode (but all have a seed and a place)."""
        info: dict[str, Any] = {"seed": self._seeds[2].copy(), "_seed": begun}
        if self._full_info:
            info["agent_xy"], info["_agent_xy"] = self._cells[:2].T, self._everyone
            info["distance_to_source"], info["_distance_to_source"] = self._sums[1], self._everyone
        return info

    def _checked_actions(self, actions: Any) -> NDArray[np.int64]:
        if type(actions) is np.ndarray and actions.dtype is INT64 and actions.shape == self._shape:
            flags = actions.flags
            if flags.c_contiguous and flags.writeable:
                return actions
        try:
            array: NDArray[Any] = np.asarray(actions)
        except (ValueError, TypeError):  # a ragged list, for one
            raise self._no_batch_of_actions(actions) from None
        if array.dtype.kind not in "iu" or array.shape != self._shape:
            raise self._no_batch_of_actions(f"{array.dtype} of shape {array.shape}")
        if array.dtype.kind == "u":
            # Before the cast, which would make the largest ones negative.
            illegal = np.flatnonzero(array >= self.single_action_space.n)
            if illegal.size:
                raise _illegal(array[illegal[0]], int(illegal[0]), self.single_action_space)
        return np.require(array, np.int64, ("C", "W"))

    def _no_batch_of_actions(self, found: object) -> ValidationError:
        return ValidationError(
            "not a batch of actions",
            found=found,
            expected=f"integers of shape ({self.num_envs},)",
            clause="ENV-STEP-P2",
        )

    def close_extras(self, **kwargs: Any) -> None:
        """End the lifecycle; `close()` calls this once."""
        self._lifecycle = CLOSED


def _scalar(value: Any) -> Any:
    """Return the number in an array of no dimensions; anything else as it is."""
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value


def _each(observations: Any, which: Mask) -> NDArray[Any]:
    """Return the marked observations one by one, as Gymnasium passes final observations."""
    single = np.full(which.size, None, dtype=object)
    for i in np.flatnonzero(which):
        if isinstance(observations, dict):
            single[i] = {name: values[i].copy() for name, values in observations.items()}
        else:
            single[i] = observations[i].copy()
    return single


def _illegal(action: Any, index: int, space: Any) -> ValidationError:
    return ValidationError(
        f"not a legal action in sub-environment {index}",
        found=int(action),
        expected=f"a member of {space}",
        clause="ENV-STEP-P2",
    )


def _checked_mode(mode: Any) -> AutoresetMode:
    for known in AutoresetMode:
        if mode is known or mode in (known.value, known.name):
            return known
    raise ValidationError(
        "unknown autoreset mode", found=mode, expected=" or ".join(known.value for known in AutoresetMode)
    )
