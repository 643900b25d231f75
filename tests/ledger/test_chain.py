import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import ValidationError
from proctor.ledger.chain import (
    REPEAT_MARK,
    Head,
    episode_chain_name,
    epoch_from_chain_name,
    find_free_name,
    genesis_hash,
    is_episode_chain,
    parse_head,
    row_hash,
    seal_message,
    session_from_chain_name,
)

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
rows = st.tuples(names, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), st.binary(max_size=20))


@given(rows, rows)
def test_two_rows_have_one_hash_only_if_they_are_one_row(
    one: tuple[str, int, int, bytes], other: tuple[str, int, int, bytes]
) -> None:
    hashes = [row_hash(genesis_hash(name), number, seq, body) for name, number, seq, body in (one, other)]

    assert (hashes[0] == hashes[1]) == (one == other)


def test_a_hash_is_what_it_was_when_the_format_was_fixed() -> None:
    """Another value here means that no ledger written so far can be verified any more."""
    assert genesis_hash("s.1").hex() == "1a72f62eddea22ca49d01b98346d7cd3739e2d1174fd8475348def1f3ad0ef90"
    assert (
        row_hash(genesis_hash("s.1"), 1, 0, b"{}").hex()
        == "c2c7432fa123318f6e6c2b8f3ad3c3905dcd4da08135b909fbf5f33c934b4b46"
    )


@given(st.tuples(names, st.integers(0, 9)), st.tuples(names, st.integers(0, 9)))
def test_a_seal_is_of_one_place_in_one_chain(one: tuple[str, int], other: tuple[str, int]) -> None:
    messages = [seal_message(name, seq, bytes(32)) for name, seq in (one, other)]

    assert (messages[0] == messages[1]) == (one == other)


@given(names, st.integers(0, 10**6))
def test_the_name_of_an_episode_says_its_session(session: str, epoch: int) -> None:
    name = episode_chain_name(session, epoch)

    assert is_episode_chain(name)
    assert session_from_chain_name(name) == session
    assert epoch_from_chain_name(name) == epoch_from_chain_name(f"{name}{REPEAT_MARK}2") == epoch
    assert session_from_chain_name(f"{name}{REPEAT_MARK}2") == session


def test_a_session_cannot_take_the_name_of_a_chain_of_the_servers() -> None:
    assert episode_chain_name("server", 1) == "~server.1"
    assert episode_chain_name("pruned", 1) == "~pruned.1"
    assert not is_episode_chain("server.b")
    assert not is_episode_chain("pruned.7")


def test_a_name_that_is_taken_is_counted() -> None:
    taken = {"s.1", "s.1~2"}

    assert find_free_name("s.1", taken.__contains__) == "s.1~3"
    assert find_free_name("s.2", taken.__contains__) == "s.2"


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
