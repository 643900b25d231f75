"""A chain's rows as a slice: steps in columns, packets and notes one by one. Pure.

Rule 1: what came as JSON goes on as JSON: frames, observations, actions and packets are spliced in and never read.
Rule 2: slices fit together: what two of them say one after the other is what one over both would say, but for `total`,
    which counts from the slice's own beginning.
Rule 3: pixels and large values are not in a slice; a page asks for them one by one.
Rule 4: a row that cannot be read is a note, and hides no other. So is a value that is not as it was written: what was put in its
    place is never shown.
Rule 5: of a batch a step's reward is the mean over its environments, and it has no picture. Its steps are counted on where some of
    it are reset by a mask (`StepCount`).
Rule 6: what has a row in `NOTE_SENTENCES` is a note; a session's opening is the head's.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec
import numpy as np
from msgspec import UNSET, Raw
from msgspec.structs import replace

from proctor.errors import ValidationError
from proctor.ledger.rows import EventRow, parse_event_row
from proctor.models import events
from proctor.models.arrays import NON_FINITE, SOME_PIXELS, unpack_array
from proctor.viewer.documents import EpisodeNote, EpisodeSlice, JudgedPacket, StepColumns


def _describe_failure(event: events.Failed) -> str:
    what = f"The request {event.request}" if event.request else "The server"
    incident = f", incident {event.incident}" if event.incident else ""
    if event.lost:
        return f"{what} failed and the episode was lost: {event.code}{incident}."
    clause = f" by {event.clause}" if event.clause else ""
    return f"{what} was refused{clause}: {event.code}{incident}."


def _describe_grant(event: events.AgentGranted) -> str:
    who = f"The agent {event.agent}" if event.agent else "An agent without a name"
    tools = ", ".join(event.tools) or "none"
    return f"{who} was granted tools: {tools}."


def _describe_resumption(event: events.SessionResumed) -> str:
    if event.lost is not None:
        return f"Another run of the server took the session up, and the episode could not go on: {event.lost}."
    return "Another run of the server took the session up and rebuilt the episode."


def _describe_reset(event: events.EpisodeReset | events.BatchReset) -> str:
    some = isinstance(event, events.BatchReset) and bytes(event.mask) != b"null"
    return "Some of the batch began another episode." if some else "Another episode began."


def _describe_close(event: events.EpisodeClosed) -> str:
    steps = "step" if event.steps == 1 else "steps"
    judged = "" if event.outcome is None else f", judged {event.outcome}"
    state = "" if event.state is None else f" in {event.state}"
    left = f"; still owed: {', '.join(event.obligations)}" if event.obligations else ""
    return f"The episode was closed ({event.reason}) after {event.steps} {steps}{judged}{state}{left}."


NOTE_SENTENCES: Final[dict[type, tuple[str, Callable[[Any], str]]]] = {
    events.Failed: ("failed", _describe_failure),
    events.AgentGranted: ("granted", _describe_grant),
    events.AgentRevoked: ("revoked", lambda event: f"The grant {event.grant} was taken back."),
    events.SessionResumed: ("resumed", _describe_resumption),
    events.EpisodeReset: ("reset", _describe_reset),
    events.BatchReset: ("reset", _describe_reset),
    events.EpisodeClosed: ("closed", _describe_close),
}
"""The name of each kind of note, and its sentence."""


class StepCount:
    """Where a chain stands; `own` is the last step as its row says it, None where that is not known."""

    def __init__(self, count: int = 0, own: int | None = 0) -> None:
        self.count = count
        self._own = own

    def count_step(self, own: int) -> int:
        """Return which step this is; one that goes on from the last may have rows before it that could not be read."""
        before, self._own = self._own, own
        if before is None:
            self.count += 1
        else:
            self.count += own - before if own > before else own
        return self.count

    def restart(self) -> None:
        """Take note that some of the batch were reset."""
        self._own = 0


MOST_BYTES: Final = 2048
"""Of an observation or an action in a slice."""
MOST_REWARDS: Final = 2**21
"""Bytes of the rewards of a batch, written or unpacked: those of the largest batch are fewer."""
MOST_FRAME: Final = 2**16
"""Bytes of a frame in a slice; of a larger one the raw row has it."""
MOST_SLICE: Final = 2**25
"""About so many bytes are in a slice, whatever was asked for."""
MOST_HELD: Final = 2**26
"""About so many bytes of rows are held for a slice: most of a large one is not shown."""
_PIXELS_BEGIN: Final = b'{"pixels":'
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError)
OPENING: Final = 1
"""The place in its chain of the reset that the episode begins with; later ones are notes."""


class ValueStore(Protocol):
    """Where the values are that rows name and do not hold."""

    def values(self, digests: Iterable[str], most: int) -> Mapping[str, bytes | None]:
        """Return the values by their hashes, without those that are not there or longer than `most`.

        One that is not as it was written is None.
        """


_COLUMNS: Final = tuple(name for name in StepColumns.__struct_fields__ if name != "parts")
"""The columns in the order of a step's cells; the parts of the reward have their own."""
_STATED: Final = tuple(name for name in JudgedPacket.__struct_fields__ if name not in ("number", "seq"))
"""What a packet's document says as its event does."""


StepEvent: TypeAlias = events.EpisodeStepped | events.BatchStepped


class _StepRow(NamedTuple):
    number: int
    seq: int
    step: int
    said: EventRow
    """Holds the whole body: what is raw in it is a part of that."""
    event: StepEvent
    size: int
    """Of the body, in bytes."""
    reward: float | None
    total: float


class SliceBuilder:
    """Takes the rows of a chain in their order; `slice` is what they come to.

    `pixels` says that the chain's frames are pixels, `batch` that it is one's; of every `thin` steps the last is kept; `step_before`
    tells the step at which the rows begin, and is asked at most once.
    """

    def __init__(
        self,
        values: ValueStore,
        *,
        pixels: bool = False,
        batch: bool = False,
        thin: int = 1,
        step_before: Callable[[], int] = lambda: 0,
    ) -> None:
        self._values = values
        self._pixels = pixels
        self._batch = batch
        self._thin = thin
        self._step_before = step_before
        self._step: int | None = None
        """Where the episode stands; None: not known yet."""
        self._steps: StepCount | None = None
        """Counts the steps of a batch."""
        self._size = 0
        self._held = 0
        self._observations: Mapping[str, bytes | None] = {}
        """Short ones that lie elsewhere, by their hashes."""
        self._frames: dict[str, bytes | None] = {}
        """Frames that lie elsewhere, by their hashes."""
        self._sought: dict[str, None] = {}
        """The hashes of those that were not looked for yet."""
        self._count = 0
        self._total = 0.0
        self._left: _StepRow | None = None
        """The latest step, if it was thinned out: the last one is always kept."""
        self._kept: list[_StepRow] = []
        self._packets: list[JudgedPacket] = []
        self._notes: list[EpisodeNote] = []

    def take(self, number: int, seq: int, body: bytes) -> None:
        """Take the next row; the body of one that is too large is empty."""
        if not body:
            self._note(number, seq, None, "system", "unreadable", "This row is empty, or too large to be shown.")
            return
        try:
            said = parse_event_row(body)
        except ValidationError as problem:
            self._note(number, seq, None, "system", "unreadable", f"This row cannot be read: {problem}.")
            return
        event = said.event
        if type(event) is events.EpisodeStepped:
            self._take_step(number, seq, said, event, len(body), event.step, event.reward)
        elif type(event) is events.BatchStepped:
            step = self._get_step_count().count_step(event.step)
            self._take_step(number, seq, said, event, len(body), step, mean_of_array(event.rewards))
        elif type(event) is events.PacketJudged:
            self._step = event.step
            self._size += len(body)
            said_of_it = {name: getattr(event, name) for name in _STATED}
            self._packets.append(JudgedPacket(number=number, seq=seq, **said_of_it))
        elif event is not UNSET:
            self._take_other(number, seq, event)

    @property
    def is_full(self) -> bool:
        """Whether about as much was taken as a slice can hold."""
        self._fetch_frames()
        return self._size > MOST_SLICE or self._held > MOST_HELD

    def slice(self, chain: str, after: int, last: int, *, more: bool, ended: bool) -> EpisodeSlice:
        """Return what was taken."""
        if self._left is not None:
            self._keep(self._left)
        self._fetch_frames()
        absent = (row.said.digest for row in self._kept if _get_observation(row.event) == events.NULL)
        self._observations = self._values.values(filter(None, absent), MOST_BYTES)
        self._note_damage()
        return EpisodeSlice(
            chain=chain,
            after=after,
            last=last,
            more=more,
            ended=ended,
            thinned=self._thin,
            steps=self._build_columns(),
            packets=self._packets,
            notes=sorted(self._notes, key=lambda note: note.number),
        )

    def _note_damage(self) -> None:
        """Note each step that names a value which is not as it was written."""
        values = (*self._frames.items(), *self._observations.items())
        bad = {digest for digest, value in values if value is None}
        text = "A value of this step is not as it was written, and is not shown; `proctor ledger verify` says more."
        for row in self._kept if bad else ():
            if not bad.isdisjoint((row.said.scene, row.said.digest)):
                self._step = row.step
                self._note(row.number, row.seq, row.event.at, "system", "unreadable", text)

    def _take_step(
        self, number: int, seq: int, said: EventRow, event: StepEvent, size: int, step: int, reward: float | None
    ) -> None:
        self._step = step
        self._count += 1
        self._total += reward or 0.0
        row = _StepRow(number, seq, step, said, event, size, reward, self._total)
        if self._count % self._thin:
            self._left = row
        else:
            self._keep(row)

    def _keep(self, row: _StepRow) -> None:
        self._left = None
        self._kept.append(row)
        event = row.event
        # About how many bytes it has in a slice, without what lies elsewhere.
        if isinstance(event, events.EpisodeStepped):
            self._size += sum(memoryview(each).nbytes for each in (event.action, event.observation, event.scene))
        else:
            self._size += MOST_BYTES
        self._held += row.size
        if row.said.scene is not None and not self._pixels:
            self._sought[row.said.scene] = None

    def _fetch_frames(self) -> None:
        sought, self._sought = self._sought, {}
        found = self._values.values(sought, MOST_FRAME) if sought else {}
        self._size += sum(len(value) for value in found.values() if value is not None)
        self._frames.update(found)

    def _get_step_count(self) -> StepCount:
        """Return who counts the steps of a batch; where its rows begin in the middle, it is asked how many there were."""
        if self._steps is None:
            before = self._step_before()
            self._steps = StepCount(before, None if before else 0)
        return self._steps

    def _take_other(self, number: int, seq: int, event: events.Event) -> None:
        told = NOTE_SENTENCES.get(type(event))
        if self._batch or isinstance(event, events.BatchReset):
            event = self._recount_steps(event)
        step = getattr(event, "steps", None) if told and told[0] == "closed" else getattr(event, "step", None)
        if step is not None:
            self._step = step
        if told is not None and (told[0] != "reset" or seq > OPENING):
            kind, sentence = told
            self._note(number, seq, event.at, event.principal, kind, sentence(event))

    def _recount_steps(self, event: events.Event) -> events.Event:
        """Return an event of a batch with the steps since the chain began, where it says some."""
        steps = self._get_step_count()
        if isinstance(event, events.BatchReset):
            steps.restart()
        elif isinstance(event, events.EpisodeClosed):
            return replace(event, steps=steps.count)
        elif hasattr(event, "step"):
            return replace(event, step=steps.count)
        return event

    def _note(self, number: int, seq: int, at: float | None, principal: str, kind: str, text: str) -> None:
        if self._step is None:
            self._step = self._step_before()
        self._size += len(text)
        self._notes.append(
            EpisodeNote(number=number, seq=seq, step=self._step, at=at, principal=principal, kind=kind, text=text)
        )

    # ------------------------------------------------------------------------------------------------------ the columns
    def _build_columns(self) -> StepColumns:
        cells = [self._cells(row) for row in self._kept]
        columns = [list(column) for column in zip(*cells, strict=True)] or [[] for _ in _COLUMNS]
        parts: list[dict[str, float | None]] = [
            {name: mean_of_array(values) for name, values in row.event.parts.items()}
            if isinstance(row.event, events.BatchStepped)
            else {**row.event.parts}
            for row in self._kept
        ]
        names = dict.fromkeys(name for each in parts for name in each)
        columns_of_parts = {name: [each.get(name) for each in parts] for name in names}
        return StepColumns(**dict(zip(_COLUMNS, columns, strict=True)), parts=columns_of_parts)

    def _cells(self, row: _StepRow) -> tuple[Any, ...]:
        event, said = row.event, row.said
        total = row.total if math.isfinite(row.total) else None
        place = (row.number, row.seq, row.step, event.at)
        if isinstance(event, events.BatchStepped):
            done = (null_if_large(event.actions), self._observation(event.observations, said.digest))
            return (*place, *done, row.reward, mean_of_array(event.raw_rewards), total, 0, events.NULL, None)
        done = (null_if_large(event.action), self._observation(event.observation, said.digest))
        ended = event.terminated | event.truncated << 1
        frame = self._frame(event.scene, said.scene)
        return (*place, *done, row.reward, event.raw_reward, total, ended, frame, event.tool)

    def _observation(self, held: Raw, digest: str | None) -> Raw:
        if held != events.NULL:
            return null_if_large(held)
        value = self._observations.get(digest or "")
        return events.NULL if value is None else Raw(value)

    def _frame(self, held: Raw, digest: str | None) -> Raw:
        """Return a frame, wherever it is; of pixels that there are some, without looking for them."""
        if digest is None and held == events.NULL:
            return events.NULL
        if self._pixels:
            return SOME_PIXELS
        value = held if digest is None else self._frames.get(digest)
        if value is None or memoryview(value).nbytes > MOST_FRAME:
            return events.NULL
        return SOME_PIXELS if bytes(memoryview(value)[: len(_PIXELS_BEGIN)]) == _PIXELS_BEGIN else Raw(value)


def mean_of_array(said: Raw) -> float | None:
    """Return the mean of an array of a batch, listed or packed; None where it is no finite number, or too long."""
    if memoryview(said).nbytes > MOST_REWARDS:
        return None
    try:
        value = msgspec.json.decode(said)
        is_packed = isinstance(value, dict)
        numbers = unpack_array(value, most=MOST_REWARDS) if is_packed else [NON_FINITE.get(n, n) for n in value]
        found = float(np.mean(np.asarray(numbers, float))) if len(numbers) else math.nan
    except (*_UNREADABLE, ValueError):
        return None
    return found if math.isfinite(found) else None


def _get_observation(event: StepEvent) -> Raw:
    return event.observations if isinstance(event, events.BatchStepped) else event.observation


def null_if_large(value: Raw, most: int = MOST_BYTES) -> Raw:
    """Return a value, or null where it is large."""
    return value if memoryview(value).nbytes <= most else events.NULL
