"""The configuration: where it comes from, which value wins, which parts it names, and what a mistake is told."""

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

from proctor.contracts.components import ActionProcessor, ObservationModel, RewardFunction
from proctor.contracts.spatial import Coordinates, GridSize
from proctor.envs.plume import config
from proctor.envs.plume.actions import ContinuousActions, DiscreteGridActions, EightDirectionActions
from proctor.envs.plume.config import (
    ComponentKind,
    ComponentSpec,
    EnvironmentConfig,
    Site,
    build,
    component_types,
    list_options,
    register_component,
)
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.plume.fields import GaussianPlume
from proctor.envs.plume.rewards import ShapedReward, SparseGoalReward, StepPenaltyReward
from proctor.envs.plume.sensors import BinaryHitSensor, DictSensor, HistorySensor, PoissonHitSensor
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


def falsy(kind: type[Any], *arguments: Any) -> Any:
    """Return a part of this kind that counts as false."""
    return type("Falsy", (kind,), {"__bool__": lambda self: False})(*arguments)


def test_an_injected_part_beats_the_configured_one_even_if_it_counts_as_false() -> None:
    plume = falsy(GaussianPlume, GridSize(9, 9), Coordinates(4, 4), 2.0)
    actions, sensor = falsy(EightDirectionActions), falsy(BinaryHitSensor)
    reward = falsy(StepPenaltyReward, Coordinates(4, 4), 1.0)

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


@pytest.mark.parametrize(
    "given", [{}, {"config": EnvironmentConfig(max_steps=5)}, {"grid_size": (9, 7), "source_location": (1, 2)}]
)
def test_an_injected_plume_brings_its_grid_and_source_where_none_or_the_same_are_set(given: dict[str, Any]) -> None:
    plume = GaussianPlume(GridSize(9, 7), Coordinates(1, 2))

    env = PlumeSearchEnv(plume_model=plume, **given)

    assert (env.grid_size, env.source_location) == (GridSize(9, 7), Coordinates(1, 2))
    assert env.plume_field is plume


@pytest.mark.parametrize(
    "given", [{"grid_size": (9, 8)}, {"config": {"grid_size": (9, 8)}}, {"source_location": (2, 1)}]
)
def test_an_injected_plume_on_another_grid_or_with_another_source_is_a_component_error(given: dict[str, Any]) -> None:
    plume = GaussianPlume(GridSize(9, 7), Coordinates(1, 2))

    with pytest.raises(ComponentError, match="grid or source") as caught:
        PlumeSearchEnv(plume_model=plume, **given)

    assert repr(GridSize(9, 7)) in repr(caught.value.found)
    assert caught.value.clause == "ENV-INIT-P2"


def test_an_unknown_key_is_refused_with_the_list_of_those_that_are_known() -> None:
    with pytest.raises(ValidationError, match="sigma") as caught:
        PlumeSearchEnv(config={"sigma": 3.0})

    assert caught.value.expected is not None
    assert all(name in caught.value.expected for name in EnvironmentConfig.model_fields)
    assert caught.value.clause == "ENV-INIT-P1"


NO_GRIDS: list[Any] = [
    (0, 5), (5, -1), (10_001, 5), (5,), (5, 5, 5), 5, "55", (True, 5), (5.0, 5), ("5", 5), (math.nan, 5),
]  # fmt: skip
NO_PLUMES: list[Any] = [5, {"sigma": 3}, {"type": 3}]


@pytest.mark.parametrize(
    ("key", "value", "clause"),
    [
        *(("grid_size", value, "ENV-INIT-P3") for value in NO_GRIDS),
        *(("max_steps", value, "ENV-INIT-P4") for value in (0, -1, True, 10.0, "10")),
        *(("goal_radius", value, "ENV-INIT-P5") for value in (0, -1.0, True, np.True_, math.nan, math.inf, "1")),
        *(("source_location", value, "ENV-INIT-P1") for value in ((True, 1), (1.5, 1), (1,))),
        ("info_level", "some", "ENV-INIT-P1"),
        *(("plume", value, "ENV-INIT-P1") for value in NO_PLUMES),
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


@pytest.mark.parametrize("number", [np.float32(2.5), np.float64(2.5), 2.5, 2, np.int64(2)], ids=repr)
def test_a_radius_of_any_kind_of_number_is_a_plain_float(number: Any) -> None:
    radius = PlumeSearchEnv(goal_radius=number).goal_radius

    assert (radius, type(radius)) == (float(number), float)


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


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nowhere.toml", "not a readable configuration"),
        ("search.yaml", r"\.toml or \.json"),
        ("search.json", "not a configuration"),
    ],
)
def test_a_file_that_is_not_there_of_another_kind_or_without_a_table_is_refused(
    tmp_path: Path, name: str, why: str
) -> None:
    (tmp_path / "search.json").write_text("[1, 2]", "utf-8")

    with pytest.raises(ValidationError, match=why):
        EnvironmentConfig.of(tmp_path / name)


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


SITE = Site(GridSize(8, 6), Coordinates(2, 3), 1.5)
PROTOCOLS = {
    ComponentKind.ACTION: ActionProcessor,
    ComponentKind.OBSERVATION: ObservationModel,
    ComponentKind.REWARD: RewardFunction,
}
KNOWN = [(kind, name) for kind in ComponentKind for name in component_types(kind)]


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget after a test what it has registered."""
    monkeypatch.setattr(config, "_REGISTRY", {kind: dict(known) for kind, known in config._REGISTRY.items()})


@pytest.fixture
def own_sensor() -> str:
    """Register a user's own sensor."""

    def factory(site: Site, *, rate: float, most: int = 3) -> PoissonHitSensor:
        return PoissonHitSensor(rate * site.grid_size.width, most)

    register_component("observation", "own_hits", factory)
    return "own_hits"


def required(kind: ComponentKind, name: str, folder: Path) -> dict[str, Any]:
    """Return what must be given to the types that cannot do without."""
    np.save(folder / "film.npy", np.zeros((2, 6, 8)))
    needs: dict[tuple[ComponentKind, str], dict[str, Any]] = {
        (ComponentKind.PLUME, "movie"): {"path": str(folder / "film.npy")},
        (ComponentKind.OBSERVATION, "dict"): {"sensors": {"odor": "concentration"}},
    }
    return needs.get((kind, name), {})


@pytest.mark.parametrize(("kind", "name"), KNOWN)
def test_every_known_type_builds_from_its_name_and_is_what_its_kind_asks_for(
    tmp_path: Path, kind: ComponentKind, name: str
) -> None:
    part = build(kind, {"type": name, **required(kind, name, tmp_path)}, SITE)

    assert isinstance(part, PROTOCOLS.get(kind, object))
    assert getattr(part, "grid_size", SITE.grid_size) == SITE.grid_size


@pytest.mark.parametrize(("kind", "name"), KNOWN)
def test_a_part_built_with_its_listed_defaults_is_the_part_built_without_options(
    tmp_path: Path, kind: ComponentKind, name: str
) -> None:
    needs = required(kind, name, tmp_path)
    defaults = {option: value for option, value in component_types(kind)[name].items() if value is not ...}

    plain, spelled_out = (build(kind, {"type": name, **options, **needs}, SITE) for options in ({}, defaults))

    assert spelled_out.get_metadata() == plain.get_metadata()


def test_the_lists_name_the_types_of_the_design() -> None:
    names = {str(kind): sorted(component_types(kind)) for kind in ComponentKind}

    assert names == {
        "plume": ["advected", "gaussian", "movie", "puffs"],
        "action": ["continuous", "discrete_grid", "eight_direction", "oriented_grid", "run_tumble"],
        "observation": ["antennae", "binary_hit", "concentration", "dict", "history", "poisson_hits", "wind"],
        "reward": ["shaped", "sparse_goal", "step_penalty"],
    }


def test_options_come_with_their_defaults_and_needed_ones_are_marked() -> None:
    plumes, rewards = component_types("plume"), component_types("reward")

    assert plumes["gaussian"] == {"sigma": 12.0}
    assert plumes["movie"] == {"path": ..., "steps_per_frame": 1, "first_frame": 0, "at_end": "hold"}
    assert rewards["step_penalty"] == {"goal_radius": None, "goal_reward": 1.0, "step_penalty": 0.01}
    assert rewards["shaped"] == {"inner": "sparse_goal", "scale": 0.01, "discount": 0.99}
    assert component_types("observation")["dict"] == {"sensors": ...}
    assert component_types("observation")["history"] == {"sensor": "concentration", "length": 4}


def test_options_reach_the_part() -> None:
    assert isinstance(build("action", "discrete_grid", SITE), DiscreteGridActions)
    plume = build(ComponentKind.PLUME, {"type": "gaussian", "sigma": 3}, SITE)
    action = build("action", {"type": "continuous", "max_speed": 4}, SITE)

    assert isinstance(plume, GaussianPlume)
    assert (plume.sigma, plume.source_location) == (3.0, SITE.source_location)
    assert isinstance(action, ContinuousActions)
    assert action.max_speed == 4.0


def test_a_reward_takes_the_site_s_goal_unless_told_otherwise() -> None:
    site_s = build("reward", "sparse_goal", SITE)
    own = build("reward", {"type": "sparse_goal", "goal_radius": 0}, SITE)
    penalty = build("reward", {"type": "step_penalty", "step_penalty": 0.5}, SITE)

    assert isinstance(site_s, SparseGoalReward)
    assert (site_s.goal_radius, site_s.source_location) == (1.5, SITE.source_location)
    assert own.goal_radius == 0.0
    assert isinstance(penalty, StepPenaltyReward)
    assert (penalty.goal_radius, penalty.step_penalty) == (1.5, 0.5)


def test_parts_nest() -> None:
    hits = {"type": "poisson_hits", "rate": 2.0}
    sensor = build(
        "observation", {"type": "dict", "sensors": {"past": {"type": "history", "sensor": hits, "length": 2}}}, SITE
    )
    reward = build("reward", {"type": "shaped", "inner": {"type": "step_penalty", "goal_reward": 9}}, SITE)

    assert isinstance(sensor, DictSensor)
    assert isinstance(sensor.sensors["past"], HistorySensor)
    assert sensor.sensors["past"].sensor.get_metadata()["parameters"]["rate"] == 2.0
    assert isinstance(reward, ShapedReward)
    assert reward.inner.get_metadata()["parameters"]["goal_reward"] == 9.0


def test_a_caller_s_dict_stays_as_it_was() -> None:
    observation = {"type": "history", "sensor": {"type": "antennae", "reach": 3.0}}
    given = {"plume": {"type": "gaussian", "sigma": 3.0}, "max_steps": 5, "observation": observation}
    before = json.dumps(given)

    build("observation", observation, SITE)
    PlumeSearchEnv(config=given, max_steps=6)

    assert json.dumps(given) == before


@pytest.mark.parametrize("kind", ComponentKind)
@given(name=st.text(max_size=20) | st.none() | st.integers() | st.lists(st.integers(), max_size=2))
@settings(max_examples=25)
def test_a_type_that_is_not_known_is_refused_with_the_list_of_those_that_are(kind: ComponentKind, name: Any) -> None:
    with pytest.raises(ComponentError, match=f"unknown {kind} type") as caught:
        build(kind, {"type": name}, SITE)

    assert caught.value.found == name
    assert caught.value.clause == "ENV-INIT-P1"
    assert caught.value.expected is not None
    assert all(known in caught.value.expected for known in component_types(kind))


@pytest.mark.parametrize("spec", [5, None, ["gaussian"], 1.5, True, {"sigma": 3.0}], ids=repr)
def test_what_is_neither_a_name_nor_a_mapping_describes_no_part(spec: Any) -> None:
    with pytest.raises(ComponentError) as caught:
        build("plume", spec, SITE)
    with pytest.raises(ComponentError):
        build("observation", {"type": "history", "sensor": spec}, SITE)

    assert caught.value.clause == "ENV-INIT-P1"


@pytest.mark.parametrize("sensors", [None, ["concentration"], "concentration", 3], ids=repr)
def test_a_dict_of_sensors_that_is_no_mapping_is_refused(sensors: Any) -> None:
    with pytest.raises((ComponentError, ValidationError)):
        build("observation", {"type": "dict", "sensors": sensors}, SITE)


@pytest.mark.parametrize(
    ("kind", "spec", "why", "found", "options"),
    [
        ("plume", {"type": "advected", "speed": 3.0}, "unknown option", "speed", "options wind, spread, growth"),
        ("observation", {"type": "concentration", "gain": 2.0}, "unknown option", "gain", "options none"),
        # What the site brings is no option.
        ("plume", {"type": "gaussian", "grid_size": (3, 3)}, "unknown option", "grid_size", "options sigma"),
        ("observation", {"type": "dict"}, "option missing", "sensors", "options sensors"),
    ],
)
def test_an_option_that_is_not_known_or_missing_is_named_with_those_that_are_known(
    kind: str, spec: dict[str, Any], why: str, found: str, options: str
) -> None:
    with pytest.raises(ComponentError, match=f"'{spec['type']}': {why}") as caught:
        build(kind, spec, SITE)

    assert (caught.value.found, caught.value.expected) == (found, options)


def test_a_bad_value_is_refused_by_the_part_itself() -> None:
    with pytest.raises(ValidationError, match="sigma"):
        build("plume", {"type": "gaussian", "sigma": -1}, SITE)


@pytest.mark.parametrize("kind", ["odor", "", "PLUME"])
def test_an_unknown_kind_names_the_four(kind: str) -> None:
    with pytest.raises(ValidationError, match="plume, action, observation, reward"):
        component_types(kind)


def test_a_user_s_own_type_is_built_listed_and_nests_like_ours(own_sensor: str) -> None:
    part = build("observation", {"type": own_sensor, "rate": 0.5}, SITE)
    past = build("observation", {"type": "history", "sensor": {"type": own_sensor, "rate": 0.5}}, SITE)

    assert (part.rate, part.most) == (4.0, 3)
    assert isinstance(past.sensor, PoissonHitSensor)
    assert component_types("observation")[own_sensor] == {"rate": ..., "most": 3}
    with pytest.raises(ComponentError, match="option missing"):
        build("observation", own_sensor, SITE)


def test_a_name_that_is_taken_is_refused_unless_it_is_the_same_factory(own_sensor: str) -> None:
    def other(site: Site) -> PoissonHitSensor:
        return PoissonHitSensor()

    with pytest.raises(ValidationError, match="taken"):
        register_component("observation", own_sensor, other)
    with pytest.raises(ValidationError, match="taken"):
        register_component("plume", "gaussian", other)

    register_component("action", "own_moves", other)
    register_component("action", "own_moves", other)
    assert "own_moves" in component_types("action")


def test_only_keyword_only_parameters_are_options_and_a_factory_may_take_any() -> None:
    def factory(site: Site, strength: float = 1.0, *, needed: int, optional: str = "x", **options: Any) -> Any:
        return options

    register_component("plume", "anything", factory)

    assert list_options(factory) == {"needed": ..., "optional": "x"}
    assert build("plume", {"type": "anything", "needed": 1, "depth": 3}, SITE) == {"depth": 3}


def test_what_cannot_be_called_is_no_factory() -> None:
    with pytest.raises(ValidationError, match="not a factory"):
        register_component("plume", "three", 3)  # type: ignore[arg-type]
