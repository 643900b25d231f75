"""The governor of one episode, which opens, restores and closes its packet episode; and the registry of all governors.

Rule 1: after the environment's end an agent may still believe, defer, cancel and escalate, until the episode is reviewed or
    `wrap_up_seconds` have passed. Then the packet episode is closed, and only then its grants die.
Rule 2: calls of agents are heard in the session's turn; an operator's acts are not.
Rule 3: the registry has the governors of a server's running episodes. An episode that is lost runs no more: nobody finds its
    governor there.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from proctor.episode.packets.enums import ResultStatus
from proctor.episode.packets.fields import TaskResult
from proctor.episode.transition_table import Position
from proctor.episode.verdicts import Outcome
from proctor.models.events import EpisodeClosed, PacketJudged
from proctor.models.operator import GovernedSession
from proctor.server.governed.agent_calls import GovernedCall, OperatorQuestion, ToolExecution, observation_data
from proctor.server.governed.packet_builders import observation_packet
from proctor.server.governed.packet_stream import PROCTOR, PacketStream, StreamSettings
from proctor.server.sessions.episode_status import EpisodeConclusion
from proctor.server.sessions.session import Session
from proctor.server.sessions.tool_results import ToolResult


class Registry:
    """Governors by session: of each the latest."""

    def __init__(self) -> None:
        self._governors: dict[str, Governor] = {}

    def __iter__(self) -> "Iterator[Governor]":
        return iter([governor for governor in self._governors.values() if governor.session.loss is None])

    def add(self, governor: "Governor") -> None:
        """Know a governor from now on; the one of its session's earlier episode is forgotten."""
        self._governors.pop(governor.session.name, None)
        self._governors[governor.session.name] = governor

    def remove(self, governor: "Governor") -> None:
        """Forget a governor whose episode is closed."""
        if self._governors.get(governor.session.name) is governor:
            del self._governors[governor.session.name]

    def find(self, session: str) -> "Governor | None":
        """Return the governor of a session's episode, if one runs."""
        found = self._governors.get(session)
        return None if found is None or found.session.loss is not None else found


REVIEWED: Final = (Position.REVIEW, Position.SETTLE)
"""Where an episode can be closed."""


class Governor:
    """The governor of one episode of a session."""

    def __init__(self, session: Session, registry: Registry, settings: StreamSettings) -> None:
        self.session: Final = session
        self.epoch: Final = session.epoch
        self.policy: Final = settings.policy
        self.stream: Final = PacketStream(settings, session)
        self.conclusion: EpisodeConclusion | None = None
        """What was said of the episode when it was closed."""
        self._registry = registry
        self._ended_at: float | None = None

    @property
    def closed(self) -> bool:
        """Whether the packet episode is closed: its grants are dead."""
        return self.conclusion is not None

    def describe(self, waiting: int) -> GovernedSession:
        """Return how the episode stands, for an operator, for whom so much waits."""
        stream = self.stream
        return GovernedSession(
            session=self.session.name,
            epoch=self.epoch,
            episode_id=self.session.episode_id,
            policy=self.policy.name,
            state=stream.standing.state,
            safe_mode=stream.in_safe_mode,
            legal_next=list(stream.legal_next),
            obligations=stream.obligations,
            tokens=[permit.token_id for permit in stream.live_tokens],
            steps=self.session.step_count,
            packets=stream.standing.packets,
            refusals=stream.memory.refusals,
            over=self.session.over,
            waiting=waiting,
        )

    async def begin(self, observation: bytes) -> None:
        """Open the packet episode and state what was observed first (S0 to S1)."""
        self.session.observer = self
        settings = msgspec.to_builtins(self.policy.settings)
        await self.stream.declare(self.stream.record("open", settings, "system"))
        await self.stream.declare(observation_packet(self.stream, observation_data(observation)))
        self._registry.add(self)

    def restore(self, events: Sequence[PacketJudged], closed: EpisodeClosed | None = None) -> None:
        """Take up the episode that these lines tell; `closed` if its end is on record, too.

        A ComponentError says that the lines get other verdicts than they did. Nothing is put on record.
        """
        self.session.observer = self
        self.stream.restore(events)
        if closed is None and self.stream.position is not Position.CLOSED:
            self._registry.add(self)
            return
        self.stream.closing = True
        self.conclusion = EpisodeConclusion(
            Outcome.CONFORMING.value if closed is None else closed.outcome,
            self.stream.standing.state if closed is None else closed.state,
            () if closed is None else tuple(closed.obligations),
        )

    async def resume(self) -> None:
        """State that directives whose end nobody knows are cancelled; called once after a restart, in the session's turn."""
        if not self.closed and self.session.loss is None:
            for task in list(self.stream.standing.tasks.values()):
                result = TaskResult(task.task_id, task.packet_id, ResultStatus.CANCELLED)
                await self.stream.declare(self.stream.packet(result))

    async def receive(self, call: GovernedCall) -> ToolResult | ToolExecution | OperatorQuestion:
        """Hear what an agent calls, in the session's turn; whose call was the last is told that the episode is closed."""
        heard = await call.receive()
        if not isinstance(heard, ToolResult):
            return heard
        await self.wrap_up()
        return call.replies.closing(heard) if self.closed else heard

    async def wrap_up(self) -> None:
        """Close the episode if its environment has ended and it is reviewed, or if the time for that has passed.

        The turn is the caller's.
        """
        session = self.session
        if self.stream.closing or not session.standing.ended or session.loss is not None or session.closed:
            return
        now = self.stream.clock()
        if self._ended_at is None:
            self._ended_at = now
        if now - self._ended_at >= self.policy.wrap_up_seconds or self.stream.position in REVIEWED:
            await session.conclude("ended")

    async def conclude(self, reason: str) -> EpisodeConclusion:
        """Close the packet episode, where that is legal, and say how it stood; called by the session, in its turn."""
        if self.conclusion is not None:
            return self.conclusion
        stream = self.stream
        stream.closing = True
        # It stays, so that whoever asks how the episode ended is told.
        self.session.observer = self
        conclusion = EpisodeConclusion(Outcome.OPEN.value, stream.standing.state.value, tuple(stream.obligations))
        try:
            close = stream.record("close", {}, "system")
            if self.session.loss is None and stream.judge(close).accepted:
                verdict = await stream.state(close, PROCTOR)
                conclusion = EpisodeConclusion(Outcome.CONFORMING.value, verdict.path[0].value)
        finally:
            self.conclusion = conclusion
            self._registry.remove(self)
            stream.notifier.notify()
            self.session.rows.wake()
        return conclusion


def find_governor(session: Session) -> Governor | None:
    """Return the governor of a session's latest episode; None if it is free."""
    observer = session.observer
    return observer if isinstance(observer, Governor) and observer.epoch == session.epoch else None
