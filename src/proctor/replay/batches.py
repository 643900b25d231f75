"""The sub-episodes of a batch: which there are in its record, and each replayed alone with the single environment.

Rule 1: a batch's record has one row per message. A sub-episode is seen first in the row of step `first` (0: the reset), its
    actions are those of the steps `first` + 1 to `last`, whatever the mode by which it began.

        mode        begins in the row of                              its last observation is in
        next_step   the step after an end, whose action it ignores    the row that ended it
        same_step   the very step that ended the one before           `final_obs` of the row that ended it
        disabled    the next reset whose mask marks it                the row that ended it

    Steps are counted from the reset that began the chain; the session counts anew with every reset by a mask.
Rule 2: what began by itself began with the seed that the infos report, and without options.
Rule 3: the batch promises that each of its episodes is one of the single environment with the same seed; a replay tests it. Compared are
    observation, reward, flags and what the infos say of this sub-environment, by value: a batch says numbers in arrays, of
    which each element has the array's type.
Rule 4: one that has no known seed, or whose observations were not stored, is left out, and that is said.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any, Final

import gymnasium as gym
import msgspec
from gymnasium.vector.utils import batch_space, iterate

from proctor.errors import ValidationError
from proctor.ledger.reader import Row
from proctor.ledger.rows import decode_value
from proctor.models.control import StepBatch
from proctor.models.events import BatchReset, BatchStepped, SessionOpened
from proctor.models.spaces import codec_of
from proctor.models.wire import PLAIN
from proctor.replay import comparison
from proctor.replay.driver import EnvironmentFailure, SingleDriver, call_factory, check_num_envs, find_target


@dataclass(frozen=True, slots=True)
class SubEpisode:
    """One episode of one sub-environment; see the rules at the head. `seed` is None where nobody said it."""

    index: int
    seed: int | None
    first: int
    last: int
    terminated: bool = False
    truncated: bool = False
    seq: int = 0
    """The row of its first observation."""
    options: dict[str, Any] | None = None
    """Those of the reset that began it."""

    @property
    def steps(self) -> int:
        """How many actions it had."""
        return self.last - self.first


@dataclass(frozen=True, slots=True)
class BatchRow:
    """A row of a batch: who goes on in it, who ends with it and who begins in it."""

    row: Row
    event: BatchReset | BatchStepped
    step: int
    goes_on: tuple[int, ...]
    """Whose actions are carried out."""
    ended: tuple[SubEpisode, ...]
    begun: tuple[SubEpisode, ...]


def sub_episodes(rows: Iterable[Row]) -> list[SubEpisode]:
    """Return every sub-episode in a batch's chain in the order of their beginnings, also those that never ended."""
    course = SubEpisodeTracker()
    found: dict[tuple[int, int], SubEpisode] = {}
    for row in rows:
        turn = course.add_row(row)
        if turn is not None:
            found.update({(sub.seq, sub.index): sub for sub in (*turn.begun, *turn.ended)})
    found.update({(sub.seq, sub.index): sub for sub in course.list_running()})
    return [found[key] for key in sorted(found)]


class SubEpisodeTracker:
    """Follows the rows of a batch's chain, from the first."""

    def __init__(self) -> None:
        self._mode = "next_step"
        self._num_envs = 0
        self._step = 0
        self._running: dict[int, SubEpisode] = {}

    def add_row(self, row: Row) -> BatchRow | None:
        """Return what a row means for the sub-episodes; None: nothing."""
        event = row.event
        if isinstance(event, SessionOpened):
            if event.num_envs is None:
                raise ValidationError("this is no batch", found=event.session, expected="the chain of a batch")
            check_num_envs(event)
            self._num_envs = event.num_envs
            self._mode = event.autoreset_mode or self._mode
        elif isinstance(event, BatchReset):
            return self._add_reset(row, event)
        elif isinstance(event, BatchStepped):
            return self._add_step(row, event)
        return None

    def list_running(self) -> tuple[SubEpisode, ...]:
        """Return the sub-episodes that have not ended, up to the latest step."""
        return tuple(replace(sub, last=self._step) for sub in self._running.values())

    def _add_reset(self, row: Row, event: BatchReset) -> BatchRow:
        reset = comparison.read_reset(event, self._num_envs)
        which = [i for i in range(self._num_envs) if reset.mask is None or reset.mask[i]]
        ended = tuple(self._end(i) for i in which if i in self._running)
        begun = self._begin(which, comparison.find_each_seed(event, self._num_envs), row.seq, reset.options)
        return BatchRow(row, event, self._step, (), ended, begun)

    def _add_step(self, row: Row, event: BatchStepped) -> BatchRow:
        goes_on = tuple(self._running)
        self._step += 1
        terminated, truncated = comparison.parse_array(event.terminations), comparison.parse_array(event.truncations)
        over = [i for i in goes_on if terminated[i] or truncated[i]]
        # Under next_step, whoever does not run begins with this row; under same_step, whoever ends with it.
        waiting = [i for i in range(self._num_envs) if i not in self._running]
        begins = {"next_step": waiting, "same_step": over}.get(self._mode, [])
        ended = tuple(self._end(i, bool(terminated[i]), bool(truncated[i])) for i in over)
        seeds = comparison.read_info_seeds(event.infos) if begins else {}
        return BatchRow(row, event, self._step, goes_on, ended, self._begin(begins, seeds, row.seq, None))

    def _begin(
        self, which: Iterable[int], seeds: Mapping[int, int], seq: int, options: dict[str, Any] | None
    ) -> tuple[SubEpisode, ...]:
        begun = tuple(SubEpisode(i, seeds.get(i), self._step, self._step, seq=seq, options=options) for i in which)
        self._running.update({sub.index: sub for sub in begun})
        return begun

    def _end(self, index: int, terminated: bool = False, truncated: bool = False) -> SubEpisode:
        sub = self._running.pop(index)
        return replace(sub, last=self._step, terminated=terminated, truncated=truncated)


FINAL_KEYS: Final = ("final_info", "final_obs")
"""What speaks of the episode before, where another has begun in the same step."""
NO_SEED: Final = "it began without a seed that anybody knows"

_decode: Final = msgspec.json.Decoder().decode
_encode: Final = msgspec.json.Encoder().encode
_actions: Final = msgspec.json.Decoder(StepBatch).decode


class SpaceSplitter:
    """Takes values of `count` environments apart, each as JSON says it of one."""

    def __init__(self, space: gym.Space[Any], count: int) -> None:
        self._space = batch_space(space, count)
        self._one = codec_of(space)
        self._many = codec_of(self._space)

    def each(self, said: Any) -> list[Any]:
        """Return the values of a batch one by one."""
        return [self._one.encode(value) for value in iterate(self._space, self._many.decode(said, bounded=False))]


class BatchRowReader:
    """What one row says of each sub-environment; each part is read once, when it is first asked for."""

    def __init__(self, actions: SpaceSplitter, observations: SpaceSplitter, turn: BatchRow) -> None:
        self._actions = actions
        self._observations = observations
        self._turn = turn
        self.step: Final = turn.step

    def action(self, index: int) -> bytes:
        """Return the action of one sub-environment as on the wire."""
        return _encode({"action": self._each_action[index]})

    def differences(
        self, index: int, found: comparison.EnvOutput, *, begins: bool
    ) -> Iterator[comparison.Difference | None]:
        """Yield how the row differs from what one environment answered: to the reset with which it `begins`, or to a step."""
        is_last = not begins and index in self._finals
        if is_last or self._each_observation is not None:
            each: Any = self._finals if is_last else self._each_observation
            yield comparison.find_difference("observation", _encode({"observation": each[index]}), found.observation)
        if not begins:
            rewards, terminated, truncated = self._outcomes
            yield comparison.find_outcome_difference("reward", float(rewards[index]), found.reward)
            yield comparison.find_outcome_difference("terminated", bool(terminated[index]), found.terminated)
            yield comparison.find_outcome_difference("truncated", bool(truncated[index]), found.truncated)
        recorded = _select_infos(self._infos.get("final_info", {}) if is_last else self._infos, index)
        # What one says of itself may be more.
        now = _decode(found.metadata)
        shared = {key: now[key] for key in recorded if key in now}
        yield comparison.find_value_difference("metadata", _as_floats(recorded), _as_floats(shared))

    @cached_property
    def _each_action(self) -> list[Any]:
        event = self._turn.event
        said = _actions(event.actions).actions if isinstance(event, BatchStepped) else b"[]"
        return self._actions.each(decode_value(said))

    @cached_property
    def _each_observation(self) -> list[Any] | None:
        """None: the values were not stored."""
        return self._observations.each(decode_value(self._turn.event.observations)) if self._turn.row.values else None

    @cached_property
    def _outcomes(self) -> tuple[Any, ...]:
        event = self._turn.event
        said = (event.raw_rewards, event.terminations, event.truncations) if isinstance(event, BatchStepped) else ()
        return tuple(map(comparison.parse_array, said))

    @cached_property
    def _infos(self) -> dict[str, Any]:
        told: dict[str, Any] = comparison.unpack_arrays(decode_value(self._turn.event.infos))
        return told

    @cached_property
    def _finals(self) -> dict[int, Any]:
        """The last observations of those whose next episode has begun in the same row."""
        told = self._infos.get("final_obs", {"index": [], "values": []})
        return dict(zip(told["index"], told["values"], strict=True))


def _select_infos(infos: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Return what a batch's infos say of one sub-environment."""
    said: dict[str, Any] = {}
    for key, value in infos.items():
        is_mask = key.startswith("_") and key[1:] in infos
        mask = infos.get(f"_{key}")
        if (
            is_mask
            or key in FINAL_KEYS
            or key in comparison.EPISODE_STATISTICS
            or (mask is not None and not mask[index])
        ):
            continue
        said[key] = _select_infos(value, index) if isinstance(value, dict) else value[index]
    return said


def _as_floats(value: Any) -> Any:
    """Return a value with every number as a float: an array has one type for all its numbers."""
    if isinstance(value, dict):
        return {key: _as_floats(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_as_floats(each) for each in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


@dataclass(frozen=True, slots=True)
class SubEpisodeReplay:
    """The result for one sub-episode; `first` is the first difference, at step `at_step` of the batch."""

    sub: SubEpisode
    identical: bool
    first: comparison.Difference | None = None
    at_step: int | None = None
    why_not: str = ""
    by_digest: bool = False
    """Whether its observations could not be compared, because only the batch's digests were stored."""


def replay_sub_episodes(rows: Iterable[Row], indexes: Iterable[int] | None = None) -> Iterator[SubEpisodeReplay]:
    """Yield the result for each sub-episode of a batch's chain as it ends; `indexes` chooses sub-environments.

    A ValidationError says why the single environment cannot be made.
    """
    rows = iter(rows)
    first = next(rows, None)
    if first is None or not isinstance(first.event, SessionOpened):
        raise ValidationError("this chain is no episode", expected="the chain of an episode, from its first row")
    course = SubEpisodeTracker()
    drive = _SubEpisodeDriver(first.event, None if indexes is None else frozenset(indexes))
    try:
        for row in chain([first], rows):
            try:
                turn = course.add_row(row)
                found = [] if turn is None else list(drive.run_row(turn))
            except ValidationError:
                raise
            except comparison.MALFORMED_ROW_ERRORS as problem:
                raise ValidationError(f"row {row.seq} of {row.chain} cannot be read: {problem}") from problem
            yield from found
        yield from drive.read_results(course.list_running())
    finally:
        drive.close()


class _SubEpisodeDriver:
    def __init__(self, opened: SessionOpened, chosen: frozenset[int] | None) -> None:
        self._chosen = chosen
        self._target = find_target(opened)
        self._drivers: dict[int, SingleDriver] = {}
        self._findings: dict[int, tuple[int, comparison.Difference]] = {}
        self._running: set[int] = set()
        """Who goes beside the batch now: of a sub-episode with a known seed, and without a difference so far."""
        self._by_digest = False
        spaces = self._driver(0).environment.spaces
        if spaces is None or opened.num_envs is None:
            raise ValidationError("this is no batch", found=opened.session, expected="the chain of a batch")
        self._splitters = [SpaceSplitter(space, opened.num_envs) for space in spaces]

    def run_row(self, turn: BatchRow) -> Iterator[SubEpisodeReplay]:
        """Carry out a row everywhere, and yield the results of the sub-episodes that end with it."""
        actions, observations = self._splitters
        said = BatchRowReader(actions, observations, turn)
        self._by_digest = self._by_digest or not turn.row.values
        for i in turn.goes_on:
            if i in self._running:
                self._compare(i, said, None)
        yield from self.read_results(turn.ended)
        for sub in turn.begun:
            self._findings.pop(sub.index, None)
            self._running.discard(sub.index)
            if sub.seed is not None and self._is_chosen(sub):
                self._running.add(sub.index)
                self._compare(sub.index, said, comparison.RecordedReset(sub.seed, None, sub.options))

    def read_results(self, subs: Iterable[SubEpisode]) -> Iterator[SubEpisodeReplay]:
        """Yield what the sub-episodes have come to."""
        for sub in filter(self._is_chosen, subs):
            if sub.seed is None:
                yield SubEpisodeReplay(sub, identical=False, why_not=NO_SEED)
                continue
            at_step, first = self._findings.get(sub.index, (None, None))
            yield SubEpisodeReplay(sub, first is None, first, at_step, by_digest=self._by_digest)

    def close(self) -> None:
        """Let go of the environments."""
        for driver in self._drivers.values():
            driver.close()

    def _is_chosen(self, sub: SubEpisode) -> bool:
        return self._chosen is None or sub.index in self._chosen

    def _driver(self, index: int) -> SingleDriver:
        if index not in self._drivers:
            self._drivers[index] = SingleDriver(call_factory(self._target.make), PLAIN)
        return self._drivers[index]

    def _compare(self, index: int, said: BatchRowReader, reset: comparison.RecordedReset | None) -> None:
        driver = self._driver(index)
        try:
            found = driver.act(said.action(index)) if reset is None else driver.begin(reset)
            difference = next(filter(None, said.differences(index, found, begins=reset is not None)), None)
        except EnvironmentFailure as problem:
            difference = comparison.Difference("step" if reset is None else "reset", "an answer", str(problem))
        if difference is not None:
            self._findings[index] = (said.step, difference)
            self._running.discard(index)
