"""Numbers from callers are plain afterwards, or refused by name."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.contracts.arguments import parse_count, parse_number
from proctor.errors import ValidationError


@given(value=st.floats(allow_nan=False, allow_infinity=False), above=st.floats(-10, 10), least=st.floats(-10, 10))
def test_a_number_is_accepted_exactly_within_its_bounds(value: float, above: float, least: float) -> None:
    accepted = True
    try:
        parse_number("value", value, above=above, least=least)
    except ValidationError:
        accepted = False

    assert accepted is (value > above and value >= least)


@pytest.mark.parametrize(
    ("value", "bounds", "expected"),
    [
        (0.0, {"above": 0.0}, "> 0"),
        (-1, {"least": 0.0}, ">= 0"),
        (3, {"least": 0.0, "most": 2.0}, ">= 0 and <= 2"),
        (math.inf, {}, "a finite number"),
        (10**400, {}, "a finite number"),
        ("1", {}, "a real number"),
        (True, {}, "a real number"),
    ],
)
def test_a_refused_number_says_which_ones_are_accepted(value: Any, bounds: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError) as caught:
        parse_number("value", value, clause="ENV-I9", **bounds)

    assert caught.value.clause == "ENV-I9"
    assert caught.value.expected is not None
    assert caught.value.expected.endswith(expected)
    assert caught.value.found == value


@pytest.mark.parametrize("value", [np.int8(3), np.float32(3), 3, 3.0, np.uint64(3)])
def test_numbers_of_every_kind_become_plain_floats(value: Any) -> None:
    number = parse_number("value", value)

    assert type(number) is float
    assert number == 3.0


@pytest.mark.parametrize("value", [0, -1, 10, True, 1.0, "1", None], ids=repr)
def test_a_count_out_of_range_or_of_another_kind_is_refused(value: Any) -> None:
    with pytest.raises(ValidationError, match="many"):
        parse_count("many", value, 1, 9)


@pytest.mark.parametrize("value", [1, np.int64(1)])
def test_a_count_becomes_a_plain_int(value: Any) -> None:
    count = parse_count("many", value, 1, 9)

    assert type(count) is int
    assert count == 1
