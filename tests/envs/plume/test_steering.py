"""Steering: headings become actions that really lead there, observations become readings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from proctor.contracts.spatial import AgentState, Coordinates, GridSize
from proctor.envs.plume import actions, sensors
from proctor.envs.plume.policies import SensorReading, dot, find_reader, find_steering
from proctor.errors import ValidationError

GRID = GridSize(101, 101)
MIDDLE = Coordinates(50, 50)
PROCESSORS: list[Any] = [
    actions.DiscreteGridActions(),
    actions.DiscreteGridActions(step_size=3),
    actions.OrientedGridActions(),
    actions.EightDirectionActions(),
    actions.RunTumbleActions(),
    actions.RunTumbleActions(n_headings=3),
    actions.RunTumbleActions(n_headings=16, step_size=2),
    actions.ContinuousActions(),
    actions.ContinuousActions(max_speed=0.6),
    actions.ContinuousActions(max_speed=7.3),
]
TURNING = (actions.OrientedGridActions, actions.RunTumbleActions)


@given(processor=st.sampled_from(PROCESSORS), facing=st.integers(0, 99), wanted=st.integers(0, 99))
def test_the_actions_of_a_way_move_the_agent_along_the_wanted_heading(processor: Any, facing: int, wanted: int) -> None:
    steering = find_steering(processor)
    facing, wanted = facing % steering.count, wanted % steering.count
    agent = AgentState(MIDDLE, 360.0 * facing / steering.count)

    way = steering.way(facing, wanted)
    for action in way:
        assert agent.position == MIDDLE  # only the last action moves
        assert processor.validate_action(action)
        agent = processor.process_action(action, agent, GRID)

    moved = (float(agent.position.x - 50), float(agent.position.y - 50))
    assert dot(moved, steering.direction(wanted)) >= math.cos(math.radians(30)) * math.hypot(*moved) > 0
    if isinstance(processor, TURNING):
        assert agent.orientation == pytest.approx(360.0 * wanted / steering.count)


@given(
    processor=st.sampled_from(PROCESSORS),
    direction=st.tuples(*[st.floats(-1e3, 1e3).filter(lambda value: value == 0 or abs(value) > 1e-6)] * 2),
)
def test_no_heading_leads_further_than_the_nearest(processor: Any, direction: tuple[float, float]) -> None:
    steering = find_steering(processor)

    nearest = dot(steering.direction(steering.nearest(direction)), direction)

    furthest = max(dot(steering.direction(heading), direction) for heading in range(steering.count))
    assert nearest >= furthest - 1e-8 * math.hypot(*direction)


def test_very_faint_directions_are_told_apart() -> None:
    steering = find_steering(actions.DiscreteGridActions())

    assert [steering.nearest(direction) for direction in ((1e-14, 0.0), (0.0, 1e-14), (0.0, -1e-14))] == [0, 1, 3]


def test_an_action_type_that_is_not_known_is_refused_with_those_that_are() -> None:
    class Teleport(actions.DiscreteGridActions):
        type_name = "teleport"

    with pytest.raises(ValidationError, match="discrete_grid, eight_direction_stay") as caught:
        find_steering(Teleport())

    assert caught.value.found == "teleport"


BREEZE = np.array([0.5, -0.25], np.float32)
WIND = (0.5, -0.25)


def row(*values: float) -> Any:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("model", "observation", "reading"),
    [
        (sensors.ConcentrationSensor(), row(0.75), SensorReading(0.75)),
        (sensors.BinaryHitSensor(), np.array([1], np.int8), SensorReading(1.0)),
        (sensors.PoissonHitSensor(), row(3.0), SensorReading(3.0)),
        (sensors.AntennaePair(), row(0.25, 0.75), SensorReading(0.5)),
        (sensors.WindSensor(), BREEZE, SensorReading(0.0, WIND)),
        (sensors.HistorySensor(sensors.ConcentrationSensor(), 3), row(0.1, 0.2, 0.5), SensorReading(0.5)),
        (sensors.HistorySensor(sensors.AntennaePair(), 2), row(9.0, 9.0, 0.0, 1.0), SensorReading(0.5)),
        (sensors.HistorySensor(sensors.BinaryHitSensor(), 2), row(1.0, 0.0), SensorReading(0.0)),
        (sensors.HistorySensor(sensors.WindSensor(), 2), row(9.0, 9.0, *WIND), SensorReading(0.0, WIND)),
        (
            sensors.DictSensor({"air": sensors.WindSensor(), "nose": sensors.ConcentrationSensor()}),
            {"air": BREEZE, "nose": row(0.5)},
            SensorReading(0.5, WIND),
        ),
        (
            sensors.DictSensor({"nose": sensors.ConcentrationSensor(), "spare": sensors.BinaryHitSensor()}),
            {"nose": row(0.5), "spare": np.array([1], np.int8)},
            SensorReading(0.5),
        ),
        (
            sensors.DictSensor({"past": sensors.HistorySensor(sensors.ConcentrationSensor(), 2)}),
            {"past": row(0.25, 0.5)},
            SensorReading(0.5),
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_sensor_is_read_as_one_odor_and_its_wind(model: Any, observation: Any, reading: SensorReading) -> None:
    assert find_reader(model).read(observation) == reading


class Strange:
    def __init__(self, space: spaces.Space[Any]) -> None:
        self.observation_space = space

    def get_observation(self, env_state: Any) -> Any:
        return self.observation_space.sample()

    def get_metadata(self) -> dict[str, Any]:
        return {"type": "strange", "parameters": {}}


def test_a_sensor_of_a_users_own_that_gives_numbers_smells_of_their_mean() -> None:
    nose = find_reader(Strange(spaces.Box(0.0, 1.0, (2, 2), np.float32)))

    assert nose.read(np.array([[0.0, 1.0], [1.0, 1.0]], np.float32)) == SensorReading(0.75)


def test_a_sensor_that_gives_no_numbers_is_refused() -> None:
    with pytest.raises(ValidationError, match="no policy can read"):
        find_reader(Strange(spaces.Text(4)))
