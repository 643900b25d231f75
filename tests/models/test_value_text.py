"""JSON values as short text."""

from typing import Any

import pytest
from hypothesis import given

from proctor.models.value_text import FIRST, LONGEST, MOST_VALUES, describe_fields, describe_value
from proctor.models.wire import Observation
from tests.models.space_strategies import json_values


class Seen(Observation):
    celsius: float
    walls: tuple[int, ...] = (1, 2)
    note: str | None = None
    inner: dict[str, float] = {}


def test_an_observation_is_told_field_by_field_and_nothing_else_of_it() -> None:
    seen = Seen(
        celsius=20.123456789, inner={"a": 0.5}, reward=77.0, terminated=True, metadata={"seed": 99, "secret": "x"}
    )

    assert describe_fields(seen) == "celsius: 20.1235\nwalls: [1, 2]\nnote: null\ninner: {a: 0.5}"


@pytest.mark.parametrize(("sign", "mean"), [(1, "inf"), (-1, "-inf")])
def test_integers_that_no_float_can_be_are_told(sign: int, mean: str) -> None:
    assert describe_value([sign * 10**400] * (MOST_VALUES + 1)).endswith(f"mean {mean})")
    assert describe_value([0.5, *[sign * 10**400] * MOST_VALUES]).endswith(f"mean {mean})")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1"),
        (1e-9, "1e-09"),
        (123456789, "123456789"),
        (True, "true"),
        (None, "null"),
        ("a\nb", "a\nb"),
        ([], "[]"),
        ([[1, 2], [3, 4]], "[[1, 2], [3, 4]]"),
        ({"a": [True, None]}, "{a: [true, null]}"),
    ],
    ids=str,
)
def test_a_value_is_told_plainly(value: Any, text: str) -> None:
    assert describe_value(value) == text


def test_a_long_list_of_numbers_is_summarised() -> None:
    assert describe_value(list(range(MOST_VALUES))) == str(list(range(MOST_VALUES)))
    assert describe_value(list(range(101))) == "[0, 1, 2, 3, 4, 5, 6, 7, ...] (101 values, min 0, max 100, mean 50)"


def test_a_long_list_of_other_things_is_counted() -> None:
    assert describe_value(["a"] * 100) == f"[{', '.join(['a'] * FIRST)}, ...] (100 values)"
    assert describe_value([[0] * 50] * 2).endswith("(2 values)")
    assert describe_value([{"a": [0] * 65}]).endswith("(1 values)")


def test_a_long_text_is_cut() -> None:
    assert describe_value("x" * (LONGEST + 1)) == f"{'x' * LONGEST} ... ({LONGEST + 1} characters)"


def test_what_is_deep_is_cut() -> None:
    lists: Any = []
    objects: Any = {}
    for _ in range(500):
        lists, objects = [lists], {"a": objects}

    assert describe_value(lists) == "[[[[[[[[[...]]]]]]]]]"
    assert describe_value(objects).endswith("{a: {...}}}}}}}}}")


@given(value=json_values())
def test_anything_can_be_told(value: Any) -> None:
    assert isinstance(describe_value(value), str)
