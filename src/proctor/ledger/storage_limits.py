"""How much may be put on record: bytes of one event, bytes of one episode, and what must stay free on the disk.

Rule 1: a limit is checked before anything of an event is stored; what is refused leaves no trace.
Rule 2: an episode counts what it really stores, compressed where the recorder compresses. Its last event may take it beyond the limit;
    the next one is refused. A batch of n environments may store n times as much.
Rule 3: how an episode and a session end can always be put on record: that is what the free space is reserved for. An
    episode that breaks off says so once, in no more than `END_BYTES`: what is longer has to keep the limits.
Rule 4: large events have a pace: those of one session get `LARGE_PER_SECOND`, unless it records alone. It waits after its event
    is safe; so a commit that takes long is a rare one for everybody else.
Rule 5: the disk is looked at after every `LOOK_BYTES` that were written or every `LOOK_SECONDS`, never for each event.
"""

import logging
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from proctor.errors import RecordLimitError
from proctor.models.events import (
    AgentRevoked,
    BatchReset,
    EpisodeClosed,
    EpisodeReset,
    Event,
    Failed,
    PacketJudged,
    SessionClosed,
    SessionOpened,
)

LOG: Final = logging.getLogger("proctor.ledger")
END_BYTES: Final = 4 * 2**10
"""Of the event by which an episode says that it broke off, whatever the limits say."""
LARGE_BYTES: Final = 256 * 2**10
"""Of an event that holds up the commit that it is in, and so everybody else whose events are in it."""
LARGE_PER_SECOND: Final = 6 * 2**20
"""Bytes of one session's large events, while more than one session records."""
ALONE_SECONDS: Final = 1.0
LOOK_BYTES: Final = 2**20
LOOK_SECONDS: Final = 1.0
MOST_RESERVED: Final = 512 * 2**20
RESERVED_SHARE: Final = 0.05
"""Where nobody says how much stays free: this share of the disk, and no more than `MOST_RESERVED`."""
ALWAYS_STORED: Final = frozenset({EpisodeClosed, SessionClosed, AgentRevoked})
"""What is put on record whatever the limits say: none of them comes more often than what it ends began."""


@dataclass(frozen=True, slots=True)
class StorageLimits:
    """How many bytes a recorder stores; None: as many as come."""

    step_bytes: int | None = None
    """Of one event: an observation with everything beside it."""
    episode_bytes: int | None = None
    """From one reset to the next."""


class DiskSpace:
    """Whether the disk under a folder has room; `reserved` bytes stay free, by default as `RESERVED_SHARE` says.

    `add` may be called on another thread than the rest.
    """

    def __init__(
        self,
        folder: Path,
        reserved: int | None = None,
        *,
        usage: Callable[[Path], tuple[int, int, int]] = shutil.disk_usage,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.is_low = False
        self.free = 0
        self._folder = folder
        self._reserved = reserved
        self._usage = usage
        self._clock = clock
        self._written = 0
        self._growth = 0
        self._room = float("inf")
        """What could be written down to the floor, as of the last look."""
        self._looked_at = float("-inf")

    def add(self, written: int, growth: Callable[[], int] | None = None) -> None:
        """Count bytes that were written, and look at the disk if it is time.

        `growth` says how much will be written anyway: what lies in SQLite's log is still to be copied into the file.
        """
        self._written += written
        if self._written >= LOOK_BYTES or self._clock() - self._looked_at >= LOOK_SECONDS:
            self._growth = self._growth if growth is None else growth()
            self.look()

    def refresh(self) -> bool:
        """Return whether the disk is low, as of no longer than `LOOK_SECONDS` ago."""
        self.add(0)
        return self.is_low

    def look(self) -> None:
        """Look at the disk; one that cannot be looked at is as it was."""
        self._written, self._looked_at = 0, self._clock()
        try:
            size, _, self.free = self._usage(self._folder)
        except OSError:
            return
        reserved = self._reserved
        if reserved is None:
            reserved = min(MOST_RESERVED, int(size * RESERVED_SHARE))
        self._room = self.free - self._growth - reserved
        was_low, self.is_low = self.is_low, self._room < 0
        if self.is_low != was_low:
            told = "is nearly full: no session is opened, and episodes end" if self.is_low else "has room again"
            LOG.warning("the disk of the record %s (%d bytes free, %d stay free)", told, self.free, reserved)

    def has_room(self, size: int) -> bool:
        """Return whether so many bytes can be written down to the floor, as of the last look; a disk that is low is looked at anew."""
        if self.is_low:
            self.refresh()
        return not self.is_low and size <= self._room


class LargeEventThrottle:
    """Says how long the session waits that has recorded a large event."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._session = ""
        self._changed_at = float("-inf")
        """When another session recorded than before."""
        self._free_at: dict[str, float] = {}
        """By session: when its large events so far have had their time; only what is still to come is kept."""

    def note(self, session: str) -> None:
        """Note who records."""
        if session != self._session:
            self._session, self._changed_at = session, self._clock()

    def wait_after(self, session: str, size: int) -> float:
        """Return how many seconds a session waits after an event of so many bytes."""
        now = self._clock()
        if size <= LARGE_BYTES or now - self._changed_at > ALONE_SECONDS:
            return 0.0
        self._free_at = {each: free_at for each, free_at in self._free_at.items() if free_at > now}
        self._free_at[session] = self._free_at.get(session, now) + size / LARGE_PER_SECOND
        return self._free_at[session] - now


class StorageBudget:
    """Counts what the sessions of one recorder store, and refuses what is too much."""

    def __init__(self, limits: StorageLimits | None = None, space: DiskSpace | None = None) -> None:
        self._limits = StorageLimits() if limits is None else limits
        self._space = space
        self._stored: dict[str, int] = {}
        self._envs: dict[str, int] = {}
        """The sessions of batches, and how many environments they have."""
        self._broken: set[str] = set()
        """Sessions whose episode said that it broke off."""

    def check(self, event: Event, size: int, gathered: int = 0, *, unwritten: int = 0) -> None:
        """Raise a RecordLimitError if the event may not be stored.

        `gathered` bytes of its session are not counted yet; `unwritten` bytes of all sessions are not on the disk yet.
        """
        closes = type(event) is PacketJudged and event.principal == "system" and event.kind == "close"
        if type(event) in ALWAYS_STORED or closes or self._breaks_off(event, size):
            return
        if self._space is not None and not self._space.has_room(size + unwritten):
            raise RecordLimitError("the disk that holds the record is nearly full", limit="disk")
        limits = self._limits
        if limits.step_bytes is not None and size > limits.step_bytes:
            raise RecordLimitError(
                "one step puts too much on record",
                limit="step",
                found=size,
                expected=f"at most {limits.step_bytes} bytes (max_step_bytes)",
            )
        if limits.episode_bytes is None or begins_episode(event):
            return
        most = limits.episode_bytes * self._envs.get(event.session, 1)
        stored = self._stored.get(event.session, 0) + gathered
        if stored >= most:
            raise RecordLimitError(
                "this episode has put as much on record as it may",
                limit="episode",
                found=stored,
                expected=f"less than {most} bytes (max_episode_bytes)",
            )

    def begin(self, event: Event) -> None:
        """Take note of a session or an episode that begins."""
        if isinstance(event, SessionOpened):
            self.open(event)
        elif begins_episode(event):
            self._stored.pop(event.session, None)
            self._broken.discard(event.session)

    def open(self, opened: SessionOpened, stored: int = 0) -> None:
        """Count for a session that was opened, and has stored so much in its latest episode."""
        self._stored[opened.session] = stored
        if opened.num_envs is not None:
            self._envs[opened.session] = max(1, opened.num_envs)

    def add(self, session: str, size: int) -> None:
        """Count bytes that a session has stored."""
        self._stored[session] = self._stored.get(session, 0) + size

    def count_written_bytes(self, size: int, growth: Callable[[], int] | None = None) -> None:
        """Count bytes that went to the disk, and look at it if it is time; see `DiskSpace.add`."""
        if self._space is not None:
            self._space.add(size, growth)

    def forget(self, session: str) -> None:
        """Count no more for a session that is closed."""
        self._stored.pop(session, None)
        self._envs.pop(session, None)
        self._broken.discard(session)

    def _breaks_off(self, event: Event, size: int) -> bool:
        """Return whether the event is the one by which an episode says, in few words, that it broke off."""
        if type(event) is not Failed or not event.lost or event.session in self._broken or size > END_BYTES:
            return False
        self._broken.add(event.session)
        return True


def begins_episode(event: Event) -> bool:
    """Return whether the event begins an episode; the reset of some environments of a batch does not."""
    return isinstance(event, EpisodeReset) or (isinstance(event, BatchReset) and bytes(event.mask).strip() == b"null")
