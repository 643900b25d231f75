"""The two processes that read the ledger for the pages: no reading takes time from a step.

Rule 1: one reads what is quick, the other what takes long: whoever scrubs never waits for somebody else's single file. Each does one
    thing after the other, and so much may wait (`ThreadQueue`). A peer that leaves frees no thread: what runs counts until it has ended.
Rule 2: they are started when somebody comes to look, and end with the server, also if it is killed: they see their channel close. They
    stand back, and get nothing of the server but the ledger's path: no socket, no signal of the terminal, no variable that could hold a
    secret, and no module from the folder that the server was started in (a `ProcessPoolExecutor` would give them all of these).
Rule 3: one that dies is replaced, and asked again once. A question that ends it twice has no answer.
Rule 4: a message is a Struct as MessagePack, so that nothing that a reader says can run here. What is sent to a browser is
    encoded and packed there. An error that was written for callers crosses as what it is; of any other only a text for the log.
Rule 5: what has changed is told once, also if somebody has asked for all lines in between.
"""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
import traceback
import zlib
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from queue import SimpleQueue
from typing import Final, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from proctor.errors import ComponentError, ProctorError, RenderingError, StateError, ValidationError
from proctor.models.control import Code
from proctor.server.runtime.executors import run_on_thread
from proctor.server.runtime.results import make_refusal
from proctor.server.viewer_http.endpoints import READ_ENDPOINTS, EpisodeLines, LedgerSource, ReadEndpoint
from proctor.viewer.documents import EpisodeLine

LOG: Final = logging.getLogger("proctor.viewer")
AT_ONCE: Final = 1
MOST_WAITING: Final = 32
END_SECONDS: Final = 5.0
NICE: Final = 10
KEPT: Final = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "LD_LIBRARY_PATH")
BEGIN: Final = "import sys; sys.path += sys.argv[3:]; from proctor.server.viewer_http.readers import main; main()"
"""The server's own paths come last: a file of a user's that is called like a module of Python's is none of the reader's."""
OPENED, LINES, WHOLE, NEWS = "opened", "lines", "whole", "news"
NEWLY: Final = b"newly"
"""The query that goes with `WHOLE` where nobody listens yet, so that nobody need be told what all lines say anyway."""
LARGE: Final = 32 * 1024
GZIP: Final = 16 + zlib.MAX_WBITS
KINDS: Final = {kind.__name__: kind for kind in (ValidationError, StateError, ComponentError, RenderingError)}
CUT_OFF: Final = (OSError, EOFError, msgspec.DecodeError)
"""What is raised where a process has ended in the middle of its answer."""
Changes: TypeAlias = dict[str, bytes | None]
"""Lines that are other ones, as JSON, by their chains; None: the episode is there no more."""
T = TypeVar("T")
encode: Final = msgspec.json.encode
_pack: Final = msgspec.msgpack.encode
_ENDPOINTS: Final = {row.path: row for row in READ_ENDPOINTS}


class ReadRequest(Struct):
    """Something to read, with its query as JSON. With `packs` a large answer may be packed."""

    name: str
    query: bytes = b""
    packs: bool = False


class ReadProblem(Struct):
    """Why there is no answer: an error of ours, or, where `kind` is none of these, a text for the log."""

    kind: str
    message: str
    expected: str | None = None
    clause: str | None = None


class ReaderAnswer(Struct):
    """The bytes that are sent, and whether they are packed; or why there are none."""

    body: bytes = b""
    is_packed: bool = False
    problem: ReadProblem | None = None


class ReadingFailed(Exception):
    """There is no answer, for a reason that is for the log only."""


# ---------------------------------------------------------------------------------------------------------- the server's side
class ThreadQueue:
    """Who works and who waits."""

    def __init__(self, at_once: int = AT_ONCE, most_waiting: int = MOST_WAITING) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._most_waiting = most_waiting
        self.waiting = 0

    async def run(self, work: Callable[[], T], *, must: bool = False) -> T:
        """Return what `work` returns, when it is its turn; refuses if too many wait before it, unless it `must` be done."""
        if self.waiting >= self._most_waiting and not must:
            raise make_refusal(Code.BUSY, f"no more than {self._most_waiting} can wait at once")
        self.waiting += 1
        try:
            await self._free.acquire()
        finally:
            self.waiting -= 1
        try:
            done = run_on_thread(work, "viewer")
        except BaseException:  # there may be no thread left to have
            self._free.release()
            raise
        done.add_done_callback(lambda _: self._free.release())
        # Shielded: otherwise whoever is cancelled would end the future, and not the thread.
        return await asyncio.shield(done)


class RunningReader(NamedTuple):
    """A process that reads, and the channel to it."""

    process: "subprocess.Popen[bytes]"
    channel: "Connection"

    @classmethod
    def start(cls, path: Path, live: bool) -> "RunningReader":
        """Return a new one."""
        ours, theirs = Pipe()
        with theirs:
            process = subprocess.Popen(  # noqa: S603  # this Python, and its own paths
                # Without the folder that it happens to be in.
                [
                    *(sys.executable, "-P", "-c", BEGIN, str(path), "live" if live else ""),
                    *(str(Path(each).absolute()) for each in sys.path),
                ],
                stdin=theirs.fileno(),
                # Whatever should print there goes where errors go.
                stdout=2,
                env={name: os.environ[name] for name in KEPT if name in os.environ},
                # A signal that a terminal sends to the server is not for those who read.
                start_new_session=True,
            )
        return cls(process, ours)

    def end(self) -> None:
        """End it, and let go of what is left of it; nobody else may be using the channel."""
        self.process.kill()
        self.channel.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(END_SECONDS)


class ReaderProcess:
    """One of those who read the ledger at a path; `ask` may be called by any thread, one at a time has its turn."""

    def __init__(self, path: Path, *, live: bool) -> None:
        self._path = path
        self._live = live
        self._running: RunningReader | None = None
        self._closed = False
        self._guard = threading.Lock()
        self._turn = threading.Lock()

    @property
    def pid(self) -> int | None:
        """Its number, while there is one."""
        running = self._running
        return None if running is None else running.process.pid

    def ask(self, asked: ReadRequest) -> ReaderAnswer:
        """Return the answer, or raise the error that it is."""
        with self._turn:
            answer = self._exchange_twice(asked)
        problem = answer.problem
        if problem is None:
            return answer
        if problem.kind not in KINDS:
            raise ReadingFailed(problem.message)
        raise KINDS[problem.kind](problem.message, expected=problem.expected, clause=problem.clause)

    def close(self) -> None:
        """End it, in the middle of a reading too; calling it again does nothing."""
        with self._guard:
            self._closed = True
            running, self._running = self._running, None
        if running is not None:
            running.process.kill()
            # Whoever waits for an answer sees the channel close, and gives up the turn.
            with self._turn:
                running.end()

    def _exchange_twice(self, asked: ReadRequest) -> ReaderAnswer:
        try:
            return self._exchange(asked)
        except CUT_OFF:
            LOG.warning("a process that reads for the pages has ended; another one is started")
        try:
            return self._exchange(asked)
        except CUT_OFF as problem:
            raise ReadingFailed(f"the process that reads for the pages ended twice over {asked.name}") from problem

    def _exchange(self, asked: ReadRequest) -> ReaderAnswer:
        with self._guard:
            self._check_open()
            running = self._running = self._running or RunningReader.start(self._path, self._live)
        try:
            running.channel.send_bytes(_pack(asked))
            return msgspec.msgpack.decode(running.channel.recv_bytes(), type=ReaderAnswer)
        except BaseException:
            # Whatever came between question and answer, the next one must not be taken for this one's.
            with self._guard:
                self._running = None
            running.end()
            self._check_open()
            raise

    def _check_open(self) -> None:
        if self._closed:
            raise make_refusal(Code.SHUTTING_DOWN, "the server is stopping") from None


class ReaderPool:
    """The two who read the ledger at a path, and the turns of those who ask them."""

    def __init__(self, path: Path, *, live: bool = False) -> None:
        self.source: Final = LedgerSource(path, live=live)
        """For whoever reads in the server itself."""
        self.quick: Final = ReaderProcess(path, live=live)
        self.long: Final = ReaderProcess(path, live=live)
        self._quick_turns = ThreadQueue()
        self._long_turns = ThreadQueue()

    def open(self) -> None:
        """Return when the ledger was opened, or raise a ValidationError: there is none."""
        self.quick.ask(ReadRequest(OPENED))

    def begin(self) -> None:
        """Have the ledger opened by the time that somebody asks; on the loop."""
        run_on_thread(self.open, "viewer-begin")

    async def read(self, row: ReadEndpoint, query: Struct, *, packs: bool) -> ReaderAnswer:
        """Return what is asked for, as bytes."""
        reader, turns = (self.long, self._long_turns) if row.is_long else (self.quick, self._quick_turns)
        asked = ReadRequest(row.path, encode(query), packs)
        return await turns.run(lambda: reader.ask(asked))

    async def lines(self, *, packs: bool) -> ReaderAnswer:
        """Return all lines."""
        return await self._quick_turns.run(lambda: self.quick.ask(ReadRequest(LINES, packs=packs)))

    async def whole(self, newly: bool) -> bytes:
        """Return all lines as an event; `newly`: nobody has listened until now."""
        asked = ReadRequest(WHOLE, NEWLY if newly else b"")
        return (await self._quick_turns.run(lambda: self.quick.ask(asked))).body

    async def news(self) -> Changes:
        """Return what has changed since the last news."""
        answer = await self._quick_turns.run(lambda: self.quick.ask(ReadRequest(NEWS)), must=True)
        return msgspec.msgpack.decode(answer.body, type=Changes)

    def close(self) -> None:
        """End both."""
        self.quick.close()
        self.long.close()
        self.source.close()


# -------------------------------------------------------------------------------------------------------- the reader's side
def gzip_if_large(body: bytes, packs: bool) -> tuple[bytes, bool]:
    """Return the body, packed if it may be and that is worth it, and whether it is; quickly, for the way is short."""
    return (zlib.compress(body, 1, GZIP), True) if packs and len(body) > LARGE else (body, False)


def format_event(name: str, raw: bytes) -> bytes:
    """Return an event; what agents wrote may hold line breaks, each of which needs a `data` of its own."""
    return b"".join((f"event: {name}\n".encode(), *(b"data: %b\n" % part for part in raw.splitlines()), b"\n"))


class Reader:
    """Who answers what is asked of one ledger; knows what of its list was not told yet."""

    def __init__(self, source: LedgerSource) -> None:
        self._source = source
        self._known: dict[str, EpisodeLine] = {}
        self._untold: dict[str, EpisodeLine | None] = {}
        """None: the episode is gone."""

    def answer(self, asked: ReadRequest) -> ReaderAnswer:
        """Return what came of it: an answer, or why there is none."""
        try:
            return ReaderAnswer(*gzip_if_large(self._read(asked), asked.packs))
        except Exception as problem:  # noqa: BLE001  # an entry: what is wrong here goes to the server's log
            if isinstance(problem, ProctorError) and type(problem).__name__ in KINDS:
                said = ReadProblem(type(problem).__name__, problem.message, problem.expected, problem.clause)
            else:
                said = ReadProblem("", traceback.format_exc().encode(errors="replace").decode())
            return ReaderAnswer(problem=said)

    def _read(self, asked: ReadRequest) -> bytes:
        match asked.name:
            case "opened":
                self._source.catalog  # noqa: B018  # it is opened by being named
                return b""
            case "lines":
                return encode(EpisodeLines(self._list_all(), self._source.catalog.remarks()))
            case "whole":
                told = format_event("lines", encode(self._list_all()))
                if asked.query == NEWLY:
                    self._untold.clear()
                return told
            case "news":
                self._keep(self._source.catalog.news())
                untold, self._untold = self._untold, {}
                return _pack({chain: None if line is None else encode(line) for chain, line in untold.items()})
        row = _ENDPOINTS[asked.name]
        return row.read(self._source, msgspec.json.decode(asked.query, type=row.asks))

    def _list_all(self) -> list[EpisodeLine]:
        lines = self._source.catalog.lines()
        self._keep(lines)
        return lines

    def _keep(self, lines: list[EpisodeLine]) -> None:
        changed = {line.chain: line for line in lines if line != self._known.get(line.chain)}
        self._known |= changed
        self._untold |= changed
        for chain in self._source.catalog.missing_chains():
            self._known.pop(chain, None)
            self._untold[chain] = None


def main() -> None:
    """Answer what comes through the standard input, until the server is gone."""
    os.nice(NICE)
    # The terminal's Ctrl-C is the server's; it ends this one by closing the channel.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    channel = Connection(sys.stdin.fileno())
    asks: SimpleQueue[ReadRequest] = SimpleQueue()
    threading.Thread(target=_listen, args=(channel, asks), daemon=True).start()
    reader = Reader(LedgerSource(Path(sys.argv[1]), live=bool(sys.argv[2])))
    while True:
        channel.send_bytes(_pack(reader.answer(asks.get())))


def _listen(channel: "Connection", asks: "SimpleQueue[ReadRequest]") -> None:
    """Hear what is asked; when nobody asks any more, end at once, also in the middle of a reading."""
    try:
        while True:
            asks.put(msgspec.msgpack.decode(channel.recv_bytes(), type=ReadRequest))
    finally:
        os._exit(0)
