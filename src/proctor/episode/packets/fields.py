"""Every field of a packet and of a record, as Structs: reader, list of errors, writer and JSON Schemas are made from them.

A packet is a header, the compliance envelope (`mcp` on the wire) and a payload by its kind; a record is any other line of a
stream: open, close, answer, approval, halt.

Rule 1: a field without a default is required; one whose default is None may also be null; unknown keys are errors.
Rule 2: ids are plain strings with their pattern as an annotation: a packet's ids are matched together when it is read
    (`reader.py`), since one match costs less than five.
Rule 3: content that nobody here reads (`data`, values, parameters) stays raw: its JSON is checked, not decoded.
Rule 4: what one field requires of another stands in `CONDITIONS` (`validation.py`).
Rule 5: a record is what the API does, written down, so that a stream replays alone. `data` of `open` and `approval` is read
    here; what others say in it is kept and not read.
"""

from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct

from proctor.episode.packets import enums
from proctor.episode.packets.enums import PacketKind, RecordKind, RecordSource
from proctor.episode.settings import Clock, LayerRules, OnOverrun, Profile, Settings

# What may stand in an id after its prefix: ids are kept for as long as an episode is open, so they have an end.
ID_TAIL: Final = "[A-Za-z0-9_-]{1,200}"
# The greatest whole number that every reader of JSON agrees on.
GREATEST: Final = 2**53 - 1


def _pattern(prefix: str) -> Meta:
    return Meta(extra_json_schema={"pattern": f"^{prefix}_{ID_TAIL}$"})


PacketId: TypeAlias = Annotated[str, _pattern("pkt")]
CorrelationId: TypeAlias = Annotated[str, _pattern("corr")]
CampaignId: TypeAlias = Annotated[str, _pattern("camp")]
TokenId: TypeAlias = Annotated[str, _pattern("token")]
TaskId: TypeAlias = Annotated[str, _pattern("task")]

Moment: TypeAlias = Annotated[datetime, Meta(tz=True)]
Text: TypeAlias = Annotated[str, Meta(min_length=1)]
Count: TypeAlias = Annotated[int, Meta(ge=0, le=GREATEST)]
Positive: TypeAlias = Annotated[int, Meta(ge=1, le=GREATEST)]
Share: TypeAlias = Annotated[float, Meta(ge=0.0, le=1.0)]
Layer: TypeAlias = Literal[1, 2, 3, 4, 5, 6, "Integrity"]


class PacketPart(Struct, frozen=True, forbid_unknown_fields=True, gc=False, omit_defaults=True):
    """Any part of a packet: a value that refuses what it does not know."""


class Header(PacketPart, frozen=True):
    """Who says something, when, and in which episode."""

    packet_id: PacketId
    packet_type: PacketKind
    created_at: Moment
    layer_source: Layer
    correlation_id: CorrelationId
    campaign_id: CampaignId | None = None
    previous_packet_id: PacketId | None = None


class Intent(PacketPart, frozen=True):
    """What the packet is for."""

    summary: Text
    scope: str | dict[str, Any]


class Stakes(PacketPart, frozen=True):
    """What could go wrong, and how badly."""

    impact: enums.Level
    irreversibility: enums.Irreversibility
    uncertainty: enums.Uncertainty
    adversariality: enums.Adversariality
    stakes_level: enums.Level


class DefinitionOfDone(PacketPart, frozen=True):
    """When the work counts as done."""

    text: Text
    checks: Annotated[list[str], Meta(min_length=1)]


class Quality(PacketPart, frozen=True):
    """How good the work is meant to be."""

    quality_tier: enums.QualityTier
    satisficing_mode: bool
    definition_of_done: DefinitionOfDone
    verification_requirement: enums.VerificationRequirement


class RiskBudget(PacketPart, frozen=True):
    """How much may be lost."""

    envelope: str
    max_loss: str | float


class Budgets(PacketPart, frozen=True):
    """What may be spent."""

    token_budget: Count
    tool_call_budget: Count
    time_budget_seconds: Count
    risk_budget: RiskBudget


class Epistemics(PacketPart, frozen=True):
    """How it is known, and for how long it stays true."""

    status: enums.EpistemicStatus
    confidence: Share
    calibration_note: str
    freshness_class: enums.Freshness
    assumptions: list[str]
    stale_if_older_than_seconds: Count | None = None


class EvidenceRef(PacketPart, frozen=True):
    """One piece of evidence, by name."""

    ref_type: enums.EvidenceKind
    ref_id: str
    timestamp: Moment
    reliability_score: Share | None = None


class Evidence(PacketPart, frozen=True):
    """What it rests on; without references a reason is required."""

    evidence_refs: list[EvidenceRef]
    evidence_absent_reason: str | None = None


class Routing(PacketPart, frozen=True):
    """What sort of task it is, and whether tools can be relied on."""

    task_class: enums.TaskClass
    tools_state: enums.ToolsState


class Compliance(PacketPart, frozen=True):
    """The compliance envelope: seven sections, all required."""

    intent: Intent
    stakes: Stakes
    quality: Quality
    budgets: Budgets
    epistemics: Epistemics
    evidence: Evidence
    routing: Routing


# Any value at all, not read; null if it is absent.
NULL: Final = Raw(b"null")
# An object whose values are not read.
Opaque: TypeAlias = dict[str, Raw]
Amount: TypeAlias = Annotated[float, Meta(ge=0.0, le=float(GREATEST))]


class ReliabilityMetadata(PacketPart, frozen=True):
    """How far an observation can be relied on."""

    tool_success: bool | None = None
    latency_ms: Amount | None = None
    partial_result: bool | None = None


class ObservationPayload(PacketPart, frozen=True):
    """Something was seen."""

    observation_type: enums.ObservationType
    data: Annotated[Opaque, Meta(min_length=1)]
    source_tool: str | None = None
    query_params: Opaque | None = None
    reliability_metadata: ReliabilityMetadata | None = None


class BeliefChange(PacketPart, frozen=True):
    """One belief, before and after."""

    domain: str
    key: str
    new_value: Raw
    prior_value: Raw
    epistemic_upgrade: Raw = NULL


class ContradictionDetails(PacketPart, frozen=True):
    """Which packets disagreed, and who won."""

    conflicting_packet_ids: list[PacketId] | None = None
    resolution_method: enums.ResolutionMethod | None = None


class BeliefUpdate(PacketPart, frozen=True):
    """The model of the world changed."""

    update_type: enums.UpdateType
    belief_changes: Annotated[list[BeliefChange], Meta(min_length=1)]
    evidence_integration: list[PacketId] | None = None
    contradiction_details: ContradictionDetails | None = None


class ConstraintsSatisfied(PacketPart, frozen=True):
    """What the decider says it has checked."""

    constitutional_check: bool
    budget_check: bool
    tier_check: bool
    verification_check: bool | None = None


class ChosenOption(PacketPart, frozen=True):
    """The option that was taken."""

    option_id: str | None = None
    description: str | None = None
    expected_value: Raw = NULL
    risk_profile: Raw = NULL


class RejectedAlternative(PacketPart, frozen=True):
    """An option that was not taken."""

    option_id: str | None = None
    rejection_reason: str | None = None


class LoadBearingAssumption(PacketPart, frozen=True):
    """Something the decision rests on."""

    assumption: str
    verified: bool
    verification_packet_id: PacketId | None = None


class FailureMode(PacketPart, frozen=True):
    """How it could fail."""

    mode: str | None = None
    mitigation: str | None = None


class Decision(PacketPart, frozen=True):
    """Something was decided."""

    decision_outcome: enums.DecisionOutcome
    decision_summary: str
    constraints_satisfied: ConstraintsSatisfied
    chosen_option: ChosenOption | None = None
    rejected_alternatives: list[RejectedAlternative] | None = None
    load_bearing_assumptions: list[LoadBearingAssumption] | None = None
    failure_modes: list[FailureMode] | None = None


class VerificationTarget(PacketPart, frozen=True):
    """One assumption, and how it is verified."""

    target_id: str
    description: str
    assumption_text: str
    verification_method: str
    success_criteria: str
    is_load_bearing: bool = True
    tool_id: str | None = None
    tool_safety: enums.SafetyClass | None = None
    expected_evidence_type: str | None = None
    failure_action: str = "escalate"


class VerificationPlan(PacketPart, frozen=True):
    """What will be verified before anything is done."""

    plan_id: str
    triggering_decision_id: PacketId
    plan_summary: str
    targets: Annotated[list[VerificationTarget], Meta(min_length=1)]
    max_verification_time_seconds: Positive
    max_tool_calls: Positive
    execution_order: list[str] | None = None
    parallel_allowed: bool = False
    on_all_success: str | None = None
    on_any_failure: str | None = None
    partial_success_acceptable: bool = False


class AuthorizedScope(PacketPart, frozen=True):
    """Which tools a token opens, and for what."""

    tool_ids: Annotated[list[str], Meta(min_length=1)]
    operation_types: Annotated[list[enums.OperationType], Meta(min_length=1)]
    resource_constraints: Opaque | None = None


class Token(PacketPart, frozen=True):
    """A permission to write, for a while and so many times."""

    token_id: TokenId
    authorized_scope: AuthorizedScope
    expiry: Moment
    max_usage_count: Positive
    issuer_layer: Layer
    usage_count: Count = 0
    revoked: bool = False
    rationale: str | None = None


class ExecutionMethod(PacketPart, frozen=True):
    """By what means a task is carried out."""

    method: enums.MethodKind
    tool_id: str | None = None
    tool_params: Opaque | None = None
    code_ref: str | None = None
    code_params: Opaque | None = None


class RetryPolicy(PacketPart, frozen=True):
    """How often a task is tried again."""

    max_retries: Count | None = None
    backoff_multiplier: Annotated[float, Meta(ge=1.0)] | None = None


class Directive(PacketPart, frozen=True):
    """A task is given out."""

    task_id: TaskId
    task_type: enums.TaskType
    execution_method: ExecutionMethod
    tool_safety_class: enums.SafetyClass | None = None
    authorization_token_id: TokenId | None = None
    timeout_seconds: Positive | None = None
    retry_policy: RetryPolicy | None = None


class ErrorDetails(PacketPart, frozen=True):
    """Why a task failed."""

    error_code: str | None = None
    error_message: str | None = None
    is_transient: bool | None = None
    retry_recommended: bool | None = None


class ExecutionMetadata(PacketPart, frozen=True):
    """What a task cost."""

    execution_time_ms: Amount | None = None
    tokens_used: Count | None = None
    tool_calls_used: Count | None = None
    retry_count: Count | None = None


class TaskResult(PacketPart, frozen=True):
    """A task came to an end."""

    task_id: TaskId
    directive_packet_id: PacketId
    result_status: enums.ResultStatus
    result_data: Raw = NULL
    error_details: ErrorDetails | None = None
    execution_metadata: ExecutionMetadata | None = None
    observation_packet_id: PacketId | None = None


class EscalationOption(PacketPart, frozen=True):
    """One of the two or three things a human can choose."""

    option_id: str
    description: str
    pros: list[str] | str
    cons: list[str] | str
    risk_summary: str | None = None


class EvidenceGap(PacketPart, frozen=True):
    """What is not known, and why that matters."""

    gap: str
    impact_if_unknown: str
    verification_method: str | None = None


class RecommendedStep(PacketPart, frozen=True):
    """What the one who asks would do."""

    step: str
    rationale: str
    estimated_cost: Raw = NULL


class Escalation(PacketPart, frozen=True):
    """A human is asked."""

    escalation_trigger: enums.EscalationTrigger
    top_options: Annotated[list[EscalationOption], Meta(min_length=2, max_length=3)]
    evidence_gaps: Annotated[list[EvidenceGap], Meta(min_length=1)]
    recommended_next_step: RecommendedStep
    blocking_decision_packet_id: PacketId | None = None


class Alert(PacketPart, frozen=True):
    """Something about the machine itself; `alert_type` "clear" lifts safe mode."""

    alert_id: str
    alert_type: Text
    severity: enums.Severity
    summary: str
    detected_at: Moment
    detection_method: str
    affected_components: list[str] | None = None
    metrics: Opaque | None = None
    threshold_violated: Raw = NULL
    recommended_actions: list[str] | None = None
    auto_action_taken: str | None = None
    related_episode_id: str | None = None
    related_packet_ids: list[PacketId] | None = None
    revoked_token_ids: list[TokenId] | None = None
    requires_immediate_attention: bool = False


PAYLOADS: Final[dict[PacketKind, Any]] = {
    PacketKind.OBSERVATION: ObservationPayload,
    PacketKind.BELIEF_UPDATE: BeliefUpdate,
    PacketKind.DECISION: Decision,
    PacketKind.VERIFICATION_PLAN: VerificationPlan,
    PacketKind.TOKEN: Token,
    PacketKind.DIRECTIVE: Directive,
    PacketKind.RESULT: TaskResult,
    PacketKind.ESCALATION: Escalation,
    PacketKind.ALERT: Alert,
    # Neutral: whatever it says, it is an object.
    PacketKind.QUEUE_UPDATE: Opaque,
}


class OpeningSettings(PacketPart, frozen=True):
    """The settings that differ from the judge's."""

    profile: Profile | None = None
    layer_rules: LayerRules | None = None
    clock: Clock | None = None
    on_overrun: OnOverrun | None = None
    initial_beliefs: bool | list[Any] | None = None

    def over(self, settings: Settings) -> Settings:
        """Return `settings` with what is stated here in its place; a list of beliefs counts if it holds any."""
        stated = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        if "initial_beliefs" in stated:
            stated["initial_beliefs"] = bool(stated["initial_beliefs"])
        return msgspec.structs.replace(settings, **stated)


class Approval(PacketPart, frozen=True):
    """What an operator adds to the budgets."""

    token_budget: Count = 0
    tool_call_budget: Count = 0
    time_budget_seconds: Count = 0
    note: str | None = None


class RecordLine(PacketPart, frozen=True):
    """A record as it stands on a line, its content not yet read."""

    record: RecordKind
    correlation_id: CorrelationId
    at: Moment
    by: RecordSource
    data: Raw = Raw(b"{}")


class Record(PacketPart, frozen=True):
    """A record that was read."""

    record: RecordKind
    correlation_id: CorrelationId
    at: Moment
    by: RecordSource
    data: OpeningSettings | Approval | Opaque

    @property
    def packet_id(self) -> None:
        """A record has no name."""
        return None

    def line(self) -> bytes:
        """Return the record as one line of JSON, without the line's end."""
        return msgspec.json.encode(self)


# What `data` holds, by kind; the others hold any object.
CONTENTS: Final[dict[RecordKind, Any]] = {
    kind: {RecordKind.OPEN: OpeningSettings, RecordKind.APPROVAL: Approval}.get(kind, Opaque) for kind in RecordKind
}
