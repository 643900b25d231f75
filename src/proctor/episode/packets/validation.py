"""Everything that is wrong with the shape of a line, each error at its JSON pointer: the slow, second reading.

Rule 1: the list is empty exactly if the line can be read. What is expected is told by the Structs: they are walked
    here, never described again.
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
from itertools import islice
from types import NoneType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import inspect

from proctor.episode.packets.enums import PacketKind, RecordKind
from proctor.episode.packets.envelope import GREATEST, Compliance, Header, Moment
from proctor.episode.packets.field_conditions import SCHEMA, ShapeError, conditions_for, error_for, is_within, rules_at
from proctor.episode.packets.payloads import CONTENTS, PAYLOADS, RecordLine
from proctor.episode.settings import MOST_ERRORS

# To look for a field with a similar name takes a hundred times as long as to say that there is none of the name.
MOST_HINTS: Final = 3
# A longer word than this is not repeated in a sentence, nothing like it is looked for, and as a key it is shortened in
# pointers.
LONGEST_WORD: Final = 40
# A longer pointer ends with what encloses the place.
LONGEST_POINTER: Final = 400
CUT: Final = "…"
NOTE_PREFIX: Final = "_"

Members: TypeAlias = "Mapping[str, Member]"
Word = TypeVar("Word", bound=StrEnum)
# A place in a line: that of what encloses it, and the key or index there; None is the top.
Place: TypeAlias = "tuple[Place, str | int] | None"


class Member(NamedTuple):
    """What may stand under a key of an object."""

    type: inspect.Type
    required: bool


class UnknownKey(NamedTuple):
    """A key that an object does not have, and those that it has."""

    key: str
    members: Members


# Where something is wrong, and why; a key that is unknown is put into words once it is listed.
Flaw: TypeAlias = tuple[str, str | UnknownKey]
Flaws: TypeAlias = Iterator[Flaw]


def _members(struct: inspect.Type) -> dict[str, Member]:
    fields = struct.fields if isinstance(struct, inspect.StructType) else ()
    return {field.encode_name: Member(field.type, field.required) for field in fields}


_ANY_TYPE: Final = inspect.RawType()
_HEADER: Final = Member(inspect.type_info(Header), required=True)
_COMPLIANCE: Final = Member(inspect.type_info(Compliance), required=True)
_PAYLOADS: Final = {kind: inspect.type_info(payload) for kind, payload in PAYLOADS.items()}
_RECORD: Final = _members(inspect.type_info(RecordLine))
_CONTENTS: Final = {kind: inspect.type_info(content) for kind, content in CONTENTS.items()}


# ----------------------------------------------------------------------------------------------------------- whole lines
def list_packet_errors(value: object, most: int = MOST_ERRORS) -> tuple[ShapeError, ...]:
    """Return the first `most` errors of a decoded JSON value that should be a packet, in the order of the packet's fields."""
    if not isinstance(value, dict):
        return (ShapeError("", _contrast("a packet, which is an object", _describe_value(value)), (SCHEMA,)),)
    header = value.get("header")
    kind = _find_member(PacketKind, header.get("packet_type")) if isinstance(header, dict) else None
    flaws = _packet_flaws(value, kind)
    errors = [ShapeError(at, reason, rules_at(kind, at)) for at, reason in _first_flaws(flaws, most)]
    if next(flaws, None) is not None:
        return (*errors, _too_many_errors(most))
    if kind is None:
        return tuple(errors)
    return (*errors, *_check_conditions(value, kind, errors))


def list_record_errors(value: object, most: int = MOST_ERRORS) -> tuple[ShapeError, ...]:
    """Return the first `most` errors of a decoded JSON value that should be a record, in the order of the record's fields."""
    if not isinstance(value, dict):
        return (ShapeError("", _contrast("a record, which is an object", _describe_value(value)), (SCHEMA,)),)
    kind = _find_member(RecordKind, value.get("record"))
    content = _ANY_TYPE if kind is None else _CONTENTS[kind]
    members = {**_RECORD, "data": Member(content, required=False)}
    flaws = _append_remark(_object_flaws(members, value, None), "/record", "the data is not judged without it")
    errors = tuple(ShapeError(at, reason, (SCHEMA,)) for at, reason in _first_flaws(flaws, most))
    return errors if next(flaws, None) is None else (*errors, _too_many_errors(most))


def escape_key(key: str) -> str:
    """Return a key as it stands in a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def pointer_to(place: Place) -> str:
    """Return the JSON pointer of `place`, cut where a key or the whole is too long to be repeated."""
    keys: list[str | int] = []
    while place is not None:
        place, key = place
        keys.append(key)
    pointer = ""
    for key in reversed(keys):
        longer = f"{pointer}/{escape_key(_shorten_key(str(key)))}"
        if len(longer) > LONGEST_POINTER:
            return f"{pointer}/{CUT}"
        pointer = longer
    return pointer


def _shorten_key(key: str) -> str:
    return key if len(key) <= LONGEST_WORD else key[: LONGEST_WORD - 1] + CUT


def _packet_flaws(value: dict[str, Any], kind: PacketKind | None) -> Flaws:
    payload = Member(_ANY_TYPE if kind is None else _PAYLOADS[kind], required=True)
    stated = {key: part for key, part in value.items() if not key.startswith(NOTE_PREFIX)}
    flaws = _object_flaws({"header": _HEADER, "mcp": _COMPLIANCE, "payload": payload}, stated, None)
    return _append_remark(flaws, "/header/packet_type", "the payload is not judged without it")


def _append_remark(flaws: Flaws, where: str, remark: str) -> Flaws:
    for at, reason in flaws:
        yield at, f"{reason}; {remark}" if at == where else reason


def _first_flaws(flaws: Flaws, most: int) -> Iterator[tuple[str, str]]:
    """Yield the first `most` in words; what comes after them is not looked for."""
    hints = 0
    for at, reason in islice(flaws, most):
        if isinstance(reason, UnknownKey):
            hints += 1
            yield at, _describe_unknown_key(reason, hinted=hints <= MOST_HINTS)
        else:
            yield at, reason


def _too_many_errors(most: int) -> ShapeError:
    return ShapeError("", f"there are more errors than these {most}", (SCHEMA,))


def _find_member(words: type[Word], value: object) -> Word | None:
    return next((word for word in words if word == value), None)


# -------------------------------------------------------------------------------------------- conditions between fields
class _JsonView:
    """An object of JSON, asked like a Struct; what is absent is None."""

    __slots__ = ("_value",)

    def __init__(self, value: Any) -> None:
        self._value = value

    def __getattr__(self, name: str) -> Any:
        found = self._value.get(name)
        return _JsonView(found) if isinstance(found, dict) else found


def _check_conditions(value: dict[str, Any], kind: PacketKind, errors: Sequence[ShapeError]) -> Iterator[ShapeError]:
    """Yield the conditions that are unmet among fields that are right in themselves."""
    for condition in conditions_for(kind):
        fields = (condition.given, condition.pointer)
        if any(is_within(field, error.pointer) for error in errors for field in fields):
            continue
        if condition.unmet(_JsonView(value.get("mcp")), _JsonView(value.get("payload"))):
            yield error_for(condition, kind)


# ----------------------------------------------------------------------------------------------------- what was expected
def _text_words(text: inspect.StrType) -> str:
    return "a string that is not empty" if text.min_length else "a string"


def _id_words(described: inspect.Metadata) -> str:
    prefix, _, tail = _pattern(described).removeprefix("^").partition("[")
    longest = re.search(r"\{1,([0-9]+)\}", tail)
    many = "" if longest is None else f"up to {longest[1]} "
    return f"an id, which is {prefix} and then {many}letters, digits, _ or -"


def _pattern(described: inspect.Metadata) -> str:
    return str((described.extra_json_schema or {}).get("pattern", ""))


def _range(number: inspect.IntType | inspect.FloatType) -> str:
    if number.ge is None:
        return ""
    return f" from {number.ge:g} to {number.le:g}" if _is_bounded(number) else f" of at least {number.ge:g}"


def _is_bounded(number: inspect.IntType | inspect.FloatType) -> bool:
    """Return whether a number has a bound of its own, besides the one that every number has."""
    return number.le is not None and number.le < GREATEST


def _whole_number_words(number: inspect.IntType) -> str:
    return f"a whole number{_range(number)}"


def _number_words(number: inspect.FloatType) -> str:
    return f"a number{_range(number)}"


def _enum_words(words: inspect.EnumType) -> str:
    return _one_of([word.value for word in words.cls])


def _literal_words(literal: inspect.LiteralType) -> str:
    return _one_of(literal.values)


def _one_of(values: Sequence[object]) -> str:
    return f"one of {', '.join(map(str, values))}"


def _list_words(items: inspect.ListType) -> str:
    if not items.min_length:
        return "a list"
    least = f"a list of {'at least ' if items.max_length is None else ''}{items.min_length}"
    return least if items.max_length is None else f"{least} to {items.max_length}"


def _object_words(described: inspect.DictType) -> str:
    return "an object that is not empty" if described.min_length else "an object"


def _union_words(union: inspect.UnionType) -> str:
    return " or ".join(map(_words, union.types))


def _words(described: inspect.Type) -> str:
    """Return what is expected of a value, in words."""
    return VALIDATORS[type(described)].words(described)


# -------------------------------------------------------------------------------------------------------- what was found
def _describe_value(value: object) -> str:
    """Return what sort of thing `value` is, in words."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str | list | dict):
        name = {str: "string", list: "list", dict: "object"}[type(value)]
        return f"an empty {name}" if not value else f"a list of {len(value)}" if name == "list" else _with_article(name)
    return "a whole number" if isinstance(value, int) else "a number"


def _with_article(name: str) -> str:
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _describe_word(value: object) -> str:
    """Return what was found in place of one of a closed set: a short word is repeated."""
    if isinstance(value, str) and len(value) <= LONGEST_WORD:
        return json.dumps(value)
    return "another string" if isinstance(value, str) else "another whole number"


def _contrast(expected: str, found: str) -> str:
    return f"expected {expected}, found {found}"


# ------------------------------------------------------------------------------------------------------- what is wrong
def _flaws(described: inspect.Type, value: Any, at: Place) -> Flaws:
    """Yield everything that is wrong with `value`, which stands at the place `at`."""
    sort = VALIDATORS[type(described)]
    if type(value) not in sort.takes:
        yield pointer_to(at), _contrast(sort.words(described), _describe_value(value))
    else:
        yield from sort.flaws(described, value, at)


def _no_flaws(described: inspect.Type, value: Any, at: Place) -> Flaws:
    return iter(())


def _text_flaws(text: inspect.StrType, value: str, at: Place) -> Flaws:
    if len(value) < (text.min_length or 0):
        yield pointer_to(at), _contrast(_text_words(text), _describe_value(value))


def _id_flaws(described: inspect.Metadata, value: str, at: Place) -> Flaws:
    if not re.fullmatch(_pattern(described), value):
        yield pointer_to(at), _contrast(_id_words(described), "another string" if value else _describe_value(value))


def _time_flaws(described: inspect.DateTimeType, value: str, at: Place) -> Flaws:
    try:
        msgspec.convert(value, Moment)
    except msgspec.ValidationError:
        yield pointer_to(at), _contrast(_words(described), "another string" if value else _describe_value(value))


def _number_flaws(number: inspect.IntType | inspect.FloatType, value: float, at: Place) -> Flaws:
    if number.ge is not None and value < number.ge:
        yield pointer_to(at), _contrast(_words(number), "one that is too small")
    elif (number.le is not None and value > number.le) or (isinstance(number, inspect.FloatType) and _is_huge(value)):
        found = "one that is too large" if number.le is None or _is_bounded(number) else f"one beyond {number.le:.0f}"
        yield pointer_to(at), _contrast(_words(number), found)


def _is_huge(value: float) -> bool:
    try:
        return math.isinf(value)
    except OverflowError:
        # A whole number that no float can hold.
        return True


def _enum_flaws(words: inspect.EnumType, value: str, at: Place) -> Flaws:
    if value not in [word.value for word in words.cls]:
        yield pointer_to(at), _contrast(_enum_words(words), _describe_word(value))


def _literal_flaws(literal: inspect.LiteralType, value: object, at: Place) -> Flaws:
    if value not in literal.values:
        yield pointer_to(at), _contrast(_literal_words(literal), _describe_word(value))


def _list_flaws(items: inspect.ListType, value: list[Any], at: Place) -> Flaws:
    if len(value) < (items.min_length or 0) or (items.max_length is not None and len(value) > items.max_length):
        yield pointer_to(at), _contrast(_list_words(items), _describe_value(value))
    for index, item in enumerate(value):
        yield from _flaws(items.item_type, item, (at, index))


def _mapping_flaws(described: inspect.DictType, value: dict[str, Any], at: Place) -> Flaws:
    if len(value) < (described.min_length or 0):
        yield pointer_to(at), _contrast(_object_words(described), _describe_value(value))
    for key, item in value.items():
        yield from _flaws(described.value_type, item, (at, key))


def _struct_flaws(struct: inspect.StructType, value: dict[str, Any], at: Place) -> Flaws:
    return _object_flaws(_members(struct), value, at)


def _object_flaws(members: Members, value: dict[str, Any], at: Place) -> Flaws:
    for key, member in members.items():
        if key in value:
            yield from _flaws(member.type, value[key], (at, key))
        elif member.required:
            yield pointer_to((at, key)), f"{key} is missing; expected {_words(member.type)}"
    for key in value:
        if key not in members:
            yield pointer_to((at, key)), UnknownKey(key, members)


def _describe_unknown_key(found: UnknownKey, *, hinted: bool) -> str:
    key = found.key
    if len(key) > LONGEST_WORD:
        return "there is no such field"
    like = get_close_matches(key, found.members, n=1) if hinted else []
    return f"there is no field {json.dumps(key)}" + (f"; did you mean {like[0]}?" if like else "")


def _union_flaws(union: inspect.UnionType, value: Any, at: Place) -> Flaws:
    fitting = (option for option in union.types if type(value) in VALIDATORS[type(option)].takes)
    option = next(fitting, None)
    if option is None:
        yield pointer_to(at), _contrast(_union_words(union), _describe_value(value))
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


# What a value must be for anything to be wrong with it or in it, if any value will do.
_QUESTIONABLE: Final = (dict, list, float)


def _parts(value: dict[str, Any] | list[Any], at: Place) -> Iterator[tuple[Any, Place]]:
    """Yield what stands in `value`, with its place, as far as anything can be wrong with it."""
    for key, part in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(part, _QUESTIONABLE):
            yield part, (at, key)


class TypeValidator(NamedTuple):
    """How a type is judged: the values of JSON that it takes, its words, and what can be wrong with such a value."""

    takes: tuple[type, ...]
    words: Callable[[Any], str]
    flaws: Callable[[Any, Any, Place], Flaws]


_JSON: Final = (NoneType, bool, int, float, str, list, dict)
VALIDATORS: Final[Mapping[type[inspect.Type], TypeValidator]] = {
    inspect.AnyType: TypeValidator(_JSON, lambda _: "any value", _any_flaws),
    inspect.RawType: TypeValidator(_JSON, lambda _: "any value", _no_flaws),
    inspect.NoneType: TypeValidator((NoneType,), lambda _: "null", _no_flaws),
    inspect.BoolType: TypeValidator((bool,), lambda _: "true or false", _no_flaws),
    inspect.IntType: TypeValidator((int,), _whole_number_words, _number_flaws),
    inspect.FloatType: TypeValidator((int, float), _number_words, _number_flaws),
    inspect.StrType: TypeValidator((str,), _text_words, _text_flaws),
    # The one thing that the Structs say of a type beside msgspec's own constraints is the pattern of an id.
    inspect.Metadata: TypeValidator((str,), _id_words, _id_flaws),
    inspect.DateTimeType: TypeValidator((str,), lambda _: "a date and time with an offset", _time_flaws),
    inspect.EnumType: TypeValidator((str,), _enum_words, _enum_flaws),
    inspect.LiteralType: TypeValidator((int, str), _literal_words, _literal_flaws),
    inspect.ListType: TypeValidator((list,), _list_words, _list_flaws),
    inspect.DictType: TypeValidator((dict,), _object_words, _mapping_flaws),
    inspect.StructType: TypeValidator((dict,), lambda _: "an object", _struct_flaws),
    inspect.UnionType: TypeValidator(_JSON, _union_words, _union_flaws),
}
