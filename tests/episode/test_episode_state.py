"""What an episode remembers: plain values that never change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.episode.episode_state import (
    BEGINNING,
    END,
    NOTHING,
    Amounts,
    EpisodeState,
    GoverningDecision,
    IssuedToken,
    OpenTask,
    Verification,
    add_seconds,
    new_episode,
)
from proctor.episode.packets.enums import DecisionOutcome
from proctor.episode.transition_table import Position, ProtocolState

NOON = datetime(2025, 1, 1, 12, tzinfo=UTC)
TASK = OpenTask("pkt_1", "task_1", True, NOON)
PERMIT = IssuedToken("token_1", ("valve",), (), NOON, 2, 0, False, "{}")
COUNTS = st.integers(0, 5)
AMOUNTS = st.builds(Amounts, COUNTS, COUNTS, st.integers(0, 5).map(float))


def test_an_episode_begins_with_nothing() -> None:
    episode = new_episode("corr_1", (0, 0))

    assert episode == EpisodeState(
        correlation_id="corr_1",
        position=Position.IDLE,
        clock=BEGINNING,
        packets=0,
        believed=False,
        tools_ok=True,
        succeeded=True,
        governing=None,
        loop=None,
        tasks={},
        tokens={},
        due=END,
        spent=Amounts(0, 0, 0.0),
        approved=Amounts(0, 0, 0.0),
        marks=(0, 0),
        seen={},
    )
    assert episode.state is ProtocolState.IDLE
    assert new_episode("corr_1").marks == ()


def test_episodes_share_nothing() -> None:
    one, other = new_episode("corr_1"), new_episode("corr_2")
    one.seen["pkt_1"] = 1

    assert other.seen == {}


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (new_episode("corr_1"), "packets"),
        (TASK, "late"),
        (PERMIT, "used"),
        (Verification(1), "planned"),
        (NOTHING, "calls"),
        (GoverningDecision(DecisionOutcome.ACT, NOTHING), "outcome"),
    ],
)
def test_a_value_never_changes(value: object, name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(value, name, 1)


def test_a_verification_begins_with_nothing_done() -> None:
    assert Verification(3) == Verification(
        began=3, planned=False, read=False, succeeded=False, observed=False, begun=False, integrated=False
    )


def test_a_task_is_due_at_its_deadline_or_its_timeout() -> None:
    sooner, later_on = NOON - timedelta(1), NOON + timedelta(1)

    assert TASK.due == NOON
    assert OpenTask("pkt_1", "task_1", True, NOON, sooner).due == sooner
    assert OpenTask("pkt_1", "task_1", True, NOON, later_on).due == NOON
    assert not TASK.late
    assert not TASK.overdue


@pytest.mark.parametrize(
    ("permit", "live"),
    [
        (PERMIT, True),
        (IssuedToken("token_1", (), (), NOON, 2, 1, False, ""), True),
        (IssuedToken("token_1", (), (), NOON, 2, 2, False, ""), False),
        (IssuedToken("token_1", (), (), NOON, 2, 0, True, ""), False),
    ],
)
def test_a_token_is_live_until_it_is_revoked_or_used_up(permit: IssuedToken, live: bool) -> None:
    assert permit.live(NOON - timedelta(microseconds=1)) is live
    assert not permit.live(NOON)


@given(AMOUNTS, AMOUNTS)
def test_amounts_are_added_one_by_one(one: Amounts, other: Amounts) -> None:
    whole = one.plus(other)

    assert (whole.tokens, whole.calls) == (one.tokens + other.tokens, one.calls + other.calls)
    assert whole.milliseconds == one.milliseconds + other.milliseconds


@given(AMOUNTS, AMOUNTS)
def test_an_amount_is_beyond_another_if_any_of_the_three_is_greater(one: Amounts, other: Amounts) -> None:
    pairs = ((one.tokens, other.tokens), (one.calls, other.calls), (one.milliseconds, other.milliseconds))

    assert (one.beyond(other) is not None) is any(mine > yours for mine, yours in pairs)


@pytest.mark.parametrize(
    ("spent", "words"),
    [
        (Amounts(8, 9, 2500.0), "8 tokens of 1"),
        (Amounts(1, 9, 2500.0), "9 tool calls of 2"),
        (Amounts(1, 2, 2500.0), "2.5 seconds of 1.5"),
        (Amounts(1, 2, 1500.0), None),
    ],
)
def test_the_first_that_is_beyond_is_told_in_words(spent: Amounts, words: str | None) -> None:
    assert spent.beyond(Amounts(1, 2, 1500.0)) == words


def test_the_allowance_is_the_decisions_budget_and_what_was_approved() -> None:
    governing = GoverningDecision(DecisionOutcome.ACT, Amounts(1, 2, 3.0))

    assert new_episode("corr_1").allowance == NOTHING == Amounts(0, 0, 0.0)
    assert EpisodeState("corr_1", governing=governing).allowance == Amounts(1, 2, 3.0)
    assert EpisodeState("corr_1", governing=governing, approved=Amounts(10, 20, 30.0)).allowance == Amounts(
        11, 22, 33.0
    )
    assert EpisodeState("corr_1", approved=Amounts(10, 20, 30.0)).allowance == Amounts(10, 20, 30.0)


def test_the_end_of_time_is_never_passed() -> None:
    assert add_seconds(NOON, 90) == NOON + timedelta(seconds=90)
    assert add_seconds(NOON, 10**12) == END
    assert add_seconds(NOON, 10**20) == END


def test_the_declared_set_shows_whether_all_went_well() -> None:
    settled = EpisodeState("corr_1", position=Position.SETTLE)

    assert settled.state is ProtocolState.REVIEW
    assert EpisodeState("corr_1", position=Position.SETTLE, succeeded=False).state is ProtocolState.MODEL
