"""Events of sessions, as a server would state them, and writers and readers of small ledgers."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
from collections.abc import Awaitable, Coroutine, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Raw

from proctor.ledger.keys import Signer
from proctor.ledger.reader import Ledger, Row
from proctor.ledger.writer import LedgerWriter
from proctor.models.events import (
    AgentGranted,
    BatchReset,
    BatchStepped,
    EpisodeClosed,
    EpisodeReset,
    EpisodeStepped,
    Event,
    Failed,
    PacketJudged,
    SessionClosed,
    SessionOpened,
)

Result = TypeVar("Result")
SIGNER = Signer.of(bytes(range(32)))
NOON = 1_000_000.0


def opened(session: str = "s", **changed: Any) -> SessionOpened:
    fields: dict[str, Any] = {
        "session": session,
        "at": NOON,
        "environment": "plume",
        "environment_version": "1",
        "target": "proctor/Plume-v0",
        "server": "0.1.0",
        "boot": "b",
        "place": "inline",
        "python": "3.11",
        "gymnasium": "1.2",
        "numpy": "2.0",
    }
    return SessionOpened(**(fields | changed))


def reset(
    session: str = "s", epoch: int = 1, observation: bytes = b'{"observation":[0.5]}', **changed: Any
) -> EpisodeReset:
    fields: dict[str, Any] = {"at": NOON + epoch, "seed": 7, "request_id": 1}
    return EpisodeReset(
        session=session,
        epoch=epoch,
        episode_id=f"{session}-e{epoch}",
        observation=Raw(observation),
        **(fields | changed),
    )


def step(session: str = "s", epoch: int = 1, number: int = 1, **changed: Any) -> EpisodeStepped:
    fields: dict[str, Any] = {
        "at": NOON + epoch + number / 1000,
        "request_id": number + 1,
        "action": Raw(b'{"action":3}'),
        "observation": Raw(b'{"observation":[0.%d]}' % number),
        "metadata": Raw(b'{"step_count":%d,"agent_xy":[10,12]}' % number),
        "raw_reward": 0.5,
        "reward": 0.5,
        "terminated": False,
        "truncated": False,
    }
    return EpisodeStepped(session=session, epoch=epoch, step=number, **(fields | changed))


def closed(session: str = "s", epoch: int = 1, steps: int = 0, reason: str = "closed", **changed: Any) -> EpisodeClosed:
    return EpisodeClosed(session=session, at=NOON + epoch + 0.9, epoch=epoch, steps=steps, reason=reason, **changed)


def left(session: str = "s", episodes: int = 1, steps: int = 0) -> SessionClosed:
    return SessionClosed(session=session, at=NOON + 99, reason="client", episodes=episodes, steps=steps)


def failure(session: str = "s", **changed: Any) -> Failed:
    fields: dict[str, Any] = {"session": session, "at": NOON, "epoch": 0, "step": 0, "code": "VALIDATION_ERROR"}
    return Failed(**(fields | changed))


def judged(accepted: bool, state: str = "S1_SENSE", number: int = 0) -> PacketJudged:
    line = Raw(b"{}")
    at = NOON + number
    return PacketJudged(
        session="s", at=at, epoch=1, step=number, line=line, kind="DECISION", accepted=accepted, state=state
    )


def granted(agent: str) -> AgentGranted:
    return AgentGranted(session="s", at=NOON, epoch=1, grant="g", agent=agent, tools=["move"])


def batch_reset(session: str = "s", epoch: int = 1, mask: bytes = b"null", size: int = 8) -> BatchReset:
    return BatchReset(
        session=session,
        at=NOON,
        epoch=epoch,
        episode_id=f"{session}-e{epoch}",
        seed=[1, None],
        mask=Raw(mask),
        observations=Raw(b'"' + b"A" * size + b'"'),
    )


def batch_step(session: str = "s", epoch: int = 1, number: int = 1, size: int = 8) -> BatchStepped:
    return BatchStepped(
        session=session,
        at=NOON,
        epoch=epoch,
        step=number,
        actions=Raw(b"[1,2]"),
        observations=Raw(b'"' + b"%d" % (number % 10) * size + b'"'),
        raw_rewards=Raw(b"[0,0]"),
        rewards=Raw(b"[0,0]"),
        terminations=Raw(b"[false,false]"),
        truncations=Raw(b"[false,false]"),
    )


def episode(session: str = "s", epoch: int = 1, steps: int = 3) -> Iterator[Event]:
    """An episode from its reset to its end."""
    yield reset(session, epoch)
    for number in range(1, steps + 1):
        yield step(session, epoch, number)
    yield closed(session, epoch, steps)


def session(name: str = "s", episodes: int = 1, steps: int = 3) -> Iterator[Event]:
    """A session from its opening to its end."""
    yield opened(name)
    for epoch in range(1, episodes + 1):
        yield from episode(name, epoch, steps)
    yield left(name, episodes, episodes * steps)


def writer(folder: Path, **changed: Any) -> LedgerWriter:
    settings: dict[str, Any] = {
        "boot": "b",
        "server": "0.1.0",
        "signer": SIGNER,
        "durability": "normal",
        "wall": lambda: NOON + 100,
    }
    return LedgerWriter(folder, **(settings | changed))


def begun(folder: Path, events: Iterable[Event], **changed: Any) -> LedgerWriter:
    """Return a writer that has taken the events."""
    into = writer(folder, **changed)
    for event in events:
        into.record(event)
    return into


def written(folder: Path, events: Iterable[Event], **changed: Any) -> Path:
    """Write the events and close; return the file."""
    into = begun(folder, events, **changed)
    into.close()
    return into.path


def altered(path: Path, *statements: str | tuple[str, tuple[Any, ...]]) -> None:
    """Execute statements, some with their values, on a file that nobody writes."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for each in statements:
            connection.execute(*([each] if isinstance(each, str) else each))


def rows(path: Path, chain: str) -> list[Row]:
    with Ledger.open(path) as ledger:
        return list(ledger.rows(chain))


def run(coroutine: Coroutine[Any, Any, Result]) -> Result:
    return asyncio.run(asyncio.wait_for(coroutine, 300))


async def safe(waiting: Awaitable[None] | None) -> None:
    if waiting is not None:
        await waiting


@contextmanager
def small_disk(folder: Path, size: str = "24m") -> Iterator[Path]:
    """Yield the folder of a disk of this size; needs root."""
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
