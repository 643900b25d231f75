"""Where the protocol's contract is silent or contradicts itself: one test or more for each decision, on both its sides."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import pytest
from msgspec.structs import replace

from proctor.episode import Judge, Settings
from proctor.episode.packets.enums import EpistemicStatus, EvidenceKind, TaskType, ToolsState
from proctor.episode.packets.fields import (
    Budgets,
    ConstraintsSatisfied,
    Directive,
    Evidence,
    EvidenceRef,
    ExecutionMetadata,
    Layer,
    Routing,
)
from proctor.episode.packets.reader import Packet
from proctor.episode.packets.writer import BUDGETS, OBSERVED, ROUTING
from proctor.episode.settings import Clock, LayerRules, Limits, OnOverrun, Profile
from proctor.episode.transition_table import ProtocolState
from tests.episode.scripts import START, edited
from tests.episode.stages import TO_STATE, Stage

ROWS: Final = range(1, 39)
LENIENT: Final = Settings(profile=Profile.LENIENT)
PARTLY: Final = replace(ROUTING, tools_state=ToolsState.PARTIAL)
DOWN: Final = replace(ROUTING, tools_state=ToolsState.DOWN)
UNLAWFUL: Final = ConstraintsSatisfied(constitutional_check=False, budget_check=True, tier_check=True)
OUTCOMES: Final = ("VERIFY_FIRST", "ACT", "ESCALATE", "DEFER", "CANCEL")
RESTING: Final = ("ACT", "ESCALATE", "DEFER", "CANCEL")

in_every_state = pytest.mark.parametrize(("state", "way"), TO_STATE.items())


def short(state: ProtocolState) -> str:
    return state.value[:2]


def budgets(*, calls: int = 10, tokens: int = 10_000, seconds: int = 600) -> Budgets:
    return replace(BUDGETS, tool_call_budget=calls, token_budget=tokens, time_budget_seconds=seconds)


def test_all_rows_of_part_d_are_covered() -> None:
    named = {int(found[1]) for name in globals() if (found := re.match(r"test_d(\d\d)_", name))}

    assert named == set(ROWS)


# ------------------------------------------------------------------------------------------------------------ deciding
def test_d01_verify_first_is_one_packet_and_two_micro_steps() -> None:
    s = Stage()
    s.models()
    s.takes(s.author.decision("VERIFY_FIRST"), "S4")

    assert s.path == ("S2", "S3", "S4")


@pytest.mark.parametrize("outcome", RESTING)
def test_d01_any_other_decision_is_one_step(outcome: str) -> None:
    s = Stage()
    s.models()
    s.takes(s.author.decision(outcome), "S3")

    assert s.path == ("S2", "S3")


def test_d02_an_act_rests_until_its_token_or_its_read_directive() -> None:
    reading, writing = Stage(), Stage()
    for s in (reading, writing):
        s.decides("ACT")
        s.refuses(s.author.belief(), "S3", "FSM")
        s.refuses(s.author.escalation(), "S3", "FSM")
    reading.takes(reading.author.directive("gauge"), "S6")
    writing.takes(writing.author.token("valve"), "S5")

    assert (reading.path, writing.path) == (("S3", "S6"), ("S3", "S5"))


def test_d02_an_escalation_rests_until_its_escalation_packet() -> None:
    s = Stage()
    s.decides("ESCALATE")
    s.refuses(s.author.belief(), "S3", "FSM")
    s.refuses(s.author.token("valve"), "S3", "FSM")
    s.refuses(s.author.directive("gauge"), "S3", "FSM", "E2")
    s.takes(s.author.escalation(), "S8")

    assert s.path == ("S3", "S8")


@pytest.mark.parametrize("outcome", ["DEFER", "CANCEL"])
def test_d02_a_deferral_or_cancellation_rests_until_its_belief(outcome: str) -> None:
    s = Stage()
    s.decides(outcome)
    s.refuses(s.author.escalation(), "S3", "FSM")
    s.refuses(s.author.token("valve"), "S3", "FSM")
    s.takes(s.author.belief(), "S7")

    assert s.path == ("S3", "S7")


def test_d03_s3_leads_to_s7() -> None:
    s = Stage()
    s.decides("CANCEL")
    s.takes(s.author.belief(), "S7")
    s.closes()

    assert s.judge.outcome("corr_stage") == "conforming"


def test_d03_s3_does_not_close_by_itself() -> None:
    s = Stage()
    s.decides("CANCEL")
    s.refuses(s.author.record("close"), "S3", "FSM")

    assert s.judge.outcome("corr_stage") == "violated"


def test_d04_verify_first_is_legal_under_a_pending_act() -> None:
    s = Stage()
    s.decides("ACT")
    s.takes(s.author.decision("VERIFY_FIRST"), "S4")

    assert s.path == ("S3", "S4")


@pytest.mark.parametrize("outcome", RESTING)
def test_d04_any_other_decision_under_a_pending_act_is_refused(outcome: str) -> None:
    s = Stage()
    s.decides("ACT")
    s.refuses(s.author.decision(outcome), "S3", "FSM")

    assert s.path == ("S3",)


@pytest.mark.parametrize("pending", ["ESCALATE", "DEFER", "CANCEL"])
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_d04_a_decision_under_any_other_pending_outcome_is_refused(pending: str, outcome: str) -> None:
    s = Stage()
    s.decides(pending)
    s.refuses(s.author.decision(outcome), "S3", "FSM")

    assert s.path == ("S3",)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_d04_any_decision_is_legal_right_after_human_input(outcome: str) -> None:
    s = Stage()
    s.escalates()
    s.takes(s.author.observation({"choice": 1}, type="user_input"), "S3")
    s.takes(s.author.decision(outcome), "S4" if outcome == "VERIFY_FIRST" else "S3")
    if outcome != "VERIFY_FIRST":
        s.refuses(s.author.decision("CANCEL"), "S3", "FSM")

    assert s.path[0] == "S3"


# -------------------------------------------------------------------------------------------------------- verification
def test_d05_verification_directives_stay_in_s4() -> None:
    s = Stage()
    s.decides("VERIFY_FIRST")
    s.takes(s.author.plan(), "S4")
    asked = s.author.directive("gauge", task_type="verification")
    s.takes(asked, "S4")
    path = s.path
    s.takes(s.author.result(asked), "S4")

    assert (path, s.path) == (("S4", "S4"), ("S4", "S4"))


def test_d06_a_complete_verification_is_left_by_its_belief() -> None:
    s = Stage()
    seen = s.verifies()
    s.takes(s.author.belief(evidence=[seen]), "S2")

    assert s.path == ("S4", "S2")


def test_d06_without_a_plan_s4_is_not_left() -> None:
    s = Stage()
    s.decides("VERIFY_FIRST")
    seen = s.author.observation({"level": 3})
    s.takes(seen, "S4")
    s.refuses(s.author.belief(evidence=[seen]), "S4", "E3", "S4")

    assert "VerificationPlanPacket" in s.verdict.legal_next


def test_d06_without_a_read_directive_s4_is_not_left() -> None:
    s = Stage()
    s.decides("VERIFY_FIRST")
    s.takes(s.author.plan(), "S4")
    seen = s.author.observation({"level": 3})
    s.takes(seen, "S4")
    s.refuses(s.author.belief(evidence=[seen]), "S4", "E3", "S4")

    assert "TaskDirectivePacket(READ)" in s.verdict.legal_next


@pytest.mark.parametrize("status", ["FAILURE", "CANCELLED"])
def test_d06_without_a_success_s4_is_not_left(status: str) -> None:
    s = Stage()
    s.decides("VERIFY_FIRST")
    s.takes(s.author.plan(), "S4")
    asked = s.author.directive("gauge")
    s.takes(asked, "S4")
    s.takes(s.author.result(asked, status), "S4")
    seen = s.author.observation({"level": 3})
    s.takes(seen, "S4")
    s.refuses(s.author.belief(evidence=[seen]), "S4", "E3", "S4")

    assert s.path == ("S4",)


def test_d06_without_observed_evidence_s4_is_not_left() -> None:
    s = Stage()
    told = s.reads_in_s4()
    remembered = replace(OBSERVED, status=EpistemicStatus.REMEMBERED)
    s.takes(s.author.observation({"level": 3}, epistemics=remembered), "S4")
    s.refuses(s.author.belief(evidence=[told]), "S4", "S4")

    assert s.path == ("S4",)


def test_d06_without_a_reference_s4_is_not_left() -> None:
    s = Stage()
    s.verifies()
    s.refuses(s.author.belief(), "S4", "E3", "S4")

    assert s.path == ("S4",)


def test_d06_after_the_belief_a_decision_anew_is_owed() -> None:
    s = Stage()
    seen = s.verifies()
    s.takes(s.author.belief(evidence=[seen]), "S2")
    s.takes(s.author.belief(), "S2")
    s.refuses(s.author.record("close"), "S2", "FSM", "E3")
    owed = [obligation.kind for obligation in s.verdict.obligations]
    s.takes(s.author.decision("DEFER"), "S3")
    s.takes(s.author.belief(), "S7")
    s.closes()

    assert owed == ["decision"]


def test_d07_the_plan_is_mandatory_in_profile_strict() -> None:
    s = Stage()
    s.decides("VERIFY_FIRST")
    s.refuses(s.author.directive("gauge"), "S4", "E3")
    s.refuses(s.author.token("valve"), "S4", "FSM")
    s.takes(s.author.plan(), "S4")
    s.takes(s.author.directive("gauge"), "S4")

    assert s.verdict.warnings == ()


def test_d07_the_missing_plan_is_a_warning_in_profile_lenient() -> None:
    s = Stage(LENIENT)
    s.decides("VERIFY_FIRST")
    asked = s.author.directive("gauge")
    s.takes(asked, "S4", "E3")
    s.takes(s.author.result(asked), "S4")
    seen = s.author.observation({"level": 3})
    s.takes(seen, "S4")
    s.takes(s.author.belief(evidence=[seen]), "S2", "E3", "S4")

    assert s.path == ("S4", "S2")


def test_d07_profile_lenient_still_wants_the_rest_of_the_verification() -> None:
    s = Stage(LENIENT)
    s.decides("VERIFY_FIRST")
    s.refuses(s.author.belief(), "S4", "E3", "S4", warnings=("E3", "S4"))

    assert s.path == ("S4",)


def test_d07_profile_lenient_admits_a_token_as_the_first_packet() -> None:
    s = Stage(LENIENT)
    s.takes(s.author.token("valve"), "S0")
    s.decides("VERIFY_FIRST")
    s.takes(s.author.token("valve"), "S4")
    s.takes(s.author.plan(), "S4")
    s.refuses(s.author.token("valve"), "S4", "E3")

    assert s.path == ("S4",)


def test_d07_profile_strict_admits_no_token_as_the_first_packet() -> None:
    s = Stage()
    s.refuses(s.author.token("valve"), "S0", "FSM")

    assert s.path == ("S0",)


@pytest.mark.parametrize("routing", [PARTLY, DOWN])
def test_d08_success_and_observed_are_waived_while_tools_are_not_ok(routing: Routing) -> None:
    s = Stage()
    s.decides("VERIFY_FIRST")
    s.takes(s.author.plan(), "S4")
    asked = s.author.directive("gauge")
    s.takes(asked, "S4")
    told = s.author.result(asked, "FAILURE", routing=routing)
    s.takes(told, "S4")
    s.takes(s.author.belief(evidence=[told]), "S2")

    assert s.path == ("S4", "S2")


def test_d08_plan_directive_and_reference_are_not_waived() -> None:
    s = Stage()
    s.decides("VERIFY_FIRST", routing=DOWN)
    s.refuses(s.author.directive("gauge", routing=DOWN), "S4", "E3")
    seen = s.author.observation({"level": 3}, routing=DOWN)
    s.takes(seen, "S4")
    s.refuses(s.author.belief(evidence=[seen], routing=DOWN), "S4", "E3", "S4")

    assert s.path == ("S4",)


def test_d08_it_is_the_latest_accepted_packet_that_says_how_tools_are() -> None:
    s = Stage()
    s.decides("VERIFY_FIRST")
    s.takes(s.author.plan(routing=DOWN), "S4")
    asked = s.author.directive("gauge", routing=DOWN)
    s.takes(asked, "S4")
    told = s.author.result(asked, "FAILURE")
    s.takes(told, "S4")
    s.refuses(s.author.belief(evidence=[told], routing=DOWN), "S4", "E3", "S4")
    s.takes(s.author.alert("WARNING", "the gauge is silent", routing=PARTLY), "S4")
    s.takes(s.author.belief(evidence=[told]), "S2")

    assert s.path == ("S4", "S2")


def test_d09_evidence_integration_alone_is_a_reference() -> None:
    s = Stage()
    seen = s.verifies()
    s.takes(s.author.belief(integrates=[seen]), "S2")

    assert s.path == ("S4", "S2")


def test_d09_an_evidence_ref_alone_is_a_reference() -> None:
    s = Stage()
    told = s.reads_in_s4()
    s.takes(s.author.observation({"level": 3}), "S4")
    s.takes(s.author.belief(evidence=[told], integrates=[]), "S2")

    assert s.path == ("S4", "S2")


def test_d09_what_came_before_the_verify_first_is_no_reference() -> None:
    s = Stage()
    old = s.models()
    s.takes(s.author.decision("VERIFY_FIRST"), "S4")
    plan = s.author.plan()
    s.takes(plan, "S4")
    asked = s.author.directive("gauge")
    s.takes(asked, "S4")
    s.takes(s.author.result(asked), "S4")
    s.takes(s.author.observation({"level": 3}), "S4")
    s.refuses(s.author.belief(evidence=[old]), "S4", "E3", "S4")
    s.refuses(s.author.belief(integrates=[plan, asked, "pkt_nobody"]), "S4", "E3", "S4")

    assert s.path == ("S4",)


def test_d09_a_refused_observation_is_no_reference() -> None:
    s = Stage()
    seen = s.verifies()
    refused = s.author.observation({"level": 4}, packet_id=seen.header.packet_id)
    s.refuses(refused, "S4", "ID-1")
    nowhere = EvidenceRef(EvidenceKind.TOOL_OUTPUT, "pkt_nowhere", START)
    s.refuses(s.author.belief(evidence=Evidence([nowhere])), "S4", "E3", "S4")

    assert s.path == ("S4",)


def test_d10_verify_first_allows_read_directives_in_s4_only() -> None:
    s = Stage()
    seen = s.verifies()
    s.takes(s.author.belief(evidence=[seen]), "S2")
    s.refuses(s.author.directive("gauge"), "S2", "FSM", "E2")

    assert s.path == ("S2",)


def test_d10_a_write_in_s4_is_refused_even_with_a_token() -> None:
    s = Stage(LENIENT)
    s.decides("VERIFY_FIRST")
    token = s.author.token("valve")
    s.takes(token, "S4")
    s.takes(s.author.plan(), "S4")
    s.refuses(s.author.directive("valve", safety="WRITE", token=token), "S4", "FSM", "E2")

    assert s.path == ("S4",)


def test_d10_the_latest_decision_governs() -> None:
    s = Stage()
    asked = s.executes()
    s.takes(s.author.result(asked), "S6")
    s.takes(s.author.belief(), "S7")
    s.takes(s.author.decision("DEFER"), "S3")
    s.refuses(s.author.directive("gauge"), "S3", "FSM", "E2")

    assert s.path == ("S3",)


# -------------------------------------------------------------------------------------------------- writing and tokens
def test_d11_mixed_is_write_everywhere() -> None:
    s = Stage()
    s.decides("ACT")
    s.refuses(s.author.directive("valve", safety="MIXED", token="token_none"), "S3", "FSM", "E4")
    token, reading = s.author.token("valve"), s.author.token("valve", operations=["read"])
    s.takes(token, "S5")
    s.takes(reading, "S5")
    s.refuses(s.author.directive("valve", safety="MIXED", token=reading), "S5", "INV-007")
    mixed = s.author.directive("valve", safety="MIXED", token=token)
    s.refuses(edited(mixed, {"/payload/authorization_token_id": None}), "S5", "SCHEMA", "E4")
    s.takes(mixed, "S6")

    assert s.verdict.event == "TaskDirectivePacket(WRITE)"


def test_d11_mixed_is_no_read_in_s4() -> None:
    s = Stage(LENIENT)
    s.decides("VERIFY_FIRST")
    token = s.author.token("valve", operations=["read", "write"])
    s.takes(token, "S4")
    s.takes(s.author.plan(), "S4")
    s.refuses(s.author.directive("valve", safety="MIXED", token=token), "S4", "FSM", "E2")

    assert s.path == ("S4",)


@pytest.mark.parametrize("task_type", [task_type for task_type in TaskType if task_type is not TaskType.TOOL_WRITE])
def test_d12_a_missing_class_is_read_unless_the_task_writes(task_type: TaskType) -> None:
    s = Stage()
    s.decides("ACT")
    s.takes(s.author.directive("gauge", safety=None, task_type=task_type), "S6")

    assert s.verdict.event == "TaskDirectivePacket(READ)"


def test_d12_a_missing_class_is_write_if_the_task_writes() -> None:
    s = Stage()
    token = s.authorizes()
    s.refuses(s.author.directive("valve", safety=None, task_type="tool_write"), "S5", "E4")
    s.takes(s.author.directive("valve", safety=None, task_type="tool_write", token=token), "S6")

    assert s.verdict.event == "TaskDirectivePacket(WRITE)"


@pytest.mark.parametrize(
    ("safety", "task_type"),
    [("READ", "tool_write"), *(("WRITE", found) for found in TaskType if found is not TaskType.TOOL_WRITE)],
)
def test_d12_a_conflict_is_an_error_and_counts_as_a_write(safety: str, task_type: str) -> None:
    s = Stage()
    token = s.authorizes(operations=["read", "write"])
    s.refuses(s.author.directive("valve", safety=safety, task_type=task_type, token=token), "S5", "SAFETY-1")

    assert s.verdict.event == "TaskDirectivePacket(WRITE)"


def test_d13_a_token_is_checked_when_it_is_issued() -> None:
    s = Stage()
    s.decides("ACT")
    scopeless = edited(s.author.token("valve"), {"/payload/authorized_scope/tool_ids": []})
    s.refuses(scopeless, "S3", "SCHEMA")
    s.refuses(s.author.token("valve", expiry=START), "S3", "S5")
    s.refuses(s.author.token("valve", uses=1, used=1), "S3", "S5")
    s.refuses(edited(s.author.token("valve"), {"/payload/revoked": True}), "S3", "S5", warnings=("LAYER-1",))

    assert s.path == ("S3",)


def test_d13_a_token_is_checked_when_it_is_used() -> None:
    s = Stage()
    s.decides("ACT")
    fine, spent, revoked = s.author.token("valve"), s.author.token("valve"), s.author.token("valve", uses=9)
    brief = s.author.token("valve", expiry=s.author.now + timedelta(seconds=60))
    for token in (fine, spent, revoked, brief):
        s.takes(token, "S5")
    s.takes(s.author.revocation(revoked), "S5")
    s.takes(s.author.directive("valve", safety="WRITE", token=spent), "S6")
    s.refuses(s.author.directive("valve", safety="WRITE", token=spent), "S6", "E4")
    s.refuses(s.author.directive("valve", safety="WRITE", token=revoked), "S6", "E4")
    s.refuses(s.author.directive("pump", safety="WRITE", token=fine), "S6", "INV-007")
    at = brief.payload.expiry + timedelta(seconds=1)
    s.refuses(s.author.directive("valve", safety="WRITE", token=brief, at=at), "S6", "E4")
    s.takes(s.author.directive("valve", safety="WRITE", token=fine), "S6")

    assert s.path == ("S6", "S6")


def test_d14_a_read_directive_in_s5_is_refused_with_the_hint() -> None:
    s = Stage()
    s.authorizes()
    s.refuses(s.author.directive("gauge"), "S5", "FSM")

    assert ProtocolState.EXECUTE in s.verdict.reason
    assert s.verdict.way[-1] == "TaskDirectivePacket(READ)"
    assert "TaskDirectivePacket(WRITE)" in s.verdict.legal_next


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_d14_a_decision_in_s5_is_refused_with_the_hint(outcome: str) -> None:
    s = Stage()
    token = s.authorizes()
    s.refuses(s.author.decision(outcome), "S5", "FSM")
    reason, way = s.verdict.reason, s.verdict.way
    s.takes(s.author.directive("valve", safety="WRITE", token=token), "S6")

    assert ProtocolState.MODEL in reason
    assert way[-1].startswith("DecisionPacket")


def test_d15_a_write_inside_s6_needs_a_token_that_is_still_valid() -> None:
    s = Stage()
    token = s.authorizes(uses=2)
    s.takes(s.author.directive("valve", safety="WRITE", token=token), "S6")
    s.refuses(s.author.directive("valve", safety="WRITE", token="token_other"), "S6", "E4")
    s.takes(s.author.directive("valve", safety="WRITE", token=token), "S6")
    s.refuses(s.author.directive("valve", safety="WRITE", token=token), "S6", "E4")

    assert s.path == ("S6",)


def test_d15_s6_reached_by_reading_has_no_token_to_write_with() -> None:
    s = Stage()
    s.executes()
    s.refuses(s.author.token("valve"), "S6", "FSM")
    s.refuses(s.author.directive("valve", safety="WRITE", token="token_none"), "S6", "E4")

    assert s.path == ("S6",)


# ------------------------------------------------------------------------------------------------ the set of S7 and S2
def settled(*statuses: str) -> Stage:
    """Return an episode whose execution was integrated, with results of these statuses."""
    s = Stage()
    asked = [s.executes()]
    for _ in statuses[1:]:
        asked.append(s.author.directive("gauge"))
        s.takes(asked[-1], "S6")
    for directive, status in zip(asked, statuses, strict=True):
        s.takes(s.author.result(directive, status), "S6")
    s.takes(s.author.belief(), "S7" if set(statuses) == {"SUCCESS"} else "S2")
    return s


@pytest.mark.parametrize(
    ("statuses", "state"),
    [
        (("SUCCESS",), "S7"),
        (("SUCCESS", "SUCCESS"), "S7"),
        (("FAILURE",), "S2"),
        (("CANCELLED", "SUCCESS"), "S2"),
    ],
)
def test_d16_the_set_is_shown_as_s7_only_if_every_result_was_a_success(statuses: tuple[str, ...], state: str) -> None:
    s = settled(*statuses)

    assert s.path == ("S6", state)


@pytest.mark.parametrize("status", ["SUCCESS", "FAILURE"])
def test_d16_the_next_packet_tells_which_of_s7_and_s2_it_was(status: str) -> None:
    deciding, verifying, observing, closing = (settled(status) for _ in range(4))
    deciding.takes(deciding.author.decision("DEFER"), "S3")
    verifying.takes(verifying.author.decision("VERIFY_FIRST"), "S4")
    observing.takes(observing.author.observation({"level": 4}), "S1")
    closing.closes()

    assert (deciding.path, verifying.path) == (("S2", "S3"), ("S2", "S3", "S4"))
    assert (observing.path, closing.path) == (("S7", "S1"), ("S7", "S0"))


@pytest.mark.parametrize(("status", "state"), [("SUCCESS", "S7"), ("FAILURE", "S2")])
def test_d16_the_set_of_s7_and_s2_is_kept_by_a_belief_or_a_notice(status: str, state: str) -> None:
    s = settled(status)
    s.takes(s.author.belief(), state)
    path = s.path
    s.takes(s.author.alert("INFO"), state)
    s.takes(s.author.decision("DEFER"), "S3")

    assert (path, s.path) == ((state, state), ("S2", "S3"))


def test_d16_a_second_execution_starts_afresh() -> None:
    s = settled("FAILURE")
    s.takes(s.author.decision("ACT"), "S3")
    asked = s.author.directive("gauge")
    s.takes(asked, "S6")
    s.takes(s.author.result(asked), "S6")
    s.takes(s.author.belief(), "S7")

    assert s.path == ("S6", "S7")


def test_d16_s7_by_a_deferral_is_no_set() -> None:
    s = Stage()
    s.reviews()
    s.refuses(s.author.decision("ACT"), "S7", "FSM")

    assert s.path == ("S7",)


# --------------------------------------------------------------------------------------------------- tasks and results
def test_d17_s6_is_not_left_with_open_directives_and_they_are_named() -> None:
    s = Stage()
    first = s.executes()
    second = s.author.directive("gauge")
    s.takes(second, "S6")
    s.takes(s.author.result(first), "S6")
    s.refuses(s.author.belief(), "S6", "E6", "S6")
    reason = s.verdict.reason
    s.takes(s.author.result(second), "S6")
    s.takes(s.author.belief(), "S7")

    assert second.payload.task_id in reason
    assert first.payload.task_id not in reason


def test_d18_a_dangling_directive_is_an_obligation_with_a_deadline() -> None:
    s = Stage()
    asked = s.executes()
    deadline = asked.header.created_at + timedelta(seconds=600)
    owed = [(found.kind, found.id, found.due) for found in s.verdict.obligations]
    s.takes(s.author.observation({"level": 3}, at=deadline + timedelta(seconds=1)), "S6", "INV-011")
    s.refuses(s.author.belief(), "S6", "E6", "S6")
    s.refuses(s.author.record("close"), "S6", "FSM", "E6", "INV-011")

    assert owed == [("task", asked.payload.task_id, deadline)]


def test_d18_the_way_out_is_a_cancelled_result() -> None:
    s = Stage()
    asked = s.executes()
    s.takes(s.author.result(asked, "CANCELLED"), "S6")
    s.takes(s.author.belief(), "S2")
    s.closes()

    assert s.verdict.obligations == ()


def test_d18_in_s4_too_an_open_directive_holds_the_belief() -> None:
    s = Stage()
    seen = s.verifies()
    asked = s.author.directive("gauge")
    s.takes(asked, "S4")
    s.refuses(s.author.belief(evidence=[seen]), "S4", "E6")
    s.refuses(s.author.record("close"), "S4", "FSM", "E3", "E6", "INV-008", "INV-011")
    s.takes(s.author.result(asked, "CANCELLED"), "S4")
    s.takes(s.author.belief(evidence=[seen]), "S2")

    assert s.path == ("S4", "S2")


def test_d19_a_result_needs_an_open_directive_with_its_packet_id_and_task_id() -> None:
    s = Stage()
    first = s.executes()
    second = s.author.directive("gauge")
    s.takes(second, "S6")
    s.refuses(edited(s.author.result(first), {"/payload/directive_packet_id": "pkt_unknown"}), "S6", "E6")
    s.refuses(edited(s.author.result(first), {"/payload/task_id": second.payload.task_id}), "S6", "E6")
    s.takes(s.author.result(first), "S6")
    s.refuses(s.author.result(first), "S6", "E6")
    s.takes(s.author.result(second), "S6")

    assert s.path == ("S6", "S6")


def test_d19_a_result_without_any_directive_is_refused() -> None:
    s = Stage()
    asked = s.author.directive("gauge", previous=None)
    s.author.previous_packet_id = None
    s.decides("VERIFY_FIRST")
    s.refuses(s.author.result(asked), "S4", "E6")

    assert s.path == ("S4",)


# ------------------------------------------------------------------------------------------- review, safe mode, alerts
@pytest.mark.parametrize("kind", ["tool_output", "user_input"])
def test_d20_an_observation_in_s7_begins_a_new_cycle(kind: str) -> None:
    s = Stage()
    s.reviews()
    s.takes(s.author.observation({"level": 4}, type=kind), "S1")
    path = s.path
    s.takes(s.author.belief(), "S2")

    assert path == ("S7", "S1")


@in_every_state
def test_d21_a_critical_alert_halts_from_every_state(state: ProtocolState, way: Callable[[Stage], object]) -> None:
    s = Stage()
    way(s)
    s.takes(s.author.alert("CRITICAL"), "S9")

    assert s.path == (short(state), "S9")


def test_d21_a_critical_alert_may_be_the_very_first_packet() -> None:
    s = Stage()
    s.takes(s.author.alert("CRITICAL"), "S9")

    assert s.path == ("S0", "S9")


@pytest.mark.parametrize(("status", "state"), [("SUCCESS", "S7"), ("FAILURE", "S2")])
def test_d21_a_critical_alert_halts_the_declared_set_too(status: str, state: str) -> None:
    s = settled(status)
    s.takes(s.author.alert("CRITICAL"), "S9")

    assert s.path == (state, "S9")


def test_d22_a_result_that_shows_an_overrun_is_accepted_and_then_the_machine_halts() -> None:
    s = Stage()
    asked = s.executes(budgets=budgets(tokens=100))
    s.takes(s.author.result(asked, cost=ExecutionMetadata(tokens_used=101)), "S9")

    assert s.path == ("S6", "S6", "S9")
    assert len(s.verdict.synthetic) == 1


@pytest.mark.parametrize(
    "cost",
    [
        ExecutionMetadata(tokens_used=100, tool_calls_used=2, execution_time_ms=3000),
        ExecutionMetadata(tokens_used=0, tool_calls_used=0, execution_time_ms=0),
    ],
)
def test_d22_what_is_spent_to_the_last_is_no_overrun(cost: ExecutionMetadata) -> None:
    s = Stage()
    asked = s.executes(budgets=budgets(tokens=100, calls=2, seconds=3))
    s.takes(s.author.result(asked, cost=cost), "S6")

    assert s.verdict.synthetic == ()


@pytest.mark.parametrize(
    "cost",
    [
        ExecutionMetadata(tokens_used=101),
        ExecutionMetadata(tool_calls_used=3),
        ExecutionMetadata(execution_time_ms=3000.5),
    ],
)
def test_d22_the_policy_escalate_asks_a_human_instead(cost: ExecutionMetadata) -> None:
    s = Stage(Settings(on_overrun=OnOverrun.ESCALATE))
    asked = s.executes(budgets=budgets(tokens=100, calls=2, seconds=3))
    s.takes(s.author.result(asked, cost=cost), "S8")
    path = s.path
    s.refuses(s.author.observation({"choice": 1}, type="user_input"), "S8", "FSM", "S8")
    s.takes(s.author.escalation(trigger="budget_insufficient"), "S8")
    s.takes(s.author.observation({"choice": 1}, type="user_input"), "S3")
    s.takes(s.author.decision("ACT", budgets=budgets(tokens=0, calls=0, seconds=0)), "S3")

    assert path == ("S6", "S6", "S8")


def test_d22_a_directive_that_would_exceed_what_is_left_is_refused_and_nothing_moves() -> None:
    s = Stage()
    s.executes(budgets=budgets(calls=1))
    s.refuses(s.author.directive("gauge"), "S6", "INV-005")
    after = s.verdict.before == s.verdict.after
    s.takes(s.author.record("approval", {"tool_call_budget": 1}), "S6")
    s.takes(s.author.directive("gauge"), "S6")

    assert after


def test_d22_an_act_on_budgets_that_are_spent_already_is_refused() -> None:
    s = settled("SUCCESS")
    s.refuses(s.author.decision("ACT", budgets=budgets(calls=0)), "S7", "INV-005")
    s.takes(s.author.decision("ACT", budgets=budgets(calls=1)), "S3")

    assert s.path == ("S2", "S3")


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_d22_a_decision_that_is_unlawful_is_refused_only_as_act(outcome: str) -> None:
    s = Stage()
    s.models()
    decision = s.author.decision(outcome, constraints=UNLAWFUL)
    if outcome == "ACT":
        s.refuses(decision, "S2", "INV-006")
    else:
        s.takes(decision, "S4" if outcome == "VERIFY_FIRST" else "S3")

    assert s.verdict.synthetic == ()


def test_d22_safe_mode_for_an_unlawful_course_comes_from_the_operator_or_the_api() -> None:
    by_record, by_call = Stage(), Stage()
    by_record.models()
    by_call.models()
    by_record.takes(by_record.author.record("safemode", {"reason": "unlawful"}, by="operator"), "S9")
    verdict = by_call.judge.halt("corr_stage", at=by_call.author.now, by="operator", reason="unlawful")

    assert by_record.path == ("S2", "S9")
    assert verdict.path == (ProtocolState.MODEL, ProtocolState.SAFEMODE)


@pytest.mark.parametrize("layer", ["Integrity", 1])
@pytest.mark.parametrize("severity", ["INFO", "WARNING", "ERROR"])
def test_d23_safe_mode_is_lifted_by_a_clearing_alert(layer: Layer, severity: str) -> None:
    s = Stage()
    s.halts()
    s.takes(s.author.alert(severity, type="clear", layer=layer), "S7")

    assert s.path == ("S9", "S7")


def test_d23_nothing_else_lifts_safe_mode() -> None:
    s = Stage()
    s.halts()
    s.takes(s.author.belief(), "S9")
    s.takes(s.author.alert("INFO"), "S9")
    s.takes(s.author.alert("CRITICAL", type="clear"), "S9")
    s.takes(s.author.clear(layer=2), "S9", "LAYER-2")
    s.refuses(s.author.record("user_input"), "S9", "FSM")

    assert s.path == ("S9",)


def test_d23_s0_is_reached_from_s9_only_by_the_operators_close() -> None:
    s = Stage()
    s.halts()
    s.refuses(s.author.record("close", by="system"), "S9", "FSM")
    s.closes("operator")

    assert s.path == ("S9", "S0")


def test_d24_open_directives_are_void_in_safe_mode_and_late_results_are_refused() -> None:
    s = Stage()
    asked = s.executes()
    s.takes(s.author.alert("CRITICAL"), "S9")
    owed = [found.kind for found in s.verdict.obligations]
    s.refuses(s.author.result(asked), "S9", "FSM", "E6", "E7")
    s.takes(s.author.clear(), "S7")
    s.refuses(s.author.result(asked), "S7", "FSM", "E6")
    s.closes()

    assert "task" not in owed


def test_d24_tokens_are_revoked_by_safe_mode() -> None:
    s = Stage()
    token = s.authorizes(uses=9)
    s.takes(s.author.alert("CRITICAL"), "S9")
    s.takes(s.author.clear(), "S7")
    s.takes(s.author.observation({"level": 3}), "S1")
    s.takes(s.author.belief(), "S2")
    s.takes(s.author.decision("ACT"), "S3")
    s.refuses(s.author.packet(token.payload), "S3", "S5")
    s.takes(s.author.token("valve"), "S5")
    s.refuses(s.author.directive("valve", safety="WRITE", token=token), "S5", "E4")

    assert s.path == ("S5",)


def test_d24_a_verification_is_void_in_safe_mode() -> None:
    s = Stage()
    s.decides("VERIFY_FIRST")
    s.takes(s.author.alert("CRITICAL"), "S9")
    s.takes(s.author.clear(), "S7")
    s.closes()

    assert s.judge.outcome("corr_stage") == "conforming"


@in_every_state
@pytest.mark.parametrize("severity", ["INFO", "WARNING", "ERROR"])
def test_d25_a_notice_is_legal_everywhere_and_changes_no_state(
    state: ProtocolState, way: Callable[[Stage], object], severity: str
) -> None:
    s = Stage()
    way(s)
    s.takes(s.author.alert(severity), short(state))

    assert s.path == (short(state), short(state))


def test_d25_a_notice_may_carry_a_tokens_revocation() -> None:
    s = Stage()
    token = s.authorizes(uses=9)
    s.takes(s.author.alert("WARNING"), "S5")
    s.takes(s.author.directive("valve", safety="WRITE", token=token), "S6")
    s.takes(s.author.alert("WARNING", revokes=[token]), "S6")
    s.refuses(s.author.directive("valve", safety="WRITE", token=token), "S6", "E4")

    assert s.path == ("S6",)


# ------------------------------------------------------------------------------------------- humans, closing, beliefs
def test_d26_user_input_in_s8_leads_to_a_decision() -> None:
    s = Stage()
    s.escalates()
    s.takes(s.author.observation({"choice": 1}, type="user_input"), "S3")
    path = s.path
    s.refuses(s.author.belief(), "S3", "FSM")
    s.takes(s.author.decision("ACT"), "S3")

    assert path == ("S8", "S3")


def test_d26_the_api_answers_too() -> None:
    s = Stage()
    s.escalates()
    verdict = s.judge.answer("corr_stage", at=s.author.now, data={"choice": 1})
    s.takes(s.author.decision("CANCEL"), "S3")

    assert verdict.path == (ProtocolState.ESCALATED, ProtocolState.DECIDE)


@pytest.mark.parametrize("kind", ["tool_output", "intel_update"])
def test_d26_no_other_observation_answers(kind: str) -> None:
    s = Stage()
    s.escalates()
    s.refuses(s.author.observation({"choice": 1}, type=kind), "S8", "FSM")

    assert s.path == ("S8",)


def test_d26_nobody_answers_before_the_escalation_packet() -> None:
    s = Stage()
    s.decides("ESCALATE")
    s.refuses(s.author.observation({"choice": 1}, type="user_input"), "S3", "FSM")
    s.refuses(s.author.record("user_input"), "S3", "FSM")

    assert s.path == ("S3",)


@in_every_state
def test_d27_an_episode_closes_from_s7_only_or_from_s9_by_the_operator(
    state: ProtocolState, way: Callable[[Stage], object]
) -> None:
    by_system, by_operator = Stage(), Stage()
    way(by_system)
    way(by_operator)
    system = by_system.judge.close("corr_stage", at=by_system.author.now, by="system")
    operator = by_operator.judge.close("corr_stage", at=by_operator.author.now, by="operator")

    assert system.accepted == (state is ProtocolState.REVIEW)
    assert operator.accepted == (state in (ProtocolState.REVIEW, ProtocolState.SAFEMODE))
    assert ("FSM" in system.rules) == (not system.accepted)


def test_d27_a_close_record_is_the_same_as_the_call() -> None:
    by_record, by_call = Stage(), Stage()
    by_record.reviews()
    by_call.reviews()
    by_record.closes()
    verdict = by_call.judge.close("corr_stage", at=by_call.author.now)

    assert verdict.path == by_record.verdict.path
    assert verdict.line == by_record.lines[-1]


@pytest.mark.parametrize("severity", ["INFO", "CRITICAL"])
def test_d27_after_the_close_nothing_is_taken(severity: str) -> None:
    s = Stage()
    s.reviews()
    s.closes()
    s.refuses(s.author.alert(severity), "S0", "EPISODE_CLOSED")
    s.refuses(s.author.observation({"level": 3}), "S0", "EPISODE_CLOSED")
    s.refuses(s.author.record("user_input"), "S0", "EPISODE_CLOSED")

    assert s.judge.outcome("corr_stage") == "violated"


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_d28_initial_beliefs_open_the_way_from_s1_to_s3(outcome: str) -> None:
    s = Stage(Settings(initial_beliefs=True))
    s.senses()
    s.takes(s.author.decision(outcome), "S4" if outcome == "VERIFY_FIRST" else "S3")

    assert s.path[:2] == ("S1", "S3")


@pytest.mark.parametrize("beliefs", [[], False])
def test_d28_without_initial_beliefs_a_decision_needs_a_model(beliefs: object) -> None:
    s = Stage(Settings(initial_beliefs=True))
    s.opens(initial_beliefs=beliefs)
    s.senses()
    s.refuses(s.author.decision("ACT"), "S1", "FSM", "E1")

    assert s.path == ("S1",)


def test_d28_initial_beliefs_open_no_way_from_s0() -> None:
    s = Stage()
    s.opens(initial_beliefs=["the gauge is right"])
    s.refuses(s.author.decision("ACT"), "S0", "FSM")
    s.senses()
    s.takes(s.author.decision("ACT"), "S3")

    assert s.path == ("S1", "S3")


# ----------------------------------------------------------------------------------------------------------------- time
def test_d29_event_time_is_created_at_and_expired_means_at_the_expiry() -> None:
    in_time, late = Stage(), Stage()
    for s, wait in ((in_time, timedelta(seconds=60, microseconds=-1)), (late, timedelta(seconds=60))):
        s.decides("ACT")
        token = s.author.token("valve", expiry=s.author.now + timedelta(seconds=60))
        s.takes(token, "S5")
        writing = s.author.directive("valve", safety="WRITE", token=token, at=token.header.created_at + wait)
        if s is in_time:
            s.takes(writing, "S6")
        else:
            s.refuses(writing, "S5", "E4")

    assert (in_time.path, late.path) == (("S5", "S6"), ("S5",))


def test_d29_time_running_backwards_is_a_warning_and_the_clock_stays() -> None:
    s = Stage()
    s.decides("ACT")
    token = s.author.token("valve", expiry=s.author.now + timedelta(seconds=60))
    s.takes(token, "S5")
    s.takes(s.author.alert("INFO", at=token.payload.expiry), "S5")
    early = token.header.created_at
    s.refuses(s.author.directive("valve", safety="WRITE", token=token, at=early), "S5", "E4", warnings=("TIME-1",))
    s.takes(s.author.alert("INFO", at=early), "S5", "TIME-1")

    assert s.path == ("S5", "S5")


def test_d29_a_naive_timestamp_is_a_schema_error() -> None:
    s = Stage()
    s.senses()
    s.refuses(edited(s.author.belief(), {"/header/created_at": "2025-01-01T00:00:09"}), "S1", "SCHEMA")

    assert s.verdict.pointers == ("/header/created_at",)


def test_d29_the_wall_clock_is_an_option() -> None:
    hours = iter([0, 0, 0, 0, 2])
    judge = Judge(Settings(clock=Clock.WALL), now=lambda: START + timedelta(hours=next(hours)))
    author = Stage().author
    before = [author.observation({"level": 3}).line(), author.belief().line(), author.decision("ACT").line()]
    token = author.token("valve", expiry=START + timedelta(hours=1))
    writing = author.directive("valve", safety="WRITE", token=token)

    verdicts = list(judge.stream([*before, token.line(), writing.line()]))

    assert [verdict.accepted for verdict in verdicts] == [True, True, True, True, False]
    assert verdicts[-1].rules == ("E4",)


def test_d29_a_replay_decides_the_same() -> None:
    s = Stage()
    token = s.authorizes()
    writing = s.author.directive("valve", safety="WRITE", token=token)
    s.refuses(edited(writing, {"/header/created_at": token.payload.expiry}), "S5", "E4")
    s.takes(writing, "S6")
    again = Judge()

    verdicts = list(again.stream(s.lines))

    assert [(found.accepted, found.path) for found in verdicts][-2:] == [
        (False, (ProtocolState.AUTHORIZE,)),
        (True, (ProtocolState.AUTHORIZE, ProtocolState.EXECUTE)),
    ]


# ------------------------------------------------------------------------------------------- tokens, scopes and budgets
def test_d30_usage_starts_at_the_payloads_count() -> None:
    s = Stage()
    token = s.authorizes(uses=3, used=2)
    s.takes(s.author.directive("valve", safety="WRITE", token=token), "S6")
    s.refuses(s.author.directive("valve", safety="WRITE", token=token), "S6", "E4")

    assert s.path == ("S6",)


@pytest.mark.parametrize("status", ["FAILURE", "CANCELLED"])
def test_d30_there_is_no_refund(status: str) -> None:
    s = Stage()
    token = s.authorizes()
    asked = s.author.directive("valve", safety="WRITE", token=token)
    s.takes(asked, "S6")
    s.takes(s.author.result(asked, status), "S6")
    s.refuses(s.author.directive("valve", safety="WRITE", token=token), "S6", "E4")

    assert s.path == ("S6",)


def test_d30_a_refused_directive_does_not_count() -> None:
    s = Stage()
    token = s.authorizes()
    s.refuses(s.author.directive("pump", safety="WRITE", token=token), "S5", "INV-007")
    s.takes(s.author.directive("valve", safety="WRITE", token=token), "S6")

    assert s.path == ("S5", "S6")


def test_d30_a_read_directive_that_names_a_token_counts_too() -> None:
    s = Stage()
    token = s.authorizes(uses=2, operations=["read", "write"])
    s.takes(s.author.directive("valve", safety="WRITE", token=token), "S6")
    s.takes(s.author.directive("valve", token=token), "S6")
    s.refuses(s.author.directive("valve", token=token), "S6", "E4")
    s.takes(s.author.directive("valve"), "S6")

    assert s.path == ("S6", "S6")


def test_d30_the_same_token_id_again_is_identical_or_a_revocation() -> None:
    s = Stage()
    token = s.authorizes(uses=1)
    s.refuses(s.author.packet(replace(token.payload, max_usage_count=5)), "S5", "S5")
    s.refuses(s.author.packet(replace(token.payload, rationale="again")), "S5", "S5")
    s.takes(s.author.packet(token.payload), "S5")
    s.takes(s.author.revocation(token), "S5")
    s.refuses(s.author.packet(token.payload), "S5", "S5")

    assert s.path == ("S5",)


def test_d30_an_identical_token_refreshes_no_usage() -> None:
    s = Stage()
    token = s.authorizes(uses=2)
    asked = s.author.directive("valve", safety="WRITE", token=token)
    s.takes(asked, "S6")
    s.takes(s.author.result(asked), "S6")
    s.takes(s.author.belief(), "S7")
    s.takes(s.author.decision("ACT"), "S3")
    s.takes(s.author.packet(token.payload), "S5")
    s.takes(s.author.directive("valve", safety="WRITE", token=token), "S6")
    s.refuses(s.author.directive("valve", safety="WRITE", token=token), "S6", "E4")

    assert s.path == ("S6",)


@pytest.mark.parametrize("operation", ["write", "modify", "delete"])
def test_d31_a_write_inside_the_tokens_scope_is_taken(operation: str) -> None:
    s = Stage()
    token = s.authorizes(operations=[operation])
    s.takes(s.author.directive("valve", safety="WRITE", token=token), "S6")

    assert s.path == ("S5", "S6")


def test_d31_tools_and_operations_outside_the_tokens_scope_are_refused() -> None:
    s = Stage()
    writing = s.authorizes(uses=9)
    reading = s.author.token(["valve", "gauge"], operations=["read"], uses=9)
    s.takes(reading, "S5")
    s.refuses(s.author.directive("gauge", safety="WRITE", token=writing), "S5", "INV-007")
    s.refuses(s.author.directive("valve", safety="WRITE", token=reading), "S5", "INV-007")
    s.takes(s.author.directive("valve", safety="WRITE", token=writing), "S6")
    s.refuses(s.author.directive("valve", token=writing), "S6", "INV-007")
    s.takes(s.author.directive("gauge", token=reading), "S6")

    assert s.path == ("S6", "S6")


def directed(**said: Any) -> tuple[Stage, Packet[Directive]]:
    """Return an episode in S6, and its directive, which says `said`."""
    s = Stage()
    s.decides("ACT")
    asked = s.author.directive("gauge", **said)
    s.takes(asked, "S6")
    return s, asked


def test_d32_the_deadline_is_the_directives_time_budget_inclusive() -> None:
    s, asked = directed(budgets=budgets(seconds=30))
    deadline = asked.header.created_at + timedelta(seconds=30)
    s.takes(s.author.observation({"level": 3}, at=deadline), "S6")
    s.takes(s.author.observation({"level": 3}, at=deadline + timedelta(microseconds=1)), "S6", "INV-011")
    s.takes(s.author.observation({"level": 3}), "S6")

    assert s.verdict.obligations[0].due == deadline


@pytest.mark.parametrize(("seconds", "warnings"), [(30, ()), (31, ("INV-011",))])
def test_d32_a_late_result_is_taken_and_shows_the_warning(seconds: int, warnings: tuple[str, ...]) -> None:
    s, asked = directed(budgets=budgets(seconds=30))
    s.takes(s.author.result(asked, at=asked.header.created_at + timedelta(seconds=seconds)), "S6", *warnings)
    s.takes(s.author.belief(), "S7")

    assert s.verdict.obligations == ()


def test_d32_timeout_seconds_gives_a_warning_of_its_own() -> None:
    s, asked = directed(budgets=budgets(seconds=30), timeout=10)
    began = asked.header.created_at
    s.takes(s.author.observation({"level": 3}, at=began + timedelta(seconds=10)), "S6")
    s.takes(s.author.observation({"level": 3}, at=began + timedelta(seconds=11)), "S6", "INV-011")
    s.takes(s.author.observation({"level": 3}, at=began + timedelta(seconds=30)), "S6")
    s.takes(s.author.observation({"level": 3}, at=began + timedelta(seconds=31)), "S6", "INV-011")

    assert len(s.verdict.warnings) == 1


def test_d33_budgets_are_those_of_the_governing_decision_cumulated() -> None:
    s = Stage()
    first = s.executes(budgets=budgets(tokens=100))
    s.takes(s.author.result(first, cost=ExecutionMetadata(tokens_used=60)), "S6")
    s.takes(s.author.belief(), "S7")
    s.takes(s.author.decision("ACT", budgets=budgets(tokens=110)), "S3")
    second = s.author.directive("gauge", budgets=budgets(tokens=1))
    s.takes(second, "S6")
    third = s.author.directive("gauge")
    s.takes(third, "S6")
    s.takes(s.author.result(second, cost=ExecutionMetadata(tokens_used=50)), "S6")
    s.takes(s.author.result(third, cost=ExecutionMetadata(tokens_used=1)), "S9")

    assert s.path == ("S6", "S6", "S9")


def test_d33_a_tool_directive_that_reports_nothing_costs_one_call() -> None:
    s = Stage()
    first = s.executes(budgets=budgets(calls=2))
    s.takes(s.author.result(first), "S6")
    second = s.author.directive("gauge")
    s.takes(second, "S6")
    s.takes(s.author.result(second, "FAILURE"), "S6")
    s.refuses(s.author.directive("gauge"), "S6", "INV-005")
    thought = s.author.directive(None, task_type="computation", method="code")
    s.takes(thought, "S6")
    s.takes(s.author.result(thought), "S6")

    assert s.path == ("S6", "S6")


def test_d33_what_a_result_reports_counts_instead() -> None:
    s = Stage()
    first = s.executes(budgets=budgets(calls=2))
    s.takes(s.author.result(first, cost=ExecutionMetadata(tool_calls_used=0)), "S6")
    second = s.author.directive("gauge")
    s.takes(second, "S6")
    s.takes(s.author.result(second, cost=ExecutionMetadata(tool_calls_used=3)), "S9")

    assert s.path == ("S6", "S6", "S9")


# ------------------------------------------------------------------------------------------ atomicity, ids, the hint
def test_d34_a_refused_packet_names_all_that_it_breaks_and_changes_nothing() -> None:
    s = Stage()
    token = s.authorizes()
    s.refuses(s.author.directive("pump", safety="WRITE", token=token, packet_id="pkt_stage_1"), "S5", "ID-1", "INV-007")
    before, after = s.verdict.before, s.verdict.after
    s.takes(s.author.directive("valve", safety="WRITE", token=token), "S6")

    assert before == after


def test_d34_a_refused_packet_does_not_move_the_clock_nor_take_its_id() -> None:
    s = Stage()
    s.senses()
    far = START + timedelta(days=9)
    s.refuses(s.author.decision("ACT", at=far, packet_id="pkt_again"), "S1", "FSM", "E1")
    s.takes(s.author.belief(at=START + timedelta(seconds=1), packet_id="pkt_again"), "S2")

    assert s.verdict.warnings == ()


def test_d34_a_refused_first_line_does_not_begin_the_episode() -> None:
    s = Stage()
    s.refuses(s.author.decision("ACT"), "S0", "FSM", "E1")
    s.opens(initial_beliefs=True)
    s.senses()
    s.takes(s.author.decision("ACT"), "S3")

    assert s.judge.outcome("corr_stage") == "violated"


def test_d34_refused_first_lines_take_no_place_of_an_episode() -> None:
    s = Stage(limits=Limits(open_episodes=1))
    for number in range(3):
        s.refuses(s.another(f"corr_{number}").belief(), "S0", "FSM")
    s.senses()

    assert s.judge.outcome("corr_0") == "violated"


def test_d34_the_log_of_refusals_is_kept() -> None:
    s = Stage()
    s.reviews()
    s.refuses(s.author.decision("ACT"), "S7", "FSM")
    s.closes()
    [summary] = s.judge.summaries()

    assert (summary.refusals, summary.broken, summary.outcome) == (1, {"FSM": 1}, "violated")


def test_d34_asking_what_if_changes_nothing_either() -> None:
    s = Stage()
    s.senses()
    packet = s.author.belief()
    asked = [s.judge.check(packet).path for _ in range(2)]
    s.takes(packet, "S2")

    assert asked == [s.verdict.path] * 2


def test_d35_a_duplicate_packet_id_is_refused() -> None:
    s = Stage()
    first = s.senses()
    s.refuses(first, "S1", "ID-1")
    s.refuses(s.author.alert("CRITICAL", packet_id=first.header.packet_id), "S1", "ID-1")

    assert s.path == ("S1",)


def test_d35_an_unknown_previous_packet_is_a_warning() -> None:
    s = Stage()
    s.takes(s.author.observation({"level": 3}, previous="pkt_nobody"), "S1", "ID-2")
    s.takes(s.author.belief(), "S2")
    s.takes(s.author.belief(previous=None), "S2")

    assert s.verdict.warnings == ()


@pytest.mark.parametrize(
    "state", [ProtocolState.MODEL, ProtocolState.DECIDE, ProtocolState.AUTHORIZE, ProtocolState.ESCALATED]
)
def test_d36_an_observation_there_is_refused_with_the_hint_where_it_is_legal(state: ProtocolState) -> None:
    s = Stage()
    TO_STATE[state](s)
    s.refuses(s.author.observation({"level": 3}), short(state), "FSM")

    assert ProtocolState.SENSE in s.verdict.reason


def test_d36_a_belief_in_s5_is_refused_with_the_hint_where_it_is_legal() -> None:
    s = Stage()
    s.authorizes()
    s.refuses(s.author.belief(), "S5", "FSM")

    assert ProtocolState.MODEL in s.verdict.reason


@pytest.mark.parametrize("state", [ProtocolState.SENSE, ProtocolState.VERIFY, ProtocolState.EXECUTE])
def test_d36_an_observation_elsewhere_is_taken(state: ProtocolState) -> None:
    s = Stage()
    TO_STATE[state](s)
    s.takes(s.author.observation({"level": 3}), short(state))

    assert s.path == (short(state), short(state))


# -------------------------------------------------------------------------------------------------- episodes and layers
def test_d37_episodes_are_independent_and_the_campaign_only_groups() -> None:
    s = Stage()
    outer = s.another("corr_outer", campaign_id="camp_one")
    inner = s.another("corr_inner", campaign_id="camp_one")
    s.takes(outer.observation({"level": 3}, packet_id="pkt_first"), "S1")
    s.takes(inner.observation({"level": 3}, packet_id="pkt_first"), "S1")
    s.takes(outer.belief(), "S2")
    s.refuses(inner.decision("ACT"), "S1", "FSM", "E1")
    s.takes(outer.decision("ACT"), "S3")
    token = outer.token("valve")
    s.takes(token, "S5")
    s.takes(inner.alert("CRITICAL"), "S9")
    s.takes(outer.directive("valve", safety="WRITE", token=token), "S6")
    found = {summary.correlation_id: summary for summary in s.judge.summaries()}

    assert {name: summary.campaign_id for name, summary in found.items()} == {
        "corr_outer": "camp_one",
        "corr_inner": "camp_one",
    }
    assert (found["corr_outer"].outcome, found["corr_inner"].outcome) == ("open", "violated")


def test_d37_a_token_of_another_episode_opens_nothing() -> None:
    s = Stage()
    token = s.authorizes()
    other = s.another("corr_other", campaign_id="camp_one")
    s.takes(other.observation({"level": 3}), "S1")
    s.takes(other.belief(), "S2")
    s.takes(other.decision("ACT"), "S3")
    s.takes(other.token("valve"), "S5")
    s.refuses(other.directive("valve", safety="WRITE", token=token), "S5", "E4")

    assert s.path == ("S5",)


@pytest.mark.parametrize("issuer", [1, 5])
def test_d38_layers_1_and_5_issue_tokens(issuer: Layer) -> None:
    s = Stage(Settings(layer_rules=LayerRules.ERROR))
    s.decides("ACT")
    token = s.author.token("valve", issuer=issuer)
    s.takes(token, "S5")
    s.takes(s.author.revocation(token), "S5")

    assert s.verdict.event == "ToolAuthorizationToken(revoked)"


@pytest.mark.parametrize("issuer", [2, 3, 4, 6, "Integrity"])
def test_d38_a_token_from_another_layer_is_a_warning_that_can_be_an_error(issuer: Layer) -> None:
    mild, stern = Stage(), Stage(Settings(layer_rules=LayerRules.ERROR))
    mild.decides("ACT")
    stern.decides("ACT")
    mild.takes(mild.author.token("valve", issuer=issuer), "S5", "LAYER-1")
    stern.refuses(stern.author.token("valve", issuer=issuer), "S3", "LAYER-1")

    assert (mild.path, stern.path) == (("S3", "S5"), ("S3",))


@in_every_state
def test_d38_integrity_revokes_everywhere_but_in_safe_mode(
    state: ProtocolState, way: Callable[[Stage], object]
) -> None:
    s = Stage(LENIENT)
    s.opens()
    token = s.author.token("valve")
    s.takes(token, "S0")
    if state is not ProtocolState.IDLE:
        way(s)
    if state is ProtocolState.SAFEMODE:
        s.refuses(s.author.revocation(token), "S9", "FSM", "E7")
    else:
        s.takes(s.author.revocation(token), short(state))

    assert token.payload.token_id not in [found.id for found in s.verdict.obligations]


def test_d38_a_revocation_from_another_layer_is_a_warning() -> None:
    s = Stage()
    token = s.authorizes(uses=9)
    s.takes(s.author.alert("INFO", revokes=[token], layer=1), "S5", "LAYER-1")
    s.takes(s.author.revocation(token, layer=5), "S5", "LAYER-1")
    s.refuses(s.author.directive("valve", safety="WRITE", token=token), "S5", "E4")

    assert s.path == ("S5",)


def test_d38_a_revocation_from_another_layer_can_be_an_error() -> None:
    s = Stage(Settings(layer_rules=LayerRules.ERROR))
    token = s.authorizes(uses=9)
    s.refuses(s.author.alert("INFO", revokes=[token], layer=1), "S5", "LAYER-1")
    s.refuses(s.author.revocation(token, layer=5), "S5", "LAYER-1")
    s.takes(s.author.directive("valve", safety="WRITE", token=token), "S6")

    assert s.path == ("S5", "S6")


def test_d38_who_cannot_lift_safe_mode_is_told_so() -> None:
    mild, stern = Stage(), Stage(Settings(layer_rules=LayerRules.ERROR))
    mild.halts()
    stern.halts()
    mild.takes(mild.author.clear(layer=5), "S9", "LAYER-2")
    stern.refuses(stern.author.clear(layer=5), "S9", "LAYER-2")

    assert (mild.path, stern.path) == (("S9", "S9"), ("S9",))
