"""What is tallied of an episode while it is written, and that a glance at it tallies the same."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.ledger.chain import genesis_hash, row_hash
from proctor.ledger.chain_state import (
    EMPTY_TOTALS,
    MOST_AGENTS,
    UNNAMED_AGENT,
    ChainWalk,
    EpisodeTotals,
    count_event,
    count_partial_event,
)
from proctor.ledger.rows import PartialEvent
from proctor.models.events import AgentGranted, Event, PacketJudged, SessionResumed, encode_event
from tests.ledger.session_events import NOON, batch_step, failure, reset, step

_GLANCE = msgspec.json.Decoder(PartialEvent)


def judged(accepted: bool, state: str = "S1_SENSE") -> PacketJudged:
    return PacketJudged(
        session="s",
        at=NOON,
        epoch=1,
        step=0,
        line=msgspec.Raw(b"{}"),
        kind="DECISION",
        accepted=accepted,
        state=state,
    )


def granted(agent: str) -> AgentGranted:
    return AgentGranted(session="s", at=NOON, epoch=1, grant="g", agent=agent, tools=[])


def resumed(lost: str | None) -> SessionResumed:
    return SessionResumed(session="s", at=NOON, epoch=1, step=0, boot="b", server="1", lost=lost)


def told(*events: Event) -> EpisodeTotals:
    tally = EMPTY_TOTALS
    for event in events:
        tally = count_event(tally, event)
    return tally


def test_refused_lines_and_refused_requests_are_counted() -> None:
    heard = told(judged(True), judged(False, "S3_DECIDE"), failure(), judged(False), step()).non_step

    assert (heard.refusals, heard.state, heard.lost) == (3, "S1_SENSE", False)


def test_a_failure_that_loses_the_episode_is_no_refusal() -> None:
    heard = told(failure(lost=True), resumed(None)).non_step

    assert (heard.refusals, heard.lost) == (0, True)
    assert told(resumed("gone")).non_step.lost


def test_agents_are_named_once_and_not_without_end() -> None:
    names = [f"a{number}" for number in range(2 * MOST_AGENTS)]

    assert told(granted("x"), granted(""), granted("x")).non_step.agents == ("x", UNNAMED_AGENT)
    assert told(*map(granted, names)).non_step.agents == tuple(names[:MOST_AGENTS])


def test_a_step_changes_nothing_of_what_was_heard() -> None:
    before = told(judged(False), granted("x"))

    assert count_event(before, step()).non_step is before.non_step
    assert count_event(before, batch_step()).non_step is before.non_step


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
        tally = count_partial_event(tally, _GLANCE.decode(encode_event(event)))

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
