"""For every rule of the stream and of the sequences: one episode that keeps it, and one that breaks it.

The expectations are the specification's, written by hand. What breaks a rule stands between lines that show that
nothing else was touched.
"""

from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from proctor.episode.packets.enums import EpistemicStatus, ToolsState
from proctor.episode.packets.writer import EPISTEMICS, ROUTING
from tests.episode.scripts import START, Script, Shelf, edited, without

SHELF: Final = Shelf()
golden = SHELF.golden

PARTLY: Final = replace(ROUTING, tools_state=ToolsState.PARTIAL)
SHAPE_OF_ESCALATION: Final = ("SCHEMA", "E5", "S8", "INV-009")


@golden("JSON-keeps")
def json_keeps(s: Script) -> None:
    s.takes(s.author.observation({"text": "ünïcode"}, notes={"_seen_by": "a camera"}), "S1")
    s.takes(s.author.belief(), "S2")


@golden("JSON-breaks")
def json_breaks(s: Script) -> None:
    s.refuses(b'{"header": ', None, "JSON")
    s.senses()
    s.refuses(b'{"header": "\xff"}', None, "JSON")
    s.takes(s.author.belief(), "S2")


@golden("SCHEMA-keeps")
def schema_keeps(s: Script) -> None:
    s.models()
    s.takes(s.author.decision("DEFER"), "S3")


@golden("SCHEMA-breaks")
def schema_breaks(s: Script) -> None:
    s.refuses(edited(s.author.observation({"level": 3}), {"/payload/data": {}}), None, "SCHEMA")
    s.senses()
    s.refuses(edited(s.author.observation({"level": 3}), {"/payload/data": {}}), "S1", "SCHEMA")
    s.refuses(edited(s.author.observation({"level": 3}), {"/payload/mood": "good"}), "S1", "SCHEMA")
    s.refuses(edited(s.author.observation({"level": 3}), {"/comment": "hello"}), "S1", "SCHEMA")
    s.refuses(edited(s.author.observation({"level": 3}), {"/header/packet_id": "3"}), "S1", "SCHEMA")
    s.refuses(edited(s.author.belief(), {"/header/created_at": "2025-01-01T00:00:00"}), "S1", "SCHEMA")
    s.refuses(edited(s.author.belief(), {"/payload/update_type": "contradiction_resolved"}), "S1", "SCHEMA")
    s.refuses(b'{"record": "close", "correlation_id": "corr_golden"}', "S1", "SCHEMA")
    s.takes(s.author.belief(), "S2")


@golden("EPISODE_CLOSED-keeps")
def episode_closed_keeps(s: Script) -> None:
    s.reviews()
    s.closes()


@golden("EPISODE_CLOSED-breaks")
def episode_closed_breaks(s: Script) -> None:
    s.reviews()
    s.closes()
    s.refuses(s.author.observation({"level": 4}), "S0", "EPISODE_CLOSED")
    s.refuses(s.author.alert("CRITICAL"), "S0", "EPISODE_CLOSED")
    s.refuses(s.author.record("close"), "S0", "EPISODE_CLOSED")


@golden("LIMIT-1-keeps")
def limit_1_keeps(s: Script) -> None:
    s.senses()
    second = s.another("corr_second")
    third = s.another("corr_third")
    s.takes(second.alert("CRITICAL"), "S9")
    s.takes(second.record("close", by="operator"), "S0")
    s.takes(third.observation({"level": 3}), "S1")


@golden("LIMIT-1-breaks")
def limit_1_breaks(s: Script) -> None:
    s.senses()
    second = s.another("corr_second")
    third = s.another("corr_third")
    s.takes(second.observation({"level": 3}), "S1")
    s.refuses(third.observation({"level": 3}), "S0", "LIMIT-1")
    s.takes(second.alert("CRITICAL"), "S9")
    s.takes(second.record("close", by="operator"), "S0")
    s.takes(third.observation({"level": 3}), "S1")


@golden("LIMIT-2-keeps")
def limit_2_keeps(s: Script) -> None:
    first = s.executes()
    for _ in range(2):
        s.takes(s.author.directive("gauge"), "S6")
    s.takes(s.author.result(first), "S6")
    s.takes(s.author.directive("gauge"), "S6")


@golden("LIMIT-2-breaks")
def limit_2_breaks(s: Script) -> None:
    first = s.executes()
    for _ in range(2):
        s.takes(s.author.directive("gauge"), "S6")
    s.refuses(s.author.directive("gauge"), "S6", "LIMIT-2")
    s.takes(s.author.result(first), "S6")
    s.takes(s.author.directive("gauge"), "S6")


@golden("RECORD-1-keeps")
def record_1_keeps(s: Script) -> None:
    s.opens(profile="strict")
    s.senses()
    s.takes(s.author.record("approval", {"tool_call_budget": 1}, by="operator"), "S1")


@golden("RECORD-1-breaks")
def record_1_breaks(s: Script) -> None:
    s.opens()
    s.refuses(s.author.record("open"), "S0", "RECORD-1")
    s.senses()
    s.refuses(s.author.record("open", {"profile": "lenient"}), "S1", "RECORD-1")
    s.refuses(s.author.record("approval", {"tool_call_budget": 1}, by="system"), "S1", "RECORD-1")


@golden("FSM-keeps")
def fsm_keeps(s: Script) -> None:
    s.models()
    s.takes(s.author.belief(), "S2")
    s.takes(s.author.alert("WARNING"), "S2")


@golden("FSM-breaks")
def fsm_breaks(s: Script) -> None:
    s.models()
    s.refuses(s.author.observation({"level": 4}), "S2", "FSM")
    s.refuses(s.author.escalation(), "S2", "FSM")
    s.refuses(s.author.token("valve"), "S2", "FSM")
    s.takes(s.author.decision("DEFER"), "S3")
    s.refuses(s.author.decision("ACT"), "S3", "FSM")


@golden("ID-1-keeps")
def id_1_keeps(s: Script) -> None:
    s.senses()
    s.takes(s.author.observation({"level": 4}, packet_id="pkt_of_my_own"), "S1")
    s.refuses(s.author.decision("ACT", packet_id="pkt_refused"), "S1", "FSM", "E1")
    s.takes(s.author.belief(packet_id="pkt_refused"), "S2")


@golden("ID-1-breaks")
def id_1_breaks(s: Script) -> None:
    first = s.senses()
    s.refuses(first, "S1", "ID-1")
    s.refuses(s.author.belief(packet_id=first.header.packet_id), "S1", "ID-1")
    # Nothing but a name that is taken holds up an emergency.
    s.refuses(s.author.alert("CRITICAL", packet_id=first.header.packet_id), "S1", "ID-1")
    s.takes(s.author.belief(), "S2")


@golden("ID-2-keeps")
def id_2_keeps(s: Script) -> None:
    s.takes(s.author.observation({"level": 3}, previous=None), "S1")
    s.takes(s.author.belief(), "S2")


@golden("ID-2-breaks")
def id_2_breaks(s: Script) -> None:
    s.takes(s.author.observation({"level": 3}, previous="pkt_nobody"), "S1", "ID-2")
    refused = s.author.decision("ACT")
    s.refuses(refused, "S1", "FSM", "E1")
    s.takes(s.author.belief(previous=refused.header.packet_id), "S2", "ID-2")


@golden("TIME-1-keeps")
def time_1_keeps(s: Script) -> None:
    s.senses()
    s.takes(s.author.belief(at=START), "S2")


@golden("TIME-1-breaks")
def time_1_breaks(s: Script) -> None:
    s.senses()
    s.takes(s.author.observation({"level": 3}, at=START - timedelta(microseconds=1)), "S1", "TIME-1")
    s.takes(s.author.observation({"level": 3}, at=START), "S1")


@golden("QUEUE-1-keeps")
def queue_1_keeps(s: Script) -> None:
    s.senses()
    s.takes(s.author.alert("INFO"), "S1")


@golden("QUEUE-1-breaks")
def queue_1_breaks(s: Script) -> None:
    s.senses()
    s.takes(s.author.queue_update({"depth": 4}), "S1", "QUEUE-1")
    s.takes(s.author.belief(), "S2")


@golden("SAFETY-1-keeps")
def safety_1_keeps(s: Script) -> None:
    token = s.authorizes(uses=2)
    s.takes(s.author.directive("valve", safety=None, task_type="tool_write", token=token), "S6")
    s.takes(s.author.directive("valve", safety="MIXED", task_type="tool_write", token=token), "S6")
    s.takes(s.author.directive("gauge", safety=None, task_type="computation"), "S6")


@golden("SAFETY-1-breaks")
def safety_1_breaks(s: Script) -> None:
    token = s.authorizes()
    s.refuses(s.author.directive("valve", safety="WRITE", task_type="tool_read", token=token), "S5", "SAFETY-1")
    s.refuses(s.author.directive("valve", safety="MIXED", task_type="computation", token=token), "S5", "SAFETY-1")
    s.refuses(s.author.directive("valve", safety="READ", task_type="tool_write", token=token), "S5", "SAFETY-1")
    s.takes(s.author.directive("valve", safety="WRITE", token=token), "S6")


@golden("LAYER-1-keeps")
def layer_1_keeps(s: Script) -> None:
    s.opens(layer_rules="error")
    token = s.authorizes(issuer=1)
    other = s.takes(s.author.token("valve", issuer=5), "S5")
    s.takes(s.author.revocation(token), "S5")
    s.takes(s.author.alert("WARNING", revokes=[other]), "S5")


@golden("LAYER-1-breaks")
def layer_1_breaks(s: Script) -> None:
    s.decides("ACT")
    token = s.takes(s.author.token("valve", issuer=3), "S5", "LAYER-1")
    s.takes(s.author.revocation(token, layer=5), "S5", "LAYER-1")
    s.takes(s.author.alert("WARNING", revokes=[token], layer=1), "S5", "LAYER-1")


@golden("LAYER-2-keeps")
def layer_2_keeps(s: Script) -> None:
    s.senses()
    s.takes(s.author.clear(layer=3), "S1")
    s.takes(s.author.alert("CRITICAL"), "S9")
    s.takes(s.author.clear(layer=1), "S7")


@golden("LAYER-2-breaks")
def layer_2_breaks(s: Script) -> None:
    s.halts()
    s.takes(s.author.clear(layer=5), "S9", "LAYER-2")
    s.takes(s.author.clear(), "S7")


# -------------------------------------------------------------------------------------------------------------- E1, E2
@golden("E1-keeps")
def e1_keeps(s: Script) -> None:
    s.opens(initial_beliefs=True)
    s.senses()
    s.takes(s.author.decision("DEFER"), "S3")
    s.takes(s.author.belief(), "S7")
    s.closes()


@golden("E1-breaks")
def e1_breaks(s: Script) -> None:
    s.refuses(s.author.decision("ACT"), "S0", "FSM", "E1")
    s.senses()
    s.refuses(s.author.decision("ACT"), "S1", "FSM", "E1")
    s.takes(s.author.belief(), "S2")
    s.takes(s.author.decision("ACT"), "S3")


@golden("E2-keeps")
def e2_keeps(s: Script) -> None:
    asked = s.executes()
    s.takes(s.author.result(asked), "S6")
    s.takes(s.author.belief(), "S7")
    s.closes()


@golden("E2-breaks")
def e2_breaks(s: Script) -> None:
    s.models()
    s.refuses(s.author.directive("gauge"), "S2", "FSM", "E2")
    s.takes(s.author.decision("DEFER"), "S3")
    s.refuses(s.author.directive("gauge"), "S3", "FSM", "E2")
    s.takes(s.author.belief(), "S7")


# -------------------------------------------------------------------------------------------------------------- E3, S4
@golden("E3-keeps")
def e3_keeps(s: Script) -> None:
    seen = s.verifies()
    s.takes(s.author.belief(evidence=[seen]), "S2")
    s.takes(s.author.decision("DEFER"), "S3")
    s.takes(s.author.belief(), "S7")
    s.closes()


@golden("E3-breaks")
def e3_breaks(s: Script) -> None:
    s.decides("VERIFY_FIRST")
    s.refuses(s.author.directive("gauge"), "S4", "E3")
    s.refuses(s.author.belief(), "S4", "E3", "S4")
    s.refuses(s.author.record("close"), "S4", "FSM", "E3", "INV-008")
    s.takes(s.author.plan(), "S4")
    asked = s.takes(s.author.directive("gauge"), "S4")
    s.takes(s.author.result(asked), "S4")
    seen = s.takes(s.author.observation({"level": 3}), "S4")
    s.refuses(s.author.belief(), "S4", "E3", "S4")
    s.takes(s.author.belief(evidence=[seen]), "S2")
    s.refuses(s.author.record("close"), "S2", "FSM", "E3")


@golden("S4-keeps")
def s4_keeps(s: Script) -> None:
    s.decides("VERIFY_FIRST")
    s.takes(s.author.plan(), "S4")
    asked = s.takes(s.author.directive("gauge"), "S4")
    told = s.takes(s.author.result(asked, "FAILURE", routing=PARTLY), "S4")
    s.takes(s.author.belief(evidence=[told]), "S2")


@golden("S4-breaks")
def s4_breaks(s: Script) -> None:
    told = s.reads_in_s4()
    s.refuses(s.author.belief(evidence=[told]), "S4", "S4")
    guessed = replace(EPISTEMICS[told.kind], status=EpistemicStatus.INFERRED)
    s.takes(s.author.observation({"level": 3}, epistemics=guessed), "S4")
    s.refuses(s.author.belief(evidence=[told]), "S4", "S4")
    s.takes(s.author.observation({"level": 3}), "S4")
    s.takes(s.author.belief(evidence=[told]), "S2")


# -------------------------------------------------------------------------------------------------------------- E4, S5
@golden("E4-keeps")
def e4_keeps(s: Script) -> None:
    token = s.authorizes()
    asked = s.takes(s.author.directive("valve", safety="WRITE", token=token), "S6")
    s.takes(s.author.result(asked), "S6")
    s.takes(s.author.belief(), "S7")


@golden("E4-breaks")
def e4_breaks(s: Script) -> None:
    token = s.authorizes()
    tokenless = without(s.author.directive("valve", safety="WRITE", token=token), "/payload/authorization_token_id")
    s.refuses(tokenless, "S5", "SCHEMA", "E4")
    s.refuses(s.author.directive("valve", safety="WRITE", token="token_nobody"), "S5", "E4")
    s.refuses(s.author.directive("valve", safety=None, task_type="tool_write"), "S5", "E4")
    s.takes(s.author.directive("valve", safety="WRITE", token=token), "S6")
    s.refuses(s.author.directive("valve", safety="WRITE", token=token), "S6", "E4")


@golden("S5-keeps")
def s5_keeps(s: Script) -> None:
    token = s.authorizes()
    s.takes(s.author.packet(token.payload), "S5")
    s.takes(s.author.token("valve", uses=2, used=1), "S5")
    s.takes(s.author.revocation(token), "S5")


@golden("S5-breaks")
def s5_breaks(s: Script) -> None:
    s.decides("ACT")
    s.refuses(s.author.token("valve", expiry=s.author.now - timedelta(seconds=1)), "S3", "S5")
    s.refuses(s.author.token("valve", expiry=s.author.now), "S3", "S5")
    s.refuses(s.author.token("valve", uses=2, used=2), "S3", "S5")
    token = s.author.token("valve")
    s.refuses(s.author.revocation(token, previous=None), "S3", "S5")
    s.takes(token, "S5")
    s.refuses(s.author.packet(replace(token.payload, max_usage_count=9)), "S5", "S5")


# ---------------------------------------------------------------------------------------------------------- E5, S8, E6
@golden("E5-keeps")
def e5_keeps(s: Script) -> None:
    s.decides("ESCALATE")
    s.takes(s.author.escalation(["go on", "stop"]), "S8")
    s.takes(s.author.escalation(["go on", "stop", "wait"]), "S8")


@golden("E5-breaks")
def e5_breaks(s: Script) -> None:
    s.decides("ESCALATE")
    option = {"option_id": "1", "description": "go on", "pros": "quick", "cons": "risky"}
    s.refuses(edited(s.author.escalation(), {"/payload/top_options": [option]}), "S3", *SHAPE_OF_ESCALATION)
    s.refuses(edited(s.author.escalation(), {"/payload/top_options": [option] * 4}), "S3", *SHAPE_OF_ESCALATION)
    s.refuses(edited(s.author.escalation(), {"/payload/evidence_gaps": []}), "S3", *SHAPE_OF_ESCALATION)
    s.refuses(without(s.author.escalation(), "/payload/recommended_next_step"), "S3", *SHAPE_OF_ESCALATION)
    s.takes(s.author.escalation(), "S8")


@golden("S8-keeps")
def s8_keeps(s: Script) -> None:
    s.escalates()
    s.takes(s.author.observation({"choice": "stop"}, type="user_input"), "S3")
    s.takes(s.author.decision("CANCEL"), "S3")
    s.takes(s.author.belief(), "S7")
    s.closes()


@golden("S8-breaks")
def s8_breaks(s: Script) -> None:
    s.escalates()
    s.refuses(s.author.decision("ACT"), "S8", "FSM", "S8")
    s.refuses(s.author.decision("CANCEL"), "S8", "FSM", "S8")
    s.takes(s.author.record("user_input", {"choice": "stop"}), "S3")
    s.takes(s.author.decision("CANCEL"), "S3")


@golden("E6-keeps")
def e6_keeps(s: Script) -> None:
    first = s.executes()
    second = s.takes(s.author.directive("gauge"), "S6")
    s.takes(s.author.result(second, "FAILURE"), "S6")
    s.takes(s.author.result(first, "CANCELLED"), "S6")
    s.takes(s.author.belief(), "S2")


@golden("E6-breaks")
def e6_breaks(s: Script) -> None:
    asked = s.executes()
    s.refuses(edited(s.author.result(asked), {"/payload/directive_packet_id": "pkt_nobody"}), "S6", "E6")
    s.refuses(edited(s.author.result(asked), {"/payload/task_id": "task_nobody"}), "S6", "E6")
    s.refuses(s.author.belief(), "S6", "E6", "S6")
    s.refuses(s.author.record("close"), "S6", "FSM", "E6", "INV-011")
    s.takes(s.author.result(asked), "S6")
    s.refuses(s.author.result(asked), "S6", "E6")
    s.takes(s.author.belief(), "S7")


@golden("S6-keeps")
def s6_keeps(s: Script) -> None:
    asked = s.executes()
    s.takes(s.author.result(asked), "S6")
    s.takes(s.author.belief(), "S7")


@golden("S6-breaks")
def s6_breaks(s: Script) -> None:
    asked = s.executes()
    s.refuses(s.author.belief(), "S6", "E6", "S6")
    s.takes(s.author.result(asked), "S6")
    s.takes(s.author.belief(), "S7")


# ------------------------------------------------------------------------------------------------------------------ E7
@golden("E7-keeps")
def e7_keeps(s: Script) -> None:
    s.halts()
    s.takes(s.author.belief(), "S9")
    s.takes(s.author.alert("INFO"), "S9")
    s.takes(s.author.alert("CRITICAL"), "S9")
    s.takes(s.author.clear(), "S7")
    s.closes()


@golden("E7-breaks")
def e7_breaks(s: Script) -> None:
    s.halts()
    s.refuses(s.author.decision("CANCEL"), "S9", "FSM", "E7")
    s.refuses(s.author.directive("gauge"), "S9", "FSM", "E2", "E7")
    s.refuses(s.author.observation({"level": 3}), "S9", "FSM", "E7")
    s.refuses(s.author.queue_update({"depth": 4}), "S9", "FSM", "E7", warnings=("QUEUE-1",))
    s.takes(s.author.clear(), "S7")
