"""Where the demo is shown: rows in order and none twice, and an operator who lets people read first."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import pytest
from msgspec import Raw

from proctor.cli.demo import display
from proctor.cli.demo.display import DemoOperator, Playback, RowFollower
from proctor.cli.demo.story import EpisodeStory
from proctor.errors import ComponentError
from proctor.ledger.reader import Row
from proctor.models.operator import Choice, Waiting
from tests.cli.episodes import begun


class Growing:
    """A ledger with one chain, of which more can be read with every call."""

    def __init__(self, rows: list[Row], pace: int) -> None:
        self.all = rows
        self.pace = pace
        self.written = 0

    def rows(self, chain: str, after: int = -1) -> Any:
        self.written = min(self.written + self.pace, len(self.all))
        return (row for row in self.all[: self.written] if row.seq > after)

    @property
    def grows(self) -> bool:
        return self.written < len(self.all)


class Seen:
    """A show that remembers."""

    def __init__(self) -> None:
        self.story = EpisodeStory()
        self.taken: list[int] = []
        self.drawn = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def add_row(self, row: Row) -> None:
        self.taken.append(row.seq)

    def draw(self) -> None:
        self.drawn += 1


class Operators:
    """An operator's side that has something waiting, and remembers what was done about it."""

    def __init__(self, *waiting: Waiting) -> None:
        self.waiting = list(waiting)
        self.done: list[tuple[str, ...]] = []

    def pending(self) -> list[Waiting]:
        return list(self.waiting)

    def answer(self, waiting: Waiting, choice: str, *, text: str) -> None:
        self.waiting.remove(waiting)
        self.done.append(("answer", choice, text))

    def approve(self, waiting: Waiting, *, text: str) -> None:
        self.waiting.remove(waiting)
        self.done.append(("approve", waiting.id))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def waiting(kind: Any, *options: str) -> Waiting:
    choices = [Choice(option, f"to {option}") for option in options]
    return Waiting(kind, "s1", 1, kind, 0.0, "what now?", choices, Raw(b"{}"))


def desk_of(operators: Operators, **more: Any) -> DemoOperator:
    return DemoOperator(operators, **more)  # type: ignore[arg-type]  # the calls that a desk makes


@pytest.mark.parametrize(("pace", "fast"), [(1, True), (3, True), (100, True), (4, False)])
def test_every_row_is_shown_once_and_in_order(pace: int, fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "PICTURES_PER_SECOND", 1000.0)
    ledger, show = Growing(begun().rows, pace), Seen()
    hall = Playback(show, RowFollower(ledger, "s1.1"), desk_of(Operators()), fast=fast)  # type: ignore[arg-type]

    hall.watch(lambda: ledger.grows)

    assert show.taken == list(range(len(ledger.all)))


def test_a_picture_shows_a_few_rows_and_more_where_many_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "PICTURES_PER_SECOND", 1000.0)
    rows = [row for _ in range(20) for row in begun().rows]
    slow, swift = Seen(), Seen()

    Playback(slow, RowFollower(Growing(rows, 1000), "s1.1"), desk_of(Operators())).watch(lambda: False)  # type: ignore[arg-type]
    Playback(swift, RowFollower(Growing(rows, 1000), "s1.1"), desk_of(Operators()), fast=True).watch(lambda: False)  # type: ignore[arg-type]

    assert swift.drawn == 1
    assert display.BACKLOG < slow.drawn < len(rows) / display.ROWS_PER_PICTURE


def test_the_operator_waits_until_everything_was_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "PICTURES_PER_SECOND", 1000.0)
    rows = [row for _ in range(5) for row in begun().rows]
    show, operators = Seen(), Operators(waiting("escalation", "shorter", "stop"))
    shown: list[int] = []

    def pending() -> list[Waiting]:
        shown.append(len(show.taken))
        return []

    monkeypatch.setattr(operators, "pending", pending)
    hall = Playback(show, RowFollower(Growing(rows, 1000), "s1.1"), desk_of(operators, reading_seconds=0.0))  # type: ignore[arg-type]

    hall.watch(lambda: not shown)

    assert shown == [len(rows)]


def test_a_show_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "PATIENCE_SECONDS", 0.05)
    hall = Playback(Seen(), RowFollower(Growing([], 1), "s1.1"), desk_of(Operators()), fast=True)  # type: ignore[arg-type]

    with pytest.raises(ComponentError, match="not come to an end"):
        hall.watch(lambda: True)


def test_a_question_is_answered_when_it_could_be_read() -> None:
    clock, operators = Clock(), Operators(waiting("escalation", "shorter", "stop"))
    desk = desk_of(operators, reading_seconds=2.0, clock=clock)

    desk.answer_questions()
    clock.now += 1.0
    desk.answer_questions()
    early = list(operators.done)
    clock.now += 1.5
    desk.answer_questions()

    assert early == []
    assert operators.done == [("answer", "shorter", "(to shorter)")]


def test_a_token_is_approved() -> None:
    operators = Operators(waiting("token"))

    desk_of(operators, reading_seconds=0.0).answer_questions()

    assert operators.done == [("approve", "token")]


def test_nobody_is_asked_too_often() -> None:
    class Counting(Operators):
        asked = 0

        def pending(self) -> list[Waiting]:
            self.asked += 1
            return []

    clock, operators = Clock(), Counting()
    desk = desk_of(operators, clock=clock)
    for _ in range(10):
        desk.answer_questions()
        clock.now += display.ASKING_SECONDS / 5

    assert operators.asked == 2
