"""Events become rows: which chain they go to, their numbers and hashes, seals and values. No I/O.

Rule 1: what is written goes into the present batch, and is safe only when that has landed; if it fails, the pen stands again where
    the last batch that landed left it.
Rule 2: an event is written whole or, if it has no JSON form, not at all.
"""

from collections.abc import Callable
from typing import Any, Final

from msgspec.structs import replace

from proctor.ledger.batch import Batch, Key
from proctor.ledger.chain import SERVER, episode_name, free_name, genesis, row_hash, seal_message
from proctor.ledger.head import head_text
from proctor.ledger.keys import Signer
from proctor.ledger.rows import (
    SEAL_EVERY,
    Blobs,
    ChainEnded,
    ChainOpened,
    Observations,
    Own,
    RunBegan,
    RunEnded,
    Written,
    written_event,
    written_own,
)
from proctor.ledger.storage import StorageBudget
from proctor.ledger.tracks import NOTHING, TERMINATED, TRUNCATED, Tally, Track, tallied, told_total
from proctor.models.events import (
    BatchReset,
    EpisodeClosed,
    EpisodeReset,
    Event,
    SessionClosed,
    SessionOpened,
)

MOST_GONE: Final = 1024
"""So many closed sessions are remembered for their heads."""
MOST_STORED: Final = 4096
"""So many values are remembered as stored."""


class Pen:
    """Writes the rows of one file into `batch`."""

    def __init__(
        self,
        tracks: dict[str, Track],
        next_number: int,
        *,
        keeps: Observations,
        signer: Signer | None,
        has: Callable[[str], bool],
        wall: Callable[[], float],
        budget: StorageBudget | None = None,
    ) -> None:
        self.batch = Batch()
        self._budget = StorageBudget() if budget is None else budget
        self._keeps: Observations = keeps
        self._signer = signer
        self._has = has
        """Whether a chain of this name is safe in the file."""
        self._wall = wall
        self._durable: dict[Key, Track] = dict(tracks.items())
        self._durable_next = next_number
        self._now = dict(self._durable)
        self._next = next_number
        self._gone: dict[str, Track] = {}
        self._stored: dict[bytes, None] = {}
        self._fresh: set[str] = set()
        """Names of chains that are not safe yet."""

    def begin_run(self, began: RunBegan) -> None:
        """Begin the server's chain, sealed from its first row on: that one has the head of the run before."""
        self._begin(None, Track(), self._free(SERVER + began.boot))
        self._say(began, first=True)
        self._seal(self._now[None])

    def end_run(self) -> None:
        """State the end of the run, and seal every chain that is open."""
        self._say(RunEnded(at=self._wall()))
        server = self._now[None]
        self.batch.ended.append((server.number, server.first))
        for track in self._now.values():
            if track.open:
                self._seal(track)

    def write(self, event: Event) -> None:
        """Write the event into its chain, and what it means for other chains."""
        special = _SPECIAL.get(type(event))
        if special is None:
            self._take(event)
        else:
            special(self, event)

    def head(self, session: str) -> str | None:
        """Return the head of the session's latest chain, of what is safe; None if nothing of that chain is."""
        track = self._durable.get(session) or self._gone.get(session)
        if track is None or not track.name or self._now.get(session, track).name != track.name:
            return None
        return _head(track)

    def knows(self, key: Key) -> bool:
        """Return whether it is safe that this session was opened."""
        return key in self._durable

    def landed(self, batch: Batch) -> None:
        """Take note that the batch is safe."""
        self._durable_next = batch.rows[-1][0] + 1
        self._durable.update(batch.after)
        self._fresh.difference_update(name for _, name in batch.chains)
        for session, size in batch.stored.items():
            self._budget.add(session, size)
        for session in batch.closed:
            self._budget.forget(session)
        for key, track in batch.after.items():
            if track.gone and key is not None:
                self._forget(key, track)

    def failed(self) -> None:
        """Go back to where the last batch that landed left everything."""
        self.batch = Batch()
        self._now = dict(self._durable)
        self._next = self._durable_next
        self._stored.clear()
        self._fresh.clear()

    def _take(self, event: Event) -> None:
        """Append the event to its session's chain, or to the server's."""
        track = self._now.get(event.session)
        if track is not None and track.open:
            self._append(event.session, track, self._written(event, track.keeps), tallied(track.tally, event))
        else:
            server = self._now[None]
            self._append(None, server, self._written(event, server.keeps))

    def _written(self, event: Event, keeps: Observations, *, first: bool = False) -> Written:
        """Return the event as a body and count it; a RecordLimitError if it may not be stored."""
        written = written_event(event, keeps, first=first)
        body, blobs = written
        size = len(body) if blobs is None else len(body) + sum(len(value) for _, value in blobs)
        batch = self.batch
        self._budget.check(event, size, batch.stored.get(event.session, 0), unwritten=batch.gathered)
        batch.count(event.session, written)
        return written

    def _open_session(self, event: SessionOpened) -> None:
        written = self._written(event, self._keeps)
        self._budget.begin(event)
        first, _ = written_event(event, self._keeps, first=True)
        self._end(event.session)
        self._append(None, self._now[None], written)
        self._stand(event.session, Track(first))

    def _close_session(self, event: SessionClosed) -> None:
        written = self._written(event, self._keeps)
        self.batch.closed.append(event.session)
        self._end(event.session)
        self._append(None, self._now[None], written)
        track = self._now.get(event.session)
        if track is not None:
            self._stand(event.session, replace(track, gone=True))

    def _reset(self, event: EpisodeReset | BatchReset) -> None:
        track = self._now.get(event.session) or Track()
        if track.open and isinstance(event, BatchReset) and bytes(event.mask).strip() != b"null":
            self._take(event)
            return
        written = self._written(event, self._keeps, first=not track.opened)
        self._budget.begin(event)
        name = self._free(episode_name(event.session, event.epoch))
        self._end(event.session)
        track = self._begin(event.session, track, name)
        if track.opened:
            track = self._append(event.session, track, (track.opened, None))
        track = self._append(event.session, track, written)
        self._say(ChainOpened(at=event.at, chain=track.name, head=_head(track)))

    def _close_episode(self, event: EpisodeClosed) -> None:
        self._take(event)
        self._end(event.session, at=event.at)

    def _free(self, wish: str) -> str:
        return free_name(wish, lambda name: name in self._fresh or self._has(name))

    def _begin(self, key: Key, track: Track, name: str) -> Track:
        """Return the track at the beginning of a new chain, before its first row."""
        self.batch.chains.append((self._next, name))
        self._fresh.add(name)
        track = Track(track.opened, name, self._next, -1, 0, genesis(name), True, self._keeps)
        return self._stand(key, track)

    def _end(self, session: str, at: float | None = None) -> None:
        """End the session's chain if it is open: nothing more comes in it."""
        track = self._now.get(session)
        if track is None or not track.open:
            return
        self.batch.ended.append((track.number, track.first))
        self._seal(track)
        self._stand(session, replace(track, open=False))
        tally = track.tally
        ended = ChainEnded(
            at=self._wall() if at is None else at,
            chain=track.name,
            head=_head(track),
            steps=tally.steps,
            total_reward=told_total(tally),
            terminated=bool(tally.ended & TERMINATED),
            truncated=bool(tally.ended & TRUNCATED),
            refusals=tally.heard.refusals,
            agents=list(tally.heard.agents),
            state=tally.heard.state,
        )
        self._say(ended)

    def _say(self, own: Own, *, first: bool = False) -> None:
        """Append a statement of the ledger's own to the server's chain."""
        server = self._now[None]
        self._append(None, server, (written_own(own, server.keeps, first=first), None))

    def _append(self, key: Key, track: Track, written: Written, tally: Tally = NOTHING) -> Track:
        """Number, hash and gather a row; return where its chain stands now."""
        body, blobs = written
        batch, number, seq = self.batch, self._next, track.seq + 1
        self._next = number + 1
        digest = row_hash(track.hash, number, seq, body)
        batch.rows.append((number, track.first, seq, body, digest))
        if blobs is not None:
            self._store(blobs)
        track = Track(track.opened, track.name, track.first, seq, number, digest, track.open, track.keeps, tally)
        if seq % SEAL_EVERY == SEAL_EVERY - 1:
            self._seal(track)
        self._now[key] = batch.after[key] = track
        return track

    def _stand(self, key: Key, track: Track) -> Track:
        self._now[key] = self.batch.after[key] = track
        return track

    def _store(self, blobs: Blobs) -> None:
        """Gather the values that are not known to be there."""
        if len(self._stored) > MOST_STORED:
            self._stored.clear()
        for digest, value in blobs:
            if digest not in self._stored:
                self._stored[digest] = None
                self.batch.blobs.append((digest, value))

    def _seal(self, track: Track) -> None:
        if self._signer is not None:
            signature = self._signer.sign(seal_message(track.name, track.seq, track.hash))
            self.batch.seals.append((track.number, self._signer.public, signature))

    def _forget(self, session: str, track: Track) -> None:
        del self._durable[session]
        if self._now.get(session) is track:
            del self._now[session]
        self._gone.pop(session, None)
        self._gone[session] = track
        if len(self._gone) > MOST_GONE:
            del self._gone[next(iter(self._gone))]


_SPECIAL: Final[dict[type, Callable[[Pen, Any], None]]] = {
    SessionOpened: Pen._open_session,
    EpisodeReset: Pen._reset,
    BatchReset: Pen._reset,
    EpisodeClosed: Pen._close_episode,
    SessionClosed: Pen._close_session,
}
"""What is more than one row in one chain."""


def _head(track: Track) -> str:
    return head_text(track.name, track.seq + 1, track.hash)
