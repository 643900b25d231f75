"""What agents do in an episode, followed by the one who trains them: its rows in order, and its end.

Rule 1: following is reading. It waits in no queue, changes nothing, and is asked again after a broken connection.
Rule 2: the rows of one episode come in order and once each. Of rows that the server no longer keeps the reader is told
    (`Missed`), unless it said that it does not mind.
Rule 3: a row's end is the episode's: whoever has read all rows of an episode that broke off gets EpisodeLost, so that
    half an episode is never taken for a whole one.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from math import inf
from typing import Any, Final, Generic, Literal, TypeAlias

import msgspec

from proctor.client.continuity import Loss
from proctor.client.problems import read_reply
from proctor.client.session import Session
from proctor.client.transitions import Transition
from proctor.contracts.environment import ActT, ObsT
from proctor.errors import ConnectionFailed, EpisodeLost, Missed, RequestTimeout, StateError, ValidationError
from proctor.models import grants
from proctor.models.control import Code, Kind, RawReply, Seen
from proctor.models.grants import Ended, WaitEnd, Watch, Watched

WAIT_SECONDS: Final = 20.0
"""How long a server waits for news before it says that there is none; the client then asks again."""

BROKEN_OFF: Final = Loss("the episode broke off while agents acted", Code.EPISODE_LOST)
OnMissed: TypeAlias = Literal["raise", "skip"]
_ROW: Final = msgspec.json.Decoder(grants.Transition).decode


class Episode:
    """The episode that a session is in when this is made, whatever becomes of the session."""

    def __init__(self, session: Session[Seen]) -> None:
        self.epoch: Final = session.running_epoch()
        self._session = session
        self._name = session.name

    @property
    def is_latest(self) -> bool:
        """Whether the client has begun no other since."""
        return self._session.name == self._name and self._session.place.epoch == self.epoch

    def loss(self) -> EpisodeLost:
        """Return what is raised where this episode broke off."""
        known = self._session.place.loss if self.is_latest else None
        return (BROKEN_OFF if known is None else known).exception()

    async def watched(self, order: Watch) -> tuple[Watched, int | None]:
        """Return what agents did, and in which epoch the session stands."""
        reply = await self._asked(Kind.WATCH, order, order.wait_seconds)
        return read_reply(reply, "watched", Watched), reply.epoch

    async def outcome(self, wait_seconds: float) -> Ended:
        """Return how the session's latest episode stands, which may be another one; waits for its end for so long."""
        reply = await self._asked(Kind.WAIT_END, WaitEnd(wait_seconds), wait_seconds)
        told = read_reply(reply, "ended", Ended)
        if told.over and told.epoch == self.epoch and self.is_latest:
            self._session.place.ended = True
            if told.lost:
                self._session.place.lose(BROKEN_OFF)
        return told

    async def end(self, seconds: float | None) -> Ended:
        """Return how the episode ended, or raise RequestTimeout if it goes on for longer than so many seconds."""
        if seconds is not None and not seconds >= 0:
            raise ValidationError("not a time", found=seconds, expected="a number of seconds, or None")
        now = asyncio.get_running_loop().time
        until = inf if seconds is None else now() + seconds
        while True:
            told = await self.outcome(max(0.0, min(WAIT_SECONDS, until - now())))
            if told.epoch != self.epoch:
                raise StateError("another episode has begun meanwhile", expected="no reset while one waits for the end")
            if told.over:
                return told
            if now() >= until:
                raise RequestTimeout(f"the episode has not ended within {seconds:g} seconds", expected="more time")

    async def _asked(self, kind: Kind, order: Watch | WaitEnd, seconds: float) -> RawReply:
        if self._session.name != self._name:
            raise self.loss()
        return await self._session.poll(kind, msgspec.json.encode(order), self.epoch, seconds)


class Watching(Generic[ActT, ObsT]):
    """The rows of the episode that runs now, those after row `after`; read by one reader, once."""

    def __init__(
        self,
        session: Session[Seen],
        read: Callable[[grants.Transition], Transition[ActT, ObsT]],
        *,
        after: int = 0,
        follow: bool = True,
        on_missed: OnMissed = "raise",
    ) -> None:
        if type(after) is not int or after < 0:
            raise ValidationError("not a row number", found=after, expected="an integer >= 0")
        if on_missed not in ("raise", "skip"):
            raise ValidationError("not a way to take missed rows", found=on_missed, expected="'raise' or 'skip'")
        self._episode = Episode(session)
        self._session = session
        self._read = read
        self._follow = follow
        self._skip = on_missed == "skip"
        self._after = max(after, session.place.earlier_rows)
        self._done = self._over = False

    async def awaited(self) -> AsyncIterator[Transition[ActT, ObsT]]:
        """Yield each row."""
        while rows := await self.more():
            for row in rows:
                yield row

    def blocked(
        self, run: Callable[[Coroutine[Any, Any, list[Transition[ActT, ObsT]]]], list[Transition[ActT, ObsT]]]
    ) -> Iterator[Transition[ActT, ObsT]]:
        """Yield each row; `run` runs a coroutine elsewhere."""
        while rows := run(self.more()):
            yield from rows

    async def more(self) -> list[Transition[ActT, ObsT]]:
        """Return the next rows, as many as there are; none when the episode is over and all were read.

        One that does not `follow` the episode gets none as soon as it has all that there are.
        """
        while not self._over:
            wait_seconds = WAIT_SECONDS if self._follow else 0.0
            told, epoch = await self._episode.watched(Watch(self._after, wait_seconds=wait_seconds))
            rows = self._checked(told)
            missed = self._missed(told, rows)
            if missed and not self._skip:
                self._after += told.missed  # whoever goes on gets those that are left
                raise Missed(f"{missed} rows are no longer kept", missed=missed, next_row=rows[0].row)
            own = self._taken(told, rows, epoch)
            if own:
                return [self._read(row) for row in own]
            if not self._follow and not rows and not self._over:
                return []
        if not self._done:
            await self._check_end()
        return []

    def _checked(self, told: Watched) -> list[grants.Transition]:
        """Return the rows, or raise if they are not those that follow."""
        try:
            rows = [_ROW(row) for row in told.rows]
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise ConnectionFailed("the server sent a row that cannot be read") from None
        numbers = [row.row for row in rows]
        first = self._after + told.missed + 1
        if told.missed < 0 or numbers != list(range(first, first + len(rows))):
            raise ConnectionFailed("the server's rows are not in order", found=numbers[:3], expected=f"row {first}")
        return rows

    def _missed(self, told: Watched, rows: list[grants.Transition]) -> int:
        """Return how many rows of this episode are gone; rows of earlier ones may be among those that are missed."""
        epoch = self._episode.epoch
        if not told.missed or not rows or rows[0].epoch < epoch:
            return 0
        return told.missed if rows[0].epoch > epoch else min(told.missed, rows[0].step - 1)

    def _taken(
        self, told: Watched, rows: list[grants.Transition], session_epoch: int | None
    ) -> list[grants.Transition]:
        """Return the rows of this episode, and note how far it was read and whether it is over."""
        epoch = self._episode.epoch
        own = [row for row in rows if row.epoch == epoch]
        self._after += told.missed + len(rows)
        if own:
            self._done = own[-1].terminated or own[-1].truncated
            self._note(own[-1])
        all_read = self._after >= told.last and (told.over or session_epoch != epoch)
        self._over = self._done or all_read or any(row.epoch > epoch for row in rows)
        return own

    def _note(self, last: grants.Transition) -> None:
        if self._episode.is_latest:
            place = self._session.place
            place.rows = max(place.rows, last.row)
            place.ended = place.ended or self._done

    async def _check_end(self) -> None:
        """Raise if the episode broke off instead of ending; one that a reset gave up, or that we ended, has ended."""
        told = await self._episode.outcome(0.0)
        self._done = True
        if told.epoch == self._episode.epoch and told.lost:
            raise self._episode.loss()
