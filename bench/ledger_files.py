"""Ledgers to be measured: folders on the disk, servers that keep one there, and ledgers that are finished.

Rule 1: a ledger lies below the project's folder: where temporary files are kept in memory, a disk costs nothing.
Rule 2: the key that signs and the operator's credential are the bench's own; those of whoever runs it are not touched.
Rule 3: what is recorded through a server is the same in every run, but for names and times.
Rule 4: what is not in the ledger is never counted: a record that is lost would be the fastest of all.
"""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Final

from bench.control_load import Step
from bench.control_servers import PAUSE, Kind, ours, started
from bench.ledger_events import begun, opened, stepped
from bench.ledger_player import playing
from bench.measure import Probe
from bench.peers import ROOT
from proctor.access.credentials import LEDGER_KEY, OPERATOR
from proctor.ledger.chain import is_episode_chain
from proctor.ledger.keys import Signer
from proctor.ledger.reader import Ledger, ledger_files
from proctor.ledger.storage.sqlite import Durability
from proctor.ledger.writer import LedgerWriter
from proctor.models.events import Event
from proctor.server.sessions.recorders import JsonlRecorder

SEED: Final = bytes(range(32))
SIGNER: Final = Signer.of(SEED)
OPERATORS: Final = "an-operators-secret-for-the-bench"
DISK: Final = ROOT / "build"
PATIENCE: Final = 2.0
PLAYED: Final = 500
"""Steps of a recorded session."""
RECORDED: Final[Durability] = "normal"
"""How finished ledgers were kept: what is in them does not depend on it, and the rows say it."""


def folder(stack: ExitStack) -> Path:
    """Return a new folder on the disk, which `stack` removes."""
    DISK.mkdir(exist_ok=True)
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=DISK)))


def with_ledger(target: str, place: Path, durability: Durability, *options: str) -> Kind:
    """Our server with `target`, which keeps a ledger in a folder."""
    return with_keys(ours(target, "--ledger", str(place), "--durability", durability, *options))


def with_keys(kind: Kind) -> Kind:
    """The same server with the key that signs and the operator's credential."""
    return replace(kind, variables={**kind.variables, LEDGER_KEY.variable: SEED.hex(), OPERATOR.variable: OPERATORS})


def counted(place: Path, probe: Probe) -> Probe:
    """The same probe, for what leaves a row for each unit at least; an error if the rows are not there."""

    def checked(seconds: float) -> float:
        before = rows_in(place)
        found = probe(seconds)
        # A client counts for so many seconds at least, and without waiting for commits the last rows come a little later.
        wanted, until = before + int(found * seconds), time.monotonic() + PATIENCE
        while rows_in(place) < wanted:
            if time.monotonic() > until:
                raise RuntimeError(f"{rows_in(place) - before} rows are on record, not {wanted - before}")
            time.sleep(PAUSE)
        return found

    return checked


def rows_in(place: Path) -> int:
    """Return how many rows the files of a ledger have (they are numbered), as anybody else sees them who reads beside its writer."""
    return sum(map(_rows_of, ledger_files(place)))


def _rows_of(file: Path) -> int:
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as connection:
        return int(connection.execute("SELECT coalesce(max(number), 0) FROM rows").fetchone()[0])


# ------------------------------------------------------------------------------------------------------------- recorded
def recorded(stack: ExitStack, target: str, steps: int = PLAYED) -> Path:
    """Return the ledger of a server that served one session of a random player, and has ended."""
    place = folder(stack)
    with ExitStack() as served:
        there = started(served, with_ledger(target, place, RECORDED))
        playing(served, there.url, steps)()
    return place


def stored_bytes(place: Path) -> int:
    """Return how long the files of a folder are together."""
    return sum(file.stat().st_size for file in place.iterdir())


def lines_bytes(place: Path, file: Path) -> int:
    """Return how long the lines of the JSONL recorder are for what was stated to a ledger; they are written to `file`."""
    with Ledger.open(place) as ledger, closing(JsonlRecorder(file)) as recorder:
        for row in ledger.all_rows():
            # The first row of an episode says again what the session said when it was opened.
            if isinstance(row.event, Event) and not (is_episode_chain(row.chain) and row.seq == 0):
                recorder.record(row.event)
    return file.stat().st_size


# -------------------------------------------------------------------------------------------------------------- written
def writer_in(stack: ExitStack, place: Path, durability: Durability) -> LedgerWriter:
    """Return a writer that `stack` closes."""
    writer = LedgerWriter(place, boot="bench", server="0", signer=SIGNER, durability=durability)
    stack.callback(writer.close)
    return writer


def session_in(writer: LedgerWriter, name: str) -> Step:
    """Return what records one step of a session that is open and reset, and waits until it is safe."""
    for event in (opened(name), begun(name)):
        writer.record(event)
    step = stepped(name)

    async def record() -> None:
        safe = writer.record(step)
        if safe is not None:
            await safe

    return record


def written(stack: ExitStack, sessions: int, steps: int) -> Path:
    """Return the finished ledger of sessions that stepped by turns, without a server."""
    place = folder(stack)
    with ExitStack() as writing:
        writer = writer_in(writing, place, RECORDED)
        records = [session_in(writer, f"session-{index}") for index in range(sessions)]

        async def all_steps() -> None:
            for _ in range(steps):
                await asyncio.gather(*(record() for record in records))

        asyncio.run(all_steps())
    return place


def connected(path: Path) -> sqlite3.Connection:
    """Return a plain connection as one would write it by hand: WAL, and every commit on the disk."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection
