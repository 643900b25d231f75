"""What an author says when nobody says otherwise: the defaults of the header's layer and of the envelope.

Rule 1: a policy is a value; `dataclasses.replace` and `msgspec.structs.replace` make another one from it.
Rule 2: the defaults are modest: low stakes, ordinary quality, small budgets, and no claim to evidence.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Final

from proctor.episode.envelope import (
    Budgets,
    DefinitionOfDone,
    Epistemics,
    Evidence,
    Intent,
    Layer,
    Quality,
    RiskBudget,
    Routing,
    Stakes,
)
from proctor.episode.kinds import (
    Adversariality,
    EpistemicStatus,
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

INTENT: Final = Intent(summary="carry the episode on", scope="this episode")
STAKES: Final = Stakes(
    impact=Level.LOW,
    irreversibility=Irreversibility.REVERSIBLE,
    uncertainty=Uncertainty.LOW,
    adversariality=Adversariality.BENIGN,
    stakes_level=Level.LOW,
)
QUALITY: Final = Quality(
    quality_tier=QualityTier.PAR,
    satisficing_mode=True,
    definition_of_done=DefinitionOfDone(text="the episode is closed", checks=["nothing is open"]),
    verification_requirement=VerificationRequirement.OPTIONAL,
)
BUDGETS: Final = Budgets(
    token_budget=10_000,
    tool_call_budget=10,
    time_budget_seconds=600,
    risk_budget=RiskBudget(envelope="low", max_loss=0.0),
)
EVIDENCE: Final = Evidence(evidence_refs=[], evidence_absent_reason="stated by the author")
ROUTING: Final = Routing(task_class=TaskClass.LOOKUP, tools_state=ToolsState.OK)


def _known(status: EpistemicStatus, confidence: float) -> Epistemics:
    return Epistemics(
        status=status,
        confidence=confidence,
        calibration_note="a default of the author's policy",
        freshness_class=Freshness.OPERATIONAL,
        assumptions=[],
    )


OBSERVED: Final = _known(EpistemicStatus.OBSERVED, 0.95)
DERIVED: Final = _known(EpistemicStatus.DERIVED, 0.8)

# How each kind knows what it states: what was seen or done is observed, what was thought is derived.
EPISTEMICS: Final[Mapping[PacketKind, Epistemics]] = MappingProxyType(
    {
        kind: OBSERVED if kind in (PacketKind.OBSERVATION, PacketKind.RESULT, PacketKind.ALERT) else DERIVED
        for kind in PacketKind
    }
)
# Who speaks: layer 6 senses and carries out, layer 3 models, layer 5 decides, and Integrity watches.
LAYERS: Final[Mapping[PacketKind, Layer]] = MappingProxyType(
    {
        PacketKind.OBSERVATION: 6,
        PacketKind.BELIEF_UPDATE: 3,
        PacketKind.DECISION: 5,
        PacketKind.VERIFICATION_PLAN: 5,
        PacketKind.TOKEN: 5,
        PacketKind.DIRECTIVE: 5,
        PacketKind.RESULT: 6,
        PacketKind.ESCALATION: 5,
        PacketKind.ALERT: "Integrity",
        PacketKind.QUEUE_UPDATE: 4,
    }
)


@dataclass(frozen=True, slots=True)
class Policy:
    """The defaults of an author.

    `epistemics` and `layers` are by kind of packet; a kind that is missing there has the default of this module.
    `token_life` is how long after its issue a token expires.
    """

    intent: Intent = INTENT
    stakes: Stakes = STAKES
    quality: Quality = QUALITY
    budgets: Budgets = BUDGETS
    evidence: Evidence = EVIDENCE
    routing: Routing = ROUTING
    epistemics: Mapping[PacketKind, Epistemics] = field(default_factory=lambda: EPISTEMICS)
    layers: Mapping[PacketKind, Layer] = field(default_factory=lambda: LAYERS)
    token_life: timedelta = timedelta(hours=1)

    def epistemics_of(self, kind: PacketKind) -> Epistemics:
        """Return how a packet of `kind` knows what it states."""
        return self.epistemics.get(kind, EPISTEMICS[kind])

    def layer_of(self, kind: PacketKind) -> Layer:
        """Return the layer that states a packet of `kind`."""
        return self.layers.get(kind, LAYERS[kind])
