"""What every packet carries: the header, and the compliance envelope (`mcp` on the wire).

Rule 1: a field without a default is required; one whose default is None may also be null; unknown keys are errors.
Rule 2: ids are plain strings here. Their patterns stand in the JSON Schema, and a packet's ids are matched together
    when it is read (`reader.py`), since one match costs less than five.
"""

from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeAlias

from msgspec import Meta, Struct

from proctor.episode.packets.enums import (
    Adversariality,
    EpistemicStatus,
    EvidenceKind,
    Freshness,
    Irreversibility,
    Level,
    PacketKind,
    QualityTier,
    TaskClass,
    ToolsState,
    Uncertainty,
    VerificationRequirement,
)

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

    impact: Level
    irreversibility: Irreversibility
    uncertainty: Uncertainty
    adversariality: Adversariality
    stakes_level: Level


class DefinitionOfDone(PacketPart, frozen=True):
    """When the work counts as done."""

    text: Text
    checks: Annotated[list[str], Meta(min_length=1)]


class Quality(PacketPart, frozen=True):
    """How good the work is meant to be."""

    quality_tier: QualityTier
    satisficing_mode: bool
    definition_of_done: DefinitionOfDone
    verification_requirement: VerificationRequirement


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

    status: EpistemicStatus
    confidence: Share
    calibration_note: str
    freshness_class: Freshness
    assumptions: list[str]
    stale_if_older_than_seconds: Count | None = None


class EvidenceRef(PacketPart, frozen=True):
    """One piece of evidence, by name."""

    ref_type: EvidenceKind
    ref_id: str
    timestamp: Moment
    reliability_score: Share | None = None


class Evidence(PacketPart, frozen=True):
    """What it rests on; without references a reason is required."""

    evidence_refs: list[EvidenceRef]
    evidence_absent_reason: str | None = None


class Routing(PacketPart, frozen=True):
    """What sort of task it is, and whether tools can be relied on."""

    task_class: TaskClass
    tools_state: ToolsState


class Compliance(PacketPart, frozen=True):
    """The compliance envelope: seven sections, all required."""

    intent: Intent
    stakes: Stakes
    quality: Quality
    budgets: Budgets
    epistemics: Epistemics
    evidence: Evidence
    routing: Routing
