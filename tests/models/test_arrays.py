"""Arrays cross the wire as lists or packed, exactly, and nothing that a peer sends can do harm."""

import base64
import json
import math
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from proctor.errors import ComponentError, ValidationError
from proctor.models.arrays import (
    DTYPES,
    WORTH_ZIPPING,
    array_from_lists,
    array_to_lists,
    float_to_json,
    pack_array,
    unpack_array,
    wire_dtype,
)
from tests.models.space_strategies import LARGE_SHAPE, SHAPES, generators, identical, random_bits

FLOAT32 = np.dtype(np.float32)
INT8 = np.dtype(np.int8)
BOOL = np.dtype(np.bool_)


@st.composite
def arrays(draw: st.DrawFn) -> NDArray[Any]:
    dtype = draw(st.sampled_from(list(DTYPES.values())))
    return random_bits(draw(generators()), dtype, draw(st.sampled_from((*SHAPES, LARGE_SHAPE))))


def packed(dtype: Any = "<f4", shape: Any = None, data: Any = "AAAAAA==", **more: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": [1] if shape is None else shape, "data": data, **more}


def zipped(raw: bytes) -> str:
    return base64.b64encode(zlib.compress(raw)).decode()


@given(array=arrays(), compress=st.booleans())
def test_a_packed_array_comes_back_bit_for_bit(array: NDArray[Any], compress: bool) -> None:
    back = unpack_array(json.loads(json.dumps(pack_array(array, compress))))

    assert identical(back, array)
    assert back.flags.writeable


def test_what_a_packed_array_says_keeps_its_order_because_ledgers_hold_digests_of_it() -> None:
    assert list(pack_array(np.zeros(10_000), compress=True)) == ["dtype", "shape", "data", "zip"]


@given(array=arrays())
def test_a_listed_array_comes_back_bit_for_bit_but_for_the_payload_of_a_nan(array: NDArray[Any]) -> None:
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), array.dtype.type(np.nan), array)

    back = array_from_lists(json.loads(json.dumps(array_to_lists(array), allow_nan=False)), array.dtype, array.shape)

    assert identical(back, array)
    assert back.flags.writeable


@pytest.mark.parametrize(
    ("array", "compress", "is_zipped"),
    [
        (np.zeros(WORTH_ZIPPING, np.int8), True, True),
        (np.zeros(WORTH_ZIPPING - 1, np.int8), True, False),
        (np.zeros(WORTH_ZIPPING, np.int8), False, False),
        (np.frombuffer(np.random.default_rng(1).bytes(WORTH_ZIPPING), np.uint8), True, False),
    ],
)
def test_only_what_is_large_and_gets_smaller_is_compressed(
    array: NDArray[Any], compress: bool, is_zipped: bool
) -> None:
    assert ("zip" in pack_array(array, compress)) == is_zipped


def test_an_array_of_another_byte_order_or_layout_is_packed_as_what_it_says() -> None:
    array = np.arange(6, dtype=">i4").reshape(2, 3).T

    back = unpack_array(pack_array(array))

    assert back.dtype.str == "<i4"
    assert back.tolist() == array.tolist()


@pytest.mark.parametrize("dtype", ["longdouble", "complex64", "U3", "O", "M8[s]"])
def test_a_dtype_that_is_not_on_the_list_never_leaves(dtype: str) -> None:
    with pytest.raises(ComponentError, match="dtype"):
        wire_dtype(np.dtype(dtype))


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {**packed(), "more": 1},
        {"dtype": "<f4", "shape": [1]},
        packed(dtype=">f4"),
        packed(dtype="O"),
        packed(dtype=7),
        packed(dtype=["<f4"]),
        packed(shape="1"),
        packed(shape=[-1]),
        packed(shape=[True]),
        packed(shape=[1.0]),
        packed(shape=[1] * 65),
        packed(shape=[2]),
        packed(shape=[0]),
        packed(shape=[2**62, 2**62]),
        packed(data=b"AAAAAA=="),
        packed(data="AAAA"),
        packed(data="AAAAAA"),
        packed(data="AAAA AA=="),
        packed(data="AAAAAA==A"),
        packed(data="é"),
        packed(zip="gzip"),
        packed(zip=None),
        packed(zip="zlib"),
        packed(zip="zlib", data=zipped(b"123")),
        packed(zip="zlib", data=zipped(b"12345")),
        packed(zip="zlib", data=base64.b64encode(zlib.compress(b"1234")[:-1]).decode()),
        packed(zip="zlib", data=base64.b64encode(zlib.compress(b"1234") + b"more").decode()),
        packed(dtype="|b1", data="Ag=="),
    ],
)
def test_what_is_not_exactly_a_packed_array_is_refused(value: Any) -> None:
    with pytest.raises(ValidationError):
        unpack_array(value)


def test_an_array_without_elements_may_be_compressed() -> None:
    assert unpack_array(packed(shape=[0], zip="zlib", data=zipped(b""))).shape == (0,)


@pytest.mark.parametrize("claimed", [4, 2**40])
def test_a_zip_bomb_is_refused_before_it_unfolds(claimed: int) -> None:
    bomb = packed("|u1", [claimed], zipped(bytes(2**24)), zip="zlib")
    tracemalloc.start()

    with pytest.raises(ValidationError):
        unpack_array(bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 2**20


def test_an_array_is_refused_beyond_the_bytes_that_its_reader_allows() -> None:
    value = pack_array(np.zeros(9, np.int8))

    assert unpack_array(value, most=9).size == 9
    with pytest.raises(ValidationError, match="too large"):
        unpack_array(value, most=8)


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [
        ([1, 2], FLOAT32, (3,)),
        ([[1], [2, 3]], FLOAT32, (2, 1)),
        ([[1], 2], FLOAT32, (2, 1)),
        ([1, None], FLOAT32, (2,)),
        ([1, True], FLOAT32, (2,)),
        ([1, "1"], FLOAT32, (2,)),
        ([[1], "1"], FLOAT32, (2, 1)),
        ([[1], {}], FLOAT32, (2, 1)),
        ([1, "nan"], FLOAT32, (2,)),
        ([1e39], FLOAT32, (1,)),
        ([10**400], FLOAT32, (1,)),
        ([math.inf], FLOAT32, (1,)),
        (math.nan, FLOAT32, ()),
        ({"0": 1}, FLOAT32, (1,)),
        (7, FLOAT32, (1,)),
        ([7], FLOAT32, ()),
        ([{}], FLOAT32, (1, 0)),
        ([""], FLOAT32, (1, 0)),
        ([[1]], FLOAT32, (1, 0)),
        ([1.0], INT8, (1,)),
        ([True], INT8, (1,)),
        ([128], INT8, (1,)),
        ([-129], INT8, (1,)),
        ([2**70], INT8, (1,)),
        (["NaN"], INT8, (1,)),
        ([2**64], np.dtype(np.uint64), (1,)),
        ([-1, 2**63], np.dtype(np.uint64), (2,)),
        ([1], BOOL, (1,)),
        ([True, 0], BOOL, (2,)),
    ],
)
def test_lists_that_do_not_say_such_an_array_are_refused(value: Any, dtype: np.dtype[Any], shape: Any) -> None:
    with pytest.raises(ValidationError):
        array_from_lists(value, dtype, shape)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        ([1, 2.5], FLOAT32, [1.0, 2.5]),
        ([0.1], FLOAT32, [float(np.float32(0.1))]),
        (["Infinity", "-Infinity", 2**70], FLOAT32, [math.inf, -math.inf, float(2**70)]),
        ([2**64 - 1, 0], np.dtype(np.uint64), [2**64 - 1, 0]),
        ([-128, 127], INT8, [-128, 127]),
    ],
)
def test_lists_are_read_as_the_dtype_rounds_them(value: Any, dtype: np.dtype[Any], expected: Any) -> None:
    assert array_from_lists(value, dtype, (len(value),)).tolist() == expected


def test_one_long_string_among_many_numbers_costs_no_memory() -> None:
    hostile: list[Any] = [0.5] * 10_000
    hostile[5_000] = "x" * 1_000_000
    tracemalloc.start()

    with pytest.raises(ValidationError):
        array_from_lists(hostile, FLOAT32, (10_000,))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 2**22


def test_an_error_of_a_number_names_it_and_what_it_should_be() -> None:
    with pytest.raises(ValidationError) as caught:
        array_from_lists([[1.0], ["inf"]], FLOAT32, (2, 1))

    assert caught.value.found == "inf"
    assert "float32" in str(caught.value.expected)


@given(number=st.floats())
def test_a_float_has_a_name_exactly_if_it_is_not_finite(number: float) -> None:
    said = float_to_json(number)

    assert isinstance(said, str) != math.isfinite(number)
    assert str(float(said)) == str(number)


@pytest.mark.parametrize("shape", [[0, 2**70], [2**62, 2**62, 0], [0, 2**63]])
def test_sides_that_no_array_has_are_refused_beside_one_of_zero(shape: list[int]) -> None:
    with pytest.raises(ValidationError, match="not a shape"):
        unpack_array({"dtype": "<f8", "shape": shape, "data": ""})
