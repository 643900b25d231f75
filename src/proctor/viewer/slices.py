"""A chain's rows as a slice: steps in columns, packets and notes one by one. Pure.

Rule 1: what came as JSON goes on as JSON: frames, observations, actions and packets are spliced in and never read.
Rule 2: slices fit together: what two of them say one after the other is what one over both would say, but for `total`,
    which counts from the slice's own beginning.
Rule 3: pixels and large values are not in a slice; a page asks for them one by one.
Rule 4: a row that cannot be read is a note, and hides no other. So is a value that is not as it was written: what was put in its
    place is never shown.
Rule 5: of a batch a step's reward is the mean over its environments, and it has no picture. Its steps are counted on where some of
    it are reset by a mask (`counting.py`).
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import numpy as np
from msgspec import UNSET, Raw
from msgspec.structs import replace

from proctor.errors import ValidationError
from proctor.ledger.rows import Told, told_in
from proctor.models.arrays import NAMED, unpacked
from proctor.models.events import (
    NULL,
    BatchReset,
    BatchStepped,
    EpisodeClosed,
    EpisodeStepped,
    Event,
    PacketJudged,
)
from proctor.models.pixels import SOME_PIXELS
from proctor.viewer.counting import StepCount
from proctor.viewer.documents import Note, Packet, Slice, Steps
from proctor.viewer.notes import NOTES

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


class Values(Protocol):
    """Where the values are that rows name and do not hold."""

    def values(self, digests: Iterable[str], most: int) -> Mapping[str, bytes | None]:
        """Return the values by their hashes, without those that are not there or longer than `most`.

        One that is not as it was written is None.
        """


_ANY: Final = msgspec.json.Decoder()


class _Row(NamedTuple):
    """A step's row, read."""

    number: int
    seq: int
    step: int
    said: Told
    """Holds the whole body: what is raw in it is a part of that."""
    size: int
    """Of the body, in bytes."""
    reward: float | None
    total: float


class Gathering:
    """Takes the rows of a chain in their order; `slice` is what they come to.

    `pixels` says that the chain's frames are pixels, `batch` that it is one's; of every `thin` steps the last is kept; `step_before`
    tells the step at which the rows begin, and is asked at most once.
    """

    def __init__(
        self,
        values: Values,
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
        self._frames: dict[str, bytes | None] = {}
        """Frames that lie elsewhere, by their hashes."""
        self._sought: dict[str, None] = {}
        """The hashes of those that were not looked for yet."""
        self._count = 0
        self._total = 0.0
        self._left: _Row | None = None
        """The latest step, if it was thinned out: the last one is always kept."""
        self._kept: list[_Row] = []
        self._packets: list[Packet] = []
        self._notes: list[Note] = []

    def take(self, number: int, seq: int, body: bytes) -> None:
        """Take the next row; the body of one that is too large is empty."""
        if not body:
            self._note(number, seq, None, "system", "unreadable", "This row is empty, or too large to be shown.")
            return
        try:
            said = told_in(body)
        except ValidationError as problem:
            self._note(number, seq, None, "system", "unreadable", f"This row cannot be read: {problem}.")
            return
        event = said.event
        if type(event) is EpisodeStepped:
            self._take_step(number, seq, said, len(body), event.step, event.reward)
        elif type(event) is BatchStepped:
            step = self._counted().stepped(event.step)
            self._take_step(number, seq, said, len(body), step, mean(event.rewards))
        elif type(event) is PacketJudged:
            self._step = event.step
            self._size += len(body)
            self._packets.append(_packet(number, seq, event))
        elif event is not UNSET:
            self._take_other(number, seq, event)

    @property
    def is_full(self) -> bool:
        """Whether about as much was taken as a slice can hold."""
        self._look()
        return self._size > MOST_SLICE or self._held > MOST_HELD

    def slice(self, chain: str, after: int, last: int, *, more: bool, ended: bool) -> Slice:
        """Return what was taken."""
        if self._left is not None:
            self._keep(self._left)
        self._look()
        table = _Table(self._kept, self._values, self._frames, pixels=self._pixels)
        return Slice(
            chain=chain,
            after=after,
            last=last,
            more=more,
            ended=ended,
            thinned=self._thin,
            steps=table.steps(),
            packets=self._packets,
            notes=sorted([*self._notes, *map(_changed, table.changed())], key=lambda note: note.number),
        )

    def _take_step(self, number: int, seq: int, said: Told, size: int, step: int, reward: float | None) -> None:
        self._step = step
        self._count += 1
        if reward is not None:
            self._total += reward
        row = _Row(number, seq, step, said, size, reward, self._total)
        if self._count % self._thin:
            self._left = row
        else:
            self._keep(row)

    def _keep(self, row: _Row) -> None:
        self._left = None
        self._kept.append(row)
        self._size += _size(row)
        self._held += row.size
        if row.said.scene is not None and not self._pixels:
            self._sought[row.said.scene] = None

    def _look(self) -> None:
        """Look for the frames that lie elsewhere."""
        sought, self._sought = self._sought, {}
        found = self._values.values(sought, MOST_FRAME) if sought else {}
        self._size += sum(len(value) for value in found.values() if value is not None)
        self._frames.update(found)

    def _counted(self) -> StepCount:
        """Return who counts the steps of a batch; where its rows begin in the middle, it is asked how many there were."""
        if self._steps is None:
            before = self._step_before()
            self._steps = StepCount(before, None if before else 0)
        return self._steps

    def _take_other(self, number: int, seq: int, event: Event) -> None:
        told = NOTES.get(type(event))
        if self._batch or isinstance(event, BatchReset):
            event = self._recounted(event)
        step = getattr(event, "steps", None) if told and told[0] == "closed" else getattr(event, "step", None)
        if step is not None:
            self._step = step
        if told is not None and (told[0] != "reset" or seq > OPENING):
            kind, sentence = told
            self._note(number, seq, event.at, event.principal, kind, sentence(event))

    def _recounted(self, event: Event) -> Event:
        """Return an event of a batch with the steps since the chain began, where it says some."""
        if isinstance(event, BatchReset):
            self._counted().begun()
            return event
        if isinstance(event, EpisodeClosed):
            return replace(event, steps=self._counted().count)
        return replace(event, step=self._counted().count) if hasattr(event, "step") else event

    def _note(self, number: int, seq: int, at: float | None, principal: str, kind: str, text: str) -> None:
        if self._step is None:
            self._step = self._step_before()
        self._size += len(text)
        self._notes.append(
            Note(number=number, seq=seq, step=self._step, at=at, principal=principal, kind=kind, text=text)
        )


class _Table:
    """The columns of some steps, with the values that lie elsewhere fetched all at once."""

    def __init__(self, rows: list[_Row], values: Values, frames: dict[str, bytes | None], *, pixels: bool) -> None:
        self._rows = rows
        self._pixels = pixels
        self._scenes = frames
        self._observations = values.values(filter(None, map(_absent, rows)), MOST_BYTES)

    def steps(self) -> Steps:
        """Return the columns."""
        cells = [self._cells(row) for row in self._rows]
        columns = [list(column) for column in zip(*cells, strict=True)] or [[] for _ in _COLUMNS]
        return Steps(**dict(zip(_COLUMNS, columns, strict=True)), parts=self._parts())

    def changed(self) -> list[_Row]:
        """Return the steps that name a value which is not as it was written."""
        values = (*self._scenes.items(), *self._observations.items())
        bad = {digest for digest, value in values if value is None}
        return [row for row in self._rows if bad and not bad.isdisjoint((row.said.scene, row.said.digest))]

    def _cells(self, row: _Row) -> tuple[Any, ...]:
        event = row.said.event
        if type(event) is BatchStepped:
            return self._batch_cells(row, event)
        return self._single_cells(row, event)  # type: ignore[arg-type]  # a row is one of the two

    def _single_cells(self, row: _Row, event: EpisodeStepped) -> tuple[Any, ...]:
        return (
            row.number,
            row.seq,
            row.step,
            event.at,
            short(event.action),
            self._observation(event.observation, row.said.digest),
            event.reward,
            event.raw_reward,
            row.total if math.isfinite(row.total) else None,
            event.terminated | event.truncated << 1,
            self._frame(event.scene, row.said.scene),
            event.tool,
        )

    def _batch_cells(self, row: _Row, event: BatchStepped) -> tuple[Any, ...]:
        return (
            row.number,
            row.seq,
            row.step,
            event.at,
            short(event.actions),
            self._observation(event.observations, row.said.digest),
            row.reward,
            mean(event.raw_rewards),
            row.total if math.isfinite(row.total) else None,
            0,
            NULL,
            None,
        )

    def _observation(self, held: Raw, digest: str | None) -> Raw:
        """Return an observation that is short, wherever it is."""
        if held != NULL:
            return short(held)
        value = self._observations.get(digest or "")
        return NULL if value is None else Raw(value)

    def _frame(self, held: Raw, digest: str | None) -> Raw:
        """Return a frame, wherever it is; of pixels that there are some, without looking for them."""
        if digest is None and held == NULL:
            return NULL
        if self._pixels:
            return SOME_PIXELS
        value = held if digest is None else self._scenes.get(digest)
        return NULL if value is None or memoryview(value).nbytes > MOST_FRAME else shown(value)

    def _parts(self) -> dict[str, list[float | None]]:
        each = [_parts(row.said.event) for row in self._rows]
        names = dict.fromkeys(name for parts in each for name in parts)
        return {name: [parts.get(name) for parts in each] for name in names}


def _changed(row: _Row) -> Note:
    text = "A value of this step is not as it was written, and is not shown; `proctor ledger verify` says more."
    at = row.said.event.at if row.said.event is not UNSET else None
    return Note(number=row.number, seq=row.seq, step=row.step, at=at, principal="system", kind="unreadable", text=text)


def _size(row: _Row) -> int:
    """Return about how many bytes a step has in a slice, without what lies elsewhere."""
    event = row.said.event
    if type(event) is EpisodeStepped:
        return sum(memoryview(each).nbytes for each in (event.action, event.observation, event.scene))
    return MOST_BYTES


def _absent(row: _Row) -> str | None:
    """Return the hash of a step's observation that is not in its row."""
    event = row.said.event
    held = event.observation if type(event) is EpisodeStepped else event.observations  # type: ignore[union-attr]
    return row.said.digest if held == NULL else None


def _parts(event: Any) -> dict[str, float | None]:
    """Return the parts of a step's reward."""
    if type(event) is BatchStepped:
        return {name: mean(values) for name, values in event.parts.items()}
    parts: dict[str, float | None] = event.parts
    return parts


_COLUMNS: Final = (
    "number",
    "seq",
    "step",
    "at",
    "action",
    "observation",
    "reward",
    "raw_reward",
    "total",
    "ended",
    "scene",
    "tool",
)
"""The columns in the order of a step's cells; the parts of the reward have their own."""


def shown(scene: Raw | bytes) -> Raw:
    """Return a frame as a slice has it: of pixels only that there are some."""
    return SOME_PIXELS if bytes(memoryview(scene)[: len(_PIXELS_BEGIN)]) == _PIXELS_BEGIN else Raw(scene)


def mean(said: Raw) -> float | None:
    """Return the mean of an array of a batch, listed or packed; None where it is no finite number, or too long."""
    if memoryview(said).nbytes > MOST_REWARDS:
        return None
    try:
        value = _ANY.decode(said)
        numbers = (
            unpacked(value, most=MOST_REWARDS) if isinstance(value, dict) else [NAMED.get(each, each) for each in value]
        )
        found = float(np.mean(np.asarray(numbers, float))) if len(numbers) else math.nan
    except (*_UNREADABLE, ValueError):
        return None
    return found if math.isfinite(found) else None


def short(value: Raw) -> Raw:
    """Return a value, or null where it is large."""
    return value if memoryview(value).nbytes <= MOST_BYTES else NULL


def _packet(number: int, seq: int, event: PacketJudged) -> Packet:
    return Packet(
        number=number,
        seq=seq,
        step=event.step,
        at=event.at,
        principal=event.principal,
        kind=event.kind,
        packet_id=event.packet_id,
        judged=event.judged,
        accepted=event.accepted,
        path=event.path,
        rules=event.rules,
        pointers=event.pointers,
        reason=event.reason,
        warnings=event.warnings,
        state=event.state,
        tool=event.tool,
        grant=event.grant,
        line=event.line,
    )
