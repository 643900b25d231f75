"""Many games of Column Popper in one: a Gymnasium vector environment whose every step is a few compiled loops.

Rule 1: the rules of `proctor.envs.vector.batched_env` hold; what is here is what happens in an episode.
Rule 2: the state of an instant is a `BatchSnapshot`: arrays that no later step writes to. `info` is made from it when
    somebody looks.
Rule 3: to whoever looks, a `LazyDict` is a dict like any other: its keys are there from the start, a value is made when it
    is asked for, and whatever shows all values (a loop over items, a copy, a comparison) makes all of them. Only code in C
    that reads a dict's storage directly, such as msgspec's encoders, needs `dict(info)`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from proctor.envs.popper.env import VERSION, ColumnPopperEnv, ContractColumnPopperEnv
from proctor.envs.popper.game import FULL_DROP, OVERFLOW, Game
from proctor.envs.popper.rewards import PARTS
from proctor.envs.popper.rules import PopperRules
from proctor.envs.popper.vector import kernels
from proctor.envs.vector.batched_env import BOOL, INT32, BatchedEnv, Mask, make_final_info, pack_record


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
"""By the number of the end in `kernels`."""


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
            return self.everyone & (self.events[0] != kernels.BEGAN)
        return self.everyone if key.startswith("_") else INFO_VALUES[key](self)

    def remaining_seconds(self) -> NDArray[np.float64]:
        """Return the seconds until time is up."""
        left: NDArray[np.float64] = np.maximum(self.settings.duration_ms - self.clock[0], 0) / 1000
        return left

    def masks(self) -> NDArray[np.int8]:
        """Return 1 for each action that is valid, N x (columns + 1)."""
        valid: NDArray[np.int8] = np.empty(self.tops.shape, INT8)
        kernels.masks(self.tops, self.settings.height, valid)
        return valid.T

    def parts(self) -> dict[str, NDArray[np.float64]]:
        """Return the parts of the rewards."""
        parts: NDArray[np.float64] = np.zeros((len(PARTS), self.seeds.size))
        kernels.part_rewards(self.events, self.settings.weights, parts)
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


class BatchedColumnPopper(BatchedEnv):
    """`num_envs` games of Column Popper, played together.

    Takes the settings of `ColumnPopperEnv`, and `autoreset_mode`. `info` has the single environment's keys as arrays
    (`reward_parts`: a dict of arrays), each with a mask `_key` of the sub-environments that it speaks of; it is computed
    when somebody looks at it. It does not render: replay an episode by its seed in the single environment.
    """

    single_class = ColumnPopperEnv
    _single: ColumnPopperEnv

    def _allocate(self) -> None:
        n, rules = self.num_envs, self._single.rules
        self._record = pack_record(
            kernels.RULES,
            {
                "height": rules.height,
                "action_ms": rules.action_ms,
                "duration_ms": rules.duration_ms,
                "last_tick": rules.schedule.last_tick,
                "strict": rules.strict_invalid,
                "fast_forward": rules.fast_forward,
                "shaped": bool(rules.rewards.pair or rules.rewards.crowding),
                "values": len(rules.number_pool),
            },
        )
        self._pool = _pack_pool(rules.number_pool)
        self._curve = np.array(rules.fall_curve, INT32)
        self._snapshot_settings = SnapshotSettings(rules.height, rules.duration_ms, np.array(astuple(rules.rewards)))
        self._worths = _make_worths(rules)
        self._ends = np.array([0.0, rules.rewards.overflow, 0.0, rules.rewards.time_up])
        self._shaped = bool(self._record["shaped"][0])
        self._tells_time = rules.include_time_left_norm
        self._shapes_of = ((n, rules.height, rules.columns), (n, 2), (rules.columns + 1, n), (5, n), (2, n), (3, n))
        self._cells: NDArray[np.int8] = np.zeros((n, rules.height * rules.columns), INT8)
        self._tops: NDArray[np.int8] = np.zeros((rules.columns + 1, n), INT8)
        self._clock: NDArray[np.int32] = np.zeros((5, n), INT32)
        self._keys: NDArray[np.uint64] = np.zeros(n, np.uint64)
        self._shapes = np.zeros((4, n))

    def _begin(self, which: Mask, options: Mapping[str, Any]) -> None:
        self._tops, self._clock = self._tops.copy(), self._clock.copy()
        kernels.start(np.flatnonzero(which), *self._position, *self._constants)
        if options.get("board") is None and options.get("selection") is None:
            return
        for i in np.flatnonzero(which):
            board = self._single._make_board(int(self._seeds[2, i]), options)
            self._cells[i] = board.cells.reshape(-1)
            self._tops[:, i] = [*map(len, board.stacks), board.held]

    @property
    def _position(self) -> tuple[NDArray[Any], ...]:
        """The arrays that kernels change."""
        return self._cells, self._tops, self._clock, self._keys, self._seeds

    @property
    def _constants(self) -> tuple[NDArray[Any], ...]:
        """The arrays that kernels only read."""
        return self._record, self._pool, self._curve

    def _observations(self) -> dict[str, NDArray[Any]]:
        board_shape, selection_shape, *_ = self._shapes_of
        boards: NDArray[np.int32] = np.empty(board_shape, INT32)
        selections: NDArray[np.int32] = np.empty(selection_shape, INT32)
        kernels.observe(self._cells, self._tops, boards, selections)
        return self._make_observations(boards, selections)

    def _make_observations(self, boards: NDArray[np.int32], selections: NDArray[np.int32]) -> dict[str, NDArray[Any]]:
        observations: dict[str, NDArray[Any]] = {"board": boards, "selection": selections}
        if self._tells_time:
            shares = (
                np.maximum(self._snapshot_settings.duration_ms - self._clock[0], 0)
                / self._snapshot_settings.duration_ms
            )
            observations["time_left_norm"] = shares.astype(np.float32)[:, None]
        return observations

    def step(self, actions: Any) -> tuple[Any, NDArray[np.float64], Mask, Mask, dict[str, Any]]:
        """Advance every sub-environment; those that ended before begin an episode instead, as the mode says."""
        actions = self._parse_actions(actions)
        board_shape, selection_shape, tops_shape, clock_shape, events_shape, flags_shape = self._shapes_of
        boards: NDArray[np.int32] = np.empty(board_shape, INT32)
        selections: NDArray[np.int32] = np.empty(selection_shape, INT32)
        tops: NDArray[np.int8] = np.empty(tops_shape, INT8)
        clock: NDArray[np.int32] = np.empty(clock_shape, INT32)
        events: NDArray[np.int8] = np.empty(events_shape, INT8)
        flags: Mask = np.empty(flags_shape, BOOL)
        reward: NDArray[np.float64] = np.empty(self._shape)
        begun = kernels.step(
            actions,
            self._ended,
            self._tops,
            self._clock,
            self._cells,
            tops,
            clock,
            self._keys,
            self._seeds,
            self._record,
            self._pool,
            self._curve,
            self._worths,
            self._ends,
            events,
            flags,
            self._shapes,
            reward,
            boards,
            selections,
        )
        if begun < 0:
            raise self._illegal_action_error(actions, -1 - begun)
        self._tops, self._clock, self._ended = tops, clock, flags[2]
        shaping = self._shaping(events, reward) if self._shaped else None
        now = BatchSnapshot(
            tops, clock, self._seeds[2].copy(), events, shaping, self._everyone, self._snapshot_settings
        )
        terminated, truncated = flags[0], flags[1]
        if self._restarts_at_once and self._ended.any():
            info = self._restart_at_once(now)
            return self._observations(), reward, terminated, truncated, info
        return self._make_observations(boards, selections), reward, terminated, truncated, now.info()

    def _shaping(self, events: NDArray[np.int8], reward: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add what the changes of pairs and crowding were worth to the rewards, and return it."""
        shaping: NDArray[np.float64] = np.empty((len(PARTS) - EVENTS, self.num_envs))
        kernels.shape_rewards(events, self._shapes, self._snapshot_settings.weights, shaping)
        reward += shaping[0]
        reward += shaping[1]
        return shaping

    def _restart_at_once(self, then: BatchSnapshot) -> dict[str, Any]:
        """Begin the next episode where one has just ended; the last observation and info are in the info returned."""
        ended = self._ended
        last = self._observations()
        now, flags = then.copy(), np.zeros(self._shapes_of[-1], BOOL)
        self._tops, self._clock = now.tops, now.clock
        kernels.restart(ended, *self._position, *self._constants, now.events, flags)
        self._ended = flags[2]
        now.seeds = self._seeds[2].copy()
        then.everyone = ended
        return {**now.info(), "reward_parts": then.parts(), **make_final_info(last, then.info(), ended)}

    def _reset_info(self, begun: Mask) -> dict[str, Any]:
        events = np.zeros((2, self.num_envs), INT8)
        now = BatchSnapshot(
            self._tops, self._clock, self._seeds[2].copy(), events, None, begun, self._snapshot_settings
        )
        return now.reset_info()


class BatchedContractColumnPopper(BatchedColumnPopper):
    """Games on the contract's board, played together."""

    single_class = ContractColumnPopperEnv


def _make_worths(rules: PopperRules) -> NDArray[np.float64]:
    """Return what a step is worth by its outcome, from `BEGAN`, which is no step, to a column that pops as a whole."""
    game = Game(rules)
    of_steps = [game.worth(outcome, False, None)[0] for outcome in range(int(kernels.BEGAN) + 1, rules.height + 1)]
    return np.array([0.0, *of_steps])


def _pack_pool(values: Sequence[int]) -> NDArray[np.int8]:
    """Return the number pool as kernels read it: the values, and from `PLACES` on the place of each value."""
    pool = np.zeros(2 * kernels.PLACES, INT8)
    pool[: len(values)] = values
    for place, value in enumerate(values):
        pool[kernels.PLACES + value] = place
    return pool
