"""Governance of one server: its policy, the governors of its episodes, and its operator."""

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

import msgspec
from msgspec import Raw, Struct

from proctor.contracts.tools import Tool
from proctor.models.control import Code
from proctor.models.events import EpisodeClosed, PacketJudged
from proctor.models.wire import PLAIN
from proctor.server.answers import NotDone, refused
from proctor.server.governed.governor import Governor
from proctor.server.governed.operator import Operator
from proctor.server.governed.policy import GovernancePolicy
from proctor.server.governed.registry import Registry
from proctor.server.governed.stream import PacketLimits
from proctor.server.governed.tools import NAMES
from proctor.server.session import Session
from proctor.server.telling import first_seen


class _Begun(Struct):
    """The part of a reset's reply that an agent may know."""

    observation: Raw


class Governance:
    """What governs the episodes of one server; `boot` names this run of it, `wall` tells the time, `clock` counts seconds."""

    def __init__(
        self,
        policy: GovernancePolicy,
        *,
        boot: str | None = None,
        wall: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
        packet_limits: PacketLimits | None = None,
    ) -> None:
        self.policy: Final = policy
        self.registry: Final[Registry[Governor]] = Registry(boot)
        self.operator: Final = Operator(self.registry)
        self._wall = wall
        self._clock = clock
        self._packet_limits = PacketLimits() if packet_limits is None else packet_limits

    def check(self, tools: Iterable[Tool]) -> None:
        """Raise a ValidationError if an environment with these tools cannot be governed by this policy."""
        self.policy.check(tools, NAMES)

    def check_grant(self, session: Session, names: Sequence[str] | None) -> None:
        """Refuse a grant of these tools (None: of all) with which an agent could come to where nothing leads on."""
        if session.opening.num_envs is not None:
            return
        tools = [tool for tool in session.opening.card.tools if names is None or tool.name in names]
        if not self.policy.lets_go_on(tools):
            raise refused(
                Code.VALIDATION_ERROR,
                f"under the policy {self.policy.name} an agent needs a tool that only reads: without one it could not go on",
                expected="such a tool among the tools of the grant",
            )

    async def begin(self, session: Session, reply: bytes) -> None:
        """Govern the episode that a reset has begun; `reply` is the data of the reset's reply. A batch has no agents."""
        if session.opening.num_envs is not None:
            return
        observation = msgspec.json.decode(reply, type=_Begun).observation if session.opening.encoding == PLAIN else None
        await self._governor(session).begin(first_seen(observation, session.standing))

    def restored(
        self, session: Session, events: Sequence[PacketJudged], closed: EpisodeClosed | None = None
    ) -> Governor:
        """Return the governor of an episode that another run of the server began; nothing is put on record.

        `events` are the PacketJudged of the session's latest episode in order, `closed` is its EpisodeClosed if there is one;
        the session's epoch is set before. Once the resumption is on record, await `Governor.resumed`.
        """
        governor = self._governor(session)
        governor.restore(events, closed)
        return governor

    async def sweep(self) -> None:
        """Close the episodes whose environments have ended and whose time to be reviewed has passed."""
        for governor in self.registry:
            turn = governor.session.turn
            if not turn.locked():  # whoever has it will be done before the next look
                async with turn:
                    # What cannot be recorded has lost that one episode; the others have their turn all the same.
                    with suppress(NotDone):
                        await governor.wrap_up()

    def _governor(self, session: Session) -> Governor:
        return Governor(
            self.policy,
            session,
            self.registry,
            wall=self._wall,
            clock=self._clock,
            packet_limits=self._packet_limits,
        )
