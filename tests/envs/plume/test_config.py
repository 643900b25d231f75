"""The configuration: where it comes from, which value wins, and what a mistake is told."""

from __future__ import annotations

import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.contracts.spatial import Coordinates, GridSize
from proctor.envs.plume.actions import EightDirectionActions
from proctor.envs.plume.config import ComponentSpec, EnvironmentConfig
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.plume.fields import GaussianPlume
from proctor.envs.plume.rewards import StepPenaltyReward
from proctor.envs.plume.sensors import BinaryHitSensor
from proctor.errors import ComponentError, ValidationError

SETTINGS: dict[str, Any] = {
    "grid_size": [20, 10],
    "source_location": [3, 4],
    "max_steps": 50,
    "goal_radius": 2.5,
    "info_level": "minimal",
    "plume": {"type": "advected", "wind": [0.5, 0.5]},
    "action": "oriented_grid",
    "observation": {"type": "history", "sensor": {"type": "binary_hit", "threshold": 0.2}, "length": 3},
    "reward": {"type": "step_penalty", "step_penalty": 0.5},
}
TOML = """
grid_size = [20, 10]
source_location = [3, 4]
max_steps = 50
goal_radius = 2.5
info_level = "minimal"
action = "oriented_grid"
plume = {type = "advected", wind = [0.5, 0.5]}
reward = {type = "step_penalty", step_penalty = 0.5}

[observation]
type = "history"
length = 3
sensor = {type = "binary_hit", threshold = 0.2}
"""


def written(folder: Path, suffix: str) -> Path:
    """Write the settings to a file of this kind."""
    path = folder / f"search{suffix}"
    path.write_text(TOML if suffix == ".toml" else json.dumps(SETTINGS), "utf-8")
    return path


def test_nothing_given_is_the_contract_s_defaults() -> None:
    config = EnvironmentConfig.of(None)

    assert (config.grid_size, config.source_location) == ((128, 128), None)
    assert (config.max_steps, config.goal_radius, config.info_level) == (1000, 1.0, "full")
    types = [spec.type for spec in (config.plume, config.action, config.observation, config.reward)]
    assert types == ["gaussian", "discrete_grid", "concentration", "sparse_goal"]
    assert config == EnvironmentConfig()


@pytest.mark.parametrize("suffix", [".toml", ".json"])
@pytest.mark.parametrize("as_text", [True, False])
def test_a_file_a_dict_and_keywords_say_the_same(tmp_path: Path, suffix: str, as_text: bool) -> None:
    path = written(tmp_path, suffix)

    from_file = EnvironmentConfig.of(str(path) if as_text else path)

    assert from_file == EnvironmentConfig.of(SETTINGS)
    assert from_file == EnvironmentConfig(**SETTINGS)
    assert from_file == EnvironmentConfig.of(from_file)
    assert from_file.model_fields_set == set(SETTINGS)


@pytest.mark.parametrize("suffix", [".toml", ".json"])
def test_an_environment_takes_a_file_s_path(tmp_path: Path, suffix: str) -> None:
    env = PlumeSearchEnv(config=written(tmp_path, suffix))

    assert env.grid_size == GridSize(20, 10)
    assert env.source_location == Coordinates(3, 4)
    assert env.max_steps == 50
    assert env.action_space.n == 3  # type: ignore[attr-defined]  # the oriented processor's space is Discrete
    assert env.observation_space.shape == (3,)


@given(
    config=st.fixed_dictionaries({}, optional={"max_steps": st.integers(1, 99), "goal_radius": st.floats(0.1, 9)}),
    keywords=st.fixed_dictionaries({}, optional={"max_steps": st.integers(1, 99), "goal_radius": st.floats(0.1, 9)}),
)
@settings(max_examples=50)
def test_a_keyword_beats_the_config_which_beats_the_default(config: dict[str, Any], keywords: dict[str, Any]) -> None:
    settled = EnvironmentConfig.of(config, **keywords)

    expected = {"max_steps": 1000, "goal_radius": 1.0, **config, **keywords}
    assert {"max_steps": settled.max_steps, "goal_radius": settled.goal_radius} == expected


def test_a_keyword_that_is_none_does_not_count() -> None:
    settled = EnvironmentConfig.of(SETTINGS, max_steps=None, grid_size=None, source_location=None)

    assert settled == EnvironmentConfig.of(SETTINGS)


def test_a_source_at_the_origin_counts_though_zeros_look_like_nothing() -> None:
    by_keyword = PlumeSearchEnv(config={"source_location": (5, 5)}, source_location=(0, 0))
    by_config = PlumeSearchEnv(config={"source_location": (0, 0)})

    assert by_keyword.source_location == by_config.source_location == Coordinates(0, 0)


@pytest.mark.parametrize(
    ("keyword", "value"), [("max_steps", 0), ("goal_radius", 0.0), ("grid_size", ()), ("grid_size", (0, 0))]
)
def test_a_falsy_keyword_is_refused_and_not_taken_for_nothing(keyword: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=keyword):
        PlumeSearchEnv(**{keyword: value})


class FalsySensor(BinaryHitSensor):
    """A sensor that counts as false."""

    def __bool__(self) -> bool:
        return False


class FalsyActions(EightDirectionActions):
    """A processor that counts as false, by its length."""

    def __len__(self) -> int:
        return 0


class FalsyReward(StepPenaltyReward):
    """A reward that counts as false."""

    def __bool__(self) -> bool:
        return False


class FalsyPlume(GaussianPlume):
    """A plume that counts as false."""

    def __bool__(self) -> bool:
        return False


def test_an_injected_part_beats_the_configured_one_even_if_it_counts_as_false() -> None:
    plume = FalsyPlume(GridSize(9, 9), Coordinates(4, 4), 2.0)
    actions, sensor, reward = FalsyActions(), FalsySensor(), FalsyReward(Coordinates(4, 4), 1.0)

    env = PlumeSearchEnv(
        plume_model=plume,
        action_processor=actions,
        observation_model=sensor,
        reward_fn=reward,
        config={"plume": "puffs", "action": "oriented_grid", "observation": "antennae", "reward": "shaped"},
    )

    assert list(env.components.values()) == [plume, actions, sensor, reward]
    assert env.action_space is actions.action_space
    assert env.observation_space is sensor.observation_space


def test_an_injected_plume_brings_its_grid_and_source_where_none_are_set() -> None:
    plume = GaussianPlume(GridSize(9, 7), Coordinates(1, 2))

    env = PlumeSearchEnv(plume_model=plume)

    assert env.grid_size == GridSize(9, 7)
    assert env.source_location == Coordinates(1, 2)


def test_a_config_object_that_sets_no_grid_leaves_it_to_the_plume() -> None:
    plume = GaussianPlume(GridSize(9, 7), Coordinates(1, 2))

    env = PlumeSearchEnv(plume_model=plume, config=EnvironmentConfig(max_steps=5))

    assert (env.grid_size, env.max_steps) == (GridSize(9, 7), 5)


@pytest.mark.parametrize("where", ["keyword", "config"])
def test_an_injected_plume_on_another_grid_is_a_component_error(where: str) -> None:
    plume = GaussianPlume(GridSize(9, 7), Coordinates(1, 2))
    given: dict[str, Any] = {"grid_size": (9, 8)} if where == "keyword" else {"config": {"grid_size": (9, 8)}}

    with pytest.raises(ComponentError, match="grid") as caught:
        PlumeSearchEnv(plume_model=plume, **given)

    assert repr(GridSize(9, 7)) in repr(caught.value.found)
    assert caught.value.clause == "ENV-INIT-P2"


def test_an_injected_plume_with_another_source_is_a_component_error() -> None:
    plume = GaussianPlume(GridSize(9, 7), Coordinates(1, 2))

    with pytest.raises(ComponentError, match="source"):
        PlumeSearchEnv(plume_model=plume, source_location=(2, 1))


def test_an_injected_plume_on_the_same_grid_is_welcome() -> None:
    plume = GaussianPlume(GridSize(9, 7), Coordinates(1, 2))

    env = PlumeSearchEnv(plume_model=plume, grid_size=(9, 7), source_location=(1, 2))

    assert env.plume_field is plume


def test_an_unknown_key_is_refused_with_the_list_of_those_that_are_known() -> None:
    with pytest.raises(ValidationError, match="sigma") as caught:
        PlumeSearchEnv(config={"sigma": 3.0})

    assert caught.value.expected is not None
    assert all(name in caught.value.expected for name in EnvironmentConfig.model_fields)
    assert caught.value.clause == "ENV-INIT-P1"


@pytest.mark.parametrize(
    ("key", "value", "clause"),
    [
        ("grid_size", (0, 5), "ENV-INIT-P3"),
        ("grid_size", (5, -1), "ENV-INIT-P3"),
        ("grid_size", (10_001, 5), "ENV-INIT-P3"),
        ("grid_size", (5,), "ENV-INIT-P3"),
        ("grid_size", (5, 5, 5), "ENV-INIT-P3"),
        ("grid_size", 5, "ENV-INIT-P3"),
        ("grid_size", "55", "ENV-INIT-P3"),
        ("grid_size", (True, 5), "ENV-INIT-P3"),
        ("grid_size", (5.0, 5), "ENV-INIT-P3"),
        ("grid_size", ("5", 5), "ENV-INIT-P3"),
        ("grid_size", (math.nan, 5), "ENV-INIT-P3"),
        ("max_steps", 0, "ENV-INIT-P4"),
        ("max_steps", -1, "ENV-INIT-P4"),
        ("max_steps", True, "ENV-INIT-P4"),
        ("max_steps", 10.0, "ENV-INIT-P4"),
        ("max_steps", "10", "ENV-INIT-P4"),
        ("goal_radius", 0, "ENV-INIT-P5"),
        ("goal_radius", -1.0, "ENV-INIT-P5"),
        ("goal_radius", True, "ENV-INIT-P5"),
        ("goal_radius", np.True_, "ENV-INIT-P5"),
        ("goal_radius", math.nan, "ENV-INIT-P5"),
        ("goal_radius", math.inf, "ENV-INIT-P5"),
        ("goal_radius", "1", "ENV-INIT-P5"),
        ("source_location", (True, 1), "ENV-INIT-P1"),
        ("source_location", (1.5, 1), "ENV-INIT-P1"),
        ("source_location", (1,), "ENV-INIT-P1"),
        ("info_level", "some", "ENV-INIT-P1"),
        ("plume", 5, "ENV-INIT-P1"),
        ("plume", {"sigma": 3}, "ENV-INIT-P1"),
        ("plume", {"type": 3}, "ENV-INIT-P1"),
    ],
    ids=repr,
)
def test_a_bad_value_is_refused_with_its_clause(key: str, value: Any, clause: str) -> None:
    with pytest.raises(ValidationError, match=key) as caught:
        EnvironmentConfig.of({key: value})

    assert caught.value.clause == clause
    assert caught.value.expected


@pytest.mark.parametrize("cell", [(128, 0), (0, 128), (-1, 0), (0, -1)])
def test_a_source_off_the_grid_is_refused(cell: tuple[int, int]) -> None:
    with pytest.raises(ValidationError, match="source"):
        PlumeSearchEnv(source_location=cell)


@pytest.mark.parametrize("whole", [np.int8, np.int64, np.uint32])
def test_numpy_integers_are_integers(whole: Any) -> None:
    env = PlumeSearchEnv(grid_size=(whole(20), whole(10)), source_location=(whole(3), whole(4)), max_steps=whole(7))

    assert (env.grid_size, env.source_location, env.max_steps) == (GridSize(20, 10), Coordinates(3, 4), 7)
    assert type(env.max_steps) is int


@pytest.mark.parametrize("number", [np.float32(2.5), np.float64(2.5), 2.5])
def test_numpy_floats_are_floats(number: Any) -> None:
    env = PlumeSearchEnv(goal_radius=number)

    assert env.goal_radius == 2.5
    assert type(env.goal_radius) is float


@pytest.mark.parametrize("number", [2, np.int64(2)])
def test_a_whole_radius_is_a_radius(number: Any) -> None:
    assert PlumeSearchEnv(goal_radius=number).goal_radius == 2.0


def test_a_grid_size_and_coordinates_may_be_the_contract_s_own_values() -> None:
    env = PlumeSearchEnv(grid_size=GridSize(20, 10), source_location=Coordinates(3, 4))  # type: ignore[arg-type]

    assert env.grid_size == GridSize(20, 10)
    assert env.source_location == Coordinates(3, 4)


@pytest.mark.parametrize("source", [5, 1.5, ["grid_size"], object], ids=repr)
def test_what_is_no_configuration_is_refused(source: Any) -> None:
    with pytest.raises(ValidationError, match="not a configuration") as caught:
        PlumeSearchEnv(config=source)

    assert caught.value.clause == "ENV-INIT-P1"


@pytest.mark.parametrize(
    ("name", "content"),
    [("search.toml", "grid_size = ["), ("search.json", "{"), ("search.json", ""), ("search.toml", "\ud800")],
    ids=["toml", "json", "empty json", "no text"],
)
def test_a_broken_file_is_refused_with_the_reason(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_bytes(content.encode("utf-8", "surrogatepass"))

    with pytest.raises(ValidationError, match="not a readable configuration") as caught:
        EnvironmentConfig.of(tmp_path / name)

    assert caught.value.found == name


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="not a readable configuration"):
        EnvironmentConfig.of(tmp_path / "nowhere.toml")


def test_a_file_of_another_kind_names_those_that_are_read(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match=r"\.toml or \.json"):
        EnvironmentConfig.of(tmp_path / "search.yaml")


def test_a_file_without_a_table_is_refused(tmp_path: Path) -> None:
    (tmp_path / "search.json").write_text("[1, 2]", "utf-8")

    with pytest.raises(ValidationError, match="not a configuration"):
        EnvironmentConfig.of(tmp_path / "search.json")


def test_a_configuration_is_frozen_and_survives_json_and_pickle() -> None:
    config = EnvironmentConfig.of(SETTINGS)

    copies = [EnvironmentConfig.model_validate_json(config.model_dump_json()), pickle.loads(pickle.dumps(config))]

    assert copies == [config, config]
    with pytest.raises(ValueError, match="frozen"):
        setattr(config, "max_steps", 3)  # noqa: B010  # the type forbids what is tried here
    with pytest.raises(ValueError, match="frozen"):
        setattr(config.plume, "type", "puffs")  # noqa: B010  # the type forbids what is tried here


def test_a_part_s_options_are_kept_beside_its_type() -> None:
    config = EnvironmentConfig.of({"plume": {"type": "gaussian", "sigma": 3.0}})

    assert config.plume == ComponentSpec(type="gaussian", sigma=3.0)
    assert config.plume.model_dump() == {"type": "gaussian", "sigma": 3.0}


def test_a_caller_s_dict_stays_as_it_was() -> None:
    settings_given = {"plume": {"type": "gaussian", "sigma": 3.0}, "max_steps": 5}
    before = json.dumps(settings_given)

    PlumeSearchEnv(config=settings_given, max_steps=6)

    assert json.dumps(settings_given) == before
