"""The schemas say yes to exactly what the reader takes."""

import copy
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.episode.packets.enums import PacketKind, RecordKind
from proctor.episode.packets.fields import Compliance
from proctor.episode.packets.reader import Malformed, read
from proctor.episode.packets.schemas import schemas
from tests.episode.packet_strategies import Wire, mutated, packets, records

SCHEMAS = schemas()


@cache
def validator(name: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(SCHEMAS[name], validate_formats=True)


def is_valid(name: str, value: Any) -> bool:
    return validator(name).is_valid(value)


def is_read(value: Any) -> bool:
    return not isinstance(read(json.dumps(value).encode()), Malformed)


def parts_of(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every object of a schema."""
    if isinstance(schema, dict):
        yield schema
    for inner in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from parts_of(inner)


@settings(max_examples=100)
@given(packets())
def test_a_valid_packet_fits_its_own_schema_and_no_other(packet: Wire) -> None:
    kind = packet["header"]["packet_type"]

    fitting = {name for name in SCHEMAS if is_valid(name, packet)}

    assert fitting == {kind, "Line"}


@settings(max_examples=120)
@given(packets().flatmap(mutated))
def test_schema_and_reader_agree_on_damaged_packets(packet: Wire) -> None:
    readable = is_read(packet)

    assert is_valid("Line", packet) == readable
    for kind in PacketKind:
        assert is_valid(kind, packet) == (readable and packet["header"]["packet_type"] == kind)


@settings(max_examples=100)
@given(records())
def test_a_valid_record_fits_the_schema_of_records_alone(record: Wire) -> None:
    fitting = {name for name in SCHEMAS if is_valid(name, record)}

    assert fitting == {"Record", "Line"}


@settings(max_examples=80)
@given(records().flatmap(mutated))
def test_schema_and_reader_agree_on_damaged_records(record: Wire) -> None:
    readable = is_read(record)

    assert is_valid("Record", record) == is_valid("Line", record) == readable


@pytest.mark.parametrize("moment", ["2026-01-01T12:00:00Z", "2026-01-01T12:00:00.5+05:30", "2026-12-31t23:59:59z"])
@pytest.mark.parametrize("formats", [True, False])
def test_a_date_and_time_with_an_offset_fits(moment: str, formats: bool) -> None:
    record = {"record": "close", "correlation_id": "corr_1", "at": moment, "by": "system"}

    checked = jsonschema_rs.Draft202012Validator(SCHEMAS["Record"], validate_formats=formats)

    assert checked.is_valid(record)
    assert is_read(record)


@pytest.mark.parametrize(
    "moment", ["2026-01-01T12:00:00", "2026-01-01", "2026-13-01T12:00:00Z", "2026-01-01T12:00:60Z", "now", ""]
)
@pytest.mark.parametrize("formats", [True, False])
def test_the_pattern_refuses_other_times_without_the_format(moment: str, formats: bool) -> None:
    record = {"record": "close", "correlation_id": "corr_1", "at": moment, "by": "system"}

    checked = jsonschema_rs.Draft202012Validator(SCHEMAS["Record"], validate_formats=formats)

    assert not checked.is_valid(record)
    assert not is_read(record)


def test_a_day_that_does_not_exist_is_refused_where_formats_are_asserted() -> None:
    record = {"record": "close", "correlation_id": "corr_1", "at": "2026-02-30T12:00:00Z", "by": "system"}

    assert not is_valid("Record", record)
    assert not is_read(record)


@settings(max_examples=25)
@given(packets(PacketKind.DECISION), st.sampled_from(["2026-01-01 12:00:00Z", "2026-01-01T12:00:00+0530"]))
def test_the_schema_is_narrower_than_the_reader_about_the_spelling_of_times(packet: Wire, moment: str) -> None:
    packet["header"]["created_at"] = moment

    assert is_read(packet)
    assert not is_valid("DecisionPacket", packet)


@settings(max_examples=25)
@given(packets(PacketKind.DECISION))
def test_the_schema_takes_one_point_nought_for_a_whole_number(packet: Wire) -> None:
    packet["mcp"]["budgets"]["token_budget"] = 1.0

    assert not is_read(packet)
    assert is_valid("DecisionPacket", packet)


def test_there_is_a_schema_for_every_packet_for_records_and_for_any_line() -> None:
    assert list(SCHEMAS) == [*(kind.value for kind in PacketKind), "Record", "Line"]


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_one_by_the_rules_of_its_dialect(name: str) -> None:
    assert SCHEMAS[name]["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert jsonschema_rs.meta.is_valid(SCHEMAS[name])


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_stands_alone_and_holds_nothing_that_it_does_not_use(name: str) -> None:
    named = {part["$ref"] for part in parts_of(SCHEMAS[name]) if "$ref" in part}

    assert named == {f"#/$defs/{part}" for part in SCHEMAS[name]["$defs"]}


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_part_has_a_title_and_a_description(name: str) -> None:
    for part in (SCHEMAS[name], *SCHEMAS[name]["$defs"].values()):
        assert part["title"]
        assert part["description"]


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_plain_json(name: str) -> None:
    text = json.dumps(SCHEMAS[name])

    assert {type(part) for part in parts_of(SCHEMAS[name])} == {dict}
    assert json.loads(text) == SCHEMAS[name]


@pytest.mark.parametrize("kind", RecordKind)
def test_records_of_every_kind_are_described(kind: RecordKind) -> None:
    record = {"record": kind.value, "correlation_id": "corr_1", "at": "2026-01-01T12:00:00Z", "by": "operator"}

    assert is_valid("Record", record)
    assert is_valid("Record", {**record, "data": {"token_budget": 1}}) == (kind is not RecordKind.OPEN)


def test_schemas_are_made_anew_so_that_nobody_changes_those_of_another() -> None:
    once = schemas()
    kept = copy.deepcopy(once)

    schemas()["Record"]["$defs"].clear()

    assert once == kept


def test_the_envelope_is_described_as_msgspec_describes_it() -> None:
    _, theirs = msgspec.json.schema_components([Compliance], ref_template="#/$defs/{name}")
    ours = copy.deepcopy(SCHEMAS["QueueUpdatePacket"]["$defs"])

    for part in parts_of(ours):
        if part.get("format") == "date-time":
            del part["pattern"]

    assert {name: plain(ours[name]) for name in theirs} == {name: plain(part) for name, part in theirs.items()}


def plain(part: Any) -> Any:
    """Return a part of a schema without what has no meaning in it: the order of words, and 'any value' written out."""
    if isinstance(part, list):
        return [plain(inner) for inner in part]
    if not isinstance(part, dict):
        return part
    return {
        key: sorted(inner) if key == "enum" else plain(inner)
        for key, inner in part.items()
        if (key, inner) != ("additionalProperties", {})
    }
