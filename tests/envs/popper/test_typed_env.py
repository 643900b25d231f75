"""Column Popper behind its typed models gives what it gives without them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.contracts.lifecycle import EnvironmentState
from proctor.envs.gym_adapter import GymEnvironment
from proctor.envs.popper.env import ColumnPopperEnv, ContractColumnPopperEnv
from proctor.envs.popper.models import PopperAction, PopperObservation, PopperState, TimedPopperView
from proctor.envs.popper.typed_env import PopperEnvironment
from proctor.errors import ValidationError


@settings(max_examples=25)
@given(actions=st.lists(st.integers(0, 3), max_size=15), seed=st.integers(0, 99), timed=st.booleans())
def test_a_game_is_written_as_an_adapted_environment_writes_it(actions: list[int], seed: int, timed: bool) -> None:
    settings_of_game: dict[str, Any] = {"include_time_left_norm": timed, "duration_ms": 2000}
    typed = PopperEnvironment(ColumnPopperEnv(**settings_of_game))
    adapted = GymEnvironment(ColumnPopperEnv(**settings_of_game))

    answers = [typed.reset(seed=seed), *(typed.step(PopperAction(action=each)) for each in actions)]
    others = [adapted.reset(seed=seed), *(adapted.step(adapted.action_type(action=each)) for each in actions)]

    for answer, other in zip(answers, others, strict=True):
        assert answer.inside() == other.inside()
        assert (answer.reward, answer.terminated, answer.truncated) == (other.reward, other.terminated, other.truncated)
        assert answer.metadata == other.metadata
        assert PopperObservation.model_validate_json(answer.model_dump_json()) == answer
        assert isinstance(answer.observation, TimedPopperView) == timed


@pytest.mark.parametrize("action", [4, -1, 2**70])
def test_an_action_that_is_no_member_is_refused_and_changes_nothing(action: int) -> None:
    environment = PopperEnvironment(ContractColumnPopperEnv())
    environment.reset(seed=1)
    before = environment.state

    with pytest.raises(ValidationError, match=r"Discrete\(4\)"):
        environment.step(PopperAction(action=action))
    assert environment.state == before


def test_the_state_says_where_the_game_stands() -> None:
    environment = PopperEnvironment(ColumnPopperEnv())
    created = environment.state
    environment.reset(seed=3, episode_id="one")
    answer = environment.step(PopperAction(action=2))

    assert created == PopperState(lifecycle=EnvironmentState.CREATED)
    assert environment.state == PopperState(
        episode_id="one",
        step_count=1,
        lifecycle=EnvironmentState.READY,
        seed=3,
        episode_count=1,
        score=0,
        total_reward=answer.reward or 0.0,
        clock_ms=100,
        held=2,
        next_fall_ms=2900,
    )
    environment.close()
    assert environment.state.lifecycle is EnvironmentState.CLOSED


def test_options_set_the_board_and_a_wrong_one_is_refused_first() -> None:
    environment = PopperEnvironment(ColumnPopperEnv(height=3))

    with pytest.raises(ValidationError, match="unknown reset option"):
        environment.configure({"boards": []})
    environment.configure({"board": [[1, 2, 3], [0, 0, 1], [0, 0, 0]], "selection": 2})
    answer = environment.reset(seed=1)

    assert answer.observation.board == ((1, 2, 3), (0, 0, 1), (0, 0, 0))
    assert answer.observation.selection == (1, 1)


def test_the_game_is_quick_and_says_what_it_is() -> None:
    environment = PopperEnvironment(ColumnPopperEnv())

    assert environment.quick
    assert environment.description == "Sort falling blocks: three equal ones at the open end of a column pop."
    assert environment.spaces[0] == ColumnPopperEnv().action_space
