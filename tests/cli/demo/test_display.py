"""The demo shows what its rows say, to whoever reads them and whenever; and its operator lets people read first."""

import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Raw
from rich.console import Console

from proctor.cli.demo import display
from proctor.cli.demo.display import DemoOperator, EpisodeStory, RowFollower, draw_view, show_episode
from proctor.errors import ComponentError
from proctor.ledger.reader import Row
from proctor.models.operator import Choice, Waiting
from tests.cli.episodes import Recorded, begun


def told(recorded: Recorded) -> EpisodeStory:
    story = EpisodeStory()
    for row in recorded.rows:
        story.add_row(row)
    return story


def test_a_packet_is_told_as_everywhere_and_a_refusal_by_rule_and_reason() -> None:
    story = told(begun())

    entry = story.packets[0].entry
    assert (entry.at, entry.who, entry.what) == (1.0, "agent", "BeliefUpdatePacket world.odor")
    assert entry.result == "accepted S1>S2"
    assert story.refusals == ["GOV-1: an agent may not state this"]
    assert story.state == "S2_MODEL"


def test_steps_move_the_picture_and_leave_a_trail() -> None:
    recorded = Recorded()
    story = EpisodeStory()
    story.add_row(recorded.opened())
    story.add_row(recorded.reset())
    before = story.scene

    story.add_row(recorded.stepped())
    story.add_row(recorded.stepped(terminated=True, reward=1.0))

    assert before is not None
    assert story.scene is not None
    assert len(before["frame"]["trail"]) == 1
    assert len(story.scene["frame"]["trail"]) == 3
    assert story.scene["static"] == before["static"]
    assert (story.step, story.total_reward, story.terminated) == (2, 1.0, True)


def test_an_answer_and_the_end_are_told() -> None:
    recorded = begun()
    recorded.judged("EscalationPacket", {}, "S3_DECIDE", "S8_ESCALATED", tool="escalate")
    recorded.judged("user_input", {"text": "go on"}, "S8_ESCALATED", "S3_DECIDE", who="operator")
    recorded.closed("open")

    story = told(recorded)

    assert story.answers == ["go on"]
    assert story.closed is not None
    assert story.closed.outcome == "open"


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(["step", "belief", "refusal", "nothing"]), max_size=12))
def test_a_story_counts_every_packet_and_every_step_once(happens: list[str]) -> None:
    recorded = Recorded()
    recorded.opened()
    recorded.reset()
    for each in happens:
        if each == "step":
            recorded.stepped()
        elif each == "nothing":
            recorded.opened()
        else:
            rules = ("E1",) if each == "refusal" else ()
            recorded.judged("BeliefUpdatePacket", {}, "S1_SENSE", rules=rules)

    story = told(recorded)

    assert story.step == happens.count("step")
    assert len(story.packets) == happens.count("belief") + happens.count("refusal")
    assert len(story.refusals) == happens.count("refusal")


def shown(recorded: Recorded, *, terminal: bool, live: bool = True, width: int = 110) -> str:
    out = io.StringIO()
    colours: Any = "truecolor" if terminal else None
    console = Console(
        file=out, force_terminal=terminal, width=width, height=30, color_system=colours, no_color=False, _environ={}
    )
    show_episode(console, ([row] for row in recorded.rows), live=live)
    return out.getvalue()


@pytest.mark.parametrize(("terminal", "live"), [(False, True), (True, False)])
def test_without_pictures_there_is_a_line_for_what_happens_and_the_field_twice(terminal: bool, live: bool) -> None:
    recorded = begun()
    recorded.judged("ObservationPacket", {"observation_type": "tool_output"}, "S2_MODEL", who="system")

    text = shown(recorded, terminal=terminal, live=live, width=140)

    assert "BeliefUpdatePacket world.odor" in text
    assert "move up x2" in text
    assert "refused by GOV-1" in text
    assert "ObservationPacket" not in text
    assert ("S" in text and "=" in text) or "▀" in text


def test_the_last_picture_stays_and_has_field_state_and_packets() -> None:
    text = shown(begun(), terminal=True)

    assert "▀" in text
    assert "[S2]" in text
    assert "2 packets judged, 1 refused" in text
    assert "GOV-1: an agent may not state this" in text
    assert "governed by 'standard'" in text


def test_before_the_first_row_there_is_something_to_see() -> None:
    out = io.StringIO()

    Console(file=out, width=110).print(draw_view(EpisodeStory(), 110, 30))

    assert "waiting" in out.getvalue()


@settings(max_examples=20, deadline=None)
@given(st.integers(20, 160), st.integers(6, 50))
def test_a_picture_never_takes_more_than_the_terminal_has(width: int, height: int) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, height=height, _environ={})

    lines = console.render_lines(draw_view(told(begun()), width, height), pad=False)

    assert len(lines) < max(height, 9)
    assert all(sum(segment.cell_length for segment in line) <= width for line in lines)


class Growing:
    """A ledger with one chain, of which more can be read with every call."""

    def __init__(self, rows: list[Row], pace: int) -> None:
        self.all = rows
        self.pace = pace
        self.written = 0

    def rows(self, chain: str) -> Any:
        self.written = min(self.written + self.pace, len(self.all))
        return iter(self.all[: self.written])

    @property
    def grows(self) -> bool:
        return self.written < len(self.all)


class Operators:
    """An operator's side that has something waiting, and remembers what was asked and done."""

    def __init__(self, *waiting: Waiting) -> None:
        self.waiting = list(waiting)
        self.done: list[tuple[str, ...]] = []
        self.asked = 0

    def pending(self) -> list[Waiting]:
        self.asked += 1
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


def operator_of(operators: Operators, **more: Any) -> DemoOperator:
    return DemoOperator(operators, **more)  # type: ignore[arg-type]  # the calls that an operator makes


def follower(ledger: Growing, operators: Operators, *, fast: bool = False) -> RowFollower:
    operator = operator_of(operators, reading_seconds=0.0)
    return RowFollower(ledger, "s1.1", operator, fast=fast)  # type: ignore[arg-type]  # what is read of a ledger


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "PICTURES_PER_SECOND", 1000.0)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("pace", "fast"), [(1, True), (3, True), (100, True), (4, False)])
def test_every_row_is_shown_once_and_in_order(pace: int, fast: bool) -> None:
    ledger = Growing(begun().rows, pace)

    portions = follower(ledger, Operators(), fast=fast).portions(lambda: ledger.grows)

    assert [row.seq for portion in portions for row in portion] == list(range(len(ledger.all)))


@pytest.mark.usefixtures("quick")
def test_a_picture_shows_a_few_rows_and_more_where_many_wait() -> None:
    rows = [row for _ in range(20) for row in begun().rows]

    slow = list(follower(Growing(rows, 1000), Operators()).portions(lambda: False))
    swift = list(follower(Growing(rows, 1000), Operators(), fast=True).portions(lambda: False))

    assert len(swift) == 1
    assert display.BACKLOG < len(slow) < len(rows) / display.ROWS_PER_PICTURE


@pytest.mark.usefixtures("quick")
def test_the_operator_waits_until_everything_was_shown() -> None:
    rows, operators = [row for _ in range(5) for row in begun().rows], Operators(waiting("escalation", "stop"))
    seen: list[Row] = []

    for portion in follower(Growing(rows, 1000), operators).portions(lambda: not operators.done):
        assert operators.asked == 0
        seen += portion

    assert len(seen) == len(rows)
    assert operators.done


def test_a_show_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "PATIENCE_SECONDS", 0.05)

    with pytest.raises(ComponentError, match="not come to an end"):
        list(follower(Growing([], 1), Operators(), fast=True).portions(lambda: True))


def test_a_question_is_answered_when_it_could_be_read() -> None:
    clock, operators = Clock(), Operators(waiting("escalation", "shorter", "stop"))
    operator = operator_of(operators, reading_seconds=2.0, clock=clock)

    operator.answer_questions()
    clock.now += 1.0
    operator.answer_questions()
    early = list(operators.done)
    clock.now += 1.5
    operator.answer_questions()

    assert early == []
    assert operators.done == [("answer", "shorter", "(to shorter)")]


def test_a_token_is_approved() -> None:
    operators = Operators(waiting("token"))

    operator_of(operators, reading_seconds=0.0).answer_questions()

    assert operators.done == [("approve", "token")]


def test_nobody_is_asked_too_often() -> None:
    clock, operators = Clock(), Operators()
    operator = operator_of(operators, clock=clock)
    for _ in range(10):
        operator.answer_questions()
        clock.now += display.ASKING_SECONDS / 5

    assert operators.asked == 2
