"""From the form that an agent filled in to the packet that says it.

Rule: a packet leaves here whole and valid, or a ValidationError says what could not be said. Whether it is legal is the judge's
affair, and whether the policy allows it is the governor's.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec

from proctor.contracts.tools import ToolSafety
from proctor.episode.packets.enums import (
    DecisionOutcome,
    EpistemicStatus,
    EscalationTrigger,
    Freshness,
    MethodKind,
    ObservationType,
    OperationType,
    ResolutionMethod,
    ResultStatus,
    SafetyClass,
    TaskType,
    UpdateType,
)
from proctor.episode.packets.fields import (
    AuthorizedScope,
    BeliefChange,
    BeliefUpdate,
    ConstraintsSatisfied,
    ContradictionDetails,
    Decision,
    Directive,
    Epistemics,
    ErrorDetails,
    Escalation,
    EscalationOption,
    EvidenceGap,
    ExecutionMetadata,
    ExecutionMethod,
    FailureMode,
    Intent,
    LoadBearingAssumption,
    ObservationPayload,
    RecommendedStep,
    RejectedAlternative,
    TaskResult,
    Token,
    VerificationPlan,
    VerificationTarget,
)
from proctor.episode.packets.reader import AnyPacket
from proctor.episode.packets.writer import encode_raw, encode_values
from proctor.errors import ValidationError
from proctor.server.governed.episode_memory import REQUEST, EpisodeMemory, TokenRequest
from proctor.server.governed.packet_stream import PacketStream
from proctor.server.governed.tool_arguments import (
    Believe,
    Checks,
    ChoiceArguments,
    Decide,
    Escalate,
    PlanVerification,
    TargetArguments,
    option_id,
)

NO_DECISION: Final = "pkt_none"
"""Named by a plan where nothing was decided, which the judge refuses."""
NO_TOKEN: Final = "token_not_requested"  # noqa: S105  # an id
"""Named by a directive where there is no token at all, which the judge refuses."""
_NOTHING: Final = encode_raw(None, "")
_GAP: Final = "what a human would choose"
_STEP: Final = "choose one of the options"


def belief_packet(stream: PacketStream, form: Believe) -> AnyPacket:
    """Return what an agent believes; its evidence is the latest observation unless it says otherwise."""
    memory = stream.memory
    evidence = form.evidence
    if evidence is None:
        evidence = [] if memory.seen is None else [memory.seen.packet_id]
    unknown = next((name for name in evidence if name not in memory.times), None)
    if unknown is not None:
        raise ValidationError(
            f"evidence: no observation and no result of this episode is called {unknown}",
            expected=_evidence_hint(memory),
        )
    known = any((form.domain, key) in memory.beliefs for key in form.changes)
    kind = UpdateType(form.kind or ("revision" if known else "new_belief"))
    resolved = kind is UpdateType.CONTRADICTION_RESOLVED
    payload = BeliefUpdate(
        update_type=kind,
        belief_changes=[
            BeliefChange(
                form.domain, key, encode_raw(value, "/changes"), memory.beliefs.get((form.domain, key), _NOTHING)
            )
            for key, value in form.changes.items()
        ],
        evidence_integration=list(evidence) or None,
        contradiction_details=ContradictionDetails(list(evidence), ResolutionMethod.PREFER_FRESH) if resolved else None,
    )
    return stream.packet(payload, evidence=stream.references(evidence), epistemics=_agent_epistemics(form.confidence))


def _evidence_hint(memory: EpisodeMemory) -> str:
    latest = "" if memory.seen is None else f", such as {memory.seen.packet_id}"
    return f"ids that you were told as observation_packet_id{latest}, or no evidence: the latest observation"


def _agent_epistemics(confidence: float) -> Epistemics:
    return Epistemics(
        status=EpistemicStatus.DERIVED,
        confidence=confidence,
        calibration_note="stated by the agent",
        freshness_class=Freshness.OPERATIONAL,
        assumptions=[],
    )


def decision_packet(stream: PacketStream, form: Decide) -> AnyPacket:
    """Return what an agent decided."""
    checks = Checks() if form.checks is None else form.checks
    payload = Decision(
        decision_outcome=DecisionOutcome(form.outcome),
        decision_summary=form.summary,
        constraints_satisfied=ConstraintsSatisfied(**dict(checks)),
        load_bearing_assumptions=None
        if form.assumptions is None
        else [LoadBearingAssumption(*each) for each in form.assumptions.items()],
        rejected_alternatives=None
        if form.alternatives is None
        else [RejectedAlternative(f"alternative_{i}", text) for i, text in enumerate(form.alternatives, 1)],
        failure_modes=None if form.risks is None else [FailureMode(text) for text in form.risks],
    )
    return stream.packet(payload, evidence=latest_evidence(stream))


def latest_evidence(stream: PacketStream) -> Any:
    """Return the latest observation as evidence."""
    seen = stream.memory.seen
    return () if seen is None else stream.references([seen.packet_id])


def plan_packet(stream: PacketStream, form: PlanVerification) -> AnyPacket:
    """Return what an agent will verify."""
    targets = [each if isinstance(each, TargetArguments) else TargetArguments(assumption=each) for each in form.targets]
    payload = VerificationPlan(
        plan_id=stream.new_id("plan"),
        triggering_decision_id=stream.memory.decision or NO_DECISION,
        plan_summary=form.summary,
        targets=[
            VerificationTarget(
                target_id=f"target_{i}",
                description=f"verify: {each.assumption}",
                assumption_text=each.assumption,
                verification_method=each.method,
                success_criteria=each.success,
                tool_id=each.tool,
            )
            for i, each in enumerate(targets, 1)
        ],
        max_verification_time_seconds=form.seconds,
        max_tool_calls=form.tool_calls,
    )
    return stream.packet(payload, evidence=latest_evidence(stream))


def escalation_packet(stream: PacketStream, question: str, form: Escalate) -> AnyPacket:
    """Return what an agent asks an operator; the question is what the packet is for."""
    gaps = [_GAP] if form.gaps is None else form.gaps
    payload = Escalation(
        escalation_trigger=EscalationTrigger(form.trigger),
        top_options=[_option(i, each) for i, each in enumerate(form.options or [], 1)],
        evidence_gaps=[EvidenceGap(gap, "the choice may be wrong") for gap in gaps],
        recommended_next_step=RecommendedStep(form.recommended or _STEP, "stated by the agent"),
        blocking_decision_packet_id=stream.memory.decision,
    )
    return stream.packet(payload, intent=Intent(question, "this episode"), evidence=latest_evidence(stream))


def _option(number: int, option: ChoiceArguments | str) -> EscalationOption:
    choice = (
        option
        if isinstance(option, ChoiceArguments)
        else ChoiceArguments(id=option_id(number, option), description=option)
    )
    return EscalationOption(choice.id, choice.description, list(choice.pros), list(choice.cons))


def token_packet(stream: PacketStream, asked: TokenRequest, uses: int, seconds: float) -> AnyPacket:
    """Return the token that answers a request: from layer 1, unused, and not for ever."""
    at = stream.now()
    payload = Token(
        token_id=stream.new_id("token"),
        authorized_scope=AuthorizedScope(list(asked.tools), [OperationType(each) for each in asked.operations]),
        expiry=at + timedelta(seconds=seconds),
        max_usage_count=uses,
        issuer_layer=1,
        rationale=asked.rationale or None,
    )
    return stream.packet(payload, at=at, notes={REQUEST: asked.id}, evidence=latest_evidence(stream))


def directive_packet(
    stream: PacketStream, tool: str, safety: ToolSafety, params: dict[str, Any], token_id: str | None
) -> AnyPacket:
    """Return the task that a call of an environment's tool is."""
    payload = Directive(
        task_id=stream.new_id("task"),
        task_type=TaskType.TOOL_READ if safety is ToolSafety.READ else TaskType.TOOL_WRITE,
        execution_method=ExecutionMethod(
            MethodKind.TOOL, tool, encode_values(params, "/payload/execution_method/tool_params")
        ),
        tool_safety_class=SafetyClass(safety),
        authorization_token_id=token_id,
    )
    return stream.packet(payload, evidence=latest_evidence(stream))


def result_packet(
    stream: PacketStream,
    packet: AnyPacket,
    status: ResultStatus,
    milliseconds: float,
    error: ErrorDetails | None = None,
) -> AnyPacket:
    """Return how a task ended, and what it cost."""
    payload = TaskResult(
        task_id=packet.payload.task_id,
        directive_packet_id=packet.header.packet_id,
        result_status=status,
        error_details=error,
        execution_metadata=ExecutionMetadata(execution_time_ms=milliseconds, tool_calls_used=1),
    )
    return stream.packet(payload)


def cancellation_packet(stream: PacketStream, packet_id: str, task_id: str) -> AnyPacket:
    """Return that nobody knows how a task ended."""
    return stream.packet(TaskResult(task_id, packet_id, ResultStatus.CANCELLED))


def observation_packet(
    stream: PacketStream, data: dict[str, Any], tool: str | None = None, notes: dict[str, object] | None = None
) -> AnyPacket:
    """Return what was seen."""
    payload = ObservationPayload(ObservationType.TOOL_OUTPUT, encode_values(data, "/payload/data"), source_tool=tool)
    return stream.packet(payload, notes=notes or {})


def operations_for_request(stated: Sequence[str] | None, allowed: frozenset[OperationType]) -> list[str]:
    """Return what a request of a token asks for, in a fixed order."""
    return sorted(allowed) if stated is None else sorted(set(stated))


def encode_request(asked: TokenRequest) -> bytes:
    """Return a request as JSON."""
    return msgspec.json.encode(asked)
