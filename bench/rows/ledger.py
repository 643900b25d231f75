"""The rows of the ledger: what it costs to have everything on record, and to read it, verify it and replay it.

Rule 1: steps go the same way on both sides, from one client's process to one server's; only the record differs.
Rule 2: the environment of the rows about steps is the echo, on the event loop: nothing hides what the record costs.
Rule 3: a replay is held against the very session that was served: one client that does nothing but step.
Rule 4: a governed call is a directive, its result and what was observed, each judged, beside the step that a free call is. Both are
    made without a client library, and both sides keep the same record.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from hashlib import sha256
from pathlib import Path
from typing import Final, get_args

import uvloop

from bench.control_load import rate_of_all
from bench.control_servers import ours
from bench.ledger_events import stepped
from bench.ledger_files import (
    PLAYED,
    RECORDED,
    SIGNER,
    connected,
    counted,
    folder,
    lines_bytes,
    recorded,
    session_in,
    stored_bytes,
    with_keys,
    with_ledger,
    writer_in,
    written,
)
from bench.measure import Probe, rate_of
from bench.row import Better, Opener, Row, ratio_at_least
from bench.rows.agents import PLAIN
from bench.rows.control import OUR_CLIENT, QUICK, Driver, driven, own_python
from proctor.ledger.reader import Ledger, ledger_files
from proctor.ledger.storage.sqlite import Durability
from proctor.ledger.verify import verify
from proctor.models.events import encode_event
from proctor.replay.driver import DriverCache
from proctor.replay.replayer import replay_episode

ECHO: Final = "bench.control_env:quick"
PLUME: Final = "proctor/PlumeSearch-v0"
POPPER: Final = "proctor/ColumnPopper-v0"
MANY: Final = 64
VERIFIED: Final = 150
"""Steps of each of so many sessions in the ledger that is verified."""
POLICY: Final = "open"
TOGETHER: Final = 100
PLAYER: Final = Driver("proctor", "bench.ledger_player", own_python)
SQLITE: Final = f"plain sqlite3 {sqlite3.sqlite_version}, WAL, full"


def on_record(target: str, durability: Durability, client: Driver, *arguments: str) -> Opener:
    """Steps a second of sessions on record, as one client's process sees them."""

    def opened(stack: ExitStack) -> Probe:
        place = folder(stack)
        return counted(place, driven(with_ledger(target, place, durability), client, *arguments)(stack))

    return opened


def calls(durability: Durability | None, way: str) -> Opener:
    """Tool calls a second of one agent, free or governed, without a record or with a ledger."""
    options = ("--agent-port", "0", *(("--governed", POLICY) if way == "governed" else ()))

    def opened(stack: ExitStack) -> Probe:
        if durability is None:
            return driven(with_keys(ours(ECHO, *options)), PLAIN, "1", way)(stack)
        place = folder(stack)
        return counted(place, driven(with_ledger(ECHO, place, durability, *options), PLAIN, "1", way)(stack))

    return opened


# --------------------------------------------------------------------------------------------------- the writer alone
def writer_rows(tasks: int, durability: Durability) -> Opener:
    """Rows a second of so many tasks that each wait until theirs is safe, on the event loop that a server has."""

    def opened(stack: ExitStack) -> Probe:
        place = folder(stack)
        writer = writer_in(stack, place, durability)
        records = [session_in(writer, f"session-{index}") for index in range(tasks)]
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        return counted(place, lambda seconds: runner.run(rate_of_all(records, seconds)))

    return opened


def plain_rows(together: int) -> Opener:
    """Rows a second of a table with the same events, already encoded, so many in each commit."""

    def opened(stack: ExitStack) -> Probe:
        connection = stack.enter_context(closing(connected(folder(stack) / "plain.sqlite")))
        connection.execute("CREATE TABLE rows (number INTEGER PRIMARY KEY, body BLOB NOT NULL)")
        bodies = [(encode_event(stepped("session-0")),)] * together

        def chunk() -> int:
            connection.execute("BEGIN")
            connection.executemany("INSERT INTO rows (body) VALUES (?)", bodies)
            connection.execute("COMMIT")
            return together

        return rate_of(chunk)

    return opened


# ------------------------------------------------------------------------------------------------ what is read again
def replays(target: str) -> Opener:
    """Steps a second of a recorded session that is driven again and compared; one that differs is an error."""

    def opened(stack: ExitStack) -> Probe:
        return rate_of(replaying(recorded(stack, target), PLAYED))

    return opened


def replaying(place: Path, steps: int) -> Callable[[], int]:
    """Return a chunk that replays every episode of a ledger, of so many steps together."""
    with Ledger.open(place) as ledger:
        chains = [episode.chain for episode in ledger.episodes()]

    def chunk() -> int:
        driver_cache = DriverCache()
        with Ledger.open(place) as ledger:
            found = [replay_episode(ledger, chain, driver_cache=driver_cache) for chain in chains]
        driver_cache.drop()
        if not all(each.identical for each in found) or sum(each.steps for each in found) != steps:
            raise RuntimeError("a replay differs from its record, or from what was played")
        return steps

    return chunk


def verified(stack: ExitStack) -> Probe:
    """Rows a second of a whole verification with the key; a finding is an error."""
    place = written(stack, MANY, VERIFIED)

    def chunk() -> int:
        report = verify(place, public=SIGNER.public)
        if not report.ok or report.rows < MANY * VERIFIED:
            raise RuntimeError(f"a ledger that nobody touched is damaged: {report.rows} rows, {report.findings[:1]}")
        return report.rows

    return rate_of(chunk)


def hashed(stack: ExitStack) -> Probe:
    """Rows a second of a bare chain of SHA-256 over the same bodies, read by sqlite3."""
    (file,) = ledger_files(written(stack, MANY, VERIFIED))

    def chunk() -> int:
        before, count = b"", 0
        with closing(sqlite3.connect(file)) as connection:
            for (body,) in connection.execute("SELECT body FROM rows ORDER BY number"):
                before = sha256(before + body).digest()
                count += 1
        return count

    return rate_of(chunk)


# -------------------------------------------------------------------------------------------------------------- bytes
def ledger_bytes(target: str) -> Opener:
    """Bytes of a finished ledger for each step of its session, with all that belongs to episodes and the server."""

    def opened(stack: ExitStack) -> Probe:
        size = stored_bytes(recorded(stack, target)) / PLAYED
        return lambda _seconds: size

    return opened


def jsonl_bytes(target: str) -> Opener:
    """Bytes of the JSONL recorder's file for the same events."""

    def opened(stack: ExitStack) -> Probe:
        size = lines_bytes(recorded(stack, target), folder(stack) / "events.jsonl") / PLAYED
        return lambda _seconds: size

    return opened


# --------------------------------------------------------------------------------------------------------------- rows
def _steps(sessions: int, durability: Durability, goal: float | None = None) -> Row:
    way = (str(sessions), "shared" if sessions > 1 else "async")
    return Row(
        f"ledger.steps{sessions}-{durability}/none",
        on_record(ECHO, durability, OUR_CLIENT, *way),
        driven(QUICK, OUR_CLIENT, *way),
        "no record",
        None if goal is None else ratio_at_least(goal),
        note="one connection" if sessions > 1 else "",
        tier="none",
        durability=durability,
    )


def _written(name: str, together: int, how: str) -> Row:
    return Row(
        f"ledger.writer{MANY}/{name}",
        writer_rows(MANY, "full"),
        plain_rows(together),
        f"{SQLITE}, {how}",
        unit="rows/s",
        note=f"{MANY} tasks, each waits for its row",
        durability="full",
    )


def _replay(name: str, target: str) -> Row:
    return Row(
        f"ledger.replay-{name}/served",
        replays(target),
        on_record(target, "full", PLAYER),
        "the session as it is served, tier none, durability full",
        ratio_at_least(20.0),
        note="a random player",
        durability=RECORDED,
    )


def _bytes(name: str, target: str) -> Row:
    return Row(
        f"ledger.bytes-{name}/jsonl",
        ledger_bytes(target),
        jsonl_bytes(target),
        "the JSONL recorder, the same events",
        unit="bytes/step",
        better=Better.LOWER,
        note=f"{PLAYED} steps of a random player",
        tier="none",
        durability=RECORDED,
    )


def _governed(durability: Durability | None) -> Row:
    kept = durability or "none"
    return Row(
        f"ledger.governed-{kept}/free",
        calls(durability, "governed"),
        calls(durability, "free"),
        "the same call in a free episode",
        unit="calls/s",
        note=f"one agent, policy {POLICY}",
        tier="none",
        durability=kept,
    )


ROWS: Final = (
    *(_steps(1, durability) for durability in get_args(Durability)),
    *(_steps(MANY, durability, 0.5 if durability == "full" else None) for durability in get_args(Durability)),
    _written("sqlite", 1, "a commit for each row"),
    _written("sqlite-batches", TOGETHER, f"a commit for {TOGETHER} rows"),
    _replay("plume", PLUME),
    _replay("popper", POPPER),
    Row(
        "ledger.verify/sha256",
        verified,
        hashed,
        "a bare SHA-256 over the same bodies, read by sqlite3",
        unit="rows/s",
        note=f"{MANY} episodes, with the key",
        durability=RECORDED,
    ),
    _bytes("plume", PLUME),
    _bytes("popper", POPPER),
    _governed(None),
    _governed("full"),
)
