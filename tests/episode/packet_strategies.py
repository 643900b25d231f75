"""Packets and records as plain JSON: valid ones of every kind, drawn from the Structs, and damaged ones.

Rule 1: what `packets` and `records` draw can be read; what `mutated` draws may be anything, also still valid.
Rule 2: everything drawn is made of dict, list, str, int, float, bool and None, as a decoder returns it.
"""

import copy
import json
from collections.abc import Callable, Iterator
from datetime import UTC, timedelta, timezone
from functools import cache
from string import ascii_letters, digits
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from proctor.episode.packets.enums import PacketKind, RecordKind
from proctor.episode.packets.fields import CONTENTS, PAYLOADS, Compliance, Header, RecordLine

Wire = dict[str, Any]
Strategy = st.SearchStrategy[Any]

TAILS = st.text(f"{ascii_letters}{digits}_-", min_size=1, max_size=6)
TEXTS = st.sampled_from(["a", "the invoice is paid", "", "Überweisung ✓", "a/b~c", "\u0000"])
MOMENTS = st.datetimes(timezones=st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))])).map(
    lambda moment: moment.isoformat()
)
VALUES = st.sampled_from([None, True, 0, 1.5, "a", [], {}, [1, "a", None], {"a": {"b": [1]}}]).map(copy.deepcopy)
# In the place of anything else: right here, wrong there.
JUNK: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 7, 1.5),
    *("", "x", "ACT", "pkt_1", "token_1", "pkt_1\n"),
    *([], {}, ["x"], {"x": 1}, [{}]),
)
TIMES = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00", "2026-02-30T00:00:00Z", "2026-01-01", "yesterday")
NEW_KEYS = ("extra", "_note", "a/b~c", "", "Payload")


def packets(kind: PacketKind | None = None) -> st.SearchStrategy[Wire]:
    """Draw a valid packet, of any kind if none is given; some have notes."""
    return (st.sampled_from(PacketKind) if kind is None else st.just(kind)).flatmap(_packet)


def records(kind: RecordKind | None = None) -> st.SearchStrategy[Wire]:
    """Draw a valid record, of any kind if none is given."""
    return (st.sampled_from(RecordKind) if kind is None else st.just(kind)).flatmap(_record)


@cache
def _packet(kind: PacketKind) -> st.SearchStrategy[Wire]:
    parts = {
        "header": _values(inspect.type_info(Header)).map(lambda header: {**header, "packet_type": kind.value}),
        "mcp": _values(inspect.type_info(Compliance)),
        "payload": _values(inspect.type_info(PAYLOADS[kind])),
    }
    return st.fixed_dictionaries(parts, optional={"_note": VALUES, "_stated_at": MOMENTS}).map(_met)


@cache
def _record(kind: RecordKind) -> st.SearchStrategy[Wire]:
    fields = inspect.type_info(RecordLine)
    assert isinstance(fields, inspect.StructType)
    parts = {field.name: _values(field.type) for field in fields.fields if field.required}
    parts["record"] = st.just(kind.value)
    return st.fixed_dictionaries(parts, optional={"data": _values(inspect.type_info(CONTENTS[kind]))})


def _met(packet: Wire) -> Wire:
    """Return the packet with what its own fields require."""
    evidence = packet["mcp"]["evidence"]
    if not evidence["evidence_refs"] and not evidence.get("evidence_absent_reason"):
        evidence["evidence_absent_reason"] = "nothing was gathered"
    payload = packet["payload"]
    needed: tuple[tuple[str, set[str], str, Any], ...] = (
        ("update_type", {"contradiction_resolved"}, "contradiction_details", None),
        ("result_status", {"FAILURE"}, "error_details", {}),
        ("tool_safety_class", {"WRITE", "MIXED"}, "authorization_token_id", "token_1"),
    )
    for given, values, field, filled in needed:
        if packet["header"]["packet_type"] != "QueueUpdatePacket" and payload.get(given) in values:
            payload[field] = payload.get(field) or copy.deepcopy(filled) if filled is not None else _resolved(payload)
    return packet


def _resolved(payload: Wire) -> Wire:
    given: Wire | None = payload.get("contradiction_details")
    return given or {"conflicting_packet_ids": ["pkt_1", "pkt_2"], "resolution_method": "prefer_fresh"}


def _values(described: Any) -> Strategy:
    """Return a strategy of the JSON values that a type takes."""
    return DRAWN[type(described)](described)


def _numbers(number: inspect.IntType | inspect.FloatType) -> Strategy:
    least = int(number.ge or 0)
    greatest = 10**30 if number.le is None else int(number.le)
    if isinstance(number, inspect.IntType):
        return st.sampled_from([least, least + 1, greatest])
    if greatest == 1:
        return st.sampled_from([0, 0.0, 0.5, 1])
    return st.sampled_from([least, least + 1.5, greatest] if number.ge is not None else [-1.5, 0, greatest])


def _struct(struct: inspect.StructType) -> Strategy:
    fields = {field.encode_name: _values(field.type) for field in struct.fields}
    needed = {field.encode_name for field in struct.fields if field.required}
    return st.fixed_dictionaries(
        {key: fields[key] for key in fields if key in needed},
        optional={key: fields[key] for key in fields if key not in needed},
    )


def _id(described: inspect.Metadata) -> Strategy:
    pattern = (described.extra_json_schema or {})["pattern"]
    prefix = pattern.removeprefix("^").partition("[")[0]
    return TAILS.map(lambda tail: prefix + tail)


def _list(items: inspect.ListType) -> Strategy:
    least = items.min_length or 0
    return st.lists(_values(items.item_type), min_size=least, max_size=items.max_length or least + 2)


DRAWN: dict[type, Callable[[Any], Strategy]] = {
    inspect.AnyType: lambda _: VALUES,
    inspect.RawType: lambda _: VALUES,
    inspect.NoneType: lambda _: st.none(),
    inspect.BoolType: lambda _: st.booleans(),
    inspect.IntType: _numbers,
    inspect.FloatType: _numbers,
    inspect.StrType: lambda text: TEXTS.filter(bool) if text.min_length else TEXTS,
    inspect.Metadata: _id,
    inspect.DateTimeType: lambda _: MOMENTS,
    inspect.EnumType: lambda words: st.sampled_from([word.value for word in words.cls]),
    inspect.LiteralType: lambda literal: st.sampled_from(literal.values),
    inspect.ListType: _list,
    inspect.DictType: lambda d: st.dictionaries(TEXTS, VALUES, min_size=d.min_length or 0, max_size=2),
    inspect.StructType: _struct,
    inspect.UnionType: lambda union: st.one_of([_values(option) for option in union.types]),
}


Place = tuple[Any, Any]
"""A container, and a key or an index in it."""


@st.composite
def mutated(draw: st.DrawFn, packet: Wire) -> Wire:
    """Draw a copy of `packet` in which one to three things were dropped, added, emptied, doubled or replaced."""
    damaged = copy.deepcopy(packet)
    for _ in range(draw(st.integers(1, 3))):
        # Places near the top come often enough only if the depth is drawn first.
        by_depth = _places(damaged)
        if not by_depth:
            break
        container, key = draw(st.sampled_from(draw(st.sampled_from(by_depth))))
        draw(st.sampled_from(DAMAGES))(draw, container, key)
    return damaged


def _places(value: Any) -> list[list[Place]]:
    """Return every place in `value`, by depth."""
    found: list[list[Place]] = []
    layer = list(_within(value))
    while layer:
        found.append(layer)
        layer = [inner for container, key in layer for inner in _within(container[key])]
    return found


def _within(value: Any) -> Iterator[Place]:
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key


def _drop(draw: st.DrawFn, container: Any, key: Any) -> None:
    del container[key]


def _add(draw: st.DrawFn, container: Any, key: Any) -> None:
    if isinstance(container, dict):
        container[draw(st.sampled_from(NEW_KEYS))] = draw(st.sampled_from(JUNK).map(copy.deepcopy))
    else:
        container.append(draw(st.sampled_from(JUNK).map(copy.deepcopy)))


def _double(draw: st.DrawFn, container: Any, key: Any) -> None:
    value = container[key]
    if isinstance(value, list):
        value += copy.deepcopy(value)
    elif isinstance(value, str):
        container[key] = f"{value}|{value}"


def _empty(draw: st.DrawFn, container: Any, key: Any) -> None:
    value = container[key]
    if isinstance(value, dict | list | str):
        container[key] = type(value)()


def _replace(draw: st.DrawFn, container: Any, key: Any) -> None:
    container[key] = draw(st.sampled_from(JUNK + TIMES).map(copy.deepcopy))


DAMAGES = (_drop, _add, _double, _empty, _replace, _replace)


def typed(packet: Wire) -> tuple[Header, Compliance, Any]:
    """Return the parts of a packet as the reader has them before it looks at conditions and ids."""
    kind = PacketKind(packet["header"]["packet_type"])
    return (
        msgspec.json.decode(json.dumps(packet["header"]), type=Header),
        msgspec.json.decode(json.dumps(packet["mcp"]), type=Compliance),
        msgspec.json.decode(json.dumps(packet["payload"]), type=PAYLOADS[kind]),
    )
