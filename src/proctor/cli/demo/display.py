"""What people see of the demo: a picture with the machine beside it, or a running log; and the operator who answers in it.

Rule 1: a display is told rows and draws what the story makes of them; it reads nothing by itself and waits for nobody.
Rule 2: a terminal gets a picture that changes in place, and the last one stays. Anything else gets one line for everything
    that is said and not mere routine, and the field once at the beginning and once at the end.
Rule 3: rows come from the ledger in the order in which they were written, a few with every picture, and more where the picture has
    fallen behind.
Rule 4: the operator answers what waits, but not before whoever watches has seen it.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from types import TracebackType
from typing import Final, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from proctor.cli.demo.story import AgentMove, EpisodeStory, JudgedLine, LineKind
from proctor.client import OperatorClient
from proctor.envs.plume.drawing.terminal import picture
from proctor.episode.transition_table import ProtocolState
from proctor.errors import ComponentError
from proctor.ledger.reader import Ledger, Row
from proctor.models.operator import Waiting

WIDE: Final = 96
"""Columns from which on the machine stands beside the field, and not below it."""
FIELD_SHARE: Final = 0.5
AROUND: Final = 5
"""Lines above and below the field, the cursor's with them."""
LEAST_PACKETS: Final = 4
PLAIN_COLUMNS: Final = 72
PLAIN_ROWS: Final = 18
MARKS: Final = {
    LineKind.ACCEPTED: "+",
    LineKind.ROUTINE: "+",
    LineKind.REFUSED: "x",
    LineKind.QUESTION: "?",
    LineKind.ANSWER: "!",
}
STYLES: Final = {
    LineKind.ACCEPTED: "default",
    LineKind.ROUTINE: "dim",
    LineKind.REFUSED: "bold red",
    LineKind.QUESTION: "bold yellow",
    LineKind.ANSWER: "bold green",
}


SHORT: Final = {
    "ObservationPacket": "Observation",
    "BeliefUpdatePacket": "Belief",
    "DecisionPacket": "Decision",
    "VerificationPlanPacket": "Plan",
    "ToolAuthorizationToken": "Token",
    "TaskDirectivePacket": "Directive",
    "TaskResultPacket": "Result",
}


class Display(Protocol):
    """Shows rows as they come."""

    story: EpisodeStory

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def add_row(self, row: Row) -> None:
        """Go on by one row."""

    def draw(self) -> None:
        """Show where the story stands."""


def make_display(console: Console, *, live: bool) -> Display:
    """Return the show that suits the console; `live` is what the user wants."""
    return LiveDisplay(console) if live and console.is_terminal else LogDisplay(console)


class LiveDisplay:
    """A picture that changes in place."""

    def __init__(self, console: Console) -> None:
        self.story = EpisodeStory()
        self._console = console
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def add_row(self, row: Row) -> None:
        """Go on by one row."""
        self.story.add_row(row)

    def draw(self) -> None:
        """Show where the story stands."""
        self._live.update(draw_view(self.story, self._console.width, self._console.height), refresh=True)


class LogDisplay:
    """A line for everything that is said."""

    def __init__(self, console: Console) -> None:
        self.story = EpisodeStory()
        self._console = console
        self._moves: list[AgentMove] = []
        self._pictured = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log_moves()
        if kind is None:
            self._log_picture()

    def add_row(self, row: Row) -> None:
        """Go on by one row, and print what it says."""
        happened = self.story.add_row(row)
        if self.story.scene is not None and not self._pictured:
            self._pictured = True
            self._log_picture()
        if isinstance(happened, AgentMove):
            self._moves.append(happened)
        elif happened is not None and happened.kind is not LineKind.ROUTINE:
            self._log_moves()
            self._console.print(_format_log_line(happened), soft_wrap=True)

    def draw(self) -> None:
        """Do nothing: what there was to tell is told."""

    def _log_moves(self) -> None:
        if self._moves:
            last = self._moves[-1]
            count = f"{len(self._moves)} steps" if len(self._moves) > 1 else "1 step"
            self._console.print(f"{last.at:7.2f} s    {last.tool}: {count}, up to step {last.step}", highlight=False)
            self._moves.clear()

    def _log_picture(self) -> None:
        if self.story.scene is not None:
            self._console.print(picture(self.story.scene, PLAIN_COLUMNS, PLAIN_ROWS))


def _format_log_line(said: JudgedLine) -> Text:
    tail = f"  refused, {said.why}" if said.why else ""
    text = f"{said.at:7.2f} s  {MARKS[said.kind]} {said.who:<8} {said.tool:<17} {said.walk:<9} {said.words}{tail}"
    return Text(text, style=STYLES[said.kind])


# --------------------------------------------------------------------------------------------------------- the picture
def draw_view(story: EpisodeStory, width: int, height: int) -> RenderableType:
    """Return the picture of a story for a terminal of this size."""
    room = max(height - AROUND, 2)
    if width >= WIDE:
        field, beside = int(width * FIELD_SHARE), width - int(width * FIELD_SHARE) - 2
        body: RenderableType = _side_by_side(_draw_field(story, field, room), _draw_machine(story, beside, room))
    else:
        packets = max(room // 3, LEAST_PACKETS)
        body = Group(_draw_field(story, width, max(room - packets, 1)), _draw_machine(story, width, packets))
    return Group(_draw_head(story), body, _draw_foot(story, width))


def _side_by_side(left: RenderableType, right: RenderableType) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_row(left, right)
    return grid


def _draw_head(story: EpisodeStory) -> Text:
    opened = story.opened
    if opened is None:
        return Text("waiting for the first row of the ledger", style="dim")
    policy = "free" if opened.policy is None else f"governed by {opened.policy.get('name', 'a policy')!r}"
    return Text.assemble(
        (opened.environment, "bold"), f"  {policy}  sandbox {opened.tier}  step {story.step}", no_wrap=True
    )


def _draw_field(story: EpisodeStory, columns: int, rows: int) -> RenderableType:
    return Text("") if story.scene is None else picture(story.scene, columns, rows)


def _draw_machine(story: EpisodeStory, columns: int, rows: int) -> Text:
    """Return the state of the machine, and below it the last packets with their verdicts."""
    told = [said for said in story.said if said.kind is not LineKind.ROUTINE]
    lines = [_draw_states(story.state), _draw_counts(story)]
    packets = [_draw_packet(said, columns) for said in told[-max(rows - len(lines), 1) :]]
    return Text("\n", no_wrap=True).join([*lines, *packets])


def _draw_states(state: str) -> Text:
    """Return all states by their numbers, the present one marked."""
    return Text.assemble(
        *((f"[{each[:2]}]", "bold reverse") if each == state else (f" {each[:2]} ", "dim") for each in ProtocolState)
    )


def _draw_counts(story: EpisodeStory) -> Text:
    counts = f"  {len(story.said)} lines judged, {len(story.refusals)} refused"
    return Text.assemble((f" {story.state}", "bold"), (counts, "dim"))


def _draw_packet(said: JudgedLine, columns: int) -> Text:
    kind, _, rest = said.words.partition(" ")
    why = f" {said.why}" if said.why else f" {rest}"
    text = Text(f" {MARKS[said.kind]} {said.who:<8} {SHORT.get(kind, kind)}{why}", style=STYLES[said.kind])
    text.truncate(columns, overflow="ellipsis")
    return text


def _draw_foot(story: EpisodeStory, width: int) -> Text:
    """Return the last thing that is worth a sentence."""
    for said in reversed(story.said):
        if said.kind in _SENTENCES:
            text = Text(f"{_SENTENCES[said.kind]} {said.why or said.words}", style=STYLES[said.kind])
            text.truncate(width, overflow="ellipsis")
            return text
    return Text("Every packet is judged before anything happens, and is on record with its verdict.", style="dim")


_SENTENCES: Final = {
    LineKind.REFUSED: "A packet was refused.",
    LineKind.QUESTION: "The agent asks its operator:",
    LineKind.ANSWER: "The operator has answered:",
}


PICTURES_PER_SECOND: Final = 15.0
ROWS_PER_PICTURE: Final = 2
BACKLOG: Final = 10
"""In so many pictures whatever waits is shown."""
READING_SECONDS: Final = 2.5
"""How long a question stands before it is answered: somebody wants to read it."""
ASKING_SECONDS: Final = 0.5
"""How often the operator looks whether something waits."""
PATIENCE_SECONDS: Final = 300.0
ANSWER: Final = "proctor demo's operator"


class RowFollower:
    """The rows of one chain as they are written."""

    def __init__(self, ledger: Ledger, chain: str) -> None:
        self._ledger = ledger
        self._chain = chain
        self._read = 0

    def more(self) -> list[Row]:
        """Return the rows that have come since the last call."""
        rows = list(islice(self._ledger.rows(self._chain), self._read, None))
        self._read += len(rows)
        return rows


@dataclass(slots=True)
class DemoOperator:
    """The operator: takes the first option of every question, and approves every token."""

    client: OperatorClient
    reading_seconds: float = READING_SECONDS
    clock: Callable[[], float] = time.monotonic
    _looked: float = 0.0
    _since: dict[tuple[str, int, str], float] = field(default_factory=dict)

    def answer_questions(self) -> None:
        """Answer what has waited for long enough."""
        now = self.clock()
        if now < self._looked + min(ASKING_SECONDS, self.reading_seconds):
            return
        self._looked = now
        for waiting in self.client.pending():
            question = (waiting.session, waiting.epoch, waiting.id)
            if now >= self._since.setdefault(question, now) + self.reading_seconds:
                self._answer_question(waiting)

    def _answer_question(self, waiting: Waiting) -> None:
        if waiting.kind == "token":
            self.client.approve(waiting, text=ANSWER)
        else:
            choice = waiting.options[0]
            self.client.answer(waiting, choice.option_id, text=f"({choice.description})")


@dataclass(slots=True)
class Playback:
    """One show of one chain; with `fast` nobody watches."""

    show: Display
    follower: RowFollower
    operator: DemoOperator
    fast: bool = False
    _waiting: deque[Row] = field(default_factory=deque)

    def watch(self, goes_on: Callable[[], bool]) -> None:
        """Show what comes, for as long as it goes on and until all is shown."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._show_picture(goes_on()):
            if time.monotonic() > deadline:
                raise ComponentError(f"the agent has not come to an end within {PATIENCE_SECONDS:g} seconds")
            time.sleep(0.01 if self.fast else 1.0 / PICTURES_PER_SECOND)

    def _show_picture(self, goes_on: bool) -> bool:
        """Show one picture, and return whether there is more to come. Whether it goes on is asked before the rows are."""
        self._waiting.extend(self.follower.more())
        portion = self._count_due_rows()
        for _ in range(portion):
            self.show.add_row(self._waiting.popleft())
        if portion:
            self.show.draw()
        if not self._waiting and goes_on:
            self.operator.answer_questions()
        return goes_on or bool(self._waiting)

    def _count_due_rows(self) -> int:
        count = len(self._waiting)
        return count if self.fast else min(count, max(ROWS_PER_PICTURE, count // BACKLOG))
