"""A session of an earlier run of the server, brought to where its record ends.

Rule 1: nothing is believed that does not come out again. Every reset and step on record is carried out once more, through
    the same account, and what would be stated now is compared with what was stated then, bit by bit; times and ids are
    taken from the record.
Rule 2: what differs, or cannot be done again, has lost its episode, and the reason is said plainly. The session lives on:
    a reset begins the next.
Rule 3: nothing is stated here, and nobody is answered. Whoever takes the session up does that.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from proctor.errors import ProctorError
from proctor.ledger.writer import Unfinished
from proctor.models.control import Code
from proctor.models.events import (
    BatchReset,
    BatchStepped,
    EpisodeReset,
    EpisodeStepped,
    Event,
)
from proctor.server.accounts import Account, Stand
from proctor.server.answers import NotDone, Outcome
from proctor.server.histories import AnyStep, History, difference, history_of
from proctor.server.orders import AnyReset, order_again, order_on_record
from proctor.server.patience import in_time
from proctor.server.places import Place
from proctor.server.session import Session
from proctor.server.standing import Loss, Standing
from proctor.server.statements import row_of
from proctor.server.transforms import Pipeline

MOST_BYTES: Final = 4 * 2**20
"""Of the replies that are told again."""
BREATH: Final = 64
"""After so many rows others have their turn on the event loop."""
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Answered:
    """A request on record: what it led to, and the data of its reply where the environment gave it."""

    event: Event
    data: bytes = b""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What is left of a session besides itself."""

    history: History
    answered: tuple[Answered, ...]
    """The last requests of its latest episode that are on record, in order."""


async def rebuilt(
    found: Unfinished, session: Session, account: Account, pipeline: Pipeline, *, most: int, seconds: float
) -> Rebuilt:
    """Bring the session to where its record ends, or have it lose its episode, and say what is left of it.

    At most the last `most` requests are told; it takes no longer than so many `seconds`.
    """
    history = history_of(found.events, found.steps_before)
    if found.damage:
        history.position.epoch = max(history.position.epoch, found.all_epochs)
        history.position.loss = Loss(Code.EPISODE_LOST, f"its record is damaged: {found.damage}")
    drive = _Drive(found, session, account, pipeline, history, most)
    place = None if history.position.loss is not None else await drive.arrived(seconds)
    session.take_up(history.position, place)
    session.rows.last = found.agent_steps_before
    for step in drive.steps if place is not None else found.events:
        _add_row(session, history, step)
    return Rebuilt(history, tuple(drive.answered if place is not None else drive.recorded(most)))


def _add_row(session: Session, history: History, step: Event) -> None:
    caller = history.caller(step) if isinstance(step, EpisodeStepped) else None
    if caller is not None and isinstance(step, EpisodeStepped):
        session.rows.add(row_of(session.rows.last + 1, step, caller))


class _Drive:
    """The way through one record."""

    def __init__(
        self, found: Unfinished, session: Session, account: Account, pipeline: Pipeline, history: History, most: int
    ) -> None:
        self.answered: deque[Answered] = deque(maxlen=most)
        self.steps: list[EpisodeStepped] = []
        """Those that agents took, as they came out now."""
        self._found = found
        self._session = session
        self._account = account
        self._pipeline = pipeline
        self._history = history
        self._episode_id = ""
        self._begun = False

    def recorded(self, most: int) -> list[Answered]:
        """Return the last requests, of whose replies nothing is known."""
        return [Answered(event) for event in self._found.events if event.request_id is not None][-most:]

    async def arrived(self, seconds: float) -> Place | None:
        """Return where the environment is that was brought to the end of the record; None: the episode is lost."""
        place: Place | None = None
        try:
            async with asyncio.timeout(seconds):
                place = await self._session.opening.place(self._session.name)
                place.patience = self._session.step_timeout
                why = await self._led(place)
        except NotDone as problem:
            why = f"it could not be done again: {problem.problem.message} ({problem.problem.code})"
        except ProctorError as problem:
            why = f"it could not be done again: {problem.message}"
        except TimeoutError:
            why = f"it was not done again within {seconds:g} seconds"
        if why is None:
            return place
        if place is not None:
            place.abandon()
        self._history.position.loss = Loss(Code.EPISODE_LOST, why)
        return None

    async def _led(self, place: Place) -> str | None:
        """Carry out all that is on record; return what came out differently."""
        for index, (event, digest) in enumerate(zip(self._found.events, self._found.digests, strict=True)):
            data, why = b"", None
            if isinstance(event, EpisodeReset | BatchReset):
                data, why = await self._begin(place, event, digest)
            elif isinstance(event, EpisodeStepped | BatchStepped):
                data, why = await self._step(place, event, digest)
            if why is not None:
                return why
            if event.request_id is not None:
                self._keep(Answered(event, data))
            if index % BREATH == BREATH - 1:
                await asyncio.sleep(0)
        return None

    def _keep(self, answered: Answered) -> None:
        """Keep what was answered last; large replies leave room for fewer."""
        self.answered.append(answered)
        while len(self.answered) > 1 and sum(len(each.data) for each in self.answered) > MOST_BYTES:
            self.answered.popleft()

    async def _begin(self, place: Place, event: AnyReset, digest: str | None) -> tuple[bytes, str | None]:
        order = order_again(event)
        if not self._begun:
            await self._warm_up(place, event)
        outcome = await self._asked(place, place.reset(order))
        stand = Stand(event.session, event.epoch, 0, event.episode_id, event.at, event.request_id, nth=event.nth)
        data, now = self._account.begun(outcome, order_on_record(event), stand)
        self._episode_id = event.episode_id
        if isinstance(outcome, Outcome) and self._history.position.step == 0:
            self._history.position.standing = Standing(outcome.terminated, outcome.truncated)
        unseeded = "" if event.seed is not None else ", which was asked for without a seed"
        return self._account.headed(data, self._session.head), _told(f"the reset{unseeded}", event, now, digest)

    async def _warm_up(self, place: Place, event: AnyReset) -> None:
        """Do what came before the first reset on record: earlier resets, which some environments count, and rewards."""
        self._begun = True
        carried = msgspec.json.decode(event.pipeline)
        if self._pipeline and carried is not None:
            self._pipeline.restore(carried)
        order = order_again(event)
        for _ in range(event.nth - 1):
            await self._asked(place, place.reset(order))

    async def _step(self, place: Place, event: AnyStep, digest: str | None) -> tuple[bytes, str | None]:
        action = bytes(event.actions if isinstance(event, BatchStepped) else event.action)
        outcome = await self._asked(place, place.step(action))
        caller = self._history.caller(event)
        stand = Stand(event.session, event.epoch, event.step, self._episode_id, event.at, event.request_id, caller)
        data, now = self._account.stepped(outcome, action, stand)
        if caller is not None and isinstance(now, EpisodeStepped):
            self.steps.append(now)
        return data, _told(f"step {event.step}", event, now, digest)

    async def _asked(self, place: Place, answer: Awaitable[Result]) -> Result:
        if place.keeps_time:
            return await answer
        session = self._session
        return await in_time(answer, session.step_timeout, incident=session.opening.incident, session=session.name)


def _told(what: str, recorded: Event, now: Event, digest: str | None) -> str | None:
    fields = difference(recorded, now, digest)
    return None if fields is None else f"{what} came out differently when it was done again: {fields}"
