"""Numbers, arrays and text: what an environment may give, what a peer may send, and what each is told otherwise."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Sequence, Text
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import ComponentError, ValidationError
from proctor.models.arrays import pack_array
from proctor.models.spaces import codec_of
from proctor.models.wire import Encoding

PACKED = Encoding(packed=True)
PAIR = Box(-1.0, 1.0, (2,), np.float32)


@given(n=st.integers(1, 100), start=st.integers(-50, 50), value=st.integers(-200, 200))
def test_a_discrete_takes_exactly_its_members(n: int, start: int, value: int) -> None:
    space = Discrete(n, start=start)

    try:
        read = codec_of(space).decode(value)
    except ValidationError:
        read = None

    assert (read is not None) == (value in space)


@pytest.mark.parametrize("value", [True, 1.0, "1", None, [1], {}, 3, -1, 2**70])
def test_what_is_no_member_of_a_discrete_is_told_what_would_be(value: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        codec_of(Discrete(3)).decode(value)

    assert caught.value.expected == "an integer from 0 to 2"


@pytest.mark.parametrize("value", [2, np.int64(2), np.uint8(2), np.array(2)])
def test_an_environment_may_give_an_integer_in_any_form(value: Any) -> None:
    assert codec_of(Discrete(3)).encode(value) == 2


@pytest.mark.parametrize("value", [1.0, "1", None, np.array([1, 2])])
def test_an_environment_that_gives_no_integer_is_at_fault(value: Any) -> None:
    with pytest.raises(ComponentError):
        codec_of(Discrete(3)).encode(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ([0.5, 1], [0.5, 1.0]),
        (np.array([0.5, 1.0]), [0.5, 1.0]),
        (np.array([1, 0]), [1.0, 0.0]),
        (np.array([2.0, np.nan], np.float32), [2.0, "NaN"]),
        (np.array([1e300, -np.inf]), ["Infinity", "-Infinity"]),
    ],
)
def test_what_an_environment_gives_is_rounded_to_its_space_but_not_bounded(value: Any, expected: Any) -> None:
    assert codec_of(PAIR).encode(value) == expected


@pytest.mark.parametrize("value", [np.zeros(3), np.zeros((2, 1)), 1.0, ["a", "b"], [[1], [2, 3]], None, {"a": 1}])
def test_what_has_not_the_form_of_its_space_is_the_environments_fault(value: Any) -> None:
    with pytest.raises(ComponentError, match="form"):
        codec_of(PAIR).encode(value)


@pytest.mark.parametrize("value", [np.array([256]), np.array([-1]), np.array([0.5]), np.array([np.nan])])
def test_an_integer_that_its_dtype_would_change_is_the_environments_fault(value: Any) -> None:
    with pytest.raises(ComponentError, match="form"):
        codec_of(Box(0, 255, (1,), np.uint8)).encode(value)


def test_an_integer_in_a_wider_dtype_is_written_as_its_space_says() -> None:
    codec = codec_of(Box(0, 255, (1,), np.uint8))

    assert codec.encode(np.array([200]), PACKED)["dtype"] == "|u1"


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (PAIR, [0.0, 1.1]),
        (PAIR, ["NaN", 0.0]),
        (PAIR, ["Infinity", 0.0]),
        (PAIR, pack_array(np.array([0, 2], np.float32))),
        (Box(-np.inf, np.inf, (1,), np.float64), ["NaN"]),
        (MultiDiscrete([3, 4]), [0, 4]),
        (MultiBinary(2), [0, 2]),
        (Text(3), "abcd"),
        (Text(3), "-"),
    ],
)
def test_bounds_hold_for_a_peer_unless_they_are_left_aside(space: gym.Space[Any], value: Any) -> None:
    codec = codec_of(space)

    with pytest.raises(ValidationError):
        codec.decode(value)
    assert codec.decode(value, bounded=False) is not None


@pytest.mark.parametrize(
    "value",
    [
        pack_array(np.zeros(2)),
        pack_array(np.zeros((1, 2), np.float32)),
        pack_array(np.zeros(3, np.float32)),
        {"dtype": "<f4", "shape": [2]},
    ],
)
def test_a_packed_array_has_the_dtype_and_the_shape_of_its_space(value: Any) -> None:
    with pytest.raises(ValidationError):
        codec_of(PAIR).decode(value, bounded=False)


def test_a_space_of_the_other_byte_order_reads_and_writes_its_own() -> None:
    space = Box(0, 10, (2,), np.dtype(">i4"))
    value = np.array([1, 2], ">i4")
    codec = codec_of(space)

    read = codec.decode(codec.encode(value, PACKED))

    assert read.dtype == space.dtype
    assert read.tolist() == [1, 2]


def test_compressed_arrays_of_one_message_share_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    item = np.zeros(8192, np.uint8)
    codec = codec_of(Sequence(Box(0, 255, (8192,), np.uint8)))
    message = codec.encode((item,) * 3, Encoding(packed=True, compress=True))
    monkeypatch.setattr("proctor.models.spaces.MOST_BYTES", 2 * item.nbytes)

    with pytest.raises(ValidationError, match=r"at \[2\].*too large"):
        codec.decode(message)
    assert len(codec.decode(message[:2])) == 2


@pytest.mark.parametrize("value", [None, 1, ["a"], b"a"])
def test_what_is_no_text_is_refused_by_both_sides(value: Any) -> None:
    codec = codec_of(Text(3))

    with pytest.raises(ComponentError):
        codec.encode(value)
    with pytest.raises(ValidationError):
        codec.decode(value, bounded=False)


def test_text_of_numpy_is_plain_text() -> None:
    assert type(codec_of(Text(3)).encode(np.str_("abc"))) is str


def test_a_text_without_characters_is_empty() -> None:
    codec = codec_of(Text(3, min_length=0, charset=""))

    assert codec.decode("") == ""
    assert codec.schema()["pattern"] == "^$"


def test_an_array_of_bools_has_neither_bounds_nor_numbers() -> None:
    codec = codec_of(Box(0, 1, (1,), np.bool_))

    assert codec.schema()["anyOf"][0]["items"] == {"type": "boolean"}
    assert codec.decode([True]).tolist() == [True]
    with pytest.raises(ValidationError):
        codec.decode([1])


def test_an_array_without_elements_has_no_bounds_to_speak_of() -> None:
    codec = codec_of(Box(0, 1, (0,)))

    assert codec.schema()["anyOf"][0]["items"] == {"type": "number"}
    with pytest.raises(ValidationError) as caught:
        codec.decode([1])
    assert "shape (0,)" in str(caught.value.expected)
