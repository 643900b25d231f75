"""What people see of the demo: a picture with the machine beside it, or a running log; and the operator who answers in it.

Rule 1: a display draws rows of the ledger and nothing else: the same whether they are read while they are written or years later.
Rule 2: a terminal gets a picture that changes in place, and the last one stays. Anything else gets the lines of `proctor ledger show`
    without mere routine, and the field once at the beginning and once at the end.
Rule 3: rows come in the order in which they were written, a few with every picture, and more where the picture has fallen behind.
Rule 4: the operator answers what waits, but not before whoever watches has seen it.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from proctor.cli.ledger.pages import EpisodePage
from proctor.cli.terminal import WIDTH, OutputFormat
from proctor.client import OperatorClient
from proctor.envs.plume.drawing.terminal import picture
from proctor.episode.transition_table import ProtocolState
from proctor.errors import ComponentError
from proctor.ledger.reader import Ledger, Row
from proctor.models.events import EpisodeClosed, EpisodeReset, EpisodeStepped, PacketJudged
from proctor.narration.events import Narrator, TimelineEntry, describe_refusal, timeline_entries

ANSWER_PREFIX: Final = "record user_input "


class ToldPacket(NamedTuple):
    """One packet with its verdict, and what is told of it."""

    event: PacketJudged
    entry: TimelineEntry

    @property
    def style(self) -> str:
        """The colours in which people see it: refusals, questions and answers stand out."""
        return "bold red" if not self.event.accepted else _STYLES.get(self.event.kind, "default")


_STYLES: Final = {"EscalationPacket": "bold yellow", "user_input": "bold green"}


def is_routine(event: Any) -> bool:
    """Return whether an event is only the server's word on what a tool did, where all went well."""
    return (
        isinstance(event, PacketJudged)
        and event.accepted
        and event.principal == "system"
        and len(set(event.path)) < 2
        and event.kind in ("TaskResultPacket", "ObservationPacket")
    )


@dataclass(slots=True)
class EpisodeStory:
    """An episode so far, folded from its rows."""

    narrator: Narrator = field(default_factory=Narrator)
    scene: dict[str, Any] | None = None
    """As pictures want it: whole, with the trail."""
    state: str = ProtocolState.IDLE
    step: int = 0
    total_reward: float = 0.0
    terminated: bool = False
    packets: list[ToldPacket] = field(default_factory=list)
    closed: EpisodeClosed | None = None
    _trail: deque[Any] = field(default_factory=lambda: deque(maxlen=256))

    @property
    def refusals(self) -> list[str]:
        """Why packets were refused: rules and reason."""
        return [
            describe_refusal(each.event.rules, each.event.reason) for each in self.packets if not each.event.accepted
        ]

    @property
    def answers(self) -> list[str]:
        """What a human answered."""
        told = (each.entry.what for each in self.packets if each.event.kind == "user_input" and each.event.accepted)
        return [what.removeprefix(ANSWER_PREFIX) for what in told]

    def add_row(self, row: Row) -> None:
        """Go on by one row; one that means nothing to people changes nothing."""
        event = row.event
        self.narrator.hear(event)
        match event:
            case PacketJudged():
                self.packets.append(ToldPacket(event, self.narrator.narrate(row)))
                self.state = event.state or self.state
            case EpisodeStepped():
                self.step = event.step
                self.total_reward += event.reward or 0.0
                self.terminated = event.terminated
                frame = _decode_scene(event.scene)
                if frame is not None and self.scene is not None:
                    self.scene = {**self.scene, "frame": self._add_trail(frame)}
            case EpisodeReset():
                self._trail.clear()
                scene = _decode_scene(event.scene)
                if scene is not None:
                    self.scene = {**scene, "frame": self._add_trail(scene["frame"])}
            case EpisodeClosed():
                self.closed = event

    def _add_trail(self, frame: dict[str, Any]) -> dict[str, Any]:
        """Return a frame with the trail, which only the frames before it tell."""
        agent = frame.get("agent")
        if isinstance(agent, dict):
            self._trail.append(agent["at"])
            return {**frame, "trail": list(self._trail)}
        return frame


def _decode_scene(scene: Raw) -> dict[str, Any] | None:
    found = msgspec.json.decode(scene)
    return found if isinstance(found, dict) else None


def show_episode(console: Console, portions: Iterable[list[Row]], *, live: bool) -> EpisodeStory:
    """Show rows as they come, in the way that suits the console and is wanted, and return what they told."""
    story = EpisodeStory()
    if live and console.is_terminal:
        with Live(console=console, auto_refresh=False, vertical_overflow="crop") as screen:
            for portion in portions:
                for row in portion:
                    story.add_row(row)
                screen.update(draw_view(story, console.width, console.height), refresh=True)
        return story
    form = OutputFormat(console.width if console.is_terminal else WIDTH, console.is_terminal, not console.no_color)
    page = EpisodePage(form, len("agent governed_agent.py"))
    for entry in timeline_entries(_log_rows(console, portions, story), Narrator()):
        console.print(Text.from_ansi(page.entry(replace(entry, remark=""))), end="", soft_wrap=True)
    _print_field(console, story)
    return story


def _log_rows(console: Console, portions: Iterable[list[Row]], story: EpisodeStory) -> Iterator[Row]:
    """Yield the rows that are told; the field is printed once it is known."""
    pictured = False
    for row in (row for portion in portions for row in portion):
        story.add_row(row)
        if story.scene is not None and not pictured:
            pictured = True
            _print_field(console, story)
        if not is_routine(row.event):
            yield row


def _print_field(console: Console, story: EpisodeStory) -> None:
    if story.scene is not None:
        console.print(picture(story.scene, 72, 18))


WIDE: Final = 96
"""Columns from which on the machine stands beside the field, and not below it."""
_SENTENCES: Final = {"EscalationPacket": "The agent asks its operator:", "user_input": "The operator has answered:"}


def draw_view(story: EpisodeStory, width: int, height: int) -> RenderableType:
    """Return the picture of a story for a terminal of this size."""
    room = max(height - 5, 2)  # five lines are above and below the field, the cursor's with them
    if width >= WIDE:
        half = width // 2
        grid = Table.grid(Column(no_wrap=True), Column(no_wrap=True), padding=(0, 2, 0, 0))
        grid.add_row(_draw_field(story, half, room), _draw_machine(story, width - half - 2, room))
        body: RenderableType = grid
    else:
        packets = max(room // 3, 4)
        body = Group(_draw_field(story, width, max(room - packets, 1)), _draw_machine(story, width, packets))
    return Group(_draw_head(story), body, _draw_foot(story, width))


def _draw_head(story: EpisodeStory) -> Text:
    opened = story.narrator.opened
    if opened is None:
        return Text("waiting for the first row of the ledger", style="dim")
    policy = "free" if opened.policy is None else f"governed by {opened.policy.get('name', 'a policy')!r}"
    facts = f"  {policy}  sandbox {opened.tier}  step {story.step}"
    return Text.assemble((opened.environment, "bold"), facts, no_wrap=True)


def _draw_field(story: EpisodeStory, columns: int, rows: int) -> RenderableType:
    return Text("") if story.scene is None else picture(story.scene, columns, rows)


def _draw_machine(story: EpisodeStory, columns: int, rows: int) -> Text:
    """Return the states with the present one marked, and below them the last packets with their verdicts."""
    states = Text.assemble(
        *(
            (f"[{each[:2]}]", "bold reverse") if each == story.state else (f" {each[:2]} ", "dim")
            for each in ProtocolState
        )
    )
    counts = f"  {len(story.packets)} packets judged, {len(story.refusals)} refused"
    lines = [states, Text.assemble((f" {story.state}", "bold"), (counts, "dim"))]
    told = [each for each in story.packets if not is_routine(each.event)]
    for each in told[-max(rows - len(lines), 1) :]:
        # A refusal's reason says more than what was refused.
        words = (each.entry.what, each.entry.result) if each.event.accepted else (each.entry.result, each.entry.what)
        lines.append(_draw_line(f" {each.event.principal:<8} {'  '.join(words)}", each.style, columns))
    return Text("\n", no_wrap=True).join(lines)


def _draw_foot(story: EpisodeStory, width: int) -> Text:
    """Return the last thing that is worth a sentence."""
    for each in reversed(story.packets):
        if not each.event.accepted:
            return _draw_line(f"A packet was {each.entry.result}", each.style, width)
        if each.event.kind in _SENTENCES:
            what = each.entry.what.removeprefix(ANSWER_PREFIX).removeprefix("EscalationPacket ")
            return _draw_line(f"{_SENTENCES[each.event.kind]} {what}", each.style, width)
    return Text("Every packet is judged before anything happens, and is on record with its verdict.", style="dim")


def _draw_line(text: str, style: str, columns: int) -> Text:
    line = Text(text, style=style)
    line.truncate(columns, overflow="ellipsis")
    return line


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
            if now < self._since.setdefault(question, now) + self.reading_seconds:
                continue
            if waiting.kind == "token":
                self.client.approve(waiting, text=ANSWER)
            else:
                choice = waiting.options[0]
                self.client.answer(waiting, choice.option_id, text=f"({choice.description})")


@dataclass(slots=True)
class RowFollower:
    """The rows of one chain as they are written; with `fast` nobody watches."""

    ledger: Ledger
    chain: str
    operator: DemoOperator
    fast: bool = False
    _read: int = 0

    def portions(self, goes_on: Callable[[], bool]) -> Iterator[list[Row]]:
        """Yield what one picture shows after the other, for as long as it goes on and until all is shown."""
        waiting: deque[Row] = deque()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            # Whether it goes on is asked before the rows are.
            more = goes_on()
            rows = list(islice(self.ledger.rows(self.chain), self._read, None))
            self._read += len(rows)
            waiting.extend(rows)
            count = len(waiting) if self.fast else min(len(waiting), max(ROWS_PER_PICTURE, len(waiting) // BACKLOG))
            if count:
                yield [waiting.popleft() for _ in range(count)]
            if not waiting and not more:
                return
            if not waiting:
                self.operator.answer_questions()
            if time.monotonic() > deadline:
                raise ComponentError(f"the agent has not come to an end within {PATIENCE_SECONDS:g} seconds")
            time.sleep(0.01 if self.fast else 1.0 / PICTURES_PER_SECOND)
