"""The words of the packet protocol: every closed set of values that a packet may use.

Rule 1: the values are the ones on the wire; a member's name is what the code calls it.
Rule 2: this file knows words, never which of them may follow which.
"""

from enum import StrEnum
from typing import Final


class PacketKind(StrEnum):
    """What a packet states: the nine kinds that the machine judges, and the neutral one."""

    OBSERVATION = "ObservationPacket"
    BELIEF_UPDATE = "BeliefUpdatePacket"
    DECISION = "DecisionPacket"
    VERIFICATION_PLAN = "VerificationPlanPacket"
    TOKEN = "ToolAuthorizationToken"  # noqa: S105  # the protocol's name of a packet, not a secret
    DIRECTIVE = "TaskDirectivePacket"
    RESULT = "TaskResultPacket"
    ESCALATION = "EscalationPacket"
    ALERT = "IntegrityAlertPacket"
    QUEUE_UPDATE = "QueueUpdatePacket"


class RecordKind(StrEnum):
    """What a line of a stream can be besides a packet."""

    OPEN = "open"
    CLOSE = "close"
    USER_INPUT = "user_input"
    APPROVAL = "approval"
    SAFEMODE = "safemode"


class RecordSource(StrEnum):
    """Who states a record."""

    OPERATOR = "operator"
    SYSTEM = "system"


class Level(StrEnum):
    """A size of impact or stakes, lowest first."""

    LOW = "LOW"
    MEDIUM = "MEDIUM"
    HIGH = "HIGH"
    CRITICAL = "CRITICAL"


class Uncertainty(StrEnum):
    """How much is not known."""

    LOW = "LOW"
    MEDIUM = "MEDIUM"
    HIGH = "HIGH"


class Irreversibility(StrEnum):
    """Whether what is done can be undone."""

    REVERSIBLE = "REVERSIBLE"
    PARTIAL = "PARTIAL"
    IRREVERSIBLE = "IRREVERSIBLE"


class Adversariality(StrEnum):
    """Whether somebody works against it."""

    BENIGN = "BENIGN"
    CONTESTED = "CONTESTED"
    HOSTILE = "HOSTILE"


class QualityTier(StrEnum):
    """How good the work is meant to be."""

    SUBPAR = "SUBPAR"
    PAR = "PAR"
    SUPERB = "SUPERB"


class VerificationRequirement(StrEnum):
    """How much must be verified."""

    OPTIONAL = "OPTIONAL"
    VERIFY_ONE = "VERIFY_ONE"
    VERIFY_ALL = "VERIFY_ALL"


class EpistemicStatus(StrEnum):
    """How something is known."""

    OBSERVED = "OBSERVED"
    DERIVED = "DERIVED"
    REMEMBERED = "REMEMBERED"
    INFERRED = "INFERRED"
    HYPOTHESIZED = "HYPOTHESIZED"
    UNKNOWN = "UNKNOWN"


class Freshness(StrEnum):
    """How quickly knowledge ages."""

    REALTIME = "REALTIME"
    OPERATIONAL = "OPERATIONAL"
    STRATEGIC = "STRATEGIC"
    ARCHIVAL = "ARCHIVAL"


class EvidenceKind(StrEnum):
    """What a reference to evidence names."""

    TOOL_OUTPUT = "tool_output"
    USER_OBSERVATION = "user_observation"
    MEMORY_ITEM = "memory_item"
    DERIVED_CALC = "derived_calc"


class TaskClass(StrEnum):
    """What sort of task a packet serves."""

    FIND = "FIND"
    LOOKUP = "LOOKUP"
    SEARCH = "SEARCH"
    CREATE = "CREATE"
    VERIFY = "VERIFY"
    COMPILE = "COMPILE"


class ToolsState(StrEnum):
    """Whether tools can be relied on."""

    OK = "tools_ok"
    PARTIAL = "tools_partial"
    DOWN = "tools_down"


class ObservationType(StrEnum):
    """Where an observation comes from."""

    TOOL_OUTPUT = "tool_output"
    USER_INPUT = "user_input"
    SYSTEM_TELEMETRY = "system_telemetry"
    CHARACTER_STATE = "character_state"
    MARKET_SIGNAL = "market_signal"
    INTEL_UPDATE = "intel_update"


class UpdateType(StrEnum):
    """What happens to beliefs."""

    NEW_BELIEF = "new_belief"
    REVISION = "revision"
    CONTRADICTION_RESOLVED = "contradiction_resolved"
    CONFIDENCE_ADJUSTMENT = "confidence_adjustment"
    STALENESS_REFRESH = "staleness_refresh"


class ResolutionMethod(StrEnum):
    """How a contradiction was resolved."""

    PREFER_FRESH = "prefer_fresh"
    PREFER_HIGHER_RELIABILITY = "prefer_higher_reliability"
    ESCALATED = "escalated"
    MANUAL_OVERRIDE = "manual_override"


class DecisionOutcome(StrEnum):
    """What was decided."""

    VERIFY_FIRST = "VERIFY_FIRST"
    ACT = "ACT"
    ESCALATE = "ESCALATE"
    DEFER = "DEFER"
    CANCEL = "CANCEL"


class OperationType(StrEnum):
    """What a token allows to do with a tool."""

    READ = "read"
    WRITE = "write"
    DELETE = "delete"
    MODIFY = "modify"


class TaskType(StrEnum):
    """What a directive asks for."""

    TOOL_READ = "tool_read"
    TOOL_WRITE = "tool_write"
    COMPUTATION = "computation"
    VERIFICATION = "verification"
    MEMORY_LOOKUP = "memory_lookup"


class MethodKind(StrEnum):
    """By what means a directive is carried out."""

    TOOL = "tool"
    CODE = "code"
    LLM_CALL = "llm_call"
    MEMORY_QUERY = "memory_query"


class SafetyClass(StrEnum):
    """Whether a directive changes anything; MIXED counts as WRITE everywhere."""

    READ = "READ"
    WRITE = "WRITE"
    MIXED = "MIXED"


class ResultStatus(StrEnum):
    """How a task ended."""

    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"
    CANCELLED = "CANCELLED"


class EscalationTrigger(StrEnum):
    """Why a human is asked."""

    HIGH_STAKES_HIGH_UNCERTAINTY = "high_stakes_high_uncertainty"
    CONSTITUTIONAL_BOUNDARY = "constitutional_boundary"
    CONTRADICTION_UNRESOLVED = "contradiction_unresolved"
    BUDGET_INSUFFICIENT = "budget_insufficient"
    TOOLS_DEGRADED_CRITICAL = "tools_degraded_critical"
    USER_OVERRIDE_REQUIRED = "user_override_required"


class Severity(StrEnum):
    """How grave an alert is."""

    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"


# The `alert_type` that lifts safe mode.
CLEAR: Final = "clear"
