"""The governor of one episode, which hears its agents, has their words judged, and closes the packet episode; and the registry of them.

Rule 1: whatever an agent calls is an answer (`ToolResult`), a tool to execute (`ToolExecution`), or a question that waits; never an
    exception, but for what cannot be put on record and for episodes that are over.
Rule 2: in safe mode every call is refused; only an operator's clear lifts it.
Rule 3: after the environment's end an agent may still believe, defer, cancel and escalate, until the episode is reviewed or
    `wrap_up_seconds` have passed. Then the packet episode is closed, and only then its grants die.
Rule 4: calls of agents are heard in the session's turn; an operator's acts are not.
Rule 5: the registry has the governors of a server's running episodes, and their lines for whoever watches. An episode that is lost
    runs no more: nobody finds its governor there.
Rule 6: `view_for_agent` is how an episode is introduced to an agent: what it reads first, and the tools with their schemas.
"""

import asyncio
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import msgspec

from proctor.contracts.tools import Tool, ToolSafety
from proctor.episode.transition_table import Position
from proctor.episode.verdicts import Outcome
from proctor.models.control import Code, Problem
from proctor.models.events import EpisodeClosed, PacketJudged
from proctor.models.operator import GovernedSession
from proctor.server.governed import packet_builders
from proctor.server.governed.agent_calls import GovernanceToolCalls, ToolExecution, ToolExecutor, observation_data
from proctor.server.governed.governance_tools import (
    GOVERNANCE_TOOL_NAMES,
    GovernanceTool,
    governance_tools,
    tool_under_policy,
)
from proctor.server.governed.operator_actions import Notifier, OperatorActions, OperatorQuestion, live_token_ids
from proctor.server.governed.packet_checks import PacketChecker, encode_attempt, size_refusals
from proctor.server.governed.packet_stream import PROCTOR, PacketLimits, PacketStream, PreJudgeRefusal, Speaker
from proctor.server.governed.policy import GovernancePolicy
from proctor.server.governed.replies import GOVERNED, MOST_TOLD, REPLY_SCHEMA, STATUS_SCHEMA, ReplyBuilder, Tools
from proctor.server.runtime.results import RequestRefused
from proctor.server.sessions.episode_status import EpisodeConclusion, RowLog
from proctor.server.sessions.session import PendingRecord, Session
from proctor.server.sessions.tool_results import ToolResult, make_observation_schema, write_governed_instructions

MARK_DIGITS: Final = 6
"""Of the name of a run: enough to tell it from the one before, and few enough to be typed."""


class HasSession(Protocol):
    """What a registry must know of a governor."""

    @property
    def session(self) -> Session:
        """Whose episode it governs."""
        ...


GovernorT = TypeVar("GovernorT", bound=HasSession)


class Registry(Generic[GovernorT]):
    """Governors by session: of each the latest."""

    def __init__(self, boot: str | None = None) -> None:
        self.rows: Final = RowLog()
        self.boot: Final = secrets.token_hex(8) if boot is None else boot
        """Names this run, in which rows are counted from 1."""
        self.mark: Final = self.boot[:MARK_DIGITS]
        """What ids that are made in this run end with."""
        self._governors: dict[str, GovernorT] = {}

    def __iter__(self) -> Iterator[GovernorT]:
        return iter([governor for governor in self._governors.values() if governor.session.loss is None])

    def add(self, governor: GovernorT) -> None:
        """Know a governor from now on; the one of its session's earlier episode is forgotten."""
        self._governors.pop(governor.session.name, None)
        self._governors[governor.session.name] = governor

    def remove(self, governor: GovernorT) -> None:
        """Forget a governor whose episode is closed."""
        if self._governors.get(governor.session.name) is governor:
            del self._governors[governor.session.name]

    def find(self, session: str) -> GovernorT | None:
        """Return the governor of a session's episode, if one runs."""
        found = self._governors.get(session)
        return None if found is None or found.session.loss is not None else found


MOST_WAITING: Final = 32
"""Calls of agents that may wait for an operator in one episode."""
RECHECK_SECONDS: Final = 1.0
"""After so long a call that waits looks whether it may still wait: not everything that ends a wait rings a bell."""
REVIEWED: Final = (Position.REVIEW, Position.SETTLE)
"""Where an episode can be closed."""
BUSY: Final = Problem("too many calls wait for the operator in this episode", Code.BUSY, expected="one call at a time")
AFTER_END: Final = "the environment has ended"
CLOSED: Final = Problem("the episode is closed: there is nothing more to do", Code.ENDED)


class Governor:
    """The governor of one episode of a session; `wall` tells the time, `clock` counts seconds."""

    def __init__(
        self,
        policy: GovernancePolicy,
        session: Session,
        registry: "Registry[Governor]",
        *,
        wall: Callable[[], float],
        clock: Callable[[], float],
        packet_limits: PacketLimits,
    ) -> None:
        self.session: Final = session
        self.epoch: Final = session.epoch
        self.policy: Final = policy
        self.stream: Final = PacketStream(
            policy,
            session,
            session.epoch,
            wall=wall,
            rows=registry.rows,
            run=registry.mark,
            packet_limits=packet_limits,
        )
        self.notifier: Final = Notifier()
        self.acts: Final = OperatorActions(
            self.stream, self.notifier, lambda: not self._closing and session.loss is None
        )
        self.conclusion: EpisodeConclusion | None = None
        """What was said of the episode when it was closed."""
        self._judging = PacketChecker(self.stream)
        self._errands = ToolExecutor(self.stream, self._judging, clock)
        self._sayings = GovernanceToolCalls(self.stream, self._judging, self._errands, self.acts)
        self._registry = registry
        self._clock = clock
        self._ended_at: float | None = None
        self._closing = False

    # -------------------------------------------------------------------------------------------------- how it stands
    @property
    def closed(self) -> bool:
        """Whether the packet episode is closed: its grants are dead."""
        return self.conclusion is not None

    @property
    def in_safe_mode(self) -> bool:
        """Whether the episode is in safe mode."""
        return self.stream.in_safe_mode

    def tools(self, names: Sequence[str] | None = None) -> Tools:
        """Return the environment's tools as the policy sees them; those with these names only, if some are given."""
        found = self.session.spec.card.tools
        return {each.name: self.policy.safety_of(each) for each in found if names is None or each.name in names}

    def standing(self) -> GovernedSession:
        """Return how the episode stands, for an operator."""
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
            tokens=live_token_ids(stream),
            steps=self.session.step_count,
            packets=stream.standing.packets,
            refusals=stream.memory.refusals,
            over=self.session.over,
            waiting=len(self.acts.waiting()),
        )

    # ------------------------------------------------------------------------------------------------------ beginning
    async def begin(self, observation: bytes) -> None:
        """Open the packet episode and state what was observed first (S0 to S1)."""
        self.session.observer = self
        settings = msgspec.to_builtins(self.policy.settings)
        await self.stream.declare(self.stream.record("open", settings, "system"))
        await self.stream.declare(packet_builders.observation_packet(self.stream, observation_data(observation)))
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
        self._closing = True
        self.conclusion = EpisodeConclusion(
            Outcome.CONFORMING.value if closed is None else closed.outcome,
            self.stream.standing.state if closed is None else closed.state,
            () if closed is None else tuple(closed.obligations),
        )

    async def resume(self) -> None:
        """State that directives whose end nobody knows are cancelled; called once after a restart, in the session's turn."""
        if not self.closed and self.session.loss is None:
            await self._errands.cancel()

    # -------------------------------------------------------------------------------------------------------- hearing
    async def receive(
        self, tool: str, arguments: bytes, speaker: Speaker, tools: Tools
    ) -> ToolResult | ToolExecution | OperatorQuestion:
        """Hear what an agent calls, in the session's turn: one of its own tools, or one of the environment's."""
        self._check_open()
        reply_builder = ReplyBuilder(self.stream, tools)
        if len(arguments) > self.stream.packet_limits.packet_bytes:
            # Not read at all: what it says is of no interest.
            return await self._judging.refuse_early(
                tool, size_refusals(arguments, self.stream), speaker, reply_builder, arguments
            )
        if self.stream.in_safe_mode and tool != GovernanceTool.SUBMIT_PACKET:
            # What is submitted is held against GOV-1 first: who forges a clear is told that it is forged.
            return await self._sayings.in_safe_mode(tool, arguments, speaker, reply_builder)
        try:
            if tool in GOVERNANCE_TOOL_NAMES:
                heard = await self._sayings.receive(GovernanceTool(tool), arguments, speaker, tools, reply_builder)
            else:
                self._sayings.check_running()
                heard = await self._errands.start(tool, arguments, speaker, tools)
        except RequestRefused as problem:
            if problem.problem.code == Code.ENDED:
                await self.stream.record_refusal(
                    tool, encode_attempt(tool, arguments), (PreJudgeRefusal(Code.ENDED, AFTER_END),), speaker
                )
            raise
        return await self._wrap_up_reply(heard, reply_builder) if isinstance(heard, ToolResult) else heard

    def may_continue(self, execution: ToolExecution) -> bool:
        """Return whether an execution may go on: safe mode and an overrun void its directive."""
        return self._errands.may_continue(execution)

    async def finish(
        self, execution: ToolExecution, told: ToolResult, pending: PendingRecord, *, inside: bool, cut: str = ""
    ) -> ToolResult:
        """State that a tool was carried out, or cut short as `cut` says; return what the agent is told.

        Its steps may be `pending`: they are safe when this returns.
        """
        self._check_open()
        return await self._errands.finish(execution, told, pending, inside=inside, cut=cut)

    async def fail(self, execution: ToolExecution, problem: Problem, pending: PendingRecord) -> ToolResult:
        """State that a tool was not carried out to its end; return what the agent is told."""
        self._check_open()
        return await self._errands.fail(execution, problem, pending)

    async def report_answer(
        self, question: OperatorQuestion, speaker: Speaker, tools: Tools, check: Callable[[], None]
    ) -> ToolResult:
        """Return an operator's answer, or that there is none yet; not in the session's turn.

        `check` refuses once the agent may not wait any more; it is asked whenever the notifier wakes it, and now and then.
        """
        if self.notifier.waiting >= MOST_WAITING:
            raise RequestRefused(BUSY)
        loop = asyncio.get_running_loop()
        patience = min(question.seconds, self.policy.escalation.answer_seconds)
        deadline = loop.time() + patience
        while self.acts.waits(question.id) and not self._closing and not self.stream.in_safe_mode:
            left = deadline - loop.time()
            if left <= 0:
                break
            await self.notifier.receive(min(left, RECHECK_SECONDS))
            check()
        await self.stream.flush()
        self._check_open()
        check()
        return await self._sayings.report_answer(question, speaker, ReplyBuilder(self.stream, tools))

    # ----------------------------------------------------------------------------------------------------------- end
    async def wrap_up(self) -> None:
        """Close the episode if its environment has ended and it is reviewed, or if the time for that has passed.

        The turn is the caller's.
        """
        session = self.session
        if self._closing or not session.standing.ended or session.loss is not None or session.closed:
            return
        if self._ended_at is None:
            self._ended_at = self._clock()
        late = self._clock() - self._ended_at >= self.policy.wrap_up_seconds
        if late or self.stream.position in REVIEWED:
            await session.conclude("ended")

    async def conclude(self, reason: str) -> EpisodeConclusion:
        """Close the packet episode, where that is legal, and say how it stood; called by the session, in its turn."""
        if self.conclusion is not None:
            return self.conclusion
        self._closing = True
        # It stays, so that whoever asks how the episode ended is told.
        self.session.observer = self
        conclusion = EpisodeConclusion(
            Outcome.OPEN.value, self.stream.standing.state.value, tuple(self.stream.obligations)
        )
        try:
            close = self.stream.record("close", {}, "system")
            if self.session.loss is None and self.stream.judge(close).accepted:
                verdict = await self.stream.state(close, PROCTOR)
                conclusion = EpisodeConclusion(Outcome.CONFORMING.value, verdict.path[0].value)
        finally:
            self.conclusion = conclusion
            self._registry.remove(self)
            self.notifier.notify()
            self.session.rows.wake()
        return conclusion

    async def _wrap_up_reply(self, told: ToolResult, reply_builder: ReplyBuilder) -> ToolResult:
        """Close the episode if there is nothing more to do, and say so."""
        await self.wrap_up()
        return reply_builder.closing(told) if self.closed else told

    def _check_open(self) -> None:
        if self._closing:
            raise RequestRefused(CLOSED)


def find_governor(session: Session) -> Governor | None:
    """Return the governor of a session's latest episode; None if it is free."""
    observer = session.observer
    return observer if isinstance(observer, Governor) and observer.epoch == session.epoch else None


OfferedTools: TypeAlias = list[tuple[Tool, dict[str, Any]]]
"""Tools, each with what it answers with."""


def view_for_agent(governor: Governor, tools: Sequence[Tool]) -> tuple[str, OfferedTools]:
    """Return the instructions and all tools: those of the environment as the policy sees them, then the governance tools."""
    policy, card = governor.policy, governor.session.spec.card
    own = [tool_under_policy(tool, policy) for tool in tools]
    reads = [tool.name for tool in own if tool.safety is ToolSafety.READ]
    seen = governor.stream.memory.seen
    first = seen.data if seen is not None and len(seen.data) <= MOST_TOLD else None
    words = write_governed_instructions(card, reads, [tool.name for tool in own if tool.name not in reads], first)
    offered = [(tool, _output_schema(tool, make_observation_schema(card))) for tool in own]
    return words, [*offered, *((tool, REPLY_SCHEMA) for tool in governance_tools(policy))]


def status_fits(tool: Tool) -> bool:
    """Return whether what a tool answers may hold where the episode stands."""
    if tool.output_schema is None:
        return True
    return tool.output_schema.get("additionalProperties", True) is not False and GOVERNED not in tool.output_schema.get(
        "properties", {}
    )


def _output_schema(tool: Tool, seen: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of what a tool answers, with where the episode stands if there is room for it."""
    schema = seen if tool.output_schema is None else tool.output_schema
    if not status_fits(tool):
        return schema
    return {**schema, "properties": {**schema.get("properties", {}), GOVERNED: STATUS_SCHEMA}}
