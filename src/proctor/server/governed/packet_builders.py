"""From the form that an agent filled in to the packet that says it.

Rule: a packet leaves here whole and valid, or a ValidationError says what could not be said. Whether it is legal is the judge's
affair, and whether the policy allows it is the governor's.
"""

from datetime import datetime, timedelta
from typing import Any, Final

from proctor.contracts.tools import ToolSafety
from proctor.episode.episode_state import EpisodeState, IssuedToken
from proctor.episode.packets import enums, fields
from proctor.episode.packets.reader import AnyPacket
from proctor.episode.packets.writer import encode_raw, encode_values
from proctor.episode.rules.contract import ALLOWED_OPERATIONS
from proctor.episode.transition_table import Event
from proctor.errors import ValidationError
from proctor.server.governed.episode_memory import REQUEST, TokenRequest
from proctor.server.governed.governance_tools import (
    Believe,
    Checks,
    ChoiceArguments,
    Decide,
    Escalate,
    PlanVerification,
    TargetArguments,
    option_id,
)
from proctor.server.governed.packet_stream import PacketStream

NO_DECISION: Final = "pkt_none"
"""Named by a plan where nothing was decided, which the judge refuses."""
NO_TOKEN: Final = "token_not_requested"  # noqa: S105  # an id
"""Named by a directive where there is no token at all, which the judge refuses."""
_NOTHING: Final = encode_raw(None, "")


def belief_packet(stream: PacketStream, form: Believe) -> AnyPacket:
    """Return what an agent believes; its evidence is the latest observation unless it says otherwise."""
    memory = stream.memory
    latest = [] if memory.seen is None else [memory.seen.packet_id]
    evidence = latest if form.evidence is None else form.evidence
    unknown = next((name for name in evidence if name not in memory.times), None)
    if unknown is not None:
        known_ids = ", such as ".join(["ids that you were told as observation_packet_id", *latest])
        raise ValidationError(
            f"evidence: no observation and no result of this episode is called {unknown}",
            expected=f"{known_ids}, or no evidence: the latest observation",
        )
    known = any((form.domain, key) in memory.beliefs for key in form.changes)
    kind = enums.UpdateType(form.kind or ("revision" if known else "new_belief"))
    resolved = kind is enums.UpdateType.CONTRADICTION_RESOLVED
    payload = fields.BeliefUpdate(
        update_type=kind,
        belief_changes=[
            fields.BeliefChange(
                form.domain, key, encode_raw(value, "/changes"), memory.beliefs.get((form.domain, key), _NOTHING)
            )
            for key, value in form.changes.items()
        ],
        evidence_integration=list(evidence) or None,
        contradiction_details=fields.ContradictionDetails(list(evidence), enums.ResolutionMethod.PREFER_FRESH)
        if resolved
        else None,
    )
    epistemics = fields.Epistemics(
        status=enums.EpistemicStatus.DERIVED,
        confidence=form.confidence,
        calibration_note="stated by the agent",
        freshness_class=enums.Freshness.OPERATIONAL,
        assumptions=[],
    )
    return stream.packet(payload, evidence=stream.references(evidence), epistemics=epistemics)


def decision_packet(stream: PacketStream, form: Decide) -> AnyPacket:
    """Return what an agent decided."""
    checks = Checks() if form.checks is None else form.checks
    payload = fields.Decision(
        decision_outcome=enums.DecisionOutcome(form.outcome),
        decision_summary=form.summary,
        constraints_satisfied=fields.ConstraintsSatisfied(**dict(checks)),
        load_bearing_assumptions=None
        if form.assumptions is None
        else [fields.LoadBearingAssumption(*each) for each in form.assumptions.items()],
        rejected_alternatives=None
        if form.alternatives is None
        else [fields.RejectedAlternative(f"alternative_{i}", text) for i, text in enumerate(form.alternatives, 1)],
        failure_modes=None if form.risks is None else [fields.FailureMode(text) for text in form.risks],
    )
    return stream.packet(payload, evidence=stream.latest_evidence())


def plan_packet(stream: PacketStream, form: PlanVerification) -> AnyPacket:
    """Return what an agent will verify."""
    targets = [each if isinstance(each, TargetArguments) else TargetArguments(assumption=each) for each in form.targets]
    payload = fields.VerificationPlan(
        plan_id=stream.new_id("plan"),
        triggering_decision_id=stream.memory.decision or NO_DECISION,
        plan_summary=form.summary,
        targets=[
            fields.VerificationTarget(
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
    return stream.packet(payload, evidence=stream.latest_evidence())


def escalation_packet(stream: PacketStream, question: str, form: Escalate) -> AnyPacket:
    """Return what an agent asks an operator; the question is what the packet is for."""
    options = [
        each if isinstance(each, ChoiceArguments) else ChoiceArguments(id=option_id(i, each), description=each)
        for i, each in enumerate(form.options or [], 1)
    ]
    gaps = ["what a human would choose"] if form.gaps is None else form.gaps
    payload = fields.Escalation(
        escalation_trigger=enums.EscalationTrigger(form.trigger),
        top_options=[fields.EscalationOption(each.id, each.description, each.pros, each.cons) for each in options],
        evidence_gaps=[fields.EvidenceGap(gap, "the choice may be wrong") for gap in gaps],
        recommended_next_step=fields.RecommendedStep(
            form.recommended or "choose one of the options", "stated by the agent"
        ),
        blocking_decision_packet_id=stream.memory.decision,
    )
    return stream.packet(payload, intent=fields.Intent(question, "this episode"), evidence=stream.latest_evidence())


def token_packet(stream: PacketStream, asked: TokenRequest, uses: int, seconds: float) -> AnyPacket:
    """Return the token that answers a request: from layer 1, unused, and not for ever."""
    at = stream.now()
    payload = fields.Token(
        token_id=stream.new_id("token"),
        authorized_scope=fields.AuthorizedScope(
            list(asked.tools), [enums.OperationType(each) for each in asked.operations]
        ),
        expiry=at + timedelta(seconds=seconds),
        max_usage_count=uses,
        issuer_layer=1,
        rationale=asked.rationale or None,
    )
    return stream.packet(payload, at=at, notes={REQUEST: asked.id}, evidence=stream.latest_evidence())


def directive_packet(stream: PacketStream, tool: str, safety: ToolSafety, params: dict[str, Any]) -> AnyPacket:
    """Return the task that a call of an environment's tool is."""
    payload = fields.Directive(
        task_id=stream.new_id("task"),
        task_type=enums.TaskType.TOOL_READ if safety is ToolSafety.READ else enums.TaskType.TOOL_WRITE,
        execution_method=fields.ExecutionMethod(
            enums.MethodKind.TOOL, tool, encode_values(params, "/payload/execution_method/tool_params")
        ),
        tool_safety_class=enums.SafetyClass(safety),
        authorization_token_id=choose_token(tool, safety, stream.standing, stream.now()),
    )
    return stream.packet(payload, evidence=stream.latest_evidence())


def choose_token(tool: str, safety: ToolSafety, episode: EpisodeState, now: datetime) -> str | None:
    """Return the id of the token that a call of `tool` names; none for a tool that only reads.

    It is the latest that opens the tool. Where none does, it is the one that comes nearest, so that the judge can say what is
    wrong with it.
    """
    if safety is ToolSafety.READ:
        return None
    permits = list(reversed(episode.tokens.values()))
    live = [permit for permit in permits if permit.live(now)]
    fitting = [permit for permit in live if token_opens(permit, tool)]
    return next((permit.token_id for permit in (*fitting, *live, *permits)), NO_TOKEN)


def token_opens(permit: IssuedToken, tool: str) -> bool:
    """Return whether a token is for this tool, and for acting with it."""
    return tool in permit.tool_ids and not ALLOWED_OPERATIONS[Event.WRITE].isdisjoint(permit.operations)


def result_packet(
    stream: PacketStream,
    packet: AnyPacket,
    status: enums.ResultStatus,
    milliseconds: float,
    error: fields.ErrorDetails | None = None,
) -> AnyPacket:
    """Return how a task ended, and what it cost."""
    payload = fields.TaskResult(
        task_id=packet.payload.task_id,
        directive_packet_id=packet.header.packet_id,
        result_status=status,
        error_details=error,
        execution_metadata=fields.ExecutionMetadata(execution_time_ms=milliseconds, tool_calls_used=1),
    )
    return stream.packet(payload)


def observation_packet(
    stream: PacketStream, data: dict[str, Any], tool: str | None = None, notes: dict[str, object] | None = None
) -> AnyPacket:
    """Return what was seen."""
    payload = fields.ObservationPayload(
        enums.ObservationType.TOOL_OUTPUT, encode_values(data, "/payload/data"), source_tool=tool
    )
    return stream.packet(payload, notes=notes or {})
