"""The sub-episodes of a batch: which there are in its record, in which rows they begin and end.

Rule 1: a batch's record has one row per message. A sub-episode is seen first in the row of step `first` (0: the reset), its
    actions are those of the steps `first` + 1 to `last`, whatever the mode by which it began.

        mode        begins in the row of                              its last observation is in
        next_step   the step after an end, whose action it ignores    the row that ended it
        same_step   the very step that ended the one before           `final_obs` of the row that ended it
        disabled    the next reset whose mask marks it                the row that ended it

    Steps are counted from the reset that began the chain; the session counts anew with every reset by a mask.
Rule 2: what began by itself began with the seed that the infos report, and without options.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec
import numpy as np

from proctor.errors import ValidationError
from proctor.ledger.reader import Row
from proctor.models.control import MOST_ENVS
from proctor.models.events import BatchReset, BatchStepped, SessionOpened
from proctor.replay.batch_driver import parse_reset_mask
from proctor.replay.comparison import parse_array
from proctor.replay.seeds import parse_info_seeds

DEFAULT_MODE: Final = "next_step"

_options: Final = msgspec.json.Decoder(dict[str, Any] | None).decode


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


def check_num_envs(opened: SessionOpened) -> None:
    """Raise a ValidationError if a record says a batch of more environments than any server serves."""
    if opened.num_envs is not None and opened.num_envs > MOST_ENVS:
        raise ValidationError(
            "this episode cannot be replayed: its record says more environments than a server serves",
            found=opened.num_envs,
            expected=f"at most {MOST_ENVS}",
        )


class SubEpisodeTracker:
    """Follows the rows of a batch's chain, from the first."""

    def __init__(self) -> None:
        self._mode = DEFAULT_MODE
        self._num_envs = 0
        self._step = 0
        self._running: dict[int, SubEpisode] = {}

    def add_row(self, row: Row) -> BatchRow | None:
        """Return what a row means for the sub-episodes; None: nothing."""
        event = row.event
        if isinstance(event, SessionOpened):
            self._open(event)
        elif isinstance(event, BatchReset):
            return self._add_reset(row, event)
        elif isinstance(event, BatchStepped):
            return self._add_step(row, event)
        return None

    def list_running(self) -> tuple[SubEpisode, ...]:
        """Return the sub-episodes that have not ended, up to the latest step."""
        return tuple(replace(sub, last=self._step) for sub in self._running.values())

    def _open(self, event: SessionOpened) -> None:
        if event.num_envs is None:
            raise ValidationError("this is no batch", found=event.session, expected="the chain of a batch")
        check_num_envs(event)
        self._num_envs = event.num_envs
        self._mode = event.autoreset_mode or DEFAULT_MODE

    def _add_reset(self, row: Row, event: BatchReset) -> BatchRow:
        mask = parse_reset_mask(event)
        which = range(self._num_envs) if mask is None else np.flatnonzero(mask).tolist()
        ended = tuple(self._end(i) for i in which if i in self._running)
        options = _options(event.options)
        begun = self._begin(which, _find_seeds(event, self._num_envs), row.seq, options)
        return BatchRow(row, event, self._step, (), ended, begun)

    def _add_step(self, row: Row, event: BatchStepped) -> BatchRow:
        goes_on = tuple(self._running)
        self._step += 1
        terminated, truncated = parse_array(event.terminations), parse_array(event.truncations)
        over = [i for i in goes_on if terminated[i] or truncated[i]]
        # Under next_step, whoever does not run begins with this row; under same_step, whoever ends with it.
        waiting = [i for i in range(self._num_envs) if i not in self._running]
        begins = {"next_step": waiting, "same_step": over}.get(self._mode, [])
        ended = tuple(self._end(i, bool(terminated[i]), bool(truncated[i])) for i in over)
        seeds = parse_info_seeds(msgspec.json.decode(event.infos)) if begins else {}
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


def _find_seeds(event: BatchReset, num_envs: int) -> dict[int, int]:
    """Return the seed of every sub-environment, as asked for or else as reported."""
    if isinstance(event.seed, int):
        return {i: event.seed + i for i in range(num_envs)}
    told = parse_info_seeds(msgspec.json.decode(event.infos))
    asked = {} if event.seed is None else {i: seed for i, seed in enumerate(event.seed) if seed is not None}
    return {**told, **asked}
