import os
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import ValidationError
from proctor.ledger.storage.blobs import decompress_blob, encode_blob

values = st.binary(max_size=600) | st.binary(min_size=1, max_size=4).map(lambda part: part * 700)


@given(values)
def test_a_value_comes_back(value: bytes) -> None:
    digest, packed, total, content = encode_blob(sha256(value).digest(), value)

    assert decompress_blob(packed, total, content) == value
    assert digest == sha256(value).digest()
    assert len(content) <= len(value)


def test_what_does_not_get_shorter_is_left_as_it_is() -> None:
    assert encode_blob(b"", os.urandom(5000))[1] == 0
    assert encode_blob(b"", b"board" * 500)[1] == 1
    assert (
        encode_blob(b"", b"x" * 2048 + os.urandom(90_000))[1] == 1
    )  # the sample deceived, and it got shorter all the same


@pytest.mark.parametrize("packed", [0, 1])
def test_every_bit_of_a_stored_value_counts(packed: int) -> None:
    value = b"0123456789" * 30 if packed else os.urandom(300)
    _, found, total, content = encode_blob(b"", value)
    assert found == packed

    for bit in range(len(content) * 8):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValidationError):
            decompress_blob(packed, total, bytes(flipped))
    for bit in range(63):
        with pytest.raises(ValidationError):
            decompress_blob(packed, total ^ 1 << bit, content)
        if packed ^ 1 << bit not in (0, 1):
            with pytest.raises(ValidationError):
                decompress_blob(packed ^ 1 << bit, total, content)


def test_what_follows_on_a_compressed_value_is_not_overlooked() -> None:
    import zlib

    content = zlib.compress(b"x" * 300) + b"more"

    with pytest.raises(ValidationError, match="length"):
        decompress_blob(1, zlib.crc32(content), content)
    with pytest.raises(ValidationError, match="damaged"):
        decompress_blob(1, zlib.crc32(b"none"), b"none")
