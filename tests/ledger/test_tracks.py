"""What is tallied of an episode while it is written, and that a glance at it tallies the same."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.ledger.glances import GlancedEvent
from proctor.ledger.tracks import MOST_AGENTS, NOTHING, UNNAMED, Tally, tallied, tallied_at_a_glance
from proctor.models.events import AgentGranted, Event, PacketJudged, SessionResumed, encoded
from tests.ledger.stories import NOON, batch_step, failure, reset, step

_GLANCE = msgspec.json.Decoder(GlancedEvent)


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


def told(*events: Event) -> Tally:
    tally = NOTHING
    for event in events:
        tally = tallied(tally, event)
    return tally


def test_refused_lines_and_refused_requests_are_counted() -> None:
    heard = told(judged(True), judged(False, "S3_DECIDE"), failure(), judged(False), step()).heard

    assert (heard.refusals, heard.state, heard.lost) == (3, "S1_SENSE", False)


def test_a_failure_that_loses_the_episode_is_no_refusal() -> None:
    heard = told(failure(lost=True), resumed(None)).heard

    assert (heard.refusals, heard.lost) == (0, True)
    assert told(resumed("gone")).heard.lost


def test_agents_are_named_once_and_not_without_end() -> None:
    names = [f"a{number}" for number in range(2 * MOST_AGENTS)]

    assert told(granted("x"), granted(""), granted("x")).heard.agents == ("x", UNNAMED)
    assert told(*map(granted, names)).heard.agents == tuple(names[:MOST_AGENTS])


def test_a_step_changes_nothing_of_what_was_heard() -> None:
    before = told(judged(False), granted("x"))

    assert tallied(before, step()).heard is before.heard
    assert tallied(before, batch_step()).heard is before.heard


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
    tally = NOTHING
    for event in events:
        tally = tallied_at_a_glance(tally, _GLANCE.decode(encoded(event)))

    assert tally == told(*events)
