"""The invariants' fine points: which stakes fit, and what each clause of a rule excludes."""

from __future__ import annotations

from itertools import product

import pytest
from msgspec.structs import replace

from proctor.episode.packets.enums import (
    Adversariality,
    EpistemicStatus,
    EvidenceKind,
    Freshness,
    Irreversibility,
    Level,
    OperationType,
    QualityTier,
    ToolsState,
    Uncertainty,
)
from proctor.episode.packets.fields import Evidence, EvidenceRef, Stakes
from proctor.episode.packets.writer import DERIVED, QUALITY, ROUTING, STAKES
from proctor.episode.rules.contract import ALLOWED_OPERATIONS, MISFITS, stakes_fit
from proctor.episode.transition_table import Event
from tests.episode.scripts import START
from tests.episode.stages import Stage

ORDERS = (
    ("LOW", "MEDIUM", "HIGH", "CRITICAL"),
    ("REVERSIBLE", "PARTIAL", "IRREVERSIBLE"),
    ("BENIGN", "CONTESTED", "HOSTILE"),
)
RANK = {word: rank for words in ORDERS for rank, word in enumerate(words)}
SUPERB = replace(QUALITY, quality_tier=QualityTier.SUPERB)


def fits_by_hand(stakes: Stakes) -> bool:
    """Say it again from the words: no lower than the impact, one below the worst axis at most, never above it."""
    worst = max(
        RANK[stakes.impact], RANK[stakes.irreversibility], RANK[stakes.uncertainty], RANK[stakes.adversariality]
    )
    level = RANK[stakes.stakes_level]
    return level >= RANK[stakes.impact] and level >= worst - 1 and level <= worst


def test_stakes_fit_as_the_words_say_in_every_combination() -> None:
    every = [Stakes(*axes) for axes in product(Level, Irreversibility, Uncertainty, Adversariality, Level)]

    assert len(every) == 432
    assert [stakes_fit(stakes) for stakes in every] == [fits_by_hand(stakes) for stakes in every]
    assert [stakes in MISFITS for stakes in every] == [not fits_by_hand(stakes) for stakes in every]


@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("tier", QualityTier)
def test_high_stakes_need_superb_quality_and_no_action_is_subpar(level: Level, tier: QualityTier) -> None:
    stage = Stage()
    stage.models()
    stakes = replace(STAKES, impact=level, stakes_level=level)
    verdict = stage.judge.check(
        stage.author.decision("ACT", stakes=stakes, quality=replace(QUALITY, quality_tier=tier))
    )
    grave = level in (Level.HIGH, Level.CRITICAL)

    assert ("INV-003" in verdict.rules) is (grave and tier is not QualityTier.SUPERB)
    assert ("INV-002" in verdict.rules) is (tier is QualityTier.SUBPAR)


@pytest.mark.parametrize("status", EpistemicStatus)
@pytest.mark.parametrize("freshness", Freshness)
@pytest.mark.parametrize("kind", [None, *EvidenceKind])
def test_a_guess_about_live_matters_needs_something_seen(
    status: EpistemicStatus, freshness: Freshness, kind: EvidenceKind | None
) -> None:
    stage = Stage()
    stage.senses()
    refs = [] if kind is None else [EvidenceRef(kind, "anything", START)]
    packet = stage.author.belief(
        epistemics=replace(DERIVED, status=status, freshness_class=freshness), evidence=Evidence(refs, "nothing")
    )
    unsure = status in (EpistemicStatus.INFERRED, EpistemicStatus.HYPOTHESIZED, EpistemicStatus.UNKNOWN)
    live = freshness in (Freshness.REALTIME, Freshness.OPERATIONAL)
    seen = kind in (EvidenceKind.TOOL_OUTPUT, EvidenceKind.USER_OBSERVATION)

    assert stage.judge.check(packet).accepted is not (unsure and live and not seen)


@pytest.mark.parametrize("tools", ToolsState)
@pytest.mark.parametrize("level", Level)
@pytest.mark.parametrize("uncertainty", Uncertainty)
def test_degraded_tools_forbid_or_warn(tools: ToolsState, level: Level, uncertainty: Uncertainty) -> None:
    stage = Stage()
    stage.models()
    stakes = replace(STAKES, impact=level, uncertainty=uncertainty, stakes_level=level)
    routing = replace(ROUTING, tools_state=tools)
    verdict = stage.judge.check(stage.author.decision("ACT", stakes=stakes, quality=SUPERB, routing=routing))
    warned = {finding.rule for finding in verdict.warnings}

    assert ("INV-010" in verdict.rules) is (tools is ToolsState.DOWN and level in (Level.HIGH, Level.CRITICAL))
    assert ("INV-010" in warned) is (
        tools is ToolsState.PARTIAL and level is Level.MEDIUM and uncertainty is Uncertainty.HIGH
    )


@pytest.mark.parametrize("operation", OperationType)
@pytest.mark.parametrize("safety", ["READ", "WRITE", "MIXED"])
def test_a_token_allows_what_its_operations_say(operation: OperationType, safety: str) -> None:
    stage = Stage()
    token = stage.authorizes(operations=["write"], uses=3)
    stage.takes(stage.author.directive("valve", safety="WRITE", token=token), "S6")
    episode = stage.verdict.after
    assert episode is not None
    permit = replace(episode.tokens[token.payload.token_id], operations=(operation,))
    episode.tokens[token.payload.token_id] = permit
    verdict = stage.judge.check(stage.author.directive("valve", safety=safety, token=token))
    reads = operation is OperationType.READ

    assert verdict.accepted is (reads is (safety == "READ"))
    assert ALLOWED_OPERATIONS[Event.READ].isdisjoint(ALLOWED_OPERATIONS[Event.WRITE])


@pytest.mark.parametrize(
    ("alert", "layer", "warned"),
    [
        ({"type": "clear"}, 3, True),
        ({"type": "drift"}, 3, False),
        ({"type": "anomaly"}, 3, False),
        ({"type": "drift"}, "Integrity", False),
    ],
)
def test_who_cannot_lift_safe_mode_is_told_so_only_when_trying(
    alert: dict[str, str], layer: object, warned: bool
) -> None:
    stage = Stage()
    stage.halts()
    line = stage.author.alert("INFO", layer=layer, **alert)  # type: ignore[arg-type]  # layers are numbers or a word
    stage.takes(line, "S9", *(("LAYER-2",) if warned else ()))


def test_a_token_may_be_more_than_used_up() -> None:
    stage = Stage()
    stage.decides("ACT")
    stage.refuses(stage.author.token("valve", uses=2, used=3), "S3", "S5")
    stage.takes(stage.author.token("valve", uses=2, used=1), "S5")
