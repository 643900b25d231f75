"""What an agent calls in a governed episode: its six own tools, the environment's tools, and requests of tokens.

Rule 1: each call of one of its own tools becomes a packet, which is judged, recorded and answered.
Rule 2: a call of an environment's tool becomes a directive. Nothing runs before it is accepted and on record, and nothing runs once
    safe mode has voided it, also if that was lifted since.
Rule 3: every directive that ran gets one result, and what was seen becomes an observation where the table has room for one.
Rule 4: a token that is asked for is issued by the proctor within limits, put before an operator, or refused, as the policy says.
"""

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any, Final

import msgspec

from proctor.contracts.tools import ToolSafety
from proctor.episode.episode_state import IssuedToken
from proctor.episode.packets.enums import DecisionOutcome, ResultStatus
from proctor.episode.packets.fields import Decision, Directive, ErrorDetails, VerificationPlan
from proctor.episode.packets.reader import AnyPacket, Packet
from proctor.episode.rules.governance import POLICY_3
from proctor.episode.transition_table import Position
from proctor.errors import ValidationError
from proctor.models.control import Code, Problem
from proctor.server.governed import packet_builders
from proctor.server.governed.episode_memory import TokenRequest
from proctor.server.governed.governance_tools import GovernanceTool, parse_arguments
from proctor.server.governed.operator_actions import OperatorActions, OperatorQuestion
from proctor.server.governed.packet_checks import (
    MOST_KEPT,
    PacketChecker,
    PacketTerms,
    choose_token,
    complete_packet,
    content_refusals,
    describe_token,
    encode_attempt,
    find_refusals,
    reference_refusals,
    size_refusals,
    token_refusals,
)
from proctor.server.governed.packet_stream import MOST_LISTED, PROCTOR, PacketStream, PreJudgeRefusal, Speaker
from proctor.server.governed.policy import TokenIssuer
from proctor.server.governed.replies import ReplyBuilder, Tools
from proctor.server.governed.tool_arguments import (
    Believe,
    Decide,
    Escalate,
    PlanVerification,
    RequestToken,
    SubmitPacket,
)
from proctor.server.runtime.results import RequestRefused
from proctor.server.sessions.session import PendingRecord
from proctor.server.sessions.tool_results import ToolResult, make_error_result

PENDING = "your request of a token waits for an operator: call request_token without tools to wait for the answer"
NOTHING_PENDING = "no request of yours is pending: name the tools that you need"
NAME_AGAIN = "name the tools that you need, to ask for another"
WITHDRAWN = f"your request is withdrawn, by a later decision of yours or by safe mode: {NAME_AGAIN}"
MOST_PENDING = 16
"""Requests of all agents of an episode."""


class TokenRequests:
    """What agents ask for in one episode."""

    def __init__(self, stream: PacketStream, judging: PacketChecker) -> None:
        self._stream = stream
        self._judging = judging

    async def handle(
        self, form: RequestToken, speaker: Speaker, tools: Tools, reply_builder: ReplyBuilder
    ) -> ToolResult | OperatorQuestion:
        """Return what the agent is told of its request, or what it waits for."""
        pending = self._find_pending(speaker)
        if form.tools is None:
            if pending is None:
                return await self._find_answer(speaker, reply_builder)
            return OperatorQuestion(pending.id, form.wait_seconds)
        limits = self._stream.policy.tokens
        asked = TokenRequest(
            id=self._stream.new_id("request"),
            tools=list(dict.fromkeys(form.tools)),
            operations=packet_builders.operations_for_request(form.operations, limits.operations),
            uses=limits.max_uses if form.uses is None else form.uses,
            rationale=form.rationale or "",
            grant=speaker.grant,
            since=self._stream.now().timestamp(),
        )
        bars = token_refusals(asked.tools, asked.operations, asked.uses, list(tools), self._stream.policy)
        if not bars and (pending is not None or len(self._stream.memory.requests) >= MOST_PENDING):
            bars = (PreJudgeRefusal(POLICY_3, PENDING),)
        if bars:
            return await self._judging.refuse_early(
                speaker.tool or "", bars, speaker, reply_builder, packet_builders.encode_request(asked)
            )
        if limits.issuer is TokenIssuer.AUTO:
            return await self._issue(asked, speaker, reply_builder)
        return await self._ask_operator(asked, form.wait_seconds, speaker, reply_builder)

    async def _issue(self, asked: TokenRequest, speaker: Speaker, reply_builder: ReplyBuilder) -> ToolResult:
        """Issue a token at once: the proctor states it, because of the agent's call."""
        packet = packet_builders.token_packet(self._stream, asked, asked.uses, self._stream.policy.tokens.life_seconds)
        verdict = await self._judging.judge(packet, Speaker("system", speaker.grant, speaker.tool), reply_builder)
        if isinstance(verdict, ToolResult):
            return verdict
        return reply_builder.report_token(
            describe_token(self._stream.standing.tokens[packet.payload.token_id], self._stream.now())
        )

    async def _ask_operator(
        self, asked: TokenRequest, seconds: float, speaker: Speaker, reply_builder: ReplyBuilder
    ) -> ToolResult | OperatorQuestion:
        """Put a request before an operator, unless no token could be issued now."""
        packet = packet_builders.token_packet(self._stream, asked, asked.uses, self._stream.policy.tokens.life_seconds)
        if not self._stream.judge(packet).accepted or self._judging.policy_refusals(packet, speaker.grant):
            told = await self._judging.judge(packet, Speaker("system", speaker.grant, speaker.tool), reply_builder)
            return told if isinstance(told, ToolResult) else reply_builder.accept(told)
        await self._stream.note(asked, speaker)
        return OperatorQuestion(asked.id, seconds)

    def _find_pending(self, speaker: Speaker) -> TokenRequest | None:
        asked = self._stream.memory.requests.values()
        return next((each for each in asked if each.grant == speaker.grant), None)

    async def _find_answer(self, speaker: Speaker, reply_builder: ReplyBuilder) -> ToolResult:
        await self._stream.flush()
        decided = self._last_decision(speaker)
        if decided is None:
            return await self._refuse(NOTHING_PENDING, speaker, reply_builder)
        return await self.report_answer(decided, speaker, reply_builder)

    def _last_decision(self, speaker: Speaker) -> str | None:
        """Return the request of this agent that was decided last."""
        return self._stream.memory.decided.get(speaker.grant or "")

    async def report_answer(self, request: str, speaker: Speaker, reply_builder: ReplyBuilder) -> ToolResult:
        """Return what became of a request; a token that opens nothing any more is told as such."""
        memory = self._stream.memory
        issued = memory.issued.get(request)
        permit = None if issued is None else self._stream.standing.tokens.get(issued)
        if permit is not None and permit.live(self._stream.now()):
            return reply_builder.report_token(describe_token(permit, self._stream.now()))
        if permit is not None:
            return await self._refuse(
                f"the token that you got is {_why_unusable(permit)}: {NAME_AGAIN}", speaker, reply_builder
            )
        denied = memory.denied.get(request)
        if denied is None:
            return await self._refuse(WITHDRAWN, speaker, reply_builder)
        said = f": {denied.text}" if denied.text else ""
        return await self._refuse(f"the operator denied the token{said}", speaker, reply_builder)

    async def _refuse(self, reason: str, speaker: Speaker, reply_builder: ReplyBuilder) -> ToolResult:
        return await self._judging.refuse_early(
            speaker.tool or "", (PreJudgeRefusal(POLICY_3, reason),), speaker, reply_builder
        )


def _why_unusable(permit: IssuedToken) -> str:
    """Return why a token opens nothing any more."""
    if permit.revoked:
        return "revoked"
    return "used up" if permit.used >= permit.limit else "expired"


MOST_STATED: Final = 16 * 1024
"""Bytes of an observation that a packet repeats; a longer one is named by its digest, and is on record with its step."""
DIRECTIVE: Final = "_directive"
CUT_SHORT: Final = "CUT_SHORT"
"""The error of a call that was not carried out to its end, because its agent or the orchestrator did not want that."""


@dataclass(frozen=True, slots=True)
class ToolExecution:
    """A directive that was accepted: what is to be carried out, for whom, and since when."""

    tool: str
    arguments: bytes
    packet: AnyPacket
    speaker: Speaker
    reply_builder: ReplyBuilder
    began: float
    submitted: bool = False
    """Whether the agent wrote the directive itself."""


class ToolExecutor:
    """What an environment's tools do in one episode; `clock` counts seconds."""

    def __init__(self, stream: PacketStream, judging: PacketChecker, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._judging = judging
        self._clock = clock

    async def start(self, tool: str, arguments: bytes, speaker: Speaker, tools: Tools) -> ToolExecution | ToolResult:
        """Return the execution of a call, or what the agent is told if it may not be."""
        reply_builder = ReplyBuilder(self._stream, tools)
        try:
            params = msgspec.json.decode(arguments, type=dict[str, Any])
            packet = self._directive(tool, tools[tool], params)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return await self._judging.refuse_early(
                tool, (PreJudgeRefusal("SCHEMA", "the arguments are no JSON object"),), speaker, reply_builder
            )
        except ValidationError as problem:
            return await self._judging.refuse_early(
                tool, (PreJudgeRefusal("SCHEMA", problem.message),), speaker, reply_builder
            )
        return await self.accept(packet, speaker, reply_builder)

    async def accept(
        self, packet: AnyPacket, speaker: Speaker, reply_builder: ReplyBuilder, *, submitted: bool = False
    ) -> ToolExecution | ToolResult:
        """Return the execution of a directive, or what the agent is told if it is refused."""
        method = packet.payload.execution_method
        told = await self._judging.judge(packet, speaker, reply_builder, tried=method.tool_id)
        if isinstance(told, ToolResult):
            return told
        arguments = msgspec.json.encode(method.tool_params or {})
        execution = ToolExecution(method.tool_id, arguments, packet, speaker, reply_builder, self._clock(), submitted)
        if self.may_continue(execution):
            return execution
        # An operator was quicker than the recorder: nothing has run.
        await self._stream.flush()
        return reply_builder.report_stop()

    def may_continue(self, execution: ToolExecution) -> bool:
        """Return whether the directive still waits for its result."""
        return execution.packet.header.packet_id in self._stream.standing.tasks

    async def finish(
        self, execution: ToolExecution, told: ToolResult, pending: PendingRecord, *, inside: bool, cut: str = ""
    ) -> ToolResult:
        """State that a tool was carried out, or cut short as `cut` says; return what the agent is told of it.

        The result of a directive that safe mode has voided is refused by the judge, and on record as such.
        """
        status, error = ResultStatus.SUCCESS, None
        if cut:
            status, error = ResultStatus.CANCELLED, ErrorDetails(CUT_SHORT, cut)
        result = self._result(execution, status, error)
        if not self.may_continue(execution):
            await self._stream.state(result, PROCTOR, pending=pending)
            return execution.reply_builder.report_stop(f"{told.text} ")
        await self._stream.declare_result(
            result,
            lambda: packet_builders.observation_packet(
                self._stream,
                observation_data(told.structured),
                execution.tool,
                {DIRECTIVE: execution.packet.header.packet_id},
            ),
            pending,
        )
        return (
            execution.reply_builder.result(told, execution.packet)
            if execution.submitted
            else execution.reply_builder.with_status(told, inside=inside)
        )

    async def fail(self, execution: ToolExecution, problem: Problem, pending: PendingRecord) -> ToolResult:
        """State that a tool was not carried out to its end; return what the agent is told."""
        error = ErrorDetails(str(problem.code), problem.message, is_transient=False, retry_recommended=False)
        result = self._result(execution, ResultStatus.FAILURE, error)
        if not self.may_continue(execution):
            await self._stream.state(result, PROCTOR, pending=pending)
            return execution.reply_builder.report_stop(f"{problem.message}. ")
        await self._stream.declare(result, pending=pending)
        told = make_error_result(problem)
        return ToolResult(f"{told.text} {execution.reply_builder.describe_status()}", told.structured, is_error=True)

    async def cancel(self) -> None:
        """Close the directives whose end nobody knows, after a restart of the server."""
        for task in list(self._stream.standing.tasks.values()):
            await self._stream.declare(packet_builders.cancellation_packet(self._stream, task.packet_id, task.task_id))

    def _directive(self, tool: str, safety: ToolSafety, params: dict[str, Any]) -> AnyPacket:
        named = choose_token(tool, safety, self._stream.standing, self._stream.now())
        return packet_builders.directive_packet(self._stream, tool, safety, params, named)

    def _result(self, execution: ToolExecution, status: ResultStatus, error: ErrorDetails | None) -> AnyPacket:
        """Return how an execution ended, and what it cost."""
        took = round(max(0.0, self._clock() - execution.began) * 1000, 3)
        return packet_builders.result_packet(self._stream, execution.packet, status, took, error)


def observation_data(structured: bytes) -> dict[str, Any]:
    """Return what a tool answered as the content of an observation; what is long is named by its digest."""
    if len(structured) > MOST_STATED:
        return {"sha256": sha256(structured).hexdigest(), "bytes": len(structured)}
    data: dict[str, Any] = msgspec.json.decode(structured, type=dict[str, Any])
    return data or {"answer": {}}


ENDED: Final = Problem(
    "the environment has ended: its tools do nothing any more, and there is nothing left to act on. Say what you have learned "
    'with `believe`, which ends your work; if that is refused, decide(outcome="CANCEL") and then `believe`',
    Code.ENDED,
)
ACTING_OUTCOMES: Final = (DecisionOutcome.ACT, DecisionOutcome.VERIFY_FIRST)
SAFE_MODE_REFUSAL: Final = (PreJudgeRefusal("E7", "the episode is in safe mode"),)
NO_QUESTION: Final = PreJudgeRefusal(
    "SCHEMA", "no question is pending: say what you ask, and two or three options", "/question"
)
NO_OPTIONS: Final = PreJudgeRefusal(
    "SCHEMA", "an operator needs something to choose from: give two or three options", "/options"
)


class GovernanceToolCalls:
    """What agents say in one episode."""

    def __init__(
        self, stream: PacketStream, judging: PacketChecker, tool_executor: ToolExecutor, acts: OperatorActions
    ) -> None:
        self._stream = stream
        self._judging = judging
        self._errands = tool_executor
        self._acts = acts
        self._requests = TokenRequests(stream, judging)

    async def receive(
        self, saying: GovernanceTool, arguments: bytes, speaker: Speaker, tools: Tools, reply_builder: ReplyBuilder
    ) -> ToolResult | ToolExecution | OperatorQuestion:
        """Return what the agent is told, a tool to execute, or what its call waits for."""
        try:
            form = parse_arguments(saying, arguments)
            match form:
                case Believe():
                    return await self._believe(form, speaker, reply_builder)
                case Decide():
                    return await self._decide(form, speaker, reply_builder)
                case PlanVerification():
                    self.check_running()
                    return await self._judge_packet(
                        packet_builders.plan_packet(self._stream, form), speaker, reply_builder
                    )
                case RequestToken():
                    self.check_running()
                    return await self._requests.handle(form, speaker, tools, reply_builder)
                case Escalate():
                    return await self._escalate(form, speaker, reply_builder)
            return await self._submit_packet(form, speaker, tools, reply_builder)
        except ValidationError as problem:
            expected = "" if problem.expected is None else f"; expected {problem.expected}"
            bars = (PreJudgeRefusal("SCHEMA", f"{problem.message}{expected}"),)
            return await self._judging.refuse_early(saying, bars, speaker, reply_builder, arguments)

    async def in_safe_mode(
        self, tool: str, arguments: bytes, speaker: Speaker, reply_builder: ReplyBuilder
    ) -> ToolResult:
        """Put on record what an agent tried in safe mode; return that it is."""
        await self._stream.record_refusal(tool, encode_attempt(tool, arguments), SAFE_MODE_REFUSAL, speaker)
        return reply_builder.in_safe_mode()

    async def report_answer(
        self, question: OperatorQuestion, speaker: Speaker, reply_builder: ReplyBuilder
    ) -> ToolResult:
        """Return what an operator answered, or that there is no answer yet."""
        if self._stream.in_safe_mode:
            return reply_builder.in_safe_mode()
        waits = self._acts.waits(question.id)
        answer = self._stream.memory.answer
        if question.id.startswith("request_"):
            if waits:
                return reply_builder.waiting("No operator has decided about your token yet.", "request_token()")
            return await self._requests.report_answer(question.id, speaker, reply_builder)
        if not waits and answer is not None and answer.escalation == question.id:
            return reply_builder.report_answer(answer)
        return reply_builder.waiting("No operator has answered yet.", "escalate()")

    def check_running(self) -> None:
        """Refuse what needs an environment that still runs."""
        if self._stream.session.over:
            raise RequestRefused(ENDED)

    # ------------------------------------------------------------------------------------------------------- sayings
    async def _judge_packet(self, packet: AnyPacket, speaker: Speaker, reply_builder: ReplyBuilder) -> ToolResult:
        verdict = await self._judging.judge(packet, speaker, reply_builder)
        return verdict if isinstance(verdict, ToolResult) else reply_builder.accept(verdict)

    async def _believe(self, form: Believe, speaker: Speaker, reply_builder: ReplyBuilder) -> ToolResult:
        packet = packet_builders.belief_packet(self._stream, form)
        if self._stream.position is Position.REVIEW and not self._stream.session.over:
            await self._repeat_observation(packet)
            packet = packet_builders.belief_packet(self._stream, form)
        return await self._judge_packet(packet, speaker, reply_builder)

    async def _repeat_observation(self, belief: AnyPacket) -> None:
        """Begin a new cycle with what was observed last (S7 to S1), if the belief is then accepted."""
        seen = self._stream.memory.seen
        if seen is None:
            return
        again = packet_builders.observation_packet(
            self._stream, msgspec.json.decode(seen.data, type=dict[str, Any]), seen.tool
        )
        if self._stream.would_follow(again, belief):
            await self._stream.declare(again)

    async def _decide(self, form: Decide, speaker: Speaker, reply_builder: ReplyBuilder) -> ToolResult:
        if form.outcome in ACTING_OUTCOMES:
            self.check_running()
        return await self._judge_packet(packet_builders.decision_packet(self._stream, form), speaker, reply_builder)

    async def _escalate(
        self, form: Escalate, speaker: Speaker, reply_builder: ReplyBuilder
    ) -> ToolResult | OperatorQuestion:
        if form.question is None:
            return await self._find_answer(form, speaker, reply_builder)
        if form.options is None:
            return await self._judging.refuse_early(
                GovernanceTool.ESCALATE, (NO_OPTIONS,), speaker, reply_builder, _encode_form(form)
            )
        packet = packet_builders.escalation_packet(self._stream, form.question, form)
        verdict = await self._judging.judge(packet, speaker, reply_builder)
        return (
            verdict if isinstance(verdict, ToolResult) else OperatorQuestion(packet.header.packet_id, form.wait_seconds)
        )

    async def _find_answer(
        self, form: Escalate, speaker: Speaker, reply_builder: ReplyBuilder
    ) -> ToolResult | OperatorQuestion:
        """Return the question that is pending, or the answer that came meanwhile."""
        pending, answer = self._acts.question, self._stream.memory.answer
        if pending is not None:
            return OperatorQuestion(pending.header.packet_id, form.wait_seconds)
        if answer is not None and self._stream.position is Position.DECIDE_AFRESH:
            await self._stream.flush()
            return reply_builder.report_answer(answer)
        return await self._judging.refuse_early(
            GovernanceTool.ESCALATE, (NO_QUESTION,), speaker, reply_builder, _encode_form(form)
        )

    # -------------------------------------------------------------------------------------------------- whole packets
    async def _submit_packet(
        self, form: SubmitPacket, speaker: Speaker, tools: Tools, reply_builder: ReplyBuilder
    ) -> ToolResult | ToolExecution:
        stream = self._stream
        terms = PacketTerms(stream.name, stream.new_id("pkt"), stream.now(), stream.tools_state)
        bars = find_refusals(form.packet, terms, stream.policy)
        if not bars and stream.in_safe_mode:
            bars = SAFE_MODE_REFUSAL
        line = complete_packet(form.packet, terms)
        if not bars and len(line) > stream.packet_limits.packet_bytes:
            bars = size_refusals(line, stream)
        said = stream.read(line)
        if isinstance(said, Packet) and not bars:
            named = islice(reference_refusals(said, stream.agent_packet_ids(speaker)), MOST_LISTED)
            bars = (*content_refusals(said, tools), *named)
        if bars:
            await stream.record_refusal(
                _packet_kind(form.packet), _shorten_packet(msgspec.json.encode(form.packet)), bars, speaker
            )
            return reply_builder.in_safe_mode() if bars is SAFE_MODE_REFUSAL else reply_builder.refuse_early(bars)
        if not isinstance(said, Packet):
            return reply_builder.refuse(await stream.state(said, speaker, line=line), GovernanceTool.SUBMIT_PACKET)
        if _leads_to_action(said):
            self.check_running()
        if isinstance(said.payload, Directive):
            return await self._errands.accept(said, speaker, reply_builder, submitted=True)
        return await self._judge_packet(said, speaker, reply_builder)


def _leads_to_action(packet: AnyPacket) -> bool:
    """Return whether a packet leads to something being done."""
    payload = packet.payload
    if isinstance(payload, Decision):
        return payload.decision_outcome in ACTING_OUTCOMES
    return isinstance(payload, Directive | VerificationPlan)


def _encode_form(form: Escalate) -> bytes:
    """Return a form as JSON."""
    return form.model_dump_json(exclude_none=True).encode()


def _shorten_packet(submitted: bytes) -> bytes:
    """Return what is on record of a packet that was refused before it was judged: one that is too long is only named."""
    return submitted if len(submitted) <= MOST_KEPT else encode_attempt(GovernanceTool.SUBMIT_PACKET, submitted)


def _packet_kind(submitted: dict[str, Any]) -> str:
    """Return what a submitted object says that it is."""
    header = submitted.get("header")
    kind = header.get("packet_type") if isinstance(header, dict) else submitted.get("record")
    return kind[:64] if isinstance(kind, str) else ""
