"""Who holds the tools of which episode: every grant of one server, how orchestrators get and revoke them, and when they may step.

Rule 1: a grant is good for one episode of one session. Another reset, the session's end, its own end or a revocation kills
    it; nothing brings it back. In a governed episode the close of the packet episode does, too.
Rule 2: a token is given out once, with the grant. What is kept is its digest, and what was presented is looked up by its
    own: no comparison takes longer for a token that is nearly right.
Rule 3: this file knows sessions, never sockets. Whether and where agents are served is `address`.
Rule 4: a grant is on record before its token leaves; one that cannot be recorded was never given.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from proctor.access.credentials import Credential, generate_secret
from proctor.access.limits import TokenBucket
from proctor.contracts.tools import Tool
from proctor.errors import ValidationError
from proctor.models.control import Code, Granted, GrantWish, ObservationReply, Reset, Revoke, Revoked
from proctor.models.events import AgentGranted, AgentRevoked
from proctor.server.governed.governance import Governance
from proctor.server.governed.governor import Governor, find_governor
from proctor.server.runtime.results import RequestError, make_refusal
from proctor.server.sessions.session import Session
from proctor.server.sessions.session_factory import SessionHistory

MOST_TOKEN: Final = 1024


@dataclass(eq=False, slots=True)
class AgentGrant:
    """The tools of one episode, in one agent's hand."""

    name: str
    agent: str
    session: Session
    epoch: int
    tools: tuple[Tool, ...]
    ends_at: float | None
    """By the clock that counts, not the one on the wall."""
    bucket: TokenBucket | None
    digest: bytes
    revoked: bool = False
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Its agent's calls are carried out one after the other."""
    callers: int = 0
    """Calls of its agent that run or wait."""
    rest_until: float = 0.0
    """By `time.perf_counter`: until then a call that had to wait is not begun."""

    @property
    def governor(self) -> Governor | None:
        """Who governs the episode; None: it is free."""
        return None if self.session.observer is None else find_governor(self.session)

    def holds(self, now: float) -> bool:
        """Return whether the agent may still ask: its episode is the session's latest, and nobody took the grant back."""
        if self.revoked or self.session.closed or self.session.epoch != self.epoch:
            return False
        governor = self.governor
        if governor is not None and governor.closed:
            return False
        return self.ends_at is None or now < self.ends_at

    def is_live(self, now: float) -> bool:
        """Return whether the agent may still act."""
        return self.holds(now) and not self.session.over


class GrantRegistry:
    """All grants; `clock` counts seconds, `wall` tells the time for whoever reads when a grant ends."""

    def __init__(
        self,
        address: str | None,
        *,
        calls_per_second: float | None,
        clock: Callable[[], float],
        wall: Callable[[], float],
    ) -> None:
        self._address = address
        self._calls_per_second = calls_per_second
        self._clock = clock
        self._wall = wall
        self._by_digest: dict[bytes, AgentGrant] = {}
        self._by_session: dict[str, list[AgentGrant]] = {}
        self._on_forget: list[Callable[[str], None]] = []

    def on_forget(self, call: Callable[[str], None]) -> None:
        """Have `call` told the name of every grant that is forgotten."""
        self._on_forget.append(call)

    def issue(self, session: Session, wish: GrantWish) -> Granted:
        """Return a new grant on the episode that runs, or refuse."""
        address = self.check(session, wish)
        if session.over:
            raise make_refusal(Code.STATE_ERROR, "no episode runs that could be granted", expected="a reset before")
        ends_at = None if wish.ttl_seconds is None else self._clock() + wish.ttl_seconds
        tools = _choose_tools(session.spec.card.tools, wish.tools)
        secret, credential = generate_secret()
        bucket = self._make_bucket(wish.calls_per_second)
        grant = AgentGrant(
            secrets.token_hex(6), wish.agent, session, session.epoch, tools, ends_at, bucket, credential.digest
        )
        self._add(grant)
        return self._describe(grant, address, secret)

    def _add(self, grant: AgentGrant) -> None:
        self._by_digest[grant.digest] = grant
        self._by_session.setdefault(grant.session.name, []).append(grant)

    def _describe(self, grant: AgentGrant, address: str, secret: str) -> Granted:
        return Granted(
            grant.name,
            address,
            secret,
            [tool.name for tool in grant.tools],
            None if grant.ends_at is None else self._wall() + grant.ends_at - self._clock(),
            grant.session.episode_id or "",
        )

    def check(self, session: Session, wish: GrantWish, *, next_episode: bool = False) -> str:
        """Return the address that a grant would have, or refuse what could not be granted."""
        card = session.spec.card
        if self._address is None:
            raise make_refusal(
                Code.NO_AGENT_PLANE, "this server listens for no agents", expected="a server started with --agent-port"
            )
        if session.spec.num_envs is not None:
            raise make_refusal(Code.NO_AGENT_PLANE, "a batch has no tools", expected="a session of one environment")
        _choose_tools(card.tools, wish.tools)
        if not next_episode and len(self.live(session)) >= card.max_agents:
            raise make_refusal(
                Code.GRANTS_TAKEN, f"this environment has {card.max_agents} agent(s) at once", expected="a revocation"
            )
        return self._address

    def find(self, secret: str | None) -> AgentGrant | None:
        """Return the grant whose token this is, if its agent may still ask."""
        if secret is None or len(secret) > MOST_TOKEN:
            return None
        try:
            grant = self._by_digest.get(Credential.of(secret).digest)
        except ValidationError:
            return None
        return grant if grant is not None and grant.holds(self._clock()) else None

    def is_live(self, grant: AgentGrant) -> bool:
        """Return whether the grant's agent may act now."""
        return grant.is_live(self._clock())

    def holds(self, grant: AgentGrant) -> bool:
        """Return whether the grant's agent may ask now, though perhaps not act."""
        return grant.holds(self._clock())

    def live(self, session: Session) -> list[AgentGrant]:
        """Return the grants whose agents may act in this session."""
        grants = self._by_session.get(session.name)
        if grants is None:  # asked with every step of every session
            return []
        now = self._clock()
        return [grant for grant in grants if grant.is_live(now)]

    def agents(self, session: Session) -> dict[str, str]:
        """Return what the agents of the session's episode are called, by their grants; dead ones until they are swept."""
        grants = self._by_session.get(session.name, ())
        return {grant.name: grant.agent for grant in grants if grant.epoch == session.epoch}

    def revoke(self, session: Session, name: str) -> bool:
        """Take a grant of this session back; return whether there was one of this name, and its agent could still ask."""
        for grant in self._by_session.get(session.name, ()):
            if grant.name == name:
                # In the wrap-up its agent cannot act and may still ask: that ends, too, and is on record.
                held = self.holds(grant)
                grant.revoked = True
                return held
        return False

    def sweep(self) -> None:
        """Forget what nobody can use any more."""
        now = self._clock()
        for grant in [grant for grant in self._by_digest.values() if not grant.holds(now)]:
            del self._by_digest[grant.digest]
            of_session = self._by_session[grant.session.name]
            of_session.remove(grant)
            if not of_session:
                del self._by_session[grant.session.name]
            for call in self._on_forget:
                call(grant.name)

    def _make_bucket(self, wished: float | None) -> TokenBucket | None:
        rate = min((rate for rate in (wished, self._calls_per_second) if rate is not None), default=None)
        return None if rate is None else TokenBucket(rate, max(1, round(rate)), self._clock)

    def restore(self, session: Session, before: AgentGranted) -> None:
        """Let a grant of an earlier run of the server live on: its token is known by the digest, its time goes on."""
        self._add(
            AgentGrant(
                name=before.grant,
                agent=before.agent,
                session=session,
                epoch=before.epoch,
                tools=tuple(tool for tool in session.spec.card.tools if tool.name in before.tools),
                ends_at=None if before.expires_at is None else self._clock() + before.expires_at - self._wall(),
                bucket=self._make_bucket(before.calls_per_second),
                digest=bytes.fromhex(before.digest),
            )
        )

    def renew(self, session: Session, name: str) -> Granted:
        """Return a grant with a new token, for one whose reply nobody got, or refuse: it is dead."""
        grant = next((each for each in self._by_session.get(session.name, ()) if each.name == name), None)
        if grant is None or self._address is None or not self.holds(grant):
            raise make_refusal(Code.STATE_ERROR, "this grant is dead", expected="another grant, with another request")
        secret, credential = generate_secret()
        del self._by_digest[grant.digest]
        grant.digest = credential.digest
        self._by_digest[grant.digest] = grant
        return self._describe(grant, self._address, secret)


def _choose_tools(tools: tuple[Tool, ...], wished: list[str] | None) -> tuple[Tool, ...]:
    if wished is None:
        return tools
    unknown = set(wished) - {tool.name for tool in tools}
    if unknown:
        names = ", ".join(tool.name for tool in tools)
        raise make_refusal(Code.VALIDATION_ERROR, "there is no such tool", expected=f"some of {names}")
    return tuple(tool for tool in tools if tool.name in wished)


FIRST_LINES: Final = 2
"""What the judge of a governed episode hears before anybody is told of it: that it is open, and the first observation."""


class GrantService:
    """The orchestrator's side of all grants."""

    def __init__(
        self, grants: GrantRegistry, *, wall: Callable[[], float] = time.time, governance: Governance | None = None
    ) -> None:
        self._grants = grants
        self._wall = wall
        self._governance = governance
        if governance is not None:
            governance.operator.revoke_grant = lambda governor, grant: self._take_back(
                governor.session, grant, None, principal="operator"
            )
            governance.operator.agents_of = lambda governor: grants.agents(governor.session)

    def check_step(self, session: Session) -> None:
        """Refuse an orchestrator's step while an agent may act, unless the session is shared."""
        if not session.shared and self._grants.live(session):
            raise make_refusal(
                Code.GRANT_LIVE,
                "an agent holds a grant on this episode",
                expected="the end of the episode, a revocation, or a session opened as shared",
            )

    async def reset(self, session: Session, reset: Reset, request_id: int | None) -> Raw:
        """Begin an episode; return the reply's data, with the grant that the reset asked for."""
        if reset.grant is None:
            return Raw(await self._begin_episode(session, reset, request_id))
        if request_id is None:
            raise make_refusal(
                Code.VALIDATION_ERROR, "a grant comes after hello only", expected="a reset without a grant"
            )
        self._check_wish(session, reset.grant, next_episode=True)
        seen = msgspec.json.decode(await self._begin_episode(session, reset, request_id), type=ObservationReply)
        seen.grant = await self.grant(session, reset.grant, request_id)
        seen.head = UNSET if session.head is None else session.head
        return Raw(msgspec.json.encode(seen))

    async def _begin_episode(self, session: Session, reset: Reset, request_id: int | None) -> bytes:
        data = await session.reset(reset, request_id)
        if self._governance is None or session.spec.num_envs is not None:
            return data
        await self._governance.begin(session, data)
        seen = msgspec.json.decode(data, type=ObservationReply)
        if seen.head is UNSET or session.head is None:
            return data
        # What was stated since is on record, too.
        seen.head = session.head
        return msgspec.json.encode(seen)

    async def grant(self, session: Session, wish: GrantWish, request_id: int | None) -> Granted:
        """Return a new grant on the episode that runs, or refuse."""
        self._check_wish(session, wish)
        granted = self._grants.issue(session, wish)
        return await self._record_grant(session, granted, wish.agent, wish.calls_per_second, request_id)

    def _check_wish(self, session: Session, wish: GrantWish, *, next_episode: bool = False) -> None:
        """Refuse what could not be granted, or with which an agent could not do what the policy wants."""
        self._grants.check(session, wish, next_episode=next_episode)
        if self._governance is not None:
            self._governance.check_grant(session, wish.tools)

    async def grant_again(self, session: Session, before: AgentGranted, request_id: int | None) -> Granted:
        """Return a grant of an earlier run with a new token, or refuse: it is dead."""
        granted = self._grants.renew(session, before.grant)
        return await self._record_grant(session, granted, before.agent, before.calls_per_second, request_id)

    async def restore(self, session: Session, history: SessionHistory) -> None:
        """Let the grants of an earlier run live on, and the judge of its episode where that is governed."""
        for each in history.granted.values():
            self._grants.restore(session, each)
        if self._governance is not None and history.packets:
            governor = self._governance.restore_governor(session, history.packets, history.closed)
            async with session.turn:
                await governor.resume()

    def has_begun(self, session: Session, history: SessionHistory) -> bool:
        """Return whether an episode on record had begun for its judge, too: its opening and what was seen first are there.

        If not, then nobody was told of it.
        """
        governed = self._governance is not None and session.spec.num_envs is None and session.epoch > 0
        return not governed or len(history.packets) >= FIRST_LINES

    async def _record_grant(
        self, session: Session, granted: Granted, agent: str, calls_per_second: float | None, request_id: int | None
    ) -> Granted:
        event = AgentGranted(
            **self._event_fields(session, request_id),
            grant=granted.grant,
            agent=agent,
            tools=granted.tools,
            expires_at=granted.expires_at,
            digest=Credential.of(granted.token).digest.hex(),
            calls_per_second=calls_per_second,
        )
        try:
            await session.record(event)
        except RequestError:
            self._grants.revoke(session, granted.grant)
            raise
        return granted

    async def revoke(self, session: Session, wish: Revoke, request_id: int | None) -> Revoked:
        """Take a grant back; one that is dead already, or never was, is not live then as before."""
        return Revoked(wish.grant, await self._take_back(session, wish.grant, request_id))

    async def _take_back(self, session: Session, grant: str, request_id: int | None, **stated: Any) -> bool:
        """Take a grant back, and wake its agent if that waits for an operator; return whether the grant was live."""
        live = self._grants.revoke(session, grant)
        governor = find_governor(session)
        if governor is not None:
            governor.stream.notifier.notify()
        if live:
            await session.record(AgentRevoked(**self._event_fields(session, request_id), **stated, grant=grant))
        return live

    async def sweep(self) -> None:
        """Close governed episodes that are over, and forget what nobody can use any more."""
        if self._governance is not None:
            await self._governance.sweep()
        self._grants.sweep()

    def _event_fields(self, session: Session, request_id: int | None) -> dict[str, Any]:
        return {"session": session.name, "at": self._wall(), "request_id": request_id, "epoch": session.epoch}
