"""Everything that is wrong with the shape of a line, each error at its JSON pointer: the slow, second reading.

Rule 1: the list is empty exactly if the line can be read. What is expected is told by the Structs (`fields.py`) and by
    `CONDITIONS`, which the reader and the JSON Schemas use as well: nothing is described again.
Rule 2: sentences are our own. They say what was expected and what sort of thing was found, never the value; only a
    short word in place of one of a closed set is repeated.
Rule 3: values come from JSON. A number too large for a float stands as infinity, and is an error wherever it is read.
Rule 4: a line of megabytes costs no more than itself: a pointer is made for an error only, and its length has an end.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from operator import attrgetter
from types import NoneType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import Struct, inspect

from proctor.episode.packets.enums import PacketKind, RecordKind, ResultStatus, SafetyClass, UpdateType
from proctor.episode.packets.fields import CONTENTS, GREATEST, PAYLOADS, Compliance, Header, Moment, RecordLine
from proctor.episode.settings import MOST_ERRORS

SCHEMA: Final = "SCHEMA"
# To look for a field with a similar name takes a hundred times as long as to say that there is none of the name.
MOST_HINTS: Final = 3
# A longer word than this is not repeated in a sentence, nothing like it is looked for, and as a key it is shortened in
# pointers.
LONGEST_WORD: Final = 40
# A longer pointer ends with what encloses the place.
LONGEST_POINTER: Final = 400
CUT: Final = "…"
NOTE_PREFIX: Final = "_"

Members: TypeAlias = Mapping[str, inspect.Field]
Word = TypeVar("Word", bound=StrEnum)
# A place in a line: that of what encloses it, and the key or index there; None is the top.
Place: TypeAlias = "tuple[Place, str | int] | None"


class ShapeError(Struct, frozen=True):
    """Something that is wrong with a line: where (a JSON pointer), why, and the rules that it breaks."""

    pointer: str
    reason: str
    rules: tuple[str, ...]


class UnknownKey(NamedTuple):
    """A key that an object does not have, and those that it has."""

    key: str
    members: Members


# Where something is wrong, and why; a key that is unknown is put into words once it is listed.
Flaws: TypeAlias = Iterator[tuple[str, str | UnknownKey]]


_COMPLETE: Final = ("E5", "S8", "INV-009")
CONTRACT: Final[dict[tuple[PacketKind, str], tuple[str, ...]]] = {
    # The kinds whose envelope must be complete by the contract too.
    (PacketKind.DECISION, "/mcp"): ("INV-001",),
    (PacketKind.DIRECTIVE, "/mcp"): ("INV-001",),
    (PacketKind.TOKEN, "/mcp"): ("INV-001",),
    (PacketKind.ESCALATION, "/mcp"): ("INV-001",),
    (PacketKind.ESCALATION, "/payload/top_options"): _COMPLETE,
    (PacketKind.ESCALATION, "/payload/evidence_gaps"): _COMPLETE,
    (PacketKind.ESCALATION, "/payload/recommended_next_step"): _COMPLETE,
}
"""The rules of the contract, beside the schema's own, that an error at a place of a packet breaks."""


def is_within(pointer: str, place: str) -> bool:
    """Return whether `pointer` names `place` or something inside of it."""
    return pointer == place or pointer.startswith(f"{place}/")


def rules_at(kind: PacketKind | None, pointer: str) -> tuple[str, ...]:
    """Return the rules that an error at `pointer` of a packet breaks, the schema first; `kind` is None if unknown."""
    added = (
        rules
        for (whose, place), rules in CONTRACT.items()
        if whose is kind and (is_within(pointer, place) or is_within(place, pointer))
    )
    return (SCHEMA, *dict.fromkeys(rule for rules in added for rule in rules))


class FieldCondition(NamedTuple):
    """Where the field `given` has one of `values`, something must stand at `pointer`.

    `kind` is None if every packet has the condition; `rules` are those beside the schema's.
    """

    kind: PacketKind | None
    given: str
    values: tuple[Any, ...]
    pointer: str
    reason: str
    rules: tuple[str, ...] = ()

    def is_unmet(self, packet: dict[str, Any]) -> bool:
        """Return whether the condition does not hold in a packet, decoded without types."""
        return _value_at(packet, self.pointer) in (None, "") and _value_at(packet, self.given) in self.values


def _value_at(value: Any, pointer: str) -> Any:
    for key in pointer.split("/")[1:]:
        value = value.get(key) if isinstance(value, dict) else None
    return value


CONDITIONS: Final = (
    FieldCondition(
        None,
        "/mcp/evidence/evidence_refs",
        ([],),
        "/mcp/evidence/evidence_absent_reason",
        "without evidence_refs a reason that is not empty is required",
    ),
    FieldCondition(
        PacketKind.BELIEF_UPDATE,
        "/payload/update_type",
        (UpdateType.CONTRADICTION_RESOLVED,),
        "/payload/contradiction_details",
        "contradiction_details are required when update_type is contradiction_resolved",
    ),
    FieldCondition(
        PacketKind.DIRECTIVE,
        "/payload/tool_safety_class",
        (SafetyClass.WRITE, SafetyClass.MIXED),
        "/payload/authorization_token_id",
        "a token is required when tool_safety_class is WRITE or MIXED",
        ("E4",),
    ),
    FieldCondition(
        PacketKind.RESULT,
        "/payload/result_status",
        (ResultStatus.FAILURE,),
        "/payload/error_details",
        "error_details are required when result_status is FAILURE",
    ),
)
# What the condition of a kind of its own asks of the payload, and for which values.
_OWN: Final = {
    each.kind: (
        attrgetter(each.pointer.removeprefix("/payload/")),
        attrgetter(each.given.removeprefix("/payload/")),
        each.values,
    )
    for each in CONDITIONS
    if each.kind is not None
}


def conditions_for(kind: PacketKind) -> tuple[FieldCondition, ...]:
    """Return the conditions that a packet of this kind has."""
    return tuple(condition for condition in CONDITIONS if condition.kind in (None, kind))


def meets_conditions(kind: PacketKind, compliance: Any, payload: Any) -> bool:
    """Return whether every condition between fields holds in the typed parts of a packet."""
    evidence = compliance.evidence
    if not evidence.evidence_refs and not evidence.evidence_absent_reason:
        return False
    own = _OWN.get(kind)
    if own is None:
        return True
    wanted, given, values = own
    return bool(wanted(payload)) or given(payload) not in values


def _members(struct: inspect.Type) -> dict[str, inspect.Field]:
    return {field.encode_name: field for field in struct.fields} if isinstance(struct, inspect.StructType) else {}


_ANY_TYPE: Final = inspect.RawType()
_PACKET: Final = {
    "header": inspect.Field("header", "header", inspect.type_info(Header)),
    "mcp": inspect.Field("mcp", "mcp", inspect.type_info(Compliance)),
}
_PAYLOADS: Final = {kind: inspect.type_info(payload) for kind, payload in PAYLOADS.items()}
_RECORD: Final = _members(inspect.type_info(RecordLine))
_CONTENTS: Final = {kind: inspect.type_info(content) for kind, content in CONTENTS.items()}


def list_packet_errors(value: object, most: int = MOST_ERRORS) -> tuple[ShapeError, ...]:
    """Return the first `most` errors of a decoded JSON value that should be a packet, in the order of the packet's fields."""
    if not isinstance(value, dict):
        return (ShapeError("", _contrast("a packet, which is an object", _describe_value(value)), (SCHEMA,)),)
    header = value.get("header")
    kind = _find_member(PacketKind, header.get("packet_type")) if isinstance(header, dict) else None
    payload = inspect.Field("payload", "payload", _ANY_TYPE if kind is None else _PAYLOADS[kind])
    stated = {key: part for key, part in value.items() if not key.startswith(NOTE_PREFIX)}
    flaws = _object_flaws({**_PACKET, "payload": payload}, stated, None)
    errors = _list_errors(flaws, most, kind, "/header/packet_type", "the payload is not judged without it")
    return errors if kind is None or len(errors) > most else (*errors, *_check_conditions(value, kind, errors))


def list_record_errors(value: object, most: int = MOST_ERRORS) -> tuple[ShapeError, ...]:
    """Return the first `most` errors of a decoded JSON value that should be a record, in the order of the record's fields."""
    if not isinstance(value, dict):
        return (ShapeError("", _contrast("a record, which is an object", _describe_value(value)), (SCHEMA,)),)
    kind = _find_member(RecordKind, value.get("record"))
    data = inspect.Field("data", "data", _ANY_TYPE if kind is None else _CONTENTS[kind], required=False)
    flaws = _object_flaws({**_RECORD, "data": data}, value, None)
    return _list_errors(flaws, most, None, "/record", "the data is not judged without it")


def _find_member(words: type[Word], value: object) -> Word | None:
    return next((word for word in words if word == value), None)


def _list_errors(flaws: Flaws, most: int, kind: PacketKind | None, where: str, remark: str) -> tuple[ShapeError, ...]:
    """Return the first `most` in words, with a remark at one place; what comes after them is not looked for."""
    errors: list[ShapeError] = []
    hints = 0
    for at, reason in flaws:
        if len(errors) == most:
            errors.append(ShapeError("", f"there are more errors than these {most}", (SCHEMA,)))
            break
        if isinstance(reason, UnknownKey):
            hints += 1
            reason = _describe_unknown_key(reason, hinted=hints <= MOST_HINTS)
        errors.append(ShapeError(at, f"{reason}; {remark}" if at == where else reason, rules_at(kind, at)))
    return tuple(errors)


def _check_conditions(value: dict[str, Any], kind: PacketKind, errors: Sequence[ShapeError]) -> Iterator[ShapeError]:
    """Yield the conditions that are unmet among fields that are right in themselves."""
    for each in conditions_for(kind):
        wrong = any(is_within(field, error.pointer) for error in errors for field in (each.given, each.pointer))
        if not wrong and each.is_unmet(value):
            yield ShapeError(each.pointer, each.reason, (*rules_at(kind, each.pointer), *each.rules))


def escape_key(key: str) -> str:
    """Return a key as it stands in a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def pointer_to(place: Place) -> str:
    """Return the JSON pointer of `place`, cut where a key or the whole is too long to be repeated."""
    keys: list[str] = []
    while place is not None:
        place, key = place
        keys.append(str(key))
    pointer = ""
    for name in reversed(keys):
        short = name if len(name) <= LONGEST_WORD else name[: LONGEST_WORD - 1] + CUT
        longer = f"{pointer}/{escape_key(short)}"
        if len(longer) > LONGEST_POINTER:
            return f"{pointer}/{CUT}"
        pointer = longer
    return pointer


def _words(described: inspect.Type) -> str:
    return VALIDATORS[type(described)].words(described)


def _id_words(described: inspect.Metadata) -> str:
    prefix, _, tail = _pattern(described).removeprefix("^").partition("[")
    most = tail.partition("{1,")[2].removesuffix("}$")
    return f"an id, which is {prefix} and then up to {most} letters, digits, _ or -"


def _list_words(items: inspect.ListType) -> str:
    if not items.min_length:
        return "a list"
    most = items.max_length
    return f"a list of at least {items.min_length}" if most is None else f"a list of {items.min_length} to {most}"


def _pattern(described: inspect.Metadata) -> str:
    return str((described.extra_json_schema or {}).get("pattern", ""))


def _range(number: inspect.IntType | inspect.FloatType) -> str:
    if number.ge is None:
        return ""
    return f" from {number.ge:g} to {number.le:g}" if _is_bounded(number) else f" of at least {number.ge:g}"


def _is_bounded(number: inspect.IntType | inspect.FloatType) -> bool:
    """Return whether a number has a bound of its own, besides the one that every number has."""
    return number.le is not None and number.le < GREATEST


def _describe_value(value: object) -> str:
    match value:
        case None | bool():
            return json.dumps(value)
        case str():
            return "a string" if value else "an empty string"
        case list():
            return f"a list of {len(value)}" if value else "an empty list"
        case dict():
            return "an object" if value else "an empty object"
        case int():
            return "a whole number"
    return "a number"


def _describe_unknown_key(found: UnknownKey, *, hinted: bool) -> str:
    key = found.key
    if len(key) > LONGEST_WORD:
        return "there is no such field"
    like = get_close_matches(key, found.members, n=1) if hinted else []
    return f"there is no field {json.dumps(key)}" + (f"; did you mean {like[0]}?" if like else "")


def _contrast(expected: str, found: str) -> str:
    return f"expected {expected}, found {found}"


def _flaws(described: inspect.Type, value: Any, at: Place) -> Flaws:
    """Yield everything that is wrong with `value`, which stands at the place `at`."""
    validator = VALIDATORS[type(described)]
    if type(value) not in validator.takes:
        yield _flaw(described, at, _describe_value(value))
    elif validator.flaws is not None:
        yield from validator.flaws(described, value, at)


def _flaw(described: inspect.Type, at: Place, found: str) -> tuple[str, str]:
    return pointer_to(at), _contrast(_words(described), found)


def _text_flaws(text: inspect.StrType, value: str, at: Place) -> Flaws:
    if len(value) < (text.min_length or 0):
        yield _flaw(text, at, _describe_value(value))


def _id_flaws(described: inspect.Metadata, value: str, at: Place) -> Flaws:
    if not re.fullmatch(_pattern(described), value):
        yield _flaw(described, at, "another string" if value else _describe_value(value))


def _time_flaws(described: inspect.DateTimeType, value: str, at: Place) -> Flaws:
    try:
        msgspec.convert(value, Moment)
    except msgspec.ValidationError:
        yield _flaw(described, at, "another string" if value else _describe_value(value))


def _number_flaws(number: inspect.IntType | inspect.FloatType, value: float, at: Place) -> Flaws:
    if number.ge is not None and value < number.ge:
        yield _flaw(number, at, "one that is too small")
    elif (number.le is not None and value > number.le) or (isinstance(number, inspect.FloatType) and _is_huge(value)):
        found = "one that is too large" if number.le is None or _is_bounded(number) else f"one beyond {number.le:.0f}"
        yield _flaw(number, at, found)


def _is_huge(value: float) -> bool:
    try:
        return math.isinf(value)
    except OverflowError:  # a whole number that no float can hold
        return True


def _word_flaws(words: inspect.EnumType | inspect.LiteralType, value: object, at: Place) -> Flaws:
    known = [word.value for word in words.cls] if isinstance(words, inspect.EnumType) else words.values
    if value not in known:
        # A short word in place of one of a closed set is repeated.
        short = isinstance(value, str) and len(value) <= LONGEST_WORD
        kind = "string" if isinstance(value, str) else "whole number"
        yield _flaw(words, at, json.dumps(value) if short else f"another {kind}")


def _list_flaws(items: inspect.ListType, value: list[Any], at: Place) -> Flaws:
    if len(value) < (items.min_length or 0) or (items.max_length is not None and len(value) > items.max_length):
        yield _flaw(items, at, _describe_value(value))
    for index, item in enumerate(value):
        yield from _flaws(items.item_type, item, (at, index))


def _mapping_flaws(described: inspect.DictType, value: dict[str, Any], at: Place) -> Flaws:
    if len(value) < (described.min_length or 0):
        yield _flaw(described, at, _describe_value(value))
    for key, item in value.items():
        yield from _flaws(described.value_type, item, (at, key))


def _object_flaws(members: Members, value: dict[str, Any], at: Place) -> Flaws:
    for key, member in members.items():
        if key in value:
            yield from _flaws(member.type, value[key], (at, key))
        elif member.required:
            yield pointer_to((at, key)), f"{key} is missing; expected {_words(member.type)}"
    for key in value:
        if key not in members:
            yield pointer_to((at, key)), UnknownKey(key, members)


def _union_flaws(union: inspect.UnionType, value: Any, at: Place) -> Flaws:
    option = next((option for option in union.types if type(value) in VALIDATORS[type(option)].takes), None)
    if option is None:
        yield _flaw(union, at, _describe_value(value))
    else:
        yield from _flaws(option, value, at)


def _any_flaws(described: inspect.AnyType, value: Any, at: Place) -> Flaws:
    """Yield the numbers that are too large; not by recursion, since nothing bounds the depth here."""
    waiting = [iter([(value, at)])]
    while waiting:
        for value, at in waiting[-1]:
            if isinstance(value, dict | list):
                waiting.append(_parts(value, at))
                break
            if isinstance(value, float) and math.isinf(value):
                yield pointer_to(at), _contrast("a number", "one that is too large")
        else:
            waiting.pop()


def _parts(value: dict[str, Any] | list[Any], at: Place) -> Iterator[tuple[Any, Place]]:
    """Yield what stands in `value`, with its place, as far as anything can be wrong with it or in it."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(part, dict | list | float):
            yield part, (at, key)


class TypeValidator(NamedTuple):
    """How a type is judged: the values of JSON that it takes, how it is called, and what can be wrong with such a value."""

    takes: tuple[type, ...]
    words: Callable[[Any], str]
    flaws: Callable[[Any, Any, Place], Flaws] | None = None


_JSON: Final = (NoneType, bool, int, float, str, list, dict)
VALIDATORS: Final[Mapping[type[inspect.Type], TypeValidator]] = {
    inspect.AnyType: TypeValidator(_JSON, lambda _: "any value", _any_flaws),
    inspect.RawType: TypeValidator(_JSON, lambda _: "any value"),
    inspect.NoneType: TypeValidator((NoneType,), lambda _: "null"),
    inspect.BoolType: TypeValidator((bool,), lambda _: "true or false"),
    inspect.IntType: TypeValidator((int,), lambda number: f"a whole number{_range(number)}", _number_flaws),
    inspect.FloatType: TypeValidator((int, float), lambda number: f"a number{_range(number)}", _number_flaws),
    inspect.StrType: TypeValidator(
        (str,), lambda text: "a string that is not empty" if text.min_length else "a string", _text_flaws
    ),
    # The one thing that the Structs say of a type beside msgspec's own constraints is the pattern of an id.
    inspect.Metadata: TypeValidator((str,), _id_words, _id_flaws),
    inspect.DateTimeType: TypeValidator((str,), lambda _: "a date and time with an offset", _time_flaws),
    inspect.EnumType: TypeValidator((str,), lambda words: f"one of {', '.join(words.cls)}", _word_flaws),
    inspect.LiteralType: TypeValidator(
        (int, str), lambda literal: f"one of {', '.join(map(str, literal.values))}", _word_flaws
    ),
    inspect.ListType: TypeValidator((list,), _list_words, _list_flaws),
    inspect.DictType: TypeValidator(
        (dict,), lambda mapping: "an object that is not empty" if mapping.min_length else "an object", _mapping_flaws
    ),
    inspect.StructType: TypeValidator(
        (dict,), lambda _: "an object", lambda struct, value, at: _object_flaws(_members(struct), value, at)
    ),
    inspect.UnionType: TypeValidator(_JSON, lambda union: " or ".join(map(_words, union.types)), _union_flaws),
}
