"""An author writes whole, valid packets from a few words, and says which field is wrong where it cannot."""

import doctest
from collections.abc import Callable
from dataclasses import replace as varied
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from proctor.episode import Author, Judge, author
from proctor.episode.packets import enums, fields, writer
from proctor.episode.packets.enums import PacketKind
from proctor.episode.packets.reader import AnyPacket, Packet, read
from proctor.errors import ValidationError

START: Final = datetime(2025, 1, 1, tzinfo=UTC)


def an_author(**said: Any) -> Author:
    return Author("corr_test", **{"at": START, **said})


def one_of_each(a: Author) -> list[AnyPacket]:
    """Return a packet of every kind, with nothing said that need not be."""
    seen = a.observation({"level": 3})
    asked = a.directive("gauge")
    token = a.token("valve")
    return [
        seen,
        a.belief(),
        a.decision("ACT"),
        a.plan(),
        token,
        a.revocation(token),
        asked,
        a.result(asked),
        a.escalation(),
        a.alert("WARNING"),
        a.clear(),
        a.queue_update({"depth": 4}),
    ]


def test_every_kind_can_be_written_from_a_few_words() -> None:
    packets = one_of_each(an_author())

    assert {packet.kind for packet in packets} == set(PacketKind)
    assert [read(packet.line()) for packet in packets] == packets


def test_the_example_of_the_docstring_holds() -> None:
    found = doctest.testmod(author)

    assert found.attempted > 0
    assert found.failed == 0


def test_a_newcomer_writes_a_conforming_episode_in_ten_lines() -> None:
    a = Author("corr_demo", at=START)
    judge = Judge()
    seen = a.observation({"temperature": 21})
    known = a.belief({"warm": True}, evidence=[seen])
    decided = a.decision("ACT", "ask the second thermometer too")
    asked = a.directive("thermometer")
    told = a.result(asked, data={"temperature": 22})
    learned = a.belief({"warm": True}, evidence=[told])
    for packet in (seen, known, decided, asked, told, learned, a.record("close")):
        assert judge.apply(packet).accepted

    assert judge.outcome("corr_demo") == "conforming"


def test_the_same_words_give_the_same_lines() -> None:
    first, second = one_of_each(an_author()), one_of_each(an_author())

    assert [packet.line() for packet in first] == [packet.line() for packet in second]


def test_ids_times_and_links_are_counted() -> None:
    a = an_author(step=timedelta(minutes=5), campaign_id="camp_one")
    headers = [a.observation({"level": 3}).header, a.belief().header, a.decision("ACT").header]

    assert [header.packet_id for header in headers] == ["pkt_test_1", "pkt_test_2", "pkt_test_3"]
    assert [header.previous_packet_id for header in headers] == [None, "pkt_test_1", "pkt_test_2"]
    assert [header.created_at - START for header in headers] == [timedelta(minutes=5 * n) for n in range(3)]
    assert {header.campaign_id for header in headers} == {"camp_one"}


def test_other_ids_share_the_packets_number() -> None:
    a = an_author()
    a.observation({"level": 3})
    token, asked = a.token("valve"), a.directive("gauge")

    assert token.payload.token_id == "token_test_2"
    assert asked.payload.task_id == "task_test_3"


def test_the_header_can_be_said() -> None:
    a = an_author()
    at = START + timedelta(hours=1)
    said = a.observation({"level": 3}, at=at, packet_id="pkt_mine", layer=2, previous="pkt_x", campaign_id="camp_y")
    following = a.belief()

    assert said.header.created_at == at
    assert (said.header.packet_id, said.header.layer_source) == ("pkt_mine", 2)
    assert (said.header.previous_packet_id, said.header.campaign_id) == ("pkt_x", "camp_y")
    assert (following.header.previous_packet_id, following.header.created_at) == ("pkt_mine", at + timedelta(seconds=1))


def test_time_never_runs_backwards_by_itself() -> None:
    a = an_author()
    a.observation({"level": 3})
    a.observation({"level": 3}, at=START - timedelta(days=1))

    assert a.now == START + timedelta(seconds=1)


def test_the_chain_can_be_set_back_after_a_refusal() -> None:
    a = an_author()
    a.observation({"level": 3})
    before = a.previous_packet_id
    refused = a.decision("ACT")
    a.previous_packet_id = before
    following = a.belief()

    assert following.header.previous_packet_id == "pkt_test_1"
    assert following.header.packet_id != refused.header.packet_id


def test_a_mistake_changes_nothing() -> None:
    a = an_author()
    a.observation({"level": 3})
    with pytest.raises(ValidationError):
        a.observation({})
    with pytest.raises(ValidationError):
        a.record("approval", {"token_budget": -1})
    packet = a.belief()

    assert (packet.header.packet_id, packet.header.created_at) == ("pkt_test_2", START + timedelta(seconds=1))


def test_the_policy_says_what_is_not_said() -> None:
    strict = replace(writer.QUALITY, quality_tier=enums.QualityTier.SUPERB)
    a = an_author(policy=varied(writer.PacketDefaults(), quality=strict, layers={PacketKind.BELIEF_UPDATE: 2}))
    belief, decision = a.belief(), a.decision("ACT", stakes=replace(writer.STAKES, impact=enums.Level.HIGH))

    assert belief.compliance.quality.quality_tier is enums.QualityTier.SUPERB
    assert (belief.header.layer_source, decision.header.layer_source) == (2, writer.LAYERS[PacketKind.DECISION])
    assert (belief.compliance.stakes.impact, decision.compliance.stakes.impact) == (enums.Level.LOW, enums.Level.HIGH)
    assert belief.compliance.evidence.evidence_absent_reason == "stated by the author"


@pytest.mark.parametrize("kind", PacketKind)
def test_a_policy_answers_for_every_kind(kind: PacketKind) -> None:
    bare = writer.PacketDefaults(epistemics={}, layers={})

    assert bare.epistemics_of(kind) == writer.EPISTEMICS[kind]
    assert bare.layer_of(kind) == writer.LAYERS[kind]


def test_observations_are_observed_and_beliefs_derived() -> None:
    a = an_author()
    seen, known = a.observation({"level": 3}), a.belief()

    assert seen.compliance.epistemics.status is enums.EpistemicStatus.OBSERVED
    assert known.compliance.epistemics.status is enums.EpistemicStatus.DERIVED


def test_every_section_of_the_envelope_can_be_said() -> None:
    sections: dict[str, Any] = {
        "intent": replace(writer.INTENT, summary="look", scope={"tank": 3}),
        "stakes": replace(writer.STAKES, impact=enums.Level.MEDIUM, stakes_level=enums.Level.MEDIUM),
        "quality": replace(writer.QUALITY, satisficing_mode=False),
        "budgets": replace(writer.BUDGETS, token_budget=1),
        "epistemics": replace(writer.DERIVED, confidence=0.5),
        "evidence": fields.Evidence([fields.EvidenceRef(enums.EvidenceKind.MEMORY_ITEM, "note 3", START, 0.5)]),
        "routing": writer.ROUTING,
    }
    packet = an_author().observation({"level": 3}, **sections)

    assert {name: getattr(packet.compliance, name) for name in sections} == sections


def test_evidence_may_be_packets() -> None:
    a = an_author()
    seen, heard = a.observation({"level": 3}), a.observation({"word": "yes"}, type="user_input")
    asked = a.directive("gauge")
    told, known = a.result(asked), a.belief()
    belief = a.belief(evidence=[seen, heard, told, known])
    references = belief.compliance.evidence.evidence_refs

    assert [(ref.ref_type, ref.ref_id) for ref in references] == [
        (enums.EvidenceKind.TOOL_OUTPUT, seen.header.packet_id),
        (enums.EvidenceKind.USER_OBSERVATION, heard.header.packet_id),
        (enums.EvidenceKind.TOOL_OUTPUT, told.header.packet_id),
        (enums.EvidenceKind.DERIVED_CALC, known.header.packet_id),
    ]
    assert references[0].timestamp == seen.header.created_at
    assert belief.payload.evidence_integration == [ref.ref_id for ref in references]


def test_evidence_may_come_from_a_generator() -> None:
    a = an_author()
    seen = [a.observation({"level": level}) for level in (3, 4)]
    belief = a.belief(evidence=(packet for packet in seen))

    assert belief.payload.evidence_integration == ["pkt_test_1", "pkt_test_2"]
    assert len(belief.compliance.evidence.evidence_refs) == 2


def test_what_a_belief_integrates_can_be_said_apart() -> None:
    a = an_author()
    seen = a.observation({"level": 3})
    named, silent = a.belief(integrates=[seen, "pkt_other"]), a.belief(evidence=[seen], integrates=[])
    section = a.belief(evidence=fields.Evidence([], "a rumour"))
    reference = fields.EvidenceRef(enums.EvidenceKind.MEMORY_ITEM, "note 3", START)
    remembered = a.belief(evidence=[reference])

    assert named.payload.evidence_integration == ["pkt_test_1", "pkt_other"]
    assert named.compliance.evidence.evidence_refs == []
    assert silent.payload.evidence_integration is None
    assert section.payload.evidence_integration is None
    assert remembered.payload.evidence_integration is None
    assert remembered.compliance.evidence.evidence_refs == [reference]


def test_notes_are_kept() -> None:
    packet = an_author().observation({"level": 3}, notes={"_why": {"because": [1, None]}})

    assert packet.notes == {"_why": Raw(b'{"because":[1,null]}')}
    assert b'"_why":{"because":[1,null]}' in packet.line()


def test_whole_parts_are_kept_as_they_are() -> None:
    a = an_author()
    a.decision("VERIFY_FIRST")
    target = fields.VerificationTarget("t", "d", "a", "m", "s", tool_id="gauge")
    option, gap = fields.EscalationOption("1", "wait", "cheap", ["slow"]), fields.EvidenceGap("who", "much")
    change = fields.BeliefChange("tank", "level", Raw(b"3"), Raw(b"2"))

    assert a.plan([target]).payload.targets == [target]
    assert a.escalation([option, "go"], gaps=[gap]).payload.top_options[0] == option
    assert a.escalation(gaps=[gap]).payload.evidence_gaps == [gap]
    assert a.belief([change]).payload.belief_changes == [change]


def test_json_that_was_written_already_is_kept_as_it_is() -> None:
    packet = an_author().observation({"level": Raw(b"3.50")})

    assert packet.payload.data == {"level": Raw(b"3.50")}


def test_a_plan_serves_the_latest_decision_unless_said() -> None:
    a = an_author()
    first, second = a.decision("VERIFY_FIRST"), a.decision("VERIFY_FIRST")
    by_default, by_packet, by_id = a.plan(), a.plan(decision=first), a.plan(decision="pkt_of_another")

    assert by_default.payload.triggering_decision_id == second.header.packet_id
    assert by_packet.payload.triggering_decision_id == first.header.packet_id
    assert by_id.payload.triggering_decision_id == "pkt_of_another"


def test_a_token_lives_as_long_as_the_policy_says() -> None:
    a = an_author(policy=writer.PacketDefaults(token_life=timedelta(minutes=7)))
    at = START + timedelta(days=1)
    token, later = a.token(["valve", "pump"], operations=["read", "delete"], uses=3), a.token("valve", at=at)

    assert token.payload.expiry == START + timedelta(minutes=7)
    assert later.payload.expiry == at + timedelta(minutes=7)
    assert token.payload.authorized_scope.tool_ids == ["valve", "pump"]
    assert token.payload.authorized_scope.operation_types == [enums.OperationType.READ, enums.OperationType.DELETE]


def test_a_revocation_is_the_token_taken_back_by_integrity() -> None:
    a = an_author()
    token = a.token("valve")
    revocation = a.revocation(token)

    assert revocation.payload == replace(token.payload, revoked=True)
    assert revocation.header.layer_source == "Integrity"


def test_an_alert_revokes_tokens_by_packet_or_id() -> None:
    a = an_author()
    token = a.token("valve")

    assert a.alert("ERROR", revokes=[token, "token_other"]).payload.revoked_token_ids == ["token_test_1", "token_other"]


@pytest.mark.parametrize(
    ("safety", "task_type"),
    [("READ", "tool_read"), ("WRITE", "tool_write"), ("MIXED", "tool_write"), (None, "tool_read")],
)
def test_the_task_type_follows_the_safety_class(safety: str | None, task_type: str) -> None:
    directive = an_author().directive("valve", safety=safety, token="token_x", params={"open": True}, timeout=3)

    assert directive.payload.task_type == task_type
    assert directive.payload.tool_safety_class == safety
    assert directive.payload.execution_method.tool_params == {"open": Raw(b"true")}


@pytest.mark.parametrize("status", enums.ResultStatus)
def test_a_result_closes_the_task_of_its_directive(status: enums.ResultStatus) -> None:
    a = an_author()
    asked = a.directive("gauge")
    told = a.result(asked, status, cost=fields.ExecutionMetadata(tokens_used=3), observation="pkt_seen")

    assert (told.payload.task_id, told.payload.directive_packet_id) == ("task_test_1", "pkt_test_1")
    assert (told.payload.error_details is not None) == (status is enums.ResultStatus.FAILURE)
    assert told.payload.observation_packet_id == "pkt_seen"


def test_a_payload_with_rarer_fields_goes_whole() -> None:
    a = an_author()
    known = a.belief().payload
    details = fields.ContradictionDetails(["pkt_a", "pkt_b"], "prefer_fresh")  # type: ignore[arg-type]  # a word is read as its kind
    packet = a.packet(
        replace(known, update_type=enums.UpdateType.CONTRADICTION_RESOLVED, contradiction_details=details)
    )

    assert packet.kind is PacketKind.BELIEF_UPDATE
    assert read(packet.line()) == packet


@pytest.mark.parametrize(
    ("kind", "by"),
    [
        ("open", "system"),
        ("close", "system"),
        ("user_input", "operator"),
        ("approval", "operator"),
        ("safemode", "operator"),
    ],
)
def test_records_are_written_too(kind: str, by: str) -> None:
    a = an_author()
    record = a.record(kind)

    assert (record.record, record.by, record.at) == (kind, by, START)
    assert read(record.line()) == record
    assert a.now == START + timedelta(seconds=1)


def test_a_record_says_what_it_is_told() -> None:
    a = an_author()
    at = START + timedelta(hours=1)
    record = a.record("close", {"why": "enough"}, by="operator", at=at)

    assert (record.by, record.at, record.data) == ("operator", at, {"why": Raw(b'"enough"')})


LOOP: Final[list[object]] = []
LOOP.append(LOOP)

MISTAKES: Final[list[tuple[str, Callable[[Author], object]]]] = [
    ("/payload/data", lambda a: a.observation({})),
    ("/payload/data", lambda a: a.observation([3])),  # type: ignore[arg-type]
    ("/payload/data", lambda a: a.observation({(1, 2): 3})),  # type: ignore[dict-item]
    ("/payload/data/x", lambda a: a.observation({"x": object()})),
    ("/payload/data/x", lambda a: a.observation({"x": [{"y": float("nan")}]})),
    ("/payload/data/x", lambda a: a.observation({"x": "\ud800"})),
    ("/payload/data/x", lambda a: a.observation({"x": LOOP})),
    ("/payload/data/a~1b", lambda a: a.observation({"a/b": object()})),
    ("/payload/observation_type", lambda a: a.observation({"x": 1}, type="rumour")),
    ("/payload/belief_changes", lambda a: a.belief({})),
    ("/payload/belief_changes/1/new_value", lambda a: a.belief({"x": 1, "y": object()})),
    ("/payload/update_type", lambda a: a.belief(type="guess")),
    ("/payload/contradiction_details", lambda a: a.belief(type="contradiction_resolved")),
    ("/payload/evidence_integration/0", lambda a: a.belief(integrates=["observation 1"])),
    ("/payload/decision_outcome", lambda a: a.decision("MAYBE")),
    ("/payload/decision_summary", lambda a: a.decision("ACT", object())),  # type: ignore[arg-type]
    ("/payload/triggering_decision_id", lambda a: a.plan()),
    ("/payload/targets", lambda a: a.plan([], decision="pkt_x")),
    ("/payload/max_tool_calls", lambda a: a.plan(decision="pkt_x", tool_calls=0)),
    ("/payload/authorized_scope/tool_ids", lambda a: a.token([])),
    ("/payload/authorized_scope/operation_types/1", lambda a: a.token("valve", operations=["read", "eat"])),
    ("/payload/max_usage_count", lambda a: a.token("valve", uses=0)),
    ("/payload/expiry", lambda a: a.token("valve", expiry=datetime(2025, 1, 1))),  # noqa: DTZ001  # what is tested
    ("/payload/expiry", lambda a: a.token("valve", at=datetime.max.replace(tzinfo=UTC))),
    ("/payload/token_id", lambda a: a.revocation(a.alert("INFO"))),  # type: ignore[arg-type]
    ("/payload/tool_safety_class", lambda a: a.directive("valve", safety="EAT")),
    ("/payload/authorization_token_id", lambda a: a.directive("valve", safety="WRITE")),
    ("/payload/authorization_token_id", lambda a: a.directive("valve", token=a.alert("INFO"))),  # type: ignore[arg-type]
    ("/payload/execution_method/method", lambda a: a.directive("valve", method="magic")),
    ("/payload/execution_method/tool_params/x", lambda a: a.directive("valve", params={"x": object()})),
    ("/payload/timeout_seconds", lambda a: a.directive("valve", timeout=0)),
    ("/payload/task_id", lambda a: a.result(a.alert("INFO"))),  # type: ignore[arg-type]
    ("/payload/result_status", lambda a: a.result(a.directive("gauge"), "PERHAPS")),
    ("/payload/result_data", lambda a: a.result(a.directive("gauge"), data=object())),
    ("/payload/top_options", lambda a: a.escalation(["only this"])),
    ("/payload/top_options", lambda a: a.escalation(["a", "b", "c", "d"])),
    ("/payload/evidence_gaps", lambda a: a.escalation(gaps=[])),
    ("/payload/escalation_trigger", lambda a: a.escalation(trigger="boredom")),
    ("/payload/severity", lambda a: a.alert("DIRE")),
    ("/payload/revoked_token_ids", lambda a: a.alert("INFO", revokes=["x"])),
    ("/payload/x", lambda a: a.queue_update({"x": object()})),
    ("/payload", lambda a: a.packet("a text")),
    ("/header/packet_id", lambda a: a.belief(packet_id="no id")),
    ("/header/previous_packet_id", lambda a: a.belief(previous="no id")),
    ("/header/layer_source", lambda a: a.belief(layer=7)),  # type: ignore[arg-type]
    ("/header/created_at", lambda a: a.belief(at=datetime(2025, 1, 1))),  # noqa: DTZ001  # what is tested
    ("/header/created_at", lambda a: a.belief(at=datetime.max.replace(tzinfo=UTC))),
    ("/mcp/intent/summary", lambda a: a.belief(intent=replace(writer.INTENT, summary=""))),
    ("/mcp/stakes/impact", lambda a: a.belief(stakes=replace(writer.STAKES, impact="HUGE"))),
    ("/mcp/epistemics/confidence", lambda a: a.belief(epistemics=replace(writer.DERIVED, confidence=2.0))),
    ("/mcp/quality/definition_of_done/checks", lambda a: a.belief(quality=_quality([object()]))),
    ("/mcp/evidence/evidence_refs", lambda a: a.belief(evidence=["pkt_x"])),  # type: ignore[list-item]
    ("/mcp/evidence/evidence_absent_reason", lambda a: a.belief(evidence=fields.Evidence([]))),
    ("/why", lambda a: a.belief(notes={"why": 1})),
    ("/_why", lambda a: a.belief(notes={"_why": object()})),
    ("/header", lambda a: a.belief(notes={"header": 1})),
    ("stake", lambda a: a.belief(stake=writer.STAKES)),  # type: ignore[call-arg]
    ("/record", lambda a: a.record("pause")),
    ("/by", lambda a: a.record("close", by="cat")),
    ("/at", lambda a: a.record("close", at=datetime(2025, 1, 1))),  # noqa: DTZ001  # what is tested
    ("/at", lambda a: a.record("close", at=datetime.max.replace(tzinfo=UTC))),
    ("/data/why", lambda a: a.record("close", {"why": object()})),
    ("/data/profile", lambda a: a.record("open", {"profile": "easy"})),
]


def _quality(checks: list[Any]) -> Any:
    return replace(writer.QUALITY, definition_of_done=replace(writer.QUALITY.definition_of_done, checks=checks))


@pytest.mark.parametrize(("field", "mistake"), MISTAKES)
def test_a_mistake_of_the_caller_names_the_field(field: str, mistake: Callable[[Author], object]) -> None:
    with pytest.raises(ValidationError) as caught:
        mistake(an_author())

    assert field in str(caught.value)


@pytest.mark.parametrize("correlation_id", ["demo", "corr_", "corr_a b", ""])
def test_a_correlation_id_that_is_none_is_named(correlation_id: str) -> None:
    with pytest.raises(ValidationError, match="/header/correlation_id"):
        Author(correlation_id, at=START).belief()


TEXT: Final = st.text(max_size=12)
JSON_VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
OBJECTS: Final = st.dictionaries(TEXT, JSON_VALUES, min_size=1, max_size=4)
MOMENTS: Final = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001  # bounds
STEPS: Final = st.timedeltas(timedelta(0), timedelta(days=1))
NOTES: Final = st.dictionaries(TEXT.map(lambda key: f"_{key}"), JSON_VALUES, max_size=2)


@st.composite
def written(draw: st.DrawFn) -> list[AnyPacket]:
    """Return packets of an author who says anything at all, in any order."""
    a = Author("corr_any", at=draw(MOMENTS), step=draw(STEPS))
    asked = a.directive(draw(TEXT), task_type="computation", params=draw(OBJECTS))
    words: list[Callable[[], AnyPacket]] = [
        lambda: a.observation(draw(OBJECTS), type=draw(st.sampled_from(enums.ObservationType)), notes=draw(NOTES)),
        lambda: a.belief(draw(OBJECTS), domain=draw(TEXT), evidence=[asked]),
        lambda: a.decision("ACT", draw(TEXT), assumptions=draw(st.dictionaries(TEXT, st.booleans(), max_size=2))),
        lambda: a.plan(draw(st.lists(TEXT, min_size=1, max_size=3)), decision=asked.header.packet_id),
        lambda: a.token(draw(st.lists(TEXT, min_size=1, max_size=3)), uses=draw(st.integers(1, 9))),
        lambda: a.directive(draw(TEXT), safety=draw(st.sampled_from(enums.SafetyClass)), token="token_x"),
        lambda: a.result(asked, draw(st.sampled_from(enums.ResultStatus)), data=draw(JSON_VALUES)),
        lambda: a.escalation(draw(st.lists(TEXT, min_size=2, max_size=3)), gaps=[draw(TEXT)]),
        lambda: a.alert(draw(st.sampled_from(enums.Severity)), draw(TEXT)),
        lambda: a.clear(draw(TEXT)),
        lambda: a.queue_update(draw(OBJECTS)),
    ]
    return [asked, *(draw(st.sampled_from(words))() for _ in range(draw(st.integers(0, 6))))]


@given(packets=written())
def test_whatever_is_said_is_read_as_it_was_written(packets: list[AnyPacket]) -> None:
    assert [read(packet.line()) for packet in packets] == packets
    assert len({packet.header.packet_id for packet in packets}) == len(packets)
    times = [packet.header.created_at for packet in packets]
    assert times == sorted(times)


ANYTHING: Final = (
    st.none()
    | st.integers()
    | st.floats()
    | st.text(alphabet=st.characters(), max_size=4)
    | st.binary(max_size=3)
    | st.lists(st.integers(), max_size=2)
    | st.just(object())
    | st.datetimes()
)


@given(
    tool_id=ANYTHING,
    safety=ANYTHING,
    token=ANYTHING,
    method=ANYTHING,
    timeout=ANYTHING,
    layer=ANYTHING,
    packet_id=ANYTHING,
)
def test_what_an_author_writes_is_valid_or_refused_with_a_validation_error(**said: Any) -> None:
    a = an_author()
    try:
        packet = a.directive(said.pop("tool_id"), **said)
    except ValidationError:
        return

    assert isinstance(read(packet.line()), Packet)


def test_the_types_of_what_is_carried_are_known() -> None:
    a = an_author()
    asked: Packet[fields.Directive] = a.directive("gauge")
    told: Packet[fields.TaskResult] = a.result(asked)

    assert (type(asked.payload), type(told.payload)) == (fields.Directive, fields.TaskResult)


def test_what_is_written_comes_with_the_line_that_it_was_read_from() -> None:
    author = Author("corr_written", at=datetime(2026, 1, 1, tzinfo=UTC))
    payload = author.observation({"seen": 1}).payload

    packet, line = author.write(payload, packet_id="pkt_b")

    assert (read(line), packet.line()) == (packet, line)
    assert author.previous_packet_id == "pkt_b"
