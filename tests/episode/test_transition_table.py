"""The table: sound under all options, and no wider than the contract."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.episode.transition_table import (
    EVENTS,
    OPTIONS,
    RECORDS,
    STATES,
    SYNTHETIC,
    TABLE,
    Event,
    Position,
    ProtocolState,
    TableOption,
    TransitionRow,
    find_flaws,
    rows_for_options,
)

ALL = frozenset(ProtocolState)
# The contract's "legal next states", with what the decisions add: S3 -> S7 (D3), the states a step may stay in, S9 from
# everywhere (D21), S3 -> S3 (D4), S1 -> S3 (D28), S6 -> S8 by an overrun (D22), and S4 -> S8 likewise.
SUCCESSORS = {
    ProtocolState.IDLE: {ProtocolState.IDLE, ProtocolState.SENSE, ProtocolState.SAFEMODE},
    ProtocolState.SENSE: {ProtocolState.SENSE, ProtocolState.MODEL, ProtocolState.DECIDE, ProtocolState.SAFEMODE},
    ProtocolState.MODEL: {ProtocolState.MODEL, ProtocolState.DECIDE, ProtocolState.REVIEW, ProtocolState.SAFEMODE},
    ProtocolState.DECIDE: ALL - {ProtocolState.IDLE, ProtocolState.SENSE, ProtocolState.MODEL},
    ProtocolState.VERIFY: {ProtocolState.VERIFY, ProtocolState.MODEL, ProtocolState.ESCALATED, ProtocolState.SAFEMODE},
    ProtocolState.AUTHORIZE: {ProtocolState.AUTHORIZE, ProtocolState.EXECUTE, ProtocolState.SAFEMODE},
    ProtocolState.EXECUTE: {
        ProtocolState.EXECUTE,
        ProtocolState.REVIEW,
        ProtocolState.MODEL,
        ProtocolState.ESCALATED,
        ProtocolState.SAFEMODE,
    },
    ProtocolState.REVIEW: {
        ProtocolState.REVIEW,
        ProtocolState.IDLE,
        ProtocolState.SENSE,
        ProtocolState.SAFEMODE,
        ProtocolState.MODEL,
    },
    ProtocolState.ESCALATED: {ProtocolState.ESCALATED, ProtocolState.DECIDE, ProtocolState.SAFEMODE},
    ProtocolState.SAFEMODE: {ProtocolState.SAFEMODE, ProtocolState.REVIEW, ProtocolState.IDLE},
}


def test_the_table_has_no_flaw() -> None:
    assert find_flaws() == ()


def test_every_step_of_a_row_is_one_that_the_contract_allows() -> None:
    for row in TABLE:
        starts = STATES[row.source] if row.start is None else (row.start,)
        for start in starts:
            path = (start, *row.through)
            steps = {*pairwise(path), *((path[-1], state) for state in STATES[row.target])}

            assert all(there in SUCCESSORS[here] for here, there in steps), row


def test_only_the_one_set_of_states_is_declared() -> None:
    several = {position: states for position, states in STATES.items() if len(states) > 1}

    assert several == {Position.SETTLE: (ProtocolState.REVIEW, ProtocolState.MODEL)}


def test_every_event_is_met_and_belongs_to_a_packet_a_record_or_the_machine() -> None:
    packets = {event for events in EVENTS.values() for event in events}

    assert packets | set(RECORDS) | set(SYNTHETIC) == set(Event)
    assert {row.event for row in TABLE} == set(Event)


@pytest.mark.parametrize(
    ("row", "flaw"),
    [
        (TransitionRow(Position.MODEL, Event.BELIEF, Position.REVIEW), "has more than one row"),
        (TransitionRow(Position.SAFEMODE, Event.ACT, Position.DECIDE_ACT), "must not leave it"),
        (TransitionRow(Position.SAFEMODE, Event.QUEUE, Position.REVIEW), "must not leave it"),
        (TransitionRow(Position.CLOSED, Event.OBSERVATION, Position.SENSE), "must not leave it"),
        (TransitionRow(Position.DECIDE_DEFER, Event.TOKEN, Position.EXECUTE), "leads to 2 states"),
    ],
    ids=str,
)
def test_a_row_too_many_is_a_flaw(row: TransitionRow, flaw: str) -> None:
    found = find_flaws((*TABLE, row))

    assert any(flaw in sentence for sentence in found), found


def _without(*events: Event, source: Position | None = None) -> tuple[TransitionRow, ...]:
    return tuple(row for row in TABLE if row.event not in events or (source is not None and row.source is not source))


@pytest.mark.parametrize(
    ("rows", "flaw"),
    [
        (
            _without(Event.CRITICAL, source=Position.SETTLE),
            "settle: review or model: IntegrityAlertPacket(CRITICAL) does",
        ),
        (_without(Event.HALT, source=Position.IDLE), "idle: safemode record does not lead to S9_SAFEMODE"),
        (_without(Event.OVERRUN_ESCALATE), "escalated: to be presented: cannot be reached"),
        (_without(Event.CLOSE, Event.OPERATOR_CLOSE), "sense: never leads to the close"),
        (_without(Event.ESCALATION), "escalated: waiting for a human: cannot be reached"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_row_too_few_is_a_flaw(rows: tuple[TransitionRow, ...], flaw: str) -> None:
    found = find_flaws(rows)

    assert any(flaw in sentence for sentence in found), found


@given(st.sampled_from(OPTIONS), st.sampled_from(Position), st.sampled_from(Event))
def test_rows_under_options_are_the_rows_of_the_table(
    options: tuple[TableOption, ...], position: Position, event: Event
) -> None:
    wanted = [
        row
        for row in TABLE
        if row.source is position and row.event is event and (row.option is None or row.option in options)
    ]

    found = rows_for_options(options)[position].get(event)

    assert found == (wanted[0] if wanted else None)


def test_what_an_option_adds_is_exactly_this() -> None:
    plain = {(row.source, row.event) for row in TABLE if row.option in (None, TableOption.STRICT)}
    lenient = {(row.source, row.event) for row in TABLE if row.option is TableOption.LENIENT}
    believing = {(row.source, row.event.value) for row in TABLE if row.option is TableOption.INITIAL_BELIEFS}

    assert lenient - plain == {(Position.IDLE, Event.TOKEN), (Position.VERIFY, Event.TOKEN)}
    assert {source for source, _ in believing} == {Position.SENSE}
    assert len(believing) == 5
