"""What the agent observes, sensor by sensor, each judged against its definition."""

from __future__ import annotations

import math
import statistics
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.contracts.chance import Chance, Stream
from proctor.contracts.components import EnvState
from proctor.contracts.spatial import AgentState, Coordinates, GridSize
from proctor.envs.plume import sensors
from proctor.envs.plume.fields import AdvectedPlume, GaussianPlume, SteadyWind
from proctor.envs.plume.sensors import poisson_count
from proctor.errors import ComponentError, ValidationError
from tests.envs.plume.catalogue import OwnSensor

GRID = GridSize(15, 11)
SOURCE = Coordinates(7, 5)
FIELD = AdvectedPlume(GRID, SOURCE, wind=(0.6, -0.2))
GAUSSIAN = GaussianPlume(GRID, SOURCE, 4.0)

cells = st.builds(Coordinates, st.integers(0, GRID.width - 1), st.integers(0, GRID.height - 1))
agents = st.builds(AgentState, cells, st.floats(0, 359.9), st.integers(0, 500))


def view(agent: AgentState, field: Any = FIELD, seed: int = 0, wind: SteadyWind | None = FIELD.wind_field) -> EnvState:
    """Return what a sensor may look at."""
    state: EnvState = {
        "agent_state": agent,
        "plume_field": field,
        "time_step": agent.step_count,
        "grid_size": GRID,
        "chance": Chance(seed),
    }
    if wind is not None:
        state["wind_field"] = wind
    return state


@given(agent=agents)
def test_the_concentration_is_the_field_s_at_the_agent_s_cell(agent: AgentState) -> None:
    observation = sensors.ConcentrationSensor().get_observation(view(agent))

    assert observation.dtype == np.float32
    assert observation.tolist() == [float(np.float32(FIELD.field_array[agent.position.y, agent.position.x]))]


def test_the_default_sensor_s_space_is_the_contract_s() -> None:
    assert sensors.ConcentrationSensor().observation_space == spaces.Box(0.0, 1.0, (1,), np.float32)


@given(agent=agents, threshold=st.floats(-1, 2))
def test_a_hit_is_a_concentration_that_reaches_the_threshold(agent: AgentState, threshold: float) -> None:
    observation = sensors.BinaryHitSensor(threshold).get_observation(view(agent))

    assert observation.dtype == np.int8
    assert observation.tolist() == [int(FIELD.sample(agent.position) >= threshold)]


def brute_poisson(mean: float, uniform: float, most: int) -> int:
    """Return the smallest count whose summed probability exceeds `uniform`."""
    terms = [
        math.exp(-mean + (count * math.log(mean) if count else 0.0) - math.lgamma(count + 1)) for count in range(most)
    ]
    return next((count for count in range(most) if math.fsum(terms[: count + 1]) > uniform), most)


@given(mean=st.floats(1e-6, 60), uniform=st.floats(0, 1, exclude_max=True), most=st.integers(1, 80))
def test_a_count_is_the_poisson_quantile(mean: float, uniform: float, most: int) -> None:
    count = poisson_count(mean, uniform, most)

    low = brute_poisson(mean, uniform - 1e-9, most)
    high = brute_poisson(mean, uniform + 1e-9, most) if uniform + 1e-9 < 1.0 else most
    assert low <= count <= high


def test_clean_air_has_no_hits_however_the_dice_fall() -> None:
    assert poisson_count(0.0, math.nextafter(1.0, 0.0), 20) == 0


def test_hit_counts_have_the_mean_and_the_variance_of_a_poisson() -> None:
    sensor = sensors.PoissonHitSensor(rate=3.0)

    counts = [float(sensor.get_observation(view(AgentState(SOURCE, 0.0, step), seed=9))[0]) for step in range(3000)]

    assert statistics.mean(counts) == pytest.approx(3.0, abs=0.15)
    assert statistics.variance(counts) == pytest.approx(3.0, abs=0.3)


@given(agent=agents, seed=st.integers(0, 2**31 - 1), channel=st.integers(0, 5))
@settings(max_examples=30)
def test_the_hits_come_from_the_episode_s_chance_at_the_channel_and_the_step(
    agent: AgentState, seed: int, channel: int
) -> None:
    sensor = sensors.PoissonHitSensor(rate=4.0, most=9, channel=channel)

    observation = sensor.get_observation(view(agent, seed=seed))

    uniform = Chance(seed).uniform(Stream.SENSOR, agent.step_count, channel)
    assert observation.tolist() == [poisson_count(4.0 * FIELD.sample(agent.position), uniform, 9)]


@given(agent=agents, reach=st.floats(0.5, 30), angle=st.floats(-180, 180))
def test_the_antennae_smell_at_their_tips_left_and_right_of_the_heading(
    agent: AgentState, reach: float, angle: float
) -> None:
    observation = sensors.AntennaePair(reach, angle).get_observation(view(agent))

    expected = []
    for side in (angle, -angle):
        turn = (agent.orientation + side) * math.pi / 180
        x = sorted((0, agent.position.x + round(reach * math.cos(turn)), GRID.width - 1))[1]
        y = sorted((0, agent.position.y + round(reach * math.sin(turn)), GRID.height - 1))[1]
        expected.append(float(np.float32(FIELD.sample(Coordinates(x, y)))))
    assert observation.tolist() == expected


@given(speed=st.tuples(st.floats(-50, 50), st.floats(-50, 50)), limit=st.floats(0.001, 20))
def test_the_wind_is_felt_clipped_to_the_limit(speed: tuple[float, float], limit: float) -> None:
    sensor = sensors.WindSensor(limit)

    observation = sensor.get_observation(view(AgentState(SOURCE), wind=SteadyWind(speed)))

    clipped = [float(np.float32(sorted((-limit, value, limit))[1])) for value in speed]
    assert observation.tolist() == clipped
    assert sensor.observation_space.contains(observation)


def test_a_wind_sensor_without_wind_is_a_component_error() -> None:
    with pytest.raises(ComponentError, match="plume with wind"):
        sensors.WindSensor().get_observation(view(AgentState(SOURCE), GAUSSIAN, wind=None))


@given(path=st.lists(agents, min_size=1, max_size=12), length=st.integers(1, 5))
def test_a_history_is_the_last_observations_oldest_first_with_zeros_before_the_episode(
    path: list[AgentState], length: int
) -> None:
    sensor = sensors.HistorySensor(sensors.AntennaePair(), length)
    memory = None
    observation = np.zeros(0, np.float32)
    for agent in path:
        observation, memory = sensor.observe(view(agent), memory)

    seen = [sensors.AntennaePair().get_observation(view(agent)).tolist() for agent in path]
    rows = ([[0.0, 0.0]] * length + seen)[-length:]
    assert observation.tolist() == [value for row in rows for value in row]
    assert observation.shape == (2 * length,)
    assert sensor.observation_space.contains(observation)


def test_a_history_reads_its_memory_from_the_state_when_asked_directly() -> None:
    sensor = sensors.HistorySensor(sensors.ConcentrationSensor(), 2)
    _, memory = sensor.observe(view(AgentState(SOURCE)), None)
    state = view(AgentState(SOURCE))
    state["memory"] = memory

    assert sensor.get_observation(state).tolist() == [1.0, 1.0]
    assert sensor.get_observation(view(AgentState(SOURCE))).tolist() == [0.0, 1.0]


def test_a_history_s_space_holds_the_zeros_before_the_episode() -> None:
    never_zero = OwnSensor(spaces.Box(5.0, 9.0, (1,), np.float64), np.array([7.0]))
    sensor = sensors.HistorySensor(never_zero, 3)

    observation = sensor.get_observation(view(AgentState(SOURCE)))

    assert observation.tolist() == [0.0, 0.0, 7.0]
    assert sensor.observation_space.contains(observation)


def test_a_history_inside_a_history_remembers_too() -> None:
    sensor = sensors.HistorySensor(sensors.HistorySensor(sensors.BinaryHitSensor(0.9), 2), 2)
    _, memory = sensor.observe(view(AgentState(SOURCE)), None)

    observation, _ = sensor.observe(view(AgentState(Coordinates(0, 0))), memory)

    assert observation.tolist() == [0.0, 1.0, 1.0, 0.0]


def test_a_dict_has_each_sensor_s_observation_and_remembers_for_those_that_recall() -> None:
    sensor = sensors.DictSensor(
        {"past": sensors.HistorySensor(sensors.ConcentrationSensor(), 2), "hit": sensors.BinaryHitSensor()}
    )
    _, memory = sensor.observe(view(AgentState(SOURCE)), None)

    observation, _ = sensor.observe(view(AgentState(SOURCE)), memory)

    assert {name: part.tolist() for name, part in observation.items()} == {"past": [1.0, 1.0], "hit": [1]}
    assert isinstance(sensor.observation_space, spaces.Dict)
    assert set(sensor.observation_space) == {"past", "hit"}


def test_a_dict_within_a_dict_is_refused() -> None:
    inner = sensors.DictSensor({"odor": sensors.ConcentrationSensor()})

    with pytest.raises(ValidationError, match="one level") as caught:
        sensors.DictSensor({"outer": inner})

    assert caught.value.found == "outer"


def test_a_history_of_what_has_no_flat_form_is_refused() -> None:
    with pytest.raises(ValidationError, match="history"):
        sensors.HistorySensor(OwnSensor(spaces.Sequence(spaces.Discrete(3))))


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (sensors.BinaryHitSensor, "threshold", math.nan), (sensors.BinaryHitSensor, "threshold", True), (sensors.PoissonHitSensor, "rate", 0.0),
        (sensors.PoissonHitSensor, "rate", 701), (sensors.PoissonHitSensor, "most", 0), (sensors.PoissonHitSensor, "channel", -1),
        (sensors.AntennaePair, "reach", 0.0), (sensors.AntennaePair, "angle", math.inf), (sensors.WindSensor, "limit", 0.0),
        (sensors.WindSensor, "limit", "1"), *((partial(sensors.HistorySensor, sensors.BinaryHitSensor()), "length", n) for n in (0, -1, True, 1.5)),
    ],
)  # fmt: skip
def test_an_option_out_of_range_is_refused_by_name(kind: Any, name: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=name):
        kind(**{name: value})


def test_the_sensors_say_what_they_are() -> None:
    metadata = sensors.DictSensor(
        {"a": sensors.HistorySensor(sensors.PoissonHitSensor(2.0, 5, 1), 3), "b": sensors.AntennaePair()}
    ).get_metadata()

    poisson = {"type": "poisson_hits", "parameters": {"rate": 2.0, "most": 5, "channel": 1}}
    history = {"type": "history", "parameters": {"sensor": poisson, "length": 3}}
    antennae = {"type": "antennae", "parameters": {"reach": 2.0, "angle": 45.0}}
    assert metadata == {"type": "dict", "parameters": {"sensors": {"a": history, "b": antennae}}}
    assert sensors.ConcentrationSensor().get_metadata() == {"type": "concentration", "parameters": {}}
    assert sensors.BinaryHitSensor(0.5).get_metadata() == {"type": "binary_hit", "parameters": {"threshold": 0.5}}
    assert sensors.WindSensor().get_metadata()["parameters"] == {"limit": 10.0}
    assert sensors.PoissonHitSensor().get_metadata()["parameters"] == {"rate": 5.0, "most": 20, "channel": 0}
    assert sensors.WindSensor(3).get_metadata() == {"type": "wind", "parameters": {"limit": 3.0}}


def test_a_history_or_a_dict_of_no_sensor_is_refused() -> None:
    with pytest.raises(ValidationError, match="needs sensors"):
        sensors.DictSensor({})
    with pytest.raises(ComponentError, match="lacks observation_space"):
        sensors.HistorySensor(None)  # type: ignore[arg-type]
    with pytest.raises(ComponentError, match="lacks observation_space"):
        sensors.DictSensor({"a": 3})  # type: ignore[dict-item]
