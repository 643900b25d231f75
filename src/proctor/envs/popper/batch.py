"""Many games of Column Popper in one: a Gymnasium vector environment whose every step is a few compiled loops.

Rule 1: the rules of `proctor.envs.batching` hold; what is here is what happens in an episode.
Rule 2: the position is private to the batch; whatever a step returns is made anew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from proctor.envs.batch_refusals import packed
from proctor.envs.batching import BOOL, INT32, BatchedEnv, Mask, finals
from proctor.envs.popper import kernels, view_kernels
from proctor.envs.popper.env import VERSION, ColumnPopperEnv, ContractColumnPopperEnv
from proctor.envs.popper.game import FULL_DROP, OVERFLOW
from proctor.envs.popper.rewards import PARTS

INT8: Final = np.dtype(np.int8)
EVENTS: Final = 7
"""The first parts of a reward are worth of events; the others are worth of changes, which few tables value."""
Parts: TypeAlias = dict[str, NDArray[np.float64]]
FAULTS: Final = {kernels.LOST: OVERFLOW, kernels.DROPPED: FULL_DROP}


class BatchedColumnPopper(BatchedEnv):
    """`num_envs` games of Column Popper, played together.

    Takes the settings of `ColumnPopperEnv`, and `autoreset_mode`. `info` has the single environment's keys as arrays
    (`reward_parts`: a dict of arrays), each with a mask `_key` of the sub-environments that it speaks of. It does not
    render: replay an episode by its seed in the single environment.
    """

    single_class = ColumnPopperEnv
    _single: ColumnPopperEnv

    def _allocate(self) -> None:
        n, rules = self.num_envs, self._single.rules
        self._record = packed(
            kernels.RULES,
            {
                "height": rules.height,
                "columns": rules.columns,
                "action_ms": rules.action_ms,
                "duration_ms": rules.duration_ms,
                "last_tick": rules.schedule.last_tick,
                "strict": rules.strict_invalid,
                "fast_forward": rules.fast_forward,
                "shaped": bool(rules.rewards.pair or rules.rewards.crowding),
                "values": len(rules.number_pool),
            },
        )
        self._pool = _pool(rules.number_pool)
        self._curve = np.array(rules.fall_curve, INT32)
        self._weights = np.array(astuple(rules.rewards))
        self._shaped = bool(self._record["shaped"][0])
        self._board_shape = (n, rules.height, rules.columns)
        self._cells: NDArray[np.int8] = np.zeros((n, rules.height * rules.columns), INT8)
        self._lengths: NDArray[np.int8] = np.zeros((n, rules.columns), INT8)
        self._held: NDArray[np.int8] = np.zeros(n, INT8)
        self._clock: NDArray[np.int32] = np.zeros((5, n), INT32)
        self._shapes = np.zeros((4, n))
        self._no_shaping = np.zeros((len(PARTS) - EVENTS, n))
        self._no_shaping.setflags(write=False)
        self._versions = np.full(n, VERSION, object)
        self._versions.setflags(write=False)

    def _begin(self, which: Mask, options: Mapping[str, Any]) -> None:
        kernels.start(which, *self._position, *self._laws)
        if options.get("board") is None and options.get("selection") is None:
            return
        for i in np.flatnonzero(which):
            board = self._single._opening(int(self._seeds[2, i]), options)
            self._cells[i] = board.cells.reshape(-1)
            self._lengths[i] = [len(stack) for stack in board.stacks]
            self._held[i] = board.held

    @property
    def _position(self) -> tuple[NDArray[Any], ...]:
        """The arrays that kernels change."""
        return self._cells, self._lengths, self._held, self._clock, self._seeds

    @property
    def _laws(self) -> tuple[NDArray[Any], ...]:
        """The arrays that kernels read."""
        return self._record, self._pool, self._curve

    def _observations(self) -> dict[str, NDArray[Any]]:
        boards: NDArray[np.int32] = np.empty(self._cells.shape, INT32)
        selections: NDArray[np.int32] = np.empty((self.num_envs, 2), INT32)
        view_kernels.observe(self._cells, self._lengths, self._held, boards, selections)
        observations: dict[str, NDArray[Any]] = {"board": boards.reshape(self._board_shape), "selection": selections}
        if self._single.rules.include_time_left_norm:
            duration = self._single.rules.duration_ms
            shares = np.maximum(duration - self._clock[0], 0) / duration
            observations["time_left_norm"] = shares.astype(np.float32)[:, None]
        return observations

    def step(self, actions: Any) -> tuple[Any, NDArray[np.float64], Mask, Mask, dict[str, Any]]:
        """Advance every sub-environment; those that ended before begin an episode instead, as the mode says."""
        actions = self._checked_actions(actions)
        n, before = self.num_envs, self._ended
        events: NDArray[np.int8] = np.empty((2, n), INT8)
        flags: Mask = np.empty((4, n), BOOL)
        begun = kernels.step(actions, before, *self._position, *self._laws, events, flags, self._shapes)
        if begun < 0:
            raise self._illegal(actions, -1 - begun)
        reward: NDArray[np.float64] = np.empty(n)
        parts = self._parts(events, flags, reward)
        terminated, truncated, self._ended, stepped = flags
        if self._restarts_at_once and self._ended.any():
            info = self._restart_at_once(events, flags, parts)
        else:
            info = self._info(events, self._everyone)
            info["reward_parts"], info["_reward_parts"] = parts, stepped
        return self._observations(), reward, terminated, truncated, info

    def _parts(self, events: NDArray[np.int8], flags: Mask, reward: NDArray[np.float64]) -> Parts:
        """Write the rewards and return their parts."""
        parts: NDArray[np.float64] = np.empty((EVENTS, self.num_envs))
        kernels.reward(events, flags, self._weights, parts, reward)
        shaping = self._no_shaping
        if self._shaped:
            shaping = np.empty((len(PARTS) - EVENTS, self.num_envs))
            kernels.shape_reward(flags, self._shapes, self._weights, shaping, reward)
        return dict(zip(PARTS, (*parts, *shaping), strict=True))

    def _restart_at_once(self, events: NDArray[np.int8], flags: Mask, parts: Parts) -> dict[str, Any]:
        """Begin the next episode where one has just ended; the last observation and info are in the info returned."""
        ended = self._ended
        last = self._observations()
        final_info = self._info(events, ended)
        final_info["reward_parts"], final_info["_reward_parts"] = parts, ended
        events, flags = events.copy(), flags.copy()
        kernels.restart(ended, *self._position, *self._laws, events, flags)
        self._ended = flags[2]
        info = self._info(events, self._everyone)
        info["reward_parts"], info["_reward_parts"] = parts, ~ended
        return {**info, **finals(last, final_info, ended)}

    def _reset_info(self, begun: Mask) -> dict[str, Any]:
        return self._info(np.zeros((2, self.num_envs), INT8), begun)

    def _info(self, events: NDArray[np.int8], speaks_of: Mask) -> dict[str, Any]:
        """Return the info of a reset, and of a step but for the reward's parts."""
        n, rules = self.num_envs, self._single.rules
        counts: NDArray[np.int32] = np.empty((2, n), INT32)
        seconds: NDArray[np.float64] = np.empty((2, n))
        valid: NDArray[np.int8] = np.empty((n, rules.columns + 1), INT8)
        faulty = view_kernels.tell(self._clock, events[0], events[1], rules.duration_ms, counts, seconds)
        view_kernels.masks(self._lengths, self._held, rules.height, valid)
        return {
            "score": counts[0],
            "_score": speaks_of,
            "time_left": seconds[0],
            "_time_left": speaks_of,
            "pops_this_step": counts[1],
            "_pops_this_step": speaks_of,
            "fall_interval": seconds[1],
            "_fall_interval": speaks_of,
            "seed": self._seeds[2].copy(),
            "_seed": speaks_of,
            "version": self._versions,
            "_version": speaks_of,
            "action_mask": valid,
            "_action_mask": speaks_of,
            "fault": _faults(events[1], faulty),
            "_fault": speaks_of,
        }


class BatchedContractColumnPopper(BatchedColumnPopper):
    """Games on the contract's board, played together."""

    single_class = ContractColumnPopperEnv


def _pool(values: Sequence[int]) -> NDArray[np.int8]:
    """Return the number pool as kernels read it: the values, and from `PLACES` on the place of each value."""
    pool = np.zeros(2 * kernels.PLACES, INT8)
    pool[: len(values)] = values
    for place, value in enumerate(values):
        pool[kernels.PLACES + value] = place
    return pool


def _faults(codes: NDArray[np.int8], faulty: bool) -> NDArray[Any]:
    """Return the faults by name, None where there is none."""
    faults = np.empty(codes.size, object)
    for code, name in FAULTS.items() if faulty else ():
        faults[codes == code] = name
    return faults
