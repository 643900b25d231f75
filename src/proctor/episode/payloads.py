"""What the nine packets state, each as one Struct.

Rule 1: a field without a default is required; one whose default is None may also be null; unknown keys are errors.
Rule 2: content that nobody here reads (`data`, values, parameters) stays raw: its JSON is checked, not decoded.
Rule 3: what one field requires of another stands in `conditions.py`.
"""

from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta, Raw

from proctor.episode.envelope import GREATEST, Count, Layer, Moment, PacketId, Part, Positive, TaskId, Text, TokenId
from proctor.episode.kinds import (
    DecisionOutcome,
    EscalationTrigger,
    Method,
    ObservationType,
    OperationType,
    PacketKind,
    ResolutionMethod,
    ResultStatus,
    SafetyClass,
    Severity,
    TaskType,
    UpdateType,
)

# Any value at all, not read; null if it is absent.
NULL: Final = Raw(b"null")
# An object whose values are not read.
Opaque: TypeAlias = dict[str, Raw]
Amount: TypeAlias = Annotated[float, Meta(ge=0.0, le=float(GREATEST))]


class ReliabilityMetadata(Part, frozen=True):
    """How far an observation can be relied on."""

    tool_success: bool | None = None
    latency_ms: Amount | None = None
    partial_result: bool | None = None


class Observation(Part, frozen=True):
    """Something was seen."""

    observation_type: ObservationType
    data: Annotated[Opaque, Meta(min_length=1)]
    source_tool: str | None = None
    query_params: Opaque | None = None
    reliability_metadata: ReliabilityMetadata | None = None


class BeliefChange(Part, frozen=True):
    """One belief, before and after."""

    domain: str
    key: str
    new_value: Raw
    prior_value: Raw
    epistemic_upgrade: Raw = NULL


class ContradictionDetails(Part, frozen=True):
    """Which packets disagreed, and who won."""

    conflicting_packet_ids: list[PacketId] | None = None
    resolution_method: ResolutionMethod | None = None


class BeliefUpdate(Part, frozen=True):
    """The model of the world changed."""

    update_type: UpdateType
    belief_changes: Annotated[list[BeliefChange], Meta(min_length=1)]
    evidence_integration: list[PacketId] | None = None
    contradiction_details: ContradictionDetails | None = None


class ConstraintsSatisfied(Part, frozen=True):
    """What the decider says it has checked."""

    constitutional_check: bool
    budget_check: bool
    tier_check: bool
    verification_check: bool | None = None


class ChosenOption(Part, frozen=True):
    """The option that was taken."""

    option_id: str | None = None
    description: str | None = None
    expected_value: Raw = NULL
    risk_profile: Raw = NULL


class RejectedAlternative(Part, frozen=True):
    """An option that was not taken."""

    option_id: str | None = None
    rejection_reason: str | None = None


class LoadBearingAssumption(Part, frozen=True):
    """Something the decision rests on."""

    assumption: str
    verified: bool
    verification_packet_id: PacketId | None = None


class FailureMode(Part, frozen=True):
    """How it could fail."""

    mode: str | None = None
    mitigation: str | None = None


class Decision(Part, frozen=True):
    """Something was decided."""

    decision_outcome: DecisionOutcome
    decision_summary: str
    constraints_satisfied: ConstraintsSatisfied
    chosen_option: ChosenOption | None = None
    rejected_alternatives: list[RejectedAlternative] | None = None
    load_bearing_assumptions: list[LoadBearingAssumption] | None = None
    failure_modes: list[FailureMode] | None = None


class VerificationTarget(Part, frozen=True):
    """One assumption, and how it is verified."""

    target_id: str
    description: str
    assumption_text: str
    verification_method: str
    success_criteria: str
    is_load_bearing: bool = True
    tool_id: str | None = None
    tool_safety: SafetyClass | None = None
    expected_evidence_type: str | None = None
    failure_action: str = "escalate"


class VerificationPlan(Part, frozen=True):
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


class AuthorizedScope(Part, frozen=True):
    """Which tools a token opens, and for what."""

    tool_ids: Annotated[list[str], Meta(min_length=1)]
    operation_types: Annotated[list[OperationType], Meta(min_length=1)]
    resource_constraints: Opaque | None = None


class Token(Part, frozen=True):
    """A permission to write, for a while and so many times."""

    token_id: TokenId
    authorized_scope: AuthorizedScope
    expiry: Moment
    max_usage_count: Positive
    issuer_layer: Layer
    usage_count: Count = 0
    revoked: bool = False
    rationale: str | None = None


class ExecutionMethod(Part, frozen=True):
    """By what means a task is carried out."""

    method: Method
    tool_id: str | None = None
    tool_params: Opaque | None = None
    code_ref: str | None = None
    code_params: Opaque | None = None


class RetryPolicy(Part, frozen=True):
    """How often a task is tried again."""

    max_retries: Count | None = None
    backoff_multiplier: Annotated[float, Meta(ge=1.0)] | None = None


class Directive(Part, frozen=True):
    """A task is given out."""

    task_id: TaskId
    task_type: TaskType
    execution_method: ExecutionMethod
    tool_safety_class: SafetyClass | None = None
    authorization_token_id: TokenId | None = None
    timeout_seconds: Positive | None = None
    retry_policy: RetryPolicy | None = None


class ErrorDetails(Part, frozen=True):
    """Why a task failed."""

    error_code: str | None = None
    error_message: str | None = None
    is_transient: bool | None = None
    retry_recommended: bool | None = None


class ExecutionMetadata(Part, frozen=True):
    """What a task cost."""

    execution_time_ms: Amount | None = None
    tokens_used: Count | None = None
    tool_calls_used: Count | None = None
    retry_count: Count | None = None


class Result(Part, frozen=True):
    """A task came to an end."""

    task_id: TaskId
    directive_packet_id: PacketId
    result_status: ResultStatus
    result_data: Raw = NULL
    error_details: ErrorDetails | None = None
    execution_metadata: ExecutionMetadata | None = None
    observation_packet_id: PacketId | None = None


class EscalationOption(Part, frozen=True):
    """One of the two or three things a human can choose."""

    option_id: str
    description: str
    pros: list[str] | str
    cons: list[str] | str
    risk_summary: str | None = None


class EvidenceGap(Part, frozen=True):
    """What is not known, and why that matters."""

    gap: str
    impact_if_unknown: str
    verification_method: str | None = None


class RecommendedStep(Part, frozen=True):
    """What the one who asks would do."""

    step: str
    rationale: str
    estimated_cost: Raw = NULL


class Escalation(Part, frozen=True):
    """A human is asked."""

    escalation_trigger: EscalationTrigger
    top_options: Annotated[list[EscalationOption], Meta(min_length=2, max_length=3)]
    evidence_gaps: Annotated[list[EvidenceGap], Meta(min_length=1)]
    recommended_next_step: RecommendedStep
    blocking_decision_packet_id: PacketId | None = None


class Alert(Part, frozen=True):
    """Something about the machine itself; `alert_type` "clear" lifts safe mode."""

    alert_id: str
    alert_type: Text
    severity: Severity
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


Payload: TypeAlias = (
    Observation | BeliefUpdate | Decision | VerificationPlan | Token | Directive | Result | Escalation | Alert | Opaque
)

PAYLOADS: Final[dict[PacketKind, Any]] = {
    PacketKind.OBSERVATION: Observation,
    PacketKind.BELIEF_UPDATE: BeliefUpdate,
    PacketKind.DECISION: Decision,
    PacketKind.VERIFICATION_PLAN: VerificationPlan,
    PacketKind.TOKEN: Token,
    PacketKind.DIRECTIVE: Directive,
    PacketKind.RESULT: Result,
    PacketKind.ESCALATION: Escalation,
    PacketKind.ALERT: Alert,
    # Neutral: whatever it says, it is an object.
    PacketKind.QUEUE_UPDATE: Opaque,
}
