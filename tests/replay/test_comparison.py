"""Two JSON texts are the same, or it is said where they part."""

import copy
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.models.arrays import array_to_lists, pack_array
from proctor.replay import comparison
from tests.memory import measured_memory

NUMBERS = st.none() | st.booleans() | st.integers(-(2**40), 2**40) | st.floats(allow_nan=False, allow_infinity=False)
LEAVES = NUMBERS | st.text(max_size=5)
KEYS = st.text(max_size=4)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)


def encoded(value: Any) -> bytes:
    return msgspec.json.encode(value)


@given(VALUES)
def test_the_same_value_never_parts_however_it_is_written(value: Any) -> None:
    other = msgspec.json.format(comparison.canonical_json(encoded(value)), indent=2)

    assert comparison.find_difference("x", encoded(value), other) is None
    assert comparison.find_difference("x", other, encoded(value)) is None


@given(VALUES, VALUES)
def test_different_values_part_at_a_place_that_leads_to_both(recorded: Any, found: Any) -> None:
    difference = comparison.find_difference("x", encoded(recorded), encoded(found))

    same = comparison.canonical_json(encoded(recorded)) == comparison.canonical_json(encoded(found))
    assert (difference is None) == same
    if difference is not None:
        assert encoded(at(recorded, difference.where)) == encoded(difference.recorded)
        assert encoded(at(found, difference.where)) == encoded(difference.found)


def at(value: Any, pointer: str) -> Any:
    """Return what stands at a JSON pointer."""
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list):
            value = value[int(name)]
        elif name not in value:
            return comparison.ABSENT
        else:
            value = value[name]
    return value


@pytest.mark.parametrize(
    ("recorded", "found"), [(1, 1.0), (0.0, -0.0), (True, 1), (None, 0), ("1", 1), ([1], [1, 1]), ({}, [])]
)
def test_what_python_or_people_take_for_the_same_is_not(recorded: Any, found: Any) -> None:
    assert comparison.find_value_difference("x", recorded, found) == comparison.Difference("x", recorded, found)


def test_a_key_that_one_of_the_two_lacks_is_named() -> None:
    difference = comparison.find_value_difference("metadata", {"a/b": 1}, {})

    assert difference == comparison.Difference("metadata", 1, comparison.ABSENT, "/a~1b")
    assert str(difference) == 'metadata/a~1b: recorded 1, found "(nothing)"'


def test_a_text_that_says_nothing_is_not_nothing() -> None:
    assert comparison.find_value_difference("x", {"a": copy.copy("(noth") + "ing)"}, {}) is not None


def test_arrays_are_the_same_however_they_are_packed() -> None:
    array = np.arange(4096, dtype=np.int32)
    zipped, plain = pack_array(array, True), pack_array(array, False)
    other = array.copy()
    other[77] = -1

    assert comparison.find_difference("x", encoded({"o": zipped}), encoded({"o": plain})) is None
    assert comparison.find_difference(
        "x", encoded({"o": zipped}), encoded({"o": pack_array(other)})
    ) == comparison.Difference("x", 77, -1, "/o/77")
    assert comparison.unpack_arrays({"o": [plain]}) == {"o": [array_to_lists(array)]}


def test_an_object_that_only_looks_like_an_array_stays_an_object() -> None:
    looks = {"dtype": "<f8", "shape": [3], "data": "no base64"}

    assert comparison.unpack_arrays(looks) == looks


def test_digests_say_that_and_not_where() -> None:
    recorded = "0" * 64

    difference = comparison.find_digest_difference("observation", recorded, b"{}")

    assert difference is not None
    assert difference.recorded == f"sha256:{recorded}"
    assert difference.found.startswith("sha256:44136fa3")
    assert comparison.find_digest_difference("observation", difference.found[7:], b"{}") is None


def test_a_long_value_is_shown_by_its_ends() -> None:
    text = str(comparison.Difference("observation", list(range(1000)), 0))

    assert len(text) < 200
    assert "999]" in text


def test_a_recorded_text_that_is_much_longer_is_not_parsed() -> None:
    recorded = b"[" + b"[]," * comparison.ALWAYS_PARSED_BYTES + b"[]]"

    with measured_memory() as peak:
        found = comparison.find_difference("observation", recorded, b"[1]")

    assert found == comparison.Difference("observation", f"{len(recorded)} bytes", "3 bytes")
    assert peak() < comparison.ALWAYS_PARSED_BYTES


def test_a_long_text_that_is_about_as_long_is_parsed() -> None:
    recorded, found = (b"[" + b"1," * comparison.ALWAYS_PARSED_BYTES + last + b"]" for last in (b"1", b"2"))

    assert comparison.find_difference("observation", recorded, found) == comparison.Difference(
        "observation", 1, 2, f"/{comparison.ALWAYS_PARSED_BYTES}"
    )
