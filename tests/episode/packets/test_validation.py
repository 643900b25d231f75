"""The slow reading finds everything that is wrong, where it is, and exactly what the typed reading refuses."""

import copy
import json
import math
import tracemalloc
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.episode.packets import validation
from proctor.episode.packets.enums import PacketKind, RecordKind
from proctor.episode.packets.fields import GREATEST
from proctor.episode.packets.reader import Malformed, read
from proctor.episode.packets.schemas import schemas
from proctor.episode.packets.validation import (
    CONDITIONS,
    LONGEST_POINTER,
    LONGEST_WORD,
    FieldCondition,
    ShapeError,
    conditions_for,
    list_packet_errors,
    list_record_errors,
    meets_conditions,
    pointer_to,
    rules_at,
)
from proctor.episode.settings import MOST_ERRORS
from tests.episode import stream_strategies as say
from tests.episode.packet_strategies import Wire, mutated, packets, records, typed

# A number that no float can hold becomes infinity, so that its place can be told.
UNTYPED = msgspec.json.Decoder(float_hook=float)


def a_packet(kind: PacketKind, payload: Wire) -> Wire:
    """Return a packet of this kind with an envelope that is right."""
    header = {
        "packet_id": "pkt_1",
        "created_at": "2026-01-01T12:00:00Z",
        "layer_source": 5,
        "correlation_id": "corr_1",
    }
    return say.packet(kind.value, header, payload, intent={"summary": "pay", "scope": {"ledger": "A"}})


PAYLOADS: dict[PacketKind, Wire] = {
    PacketKind.OBSERVATION: {"observation_type": "user_input", "data": {"said": "pay"}},
    PacketKind.BELIEF_UPDATE: say.belief(),
    PacketKind.DECISION: say.decision("ACT"),
    PacketKind.TOKEN: say.token("token_1", "2026-01-01T13:00:00Z"),
    PacketKind.DIRECTIVE: say.directive(
        "task_1", "tool_write", tool_safety_class="WRITE", authorization_token_id="token_1"
    ),
    PacketKind.RESULT: say.result("task_1", "pkt_1"),
    PacketKind.ESCALATION: say.escalation(),
    PacketKind.QUEUE_UPDATE: {"anything": [1]},
}


def changed(kind: PacketKind, pointer: str, value: Any) -> Wire:
    """Return a valid packet of this kind with something else at `pointer`; a KeyError as value drops the key."""
    packet = copy.deepcopy(a_packet(kind, PAYLOADS[kind]))
    *path, last = [key.replace("~1", "/").replace("~0", "~") for key in pointer.split("/")[1:]]
    place: Any = packet
    for key in path:
        place = place[int(key) if isinstance(place, list) else key]
    if value is KeyError:
        del place[last]
    else:
        place[int(last) if isinstance(place, list) else last] = value
    return packet


def the_error(kind: PacketKind, pointer: str, value: Any) -> ShapeError:
    """Return the one error of a packet that has `value` at `pointer`; it stands there."""
    [error] = list_packet_errors(changed(kind, pointer, value))
    assert error.pointer == pointer
    return error


def is_read(line: bytes) -> bool:
    return not isinstance(read(line), Malformed)


@settings(max_examples=60)
@given(packets())
def test_a_packet_that_can_be_read_has_no_errors(packet: Wire) -> None:
    assert is_read(json.dumps(packet).encode())
    assert list_packet_errors(packet) == ()


@settings(max_examples=80)
@given(packets().flatmap(mutated))
def test_the_slow_reading_agrees_with_the_typed_one(packet: Wire) -> None:
    errors = list_packet_errors(packet)

    assert (errors == ()) == is_read(json.dumps(packet).encode())


@settings(max_examples=100)
@given(records())
def test_a_record_that_can_be_read_has_no_errors(record: Wire) -> None:
    assert is_read(json.dumps(record).encode())
    assert list_record_errors(record) == ()


@settings(max_examples=80)
@given(records().flatmap(mutated))
def test_the_slow_reading_agrees_on_records(record: Wire) -> None:
    errors = list_record_errors(record)

    # Without the key `record` the line is taken for a packet, and is none.
    assert (errors == ()) == is_read(json.dumps(record).encode())


@settings(max_examples=40)
@given(packets().flatmap(mutated))
def test_every_pointer_leads_to_a_value_or_to_an_object_that_lacks_it(packet: Wire) -> None:
    for error in list_packet_errors(packet):
        place: Any = packet
        *path, last = [key.replace("~1", "/").replace("~0", "~") for key in error.pointer.split("/")[1:]]
        for key in path:
            place = place[int(key) if isinstance(place, list) else key]

        assert isinstance(place, dict) or int(last) < len(place)
        assert error.rules[0] == "SCHEMA"


@settings(max_examples=50)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(), st.lists))
def test_what_is_no_object_is_one_error_at_the_top(value: Any) -> None:
    [packet_error] = list_packet_errors(value)
    [record_error] = list_record_errors(value)

    assert packet_error.pointer == record_error.pointer == ""
    assert packet_error.rules == record_error.rules == ("SCHEMA",)


@pytest.mark.parametrize(
    ("pointer", "number", "readable"),
    [
        ("/mcp/epistemics/confidence", "1e400", False),
        ("/mcp/epistemics/confidence", "1.0", True),
        ("/mcp/budgets/risk_budget/max_loss", "1e400", False),
        ("/mcp/budgets/risk_budget/max_loss", "1" * 400, False),
        ("/mcp/budgets/risk_budget/max_loss", "-1e3", True),
        ("/mcp/intent/scope/ledger", "[1e400]", False),
        ("/mcp/budgets/token_budget", "1.0", False),
        ("/mcp/budgets/token_budget", "1e2", False),
        ("/mcp/budgets/token_budget", "1" * 400, False),
        ("/mcp/budgets/token_budget", str(GREATEST), True),
        ("/mcp/budgets/token_budget", str(GREATEST + 1), False),
        ("/mcp/budgets/token_budget", "-0", True),
        ("/header/layer_source", "1.0", False),
        ("/header/layer_source", "true", False),
        # What is not read may be any number.
        ("/payload/data/said", "1e400", True),
    ],
)
def test_numbers_are_judged_as_the_typed_reading_judges_them(pointer: str, number: str, readable: bool) -> None:
    packet = changed(PacketKind.OBSERVATION, pointer, "HERE")
    line = json.dumps(packet).replace('"HERE"', number).encode()

    errors = list_packet_errors(UNTYPED.decode(line))

    assert (errors == ()) == readable == is_read(line)
    assert all(error.pointer.startswith(pointer) for error in errors)


@pytest.mark.parametrize(
    ("moment", "readable"),
    [
        ("2026-01-01T12:00:00Z", True),
        ("2026-01-01T12:00:00.123456+05:30", True),
        ("2026-01-01T12:00:00", False),
        ("2026-01-01", False),
        ("2026-02-30T12:00:00Z", False),
        ("2026-01-01T12:00:60Z", False),
        ("", False),
    ],
)
def test_times_are_judged_as_the_typed_reading_judges_them(moment: str, readable: bool) -> None:
    packet = changed(PacketKind.OBSERVATION, "/header/created_at", moment)

    assert (list_packet_errors(packet) == ()) == readable == is_read(json.dumps(packet).encode())


REASONS: dict[PacketKind, list[tuple[str, Any, str]]] = {
    PacketKind.DECISION: [
        ("/mcp/stakes/impact", "HUGE", 'expected one of LOW, MEDIUM, HIGH, CRITICAL, found "HUGE"'),
        ("/mcp/stakes/uncertainty", "x" * 41, "expected one of LOW, MEDIUM, HIGH, found another string"),
        ("/mcp/stakes/uncertainty", 3, "expected one of LOW, MEDIUM, HIGH, found a whole number"),
        ("/mcp/stakes/uncertainty", "\x1b[2J", 'expected one of LOW, MEDIUM, HIGH, found "\\u001b[2J"'),
        ("/mcp/budgets/token_budget", -1, "expected a whole number of at least 0, found one that is too small"),
        ("/mcp/epistemics/confidence", 2, "expected a number from 0 to 1, found one that is too large"),
        (
            "/mcp/budgets/token_budget",
            2**60,
            "expected a whole number of at least 0, found one beyond 9007199254740991",
        ),
        ("/mcp/epistemics/confidence", True, "expected a number from 0 to 1, found true"),
        ("/mcp/budgets/risk_budget/max_loss", None, "expected a string or a number, found null"),
        ("/header/created_at", "2026-01-01T00:00:00", "expected a date and time with an offset, found another string"),
        (
            "/header/packet_id",
            "pkt_ü",
            "expected an id, which is pkt_ and then up to 200 letters, digits, _ or -, found another string",
        ),
        (
            "/header/campaign_id",
            "",
            "expected an id, which is camp_ and then up to 200 letters, digits, _ or -, found an empty string",
        ),
        ("/header/layer_source", 7, "expected one of 1, 2, 3, 4, 5, 6, Integrity, found another whole number"),
        ("/mcp/intent/summary", "", "expected a string that is not empty, found an empty string"),
        ("/mcp/quality/satisficing_mode", "yes", "expected true or false, found a string"),
        ("/mcp/quality/definition_of_done/checks", [], "expected a list of at least 1, found an empty list"),
        ("/mcp/epistemics/assumptions", {}, "expected a list, found an empty object"),
        ("/mcp/routing", ["x"], "expected an object, found a list of 1"),
        ("/payload/chosen_option", "x", "expected an object or null, found a string"),
        (
            "/mcp/routing/tools_state",
            KeyError,
            "tools_state is missing; expected one of tools_ok, tools_partial, tools_down",
        ),
        ("/mcp/intent/sumary", "x", 'there is no field "sumary"; did you mean summary?'),
        ("/mcp/intent/a~1b~0c", "x", 'there is no field "a/b~c"'),
        ("/zzz", "x", 'there is no field "zzz"'),
        ("/" + "z" * 40, "x", f'there is no field "{"z" * 40}"'),
        (
            "/header/packet_type",
            "DecisionPackage",
            (
                "expected one of ObservationPacket, BeliefUpdatePacket, DecisionPacket, VerificationPlanPacket, "
                "ToolAuthorizationToken, TaskDirectivePacket, TaskResultPacket, EscalationPacket, IntegrityAlertPacket, "
                'QueueUpdatePacket, found "DecisionPackage"; the payload is not judged without it'
            ),
        ),
    ],
    PacketKind.TOKEN: [("/payload/max_usage_count", 1.5, "expected a whole number of at least 1, found a number")],
    PacketKind.OBSERVATION: [("/payload/data", {}, "expected an object that is not empty, found an empty object")],
    PacketKind.ESCALATION: [("/payload/top_options/1/pros", 1, "expected a list or a string, found a whole number")],
    PacketKind.BELIEF_UPDATE: [
        ("/payload/belief_changes/0/new_value", KeyError, "new_value is missing; expected any value")
    ],
    PacketKind.QUEUE_UPDATE: [("/payload", [], "expected an object, found an empty list")],
}


@pytest.mark.parametrize(
    ("kind", "pointer", "value", "reason"), [(kind, *case) for kind, cases in REASONS.items() for case in cases]
)
def test_an_error_says_what_was_expected_and_what_sort_of_thing_was_found(
    kind: PacketKind, pointer: str, value: Any, reason: str
) -> None:
    assert the_error(kind, pointer, value).reason == reason


def test_a_list_that_is_too_long_is_an_error_of_the_list() -> None:
    option = PAYLOADS[PacketKind.ESCALATION]["top_options"][0]

    error = the_error(PacketKind.ESCALATION, "/payload/top_options", [option] * 4)

    assert error.reason == "expected a list of 2 to 3, found a list of 4"


def test_every_error_is_listed_in_the_order_of_the_fields() -> None:
    packet = changed(PacketKind.RESULT, "/payload/task_id", "1")
    packet["mcp"]["stakes"]["impact"] = None
    del packet["mcp"]["routing"]
    packet["header"]["layer_source"] = "Legal"
    packet["payload"].update(result_status="FAILURE", note="x")

    pointers = [error.pointer for error in list_packet_errors(packet)]

    assert pointers == [
        "/header/layer_source",
        "/mcp/stakes/impact",
        "/mcp/routing",
        "/payload/task_id",
        "/payload/note",
        "/payload/error_details",
    ]


def test_notes_are_fine_at_the_top_only() -> None:
    packet = changed(PacketKind.DECISION, "/_why", "because")
    packet["mcp"]["_why"] = "because"

    [error] = list_packet_errors(packet)

    assert error.pointer == "/mcp/_why"


def test_a_payload_of_unknown_kind_is_not_judged_and_said_once() -> None:
    packet = changed(PacketKind.DECISION, "/header/packet_type", KeyError)
    packet["payload"] = "nonsense"

    [error] = list_packet_errors(packet)

    assert error.pointer == "/header/packet_type"
    assert error.rules == ("SCHEMA",)


def test_the_three_parts_are_required() -> None:
    assert [error.pointer for error in list_packet_errors({})] == ["/header", "/mcp", "/payload"]


def test_a_condition_is_not_judged_on_a_field_that_is_wrong_itself() -> None:
    packet = changed(PacketKind.RESULT, "/payload/error_details", 1)
    packet["payload"]["result_status"] = "FAILURE"

    assert [error.pointer for error in list_packet_errors(packet)] == ["/payload/error_details"]


def test_a_condition_is_judged_beside_a_part_that_is_missing() -> None:
    packet = changed(PacketKind.RESULT, "/payload", KeyError)
    packet["mcp"]["evidence"]["evidence_absent_reason"] = ""

    assert [error.pointer for error in list_packet_errors(packet)] == [
        "/payload",
        "/mcp/evidence/evidence_absent_reason",
    ]


def test_endless_errors_are_cut_and_the_cut_is_told() -> None:
    packet = changed(PacketKind.DECISION, "/mcp/epistemics/assumptions", [1] * (MOST_ERRORS + 5))
    del packet["mcp"]["evidence"]

    errors = list_packet_errors(packet)

    assert len(errors) == MOST_ERRORS + 1
    assert errors[-1].pointer == ""
    assert str(MOST_ERRORS) in errors[-1].reason


@given(st.integers(1, 30), st.integers(0, 40))
def test_who_asks_for_few_errors_gets_the_first_of_them(most: int, count: int) -> None:
    packet = changed(PacketKind.ESCALATION, "/mcp/epistemics/assumptions", [1] * count)
    del packet["payload"]["top_options"]

    every, few = list_packet_errors(packet), list_packet_errors(packet, most)
    of_record = list_record_errors(a_record(**{f"key {n}": 1 for n in range(count)}), most)

    assert few[:most] == every[:most]
    assert len(few) == min(len(every), most + 1)
    if len(every) > most:
        assert (few[-1].pointer, few[-1].rules) == ("", ("SCHEMA",))
        assert str(most) in few[-1].reason
    assert len(of_record) == min(count, most + 1)


def test_errors_that_are_not_listed_are_not_put_into_words(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def look(key: str, *_: object, **__: object) -> list[str]:
        asked.append(key)
        return ["something"]

    pointed: list[object] = []

    def point(place: Any) -> str:
        pointed.append(place)
        return pointer_to(place)

    monkeypatch.setattr(validation, "get_close_matches", look)
    monkeypatch.setattr(validation, "pointer_to", point)
    packet = changed(PacketKind.DECISION, "/mcp/epistemics/assumptions", [])
    packet["payload"].update({f"field_{n}": 0 for n in range(500)})

    errors = list_packet_errors(packet, 20)

    assert len(errors) == 21
    assert len(pointed) == 21
    assert asked == ["field_0", "field_1", "field_2"]
    assert ["did you mean" in error.reason for error in errors] == [True] * 3 + [False] * 18


def test_as_many_errors_as_are_listed_are_not_called_too_many() -> None:
    packet = changed(PacketKind.DECISION, "/mcp/epistemics/assumptions", [1] * MOST_ERRORS)

    errors = list_packet_errors(packet)

    assert [error.pointer for error in errors] == [f"/mcp/epistemics/assumptions/{n}" for n in range(MOST_ERRORS)]


def test_a_key_that_is_too_long_is_shortened_where_it_is_pointed_to() -> None:
    packet = a_packet(PacketKind.QUEUE_UPDATE, {})
    packet["mcp"]["/" * 41] = 1
    packet["z" * 41] = 1
    packet["mcp"]["intent"]["scope"] = {"~" * 40: math.inf, "k" * 9999: [0, math.inf]}

    errors = list_packet_errors(packet)

    assert [(error.pointer, error.reason) for error in errors] == [
        (f"/mcp/intent/scope/{'~0' * 40}", "expected a number, found one that is too large"),
        (f"/mcp/intent/scope/{'k' * 39}…/1", "expected a number, found one that is too large"),
        (f"/mcp/{'~1' * 39}…", "there is no such field"),
        (f"/{'z' * 39}…", "there is no such field"),
    ]


def test_a_pointer_into_the_depth_ends_with_what_encloses_it() -> None:
    deep: Any = math.inf
    for _ in range(900):
        deep = {"k" * 40: deep}
    packet = a_packet(PacketKind.QUEUE_UPDATE, {})
    packet["mcp"]["intent"]["scope"] = deep

    [error] = list_packet_errors(packet)

    assert error.pointer == "/mcp/intent/scope" + f"/{'k' * 40}" * 9 + "/…"
    assert len(error.pointer) <= LONGEST_POINTER + 2


def test_no_field_of_a_packet_is_too_long_for_a_pointer() -> None:
    names = [name for schema in schemas().values() for name in _keys(schema)]

    assert max(map(len, names)) <= LONGEST_WORD


def _keys(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        for part in schema.values():
            yield from _keys(part)


@pytest.mark.parametrize("long", [[0] * 20_000, [math.inf] * 20_000, dict.fromkeys(map(str, range(20_000)), 0.0)])
def test_a_long_list_under_a_long_key_costs_no_more_than_the_line(long: Any) -> None:
    packet = a_packet(PacketKind.QUEUE_UPDATE, {})
    packet["mcp"]["intent"]["scope"] = {"k" * 20_000: long}
    packet["unknown"] = 1

    tracemalloc.start()
    errors = list_packet_errors(packet)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert errors
    assert peak < 2_000_000
    assert sum(len(error.pointer) for error in errors) < 100_000


def test_numbers_that_are_too_large_are_told_in_the_order_of_the_line() -> None:
    packet = a_packet(PacketKind.QUEUE_UPDATE, {})
    packet["mcp"]["intent"]["scope"] = {"a": [math.inf, {"b": math.inf}, math.inf], "c": math.inf}

    pointers = [error.pointer.removeprefix("/mcp/intent/scope") for error in list_packet_errors(packet)]

    assert pointers == ["/a/0", "/a/1/b", "/a/2", "/c"]


@pytest.mark.parametrize(
    ("kind", "pointer", "value", "rules"),
    [
        (PacketKind.DECISION, "/mcp", KeyError, ("SCHEMA", "INV-001")),
        (PacketKind.DIRECTIVE, "/mcp/stakes/impact", "x", ("SCHEMA", "INV-001")),
        (PacketKind.TOKEN, "/mcp/evidence/evidence_absent_reason", None, ("SCHEMA", "INV-001")),
        (PacketKind.ESCALATION, "/mcp/routing", KeyError, ("SCHEMA", "INV-001")),
        (PacketKind.OBSERVATION, "/mcp/routing", KeyError, ("SCHEMA",)),
        (PacketKind.OBSERVATION, "/mcp/evidence/evidence_absent_reason", KeyError, ("SCHEMA",)),
        (PacketKind.DECISION, "/header/layer_source", 9, ("SCHEMA",)),
        (PacketKind.DECISION, "/mcpx", 9, ("SCHEMA",)),
        (PacketKind.ESCALATION, "/payload/top_options", [], ("SCHEMA", "E5", "S8", "INV-009")),
        (PacketKind.ESCALATION, "/payload/top_options/0/pros", None, ("SCHEMA", "E5", "S8", "INV-009")),
        (PacketKind.ESCALATION, "/payload/evidence_gaps", KeyError, ("SCHEMA", "E5", "S8", "INV-009")),
        (PacketKind.ESCALATION, "/payload/recommended_next_step", None, ("SCHEMA", "E5", "S8", "INV-009")),
        (PacketKind.ESCALATION, "/payload/escalation_trigger", None, ("SCHEMA",)),
        (PacketKind.DIRECTIVE, "/payload/authorization_token_id", KeyError, ("SCHEMA", "E4")),
        (PacketKind.DIRECTIVE, "/payload/authorization_token_id", None, ("SCHEMA", "E4")),
        (PacketKind.DIRECTIVE, "/payload/authorization_token_id", "t", ("SCHEMA",)),
    ],
)
def test_an_error_names_the_rules_of_the_contract_that_it_breaks(
    kind: PacketKind, pointer: str, value: Any, rules: tuple[str, ...]
) -> None:
    assert the_error(kind, pointer, value).rules == rules


def a_record(**changes: Any) -> Wire:
    return {"record": "open", "correlation_id": "corr_1", "at": "2026-01-01T12:00:00Z", "by": "operator", **changes}


@pytest.mark.parametrize(
    ("record", "pointers"),
    [
        (a_record(data={"profile": "lenient", "initial_beliefs": [1]}), []),
        (a_record(data={"profile": "lax", "initial_beliefs": 1}), ["/data/profile", "/data/initial_beliefs"]),
        (a_record(record="approval", data={"token_budget": -1}), ["/data/token_budget"]),
        (a_record(record="close", data={"any": "thing"}), []),
        (a_record(record="close", data=None), ["/data"]),
        (a_record(record="pause", data=None, by="me"), ["/record", "/by"]),
        (a_record(record=[]), ["/record"]),
        (a_record(at="now", correlation_id="corr 1", _note=1), ["/correlation_id", "/at", "/_note"]),
        ({}, ["/record", "/correlation_id", "/at", "/by"]),
    ],
)
def test_the_errors_of_a_record_stand_where_they_are(record: Wire, pointers: list[str]) -> None:
    errors = list_record_errors(record)

    assert [error.pointer for error in errors] == pointers
    assert {error.rules for error in errors} <= {("SCHEMA",)}


def test_the_data_of_an_unknown_record_is_not_judged_and_said_once() -> None:
    [error] = list_record_errors(a_record(record="pause", data=1))

    assert error.reason == (
        'expected one of open, close, user_input, approval, safemode, found "pause"; the data is not judged without it'
    )


@pytest.mark.parametrize("kind", RecordKind)
def test_every_kind_of_record_may_go_without_data(kind: RecordKind) -> None:
    assert list_record_errors(a_record(record=kind.value)) == ()


def errors_of(packet: Wire) -> list[tuple[str, tuple[str, ...]]]:
    """Return the errors of a packet that is right but for its conditions, by both readings."""
    errors = [(error.pointer, error.rules) for error in list_packet_errors(packet)]
    header, compliance, payload = typed(packet)
    assert meets_conditions(header.packet_type, compliance, payload) == (not errors)
    return errors


@given(packets())
def test_a_valid_packet_meets_every_condition(packet: Wire) -> None:
    assert errors_of(packet) == []


@pytest.mark.parametrize(("absent", "broken"), [(None, True), ("", True), ("none yet", False), (" ", False)])
@given(packet=packets())
@settings(max_examples=20)
def test_every_packet_without_evidence_needs_a_reason(packet: Wire, absent: str | None, broken: bool) -> None:
    packet["mcp"]["evidence"] = {"evidence_refs": [], "evidence_absent_reason": absent}
    kind = PacketKind(packet["header"]["packet_type"])
    pointer = "/mcp/evidence/evidence_absent_reason"

    assert errors_of(packet) == ([(pointer, rules_at(kind, pointer))] if broken else [])


@pytest.mark.parametrize(
    ("kind", "given_", "values", "field", "rules"),
    [
        ("BeliefUpdatePacket", "update_type", ["contradiction_resolved"], "contradiction_details", ("SCHEMA",)),
        ("TaskResultPacket", "result_status", ["FAILURE"], "error_details", ("SCHEMA",)),
        ("TaskDirectivePacket", "tool_safety_class", ["WRITE", "MIXED"], "authorization_token_id", ("SCHEMA", "E4")),
    ],
)
@settings(max_examples=25)
@given(data=st.data())
def test_a_value_needs_another_field(
    kind: str, given_: str, values: list[str], field: str, rules: tuple[str, ...], data: st.DataObject
) -> None:
    packet = data.draw(packets(PacketKind(kind)))
    filled = copy.deepcopy(packet)
    filled["payload"][given_] = data.draw(st.sampled_from(values))
    without = copy.deepcopy(filled)
    if data.draw(st.booleans()):
        without["payload"].pop(field, None)
    else:
        without["payload"][field] = None

    assert errors_of(without) == [(f"/payload/{field}", rules)]
    if packet["payload"].get(field) is not None:
        assert errors_of(filled) == []


@given(packets(PacketKind.DIRECTIVE))
@settings(max_examples=25)
def test_every_condition_that_is_unmet_is_told(packet: Wire) -> None:
    packet["payload"].update(tool_safety_class="MIXED", authorization_token_id=None)
    packet["mcp"]["evidence"] = {"evidence_refs": []}

    assert errors_of(packet) == [
        ("/mcp/evidence/evidence_absent_reason", ("SCHEMA", "INV-001")),
        ("/payload/authorization_token_id", ("SCHEMA", "E4")),
    ]


@given(packets())
@settings(max_examples=80)
def test_what_a_condition_says_as_data_is_what_it_checks(packet: Wire) -> None:
    kind = PacketKind(packet["header"]["packet_type"])
    for condition in conditions_for(kind):
        cut = copy.deepcopy(packet)
        *path, last = condition.pointer.split("/")[1:]
        at(cut, path).pop(last, None)
        stands_alone = at(cut, condition.given.split("/")[1:]) in condition.values

        assert condition.is_unmet(cut) == stands_alone


def at(value: Any, path: list[str]) -> Any:
    for key in path:
        value = value.get(key)
    return value


@pytest.mark.parametrize("condition", CONDITIONS, ids=lambda condition: condition.pointer)
def test_a_condition_names_both_fields_in_its_sentence(condition: FieldCondition) -> None:
    assert condition.given.rpartition("/")[2] in condition.reason
    assert not condition.reason.endswith(".")
