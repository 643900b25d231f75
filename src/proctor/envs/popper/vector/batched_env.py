"""Many games of Column Popper in one: a Gymnasium vector environment whose every step is a few compiled loops.

Rule 1: the rules of `proctor.envs.vector.batched_env` hold; what is here is what happens in an episode.
Rule 2: the state of an instant is a `BatchSnapshot`: arrays that no later step writes to. `info` is made from it when
    somebody looks.
Rule 3: to whoever looks, a `LazyDict` is a dict like any other: its keys are there from the start, a value is made when it
    is asked for, and whatever shows all values (a loop over items, a copy, a comparison) makes all of them. Only code in C
    that reads a dict's storage directly, such as msgspec's encoders, needs `dict(info)`.
"""

from collections.abc import Callable, Mapping
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

PENDING: Final = object()  # stands where a value has not been made yet
EAGER_METHODS: Final = (
    *("__eq__", "__ior__", "__iter__", "__ne__", "__or__", "__repr__", "__ror__"),
    *("copy", "items", "pop", "popitem", "setdefault", "values"),
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

    def __reduce__(self) -> tuple[Any, ...]:
        return (dict, (dict(self),))


def _make_eager(name: str) -> Callable[..., Any]:
    plain = getattr(dict, name)

    def look(self: LazyDict, *arguments: Any, **named: Any) -> Any:
        for key in dict.keys(self):
            self[key]
        return plain(self, *arguments, **named)

    look.__name__ = name
    return look


for _name in EAGER_METHODS:
    setattr(LazyDict, _name, _make_eager(_name))


INT8: Final = np.dtype(np.int8)
EVENTS: Final = 7  # the first parts of a reward are what events are worth; the others are what changes are worth
FAULTS: Final = np.array([None, OVERFLOW, FULL_DROP, None], object)  # by the number of the end in `kernels`


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
    rules: PopperRules

    def make_value(self, key: str) -> Any:
        """Return a value of the info, or a mask."""
        if key == "_reward_parts":
            return self.everyone & (self.events[0] != kernels.BEGAN)
        return self.everyone if key.startswith("_") else INFO_VALUES[key](self)

    def remaining_seconds(self) -> NDArray[np.float64]:
        """Return the seconds until time is up."""
        left: NDArray[np.float64] = np.maximum(self.rules.duration_ms - self.clock[0], 0) / 1000
        return left

    def masks(self) -> NDArray[np.int8]:
        """Return 1 for each action that is valid, N x (columns + 1)."""
        valid: NDArray[np.int8] = np.empty(self.tops.shape, INT8)
        kernels.masks(self.tops, self.rules.height, valid)
        return valid.T

    def parts(self) -> dict[str, NDArray[np.float64]]:
        """Return the parts of the rewards."""
        parts: NDArray[np.float64] = np.zeros((len(PARTS), self.seeds.size))
        kernels.part_rewards(self.events, np.array(astuple(self.rules.rewards)), parts)
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
        self._rules, self._shaped = rules, bool(rules.rewards.pair or rules.rewards.crowding)
        numbers = {name: getattr(rules, name) for name in kernels.NUMBERS}
        numbers |= {"shaped": self._shaped, "values": len(rules.number_pool)}
        pool: NDArray[np.int8] = np.zeros(2 * kernels.PLACES, INT8)
        for place, value in enumerate(rules.number_pool):
            pool[[place, kernels.PLACES + value]] = value, place
        self._constants = pack_record(kernels.RULES, numbers), pool, np.array(rules.fall_curve, INT32)
        game, outcomes = Game(rules), range(int(kernels.BEGAN) + 1, rules.height + 1)
        self._worths = np.array([0.0, *(game.worth(outcome, False, None)[0] for outcome in outcomes)])
        self._ends = np.array([0.0, rules.rewards.overflow, 0.0, rules.rewards.time_up])
        self._weights = np.array(astuple(rules.rewards))
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

    def _observations(self) -> dict[str, NDArray[Any]]:
        boards: NDArray[np.int32] = np.empty((self.num_envs, self._rules.height, self._rules.columns), INT32)
        selections: NDArray[np.int32] = np.empty((self.num_envs, 2), INT32)
        kernels.observe(self._cells, self._tops, boards, selections)
        return self._make_observations(boards, selections)

    def _make_observations(self, boards: NDArray[np.int32], selections: NDArray[np.int32]) -> dict[str, NDArray[Any]]:
        observations: dict[str, NDArray[Any]] = {"board": boards, "selection": selections}
        if self._rules.include_time_left_norm:
            duration = self._rules.duration_ms
            shares = np.maximum(duration - self._clock[0], 0) / duration
            observations["time_left_norm"] = shares.astype(np.float32)[:, None]
        return observations

    def step(self, actions: Any) -> tuple[Any, NDArray[np.float64], Mask, Mask, dict[str, Any]]:
        """Advance every sub-environment; those that ended before begin an episode instead, as the mode says."""
        actions = self._parse_actions(actions)
        n, height, columns = self.num_envs, self._rules.height, self._rules.columns
        boards: NDArray[np.int32] = np.empty((n, height, columns), INT32)
        selections: NDArray[np.int32] = np.empty((n, 2), INT32)
        tops: NDArray[np.int8] = np.empty((columns + 1, n), INT8)
        clock: NDArray[np.int32] = np.empty((5, n), INT32)
        events: NDArray[np.int8] = np.empty((2, n), INT8)
        flags: Mask = np.empty((3, n), BOOL)
        reward: NDArray[np.float64] = np.empty(n)
        before = (actions, self._ended, self._tops, self._clock)
        position = (self._cells, tops, clock, self._keys, self._seeds)
        results = (events, flags, self._shapes, reward, boards, selections)
        begun = kernels.step(*before, *position, *self._constants, self._worths, self._ends, *results)
        if begun < 0:
            raise self._illegal_action_error(actions, -1 - begun)
        self._tops, self._clock, self._ended = tops, clock, flags[2]
        shaping: NDArray[np.float64] | None = None
        if self._shaped:
            shaping = np.empty((len(PARTS) - EVENTS, n))
            kernels.shape_rewards(events, self._shapes, self._weights, shaping)
            reward += shaping[0]
            reward += shaping[1]
        now = BatchSnapshot(tops, clock, self._seeds[2].copy(), events, shaping, self._everyone, self._rules)
        if self._restarts_at_once and self._ended.any():
            info = self._restart_at_once(now)
            return self._observations(), reward, flags[0], flags[1], info
        info = LazyDict(_STEP, now.make_value)
        return self._make_observations(boards, selections), reward, flags[0], flags[1], info

    def _restart_at_once(self, then: BatchSnapshot) -> dict[str, Any]:
        """Begin the next episode where one has just ended; the last observation and info are in the info returned."""
        ended = self._ended
        last = self._observations()
        events, flags = then.events.copy(), np.zeros((3, self.num_envs), BOOL)
        self._tops, self._clock = then.tops.copy(), then.clock.copy()
        kernels.restart(ended, *self._position, *self._constants, events, flags)
        self._ended = flags[2]
        now = replace(then, tops=self._tops, clock=self._clock, events=events, seeds=self._seeds[2].copy())
        then.everyone = ended
        final = make_final_info(last, LazyDict(_STEP, then.make_value), ended)
        return {**LazyDict(_STEP, now.make_value), "reward_parts": then.parts(), **final}

    def _reset_info(self, begun: Mask) -> dict[str, Any]:
        events, seeds = np.zeros((2, self.num_envs), INT8), self._seeds[2].copy()
        now = BatchSnapshot(self._tops, self._clock, seeds, events, None, begun, self._rules)
        return LazyDict(_RESET, now.make_value)


class BatchedContractColumnPopper(BatchedColumnPopper):
    """Games on the contract's board, played together."""

    single_class = ContractColumnPopperEnv
