"""Events become rows: which chain they go to, their numbers and hashes, seals and values; gathered in the batch of the next commit.

Rule 1: what is written goes into the present batch, and is safe only when that is committed; if the commit fails, the row builder goes
    back to where the last safe batch left it.
Rule 2: an event is written whole or, if it has no JSON form, not at all.
"""

import sqlite3
from asyncio import Future
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from proctor.ledger.chain import (
    EMPTY_TOTALS,
    SERVER_PREFIX,
    TERMINATED,
    TRUNCATED,
    ChainState,
    EpisodeTotals,
    count_event,
    episode_chain_name,
    find_free_name,
    genesis_hash,
    row_hash,
    seal_message,
)
from proctor.ledger.keys import Signer
from proctor.ledger.rows import (
    SEAL_EVERY,
    ChainEnded,
    ChainOpened,
    EncodedRow,
    LedgerStatement,
    ObservationStorage,
    RunBegan,
    RunEnded,
    encode_event_row,
    encode_statement_row,
)
from proctor.ledger.storage.sqlite import INSERT_BLOB, encode_blob
from proctor.ledger.storage_limits import StorageBudget, begins_episode
from proctor.models.events import BatchReset, EpisodeClosed, EpisodeReset, Event, SessionClosed, SessionOpened

ChainOwner: TypeAlias = str | None
"""Whose chain it is: a session's, or the server's (None)."""

_INSERTS: Final = (
    ("rows", "INSERT INTO rows (number, chain, seq, body, hash) VALUES (?, ?, ?, ?, ?)"),
    ("chains", "INSERT INTO chains (first, name) VALUES (?, ?)"),
    ("ended", "UPDATE chains SET last = ? WHERE first = ?"),
    ("seals", "INSERT OR IGNORE INTO seals (number, key, signature) VALUES (?, ?, ?)"),
)
ROW_BYTES: Final = 128
"""What a row takes besides its body: its hash, its numbers, its share of a page."""


class CommitBatch:
    """Rows of the tables, where the chains stand after them, and who waits for them."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, bytes, bytes]] = []
        self.chains: list[tuple[int, str]] = []
        self.ended: list[tuple[int, int]] = []
        self.blobs: list[tuple[bytes, bytes]] = []
        self.seals: list[tuple[int, bytes, bytes]] = []
        self.after: dict[ChainOwner, ChainState] = {}
        self.waiting: list[Future[None]] = []
        self.gathered = 0
        self.stored: dict[str, int] = {}
        """Bytes that it stores for each session; those of the values are known once they are compressed."""
        self.owners: dict[bytes, str] = {}
        """Which session states a value first."""
        self.closed: list[str] = []

    def count(self, session: str, written: EncodedRow) -> None:
        """Count what an event of a session stores."""
        body, blobs = written
        self.gathered += len(body)
        self.stored[session] = self.stored.get(session, 0) + len(body) + ROW_BYTES
        for digest, value in blobs or ():
            self.gathered += len(value)
            self.owners.setdefault(digest, session)

    def insert(self, connection: sqlite3.Connection) -> None:
        """Put everything but the values into the open transaction."""
        for field, statement in _INSERTS:
            values = getattr(self, field)
            if values:
                connection.executemany(statement, values)

    def insert_blobs(self, connection: sqlite3.Connection) -> None:
        """Put the values into the open transaction; to compress them may take some time."""
        blobs = [encode_blob(*each) for each in self.blobs]
        for digest, _, _, content in blobs:
            self.stored[self.owners[digest]] += len(content)
        connection.executemany(INSERT_BLOB, blobs)


MAX_CLOSED_SESSIONS: Final = 1024
"""So many closed sessions are remembered for their heads."""
MAX_KNOWN_VALUES: Final = 4096
"""So many values are remembered as stored."""


class RowBuilder:
    """Writes the rows of one file into `batch`."""

    def __init__(
        self,
        chain_states: dict[str, ChainState],
        next_number: int,
        *,
        keeps: ObservationStorage,
        signer: Signer | None,
        has: Callable[[str], bool],
        wall: Callable[[], float],
        budget: StorageBudget,
    ) -> None:
        self.batch = CommitBatch()
        self._budget = budget
        self._keeps: ObservationStorage = keeps
        self._signer = signer
        self._has_chain = has
        self._clock = wall
        self._safe_states: dict[ChainOwner, ChainState] = dict(chain_states.items())
        self._safe_next_number = next_number
        self._states = dict(self._safe_states)
        self._next_number = next_number
        self._closed_states: dict[str, ChainState] = {}
        self._known_values: dict[bytes, None] = {}
        self._new_chain_names: set[str] = set()

    def begin_run(self, began: RunBegan) -> None:
        """Begin the server's chain, sealed from its first row on: that one has the head of the run before."""
        self._begin_chain(None, ChainState(), self._find_free_name(SERVER_PREFIX + began.boot))
        self._append_statement(began, first=True)
        self._seal(self._states[None])

    def end_run(self) -> None:
        """State the end of the run, and seal every chain that is open."""
        self._append_statement(RunEnded(at=self._clock()))
        server = self._states[None]
        self.batch.ended.append((server.number, server.first))
        for chain_state in self._states.values():
            if chain_state.open:
                self._seal(chain_state)

    def write(self, event: Event) -> None:
        """Write the event into its chain, and what it means for other chains."""
        _HANDLERS.get(type(event), RowBuilder._append_event)(self, event)

    def head(self, session: str) -> str | None:
        """Return the head of the session's latest chain, of what is safe; None if nothing of that chain is."""
        chain_state = self._safe_states.get(session) or self._closed_states.get(session)
        if chain_state is None or not chain_state.name:
            return None
        latest = self._states.get(session, chain_state).name
        return chain_state.head if latest == chain_state.name else None

    def is_safely_open(self, key: ChainOwner) -> bool:
        """Return whether it is safe that this session was opened."""
        return key in self._safe_states

    def mark_safe(self, batch: CommitBatch) -> None:
        """Take note that the batch is safe."""
        self._safe_next_number = batch.rows[-1][0] + 1
        self._safe_states.update(batch.after)
        self._new_chain_names.difference_update(name for _, name in batch.chains)
        for session, size in batch.stored.items():
            self._budget.add(session, size)
        for session in batch.closed:
            self._budget.forget(session)
        for key, chain_state in batch.after.items():
            if chain_state.is_closed and key is not None:
                del self._safe_states[key]
                if self._states.get(key) is chain_state:
                    del self._states[key]
                self._closed_states.pop(key, None)
                self._closed_states[key] = chain_state
        while len(self._closed_states) > MAX_CLOSED_SESSIONS:
            del self._closed_states[next(iter(self._closed_states))]

    def roll_back(self) -> None:
        """Go back to where the last batch that landed left everything."""
        self.batch = CommitBatch()
        self._states = dict(self._safe_states)
        self._next_number = self._safe_next_number
        self._known_values.clear()
        self._new_chain_names.clear()

    def _append_event(self, event: Event) -> None:
        chain_state = self._states.get(event.session)
        if chain_state is not None and chain_state.open:
            totals = count_event(chain_state.totals, event)
            self._append_row(event.session, chain_state, self._encode_event(event, chain_state.keeps), totals)
        else:
            server = self._states[None]
            self._append_row(None, server, self._encode_event(event, server.keeps))

    def _encode_event(self, event: Event, keeps: ObservationStorage, *, first: bool = False) -> EncodedRow:
        """Return the event as a body and count it; a RecordLimitError if it may not be stored."""
        written = encode_event_row(event, keeps, first=first)
        body, blobs = written
        size = len(body) if blobs is None else len(body) + sum(len(value) for _, value in blobs)
        batch = self.batch
        self._budget.check(event, size, batch.stored.get(event.session, 0), unwritten=batch.gathered)
        batch.count(event.session, written)
        return written

    def _open_session(self, event: SessionOpened) -> None:
        written = self._encode_event(event, self._keeps)
        self._budget.begin(event)
        first, _ = encode_event_row(event, self._keeps, first=True)
        self._end_chain(event.session)
        self._append_row(None, self._states[None], written)
        self._set_state(event.session, ChainState(first))

    def _close_session(self, event: SessionClosed) -> None:
        written = self._encode_event(event, self._keeps)
        self.batch.closed.append(event.session)
        self._end_chain(event.session)
        self._append_row(None, self._states[None], written)
        chain_state = self._states.get(event.session)
        if chain_state is not None:
            self._set_state(event.session, replace(chain_state, is_closed=True))

    def _reset(self, event: EpisodeReset | BatchReset) -> None:
        chain_state = self._states.get(event.session) or ChainState()
        if chain_state.open and not begins_episode(event):
            self._append_event(event)
            return
        written = self._encode_event(event, self._keeps, first=not chain_state.opened)
        self._budget.begin(event)
        name = self._find_free_name(episode_chain_name(event.session, event.epoch))
        self._end_chain(event.session)
        chain_state = self._begin_chain(event.session, chain_state, name)
        if chain_state.opened:
            chain_state = self._append_row(event.session, chain_state, (chain_state.opened, None))
        chain_state = self._append_row(event.session, chain_state, written)
        self._append_statement(ChainOpened(at=event.at, chain=chain_state.name, head=chain_state.head))

    def _close_episode(self, event: EpisodeClosed) -> None:
        self._append_event(event)
        self._end_chain(event.session, at=event.at)

    def _find_free_name(self, wish: str) -> str:
        return find_free_name(wish, lambda name: name in self._new_chain_names or self._has_chain(name))

    def _begin_chain(self, key: ChainOwner, chain_state: ChainState, name: str) -> ChainState:
        """Return the chain_state at the beginning of a new chain, before its first row."""
        self.batch.chains.append((self._next_number, name))
        self._new_chain_names.add(name)
        chain_state = ChainState(
            chain_state.opened, name, self._next_number, -1, 0, genesis_hash(name), True, self._keeps
        )
        return self._set_state(key, chain_state)

    def _end_chain(self, session: str, at: float | None = None) -> None:
        chain_state = self._states.get(session)
        if chain_state is None or not chain_state.open:
            return
        self.batch.ended.append((chain_state.number, chain_state.first))
        self._seal(chain_state)
        self._set_state(session, replace(chain_state, open=False))
        totals = chain_state.totals
        ended = ChainEnded(
            at=self._clock() if at is None else at,
            chain=chain_state.name,
            head=chain_state.head,
            steps=totals.steps,
            total_reward=totals.finite,
            terminated=bool(totals.ended & TERMINATED),
            truncated=bool(totals.ended & TRUNCATED),
            refusals=totals.refusals,
            agents=list(totals.agents),
            state=totals.state,
        )
        self._append_statement(ended)

    def _append_statement(self, own: LedgerStatement, *, first: bool = False) -> None:
        server = self._states[None]
        self._append_row(None, server, (encode_statement_row(own, server.keeps, first=first), None))

    def _append_row(
        self, key: ChainOwner, chain_state: ChainState, written: EncodedRow, totals: EpisodeTotals = EMPTY_TOTALS
    ) -> ChainState:
        body, blobs = written
        batch, number, seq = self.batch, self._next_number, chain_state.seq + 1
        self._next_number = number + 1
        digest = row_hash(chain_state.hash, number, seq, body)
        batch.rows.append((number, chain_state.first, seq, body, digest))
        if len(self._known_values) > MAX_KNOWN_VALUES:
            self._known_values.clear()
        for value_digest, value in blobs or ():
            if value_digest not in self._known_values:
                self._known_values[value_digest] = None
                batch.blobs.append((value_digest, value))
        was = chain_state
        chain_state = ChainState(was.opened, was.name, was.first, seq, number, digest, was.open, was.keeps, totals)
        if seq % SEAL_EVERY == SEAL_EVERY - 1:
            self._seal(chain_state)
        self._states[key] = batch.after[key] = chain_state
        return chain_state

    def _set_state(self, key: ChainOwner, chain_state: ChainState) -> ChainState:
        self._states[key] = self.batch.after[key] = chain_state
        return chain_state

    def _seal(self, chain_state: ChainState) -> None:
        if self._signer is not None:
            signature = self._signer.sign(seal_message(chain_state.name, chain_state.seq, chain_state.hash))
            self.batch.seals.append((chain_state.number, self._signer.public, signature))


_HANDLERS: Final[dict[type, Callable[[RowBuilder, Any], None]]] = {
    SessionOpened: RowBuilder._open_session,
    EpisodeReset: RowBuilder._reset,
    BatchReset: RowBuilder._reset,
    EpisodeClosed: RowBuilder._close_episode,
    SessionClosed: RowBuilder._close_session,
}
