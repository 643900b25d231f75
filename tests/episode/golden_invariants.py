"""For every cross-policy invariant: one episode that keeps it, and one that breaks it or shows its warning.

The expectations are the specification's, written by hand.
"""

from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from proctor.episode.packets.enums import (
    EpistemicStatus,
    EvidenceKind,
    Freshness,
    Level,
    QualityTier,
    ToolsState,
    Uncertainty,
)
from proctor.episode.packets.fields import Budgets, ConstraintsSatisfied, Epistemics, Evidence, EvidenceRef, Stakes
from proctor.episode.packets.writer import BUDGETS, DERIVED, QUALITY, ROUTING, STAKES
from tests.episode.golden_rules import PARTLY, SHAPE_OF_ESCALATION
from tests.episode.scripts import START, Script, Shelf, edited, without

SHELF: Final = Shelf()
golden = SHELF.golden

HIGH: Final = replace(STAKES, impact=Level.HIGH, stakes_level=Level.HIGH)
DOUBTFUL: Final = replace(STAKES, impact=Level.MEDIUM, uncertainty=Uncertainty.HIGH, stakes_level=Level.MEDIUM)
SUPERB: Final = replace(QUALITY, quality_tier=QualityTier.SUPERB)
SUBPAR: Final = replace(QUALITY, quality_tier=QualityTier.SUBPAR)
DOWN: Final = replace(ROUTING, tools_state=ToolsState.DOWN)


def calls(number: int) -> Budgets:
    """Return budgets with so many tool calls."""
    return replace(BUDGETS, tool_call_budget=number)


def level(stakes_level: Level) -> Stakes:
    """Return the lowest stakes under another level."""
    return replace(STAKES, stakes_level=stakes_level)


def guessed(freshness: Freshness) -> Epistemics:
    """Return the epistemics of a guess."""
    return replace(DERIVED, status=EpistemicStatus.HYPOTHESIZED, freshness_class=freshness)


@golden("INV-001-keeps")
def inv_001_keeps(s: Script) -> None:
    s.decides("ACT", evidence=Evidence([], "nothing was at hand"))


@golden("INV-001-breaks")
def inv_001_breaks(s: Script) -> None:
    s.senses()
    s.refuses(without(s.author.belief(), "/mcp/stakes"), "S1", "SCHEMA")
    s.takes(s.author.belief(), "S2")
    reason = "/mcp/evidence/evidence_absent_reason"
    s.refuses(without(s.author.decision("ACT"), "/mcp/stakes"), "S2", "SCHEMA", "INV-001")
    s.refuses(without(s.author.decision("ACT"), reason), "S2", "SCHEMA", "INV-001")
    s.refuses(edited(s.author.decision("ACT"), {reason: ""}), "S2", "SCHEMA", "INV-001")
    s.takes(s.author.decision("ACT"), "S3")
    s.refuses(without(s.author.token("valve"), "/mcp/budgets/risk_budget"), "S3", "SCHEMA", "INV-001")
    s.refuses(edited(s.author.directive("gauge"), {"/mcp/routing/mood": "good"}), "S3", "SCHEMA", "INV-001")
    s.refuses(without(s.author.escalation(), "/mcp/intent"), "S3", "SCHEMA", "INV-001")


@golden("INV-002-keeps")
def inv_002_keeps(s: Script) -> None:
    s.models()
    s.takes(s.author.decision("DEFER", quality=SUBPAR), "S3")


@golden("INV-002-breaks")
def inv_002_breaks(s: Script) -> None:
    s.models()
    s.refuses(s.author.decision("ACT", quality=SUBPAR), "S2", "INV-002")
    s.takes(s.author.decision("ACT"), "S3")


@golden("INV-003-keeps")
def inv_003_keeps(s: Script) -> None:
    s.decides("ACT", stakes=HIGH, quality=SUPERB, assumptions={"the gauge is right": True})


@golden("INV-003-breaks")
def inv_003_breaks(s: Script) -> None:
    s.models()
    doubt = {"the gauge is right": True, "the valve is shut": False}
    s.refuses(s.author.decision("ACT", stakes=HIGH), "S2", "INV-003")
    s.refuses(s.author.decision("ACT", stakes=HIGH, quality=SUPERB, assumptions=doubt), "S2", "INV-003")
    s.takes(s.author.decision("DEFER", stakes=HIGH, assumptions=doubt), "S3")


@golden("INV-004-keeps")
def inv_004_keeps(s: Script) -> None:
    seen = s.senses()
    s.takes(s.author.belief(epistemics=guessed(Freshness.OPERATIONAL), evidence=[seen]), "S2")
    s.takes(s.author.belief(epistemics=guessed(Freshness.STRATEGIC)), "S2")


@golden("INV-004-breaks")
def inv_004_breaks(s: Script) -> None:
    seen = s.senses()
    remembered = EvidenceRef(EvidenceKind.MEMORY_ITEM, seen.header.packet_id, START)
    s.refuses(s.author.belief(epistemics=guessed(Freshness.REALTIME)), "S1", "INV-004")
    s.refuses(s.author.belief(epistemics=guessed(Freshness.OPERATIONAL), evidence=[remembered]), "S1", "INV-004")
    s.takes(s.author.belief(), "S2")


@golden("INV-005-keeps")
def inv_005_keeps(s: Script) -> None:
    asked = s.executes(budgets=calls(1))
    s.takes(s.author.result(asked), "S6")
    s.takes(s.author.record("approval", {"tool_call_budget": 1}), "S6")
    s.takes(s.author.directive("gauge"), "S6")
    s.takes(s.author.directive(None, method="code"), "S6")


@golden("INV-005-breaks")
def inv_005_breaks(s: Script) -> None:
    asked = s.executes(budgets=calls(1))
    s.refuses(s.author.directive("gauge"), "S6", "INV-005")
    s.takes(s.author.result(asked), "S6")
    s.refuses(s.author.directive("gauge"), "S6", "INV-005")
    s.takes(s.author.belief(), "S7")
    s.refuses(s.author.decision("ACT", budgets=calls(0)), "S7", "INV-005")
    s.takes(s.author.decision("ACT", budgets=calls(1)), "S3")
    s.refuses(s.author.directive("gauge"), "S3", "INV-005")


@golden("INV-006-keeps")
def inv_006_keeps(s: Script) -> None:
    s.decides("ACT", constraints=ConstraintsSatisfied(True, True, False))


@golden("INV-006-breaks")
def inv_006_breaks(s: Script) -> None:
    s.models()
    unlawful = ConstraintsSatisfied(constitutional_check=False, budget_check=True, tier_check=True)
    dear = ConstraintsSatisfied(constitutional_check=True, budget_check=False, tier_check=True)
    s.refuses(s.author.decision("ACT", constraints=unlawful), "S2", "INV-006")
    s.refuses(s.author.decision("ACT", constraints=dear), "S2", "INV-006")
    s.takes(s.author.decision("DEFER", constraints=unlawful), "S3")


@golden("INV-007-keeps")
def inv_007_keeps(s: Script) -> None:
    token = s.authorizes(operations=("modify", "read"), uses=3)
    s.takes(s.author.directive("valve", safety="WRITE", token=token), "S6")
    s.takes(s.author.directive("valve", token=token), "S6")


@golden("INV-007-breaks")
def inv_007_breaks(s: Script) -> None:
    token = s.authorizes(uses=3)
    reading = s.takes(s.author.token("valve", operations=("read",)), "S5")
    s.refuses(s.author.directive("pump", safety="WRITE", token=token), "S5", "INV-007")
    s.refuses(s.author.directive(None, safety="WRITE", token=token, method="code"), "S5", "INV-007")
    s.refuses(s.author.directive("valve", safety="WRITE", token=reading), "S5", "INV-007")
    s.takes(s.author.directive("valve", safety="WRITE", token=token), "S6")
    s.refuses(s.author.directive("valve", token=token), "S6", "INV-007")


@golden("INV-008-keeps")
def inv_008_keeps(s: Script) -> None:
    seen = s.verifies()
    s.takes(s.author.belief(evidence=[seen]), "S2")
    s.takes(s.author.decision("ACT"), "S3")


@golden("INV-008-breaks")
def inv_008_breaks(s: Script) -> None:
    seen = s.verifies()
    s.refuses(s.author.decision("ACT"), "S4", "FSM", "INV-008")
    s.refuses(s.author.record("close"), "S4", "FSM", "E3", "INV-008")
    s.takes(s.author.belief(evidence=[seen]), "S2")


@golden("INV-009-keeps")
def inv_009_keeps(s: Script) -> None:
    s.decides("ESCALATE")
    s.takes(s.author.escalation(gaps=["who is on duty"], recommended="wait"), "S8")


@golden("INV-009-breaks")
def inv_009_breaks(s: Script) -> None:
    s.decides("ESCALATE")
    s.refuses(without(s.author.escalation(), "/payload/evidence_gaps"), "S3", *SHAPE_OF_ESCALATION)
    s.refuses(without(s.author.escalation(), "/payload/top_options/0/cons"), "S3", *SHAPE_OF_ESCALATION)
    s.refuses(without(s.author.escalation(), "/payload/recommended_next_step/step"), "S3", *SHAPE_OF_ESCALATION)
    s.refuses(without(s.author.escalation(), "/payload/escalation_trigger"), "S3", "SCHEMA")
    s.takes(s.author.escalation(), "S8")


@golden("INV-010-keeps")
def inv_010_keeps(s: Script) -> None:
    s.decides("ACT", routing=DOWN)
    s.takes(s.author.decision("VERIFY_FIRST", stakes=HIGH, routing=DOWN), "S4")


@golden("INV-010-breaks")
def inv_010_breaks(s: Script) -> None:
    s.models()
    s.refuses(s.author.decision("ACT", stakes=HIGH, quality=SUPERB, routing=DOWN), "S2", "INV-010")
    s.takes(s.author.decision("ACT", stakes=DOUBTFUL, routing=PARTLY), "S3", "INV-010")


@golden("INV-011-keeps")
def inv_011_keeps(s: Script) -> None:
    asked = s.executes()
    deadline = asked.header.created_at + timedelta(seconds=BUDGETS.time_budget_seconds)
    s.takes(s.author.observation({"level": 3}, at=deadline), "S6")
    s.takes(s.author.result(asked, at=deadline), "S6")
    s.takes(s.author.belief(), "S7")
    s.closes()


@golden("INV-011-breaks")
def inv_011_breaks(s: Script) -> None:
    asked = s.executes()
    late = asked.header.created_at + timedelta(seconds=BUDGETS.time_budget_seconds, microseconds=1)
    s.takes(s.author.observation({"level": 3}, at=late), "S6", "INV-011")
    s.takes(s.author.observation({"level": 3}), "S6")
    s.refuses(s.author.record("close"), "S6", "FSM", "E6", "INV-011")
    s.takes(s.author.result(asked), "S6", "INV-011")
    s.takes(s.author.belief(), "S7")


@golden("INV-012-keeps")
def inv_012_keeps(s: Script) -> None:
    s.takes(s.author.observation({"level": 3}, stakes=DOUBTFUL), "S1")
    s.takes(s.author.observation({"level": 3}, stakes=replace(DOUBTFUL, stakes_level=Level.HIGH)), "S1")


@golden("INV-012-breaks")
def inv_012_breaks(s: Script) -> None:
    s.takes(s.author.observation({"level": 3}, stakes=level(Level.MEDIUM)), "S1", "INV-012")
    s.takes(s.author.observation({"level": 3}, stakes=replace(HIGH, stakes_level=Level.MEDIUM)), "S1", "INV-012")
    s.takes(s.author.observation({"level": 3}, stakes=replace(DOUBTFUL, stakes_level=Level.LOW)), "S1", "INV-012")
    s.takes(s.author.observation({"level": 3}, stakes=HIGH), "S1")
