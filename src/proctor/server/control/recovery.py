"""The sessions that an earlier run of the server has left open: which go on, which have lost their episode, which end.

Rule 1: a session that can be rebuilt stands where it stood, with its grants, and what was answered is not done again. It
    waits for its client like one whose connection broke: for as long as `grace_seconds` say.
Rule 2: one whose episode cannot be rebuilt is there without it: EPISODE_LOST until a reset. One that nobody could come
    back to, or whose environment is not served any more, is closed.
Rule 3: whatever comes of it is on record, and says why.
Rule 4: sessions of workers that this run does not have are closed on record, once, and said in the log: nobody can come back to
    them. A file that another server has open is left alone.
Rule 5: a request that is repeated gets the reply that the rebuilt session gave; one that says something else than what is
    on record under its id is refused.
Rule 6: what was refused had changed nothing: it is judged anew. So is the reset of an episode that could not be rebuilt,
    if nothing was asked since: nobody need have heard of that episode.
Rule 7: the token of a grant was kept by nobody. Whoever asks for it again gets a new one, and the one before is dead.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import UNSET, Raw

from proctor.errors import ProctorError
from proctor.ledger.writer import LedgerWriter, UnfinishedSession
from proctor.models import control, events
from proctor.models.control import Code, MessageKind, Problem, Request
from proctor.models.events import Event
from proctor.server.control.protocol import decode_data, encode_reply
from proctor.server.grants import GrantService
from proctor.server.runtime.results import RequestError, RequestRefused, make_refusal
from proctor.server.sessions.episode_status import Loss
from proctor.server.sessions.response_builder import parse_reset, reset_from_event
from proctor.server.sessions.session import Session
from proctor.server.sessions.session_factory import AnsweredRequest, SessionFactory, read_history, rebuild_session
from proctor.server.settings import ServerSettings

LOG: Final = logging.getLogger("proctor.sessions")
_WORKER_FILE: Final = re.compile(r"worker-(\d+)\.ledger")


REUSED: Final = Problem("this id belongs to another request, or to one long answered", Code.ID_REUSED)
_RESETS: Final = (events.EpisodeReset, events.BatchReset)


class RecordedReplies:
    """The requests on record of one session, whose latest is `last_id`; `unspent` are those that may come as if new."""

    def __init__(
        self, session: Session, granting: GrantService, answered: Iterable[AnsweredRequest], last_id: int
    ) -> None:
        self.last_id: Final = last_id
        self.unspent: Final[set[int]] = set()
        self._session = session
        self._granting = granting
        self._loss = session.loss
        """Why the episode of these requests could not be rebuilt, though another may have begun since."""
        self._answered: dict[int, AnsweredRequest] = {}
        self._grants: dict[int, events.AgentGranted] = {}
        self._given: dict[int, bytes] = {}
        """Replies with a token that was made now."""
        self._giving = asyncio.Lock()
        for each in answered:
            self._take(each, each.event.request_id or 0)

    def _take(self, answered: AnsweredRequest, request_id: int) -> None:
        event = answered.event
        changed_nothing = isinstance(event, events.Failed) and not event.lost
        unheard = isinstance(event, _RESETS) and self._loss is not None and request_id == self.last_id
        if changed_nothing or unheard:
            self.unspent.add(request_id)
            return
        # One that was refused may have come once more, and been carried out.
        self.unspent.discard(request_id)
        if isinstance(event, events.AgentGranted):
            self._grants[request_id] = event
            self._answered.setdefault(request_id, answered)
        else:
            self._answered[request_id] = answered

    def __contains__(self, request_id: int) -> bool:
        return request_id in self._answered

    async def reply(self, request: Request) -> bytes:
        """Return the reply to a request that is known, or raise a refusal."""
        known = self._answered[request.id or 0]
        if not _is_same(known.event, request):
            raise RequestRefused(REUSED)
        self._check_event(known.event)
        wish = decode_data(request, control.GrantWish) if request.type == MessageKind.GRANT else None
        if request.type == MessageKind.RESET:
            wish = decode_data(request, control.Reset).grant
        if wish is None:
            return self._encode_earlier(known, request)
        async with self._giving:
            given = self._given.get(request.id or 0)
            if given is None:
                event = known.event
                if isinstance(event, events.AgentGranted | events.EpisodeReset) and event.epoch != self._session.epoch:
                    # It would be one on the episode that runs now.
                    message = "the episode of this request is over"
                    raise make_refusal(Code.STALE_EPOCH, message, expected="a grant", lost=True)
                given = self._given[request.id or 0] = await self._reply_with_grant(known, request, wish)
            return given

    def _check_event(self, event: Event) -> None:
        """Raise what is to be said of a request that has lost the episode, or whose episode could not be rebuilt."""
        loss = self._loss
        if isinstance(event, events.Failed):
            incident = UNSET if event.incident is None else event.incident
            raise RequestRefused(Problem(f"this {event.request} failed", event.code, incident=incident, lost=True))
        if loss is not None and not isinstance(event, events.AgentRevoked):
            raise RequestRefused(
                Problem(f"this episode is lost: {loss.message}", Code.EPISODE_LOST, lost=True, expected="a reset")
            )

    def _encode_earlier(self, known: AnsweredRequest, request: Request) -> bytes:
        event = known.event
        if isinstance(event, events.AgentRevoked):
            return self._reply("revoked", control.Revoked(event.grant, live=True), request, event.epoch)
        kind = "observation" if self._session.spec.num_envs is None else "batch"
        epoch = 0 if isinstance(event, events.SessionOpened | events.SessionClosed) else event.epoch
        return self._reply(kind, Raw(known.data), request, epoch)

    async def _reply_with_grant(self, known: AnsweredRequest, request: Request, wish: control.GrantWish) -> bytes:
        before = self._grants.get(request.id or 0)
        # One that the earlier run did not come to give is given now.
        granted = (
            await self._granting.grant(self._session, wish, request.id)
            if before is None
            else await self._granting.grant_again(self._session, before, request.id)
        )
        if not isinstance(known.event, events.EpisodeReset):
            return self._reply("granted", granted, request, self._session.epoch)
        seen = msgspec.json.decode(known.data, type=control.ObservationReply)
        seen.grant = granted
        seen.head = UNSET if self._session.head is None else self._session.head
        return self._reply("observation", Raw(msgspec.json.encode(seen)), request, known.event.epoch)

    def _reply(self, kind: str, data: object, request: Request, epoch: int) -> bytes:
        return encode_reply(kind, data, request.id, self._session.name, epoch)


def _is_same(event: Event, request: Request) -> bool:
    if isinstance(event, _RESETS):
        if request.type != MessageKind.RESET:
            return False
        return parse_reset(decode_data(request, control.Reset), event.episode_id) == reset_from_event(event)
    if isinstance(event, events.EpisodeStepped | events.BatchStepped):
        action = event.actions if isinstance(event, events.BatchStepped) else event.action
        same = (bytes(request.data) or b"{}") == bytes(action)
        return request.type == MessageKind.STEP and request.epoch == event.epoch and same
    if isinstance(event, events.AgentGranted):
        return request.type == MessageKind.GRANT and request.epoch == event.epoch and _is_same_grant(event, request)
    if isinstance(event, events.AgentRevoked):
        return request.type == MessageKind.REVOKE and decode_data(request, control.Revoke).grant == event.grant
    return isinstance(event, events.Failed) and request.type == event.request


def _is_same_grant(event: events.AgentGranted, request: Request) -> bool:
    """Return whether a wish is the one on record; how long the grant was to live is there as a time only."""
    wish = decode_data(request, control.GrantWish)
    tools = wish.tools is None or set(wish.tools) == set(event.tools)
    ends = (wish.ttl_seconds is None) == (event.expires_at is None)
    return tools and ends and (wish.agent, wish.calls_per_second) == (event.agent, event.calls_per_second)


async def close_leftovers(
    folder: Path, workers: int, writer_of: Callable[[int], LedgerWriter], wall: Callable[[], float]
) -> None:
    """Close what workers with a number of `workers` or higher left open in the ledger."""
    found = [_WORKER_FILE.fullmatch(path.name) for path in folder.iterdir()]
    for number in sorted(int(each[1]) for each in found if each is not None):
        if number >= workers:
            await _close_sessions_of(writer_of, number, wall)


async def _close_sessions_of(writer_of: Callable[[int], LedgerWriter], number: int, wall: Callable[[], float]) -> None:
    try:
        writer = writer_of(number)
    except ProctorError as problem:
        LOG.warning("the ledger of worker %d could not be looked at: %s", number, problem.message)
        return
    try:
        left = writer.unfinished()
        for each in left:
            own_steps = sum(isinstance(event, events.EpisodeStepped | events.BatchStepped) for event in each.events)
            safe = writer.record(
                events.SessionClosed(
                    session=each.opened.session,
                    at=wall(),
                    principal="system",
                    reason="lost",
                    episodes=each.all_epochs,
                    steps=each.steps_before + own_steps,
                )
            )
            if safe is not None:
                await safe
    finally:
        writer.close()
    if left:
        LOG.warning("%d sessions of worker %d are lost: this run has fewer workers", len(left), number)


AT_ONCE: Final = 8
"""Sessions that are rebuilt at the same time."""
SHORTEST: Final = 5.0
"""Seconds that there are to rebuild a session, however short the server's patience with its clients is."""


GOES_ON, LOST, CLOSED = RESULTS = ("go on", "have lost their episode", "are closed")
"""What comes of a session, in the words of the log."""


class SessionRecovery:
    """Takes up what was left; `adopt` is given every session that clients can resume, `room` says for how many."""

    def __init__(
        self,
        settings: ServerSettings,
        openings: SessionFactory,
        granting: GrantService,
        *,
        clock: Callable[[], float],
        room: int,
        adopt: Callable[[Session, RecordedReplies], None],
    ) -> None:
        self._openings = openings
        self._granting = granting
        self._most_answers = settings.max_pending + 1
        self._patience = settings.grace_seconds
        self._clock = clock
        self._room = room
        self._adopt = adopt
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._deadline = 0.0

    async def recover(self, found: Sequence[UnfinishedSession]) -> None:
        """Take up or close every session, and say in the log what came of them."""
        begun = self._clock()
        self._deadline = begun + max(self._patience, SHORTEST)
        counts = dict.fromkeys(RESULTS, 0)
        for each in await asyncio.gather(*map(self._recover_session, found), return_exceptions=True):
            counts[LOST if isinstance(each, BaseException) else each] += 1
            if isinstance(each, BaseException):
                LOG.error("a session of an earlier run could not be taken up", exc_info=each)
        told = ", ".join(f"{count} {result}" for result, count in counts.items())
        LOG.info("an earlier run left %d sessions: %s (%.1f s)", len(found), told, self._clock() - begun)

    async def _recover_session(self, found: UnfinishedSession) -> str:
        end = self._find_close_reason(found)
        if end is not None:
            await self._close_session(found, *end)
            return CLOSED
        async with self._at_once:
            return await self._rebuild(found)

    def _find_close_reason(self, found: UnfinishedSession) -> tuple[str, str] | None:
        """Return why a session is not taken up at all, in a word for the record and a sentence; None: it has its room."""
        closing = read_history(found.events).closing
        changed = self._openings.find_change(found.opened)
        if not found.opened.resume:
            return "disconnected", "the server was ended, and this session cannot be resumed"
        if closing is not None:
            return closing, "the server was ended while this session was being closed"
        if changed is not None:
            return "lost", changed
        if self._patience <= 0:
            return "not resumed", "the server was ended, and waits for nobody"
        if self._room <= 0:
            return "lost", "the server was ended, and has room for fewer sessions now"
        self._room -= 1
        return None

    async def _close_session(self, found: UnfinishedSession, reason: str, why: str) -> None:
        session = self._openings.create_for_end(found.opened)
        position = read_history(found.events, found.steps_before).position
        position.epoch = max(position.epoch, found.all_epochs)
        position.loss = position.loss or Loss(Code.EPISODE_LOST, why)
        session.recover(position, None)
        with suppress(RequestError):
            await session.record_resumption(why)
        with suppress(RequestError):  # the end is put on record where the rest could not be
            await session.close(reason)

    async def _rebuild(self, found: UnfinishedSession) -> str:
        session = self._openings.recreate(found.opened)
        seconds = max(self._deadline - self._clock(), SHORTEST)
        history, answered = await rebuild_session(found, session, most=self._most_answers, seconds=seconds)
        if session.loss is None and not self._granting.has_begun(session, history):
            session.lose(Code.EPISODE_LOST, "the server was ended before its judge had seen the beginning")
        with suppress(RequestError):  # it has lost the episode then, and says so
            await session.record_resumption(None if session.loss is None else session.loss.message)
        try:
            await self._granting.restore(session, history)
        except (ProctorError, RequestError) as problem:
            LOG.error("the judge of an episode could not be brought back", exc_info=problem)
            session.observer = None
            session.lose(Code.EPISODE_LOST, "its judge could not be brought back to where it stood")
        # The last request that may have had an effect: what is on record outside an episode was refused.
        last = max((event.request_id or 0 for event in found.events), default=0)
        past = RecordedReplies(session, self._granting, answered, found.last_request_id if found.damage else last)
        self._adopt(session, past)
        return GOES_ON if session.loss is None else LOST
