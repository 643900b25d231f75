"""Policies: how they steer, what they read, and that they find the source."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from proctor.contracts.spatial import AgentState, Coordinates, GridSize
from proctor.envs.evaluation import make_policy, play_episode, run_episodes
from proctor.envs.plume import actions, sensors
from proctor.envs.plume.config import ComponentKind
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.plume.policies import (
    POLICIES,
    SensorReading,
    dot,
    find_reader,
    find_steering,
    fit_slope,
    search_pattern,
    turn_by_quarters,
)
from proctor.errors import ValidationError
from tests.envs.plume.catalogue import ACTIONS, SENSORS, OwnSensor

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


NOSE, HIT = sensors.ConcentrationSensor(), np.array([1], np.int8)


def row(*values: float) -> Any:
    return np.array(values, np.float32)


def several(**parts: Any) -> sensors.DictSensor:
    return sensors.DictSensor(parts)


@pytest.mark.parametrize(
    ("model", "observation", "reading"),
    [
        (sensors.ConcentrationSensor(), row(0.75), SensorReading(0.75)),
        (sensors.BinaryHitSensor(), HIT, SensorReading(1.0)),
        (sensors.PoissonHitSensor(), row(3.0), SensorReading(3.0)),
        (sensors.AntennaePair(), row(0.25, 0.75), SensorReading(0.5)),
        (sensors.WindSensor(), BREEZE, SensorReading(None, WIND)),
        (sensors.HistorySensor(sensors.ConcentrationSensor(), 3), row(0.1, 0.2, 0.5), SensorReading(0.5)),
        (sensors.HistorySensor(sensors.AntennaePair(), 2), row(9.0, 9.0, 0.0, 1.0), SensorReading(0.5)),
        (sensors.HistorySensor(sensors.BinaryHitSensor(), 2), row(1.0, 0.0), SensorReading(0.0)),
        (sensors.HistorySensor(sensors.WindSensor(), 2), row(9.0, 9.0, *WIND), SensorReading(None, WIND)),
        (several(air=sensors.WindSensor(), nose=NOSE), {"air": BREEZE, "nose": row(0.5)}, SensorReading(0.5, WIND)),
        (several(nose=NOSE, spare=sensors.BinaryHitSensor()), {"nose": row(0.5), "spare": HIT}, SensorReading(0.5)),
        (several(past=sensors.HistorySensor(NOSE, 2)), {"past": row(0.25, 0.5)}, SensorReading(0.5)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_sensor_is_read_as_one_odor_and_its_wind(model: Any, observation: Any, reading: SensorReading) -> None:
    assert find_reader(model)(observation) == reading


def test_a_sensor_of_a_users_own_that_gives_numbers_smells_of_their_mean() -> None:
    nose = find_reader(OwnSensor(spaces.Box(0.0, 1.0, (2, 2), np.float32)))

    assert nose(np.array([[0.0, 1.0], [1.0, 1.0]], np.float32)) == SensorReading(0.75)


def test_a_sensor_that_gives_no_numbers_is_refused() -> None:
    with pytest.raises(ValidationError, match="no policy can read"):
        find_reader(OwnSensor(spaces.Text(4)))


WINDY_DICT = {"type": "dict", "sensors": {"odor": "concentration", "wind": "wind"}}
SEARCHERS = [name for name in POLICIES if name != "random"]


def puffs(action: str, sensor: str) -> PlumeSearchEnv:
    plume = {"type": "puffs", "lifetime": 12, "warm_up": 4}
    config = {"plume": plume, "action": action, "observation": {**SENSORS, "dict": WINDY_DICT}[sensor]}
    return PlumeSearchEnv(config=config, grid_size=(14, 11), max_steps=60)


def actions_in(env: PlumeSearchEnv, name: str, seed: int) -> list[Any]:
    """Return what the policy does in one episode, each action found legal."""
    policy = make_policy(name, env)
    policy.reset(seed)
    observation, _ = env.reset(seed=seed)
    taken = []
    over = False
    while not over:
        action = policy.act(observation)
        assert env.components[ComponentKind.ACTION].validate_action(action)
        assert env.action_space.contains(action)
        observation, _, terminated, truncated, _ = env.step(action)
        taken.append(np.asarray(action).tolist())
        over = terminated or truncated
    return taken


@pytest.mark.parametrize("sensor", SENSORS)
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_acts_legally_and_alike_for_a_seed_with_every_part(name: str, action: str, sensor: str) -> None:
    env = puffs(action, sensor)

    assert actions_in(env, name, 5) == actions_in(env, name, 5)


@pytest.mark.parametrize("name", POLICIES)
def test_another_seed_is_another_search(name: str) -> None:
    env = PlumeSearchEnv(grid_size=(30, 30), max_steps=40)

    assert len({str(actions_in(env, name, seed)) for seed in range(5)}) > 1


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_begins_anew_at_reset(name: str) -> None:
    env = PlumeSearchEnv()
    policy = make_policy(name, env)
    fresh = play_episode(env, policy, 3)
    play_episode(env, policy, 4)

    assert play_episode(env, policy, 3) == fresh


def found(name: str, episodes: int, **settings: Any) -> int:
    env = PlumeSearchEnv(**settings)
    return sum(bool(result.success) for result in run_episodes(env, make_policy(name, env), episodes, seed=0))


@pytest.mark.parametrize("name", SEARCHERS)
def test_every_searcher_finds_the_default_source_far_more_often_than_chance(name: str) -> None:
    assert found("random", 20) <= 4
    assert found(name, 20) >= 18


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("name", SEARCHERS)
def test_every_searcher_finds_the_default_source_on_any_legs(name: str, action: str) -> None:
    assert found(name, 8, config={"action": action}) >= 7


@pytest.mark.parametrize("plume", ["advected", "puffs"])
def test_surge_and_cast_uses_the_wind(plume: str) -> None:
    config = {"plume": plume, "observation": WINDY_DICT, "action": "eight_direction"}
    size: dict[str, Any] = {"grid_size": (64, 48), "source_location": (12, 24)}

    assert found("surge_cast", 10, config=config, **size) >= 9


def test_surge_and_cast_without_wind_where_a_wind_could_be_keeps_its_course() -> None:
    still = {"type": "puffs", "wind": [0, 0], "noise": 0}
    env = PlumeSearchEnv(config={"plume": still, "observation": WINDY_DICT}, grid_size=(14, 11), max_steps=60)

    assert actions_in(env, "surge_cast", 1)


def test_a_policy_that_steers_needs_a_plume_search() -> None:
    env = gym.make("CartPole-v1")

    with pytest.raises(ValidationError, match="searches plumes only") as caught:
        POLICIES["surge_cast"].make(env)
    env.close()

    assert caught.value.found == "CartPoleEnv"


PLACES = st.lists(st.tuples(st.integers(-20, 20), st.integers(-20, 20)), min_size=1, max_size=8)
SLOPES = st.floats(-1.0, 1.0)


@given(places=PLACES, gx=SLOPES, gy=SLOPES, level=SLOPES)
def test_a_plane_has_its_own_slope_wherever_it_was_walked(
    places: list[tuple[int, int]], gx: float, gy: float, level: float
) -> None:
    xs, ys = (np.array(side, float) - np.mean(side) for side in zip(*places, strict=True))
    past = [((float(x), float(y)), gx * x + gy * y + level) for x, y in places]

    slope = fit_slope(past)

    assert all(math.isfinite(part) for part in slope)
    if (xs @ xs) * (ys @ ys) - (xs @ ys) ** 2 > 1.0:
        assert slope == pytest.approx((gx, gy), abs=1e-6)


def test_an_axis_that_was_not_walked_has_no_slope() -> None:
    assert fit_slope([((0.0, 0.0), 0.1), ((1.0, 0.0), 0.2)]) == pytest.approx((0.1, 0.0))


@given(surge=st.integers(0, 5), reach=st.integers(1, 4), first=st.sampled_from([1, 3]))
def test_a_search_surges_then_casts_ever_wider_to_either_side(surge: int, reach: int, first: int) -> None:
    pattern = list(islice(search_pattern(surge, reach, first), surge + 100))

    across = 0
    reached = []
    for quarter in pattern[surge:]:
        across += {1: 1, 3: -1}.get(quarter, 0)
        reached.append(across)
    assert pattern[:surge] == [0] * surge
    assert pattern[surge] == first
    assert 0 not in pattern[surge:]
    assert min(reached) < 0 < max(reached)
    assert max(map(abs, reached)) >= 2 * reach


@given(quarters=st.integers(0, 3), x=SLOPES, y=SLOPES)
def test_a_turn_by_quarters_is_a_rotation(quarters: int, x: float, y: float) -> None:
    angle = quarters * math.pi / 2

    expected = (x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle))

    assert turn_by_quarters((x, y), quarters) == pytest.approx(expected, abs=1e-9)
