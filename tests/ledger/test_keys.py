import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import ValidationError
from proctor.ledger.keys import Signer, new_seed, verify_signature
from tests.ledger.session_events import SIGNER


@given(st.binary(max_size=40), st.integers(0, 511))
def test_a_signature_is_good_for_its_message_only(message: bytes, bit: int) -> None:
    signature = SIGNER.sign(message)
    flipped = bytearray(signature)
    flipped[bit // 8] ^= 1 << bit % 8

    assert verify_signature(SIGNER.public, message, signature)
    assert not verify_signature(SIGNER.public, message + b"x", signature)
    assert not verify_signature(SIGNER.public, message, bytes(flipped))
    assert not verify_signature(Signer.of(bytes(32)).public, message, signature)


def test_what_is_no_key_verifies_nothing() -> None:
    assert not verify_signature(b"short", b"", SIGNER.sign(b""))
    assert not verify_signature(SIGNER.public, b"", b"short")


def test_seeds_differ_and_have_one_length() -> None:
    assert len({new_seed() for _ in range(9)}) == 9
    assert Signer.of(new_seed()).public != Signer.of(new_seed()).public
    with pytest.raises(ValidationError, match="seed"):
        Signer.of(b"short")


def test_a_signer_shows_and_gives_away_no_secret() -> None:
    assert bytes(range(32)).hex() not in repr(SIGNER)
    with pytest.raises(TypeError):
        pickle.dumps(SIGNER)
