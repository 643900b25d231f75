"""What an agent calls in a governed episode: the governance tools, the environment's tools, and how it waits for an operator.

Rule 1: whatever an agent calls is an answer (`ToolResult`), a tool to execute (`ToolExecution`), or a question that waits
    (`OperatorQuestion`); never an exception, but for what cannot be put on record and for episodes that are over.
Rule 2: each call of a governance tool becomes a packet, which is judged, recorded and answered. What the machine refuses is its own
    refusal, on record as such; the policy speaks only where the machine would accept.
Rule 3: a call of an environment's tool becomes a directive. Nothing runs before it is accepted and on record, and nothing runs once
    safe mode has voided it, also if that was lifted since.
Rule 4: every directive that ran gets one result, and what was seen becomes an observation where the table has room for one.
Rule 5: a token that is asked for is issued by the proctor within limits, put before an operator, or refused, as the policy says.
Rule 6: in safe mode every call is refused; only an operator's clear lifts it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import msgspec

from proctor.episode.packets.enums import DecisionOutcome, ResultStatus
from proctor.episode.packets.fields import Decision, Directive, ErrorDetails, VerificationPlan
from proctor.episode.packets.reader import AnyPacket, Packet
from proctor.episode.rules.governance import POLICY_3
from proctor.episode.transition_table import Position
from proctor.episode.verdicts import Verdict
from proctor.errors import ValidationError
from proctor.models.control import Code, Problem
from proctor.server.governed import governance_tools, packet_builders, packet_checks
from proctor.server.governed.episode_memory import TokenRequest, name_by_digest
from proctor.server.governed.packet_stream import MOST_LISTED, PROCTOR, PacketStream, PreJudgeRefusal, Speaker
from proctor.server.governed.policy import TokenIssuer
from proctor.server.governed.replies import ReplyBuilder, Tools
from proctor.server.runtime.results import RequestRefused
from proctor.server.sessions.session import PendingRecord
from proctor.server.sessions.tool_results import ToolResult, make_error_result

MOST_WAITING: Final = 32
"""Calls of agents that may wait for an operator in one episode."""
RECHECK_SECONDS: Final = 1.0
"""After so long a call that waits looks whether it may still wait: not everything that ends a wait rings a bell."""
MOST_PENDING: Final = 16
"""Requests of tokens of all agents of an episode."""
MOST_STATED: Final = 16 * 1024
"""Bytes of an observation that a packet repeats; a longer one is named by its digest, and is on record with its step."""
BUSY: Final = Problem("too many calls wait for the operator in this episode", Code.BUSY, expected="one call at a time")
ENDED: Final = Problem(
    "the environment has ended: its tools do nothing any more, and there is nothing left to act on. Say what you have learned "
    'with `believe`, which ends your work; if that is refused, decide(outcome="CANCEL") and then `believe`',
    Code.ENDED,
)
AFTER_END: Final = PreJudgeRefusal(Code.ENDED, "the environment has ended")
IN_SAFE_MODE: Final = PreJudgeRefusal("E7", "the episode is in safe mode")
NO_QUESTION: Final = PreJudgeRefusal(
    "SCHEMA", "no question is pending: say what you ask, and two or three options", "/question"
)
NO_OPTIONS: Final = PreJudgeRefusal(
    "SCHEMA", "an operator needs something to choose from: give two or three options", "/options"
)
PENDING: Final = PreJudgeRefusal(
    POLICY_3, "your request of a token waits for an operator: call request_token without tools to wait for the answer"
)
NOTHING_PENDING: Final = PreJudgeRefusal(POLICY_3, "no request of yours is pending: name the tools that you need")
NAME_AGAIN: Final = "name the tools that you need, to ask for another"
ACTING_OUTCOMES: Final = (DecisionOutcome.ACT, DecisionOutcome.VERIFY_FIRST)
DIRECTIVE: Final = "_directive"
CUT_SHORT: Final = "CUT_SHORT"
"""The error of a call that was not carried out to its end, because its agent or the orchestrator did not want that."""


@dataclass(frozen=True, slots=True)
class OperatorQuestion:
    """Something that waits for an operator: its id, and how long the agent's call waits for the answer."""

    id: str
    seconds: float


class ToolExecution:
    """A directive that was accepted: a tool of the environment that is to be used; `submitted` if its agent wrote it itself."""

    def __init__(self, stream: PacketStream, replies: ReplyBuilder, packet: AnyPacket, *, submitted: bool) -> None:
        method = packet.payload.execution_method
        self.tool: Final[str] = method.tool_id
        self.arguments: Final = msgspec.json.encode(method.tool_params or {})
        self._began = stream.clock()
        self._packet = packet
        self._replies = replies
        self._stream = stream
        self._submitted = submitted

    @property
    def holds(self) -> bool:
        """Whether the directive still waits for its result: safe mode and an overrun void it."""
        return self._packet.header.packet_id in self._stream.standing.tasks

    async def finish(self, told: ToolResult, pending: PendingRecord, *, inside: bool, cut: str = "") -> ToolResult:
        """State that the tool was used, or cut short as `cut` says; return what the agent is told.

        Its steps may be `pending`: they are safe when this returns. The result of a directive that safe mode has voided is refused
        by the judge, and on record as such.
        """
        error = ErrorDetails(CUT_SHORT, cut) if cut else None
        result = self._result(ResultStatus.CANCELLED if cut else ResultStatus.SUCCESS, error)
        if not self.holds:
            await self._stream.state(result, PROCTOR, pending=pending)
            return self._replies.report_stop(f"{told.text} ")
        notes: dict[str, object] = {DIRECTIVE: self._packet.header.packet_id}
        data = observation_data(told.structured)
        await self._stream.declare_result(
            result, lambda: packet_builders.observation_packet(self._stream, data, self.tool, notes), pending
        )
        if self._submitted:
            return self._replies.result(told, self._packet)
        return self._replies.with_status(told, inside=inside)

    async def fail(self, problem: Problem, pending: PendingRecord) -> ToolResult:
        """State that the tool was not used to its end; return what the agent is told."""
        error = ErrorDetails(str(problem.code), problem.message, is_transient=False, retry_recommended=False)
        result = self._result(ResultStatus.FAILURE, error)
        if not self.holds:
            await self._stream.state(result, PROCTOR, pending=pending)
            return self._replies.report_stop(f"{problem.message}. ")
        await self._stream.declare(result, pending=pending)
        told = make_error_result(problem)
        return ToolResult(f"{told.text} {self._replies.describe_status()}", told.structured, is_error=True)

    def _result(self, status: ResultStatus, error: ErrorDetails | None) -> AnyPacket:
        self._stream.check_open()
        took = round(max(0.0, self._stream.clock() - self._began) * 1000, 3)
        return packet_builders.result_packet(self._stream, self._packet, status, took, error)


class GovernedCall:
    """One call of an agent; `tools` are those of the environment that its grant has."""

    def __init__(self, stream: PacketStream, grant: str, tool: str, arguments: bytes, tools: Tools) -> None:
        self._stream = stream
        self._tool = tool
        self._arguments = arguments
        self._tools = tools
        self._speaker = Speaker("agent", grant, tool)
        self.replies: Final = ReplyBuilder(stream, tools)

    async def receive(self) -> ToolResult | ToolExecution | OperatorQuestion:
        """Hear the call, in the session's turn."""
        stream, tool = self._stream, self._tool
        stream.check_open()
        if len(self._arguments) > stream.packet_limits.packet_bytes:
            # Not read at all: what it says is of no interest.
            return await self._refuse(*packet_checks.size_refusals(self._arguments, stream))
        if stream.in_safe_mode and tool != governance_tools.GovernanceTool.SUBMIT_PACKET:
            # What is submitted is held against GOV-1 first: who forges a clear is told that it is forged.
            await self._record_attempt(IN_SAFE_MODE)
            return self.replies.in_safe_mode()
        try:
            if tool not in governance_tools.GOVERNANCE_TOOL_NAMES:
                return await self._use_tool()
            return await self._hear(
                governance_tools.parse_arguments(governance_tools.GovernanceTool(tool), self._arguments)
            )
        except ValidationError as problem:
            expected = "" if problem.expected is None else f"; expected {problem.expected}"
            return await self._refuse(PreJudgeRefusal("SCHEMA", f"{problem.message}{expected}"))

    async def wait_for_answer(self, question: OperatorQuestion, check: Callable[[], None]) -> ToolResult:
        """Return an operator's answer, or that there is none yet; not in the session's turn.

        `check` refuses once the agent may not wait any more; it is asked whenever the notifier wakes it, and now and then.
        """
        stream = self._stream
        if stream.notifier.waiting >= MOST_WAITING:
            raise RequestRefused(BUSY)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(question.seconds, stream.policy.escalation.answer_seconds)
        while stream.waits(question.id) and not stream.closing and not stream.in_safe_mode:
            left = deadline - loop.time()
            if left <= 0:
                break
            await stream.notifier.wait(min(left, RECHECK_SECONDS))
            check()
        await stream.flush()
        stream.check_open()
        check()
        return await self._report_answer(question.id)

    async def _report_answer(self, question: str) -> ToolResult:
        stream, answer = self._stream, self._stream.memory.answer
        if stream.in_safe_mode:
            return self.replies.in_safe_mode()
        if question.startswith("request_"):
            if stream.waits(question):
                return self.replies.waiting("No operator has decided about your token yet.", "request_token()")
            return await self._report_request(question)
        if not stream.waits(question) and answer is not None and answer.escalation == question:
            return self.replies.report_answer(answer)
        return self.replies.waiting("No operator has answered yet.", "escalate()")

    async def _hear(self, form: Any) -> ToolResult | ToolExecution | OperatorQuestion:
        stream = self._stream
        match form:
            case governance_tools.Believe():
                return await self._believe(form)
            case governance_tools.Decide():
                if form.outcome in ACTING_OUTCOMES:
                    await self._check_running()
                return await self._state(packet_builders.decision_packet(stream, form))
            case governance_tools.PlanVerification():
                await self._check_running()
                return await self._state(packet_builders.plan_packet(stream, form))
            case governance_tools.RequestToken():
                await self._check_running()
                return await self._request_token(form)
            case governance_tools.Escalate():
                return await self._escalate(form)
        return await self._submit_packet(form)

    async def _judge(self, packet: AnyPacket, tried: str, speaker: Speaker | None = None) -> Verdict | ToolResult:
        """Return the verdict on a packet that counts now, or what its agent is told if it does not; `tried` is what it called."""
        stream, speaker = self._stream, self._speaker if speaker is None else speaker
        line, name = packet.line(), packet.header.packet_id
        if len(line) > stream.packet_limits.packet_bytes:
            bars = packet_checks.size_refusals(line, stream)
            digest = msgspec.json.encode(name_by_digest(line))
            await stream.record_refusal(packet.kind, digest, bars, speaker, name)
            return self.replies.refuse_early(bars)
        verdict = stream.judge(packet)
        bars = packet_checks.policy_refusals(packet, speaker.grant, stream) if verdict.accepted else ()
        if bars:
            await stream.record_refusal(packet.kind, line, bars, speaker, name)
            return self.replies.refuse_early(bars, self.replies.way_past(bars[0].rule, tried))
        await stream.state(packet, speaker, line=line, verdict=verdict)
        return verdict if verdict.accepted else self.replies.refuse(verdict, tried)

    async def _state(self, packet: AnyPacket) -> ToolResult:
        verdict = await self._judge(packet, self._tool)
        return verdict if isinstance(verdict, ToolResult) else self.replies.accept(verdict)

    async def _record_attempt(self, *bars: PreJudgeRefusal) -> None:
        attempt = packet_checks.encode_attempt(self._tool, self._arguments)
        await self._stream.record_refusal(self._tool, attempt, bars, self._speaker)

    async def _refuse(self, *bars: PreJudgeRefusal) -> ToolResult:
        """Put on record that the call was refused before it was a packet; return what the agent is told."""
        await self._record_attempt(*bars)
        return self.replies.refuse_early(bars)

    async def _check_running(self) -> None:
        if self._stream.session.over:
            await self._record_attempt(AFTER_END)
            raise RequestRefused(ENDED)

    async def _use_tool(self) -> ToolExecution | ToolResult:
        await self._check_running()
        try:
            params = msgspec.json.decode(self._arguments, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return await self._refuse(PreJudgeRefusal("SCHEMA", "the arguments are no JSON object"))
        return await self._execute(
            packet_builders.directive_packet(self._stream, self._tool, self._tools[self._tool], params)
        )

    async def _execute(self, packet: AnyPacket, *, submitted: bool = False) -> ToolExecution | ToolResult:
        told = await self._judge(packet, packet.payload.execution_method.tool_id)
        if isinstance(told, ToolResult):
            return told
        execution = ToolExecution(self._stream, self.replies, packet, submitted=submitted)
        if execution.holds:
            return execution
        # An operator was quicker than the recorder: nothing has run.
        await self._stream.flush()
        return self.replies.report_stop()

    async def _believe(self, form: governance_tools.Believe) -> ToolResult:
        stream, packet, seen = self._stream, packet_builders.belief_packet(self._stream, form), self._stream.memory.seen
        if stream.position is Position.REVIEW and not stream.session.over and seen is not None:
            # A new cycle begins with what was observed last (S7 to S1), if the belief is then accepted.
            data = msgspec.json.decode(seen.data, type=dict[str, Any])
            again = packet_builders.observation_packet(stream, data, seen.tool)
            if stream.would_follow(again, packet):
                await stream.declare(again)
            packet = packet_builders.belief_packet(stream, form)
        return await self._state(packet)

    async def _escalate(self, form: governance_tools.Escalate) -> ToolResult | OperatorQuestion:
        if form.question is None:
            return await self._find_answer(form.wait_seconds)
        if form.options is None:
            return await self._refuse(NO_OPTIONS)
        packet = packet_builders.escalation_packet(self._stream, form.question, form)
        told = await self._judge(packet, self._tool)
        return told if isinstance(told, ToolResult) else OperatorQuestion(packet.header.packet_id, form.wait_seconds)

    async def _find_answer(self, seconds: float) -> ToolResult | OperatorQuestion:
        pending, answer = self._stream.question, self._stream.memory.answer
        if pending is not None:
            return OperatorQuestion(pending.header.packet_id, seconds)
        if answer is not None and self._stream.position is Position.DECIDE_AFRESH:
            await self._stream.flush()
            return self.replies.report_answer(answer)
        return await self._refuse(NO_QUESTION)

    async def _request_token(self, form: governance_tools.RequestToken) -> ToolResult | OperatorQuestion:
        stream, grant = self._stream, self._speaker.grant
        limits, requests = stream.policy.tokens, stream.memory.requests
        pending = next((each for each in requests.values() if each.grant == grant), None)
        if form.tools is None:
            if pending is not None:
                return OperatorQuestion(pending.id, form.wait_seconds)
            await stream.flush()
            decided = stream.memory.decided.get(grant or "")
            return await (self._refuse(NOTHING_PENDING) if decided is None else self._report_request(decided))
        asked = TokenRequest(
            id=stream.new_id("request"),
            tools=list(dict.fromkeys(form.tools)),
            operations=sorted(limits.operations if form.operations is None else set(form.operations)),
            uses=limits.max_uses if form.uses is None else form.uses,
            rationale=form.rationale or "",
            grant=grant,
            since=stream.now().timestamp(),
        )
        bars = packet_checks.token_refusals(asked.tools, asked.operations, asked.uses, list(self._tools), stream.policy)
        if not bars and (pending is not None or len(requests) >= MOST_PENDING):
            bars = (PENDING,)
        return await (self._refuse(*bars) if bars else self._issue_or_ask(asked, form.wait_seconds))

    async def _issue_or_ask(self, asked: TokenRequest, seconds: float) -> ToolResult | OperatorQuestion:
        """Issue a token at once, or put the request before an operator, unless no token could be issued now."""
        stream, limits = self._stream, self._stream.policy.tokens
        packet = packet_builders.token_packet(stream, asked, asked.uses, limits.life_seconds)
        if (
            limits.issuer is not TokenIssuer.AUTO
            and stream.judge(packet).accepted
            and not packet_checks.policy_refusals(packet, asked.grant, stream)
        ):
            await stream.note(asked, self._speaker)
            return OperatorQuestion(asked.id, seconds)
        # The proctor states it, because of the agent's call.
        told = await self._judge(packet, self._tool, Speaker("system", asked.grant, self._tool))
        if isinstance(told, ToolResult):
            return told
        return self.replies.report_token(stream.standing.tokens[packet.payload.token_id])

    async def _report_request(self, request: str) -> ToolResult:
        """Return what became of a request; a token that opens nothing any more is told as such."""
        stream = self._stream
        permit = stream.standing.tokens.get(stream.memory.issued.get(request, ""))
        denied = stream.memory.denied.get(request)
        if permit is not None and permit.live(stream.now()):
            return self.replies.report_token(permit)
        if permit is not None:
            spent = "used up" if permit.used >= permit.limit else "expired"
            reason = f"the token that you got is {'revoked' if permit.revoked else spent}: {NAME_AGAIN}"
        elif denied is None:
            reason = f"your request is withdrawn, by a later decision of yours or by safe mode: {NAME_AGAIN}"
        else:
            reason = "the operator denied the token" + (f": {denied.text}" if denied.text else "")
        return await self._refuse(PreJudgeRefusal(POLICY_3, reason))

    async def _submit_packet(self, form: governance_tools.SubmitPacket) -> ToolResult | ToolExecution:
        stream, submitted = self._stream, form.packet
        terms = packet_checks.PacketTerms(stream.name, stream.new_id("pkt"), stream.now(), stream.tools_state)
        line = packet_checks.complete_packet(submitted, terms)
        said = stream.read(line)
        bars = packet_checks.find_refusals(submitted, terms, stream.policy)
        if not bars and stream.in_safe_mode:
            await self._record_submission(submitted, (IN_SAFE_MODE,))
            return self.replies.in_safe_mode()
        if not bars and len(line) > stream.packet_limits.packet_bytes:
            bars = packet_checks.size_refusals(line, stream)
        if isinstance(said, Packet) and not bars:
            named = islice(packet_checks.reference_refusals(said, stream.agent_packet_ids(self._speaker)), MOST_LISTED)
            bars = (*packet_checks.content_refusals(said, self._tools), *named)
        if bars:
            await self._record_submission(submitted, bars)
            return self.replies.refuse_early(bars)
        if not isinstance(said, Packet):
            return self.replies.refuse(await stream.state(said, self._speaker, line=line), self._tool)
        payload = said.payload
        if isinstance(payload, Directive | VerificationPlan) or (
            isinstance(payload, Decision) and payload.decision_outcome in ACTING_OUTCOMES
        ):
            await self._check_running()
        return await (self._execute(said, submitted=True) if isinstance(payload, Directive) else self._state(said))

    async def _record_submission(self, submitted: dict[str, Any], bars: tuple[PreJudgeRefusal, ...]) -> None:
        """Put on record that a submitted object was refused before it was judged; one that is too long is only named."""
        header = submitted.get("header")
        kind = header.get("packet_type") if isinstance(header, dict) else submitted.get("record")
        line = msgspec.json.encode(submitted)
        kept = line if len(line) <= packet_checks.MOST_KEPT else packet_checks.encode_attempt(self._tool, line)
        await self._stream.record_refusal(kind[:64] if isinstance(kind, str) else "", kept, bars, self._speaker)


def observation_data(structured: bytes) -> dict[str, Any]:
    """Return what a tool answered as the content of an observation; what is long is named by its digest."""
    if len(structured) > MOST_STATED:
        return name_by_digest(structured)
    data: dict[str, Any] = msgspec.json.decode(structured, type=dict[str, Any])
    return data or {"answer": {}}
