"""How an episode stands, where in its session, what agents did in it, and who is told how it ended."""

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from proctor.models.events import EpisodeStepped

MOST_ROWS: Final = 10_000
MOST_ROW_BYTES: Final = 8 * 2**20
MOST_AT_ONCE: Final = 4 * 2**20
"""Of one answer to a reader; a single row may be larger."""


@dataclass(frozen=True, slots=True)
class EpisodeConclusion:
    """What is said of an episode when it is closed: the judge's outcome, the state it was in and what was still open."""

    outcome: str | None = None
    state: str | None = None
    obligations: tuple[str, ...] = ()


class EpisodeObserver(Protocol):
    """Who goes with an episode to its end: the judge of a governed one."""

    async def conclude(self, reason: str) -> EpisodeConclusion:
        """Say the last words, which go on record before the episode is closed; called once, in the session's turn."""


@dataclass(frozen=True, slots=True)
class Loss:
    """Why an episode cannot go on."""

    code: str
    message: str


@dataclass(slots=True)
class EpisodeStatus:
    """From the reset to now."""

    terminated: bool = False
    truncated: bool = False
    reward: float | None = None
    """Of the last step, after transforms."""
    total_reward: float = 0.0

    @property
    def ended(self) -> bool:
        """Whether the environment has ended the episode."""
        return self.terminated or self.truncated

    def move(self, event: EpisodeStepped) -> None:
        """Take a step into account."""
        self.terminated, self.truncated, self.reward = event.terminated, event.truncated, event.reward
        if event.reward is not None:
            self.total_reward += event.reward


@dataclass(eq=False)
class SessionPosition:
    """Where a session stands, as far as its record tells."""

    epoch: int = 0
    step_count: int = 0
    total_steps: int = 0
    episode_id: str | None = None
    resets: int = 0
    """Of the environment that is there now."""
    concluded: bool = True
    """Whether the end of the latest episode is on record; so it is before there is one."""
    loss: Loss | None = None
    standing: EpisodeStatus = field(default_factory=EpisodeStatus)


@dataclass(frozen=True, slots=True)
class RowPage:
    """Some rows in order; `missed` of those that were asked for are no longer kept."""

    rows: Sequence[bytes]
    missed: int


class RowLog:
    """What agents did in one session, numbered from 1, for whoever trains them: a bounded memory with readers that wait.

    Writing never waits. The oldest rows are forgotten first; a slow reader misses them, and is told how many.
    """

    def __init__(self, *, most: int = MOST_ROWS, most_bytes: int = MOST_ROW_BYTES) -> None:
        self.last = 0
        self._most = most
        self._most_bytes = most_bytes
        self._kept: deque[bytes] = deque()
        self._bytes = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def add(self, row: bytes) -> None:
        """Keep a row, whose number is `last + 1`; what is too old is forgotten."""
        self.last += 1
        self._kept.append(row)
        self._bytes += len(row)
        while len(self._kept) > self._most or (self._bytes > self._most_bytes and len(self._kept) > 1):
            self._bytes -= len(self._kept.popleft())
        self.wake()

    def after(self, row: int, most: int) -> RowPage:
        """Return the rows after this one, at most so many, and no more bytes than a message should have."""
        first = self.last - len(self._kept) + 1
        begin = max(row + 1, first)
        missed = max(0, min(begin, self.last + 1) - row - 1)
        taken: list[bytes] = []
        size = 0
        for index in range(begin - first, min(len(self._kept), begin - first + most)):
            size += len(self._kept[index])
            if taken and size > MOST_AT_ONCE:
                break
            taken.append(self._kept[index])
        return RowPage(taken, missed)

    def wake(self) -> None:
        """Let every reader look again."""
        for reader in self._waiting:
            if not reader.done():
                reader.set_result(None)
        self._waiting.clear()

    async def wait_for_change(self, seconds: float) -> None:
        """Return when there is something new, or when so much time has passed."""
        reader: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(reader)
        try:
            await asyncio.wait([reader], timeout=seconds)
        finally:
            self._waiting.discard(reader)
