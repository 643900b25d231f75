"""JSON values as short text that a language model reads well.

Rule 1: numbers are rounded to six digits, and what is long is summarised: the exact values travel beside the text.
Rule 2: no numpy, so that a typed environment stays light; `arrays` tells arrays.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from proctor.models.wire import OUTSIDE, Observation

MOST_VALUES: Final = 64
"""Lists of up to this many values are told in full."""
FIRST: Final = 8
"""How many values of a longer list are told."""
LONGEST: Final = 2000
"""Characters of a text that is told in full."""
DEEPEST: Final = 8

_OUTSIDE: Final = set(OUTSIDE)


def describe_fields(observation: Observation) -> str:
    """Return one line for each of the observation's own fields: no reward, no flags, no metadata."""
    fields = observation.__pydantic_serializer__.to_python(observation, mode="json", exclude=_OUTSIDE)
    return "\n".join([f"{name}: {describe_value(value)}" for name, value in fields.items()])


def describe_value(value: Any, depth: int = 0) -> str:
    """Return a JSON value as text."""
    way = DESCRIBERS.get(type(value))
    return str(value) if way is None else way(value, depth)


def format_number(number: float) -> str:
    """Return a number with six digits; an integer whole."""
    return f"{number:.6g}" if type(number) is float else str(number)


def describe_numbers(count: int, least: float, most: float, mean: float) -> str:
    """Return what is said of many numbers."""
    return f"{count} values, min {format_number(least)}, max {format_number(most)}, mean {format_number(mean)}"


def _describe_json(value: bool | None, depth: int) -> str:
    return json.dumps(value)


def _describe_text(value: str, depth: int) -> str:
    return value if len(value) <= LONGEST else f"{value[:LONGEST]} ... ({len(value)} characters)"


def _describe_object(value: Mapping[str, Any], depth: int) -> str:
    if depth >= DEEPEST:
        return "{...}"
    return f"{{{', '.join([f'{key}: {describe_value(each, depth + 1)}' for key, each in value.items()])}}}"


def _describe_list(values: Sequence[Any], depth: int) -> str:
    if depth >= DEEPEST:
        return "[...]"
    kinds = set(map(type, values))
    if _is_short(values, kinds):
        return f"[{', '.join([describe_value(each, depth + 1) for each in values])}]"
    first = ", ".join([describe_value(each, depth + 1) for each in values[:FIRST]])
    if not kinds <= {int, float}:
        return f"[{first}, ...] ({len(values)} values)"
    return f"[{first}, ...] ({describe_numbers(len(values), min(values), max(values), _mean(values))})"


def _mean(values: Sequence[float]) -> float:
    try:
        return sum(values) / len(values)
    except OverflowError:  # integers that no float can be
        return math.inf if max(values) > -min(values) else -math.inf


def _is_short(values: Sequence[Any], kinds: set[type]) -> bool:
    """Return whether there are few values in a list, and in the lists within it."""
    if len(values) > MOST_VALUES or kinds.isdisjoint({list, tuple, dict}):
        return len(values) <= MOST_VALUES
    return sum(1 for _ in _leaves(values)) <= MOST_VALUES


def _leaves(values: Any) -> Iterator[Any]:
    for each in values.values() if isinstance(values, dict) else values:
        if isinstance(each, list | tuple | dict):
            yield from _leaves(each)
        else:
            yield each


DESCRIBERS: Final[Mapping[type, Callable[[Any, int], str]]] = {
    float: lambda value, depth: f"{value:.6g}",
    bool: _describe_json,
    type(None): _describe_json,
    str: _describe_text,
    dict: _describe_object,
    list: _describe_list,
    tuple: _describe_list,
}
"""How a kind of value is told at a depth; what is not here is told as Python does."""
