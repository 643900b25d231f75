"""Where and why: the pointer and the sentence of every finding, rule by rule."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from msgspec.structs import replace

from proctor.episode import Settings
from proctor.episode.packets.enums import EpistemicStatus, Level, QualityTier, ToolsState, Uncertainty
from proctor.episode.packets.fields import ConstraintsSatisfied, ExecutionMetadata
from proctor.episode.packets.writer import BUDGETS, DERIVED, QUALITY, ROUTING, STAKES
from proctor.episode.settings import Limits
from tests.episode.scripts import START, Line, edited
from tests.episode.stages import Stage

TYPE = "/header/packet_type"
TOKEN = "/payload/authorization_token_id"
HIGH = replace(STAKES, impact=Level.HIGH, stakes_level=Level.HIGH)
SUPERB = replace(QUALITY, quality_tier=QualityTier.SUPERB)

Told = tuple[str, str, str]
Last = Callable[[Stage], Line]


def told_of(last: Last) -> list[Told]:
    """Return what the judge says about the last line: rule, pointer and reason, errors first."""
    stage = Stage()
    line = last(stage)
    verdict = stage.judge.check(line)
    return [(found.rule, found.pointer, found.reason) for found in (*verdict.findings, *verdict.warnings)]


def then(before: Callable[[Stage], object], last: Last) -> Last:
    """Return the last line of a stage on which something else comes before."""

    def played(stage: Stage) -> Line:
        before(stage)
        return last(stage)

    return played


def in_verification(stage: Stage) -> Line:
    stage.decides("VERIFY_FIRST")
    return stage.author.directive("gauge")


def written(stage: Stage, **token: object) -> Line:
    return stage.author.directive("valve", safety="WRITE", token=stage.authorizes(**token))


def revoked(stage: Stage) -> Line:
    token = stage.authorizes()
    stage.takes(stage.author.revocation(token), "S5")
    return stage.author.directive("valve", safety="WRITE", token=token)


def used_up(stage: Stage) -> Line:
    token = stage.authorizes(uses=2, used=1)
    stage.takes(stage.author.directive("valve", safety="WRITE", token=token), "S6")
    return stage.author.directive("valve", safety="WRITE", token=token)


def issued_again(stage: Stage, **other: object) -> Line:
    token = stage.authorizes()
    return edited(stage.author.token("valve", token_id=token.payload.token_id, expiry=token.payload.expiry), other)


def decided_when_escalated(stage: Stage) -> Line:
    stage.escalates()
    return stage.author.decision("ACT")


def overspent(stage: Stage) -> Line:
    """Decide to act with a smaller budget than was spent before."""
    asked = stage.executes()
    stage.takes(stage.author.result(asked, cost=ExecutionMetadata(tokens_used=500)), "S6")
    stage.takes(stage.author.belief(), "S7")
    return stage.author.decision("ACT", budgets=replace(BUDGETS, token_budget=499))


def checked(constitution: bool, budget: bool) -> ConstraintsSatisfied:
    return ConstraintsSatisfied(constitutional_check=constitution, budget_check=budget, tier_check=True)


def acting(**said: object) -> Last:
    def last(stage: Stage) -> Line:
        stage.models()
        return stage.author.decision("ACT", **said)  # type: ignore[arg-type]  # whatever a decision can say

    return last


def halted(stage: Stage) -> Line:
    stage.halts()
    return stage.author.decision("ACT")


def cleared_by_another(stage: Stage) -> Line:
    stage.halts()
    return stage.author.clear(layer=3)


def lacking(stage: Stage) -> Line:
    stage.decides("VERIFY_FIRST")
    stage.takes(stage.author.plan(), "S4")
    return stage.author.belief()


def dangling(stage: Stage) -> Line:
    stage.executes()
    return stage.author.belief()


def late(stage: Stage) -> Line:
    stage.decides("ACT")
    stage.takes(stage.author.directive("gauge", timeout=60), "S6")
    return stage.author.observation({"level": 3}, at=START + timedelta(hours=1))


def closing(stage: Stage) -> Line:
    stage.executes()
    return stage.author.record("close")


def closing_in_verification(stage: Stage) -> Line:
    stage.decides("VERIFY_FIRST")
    return stage.author.record("close")


FINDINGS: list[tuple[Last, Told]] = [
    (
        lambda s: s.author.decision("ACT"),
        ("E1", TYPE, "no BeliefUpdatePacket was accepted in this episode, so there is nothing to decide on"),
    ),
    (lambda s: s.author.directive("gauge"), ("E2", TYPE, "no decision governs, so nothing may be done")),
    (
        then(lambda s: s.decides("DEFER"), lambda s: s.author.directive("gauge")),
        ("E2", TYPE, "the latest decision is DEFER, not ACT"),
    ),
    (
        then(
            lambda s: s.decides("VERIFY_FIRST"), lambda s: s.author.directive("valve", safety="WRITE", token="token_1")
        ),
        ("E2", TYPE, "the latest decision is VERIFY_FIRST, which allows READ directives in S4_VERIFY only"),
    ),
    (in_verification, ("E3", TYPE, "no VerificationPlanPacket was stated since the VERIFY_FIRST")),
    (lacking, ("E3", TYPE, "the verification lacks a READ directive and a result with SUCCESS")),
    (
        lacking,
        (
            "E3",
            "/payload/evidence_integration",
            "the belief update names no observation or result accepted since the VERIFY_FIRST",
        ),
    ),
    (
        lacking,
        (
            "S4",
            TYPE,
            "the verification lacks a READ directive and a result with SUCCESS and an observation with status OBSERVED",
        ),
    ),
    (closing_in_verification, ("E3", "", "the verification is not closed: a decision anew must follow it")),
    (
        closing_in_verification,
        ("INV-008", "", "a verification is still open: a belief update must integrate its evidence first"),
    ),
    (
        then(lambda s: s.authorizes(), lambda s: s.author.directive("valve", safety=None, task_type="tool_write")),
        ("E4", TOKEN, "a WRITE directive needs a ToolAuthorizationToken"),
    ),
    (
        then(lambda s: s.authorizes(), lambda s: s.author.directive("valve", safety="WRITE", token="token_other")),
        ("E4", TOKEN, "no token token_other was issued in this episode"),
    ),
    (revoked, ("E4", TOKEN, "the token token_stage_4 was revoked")),
    (used_up, ("E4", TOKEN, "the token token_stage_4 was used 2 times of 2")),
    (
        lambda s: written(s, expiry=START + timedelta(seconds=4)),
        ("E4", TOKEN, "the token token_stage_4 expired at 2025-01-01T00:00:04+00:00"),
    ),
    (
        lambda s: written(s, expiry=START + timedelta(seconds=3.5)),
        ("E4", TOKEN, "the token token_stage_4 expired at 2025-01-01T00:00:03.500000+00:00"),
    ),
    (
        then(lambda s: s.decides("ACT"), lambda s: s.author.token("valve", expiry=START)),
        ("S5", "/payload/expiry", "the token has expired before it is issued"),
    ),
    (
        then(lambda s: s.decides("ACT"), lambda s: s.author.token("valve", uses=2, used=2)),
        ("S5", "/payload/usage_count", "the token is used up before it is issued"),
    ),
    (
        lambda s: issued_again(s, **{"/payload/max_usage_count": 7}),
        ("S5", "/payload/token_id", "the token token_stage_4 was issued before with another content"),
    ),
    (
        lambda s: edited(s.author.revocation(s.authorizes()), {"/payload/token_id": "token_other"}),
        ("S5", "/payload/token_id", "there is no token token_other to revoke"),
    ),
    (dangling, ("E6", TYPE, "directives without a result: task_stage_4; a result with CANCELLED also closes one")),
    (dangling, ("S6", TYPE, "directives without a result: task_stage_4; a result with CANCELLED also closes one")),
    (closing, ("E6", "", "directives without a result: task_stage_4; a result with CANCELLED also closes one")),
    (closing, ("INV-011", "", "the episode cannot close with open tasks: task_stage_4")),
    (
        lambda s: edited(s.author.result(s.executes()), {"/payload/directive_packet_id": "pkt_other"}),
        ("E6", "/payload/directive_packet_id", "no directive pkt_other waits for a result"),
    ),
    (
        lambda s: edited(s.author.result(s.executes()), {"/payload/task_id": "task_other"}),
        ("E6", "/payload/task_id", "the directive pkt_stage_4 is about task_stage_4, not task_other"),
    ),
    (halted, ("E7", TYPE, "in S9_SAFEMODE only IntegrityAlertPacket and BeliefUpdatePacket are taken")),
    (
        decided_when_escalated,
        ("S8", "/payload/decision_outcome", "a human's answer must come before the next decision"),
    ),
    (
        acting(quality=replace(QUALITY, quality_tier=QualityTier.SUBPAR)),
        ("INV-002", "/mcp/quality/quality_tier", "a decision of SUBPAR quality must not ACT"),
    ),
    (acting(stakes=HIGH), ("INV-003", "/mcp/quality/quality_tier", "acting at HIGH stakes needs SUPERB quality")),
    (
        acting(stakes=HIGH, quality=SUPERB, assumptions={"a": True, "b": False, "c": False}),
        (
            "INV-003",
            "/payload/load_bearing_assumptions/1/verified",
            "acting at HIGH stakes needs every assumption verified",
        ),
    ),
    (
        then(
            lambda s: s.senses(),
            lambda s: s.author.belief(epistemics=replace(DERIVED, status=EpistemicStatus.INFERRED)),
        ),
        (
            "INV-004",
            "/mcp/evidence/evidence_refs",
            "a belief that is INFERRED about OPERATIONAL matters needs a tool_output or a user_observation as evidence",
        ),
    ),
    (overspent, ("INV-005", "/mcp/budgets", "already spent: 500 tokens of 499")),
    (
        then(
            lambda s: s.decides("ACT", budgets=replace(BUDGETS, tool_call_budget=0)),
            lambda s: s.author.directive("gauge"),
        ),
        ("INV-005", "/payload/execution_method", "the budget of 0 tool calls leaves none for this directive"),
    ),
    (
        acting(constraints=checked(False, False)),
        (
            "INV-006",
            "/payload/constraints_satisfied/constitutional_check",
            "a decision to ACT needs its constitutional_check to be true",
        ),
    ),
    (
        acting(constraints=checked(True, False)),
        (
            "INV-006",
            "/payload/constraints_satisfied/budget_check",
            "a decision to ACT needs its budget_check to be true",
        ),
    ),
    (
        lambda s: s.author.directive("pump", safety="WRITE", token=s.authorizes()),
        ("INV-007", "/payload/execution_method/tool_id", "the token token_stage_4 does not open this tool"),
    ),
    (
        lambda s: s.author.directive(None, safety="WRITE", token=s.authorizes()),
        (
            "INV-007",
            "/payload/execution_method/tool_id",
            "the token token_stage_4 does not open a directive without a tool",
        ),
    ),
    (
        lambda s: written(s, operations=["read"]),
        ("INV-007", TOKEN, "the token token_stage_4 allows read, not delete or modify or write"),
    ),
    (
        acting(stakes=HIGH, quality=SUPERB, routing=replace(ROUTING, tools_state=ToolsState.DOWN)),
        ("INV-010", "/mcp/routing/tools_state", "nobody acts at HIGH stakes while tools are down"),
    ),
    (
        acting(
            stakes=replace(STAKES, impact=Level.MEDIUM, uncertainty=Uncertainty.HIGH, stakes_level=Level.MEDIUM),
            routing=replace(ROUTING, tools_state=ToolsState.PARTIAL),
        ),
        (
            "INV-010",
            "/mcp/routing/tools_state",
            "acting at MEDIUM stakes and HIGH uncertainty while tools work in part",
        ),
    ),
    (late, ("INV-011", "", "task_stage_4 should have been closed by 2025-01-01T00:10:03+00:00")),
    (late, ("INV-011", "", "task_stage_4 has taken longer than its timeout, 2025-01-01T00:01:03+00:00")),
    (
        lambda s: s.author.observation({"level": 3}, stakes=replace(STAKES, stakes_level=Level.CRITICAL)),
        ("INV-012", "/mcp/stakes/stakes_level", "a stakes_level of CRITICAL does not fit the four axes"),
    ),
    (
        lambda s: s.author.observation({"level": 3}, packet_id=s.senses().header.packet_id),
        ("ID-1", "/header/packet_id", "pkt_stage_1 was accepted before"),
    ),
    (
        lambda s: s.author.observation({"level": 3}, previous="pkt_other"),
        ("ID-2", "/header/previous_packet_id", "pkt_other is no accepted packet of this episode"),
    ),
    (
        then(lambda s: s.models(), lambda s: s.author.belief(at=START)),
        (
            "TIME-1",
            "/header/created_at",
            "the packet is dated before 2025-01-01T00:00:01+00:00, where the episode's clock stands",
        ),
    ),
    (lambda s: s.author.queue_update({}), ("QUEUE-1", TYPE, "a QueueUpdatePacket is taken and changes nothing")),
    (
        then(lambda s: s.decides("ACT"), lambda s: s.author.directive("gauge", task_type="tool_write")),
        ("SAFETY-1", "/payload/tool_safety_class", "READ contradicts the task type tool_write"),
    ),
    (
        then(lambda s: s.decides("ACT"), lambda s: s.author.token("valve", issuer=3)),
        ("LAYER-1", "/payload/issuer_layer", "a token is issued by layer 1 or 5"),
    ),
    (
        then(lambda s: s.decides("ACT"), lambda s: s.author.token("valve", layer=3)),
        ("LAYER-1", "/header/layer_source", "a token is issued by layer 1 or 5"),
    ),
    (
        lambda s: s.author.revocation(s.authorizes(), layer=5),
        ("LAYER-1", "/header/layer_source", "a token is revoked by Integrity"),
    ),
    (cleared_by_another, ("LAYER-2", "/header/layer_source", "only Integrity or layer 1 lifts safe mode")),
    (lambda s: s.author.record("approval", by="system"), ("RECORD-1", "/by", "only the operator approves")),
    (
        then(lambda s: s.senses(), lambda s: s.author.record("open")),
        ("RECORD-1", "/record", "the episode exists already"),
    ),
    (
        then(lambda s: s.models(), lambda s: s.author.observation({"level": 3})),
        (
            "FSM",
            TYPE,
            "ObservationPacket is not legal in S2_MODEL (model); it is legal in S0_IDLE, S1_SENSE, S4_VERIFY, S6_EXECUTE, S7_REVIEW",
        ),
    ),
    (
        then(lambda s: s.decides("DEFER"), lambda s: s.author.token("valve")),
        (
            "FSM",
            TYPE,
            "ToolAuthorizationToken is not legal in S3_DECIDE (decide: defer); it is legal only where this is pending: decide: act, authorize",
        ),
    ),
    (
        then(lambda s: s.senses(), lambda s: s.author.record("close")),
        ("FSM", "/record", "close is not legal in S1_SENSE (sense); it is legal in S7_REVIEW"),
    ),
]


@pytest.mark.parametrize(("last", "told"), FINDINGS, ids=[f"{told[0]} {told[2][:40]}" for _, told in FINDINGS])
def test_a_finding_says_where_and_why(last: Last, told: Told) -> None:
    assert told in told_of(last)


def test_a_limit_is_named() -> None:
    stage = Stage(limits=Limits(packets=1, open_episodes=1))
    stage.senses()
    more = stage.author.observation({"level": 3})
    another = stage.another("corr_other").observation({"level": 3})

    assert stage.judge.check(more).reason == "the episode holds as many packets, open tasks or tokens as it may"
    assert stage.judge.check(another).reason == "as many episodes are open as may be"


def test_a_closed_episode_says_so() -> None:
    stage = Stage()
    stage.reviews()
    stage.closes()

    assert [found.reason for found in stage.judge.check(stage.author.belief()).findings] == ["the episode is closed"]


@pytest.mark.parametrize(
    ("cost", "reason"),
    [
        (ExecutionMetadata(tokens_used=10_001), "the budget is overrun: 10001 tokens of 10000"),
        (ExecutionMetadata(tool_calls_used=11), "the budget is overrun: 11 tool calls of 10"),
        (ExecutionMetadata(execution_time_ms=600_500.0), "the budget is overrun: 600.5 seconds of 600"),
    ],
)
@pytest.mark.parametrize(("policy", "end"), [("safemode", "S9_SAFEMODE"), ("escalate", "S8_ESCALATED")])
def test_an_overrun_is_a_transition_with_its_own_record(
    cost: ExecutionMetadata, reason: str, policy: str, end: str
) -> None:
    stage = Stage(Settings(on_overrun=policy))  # type: ignore[arg-type]  # a setting may be given as its word
    asked = stage.executes()
    verdict = stage.judge.apply(stage.author.result(asked, cost=cost))
    (synthetic,) = verdict.synthetic

    assert (synthetic.rule, synthetic.reason) == ("INV-005", reason)
    assert synthetic.path == ("S6_EXECUTE", end)
    assert verdict.path == ("S6_EXECUTE", "S6_EXECUTE", end)
    assert synthetic.at == START + timedelta(seconds=4)
