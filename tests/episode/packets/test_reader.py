"""One match proves every id of a packet."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from proctor.episode.packets.enums import PacketKind
from proctor.episode.packets.fields import ID_TAIL, PAYLOADS, Compliance, Header
from proctor.episode.packets.reader import ids_match
from tests.episode.packet_strategies import Wire, packets, typed

HEADER = inspect.type_info(Header)
Place = tuple[Any, Any, str, bool]
"""A container, a key or an index in it, the id's pattern, and whether the id may be absent."""

PREFIXES = ("pkt", "corr", "camp", "token", "task")
GOOD = st.builds("{}_{}".format, st.sampled_from(PREFIXES), st.text("aZ09_-", min_size=1, max_size=4))
ODD = st.builds("{}_{}".format, st.sampled_from(PREFIXES), st.text("a0|<>+*!,' \n\r\u0661\uff11é\x00", max_size=4))
JOINED = st.builds("{}{}{}".format, GOOD, st.sampled_from("|<>+*!, \n"), GOOD)
IDS = GOOD | ODD | JOINED | st.sampled_from(["", "pkt_", "pkt", "_", "PKT_1", " pkt_1", "pkt_1 ", "pkt_1\n"])


def id_places(described: Any, value: Any, container: Any = None, key: Any = None) -> Iterator[Place]:
    """Yield the place of every id in a part of a packet, told by its type, also of those that are absent."""
    if isinstance(described, inspect.UnionType):
        optional = any(isinstance(option, inspect.NoneType) for option in described.types)
        for option in described.types:
            for where, name, pattern, may_be_absent in id_places(option, value, container, key):
                yield where, name, pattern, may_be_absent or (optional and where is container)
    elif isinstance(described, inspect.Metadata):
        yield container, key, (described.extra_json_schema or {})["pattern"], False
    elif isinstance(described, inspect.StructType) and isinstance(value, dict):
        for field in described.fields:
            yield from id_places(field.type, value.get(field.encode_name), value, field.encode_name)
    elif isinstance(described, inspect.ListType) and isinstance(value, list):
        for index, item in enumerate(value):
            yield from id_places(described.item_type, item, value, index)


def places_in(packet: Wire) -> list[Place]:
    kind = PacketKind(packet["header"]["packet_type"])
    return [*id_places(HEADER, packet["header"]), *id_places(payload_type(kind), packet["payload"])]


@cache
def payload_type(kind: PacketKind) -> inspect.Type:
    return inspect.type_info(PAYLOADS[kind])


def is_each_an_id(packet: Wire) -> bool:
    """Return whether every id alone matches its own pattern; one that may be absent may be null."""
    for container, key, pattern, optional in places_in(packet):
        value: Any = container.get(key) if isinstance(container, dict) else container[key]
        prefix = pattern.removeprefix("^").partition("_")[0]
        if value is None and optional:
            continue
        if not re.fullmatch(f"{prefix}_{ID_TAIL}", value):
            return False
    return True


def is_match(packet: Wire) -> bool:
    header, _, payload = typed(packet)
    return ids_match(header, payload, header.packet_type)


@given(packets())
def test_the_ids_of_a_valid_packet_match(packet: Wire) -> None:
    assert is_match(packet)


@settings(max_examples=120)
@given(packets(), st.data())
def test_one_match_says_what_a_match_for_every_id_would_say(packet: Wire, data: st.DataObject) -> None:
    places = places_in(packet)
    for container, key, _, optional in data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=3)):
        container[key] = data.draw(st.none() | IDS if optional else IDS)

    assert is_match(packet) == is_each_an_id(packet)


@pytest.mark.parametrize("bad", ["", "pkt_1|pkt_2", "token_1\n", "task_\u0661"])
@pytest.mark.parametrize("kind", PacketKind)
def test_every_id_of_the_fullest_packet_is_matched(kind: PacketKind, bad: str) -> None:
    packet = fullest_packet(kind)
    count = len(places_in(packet))

    assert is_match(packet)
    for index in range(count):
        broken = fullest_packet(kind)
        container, key, _, _ = places_in(broken)[index]
        container[key] = bad

        assert not is_match(broken)


def fullest_packet(kind: PacketKind) -> Wire:
    """Return a packet in which every field is given, and every list has one member or more."""
    parts = (("header", Header), ("mcp", Compliance), ("payload", PAYLOADS[kind]))
    packet = {name: fullest(inspect.type_info(part)) for name, part in parts}
    packet["header"]["packet_type"] = kind.value
    return packet


def fullest(described: Any) -> Any:
    return FULLEST[type(described)](described)


FULLEST: dict[type, Callable[[Any], Any]] = {
    inspect.StructType: lambda struct: {field.encode_name: fullest(field.type) for field in struct.fields},
    inspect.UnionType: lambda union: fullest(union.types[0]),
    inspect.ListType: lambda items: [fullest(items.item_type) for _ in range(items.min_length or 1)],
    inspect.Metadata: lambda described: (
        described.extra_json_schema["pattern"].removeprefix("^").partition("[")[0] + "1"
    ),
    inspect.EnumType: lambda words: next(iter(words.cls)).value,
    inspect.LiteralType: lambda literal: literal.values[0],
    inspect.DateTimeType: lambda _: "2026-01-01T12:00:00Z",
    inspect.StrType: lambda _: "a",
    inspect.BoolType: lambda _: True,
    inspect.DictType: lambda _: {"a": 1},
    inspect.IntType: lambda _: 1,
    inspect.FloatType: lambda _: 1,
    inspect.RawType: lambda _: 1,
}


@pytest.mark.parametrize(
    "changes",
    [
        {"packet_id": "pkt_a|corr_b", "correlation_id": "corr_c"},
        {"correlation_id": "corr_a|pkt_b", "previous_packet_id": None},
        {"correlation_id": "corr_a|pkt_b", "previous_packet_id": ""},
        {"previous_packet_id": ""},
        {"previous_packet_id": "pkt_a\n"},
        {"previous_packet_id": "None"},
        {"campaign_id": ""},
        {"campaign_id": "pkt_1"},
        {"packet_id": "pkt_\u0661"},
        {"packet_id": "pkt_\uff11"},
        {"packet_id": "pkt_"},
        {"packet_id": "corr_1", "correlation_id": "pkt_1"},
    ],
)
@pytest.mark.parametrize("kind", PacketKind)
@settings(max_examples=5)
@given(data=st.data())
def test_ids_cannot_stand_in_for_one_another(kind: PacketKind, changes: Wire, data: st.DataObject) -> None:
    packet = data.draw(packets(kind))
    packet["header"].update(changes)

    assert not is_match(packet)
