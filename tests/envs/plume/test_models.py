"""The plume search's wire types, as a typed client uses them."""

import subprocess
import sys
from typing import Any

import numpy as np
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.contracts.lifecycle import EnvironmentState
from proctor.envs.plume.models import PlumeAction, PlumeObservation, PlumeState
from proctor.models.arrays import pack_array

numbers = st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False)
readings = st.lists(numbers, max_size=4).map(tuple)


@given(action=st.integers(-(2**40), 2**40) | st.tuples(numbers, numbers))
def test_an_action_is_the_same_after_a_journey(action: Any) -> None:
    sent = PlumeAction(action=action)

    assert PlumeAction.model_validate_json(sent.model_dump_json()) == sent


@pytest.mark.parametrize(
    "text",
    ['{"action": true}', '{"action": 1.5}', '{"action": [1]}', '{"action": ["a", 1]}', '{"action": ["NaN", 0]}', "{}"],
)
def test_what_is_neither_a_choice_nor_a_velocity_is_refused(text: str) -> None:
    with pytest.raises(pydantic.ValidationError):
        PlumeAction.model_validate_json(text)


def test_a_velocity_and_a_reading_may_come_packed() -> None:
    velocity, reading = pack_array(np.array([0.5, -1], np.float32)), pack_array(np.array([1, 0], np.int8))

    assert PlumeAction.model_validate({"action": velocity}).action == (0.5, -1.0)
    assert PlumeObservation.model_validate({"observation": reading}).observation == (1, 0)
    assert PlumeObservation.model_validate({"observation": {"hit": reading}}).observation == {"hit": (1, 0)}
    with pytest.raises(pydantic.ValidationError):
        PlumeAction.model_validate({"action": {**velocity, "shape": [3]}})


@given(observation=readings | st.dictionaries(st.text(max_size=3), readings, max_size=3))
def test_an_observation_keeps_its_integers_and_its_floats(observation: Any) -> None:
    sent = PlumeObservation(observation=observation)

    back = PlumeObservation.model_validate_json(sent.inside())

    assert repr(back.observation) == repr(sent.observation) == repr(observation)


def test_what_an_observation_tells_is_read_by_name() -> None:
    seen = PlumeObservation(
        observation=(0.5,),
        reward=1.0,
        metadata={"agent_xy": [3, 4], "distance_to_source": 5, "total_reward": 1.0, "goal_reached": True, "seed": 7},
    )

    assert (seen.concentration, seen.agent_xy, seen.distance_to_source) == (0.5, (3, 4), 5.0)
    assert (seen.total_reward, seen.goal_reached, seen.seed) == (1.0, True, 7)


@pytest.mark.parametrize("metadata", [{}, {"agent_xy": [1, 2, 3], "distance_to_source": "far", "seed": "x"}])
def test_what_is_not_told_is_none(metadata: Any) -> None:
    seen = PlumeObservation(observation={"left": (0.5,)}, metadata=metadata)

    assert (seen.concentration, seen.agent_xy, seen.distance_to_source) == (None, None, None)
    assert (seen.total_reward, seen.goal_reached, seen.seed) == (None, False, None)


def test_a_state_is_the_same_after_a_journey() -> None:
    state = PlumeState(lifecycle=EnvironmentState.READY, seed=3, position=(1, 2), orientation=90.0)

    assert PlumeState.model_validate_json(state.model_dump_json()) == state


@pytest.mark.parametrize("module", ["plume", "popper"])
def test_a_typed_client_imports_no_engine(module: str) -> None:
    code = (
        f"import sys, proctor.envs.{module}.models; print(sorted({{'numpy', 'gymnasium', 'numba'}} & set(sys.modules)))"
    )

    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)

    assert found.stdout.strip() == "[]"
