"""What a single file carries of its episodes: everything, as far as it fits.

Rule 1: packets, verdicts and notes are always whole. Of very long episodes every n-th step is there, of pictures in pixels
    some hundred, of raw rows those that fit, and what was left out is said in a sentence (`remarks`).
Rule 2: the same ledger gives the same bytes: nothing is taken from a clock, and nothing is live in a file.
Rule 3: the rows themselves come packed (JSON lines, gzip, base64): a page unpacks them when somebody asks for one.
"""

import dataclasses
import gzip
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from itertools import permutations
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from proctor.errors import ValidationError
from proctor.ledger.export_jsonl import line_of
from proctor.ledger.reader import Ledger, Row
from proctor.models.events import BatchStepped, EpisodeReset, EpisodeStepped
from proctor.models.pixels import SOME_PIXELS, is_pixels
from proctor.viewer.comparing import difference
from proctor.viewer.documents import Difference, Explanation, Fork, Head, Line, Machine, Slice
from proctor.viewer.explaining import explanations
from proctor.viewer.machine import machine
from proctor.viewer.shelf import Shelf

MOST_STEPS: Final = 100_000
LEAST_STEPS: Final = 1_000
MOST_FRAMES: Final = 400
STEPS_SIZE: Final = 40_000_000
FRAMES_SIZE: Final = 20_000_000
ROWS_SIZE: Final = 64_000_000
"""Bytes of an episode's steps, of its pictures, and of its rows before they are packed."""
OTHERS_SIZE: Final = 32_000_000
"""Of these rows, the bytes of those that are no steps."""
MOST_ROW: Final = 2**24
"""Bytes of the values of one row: a few bytes of a ledger can say very many."""

Progress = Callable[[int, int], None]
"""Told how many rows were read, and of how many."""


class Carried(Struct, frozen=True, gc=False, kw_only=True):
    """One episode, whole."""

    head: Head
    slice: Slice
    explanations: dict[int, Explanation]
    pixels: dict[int, str]
    raw: str


class Contents(Struct, frozen=True, gc=False, kw_only=True):
    """What the page reads instead of asking a server."""

    lines: list[Line]
    episodes: dict[str, Carried]
    differences: dict[str, Difference]
    machine: Machine
    remarks: list[str]
    """What is not in the file, in sentences."""
    title: str | None = None
    """What the page is called, where somebody has said it."""


def gathered(
    ledger: Ledger, chains: Sequence[str], forks: Sequence[Fork] = (), progress: Progress | None = None
) -> Contents:
    """Return what a file of these episodes carries; a ValidationError if there is no such chain."""
    carrier = _Carrier(ledger, progress or (lambda done, total: None))
    try:
        episodes = {chain: carrier.carried(chain) for chain in chains}
    finally:
        carrier.close()
    episodes |= {fork.head.line.chain: _branch(fork) for fork in forks}
    pairs = [difference(ledger, one, other) for one, other in permutations(dict.fromkeys(chains), 2)]
    return Contents(
        lines=[each.head.line for each in episodes.values()],
        episodes=episodes,
        differences={f"{each.one}|{each.other}": each for each in [*pairs, *(fork.difference for fork in forks)]},
        machine=machine(),
        remarks=carrier.remarks,
    )


class _Carrier:
    """Takes episodes from a ledger, and remembers what it left there."""

    def __init__(self, ledger: Ledger, progress: Progress) -> None:
        self._ledger = ledger
        self._progress = progress
        self._shelves: dict[Path, Shelf] = {}
        self.remarks: list[str] = []

    def close(self) -> None:
        for shelf in self._shelves.values():
            shelf.close()

    def carried(self, chain: str) -> Carried:
        shelf = self._shelf(chain)
        head = _still(shelf.head(chain))
        steps = self._steps(shelf, chain)
        numbers = _pictured(head, steps)
        return Carried(
            head=head,
            slice=steps,
            explanations=explanations(self._ledger, chain),
            pixels=self._pixels(shelf, chain, numbers),
            raw=self._rows(head.line, bool(numbers)),
        )

    def _shelf(self, chain: str) -> Shelf:
        """Return a shelf of the file that has the chain, and of no other: a folder may have many."""
        path = self._ledger.located(chain)[0].path
        if path not in self._shelves:
            self._shelves[path] = Shelf(path)
        return self._shelves[path]

    def _steps(self, shelf: Shelf, chain: str) -> Slice:
        """Return all that happened, with as many steps as fit."""
        most = MOST_STEPS
        found = shelf.slice(chain, most=most, thin=True)
        # A slice that is too large ends early; with fewer steps it comes to the end, and most of all with one.
        while most > 1 and (found.more or (most > LEAST_STEPS and len(msgspec.json.encode(found.steps)) > STEPS_SIZE)):
            most //= 2
            found = shelf.slice(chain, most=most, thin=True)
        self._remark(chain, found.thinned, "steps")
        return found

    def _pixels(self, shelf: Shelf, chain: str, numbers: Sequence[int]) -> dict[int, str]:
        """Return pictures as addresses that hold them, evenly thinned where there are too many or too large ones."""
        chosen = _every(numbers, -(-len(numbers) // MOST_FRAMES))
        found = {number: address for number in chosen if (address := _picture(shelf, chain, number)) is not None}
        missing = len(chosen) - len(found)
        if missing:
            self.remarks.append(f"{missing:,} of the pictures of {chain} cannot be read.")
        kept = _every(list(found), -(-sum(map(len, found.values())) // FRAMES_SIZE))
        if len(kept) + missing < len(numbers):
            self.remarks.append(f"Of the {len(numbers):,} pictures of {chain}, {len(kept):,} are in this file.")
        return {number: found[number] for number in kept}

    def _rows(self, line: Line, pictured: bool) -> str:
        """Return the rows, packed."""
        kept = _Rows()
        unread = 0
        for done, row in enumerate(self._readable(line.chain), start=1):
            if row is None:
                unread += 1
            else:
                kept.add(row, pictured)
            self._progress(done, max(line.rows, done))
        if unread:
            self.remarks.append(f"Rows of {line.chain} that cannot be read, and are not in this file: {unread:,}.")
        self._remark(line.chain, kept.every, "raw rows of steps")
        if kept.too_large:
            self.remarks.append(f"Raw rows of {line.chain} that are too large for this file: {kept.too_large:,}.")
        return b64encode(gzip.compress(b"".join(kept.lines()), mtime=0)).decode()

    def _readable(self, chain: str) -> Iterator[Row | None]:
        """Yield the rows of a chain, None for one that cannot be read: the slice has a note of it."""
        file, found = self._ledger.located(chain)
        for stored in file.stored_in(found):
            try:
                row = file.row(chain, stored)
            except ValidationError:
                row = None
            yield row

    def _remark(self, chain: str, every: int, what: str) -> None:
        if every > 1:
            self.remarks.append(f"{chain} is too long for one file: of its {what}, every {_ordinal(every)} is here.")


class _Rows:
    """The lines of a chain; when they grow too many, every other step is dropped, and of other rows those that do not fit."""

    def __init__(self) -> None:
        self.every = 1
        self.too_large = 0
        """How many rows were left out for their size."""
        self._steps = 0
        self._size = 0
        self._others = 0
        """The bytes of the lines that are no steps."""
        self._kept: list[tuple[int, bytes]] = []  # which step it is, 0 for what is none

    def add(self, row: Row, pictured: bool) -> None:
        """Take a row, unless it is one of the steps that are left out."""
        stepped = isinstance(row.event, EpisodeStepped | BatchStepped)
        self._steps += stepped
        if stepped and self._steps % self.every:
            return
        row = _without_pixels(row) if pictured else row
        size = _values_size(row)
        if size > MOST_ROW or (not stepped and self._others + size > OTHERS_SIZE):
            self.too_large += 1
            return
        line = line_of(row)
        self._kept.append((self._steps if stepped else 0, line))
        self._size += len(line)
        self._others += 0 if stepped else len(line)
        while self._size > ROWS_SIZE and self.every <= self._steps:
            self._thin()

    def _thin(self) -> None:
        self.every *= 2
        self._kept = [(step, line) for step, line in self._kept if step % self.every == 0]
        self._size = sum(len(line) for _, line in self._kept)

    def lines(self) -> Iterator[bytes]:
        """Yield what was kept."""
        return (line for _, line in self._kept)


def _values_size(row: Row) -> int:
    """Return how many bytes the values of a row have, which are most of a large one."""
    fields = (getattr(row.event, name) for name in row.event.__struct_fields__)
    return sum(memoryview(each).nbytes for each in fields if isinstance(each, Raw))


def _branch(fork: Fork) -> Carried:
    """Return a fork as an episode: it has no rows, and nothing in it was judged."""
    raw = b64encode(gzip.compress(b"", mtime=0)).decode()
    return Carried(head=_still(fork.head), slice=fork.slice, explanations={}, pixels={}, raw=raw)


def _still(head: Head) -> Head:
    """Return a head of which nothing is live: a file does not change."""
    return replace(head, line=replace(head.line, live=False))


def _pictured(head: Head, steps: Slice) -> list[int]:
    """Return the numbers of the rows that have a picture in pixels."""
    if not is_pixels(head.scene):
        return []
    found = zip(steps.steps.number, steps.steps.scene, strict=True)
    return [head.first, *(number for number, frame in found if bytes(frame) != b"null")]


def _without_pixels(row: Row) -> Row:
    event = row.event
    if not isinstance(event, EpisodeReset | EpisodeStepped) or bytes(event.scene) == b"null":
        return row
    return dataclasses.replace(row, event=replace(event, scene=SOME_PIXELS))


def _every(numbers: Sequence[int], nth: int) -> list[int]:
    return list(numbers[:: max(nth, 1)])


def _picture(shelf: Shelf, chain: str, number: int) -> str | None:
    """Return the address that holds a picture, None if it cannot be read."""
    try:
        return _address(shelf.pixels(chain, number))
    except ValidationError:
        return None


def _address(picture: bytes) -> str:
    return f"data:image/png;base64,{b64encode(picture).decode()}"


def _ordinal(count: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th") if count % 100 not in {11, 12, 13} else "th"
    return f"{count}{ending}"
