"""Any order of calls with any arguments keeps the environment beside a naive model of a few lines."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proctor.contracts.lifecycle import TABLE
from tests.envs.plume.lifecycle_driver import (
    BAD_ACTIONS,
    BAD_OPTIONS,
    BAD_SEEDS,
    GOOD_ACTIONS,
    GOOD_OPTIONS,
    GOOD_SEEDS,
    ROWS,
    Exam,
    drive,
)


class LifecycleMachine(RuleBasedStateMachine):
    """Calls in any order; after each one the model and the invariants are compared."""

    exam: Exam

    @initialize(number=st.integers(0, 1000))
    def create(self, number: int) -> None:
        self.exam = Exam(number)

    @rule(seed=st.sampled_from(GOOD_SEEDS) | st.integers(0, 2**31 - 1), options=st.sampled_from(GOOD_OPTIONS))
    def reset(self, seed: Any, options: Any) -> None:
        self.exam.reset(seed, options)

    @rule(seed=st.sampled_from(BAD_SEEDS), options=st.sampled_from(GOOD_OPTIONS))
    def reset_with_a_bad_seed(self, seed: Any, options: Any) -> None:
        self.exam.reset_badly(seed, options)

    @rule(seed=st.sampled_from(GOOD_SEEDS), options=st.sampled_from(BAD_OPTIONS))
    def reset_with_bad_options(self, seed: Any, options: Any) -> None:
        self.exam.reset_badly(seed, options)

    @rule(action=st.sampled_from(GOOD_ACTIONS))
    def step(self, action: Any) -> None:
        self.exam.step(action)

    @precondition(lambda self: self.exam.state == "ready")
    @rule(actions=st.lists(st.sampled_from(GOOD_ACTIONS), min_size=1, max_size=8))
    def walk(self, actions: list[Any]) -> None:
        for action in actions:
            self.exam.step(action)
            self.exam.check()

    @rule(action=st.sampled_from(BAD_ACTIONS))
    def step_with_a_bad_action(self, action: Any) -> None:
        self.exam.step_badly(action)

    @rule()
    def render(self) -> None:
        self.exam.render()

    @rule()
    def look(self) -> None:
        self.exam.look()

    @rule()
    def close(self) -> None:
        self.exam.close()

    @invariant()
    def the_model_and_the_environment_agree(self) -> None:
        self.exam.check()


LifecycleMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestAnyOrderOfCallsAgreesWithTheModel = LifecycleMachine.TestCase


def test_the_rows_of_the_driver_are_the_22_of_the_table() -> None:
    assert len(TABLE) == len(ROWS) == 22


def test_three_thousand_random_calls_meet_every_row_of_the_table_and_break_no_invariant() -> None:
    met = drive(3_000, seed=1)

    assert set(met) == ROWS


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_hundred_thousand_random_calls_meet_every_row_of_the_table_and_break_no_invariant() -> None:
    met = drive(100_000, seed=2)

    assert set(met) == ROWS
    assert min(met.values()) > 50
