"""What an orchestrator does about agents: grants, with a reset or alone, revocations, and when it may step itself.

Rule: a grant is on record before its token leaves; one that cannot be recorded was never given.
"""

import time
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw

from proctor.door.credentials import Credential
from proctor.models.control import Code, Reset, Seen
from proctor.models.events import AgentGranted, AgentRevoked
from proctor.models.grants import Granted, GrantWish, Revoke, Revoked
from proctor.server.answers import NotDone, refused
from proctor.server.governed.governance import Governance
from proctor.server.governed.governor import Governor, governor_of
from proctor.server.grants import Grants
from proctor.server.histories import History
from proctor.server.session import Session

FIRST_LINES: Final = 2
"""What the judge of a governed episode hears before anybody is told of it: that it is open, and the first observation."""


class Granting:
    """The orchestrator's side of all grants."""

    def __init__(
        self, grants: Grants, *, wall: Callable[[], float] = time.time, governance: Governance | None = None
    ) -> None:
        self._grants = grants
        self._wall = wall
        self._governance = governance
        if governance is not None:
            governance.operator.revoke_grant = self._revoked_by_operator
            governance.operator.agents_of = lambda governor: grants.agents(governor.session)

    def check_step(self, session: Session) -> None:
        """Refuse an orchestrator's step while an agent may act, unless the session is shared."""
        if not session.shared and self._grants.live(session):
            raise refused(
                Code.GRANT_LIVE,
                "an agent holds a grant on this episode",
                expected="the end of the episode, a revocation, or a session opened as shared",
            )

    async def reset(self, session: Session, reset: Reset, request_id: int | None) -> Raw:
        """Begin an episode; return the reply's data, with the grant that the reset asked for."""
        if reset.grant is None:
            return Raw(await self._begun(session, reset, request_id))
        if request_id is None:
            raise refused(Code.VALIDATION_ERROR, "a grant comes after hello only", expected="a reset without a grant")
        self._grants.check(session, reset.grant, next_episode=True)
        self._check_governed(session, reset.grant)
        seen = msgspec.json.decode(await self._begun(session, reset, request_id), type=Seen)
        seen.grant = await self.grant(session, reset.grant, request_id)
        seen.head = UNSET if session.head is None else session.head
        return Raw(msgspec.json.encode(seen))

    async def _begun(self, session: Session, reset: Reset, request_id: int | None) -> bytes:
        """Begin an episode, which is governed where the server has a policy; return the reply's data."""
        data = await session.reset(reset, request_id)
        if self._governance is None or session.opening.num_envs is not None:
            return data
        await self._governance.begin(session, data)
        seen = msgspec.json.decode(data, type=Seen)
        if seen.head is UNSET or session.head is None:
            return data
        # What was stated since is on record, too.
        seen.head = session.head
        return msgspec.json.encode(seen)

    async def grant(self, session: Session, wish: GrantWish, request_id: int | None) -> Granted:
        """Return a new grant on the episode that runs, or refuse."""
        self._grants.check(session, wish)
        self._check_governed(session, wish)
        granted = self._grants.issue(session, wish)
        return await self._recorded(session, granted, wish.agent, wish.calls_per_second, request_id)

    def _check_governed(self, session: Session, wish: GrantWish) -> None:
        """Refuse a grant with which an agent could not do what the policy wants."""
        if self._governance is not None:
            self._governance.check_grant(session, wish.tools)

    async def grant_again(self, session: Session, before: AgentGranted, request_id: int | None) -> Granted:
        """Return a grant of an earlier run with a new token, or refuse: it is dead."""
        granted = self._grants.renewed(session, before.grant)
        return await self._recorded(session, granted, before.agent, before.calls_per_second, request_id)

    async def restore(self, session: Session, history: History) -> None:
        """Let the grants of an earlier run live on, and the judge of its episode where that is governed."""
        for each in history.granted.values():
            self._grants.restore(session, each)
        if self._governance is not None and history.packets:
            governor = self._governance.restored(session, history.packets, history.closed)
            async with session.turn:
                await governor.resumed()

    def has_begun(self, session: Session, history: History) -> bool:
        """Return whether an episode on record had begun for its judge, too: its opening and what was seen first are there.

        If not, then nobody was told of it.
        """
        governed = self._governance is not None and session.opening.num_envs is None and session.epoch > 0
        return not governed or len(history.packets) >= FIRST_LINES

    async def _recorded(
        self, session: Session, granted: Granted, agent: str, calls_per_second: float | None, request_id: int | None
    ) -> Granted:
        event = AgentGranted(
            **self._stated(session, request_id),
            grant=granted.grant,
            agent=agent,
            tools=granted.tools,
            expires_at=granted.expires_at,
            digest=Credential.of(granted.token).digest.hex(),
            calls_per_second=calls_per_second,
        )
        try:
            await session.record(event)
        except NotDone:
            self._grants.revoke(session, granted.grant)
            raise
        return granted

    async def revoke(self, session: Session, wish: Revoke, request_id: int | None) -> Revoked:
        """Take a grant back; one that is dead already, or never was, is not live then as before."""
        live = self._taken_back(session, wish.grant)
        if live:
            await session.record(AgentRevoked(**self._stated(session, request_id), grant=wish.grant))
        return Revoked(wish.grant, live)

    async def _revoked_by_operator(self, governor: Governor, grant: str) -> bool:
        """Take a grant back for an operator; return whether it was live."""
        session = governor.session
        live = self._taken_back(session, grant)
        if live:
            stated = {**self._stated(session, None), "principal": "operator"}
            await session.record(AgentRevoked(**stated, grant=grant))
        return live

    def _taken_back(self, session: Session, grant: str) -> bool:
        """Take a grant back, and wake its agent if that waits for an operator; return whether the grant was live."""
        live = self._grants.revoke(session, grant)
        governor = governor_of(session)
        if governor is not None:
            governor.bell.ring()
        return live

    async def wrap_up(self) -> None:
        """Close governed episodes that are over; to be called before `sweep`."""
        if self._governance is not None:
            await self._governance.sweep()

    def sweep(self) -> None:
        """Forget what nobody can use any more."""
        self._grants.sweep()

    def _stated(self, session: Session, request_id: int | None) -> dict[str, Any]:
        return {"session": session.name, "at": self._wall(), "request_id": request_id, "epoch": session.epoch}
