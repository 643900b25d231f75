"""Whole episodes, one for each of the usual courses; the expectations are the specification's, written by hand."""

from datetime import timedelta
from typing import Final

from proctor.episode.packets.fields import ExecutionMetadata
from proctor.episode.packets.writer import BUDGETS
from tests.episode.golden_invariants import DOWN, HIGH, SUPERB
from tests.episode.golden_rules import PARTLY
from tests.episode.scripts import Script, Shelf

SHELF: Final = Shelf()
golden = SHELF.golden

DEAR: Final = ExecutionMetadata(tokens_used=BUDGETS.token_budget + 1)


@golden("sense-model-decide")
def sense_model_decide(s: Script) -> None:
    a = s.author
    first = s.takes(a.observation({"level": 3}), "S1")
    second = s.takes(a.observation({"level": 4}, type="system_telemetry"), "S1")
    s.takes(a.belief({"level": 3}, evidence=[first]), "S2")
    s.takes(a.belief({"level": 4}, type="revision", evidence=[second]), "S2")
    s.takes(a.decision("DEFER", "look again tomorrow"), "S3")
    s.takes(a.belief({"looked": True}), "S7")
    s.closes()


@golden("verification-loop")
def verification_loop(s: Script) -> None:
    a = s.author
    s.decides("VERIFY_FIRST")
    s.takes(a.plan(["the gauge is right"]), "S4")
    asked = s.takes(a.directive("gauge", task_type="verification"), "S4")
    told = s.takes(a.result(asked, data={"level": 3}), "S4")
    seen = s.takes(a.observation({"level": 3}, tool="gauge"), "S4")
    s.takes(a.belief({"level": 3}, type="confidence_adjustment", evidence=[told, seen]), "S2")
    s.takes(a.decision("ACT"), "S3")
    again = s.takes(a.directive("gauge"), "S6")
    s.takes(a.result(again), "S6")
    s.takes(a.belief(), "S7")
    s.closes()


@golden("read-act")
def read_act(s: Script) -> None:
    a = s.author
    first = s.executes()
    second = s.takes(a.directive("archive", task_type="memory_lookup", method="memory_query"), "S6")
    s.takes(a.result(second, data=["what was"]), "S6")
    s.takes(a.result(first, data={"level": 3}), "S6")
    s.takes(a.observation({"level": 3}, tool="gauge"), "S6")
    s.takes(a.belief({"level": 3}), "S7")
    s.takes(a.belief({"doctrine": "the gauge can be trusted"}), "S7")
    s.closes()


@golden("write-act")
def write_act(s: Script) -> None:
    a = s.author
    token = s.authorizes(uses=2)
    first = s.takes(a.directive("valve", safety="WRITE", token=token, params={"open": True}), "S6")
    s.takes(a.result(first), "S6")
    second = s.takes(a.directive("valve", safety="MIXED", token=token), "S6")
    s.takes(a.result(second), "S6")
    s.takes(a.observation({"open": True}, tool="valve"), "S6")
    s.takes(a.belief({"open": True}), "S7")
    s.closes()


@golden("escalation")
def escalation(s: Script) -> None:
    a = s.author
    s.decides("ESCALATE", stakes=HIGH)
    s.refuses(a.observation({"choice": "wait"}, type="user_input"), "S3", "FSM")
    s.takes(a.escalation(["open the valve", "wait"], trigger="high_stakes_high_uncertainty"), "S8")
    s.refuses(a.observation({"level": 3}), "S8", "FSM")
    s.refuses(a.decision("ACT"), "S8", "FSM", "S8")
    s.takes(a.observation({"choice": "wait"}, type="user_input"), "S3")
    s.takes(a.decision("DEFER"), "S3")
    s.takes(a.belief({"waiting": True}), "S7")
    s.closes()


@golden("degraded-tools")
def degraded_tools(s: Script) -> None:
    a = s.author
    s.decides("VERIFY_FIRST", routing=PARTLY)
    s.takes(a.plan(routing=PARTLY), "S4")
    asked = s.takes(a.directive("gauge", task_type="verification", routing=PARTLY), "S4")
    told = s.takes(a.result(asked, "FAILURE", routing=DOWN), "S4")
    s.takes(a.belief({"gauge": "silent"}, evidence=[told], routing=DOWN), "S2")
    s.refuses(a.decision("ACT", stakes=HIGH, quality=SUPERB, routing=DOWN), "S2", "INV-010")
    s.takes(a.decision("ESCALATE", stakes=HIGH, routing=DOWN), "S3")
    s.takes(a.escalation(trigger="tools_degraded_critical", routing=DOWN), "S8")
    s.takes(a.record("user_input", {"choice": "stop"}), "S3")
    s.takes(a.decision("CANCEL", routing=DOWN), "S3")
    s.takes(a.belief(routing=DOWN), "S7")
    s.closes()


@golden("safe-mode")
def safe_mode(s: Script) -> None:
    a = s.author
    token = s.authorizes(uses=5)
    asked = s.takes(a.directive("valve", safety="WRITE", token=token), "S6")
    s.takes(a.alert("CRITICAL", "the valve answers for somebody else"), "S9")
    s.refuses(a.result(asked), "S9", "FSM", "E6", "E7")
    s.takes(a.belief({"compromised": True}), "S9")
    s.refuses(a.record("close", by="system"), "S9", "FSM")
    s.takes(a.clear(), "S7")
    s.takes(a.observation({"level": 3}), "S1")
    s.takes(a.belief(), "S2")
    s.takes(a.decision("ACT"), "S3")
    s.takes(a.token("valve"), "S5")
    s.refuses(a.directive("valve", safety="WRITE", token=token), "S5", "E4")
    s.takes(a.record("safemode", {"reason": "the operator saw enough"}, by="operator"), "S9")
    s.closes("operator")


@golden("deferral")
def deferral(s: Script) -> None:
    a = s.author
    s.reviews()
    s.refuses(a.decision("ACT"), "S7", "FSM")
    s.takes(a.observation({"level": 5}), "S1")
    s.takes(a.belief({"level": 5}, type="revision"), "S2")
    s.takes(a.decision("DEFER"), "S3")
    s.takes(a.belief(), "S7")
    s.closes()


@golden("cancellation")
def cancellation(s: Script) -> None:
    a = s.author
    s.decides("CANCEL")
    s.refuses(a.directive("gauge"), "S3", "FSM", "E2")
    s.refuses(a.record("close"), "S3", "FSM")
    s.takes(a.belief({"wanted": False}), "S7")
    s.closes()


@golden("budget-overrun")
def budget_overrun(s: Script) -> None:
    a = s.author
    asked = s.executes()
    s.takes(a.result(asked, cost=DEAR), "S9")
    s.refuses(a.directive("gauge"), "S9", "FSM", "E2", "E7")
    s.takes(a.belief({"overrun": True}), "S9")
    s.takes(a.clear(), "S7")
    s.closes()


@golden("budget-overrun-escalated")
def budget_overrun_escalated(s: Script) -> None:
    a = s.author
    s.opens(on_overrun="escalate")
    asked = s.executes()
    s.takes(a.result(asked, cost=DEAR), "S8")
    s.refuses(a.record("user_input", {"choice": "go on"}), "S8", "FSM", "S8")
    s.refuses(a.decision("ACT"), "S8", "FSM", "S8", "INV-005")
    s.takes(a.escalation(trigger="budget_insufficient"), "S8")
    s.takes(a.record("user_input", {"choice": "go on"}), "S3")
    s.takes(a.decision("ACT"), "S3")
    again = s.takes(a.directive("gauge"), "S6")
    s.takes(a.result(again), "S6")
    s.takes(a.belief(), "S7")
    s.closes()


@golden("re-decision-after-partial-execution")
def re_decision(s: Script) -> None:
    a = s.author
    first = s.executes()
    second = s.takes(a.directive("thermometer"), "S6")
    s.takes(a.result(first), "S6")
    s.takes(a.result(second, "FAILURE"), "S6")
    s.takes(a.belief({"thermometer": "silent"}), "S2")
    s.takes(a.decision("ACT", "ask the thermometer again"), "S3")
    third = s.takes(a.directive("thermometer"), "S6")
    s.takes(a.result(third), "S6")
    s.takes(a.belief({"temperature": 21}), "S7")
    s.closes()


@golden("expired-token")
def expired_token(s: Script) -> None:
    a = s.author
    s.decides("ACT")
    token = s.takes(a.token("valve", expiry=a.now + timedelta(seconds=5)), "S5")
    expiry = token.payload.expiry
    s.refuses(a.directive("valve", safety="WRITE", token=token, at=expiry), "S5", "E4")
    renewed = s.takes(a.token("valve"), "S5")
    asked = s.takes(a.directive("valve", safety="WRITE", token=renewed), "S6")
    s.takes(a.result(asked), "S6")
    s.takes(a.belief(), "S7")
    s.closes()


@golden("revoked-token")
def revoked_token(s: Script) -> None:
    a = s.author
    token = s.authorizes(uses=5)
    s.takes(a.revocation(token), "S5")
    s.refuses(a.directive("valve", safety="WRITE", token=token), "S5", "E4")
    s.refuses(a.packet(token.payload), "S5", "S5")
    second = s.takes(a.token("valve", uses=5), "S5")
    asked = s.takes(a.directive("valve", safety="WRITE", token=second), "S6")
    s.takes(a.alert("WARNING", revokes=[second]), "S6")
    s.refuses(a.directive("valve", safety="WRITE", token=second), "S6", "E4")
    s.takes(a.result(asked, "CANCELLED"), "S6")
    s.takes(a.belief(), "S2")
    s.takes(a.decision("CANCEL"), "S3")
    s.takes(a.belief(), "S7")
    s.closes()


@golden("exhausted-token")
def exhausted_token(s: Script) -> None:
    a = s.author
    token = s.authorizes(uses=3, used=1)
    first = s.takes(a.directive("valve", safety="WRITE", token=token), "S6")
    second = s.takes(a.directive("valve", safety="WRITE", token=token), "S6")
    s.takes(a.result(first, "FAILURE"), "S6")
    s.takes(a.result(second), "S6")
    s.refuses(a.directive("valve", safety="WRITE", token=token), "S6", "E4")
    s.takes(a.belief(), "S2")
    s.takes(a.decision("DEFER"), "S3")
    s.takes(a.belief(), "S7")
    s.closes()


@golden("lenient-profile")
def lenient_profile(s: Script) -> None:
    a = s.author
    s.opens(profile="lenient")
    token = s.takes(a.token("valve"), "S0")
    s.decides("VERIFY_FIRST")
    asked = s.takes(a.directive("gauge"), "S4", "E3")
    told = s.takes(a.result(asked), "S4")
    s.takes(a.observation({"level": 3}), "S4")
    s.takes(a.belief(evidence=[told]), "S2", "E3", "S4")
    s.takes(a.decision("ACT"), "S3")
    s.takes(a.packet(token.payload), "S5")
    written = s.takes(a.directive("valve", safety="WRITE", token=token), "S6")
    s.takes(a.result(written), "S6")
    s.takes(a.belief(), "S7")
    s.closes()


@golden("nested-campaigns")
def nested_campaigns(s: Script) -> None:
    outer = s.another("corr_outer", campaign_id="camp_valves")
    inner = s.another("corr_inner", campaign_id="camp_valves")
    s.takes(outer.observation({"level": 3}), "S1")
    s.takes(outer.belief(), "S2")
    s.takes(inner.observation({"level": 3}), "S1")
    s.takes(outer.decision("ACT"), "S3")
    s.refuses(inner.decision("ACT"), "S1", "FSM", "E1")
    s.takes(inner.belief(), "S2")
    token = s.takes(outer.token("valve"), "S5")
    s.takes(inner.decision("ACT"), "S3")
    s.takes(inner.token("valve"), "S5")
    s.refuses(inner.directive("valve", safety="WRITE", token=token), "S5", "E4")
    asked = s.takes(outer.directive("valve", safety="WRITE", token=token), "S6")
    s.takes(inner.alert("CRITICAL"), "S9")
    s.takes(outer.result(asked), "S6")
    s.takes(outer.belief(), "S7")
    s.takes(outer.record("close"), "S0")
    s.takes(inner.record("close", by="operator"), "S0")
