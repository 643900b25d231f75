"""Removing whole episodes, for good, with a signed tombstone for each.

Rule 1: only what has ended is removed, of sessions that are over, and only whole: a chain goes with its rows, its seals,
    and the values that no other row needs.
Rule 2: a tombstone says what was there. The file's other chains speak of it still, and `verify` holds the two together.
Rule 3: a session that nobody closed is taken up again from its chains: they stay until it is over.
Rule 4: nothing is removed while a server writes to the file.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import ComponentError, ValidationError
from proctor.ledger.chain import PRUNED, genesis, row_hash, seal_message
from proctor.ledger.files import LedgerFile, ledger_files
from proctor.ledger.keys import Signer
from proctor.ledger.lock import WriterLock
from proctor.ledger.recovery import unfinished_chains
from proctor.ledger.rows import Tombstone, keeps_in, named_values, written_own
from proctor.ledger.schema import connected_for_writing, translated
from proctor.ledger.summaries import EpisodeSummary, summaries

__all__ = ["Pruned", "prune"]


@dataclass(frozen=True, slots=True)
class Pruned:
    """What was removed; `bytes` is by how much the files became shorter."""

    chains: int
    rows: int
    bytes: int


def prune(
    path: Path | str,
    chains: Sequence[str],
    signer: Signer,
    wall: Callable[[], float] = time.time,
    *,
    why: str = "",
) -> Pruned:
    """Remove the episodes with these whole names from the ledger at `path`.

    A ValidationError if one of them is not there, has not ended or is of an unfinished session, a ComponentError if a server writes to its file:
    then nothing is removed from that file.
    """
    found = _found(ledger_files(path), set(chains))
    removed = Pruned(0, 0, 0)
    for file, episodes in found.items():
        one = _pruned(file, episodes, signer, wall(), why)
        removed = Pruned(removed.chains + one.chains, removed.rows + one.rows, removed.bytes + one.bytes)
    return removed


def _found(files: Sequence[Path], chains: set[str]) -> dict[Path, list[EpisodeSummary]]:
    """Return the episodes by file, or raise a ValidationError: one is not there, or has not ended."""
    found: dict[Path, list[EpisodeSummary]] = {}
    held: set[str] = set()
    for path in files:
        file = LedgerFile(path)
        try:
            named = [episode for episode in summaries(file) if episode.chain in chains]
            if named:
                found[path] = named
                held |= unfinished_chains(file)
        finally:
            file.close()
    every = [episode for episodes in found.values() for episode in episodes]
    missing = chains - {episode.chain for episode in every}
    if missing:
        raise ValidationError("there is no such episode", found=min(missing), expected="the whole name of a chain")
    for episode in every:
        if episode.reason == "":
            raise ValidationError("this episode has not ended", found=episode.chain, expected="whole closed episodes")
        if episode.chain in held:
            raise ValidationError(
                "the session of this episode is not over", found=episode.chain, expected="episodes of closed sessions"
            )
    return found


def _pruned(path: Path, episodes: list[EpisodeSummary], signer: Signer, at: float, why: str) -> Pruned:
    lock = WriterLock(path)
    try:
        before = path.stat().st_size
        with translated(path, ComponentError):
            connection = connected_for_writing(path, "full")
            try:
                rows = _removed(connection, episodes, signer, at, why)
                _shorten(connection)
            finally:
                connection.close()
            return Pruned(len(episodes), rows, max(0, before - path.stat().st_size))
    finally:
        lock.release()


def _removed(
    connection: sqlite3.Connection, episodes: list[EpisodeSummary], signer: Signer, at: float, why: str
) -> int:
    """Remove and bury in one transaction; return how many rows there were."""
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("BEGIN IMMEDIATE")
    try:
        firsts = _firsts(connection, episodes)
        _bury(connection, episodes, firsts, signer, at, why)
        rows = _delete(connection, json.dumps(sorted(firsts.values())))
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return rows


def _firsts(connection: sqlite3.Connection, episodes: list[EpisodeSummary]) -> dict[str, int]:
    """Return where each chain begins, or raise a ValidationError: it has gone meanwhile."""
    firsts: dict[str, int] = {}
    for episode in episodes:
        found = connection.execute("SELECT first FROM chains WHERE name = ?", (episode.chain,)).fetchone()
        if found is None:
            raise ValidationError("there is no such episode", found=episode.chain)
        firsts[episode.chain] = found[0]
    return firsts


def _bury(
    connection: sqlite3.Connection,
    episodes: list[EpisodeSummary],
    firsts: dict[str, int],
    signer: Signer,
    at: float,
    why: str,
) -> None:
    """Append a chain of tombstones, and seal it."""
    (last,) = connection.execute("SELECT max(number) FROM rows").fetchone()
    first = last + 1
    name = f"{PRUNED}{first}"
    digest = genesis(name)
    for seq, episode in enumerate(episodes):
        stone = Tombstone(
            at=at,
            chain=episode.chain,
            first=firsts[episode.chain],
            rows=episode.rows,
            head=episode.head,
            opened_at=episode.opened_at,
            closed_at=episode.closed_at,
            why=why,
        )
        body = written_own(stone, "all", first=seq == 0)
        digest = row_hash(digest, first + seq, seq, body)
        connection.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?)", (first + seq, first, seq, body, digest))
    end = len(episodes) - 1
    connection.execute("INSERT INTO chains VALUES (?, ?, ?)", (first, name, first + end))
    signature = signer.sign(seal_message(name, end, digest))
    connection.execute("INSERT INTO seals VALUES (?, ?, ?)", (first + end, signer.public, signature))


def _delete(connection: sqlite3.Connection, firsts: str) -> int:
    """Delete the chains that begin at these numbers (a JSON list); return how many rows they had."""
    connection.execute(
        "DELETE FROM seals WHERE number IN (SELECT number FROM rows WHERE chain IN (SELECT value FROM json_each(?)))",
        (firsts,),
    )
    rows = connection.execute("DELETE FROM rows WHERE chain IN (SELECT value FROM json_each(?))", (firsts,)).rowcount
    connection.execute("DELETE FROM chains WHERE first IN (SELECT value FROM json_each(?))", (firsts,))
    gone = {digest for (digest,) in connection.execute("SELECT digest FROM blobs")}
    if gone:
        gone -= _kept(connection)
        connection.executemany("DELETE FROM blobs WHERE digest = ?", [(digest,) for digest in gone])
    return rows


def _kept(connection: sqlite3.Connection) -> set[bytes]:
    """Return the hashes of the values that the rows of chains which keep values name."""
    kept: set[bytes] = set()
    digests: set[int] = set()
    """The chains that keep digests only: what they name was never stored for them."""
    for chain, seq, body in connection.execute("SELECT chain, seq, body FROM rows ORDER BY number"):
        if seq == 0 and keeps_in(body) == "digest":
            digests.add(chain)
        if chain not in digests:
            kept.update(named_values(body))
    return kept


def _shorten(connection: sqlite3.Connection) -> None:
    """Give the room back, if there is enough of it to do so; what was removed is overwritten already."""
    with suppress(sqlite3.Error):
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
