"""Every sub-episode of a batch, replayed alone with the single environment and compared element by element.

Rule 1: the batch promises that each of its episodes is one of the single environment with the same seed; this is the test.
Rule 2: compared are observation, reward, flags and what the infos say of this sub-environment, by value: a batch says
    numbers in arrays, of which each element has the array's type.
Rule 3: one that has no known seed, or whose observations were not stored, is left out, and that is said.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Final

from proctor.errors import ValidationError
from proctor.ledger.reader import Row
from proctor.models.events import SessionOpened
from proctor.models.wire import PLAIN
from proctor.replay.batches import Course, SubEpisode, Turn
from proctor.replay.comparison import UNREADABLE
from proctor.replay.difference import Difference
from proctor.replay.driver import Found, Raised, SingleDriver
from proctor.replay.slices import Said, Slices
from proctor.replay.supply import made_by, target_of

NO_SEED: Final = "it began without a seed that anybody knows"


@dataclass(frozen=True, slots=True)
class Alone:
    """The result for one sub-episode; `first` is the first difference, at step `at_step` of the batch."""

    sub: SubEpisode
    identical: bool
    first: Difference | None = None
    at_step: int | None = None
    why_not: str = ""
    by_digest: bool = False
    """Whether its observations could not be compared, because only the batch's digests were stored."""


def replayed_alone(rows: Iterable[Row], indexes: Iterable[int] | None = None) -> Iterator[Alone]:
    """Yield the result for each sub-episode of a batch's chain as it ends; `indexes` chooses sub-environments.

    A ValidationError says why the single environment cannot be made.
    """
    rows = iter(rows)
    first = next(rows, None)
    if first is None or not isinstance(first.event, SessionOpened):
        raise ValidationError("this chain is no episode", expected="the chain of an episode, from its first row")
    course = Course()
    drive = _Drive(first.event, None if indexes is None else frozenset(indexes))
    try:
        for row in chain([first], rows):
            try:
                turn = course.take(row)
                found = [] if turn is None else list(drive.turned(turn))
            except ValidationError:
                raise
            except UNREADABLE as problem:
                raise ValidationError(f"row {row.seq} of {row.chain} cannot be read: {problem}") from problem
            yield from found
        yield from drive.finished(course.unfinished())
    finally:
        drive.close()


class _Drive:
    """The single environments that go beside a batch, one for each sub-environment."""

    def __init__(self, opened: SessionOpened, chosen: frozenset[int] | None) -> None:
        self._chosen = chosen
        self._target = target_of(opened)
        self._drivers: dict[int, SingleDriver] = {}
        self._findings: dict[int, tuple[int, Difference]] = {}
        self._driven: set[int] = set()
        """Who goes beside the batch now: of a sub-episode with a known seed, and without a difference so far."""
        self._by_digest = False
        spaces = self._driver(0).environment.spaces
        if spaces is None or opened.num_envs is None:
            raise ValidationError("this is no batch", found=opened.session, expected="the chain of a batch")
        self._slices = Slices(*spaces, opened.num_envs)

    def turned(self, turn: Turn) -> Iterator[Alone]:
        """Carry out a row everywhere, and yield the results of the sub-episodes that end with it."""
        said = self._slices.said(turn)
        self._by_digest = self._by_digest or not turn.row.values
        for i in turn.goes_on:
            if i in self._driven:
                self._note(i, said, partial(self._act, i, said), begins=False)
        yield from self.finished(turn.ended)
        for sub in turn.begun:
            self._findings.pop(sub.index, None)
            self._driven.discard(sub.index)
            if sub.seed is not None and self._is_chosen(sub):
                self._driven.add(sub.index)
                begin = partial(self._driver(sub.index).restart, sub.seed, sub.options)
                self._note(sub.index, said, begin, begins=True)

    def finished(self, subs: Iterable[SubEpisode]) -> Iterator[Alone]:
        """Yield what the sub-episodes have come to."""
        for sub in filter(self._is_chosen, subs):
            if sub.seed is None:
                yield Alone(sub, identical=False, why_not=NO_SEED)
                continue
            at_step, first = self._findings.get(sub.index, (None, None))
            yield Alone(sub, first is None, first, at_step, by_digest=self._by_digest)

    def close(self) -> None:
        """Let go of the environments."""
        for driver in self._drivers.values():
            driver.close()

    def _is_chosen(self, sub: SubEpisode) -> bool:
        return self._chosen is None or sub.index in self._chosen

    def _driver(self, index: int) -> SingleDriver:
        if index not in self._drivers:
            self._drivers[index] = SingleDriver(made_by(self._target.make), PLAIN)
        return self._drivers[index]

    def _act(self, index: int, said: Said) -> Found:
        return self._driver(index).act(said.action(index))

    def _note(self, index: int, said: Said, ask: Callable[[], Found], *, begins: bool) -> None:
        try:
            difference = next(said.differences(index, ask(), begins=begins), None)
        except Raised as problem:
            difference = Difference("reset" if begins else "step", "an answer", str(problem))
        if difference is not None:
            self._findings[index] = (said.step, difference)
            self._driven.discard(index)
