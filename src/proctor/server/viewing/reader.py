"""The process that reads for the pages: it is asked through a pipe, one thing after the other, and answers with bytes.

Rule 1: it stands back: whatever steps beside it goes first. What it sends is encoded and packed here, so that the server only passes
    it on.
Rule 2: it ends with the server, however that ends, and whatever it is doing: nobody would read what it says.
Rule 3: what has changed is told once, also if somebody has asked for all lines in between.
"""

import os
import signal
import sys
import threading
import traceback
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Final

import msgspec

from proctor.errors import ProctorError
from proctor.server.viewing.forms import Lines
from proctor.server.viewing.packing import event, packed_if_large
from proctor.server.viewing.readings import READINGS, Source
from proctor.server.viewing.slips import KINDS, Asked, Change, News, Opening, Problem, Told, put, taken
from proctor.viewer.documents import Line

NICE: Final = 10
OPENED, LINES, WHOLE, NEWS = "opened", "lines", "whole", "news"
NEWLY: Final = b"newly"
"""The body that goes with `WHOLE` where nobody listens yet, so that nobody need be told what all lines say anyway."""
encode: Final = msgspec.json.encode
_READINGS: Final = {row.path: row for row in READINGS}


class Lister:
    """The list of episodes, and what of it was not told yet."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._known: dict[str, Line] = {}
        self._untold: dict[str, Line | None] = {}

    def lines(self) -> Lines:
        """Return all episodes, the newest first."""
        shelf = self._source.shelf
        lines = shelf.lines()
        self._keep(lines)
        return Lines(lines, shelf.remarks())

    def whole(self, *, newly: bool) -> bytes:
        """Return all lines as an event; if somebody listens `newly`, and nobody else, these are no news any more."""
        told = event("lines", encode(self.lines().lines))
        if newly:
            self._untold.clear()
        return told

    def news(self) -> News:
        """Return what has changed since the last news."""
        self._keep(self._source.shelf.news())
        untold, self._untold = self._untold, {}
        changes = [Change(chain, encode(line)) for chain, line in untold.items() if line is not None]
        return News(changes, [chain for chain, line in untold.items() if line is None])

    def _keep(self, lines: list[Line]) -> None:
        changed = {line.chain: line for line in lines if line != self._known.get(line.chain)}
        self._known |= changed
        self._untold |= changed
        for chain in self._source.shelf.gone():
            self._known.pop(chain, None)
            self._untold[chain] = None


class Reader:
    """Who answers what is asked of one ledger."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._lister = Lister(source)

    def answer(self, asked: Asked, query: bytes) -> tuple[Told, bytes]:
        """Return what came of it: an answer, or why there is none."""
        try:
            body, is_packed = packed_if_large(self._read(asked.name, query), asked.packs)
            return Told(is_packed=is_packed), body
        except ProctorError as problem:
            if type(problem).__name__ in KINDS:
                return Told(problem=Problem.of(problem)), b""
            return Told(failed=True), traceback.format_exc().encode(errors="replace")
        except Exception:  # noqa: BLE001  # an entry: what is wrong here goes to the server's log
            return Told(failed=True), traceback.format_exc().encode(errors="replace")

    def _read(self, name: str, query: bytes) -> bytes:
        match name:
            case "opened":
                self._source.shelf  # noqa: B018  # it is opened by being named
                return b""
            case "lines":
                return encode(self._lister.lines())
            case "whole":
                return self._lister.whole(newly=query == NEWLY)
            case "news":
                return msgspec.msgpack.encode(self._lister.news())
        row = _READINGS[name]
        return row.read(self._source, msgspec.json.decode(query, type=row.asks))


def main() -> None:
    """Answer until the server is gone."""
    os.nice(NICE)
    # The terminal's Ctrl-C is the server's; it ends this one by closing the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Whatever should print here must not be taken for an answer.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    opening, _ = taken(sys.stdin.buffer, Opening)
    asks: SimpleQueue[tuple[Asked, bytes]] = SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, asks), daemon=True).start()
    reader = Reader(Source(Path(opening.path), live=opening.live))
    while True:
        put(answers, *reader.answer(*asks.get()))


def _listen(source: IO[bytes], asks: "SimpleQueue[tuple[Asked, bytes]]") -> None:
    """Hear what is asked; when nobody asks any more, end at once, also in the middle of a reading."""
    try:
        while True:
            asks.put(taken(source, Asked))
    finally:
        os._exit(0)
