"""The table of the lifecycle is complete, and everything derived from it agrees with it."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from proctor.contracts.lifecycle import (
    AFTER_STEP,
    REFUSALS,
    STEPPABLE,
    TABLE,
    EnvironmentState,
    LifecycleMethod,
    diagram,
    guard,
    reachable,
)
from proctor.errors import StateError

CREATED, READY, TERMINATED, TRUNCATED, CLOSED = EnvironmentState
states = st.sampled_from(list(EnvironmentState))
methods = st.sampled_from(list(LifecycleMethod))


@given(states, methods)
def test_every_call_in_every_state_is_either_allowed_or_refused(
    state: EnvironmentState, method: LifecycleMethod
) -> None:
    rows = [row for row in TABLE if (row.source, row.method) == (state, method)]

    assert rows
    assert all((row.target is None) == ((state, method) in REFUSALS) for row in rows)


@given(st.sampled_from(sorted(REFUSALS)))
def test_the_guard_refuses_what_the_table_refuses_and_names_the_rule(
    call: tuple[EnvironmentState, LifecycleMethod],
) -> None:
    with pytest.raises(StateError) as caught:
        guard(*call)

    assert caught.value.clause == REFUSALS[call].rule
    assert caught.value.found == call[0]
    legal = str(caught.value.expected).partition("legal now: ")[2]
    assert all((f"{method}()" in legal) == ((call[0], method) not in REFUSALS) for method in LifecycleMethod)


@given(states, methods)
def test_the_guard_lets_everything_else_pass(state: EnvironmentState, method: LifecycleMethod) -> None:
    assume((state, method) not in REFUSALS)

    guard(state, method)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (CREATED, {READY, CLOSED}),
        (READY, {READY, TERMINATED, TRUNCATED, CLOSED}),
        (TERMINATED, {READY, TERMINATED, CLOSED}),
        (TRUNCATED, {READY, TRUNCATED, CLOSED}),
        (CLOSED, {CLOSED}),
    ],
)
def test_the_states_that_a_call_can_lead_to_are_those_of_the_contract(
    source: EnvironmentState, expected: set[EnvironmentState]
) -> None:
    assert reachable(source) == expected


@given(states)
def test_no_call_leads_back_to_created_and_none_out_of_closed(state: EnvironmentState) -> None:
    assert CREATED not in reachable(state)
    assert CLOSED in reachable(state)
    assert reachable(CLOSED) == {CLOSED}


def test_a_step_is_legal_in_one_state_only() -> None:
    assert {row.source for row in TABLE if row.method is LifecycleMethod.STEP and row.target} == {STEPPABLE}
    assert STEPPABLE is READY


@pytest.mark.parametrize(
    ("terminated", "truncated", "state"),
    [(False, False, READY), (True, False, TERMINATED), (False, True, TRUNCATED), (True, True, TERMINATED)],
)
def test_the_flags_of_a_step_say_where_it_leads(terminated: bool, truncated: bool, state: EnvironmentState) -> None:
    assert AFTER_STEP[terminated, truncated] is state
    assert (READY, LifecycleMethod.STEP, state) in {(row.source, row.method, row.target) for row in TABLE}


def test_the_diagram_shows_every_legal_row_and_no_other() -> None:
    lines = diagram().splitlines()

    assert lines[:2] == ["stateDiagram-v2", "    [*] --> CREATED: __init__()"]
    assert lines[-1] == "    CLOSED --> [*]"
    assert sum("-->" in line for line in lines) == 2 + sum(row.target is not None for row in TABLE)
    assert "    READY --> TERMINATED: step() [terminated]" in lines
    assert "    CLOSED --> CLOSED: close()" in lines
