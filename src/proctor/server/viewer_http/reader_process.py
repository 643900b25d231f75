"""The process that reads the ledger for the pages, and the messages that it exchanges with the server through a pipe.

Rule 1: it stands back: whatever steps beside it goes first. What it sends is encoded and packed here, so that the server only passes
    it on.
Rule 2: it ends with the server, however that ends, and whatever it is doing: nobody would read what it says.
Rule 3: what has changed is told once, also if somebody has asked for all lines in between.
Rule 4: a message is two lengths, a Struct as MessagePack, and a body as it is: whoever passes it on copies it and decodes nothing.
Rule 5: an error that was written for callers crosses as what it is; of any other only a text crosses, which is for the log.
"""

import os
import signal
import struct
import sys
import threading
import traceback
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Final, TypeVar

import msgspec
from msgspec import Struct

from proctor.errors import ComponentError, ProctorError, RenderingError, StateError, ValidationError
from proctor.server.viewer_http.endpoints import READ_ENDPOINTS, EpisodeLines, LedgerSource
from proctor.server.viewer_http.responses import format_event, gzip_if_large
from proctor.viewer.documents import EpisodeLine

SIZES: Final = struct.Struct(">IQ")
KINDS: Final = {kind.__name__: kind for kind in (ValidationError, StateError, ComponentError, RenderingError)}
S = TypeVar("S", bound=Struct)
encode_message: Final = msgspec.msgpack.encode


class OpenLedger(Struct):
    """Whose pages are read: the ledger at `path`, which with `live` need not be there yet."""

    path: str
    live: bool


class ReadRequest(Struct):
    """Something to read; the body is the query as JSON. With `packs` a large answer may be packed."""

    name: str
    packs: bool = False


class ReadProblem(Struct):
    """An error of ours; `kind` is its class."""

    kind: str
    message: str
    expected: str | None = None
    clause: str | None = None

    @classmethod
    def of(cls, error: ProctorError) -> "ReadProblem":
        """Return what crosses of an error."""
        return cls(type(error).__name__, error.message, error.expected, error.clause)

    def error(self) -> ProctorError:
        """Return the error again."""
        return KINDS[self.kind](self.message, expected=self.expected, clause=self.clause)


class ReadOutcome(Struct):
    """What came of it; the body is the answer, or the text for the log if it `failed`."""

    is_packed: bool = False
    failed: bool = False
    problem: ReadProblem | None = None


class LineChange(Struct, array_like=True):
    """An episode whose line has changed, with the line as JSON."""

    chain: str
    line: bytes


class News(Struct):
    """What has changed since the last news: lines that are other ones, and episodes that are there no more."""

    lines: list[LineChange] = []
    gone: list[str] = []


def write_message(sink: IO[bytes], message: Struct, body: bytes = b"") -> None:
    """Pass a message on."""
    head = encode_message(message)
    sink.write(SIZES.pack(len(head), len(body)) + head)
    sink.write(body)
    sink.flush()


def read_message(source: IO[bytes], kind: type[S]) -> tuple[S, bytes]:
    """Return the next message, or raise an EOFError: there is none."""
    head, body = SIZES.unpack(_read_exactly(source, SIZES.size))
    return msgspec.msgpack.decode(_read_exactly(source, head), type=kind), _read_exactly(source, body)


def _read_exactly(source: IO[bytes], size: int) -> bytes:
    found = source.read(size)
    if len(found) < size:
        raise EOFError
    return found


NICE: Final = 10
OPENED, LINES, WHOLE, NEWS = "opened", "lines", "whole", "news"
NEWLY: Final = b"newly"
"""The body that goes with `WHOLE` where nobody listens yet, so that nobody need be told what all lines say anyway."""
encode: Final = msgspec.json.encode
_ENDPOINTS: Final = {row.path: row for row in READ_ENDPOINTS}


class EpisodeLister:
    """The list of episodes, and what of it was not told yet."""

    def __init__(self, source: LedgerSource) -> None:
        self._source = source
        self._known: dict[str, EpisodeLine] = {}
        self._untold: dict[str, EpisodeLine | None] = {}

    def lines(self) -> EpisodeLines:
        """Return all episodes, the newest first."""
        catalog = self._source.catalog
        lines = catalog.lines()
        self._keep(lines)
        return EpisodeLines(lines, catalog.remarks())

    def whole(self, *, newly: bool) -> bytes:
        """Return all lines as an event; if somebody listens `newly`, and nobody else, these are no news any more."""
        told = format_event("lines", encode(self.lines().lines))
        if newly:
            self._untold.clear()
        return told

    def news(self) -> News:
        """Return what has changed since the last news."""
        self._keep(self._source.catalog.news())
        untold, self._untold = self._untold, {}
        changes = [LineChange(chain, encode(line)) for chain, line in untold.items() if line is not None]
        return News(changes, [chain for chain, line in untold.items() if line is None])

    def _keep(self, lines: list[EpisodeLine]) -> None:
        changed = {line.chain: line for line in lines if line != self._known.get(line.chain)}
        self._known |= changed
        self._untold |= changed
        for chain in self._source.catalog.missing_chains():
            self._known.pop(chain, None)
            self._untold[chain] = None


class Reader:
    """Who answers what is asked of one ledger."""

    def __init__(self, source: LedgerSource) -> None:
        self._source = source
        self._lister = EpisodeLister(source)

    def answer(self, asked: ReadRequest, query: bytes) -> tuple[ReadOutcome, bytes]:
        """Return what came of it: an answer, or why there is none."""
        try:
            body, is_packed = gzip_if_large(self._read(asked.name, query), asked.packs)
            return ReadOutcome(is_packed=is_packed), body
        except ProctorError as problem:
            if type(problem).__name__ in KINDS:
                return ReadOutcome(problem=ReadProblem.of(problem)), b""
            return ReadOutcome(failed=True), traceback.format_exc().encode(errors="replace")
        except Exception:  # noqa: BLE001  # an entry: what is wrong here goes to the server's log
            return ReadOutcome(failed=True), traceback.format_exc().encode(errors="replace")

    def _read(self, name: str, query: bytes) -> bytes:
        match name:
            case "opened":
                self._source.catalog  # noqa: B018  # it is opened by being named
                return b""
            case "lines":
                return encode(self._lister.lines())
            case "whole":
                return self._lister.whole(newly=query == NEWLY)
            case "news":
                return msgspec.msgpack.encode(self._lister.news())
        row = _ENDPOINTS[name]
        return row.read(self._source, msgspec.json.decode(query, type=row.asks))


def main() -> None:
    """Answer until the server is gone."""
    os.nice(NICE)
    # The terminal's Ctrl-C is the server's; it ends this one by closing the pipe.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    # Whatever should print here must not be taken for an answer.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    opening, _ = read_message(sys.stdin.buffer, OpenLedger)
    asks: SimpleQueue[tuple[ReadRequest, bytes]] = SimpleQueue()
    threading.Thread(target=_listen, args=(sys.stdin.buffer, asks), daemon=True).start()
    reader = Reader(LedgerSource(Path(opening.path), live=opening.live))
    while True:
        write_message(answers, *reader.answer(*asks.get()))


def _listen(source: IO[bytes], asks: "SimpleQueue[tuple[ReadRequest, bytes]]") -> None:
    """Hear what is asked; when nobody asks any more, end at once, also in the middle of a reading."""
    try:
        while True:
            asks.put(read_message(source, ReadRequest))
    finally:
        os._exit(0)
