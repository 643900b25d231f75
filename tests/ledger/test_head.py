import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import ValidationError
from proctor.ledger.chain import Head, parse_head

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)


@given(names, st.integers(1, 10**18), st.binary(min_size=32, max_size=32))
def test_a_head_comes_back_from_its_text(chain: str, rows: int, digest: bytes) -> None:
    head = Head(chain, rows, digest)

    assert parse_head(str(head)) == head
    assert parse_head(f"{head} \n") == head


@pytest.mark.parametrize(
    "text", ["", "s.1", "s.1@0:" + "0" * 64, "s.1@2:" + "0" * 63, "s.1@2:" + "g" * 64, "@2:" + "0" * 64]
)
def test_what_is_no_head_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="not a head"):
        parse_head(text)
