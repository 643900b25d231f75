"""The show of a governed episode: a picture with the machine beside it, or a running log.

Rule 1: a show is told rows and draws what the story makes of them; it reads nothing by itself and waits for nobody.
Rule 2: a terminal gets a picture that changes in place, and the last one stays. Anything else gets one line for everything
    that is said and not mere routine, and the field once at the beginning and once at the end.
"""

from types import TracebackType
from typing import Final, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from proctor.cli.demo_story import Moved, Note, Said, Story
from proctor.envs.plume.terminal import picture
from proctor.episode.states import State
from proctor.ledger.reader import Row

WIDE: Final = 96
"""Columns from which on the machine stands beside the field, and not below it."""
FIELD_SHARE: Final = 0.5
AROUND: Final = 5
"""Lines above and below the field, the cursor's with them."""
LEAST_PACKETS: Final = 4
PLAIN_COLUMNS: Final = 72
PLAIN_ROWS: Final = 18
MARKS: Final = {Note.ACCEPTED: "+", Note.ROUTINE: "+", Note.REFUSED: "x", Note.QUESTION: "?", Note.ANSWER: "!"}
STYLES: Final = {
    Note.ACCEPTED: "default",
    Note.ROUTINE: "dim",
    Note.REFUSED: "bold red",
    Note.QUESTION: "bold yellow",
    Note.ANSWER: "bold green",
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


class Show(Protocol):
    """Shows rows as they come."""

    story: Story

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def take(self, row: Row) -> None:
        """Go on by one row."""

    def draw(self) -> None:
        """Show where the story stands."""


def show_for(console: Console, *, live: bool) -> Show:
    """Return the show that suits the console; `live` is what the user wants."""
    return LiveShow(console) if live and console.is_terminal else LoggedShow(console)


class LiveShow:
    """A picture that changes in place."""

    def __init__(self, console: Console) -> None:
        self.story = Story()
        self._console = console
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def take(self, row: Row) -> None:
        """Go on by one row."""
        self.story.take(row)

    def draw(self) -> None:
        """Show where the story stands."""
        self._live.update(view(self.story, self._console.width, self._console.height), refresh=True)


class LoggedShow:
    """A line for everything that is said."""

    def __init__(self, console: Console) -> None:
        self.story = Story()
        self._console = console
        self._moves: list[Moved] = []
        self._pictured = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tell_moves()
        if kind is None:
            self._picture()

    def take(self, row: Row) -> None:
        """Go on by one row, and print what it says."""
        happened = self.story.take(row)
        if self.story.scene is not None and not self._pictured:
            self._pictured = True
            self._picture()
        if isinstance(happened, Moved):
            self._moves.append(happened)
        elif happened is not None and happened.note is not Note.ROUTINE:
            self._tell_moves()
            self._console.print(_logged(happened), soft_wrap=True)

    def draw(self) -> None:
        """Do nothing: what there was to tell is told."""

    def _tell_moves(self) -> None:
        if self._moves:
            last = self._moves[-1]
            count = f"{len(self._moves)} steps" if len(self._moves) > 1 else "1 step"
            self._console.print(f"{last.at:7.2f} s    {last.tool}: {count}, up to step {last.step}", highlight=False)
            self._moves.clear()

    def _picture(self) -> None:
        if self.story.scene is not None:
            self._console.print(picture(self.story.scene, PLAIN_COLUMNS, PLAIN_ROWS))


def _logged(said: Said) -> Text:
    tail = f"  refused, {said.why}" if said.why else ""
    text = f"{said.at:7.2f} s  {MARKS[said.note]} {said.who:<8} {said.tool:<17} {said.walk:<9} {said.words}{tail}"
    return Text(text, style=STYLES[said.note])


# --------------------------------------------------------------------------------------------------------- the picture
def view(story: Story, width: int, height: int) -> RenderableType:
    """Return the picture of a story for a terminal of this size."""
    room = max(height - AROUND, 2)
    if width >= WIDE:
        field, beside = int(width * FIELD_SHARE), width - int(width * FIELD_SHARE) - 2
        body: RenderableType = _side_by_side(_field(story, field, room), _machine(story, beside, room))
    else:
        packets = max(room // 3, LEAST_PACKETS)
        body = Group(_field(story, width, max(room - packets, 1)), _machine(story, width, packets))
    return Group(_head(story), body, _foot(story, width))


def _side_by_side(left: RenderableType, right: RenderableType) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_row(left, right)
    return grid


def _head(story: Story) -> Text:
    opened = story.opened
    if opened is None:
        return Text("waiting for the first row of the ledger", style="dim")
    policy = "free" if opened.policy is None else f"governed by {opened.policy.get('name', 'a policy')!r}"
    return Text.assemble(
        (opened.environment, "bold"), f"  {policy}  sandbox {opened.tier}  step {story.step}", no_wrap=True
    )


def _field(story: Story, columns: int, rows: int) -> RenderableType:
    return Text("") if story.scene is None else picture(story.scene, columns, rows)


def _machine(story: Story, columns: int, rows: int) -> Text:
    """Return the state of the machine, and below it the last packets with their verdicts."""
    told = [said for said in story.said if said.note is not Note.ROUTINE]
    lines = [_track(story.state), _counts(story)]
    packets = [_packet(said, columns) for said in told[-max(rows - len(lines), 1) :]]
    return Text("\n", no_wrap=True).join([*lines, *packets])


def _track(state: str) -> Text:
    """Return all states by their numbers, the present one marked."""
    return Text.assemble(
        *((f"[{each[:2]}]", "bold reverse") if each == state else (f" {each[:2]} ", "dim") for each in State)
    )


def _counts(story: Story) -> Text:
    counts = f"  {len(story.said)} lines judged, {len(story.refusals)} refused"
    return Text.assemble((f" {story.state}", "bold"), (counts, "dim"))


def _packet(said: Said, columns: int) -> Text:
    kind, _, rest = said.words.partition(" ")
    why = f" {said.why}" if said.why else f" {rest}"
    text = Text(f" {MARKS[said.note]} {said.who:<8} {SHORT.get(kind, kind)}{why}", style=STYLES[said.note])
    text.truncate(columns, overflow="ellipsis")
    return text


def _foot(story: Story, width: int) -> Text:
    """Return the last thing that is worth a sentence."""
    for said in reversed(story.said):
        if said.note in _SENTENCES:
            text = Text(f"{_SENTENCES[said.note]} {said.why or said.words}", style=STYLES[said.note])
            text.truncate(width, overflow="ellipsis")
            return text
    return Text("Every packet is judged before anything happens, and is on record with its verdict.", style="dim")


_SENTENCES: Final = {
    Note.REFUSED: "A packet was refused.",
    Note.QUESTION: "The agent asks its operator:",
    Note.ANSWER: "The operator has answered:",
}
