"""The plume search behind its typed models gives what it gives without them."""

import json
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.contracts.lifecycle import EnvironmentState
from proctor.envs.gym_adapter import GymEnvironment
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.plume.models import PlumeAction, PlumeObservation, PlumeState
from proctor.envs.plume.typed_env import PlumeEnvironment
from proctor.errors import ComponentError, ValidationError
from tests.envs.plume.catalogue import SENSORS, OwnSensor

STILL_AIR = [sensor for name, sensor in SENSORS.items() if name != "wind"]


def made(**config: Any) -> PlumeSearchEnv:
    return PlumeSearchEnv(config=config, grid_size=(9, 7), max_steps=20)


def in_order(text: bytes) -> str:
    """Return the JSON text with its keys in order; 0 and 0.0 stay different."""
    return json.dumps(json.loads(text), sort_keys=True)


@pytest.mark.parametrize("sensor", STILL_AIR, ids=str)
def test_every_sensor_is_written_as_an_adapted_environment_writes_it(sensor: Any) -> None:
    typed, adapted = PlumeEnvironment(made(observation=sensor)), GymEnvironment(made(observation=sensor))

    answers = [typed.reset(seed=3), *(typed.step(PlumeAction(action=i % 4)) for i in range(6))]
    others = [adapted.reset(seed=3), *(adapted.step(adapted.action_type(action=i % 4)) for i in range(6))]

    for answer, other in zip(answers, others, strict=True):
        assert in_order(answer.inside()) == in_order(other.inside())
        assert answer.metadata == other.metadata
        assert PlumeObservation.model_validate_json(answer.model_dump_json()) == answer


@settings(max_examples=25)
@given(
    actions=st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1)), min_size=1, max_size=10), seed=st.integers(0, 99)
)
def test_a_velocity_moves_the_agent_as_it_does_without_models(actions: list[tuple[float, float]], seed: int) -> None:
    alone, typed = made(action="continuous"), PlumeEnvironment(made(action="continuous"))
    alone.reset(seed=seed)
    typed.reset(seed=seed)

    for action in actions:
        *_, terminated, truncated, info = alone.step(action)
        answer = typed.step(PlumeAction(action=action))
        assert answer.agent_xy == info["agent_xy"]
        if terminated or truncated:
            assert answer.done
            break


@pytest.mark.parametrize("action", [4, -1, (0.5, 0.5)])
def test_an_action_that_is_no_member_is_refused_and_changes_nothing(action: Any) -> None:
    environment = PlumeEnvironment(made())
    environment.reset(seed=1)
    before = environment.state

    with pytest.raises(ValidationError, match="Discrete"):
        environment.step(PlumeAction(action=action))
    assert environment.state == before


def test_the_state_says_where_the_search_stands() -> None:
    environment = PlumeEnvironment(made())
    created = environment.state
    answer = environment.reset(seed=3, episode_id="one")
    environment.step(PlumeAction(action=1))

    assert created == PlumeState(lifecycle=EnvironmentState.CREATED)
    state = environment.state
    assert (state.episode_id, state.step_count, state.seed, state.episode_count) == ("one", 1, 3, 1)
    assert answer.agent_xy is not None
    assert state.position == (answer.agent_xy[0] + 1, answer.agent_xy[1])
    assert (state.orientation, state.total_reward, state.goal_reached) == (0.0, 0.0, False)
    assert json.loads(state.model_dump_json())["lifecycle"] == "ready"


def test_options_place_the_agent_and_a_wrong_one_is_refused_first() -> None:
    environment = PlumeEnvironment(made())

    with pytest.raises(ValidationError, match="unknown reset option"):
        environment.configure({"place": 1})
    environment.configure({"start": [2, 3], "orientation": 90.0})
    assert environment.reset(seed=1).agent_xy == (2, 3)
    assert environment.state.orientation == 90.0


def test_the_state_after_closing_still_speaks() -> None:
    environment = PlumeEnvironment(made())
    environment.reset(seed=1)
    environment.close()

    assert environment.state.lifecycle is EnvironmentState.CLOSED


def test_the_search_is_quick_and_has_a_name_and_its_spaces() -> None:
    env = made()
    environment = PlumeEnvironment(env)

    assert environment.quick
    assert environment.name == "PlumeSearchEnv"
    assert environment.description == "Find the source of an odor plume on a grid."
    assert environment.spaces == (env.action_space, env.observation_space)


def test_a_sensor_that_gives_no_row_needs_the_general_adapter() -> None:
    picture = OwnSensor(spaces.Box(0, 1, (3, 3), np.float32), np.zeros((3, 3), np.float32))
    env = PlumeSearchEnv(observation_model=picture)

    with pytest.raises(ComponentError, match="GymEnvironment"):
        PlumeEnvironment(env)
    assert GymEnvironment(env).reset(seed=1).observation.shape == (3, 3)
