import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.errors import ValidationError
from proctor.ledger.chain import (
    EMPTY_TOTALS,
    MOST_AGENTS,
    REPEAT_MARK,
    UNNAMED_AGENT,
    ChainWalk,
    EpisodeTotals,
    Head,
    count_event,
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
from proctor.ledger.rows import PartialEvent
from proctor.models.events import Event, SessionResumed, encode_event
from tests.ledger.session_events import NOON, batch_step, failure, granted, judged, reset, step

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


_GLANCE = msgspec.json.Decoder(PartialEvent)


def resumed(lost: str | None) -> SessionResumed:
    return SessionResumed(session="s", at=NOON, epoch=1, step=0, boot="b", server="1", lost=lost)


def told(*events: Event) -> EpisodeTotals:
    tally = EMPTY_TOTALS
    for event in events:
        tally = count_event(tally, event)
    return tally


def test_refused_lines_and_refused_requests_are_counted() -> None:
    heard = told(judged(True), judged(False, "S3_DECIDE"), failure(), judged(False), step())

    assert (heard.refusals, heard.state, heard.lost) == (3, "S1_SENSE", False)


def test_a_failure_that_loses_the_episode_is_no_refusal() -> None:
    heard = told(failure(lost=True), resumed(None))

    assert (heard.refusals, heard.lost) == (0, True)
    assert told(resumed("gone")).lost


def test_agents_are_named_once_and_not_without_end() -> None:
    names = [f"a{number}" for number in range(2 * MOST_AGENTS)]

    assert told(granted("x"), granted(""), granted("x")).agents == ("x", UNNAMED_AGENT)
    assert told(*map(granted, names)).agents == tuple(names[:MOST_AGENTS])


def test_a_step_changes_nothing_of_what_was_heard() -> None:
    before = told(judged(False), granted("x"))

    for event in (step(), batch_step()):
        after = count_event(before, event)
        assert (after.refusals, after.agents, after.state) == (before.refusals, before.agents, before.state)


EVENTS = st.one_of(
    st.builds(judged, st.booleans(), st.sampled_from(["", "S0_IDLE", "S9_SAFEMODE"])),
    st.builds(granted, st.sampled_from(["", "one", "other"])),
    st.builds(resumed, st.sampled_from([None, "why", ""])),
    st.builds(lambda lost: failure(lost=lost), st.booleans()),
    st.builds(
        lambda number, reward, ended: step(number=number, reward=reward, terminated=ended),
        st.integers(1, 9),
        st.none() | st.floats(-1, 1),
        st.booleans(),
    ),
    st.builds(batch_step),
    st.builds(reset),
)


@settings(max_examples=50)
@given(st.lists(EVENTS, max_size=8))
def test_a_glance_tallies_what_the_whole_event_does(events: list[Event]) -> None:
    tally = EMPTY_TOTALS
    for event in events:
        tally = count_event(tally, _GLANCE.decode(encode_event(event)))

    assert tally == told(*events)


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
