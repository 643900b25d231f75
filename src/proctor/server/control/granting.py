"""What an orchestrator does about agents: grants, with a reset or alone, revocations, and when it may step itself.

Rule: a grant is on record before its token leaves; one that cannot be recorded was never given.
"""

import time
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from proctor.door.credentials import Credential
from proctor.models.control import Code, Reset, Seen
from proctor.models.events import AgentGranted, AgentRevoked
from proctor.models.grants import Granted, GrantWish, Revoke, Revoked
from proctor.server.answers import NotDone, refused
from proctor.server.grants import Grants
from proctor.server.session import Session


class Granting:
    """The orchestrator's side of all grants."""

    def __init__(self, grants: Grants, *, wall: Callable[[], float] = time.time) -> None:
        self._grants = grants
        self._wall = wall

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
            return Raw(await session.reset(reset, request_id))
        if request_id is None:
            raise refused(Code.VALIDATION_ERROR, "a grant comes after hello only", expected="a reset without a grant")
        self._grants.check(session, reset.grant, next_episode=True)
        seen = msgspec.json.decode(await session.reset(reset, request_id), type=Seen)
        seen.grant = await self.grant(session, reset.grant, request_id)
        seen.head = UNSET if session.head is None else session.head
        return Raw(msgspec.json.encode(seen))

    async def grant(self, session: Session, wish: GrantWish, request_id: int | None) -> Granted:
        """Return a new grant on the episode that runs, or refuse."""
        granted = self._grants.issue(session, wish)
        event = AgentGranted(
            **self._stated(session, request_id),
            grant=granted.grant,
            agent=wish.agent,
            tools=granted.tools,
            expires_at=granted.expires_at,
            digest=Credential.of(granted.token).digest.hex(),
            calls_per_second=wish.calls_per_second,
        )
        try:
            await session.record(event)
        except NotDone:
            self._grants.revoke(session, granted.grant)
            raise
        return granted

    async def revoke(self, session: Session, wish: Revoke, request_id: int | None) -> Revoked:
        """Take a grant back; one that is dead already, or never was, is not live then as before."""
        live = self._grants.revoke(session, wish.grant)
        if live:
            await session.record(AgentRevoked(**self._stated(session, request_id), grant=wish.grant))
        return Revoked(wish.grant, live)

    def sweep(self) -> None:
        """Forget what nobody can use any more."""
        self._grants.sweep()

    def _stated(self, session: Session, request_id: int | None) -> dict[str, Any]:
        return {"session": session.name, "at": self._wall(), "request_id": request_id, "epoch": session.epoch}
