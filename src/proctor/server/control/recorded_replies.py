"""What an earlier run of the server has answered: known again by the request's id, and never carried out twice.

Rule 1: a request that is repeated gets the reply that the rebuilt session gave; one that says something else than what is
    on record under its id is refused.
Rule 2: what was refused had changed nothing: it is judged anew. So is the reset of an episode that could not be rebuilt,
    if nothing was asked since: nobody need have heard of that episode.
Rule 3: the token of a grant was kept by nobody. Whoever asks for it again gets a new one, and the one before is dead.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import UNSET, Raw

from proctor.models.control import (
    Code,
    Granted,
    GrantWish,
    MessageKind,
    ObservationReply,
    Problem,
    Request,
    Reset,
    Revoke,
    Revoked,
)
from proctor.models.events import (
    AgentGranted,
    AgentRevoked,
    BatchReset,
    BatchStepped,
    EpisodeReset,
    EpisodeStepped,
    Event,
    Failed,
    SessionClosed,
    SessionOpened,
)
from proctor.server.control.protocol import decode_data, encode_reply
from proctor.server.grants import GrantService
from proctor.server.runtime.results import RequestRefused, make_refusal
from proctor.server.sessions.rebuild import AnsweredRequest
from proctor.server.sessions.response_builder import AnyReset, parse_reset, reset_from_event
from proctor.server.sessions.session import Session

REUSED: Final = Problem("this id belongs to another request, or to one long answered", Code.ID_REUSED)
_RESETS: Final = (EpisodeReset, BatchReset)


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
        self._grants: dict[int, AgentGranted] = {}
        self._given: dict[int, bytes] = {}
        """Replies with a token that was made now."""
        self._giving = asyncio.Lock()
        for each in answered:
            self._take(each, each.event.request_id or 0)

    def _take(self, answered: AnsweredRequest, request_id: int) -> None:
        event = answered.event
        changed_nothing = isinstance(event, Failed) and not event.lost
        unheard = isinstance(event, _RESETS) and self._loss is not None and request_id == self.last_id
        if changed_nothing or unheard:
            self.unspent.add(request_id)
            return
        # One that was refused may have come once more, and been carried out.
        self.unspent.discard(request_id)
        if isinstance(event, AgentGranted):
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
        wish = _read_grant_wish(request)
        if wish is None:
            return self._encode_earlier(known, request)
        async with self._giving:
            given = self._given.get(request.id or 0)
            if given is None:
                self._check_epoch(request.id or 0)
                given = self._given[request.id or 0] = await self._reply_with_grant(known, request, wish)
            return given

    def _check_event(self, event: Event) -> None:
        """Raise what is to be said of a request that has lost the episode, or whose episode could not be rebuilt."""
        loss = self._loss
        if isinstance(event, Failed):
            incident = UNSET if event.incident is None else event.incident
            raise RequestRefused(Problem(f"this {event.request} failed", event.code, incident=incident, lost=True))
        if loss is not None and not isinstance(event, AgentRevoked):
            raise RequestRefused(
                Problem(f"this episode is lost: {loss.message}", Code.EPISODE_LOST, lost=True, expected="a reset")
            )

    def _check_epoch(self, request_id: int) -> None:
        """Refuse a grant for an episode that is over: it would be one on the episode that runs now."""
        event = self._answered[request_id].event
        if isinstance(event, AgentGranted | EpisodeReset) and event.epoch != self._session.epoch:
            raise make_refusal(Code.STALE_EPOCH, "the episode of this request is over", expected="a grant", lost=True)

    def _encode_earlier(self, known: AnsweredRequest, request: Request) -> bytes:
        event = known.event
        if isinstance(event, AgentRevoked):
            return self._reply("revoked", Revoked(event.grant, live=True), request, event.epoch)
        kind = "observation" if self._session.spec.num_envs is None else "batch"
        epoch = 0 if isinstance(event, SessionOpened | SessionClosed) else event.epoch
        return self._reply(kind, Raw(known.data), request, epoch)

    async def _reply_with_grant(self, known: AnsweredRequest, request: Request, wish: GrantWish) -> bytes:
        granted = await self._renew_grant(request, wish)
        if not isinstance(known.event, EpisodeReset):
            return self._reply("granted", granted, request, self._session.epoch)
        seen = msgspec.json.decode(known.data, type=ObservationReply)
        seen.grant = granted
        seen.head = UNSET if self._session.head is None else self._session.head
        return self._reply("observation", Raw(msgspec.json.encode(seen)), request, known.event.epoch)

    async def _renew_grant(self, request: Request, wish: GrantWish) -> Granted:
        """Return the grant with a new token; one that the earlier run did not come to give is given now."""
        before = self._grants.get(request.id or 0)
        if before is None:
            return await self._granting.grant(self._session, wish, request.id)
        return await self._granting.grant_again(self._session, before, request.id)

    def _reply(self, kind: str, data: object, request: Request, epoch: int) -> bytes:
        return encode_reply(kind, data, request.id, self._session.name, epoch)


def _read_grant_wish(request: Request) -> GrantWish | None:
    if request.type == MessageKind.GRANT:
        return decode_data(request, GrantWish)
    return decode_data(request, Reset).grant if request.type == MessageKind.RESET else None


def _is_same(event: Event, request: Request) -> bool:
    """Return whether the request is the one that led to the event."""
    if isinstance(event, _RESETS):
        return request.type == MessageKind.RESET and _is_same_reset(event, decode_data(request, Reset))
    if isinstance(event, EpisodeStepped | BatchStepped):
        action = event.actions if isinstance(event, BatchStepped) else event.action
        same = (bytes(request.data) or b"{}") == bytes(action)
        return request.type == MessageKind.STEP and request.epoch == event.epoch and same
    if isinstance(event, AgentGranted):
        return request.type == MessageKind.GRANT and request.epoch == event.epoch and _is_same_grant(event, request)
    if isinstance(event, AgentRevoked):
        return request.type == MessageKind.REVOKE and decode_data(request, Revoke).grant == event.grant
    return isinstance(event, Failed) and request.type == event.request


def _is_same_grant(event: AgentGranted, request: Request) -> bool:
    """Return whether a wish is the one on record; how long the grant was to live is there as a time only."""
    wish = decode_data(request, GrantWish)
    tools = wish.tools is None or set(wish.tools) == set(event.tools)
    ends = (wish.ttl_seconds is None) == (event.expires_at is None)
    return tools and ends and (wish.agent, wish.calls_per_second) == (event.agent, event.calls_per_second)


def _is_same_reset(event: AnyReset, reset: Reset) -> bool:
    return parse_reset(reset, event.episode_id) == reset_from_event(event)
