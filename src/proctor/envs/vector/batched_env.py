"""Many environments in one: what every batch shares, which is all but the episodes themselves.

Rule 1: sub-environment i of `reset(seed=s)` is the single environment of `reset(seed=s + i)`, value for value. Later
    episodes report their own seed, with which the single environment replays them.
Rule 2: what a step returns is the caller's: observations, rewards and flags are fresh arrays, the arrays in `info` are
    fresh or read-only, and neither is changed by a later step.
Rule 3: a batch is built from a single environment, so that both read the same settings in the same way.
Rule 4: this file knows seeds, masks, modes and refusals, never what happens in an episode, and needs no compiler.
Rule 5: what only the single environment can run is refused with `batch_error`; kernels read constants as one record
    (`pack_record`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from proctor.contracts.arguments import parse_count
from proctor.contracts.chance import SEED_LIMIT
from proctor.contracts.guarded_env import GuardedEnv, parse_reset_options, parse_seed
from proctor.contracts.lifecycle import CLOSED, CREATED, READY, STEPPABLE, LifecycleMethod, guard
from proctor.errors import ComponentError, StateError, ValidationError


def batch_error(why: str, *, found: object, expected: str) -> ComponentError:
    """Return the error for a configuration that only the single environment can run."""
    return ComponentError(
        f"this configuration cannot be batched: {why}; use vectorization_mode='sync' or 'async'",
        found=found,
        expected=expected,
    )


def no_batch_form_error(part: object, known: Iterable[type]) -> ComponentError:
    """Return the error for a component whose exact type is not known; a subclass may behave differently."""
    return batch_error(
        "a part has no batched form",
        found=type(part).__name__,
        expected=f"one of {', '.join(kind.__name__ for kind in known)}",
    )


def pack_record(kind: np.dtype[Any], values: Mapping[str, Any]) -> NDArray[Any]:
    """Return the values as one record of this kind, as kernels read it."""
    record = np.zeros(1, kind)
    for name, value in values.items():
        record[name] = value
    return record


Mask = NDArray[np.bool_]
Seed = int | NDArray[np.integer] | Sequence[int | None] | None

MOST_ENVS: Final = 2**31 - 1
INT32, INT64, BOOL = np.dtype(np.int32), np.dtype(np.int64), np.dtype(np.bool_)


class BatchedEnv(VectorEnv[Any, Any, Any], ABC):
    """`num_envs` environments of `single_class`, stepped together; their actions are `Discrete` and start at 0.

    Takes the settings of the single environment, and `autoreset_mode`. `info` has the single environment's keys as
    arrays, each with a mask `_key` of the sub-environments that it speaks of; an episode that began by itself reports
    `seed`. It does not render: replay an episode by its seed in the single environment.

    A subclass names `single_class` and implements `_allocate`, `_begin`, `_observations` and `step`; it extends
    `_reset_info`. Its `step` begins with `_parse_actions`, and it keeps `_ended` and `_seeds`:

    - `_seeds`: int64, rows x N: root seed, episodes since that root, this episode's seed, episodes in all. `reset`
      writes all rows; where an episode begins by itself, the subclass does (`kernels.next_episode`).
    - `_ended`: who has ended and not begun again. Replaced with every step, never written to.
    """

    single_class: ClassVar[type[GuardedEnv[Any, Any]]]

    def __init__(
        self, num_envs: int = 1, *, autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP, **settings: Any
    ) -> None:
        self.num_envs = parse_count("num_envs", num_envs, 1, MOST_ENVS)
        self.autoreset_mode: Final = _parse_autoreset_mode(autoreset_mode)
        if settings.get("render_mode") is not None:
            raise ValidationError(
                "a batch does not render",
                found=settings["render_mode"],
                expected="render_mode=None; replay an episode by its seed in the single environment",
                clause="ENV-INIT-P6",
            )
        single = self.single_class(**settings)
        self.metadata = {**single.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = None
        self.single_action_space: Any = single.action_space
        self.single_observation_space = single.observation_space
        self.action_space = batch_space(single.action_space, self.num_envs)
        self.observation_space = batch_space(single.observation_space, self.num_envs)
        self._single = single
        self._waits_for_reset = self.autoreset_mode is AutoresetMode.DISABLED
        self._restarts_at_once = self.autoreset_mode is AutoresetMode.SAME_STEP
        self._lifecycle = CREATED
        self._shape = (self.num_envs,)
        self._seeds: NDArray[np.int64] = np.zeros((4, self.num_envs), np.int64)
        self._ended: Mask = np.zeros(self.num_envs, np.bool_)
        self._everyone: Mask = np.ones(self.num_envs, np.bool_)
        self._everyone.setflags(write=False)
        self._allocate()

    @abstractmethod
    def _allocate(self) -> None:
        """Make the arrays of the batch, or refuse settings of `_single` that cannot be batched."""

    @abstractmethod
    def _begin(self, which: Mask, options: Mapping[str, Any]) -> None:
        """Begin the episodes of `_seeds[2]` where `which` marks them; the options have been checked."""

    @abstractmethod
    def _observations(self) -> Any:
        """Return what all sub-environments observe now, as fresh arrays."""

    def _reset_info(self, begun: Mask) -> dict[str, Any]:
        """Return the info of the sub-environments that have begun an episode."""
        return {"seed": self._seeds[2].copy(), "_seed": begun}

    def reset(self, *, seed: Seed = None, options: Mapping[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode everywhere, or where `options["reset_mask"]` says; the other options hold for all.

        A list has one seed each, None for one that is drawn. The generator begins anew only if no seed is drawn.
        """
        guard(self._lifecycle, LifecycleMethod.RESET)
        known = ("reset_mask", *self._single.reset_options)
        checked = parse_reset_options(dict(options) if isinstance(options, Mapping) else options, known)
        which = self._parse_mask(checked.pop("reset_mask", None))
        given = None if seed is None else self._parse_seeds(seed)
        roots = self._choose_roots(given, which, checked)

        if given is not None and None not in given:
            super().reset(seed=int(roots[0]))
        for row, values in enumerate((roots, 0, roots, self._seeds[3] + 1)):
            np.copyto(self._seeds[row], values, where=which)
        self._begin(which, checked)
        self._ended = self._ended & ~which
        self._lifecycle = READY
        info = {**self._reset_info(which), "episode": self._seeds[3].copy(), "_episode": which}
        return self._observations(), info

    def _parse_mask(self, mask: Any) -> Mask:
        if mask is None:
            return np.ones(self.num_envs, np.bool_)
        is_mask = isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask.shape == self._shape
        if not is_mask or not mask.any():
            raise ValidationError(
                "not a reset mask",
                found=mask,
                expected=f"a bool array of shape ({self.num_envs},) with at least one True",
                clause="ENV-RESET-P3",
            )
        if self._lifecycle is CREATED and not mask.all():
            raise StateError("the first reset must reset all", found=mask, expected="no reset_mask")
        return np.array(mask, np.bool_)

    def _parse_seeds(self, seed: Any) -> Sequence[int | None]:
        """Return one seed for each sub-environment, None for one that is to be drawn."""
        seed = _unwrap_scalar(seed)
        if isinstance(seed, Sequence | np.ndarray) and not isinstance(seed, str | bytes | bytearray | memoryview):
            if len(seed) != self.num_envs:
                raise ValidationError(
                    "not one seed each", found=len(seed), expected=f"{self.num_envs} seeds", clause="ENV-RESET-P2"
                )
            return [None if each is None else parse_seed(_unwrap_scalar(each)) for each in seed]
        first = parse_seed(seed)
        parse_seed(first + self.num_envs - 1)
        return range(first, first + self.num_envs)

    def _choose_roots(
        self, given: Sequence[int | None] | None, which: Mask, options: dict[str, Any]
    ) -> NDArray[np.int64]:
        """Return the root seeds, or raise a ValidationError for an option that one of their episodes cannot have."""
        before: Any = self.np_random.bit_generator.state if options else None
        # What is not given is drawn, neighbours if none is.
        if given is None:
            first = int(self.np_random.integers(SEED_LIMIT - self.num_envs + 1))
            given = range(first, first + self.num_envs)
        drawn = (self.np_random.integers(SEED_LIMIT) if each is None else each for each in given)
        roots = np.fromiter(drawn, np.int64, self.num_envs)
        try:
            for i in np.flatnonzero(which) if options else ():
                self._single._check_options(options, int(roots[i]))
        except ValidationError:
            self.np_random.bit_generator.state = before
            raise
        return roots

    def _parse_actions(self, actions: Any) -> NDArray[np.int64]:
        """Return the actions as kernels read them, or raise: no step is legal now, or these are no actions.

        Whether each is one of the legal actions is left to the kernel, where it costs least (`first_illegal`).
        """
        if self._lifecycle is not STEPPABLE:
            guard(self._lifecycle, LifecycleMethod.STEP)
        if self._waits_for_reset and self._ended.any():
            raise StateError(
                "some episodes have ended",
                found=np.flatnonzero(self._ended).tolist(),
                expected="a reset with reset_mask before the next step",
                clause="NO-STEP-AFTER-END",
            )
        if type(actions) is np.ndarray and actions.dtype is INT64 and actions.shape == self._shape:
            flags = actions.flags
            if flags.c_contiguous and flags.writeable:
                return actions
        return self._convert_actions(actions)

    def _convert_actions(self, actions: Any) -> NDArray[np.int64]:
        found = actions
        try:
            array: NDArray[Any] = np.asarray(actions)
            found = f"{array.dtype} of shape {array.shape}"
        except (ValueError, TypeError):  # a ragged list, for one
            array = np.empty(0)
        if array.dtype.kind not in "iu" or array.shape != self._shape:
            raise ValidationError(
                "not a batch of actions",
                found=found,
                expected=f"integers of shape ({self.num_envs},)",
                clause="ENV-STEP-P2",
            )
        if array.dtype.kind == "u":
            # Before the cast, which would make the largest ones negative.
            illegal = np.flatnonzero(array >= self.single_action_space.n)
            if illegal.size:
                raise self._illegal_action_error(array, int(illegal[0]))
        return np.require(array, np.int64, ("C", "W"))

    def _illegal_action_error(self, actions: NDArray[Any], index: int) -> ValidationError:
        """Return the error for the action at `index`, which is none of the legal ones."""
        return ValidationError(
            f"not a legal action in sub-environment {index}",
            found=int(actions[index]),
            expected=f"a member of {self.single_action_space}",
            clause="ENV-STEP-P2",
        )

    def close_extras(self, **kwargs: Any) -> None:
        """End the lifecycle; `close()` calls this once."""
        self._lifecycle = CLOSED


def make_final_info(observations: Any, info: dict[str, Any], ended: Mask) -> dict[str, Any]:
    """Return the keys that hold the last observations and the last info of the episodes that `ended` marks."""
    # One by one, as Gymnasium passes final observations.
    final = np.full(ended.size, None, dtype=object)
    for i in np.flatnonzero(ended):
        if isinstance(observations, dict):
            final[i] = {name: values[i].copy() for name, values in observations.items()}
        else:
            final[i] = observations[i].copy()
    return {"final_obs": final, "_final_obs": ended, "final_info": info, "_final_info": ended}


def _unwrap_scalar(value: Any) -> Any:
    """Return the number in an array of no dimensions; anything else as it is."""
    return value[()] if isinstance(value, np.ndarray) and value.ndim == 0 else value


def _parse_autoreset_mode(mode: Any) -> AutoresetMode:
    for known in AutoresetMode:
        if mode is known or mode in (known.value, known.name):
            return known
    raise ValidationError(
        "unknown autoreset mode", found=mode, expected=" or ".join(known.value for known in AutoresetMode)
    )
