"""What an environment tells besides is said in JSON as far as JSON goes, and the rest is named."""

import enum
import json
import math
from collections import OrderedDict, namedtuple
from datetime import UTC, datetime
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.models.infos import DEEPEST, OMITTED, encode_info, encode_infos, info_to_json
from proctor.models.wire import Encoding

Pair = namedtuple("Pair", "x y")


class Colour(enum.StrEnum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, None),
        (True, True),
        (7, 7),
        (2**64 - 1, 2**64 - 1),
        (0.5, 0.5),
        (math.inf, "Infinity"),
        (-math.inf, "-Infinity"),
        (math.nan, "NaN"),
        ("猫", "猫"),
        ((1, [2.0, None]), [1, [2.0, None]]),
        (Pair(1, 2), [1, 2]),
        (OrderedDict(a=(1,)), {"a": [1]}),
        (Colour.RED, "red"),
        (Number.ONE, 1),
        (np.float32(0.5), 0.5),
        (np.float64("nan"), "NaN"),
        (np.int8(3), 3),
        (np.bool_(True), True),
        (np.str_("text"), "text"),
        (np.array([1.0, np.inf], np.float16), [1.0, "Infinity"]),
        (np.array(3), 3),
        (np.array([[True]]), [[True]]),
        (np.array(["a", "b"]), ["a", "b"]),
        (np.array([1, "a", None], object), [1, "a", None]),
        (np.zeros((0, 2)), []),
        (np.arange(2, dtype=">i4"), [0, 1]),
    ],
    ids=repr,
)
def test_what_json_can_say_is_said(value: Any, said: Any) -> None:
    plain = info_to_json({"key": value})

    assert plain == {"key": said}
    assert type(plain["key"]) is type(said)
    assert json.loads(msgspec.json.encode(plain)) == {"key": said}


def endless() -> list[Any]:
    value: list[Any] = []
    value.extend([value, value])
    return value


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        object(),
        b"bytes",
        {1, 2},
        1j,
        np.complex64(1),
        np.longdouble(1),
        np.array([1], np.longdouble),
        np.datetime64("2020-01-01"),
        np.array(["2020-01-01"], "M8[D]"),
        np.bytes_(b"x"),
        datetime(2020, 1, 1, tzinfo=UTC),
        2**64,
        -(2**63) - 1,
        "\ud800",
        {1: 2},
        {"\ud800": 1},
        [1, object()],
        {"a": {"b": object()}},
        np.array([object()], object),
        deep(DEEPEST + 1),
        endless(),
        int,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_json_cannot_say_is_left_out_by_name(value: Any) -> None:
    assert info_to_json({"key": value, "other": 1}) == {"other": 1, OMITTED: ["key"]}


def test_depth_up_to_the_limit_is_kept() -> None:
    assert OMITTED not in info_to_json({"key": deep(DEEPEST)})


def test_a_key_that_is_no_text_is_named_by_what_it_is() -> None:
    assert info_to_json({1: 2, "\ud800": 3, "b": 4}) == {"b": 4, OMITTED: ["?", "int"]}


infos = st.dictionaries(
    st.text(max_size=3) | st.integers(),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=3)
        | st.binary(max_size=2)
        | st.floats(width=32).map(np.float32)
        | st.integers(0, 9).map(np.uint8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(max_size=3), inner, max_size=3)
            | st.tuples(inner, inner)
        ),
        max_leaves=6,
    ),
    max_size=4,
)


@given(info=infos)
def test_every_key_is_either_said_or_named_and_the_answer_is_json(info: dict[Any, Any]) -> None:
    plain = info_to_json(info)

    missing = [key for key in info if key not in plain and isinstance(key, str)]
    omitted = plain.get(OMITTED, [])
    assert isinstance(omitted, list)
    assert set(missing) <= set(map(str, omitted))
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain


metadata = st.dictionaries(
    st.text(max_size=3),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=8,
    ),
    max_size=4,
)


@given(metadata)
def test_told_metadata_name_what_is_not_finite_and_keep_their_nones(told: dict[str, Any]) -> None:
    assert encode_info(told) == msgspec.json.encode(info_to_json(told))


@pytest.mark.parametrize("text", ["null", "\x7f\uffff", "Ë\x7fð", "ÿð"])
def test_a_text_that_looks_like_something_else_stays_itself(text: str) -> None:
    assert encode_info({"text": text, "none": None}) == msgspec.json.encode({"text": text, "none": None})


@pytest.mark.parametrize(
    ("everything", "begun", "keys"),
    [
        (True, False, {"seed", "_seed", "x", "final_info", "_final_obs", "final_obs"}),
        (False, True, {"seed", "_seed", "final_info", "_final_obs", "final_obs"}),
        (False, False, {"final_info", "_final_obs", "final_obs"}),
    ],
)
def test_a_batch_tells_everything_or_what_a_learner_needs(everything: bool, begun: bool, keys: set[str]) -> None:
    infos = {
        "seed": np.array([1, 2]),
        "_seed": np.array([True, False]),
        "x": np.array([None, object()]),
        "final_info": {"score": np.array([0.5, np.nan])},
        "final_obs": np.array([None, "last"], object),
        "_final_obs": np.array([False, True]),
    }

    told = msgspec.json.decode(encode_infos(infos, Encoding(), str.upper, everything=everything, begun=begun))

    assert set(told) == keys
    assert told["final_obs"] == {"index": [1], "values": ["LAST"]}
    assert told["final_info"] == {"score": [0.5, "NaN"]}
    assert told.get("x", [None, None]) == [None, None]
