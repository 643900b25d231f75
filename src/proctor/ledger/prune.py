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
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from proctor.errors import ComponentError, ValidationError
from proctor.ledger.chain import PRUNED_PREFIX, genesis_hash, row_hash, seal_message
from proctor.ledger.keys import Signer
from proctor.ledger.reader import EpisodeSummary, summarize_episodes
from proctor.ledger.recovery import find_unfinished_chains
from proctor.ledger.rows import Tombstone, encode_statement_row, find_observation_storage, find_value_hashes
from proctor.ledger.storage.ledger_file import LedgerFile, ledger_files
from proctor.ledger.storage.lock import WriterLock
from proctor.ledger.storage.sqlite import connect_for_writing, translate_errors

__all__ = ["PruneResult", "prune"]


@dataclass(frozen=True, slots=True)
class PruneResult:
    """What was removed; `bytes` is by how much the files became shorter."""

    chains: int
    rows: int
    bytes: int


def prune(
    path: Path | str, chains: Sequence[str], signer: Signer, wall: Callable[[], float] = time.time, *, why: str = ""
) -> PruneResult:
    """Remove the episodes with these whole names from the ledger at `path`.

    A ValidationError if one of them is not there, has not ended or is of an unfinished session, a ComponentError if a server writes to its file:
    then nothing is removed from that file.
    """
    found = _find_episodes(ledger_files(path), set(chains))
    removed = PruneResult(0, 0, 0)
    for file, episodes in found.items():
        one = _prune_file(file, episodes, signer, wall(), why)
        removed = PruneResult(removed.chains + one.chains, removed.rows + one.rows, removed.bytes + one.bytes)
    return removed


def _find_episodes(files: Sequence[Path], chains: set[str]) -> dict[Path, list[EpisodeSummary]]:
    found: dict[Path, list[EpisodeSummary]] = {}
    held: set[str] = set()
    for path in files:
        with closing(LedgerFile(path)) as file:
            named = [episode for episode in summarize_episodes(file) if episode.chain in chains]
            if named:
                found[path] = named
                held |= find_unfinished_chains(file)
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


def _prune_file(path: Path, episodes: list[EpisodeSummary], signer: Signer, at: float, why: str) -> PruneResult:
    lock = WriterLock(path)
    try:
        before = path.stat().st_size
        with translate_errors(path, ComponentError):
            with closing(connect_for_writing(path, "full")) as connection:
                rows = _remove_episodes(connection, episodes, signer, at, why)
                # Give the room back, if there is enough of it to do so; what was removed is overwritten already.
                with suppress(sqlite3.Error):
                    connection.execute("VACUUM")
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return PruneResult(len(episodes), rows, max(0, before - path.stat().st_size))
    finally:
        lock.release()


def _remove_episodes(
    connection: sqlite3.Connection, episodes: list[EpisodeSummary], signer: Signer, at: float, why: str
) -> int:
    """Remove and bury in one transaction; return how many rows there were."""
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("BEGIN IMMEDIATE")
    try:
        firsts: dict[str, int] = {}
        for episode in episodes:
            found = connection.execute("SELECT first FROM chains WHERE name = ?", (episode.chain,)).fetchone()
            if found is None:
                # It has gone meanwhile.
                raise ValidationError("there is no such episode", found=episode.chain)
            firsts[episode.chain] = found[0]
        _append_tombstones(connection, episodes, firsts, signer, at, why)
        rows = _delete_chains(connection, json.dumps(sorted(firsts.values())))
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    return rows


def _append_tombstones(
    connection: sqlite3.Connection,
    episodes: list[EpisodeSummary],
    firsts: dict[str, int],
    signer: Signer,
    at: float,
    why: str,
) -> None:
    (last,) = connection.execute("SELECT max(number) FROM rows").fetchone()
    first = last + 1
    name = f"{PRUNED_PREFIX}{first}"
    digest = genesis_hash(name)
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
        body = encode_statement_row(stone, "all", first=seq == 0)
        digest = row_hash(digest, first + seq, seq, body)
        connection.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?)", (first + seq, first, seq, body, digest))
    end = len(episodes) - 1
    connection.execute("INSERT INTO chains VALUES (?, ?, ?)", (first, name, first + end))
    signature = signer.sign(seal_message(name, end, digest))
    connection.execute("INSERT INTO seals VALUES (?, ?, ?)", (first + end, signer.public, signature))


def _delete_chains(connection: sqlite3.Connection, firsts: str) -> int:
    connection.execute(
        "DELETE FROM seals WHERE number IN (SELECT number FROM rows WHERE chain IN (SELECT value FROM json_each(?)))",
        (firsts,),
    )
    rows = connection.execute("DELETE FROM rows WHERE chain IN (SELECT value FROM json_each(?))", (firsts,)).rowcount
    connection.execute("DELETE FROM chains WHERE first IN (SELECT value FROM json_each(?))", (firsts,))
    gone = {digest for (digest,) in connection.execute("SELECT digest FROM blobs")}
    if gone:
        gone -= _find_needed_values(connection)
        connection.executemany("DELETE FROM blobs WHERE digest = ?", [(digest,) for digest in gone])
    return rows


def _find_needed_values(connection: sqlite3.Connection) -> set[bytes]:
    """Return the hashes of the values that the rows of chains which keep values name."""
    kept: set[bytes] = set()
    digests: set[int] = set()
    """The chains that keep digests only: what they name was never stored for them."""
    for chain, seq, body in connection.execute("SELECT chain, seq, body FROM rows ORDER BY number"):
        if seq == 0 and find_observation_storage(body) == "digest":
            digests.add(chain)
        if chain not in digests:
            kept.update(find_value_hashes(body))
    return kept
