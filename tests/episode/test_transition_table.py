"""The table: sound under all options, and no wider than the contract."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.episode.settings import OnOverrun, Profile, Settings
from proctor.episode.transition_table import (
    EMERGENCIES,
    EVENTS,
    RECORDS,
    STATES,
    SYNTHETIC,
    TABLE,
    Event,
    Position,
    ProtocolState,
    TableOption,
    TransitionRow,
    rows_for_options,
    starting_states,
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


# What the table is told of every setting that there is, and the rows that each has.
OPTIONS = [
    Settings(profile=profile, initial_beliefs=beliefs).options for profile, beliefs in product(Profile, (False, True))
]
ROWS = [[row for row in TABLE if row.option is None or row.option in options] for options in OPTIONS]


def reachable(rows: list[TransitionRow], start: Position) -> set[Position]:
    """Return every position that can be reached from `start`, itself included."""
    reached: set[Position] = set()
    new = {start}
    while new:
        reached |= new
        new = {row.target for row in rows if row.source in reached} - reached
    return reached


@pytest.mark.parametrize("rows", ROWS)
def test_a_position_and_an_event_have_one_row(rows: list[TransitionRow]) -> None:
    assert max(Counter((row.source, row.event) for row in rows).values()) == 1


@pytest.mark.parametrize("rows", ROWS)
def test_a_state_and_an_event_lead_to_one_state_or_to_the_declared_set(rows: list[TransitionRow]) -> None:
    leads: dict[tuple[ProtocolState, Event], set[tuple[ProtocolState, ...]]] = {}
    for row in rows:
        if row.source is not row.target:
            for start in starting_states(row):
                leads.setdefault((start, row.event), set()).add(STATES[row.target])

    assert all(len(targets) == 1 for targets in leads.values())


@pytest.mark.parametrize("rows", ROWS)
def test_every_position_is_reached_and_leads_to_the_close(rows: list[TransitionRow]) -> None:
    assert reachable(rows, Position.IDLE) == set(Position)
    assert all(Position.CLOSED in reachable(rows, position) for position in Position)


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("event", EMERGENCIES)
def test_an_emergency_leads_to_safe_mode_from_every_open_position(rows: list[TransitionRow], event: Event) -> None:
    stopped = {row.source for row in rows if row.event is event and row.target is Position.SAFEMODE}

    assert stopped == set(Position) - {Position.CLOSED}


def test_safe_mode_is_left_by_a_clear_or_the_operators_close_and_a_closed_episode_never() -> None:
    leaving = {(row.event, row.target) for row in TABLE if row.source is Position.SAFEMODE is not row.target}

    assert leaving == {(Event.CLEAR, Position.REVIEW), (Event.OPERATOR_CLOSE, Position.CLOSED)}
    assert not [row for row in TABLE if row.source is Position.CLOSED]


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


def test_two_settings_matter_to_the_table_and_no_others() -> None:
    assert OPTIONS == [
        (TableOption.STRICT,),
        (TableOption.STRICT, TableOption.INITIAL_BELIEFS),
        (TableOption.LENIENT,),
        (TableOption.LENIENT, TableOption.INITIAL_BELIEFS),
    ]
    assert {Settings(on_overrun=policy).options for policy in OnOverrun} == {(TableOption.STRICT,)}
