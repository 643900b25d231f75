from hypothesis import given
from hypothesis import strategies as st

from proctor.ledger.audit.chain_checks import ChainWalk
from proctor.ledger.chain import genesis_hash, row_hash

Stored = tuple[int, int, bytes, bytes]


def chain_of(bodies: list[bytes], seqs: list[int] | None = None) -> list[Stored]:
    """Rows that follow on each other, numbered by tens."""
    rows: list[Stored] = []
    before = genesis_hash("s.1")
    for seq, body in zip(seqs or range(len(bodies)), bodies, strict=True):
        before = row_hash(before, 10 * seq, seq, body)
        rows.append((10 * seq, seq, body, before))
    return rows


def problems(rows: list[Stored]) -> list[str]:
    link = ChainWalk(0, "s.1", None)
    return [link.check_row(*row) for row in rows]


bodies = st.lists(st.binary(max_size=3), min_size=4, max_size=8)


@given(bodies)
def test_rows_that_follow_on_each_other_are_taken(given_bodies: list[bytes]) -> None:
    assert set(problems(chain_of(given_bodies))) == {""}


@given(bodies, st.data(), st.sampled_from(["body", "hash", "seq", "number"]))
def test_a_changed_row_is_one_finding(given_bodies: list[bytes], data: st.DataObject, what: str) -> None:
    rows = chain_of(given_bodies)
    at = data.draw(st.integers(0, len(rows) - 2))
    number, seq, body, digest = rows[at]
    rows[at] = {
        "body": (number, seq, body + b"!", digest),
        "hash": (number, seq, body, digest[:-1] + bytes([digest[-1] ^ 1])),
        "seq": (number, seq + 100, body, digest),
        "number": (number + 1, seq, body, digest),
    }[what]

    found = problems(rows)

    assert [place for place, problem in enumerate(found) if problem] == [at]


@given(bodies, st.data())
def test_a_dropped_row_is_missed_by_the_next(given_bodies: list[bytes], data: st.DataObject) -> None:
    rows = chain_of(given_bodies)
    at = data.draw(st.integers(0, len(rows) - 2))
    del rows[at]

    found = problems(rows)

    assert [place for place, problem in enumerate(found) if problem] == [at]
    assert f"{at} to {at}" in found[at]


@given(bodies, st.data())
def test_a_row_from_elsewhere_disturbs_no_other(given_bodies: list[bytes], data: st.DataObject) -> None:
    rows = chain_of(given_bodies)
    at = data.draw(st.integers(0, len(rows) - 1))
    seq = data.draw(st.integers(0, 20))
    rows.insert(at, (10 * at + 5, seq, b"from elsewhere", bytes(32)))

    found = problems(rows)

    assert [place for place, problem in enumerate(found) if problem] == [at]


def test_a_place_that_is_skipped_is_found_even_if_the_hashes_agree() -> None:
    found = problems(chain_of([b"a", b"b", b"c"], [0, 1, 3]))

    assert found[:2] == ["", ""]
    assert "2 to 2" in found[2]
