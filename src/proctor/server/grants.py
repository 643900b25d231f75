"""Who holds the tools of which episode: every grant of one server.

Rule 1: a grant is good for one episode of one session. Another reset, the session's end, its own end or a revocation kills
    it; nothing brings it back. In a governed episode the close of the packet episode does, too.
Rule 2: a token is given out once, with the grant. What is kept is its digest, and what was presented is looked up by its
    own: no comparison takes longer for a token that is nearly right.
Rule 3: this file knows sessions, never sockets. Whether and where agents are served is `address`.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from proctor.contracts.tools import Tool
from proctor.door.credentials import Credential, token
from proctor.door.limits import Bucket
from proctor.errors import ValidationError
from proctor.models.control import Code
from proctor.models.events import AgentGranted
from proctor.models.grants import Granted, GrantWish
from proctor.server.answers import refused
from proctor.server.governed.governor import Governor, governor_of
from proctor.server.session import Session

MOST_TOKEN: Final = 1024


@dataclass(eq=False, slots=True)
class Grant:
    """The tools of one episode, in one agent's hand."""

    name: str
    agent: str
    session: Session
    epoch: int
    tools: tuple[Tool, ...]
    ends_at: float | None
    """By the clock that counts, not the one on the wall."""
    bucket: Bucket | None
    digest: bytes
    revoked: bool = False

    @property
    def governor(self) -> Governor | None:
        """Who governs the episode; None: it is free."""
        return None if self.session.companion is None else governor_of(self.session)

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


class Grants:
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
        self._by_digest: dict[bytes, Grant] = {}
        self._by_session: dict[str, list[Grant]] = {}
        self._when_forgotten: list[Callable[[str], None]] = []

    def when_forgotten(self, call: Callable[[str], None]) -> None:
        """Have `call` told the name of every grant that is forgotten."""
        self._when_forgotten.append(call)

    def issue(self, session: Session, wish: GrantWish) -> Granted:
        """Return a new grant on the episode that runs, or refuse."""
        address = self.check(session, wish)
        if session.over:
            raise refused(Code.STATE_ERROR, "no episode runs that could be granted", expected="a reset before")
        secret, credential = token()
        now = self._clock()
        grant = Grant(
            name=secrets.token_hex(6),
            agent=wish.agent,
            session=session,
            epoch=session.epoch,
            tools=_chosen(session.opening.card.tools, wish.tools),
            ends_at=None if wish.ttl_seconds is None else now + wish.ttl_seconds,
            bucket=self._bucket(wish.calls_per_second),
            digest=credential.digest,
        )
        self._by_digest[grant.digest] = grant
        self._by_session.setdefault(session.name, []).append(grant)
        return Granted(
            grant.name,
            address,
            secret,
            [tool.name for tool in grant.tools],
            None if wish.ttl_seconds is None else self._wall() + wish.ttl_seconds,
            session.episode_id or "",
        )

    def check(self, session: Session, wish: GrantWish, *, next_episode: bool = False) -> str:
        """Return the address that a grant would have, or refuse what could not be granted."""
        card = session.opening.card
        if self._address is None:
            raise refused(
                Code.NO_AGENT_PLANE, "this server listens for no agents", expected="a server started with --agent-port"
            )
        if session.opening.num_envs is not None:
            raise refused(Code.NO_AGENT_PLANE, "a batch has no tools", expected="a session of one environment")
        _chosen(card.tools, wish.tools)
        if not next_episode and len(self.live(session)) >= card.max_agents:
            raise refused(
                Code.GRANTS_TAKEN, f"this environment has {card.max_agents} agent(s) at once", expected="a revocation"
            )
        return self._address

    def find(self, secret: str | None) -> Grant | None:
        """Return the grant whose token this is, if its agent may still ask."""
        if secret is None or len(secret) > MOST_TOKEN:
            return None
        try:
            grant = self._by_digest.get(Credential.of(secret).digest)
        except ValidationError:
            return None
        return grant if grant is not None and grant.holds(self._clock()) else None

    def is_live(self, grant: Grant) -> bool:
        """Return whether the grant's agent may act now."""
        return grant.is_live(self._clock())

    def holds(self, grant: Grant) -> bool:
        """Return whether the grant's agent may ask now, though perhaps not act."""
        return grant.holds(self._clock())

    def live(self, session: Session) -> list[Grant]:
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
                held = grant.holds(self._clock())
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
            for call in self._when_forgotten:
                call(grant.name)

    def _bucket(self, wished: float | None) -> Bucket | None:
        rates = [rate for rate in (wished, self._calls_per_second) if rate is not None]
        if not rates:
            return None
        rate = min(rates)
        return Bucket(rate, max(1, round(rate)), self._clock)

    def restore(self, session: Session, before: AgentGranted) -> None:
        """Let a grant of an earlier run of the server live on: its token is known by the digest, its time goes on."""
        left = None if before.expires_at is None else before.expires_at - self._wall()
        grant = Grant(
            name=before.grant,
            agent=before.agent,
            session=session,
            epoch=before.epoch,
            tools=tuple(tool for tool in session.opening.card.tools if tool.name in before.tools),
            ends_at=None if left is None else self._clock() + left,
            bucket=self._bucket(before.calls_per_second),
            digest=bytes.fromhex(before.digest),
        )
        self._by_digest[grant.digest] = grant
        self._by_session.setdefault(session.name, []).append(grant)

    def renewed(self, session: Session, name: str) -> Granted:
        """Return a grant with a new token, for one whose reply nobody got, or refuse: it is dead."""
        now = self._clock()
        grant = next((each for each in self._by_session.get(session.name, ()) if each.name == name), None)
        if grant is None or self._address is None or not grant.holds(now):
            raise refused(Code.STATE_ERROR, "this grant is dead", expected="another grant, with another request")
        secret, credential = token()
        del self._by_digest[grant.digest]
        grant.digest = credential.digest
        self._by_digest[grant.digest] = grant
        return Granted(
            grant.name,
            self._address,
            secret,
            [tool.name for tool in grant.tools],
            None if grant.ends_at is None else self._wall() + grant.ends_at - now,
            session.episode_id or "",
        )


def _chosen(tools: tuple[Tool, ...], wished: list[str] | None) -> tuple[Tool, ...]:
    if wished is None:
        return tools
    unknown = set(wished) - {tool.name for tool in tools}
    if unknown:
        names = ", ".join(tool.name for tool in tools)
        raise refused(Code.VALIDATION_ERROR, "there is no such tool", expected=f"some of {names}")
    return tuple(tool for tool in tools if tool.name in wished)
