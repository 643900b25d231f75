"""Parts by name: every known type builds, every mistake names what would have been right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.contracts.components import ActionProcessor, ObservationModel, RewardFunction
from proctor.contracts.spatial import Coordinates, GridSize
from proctor.envs.plume import config
from proctor.envs.plume.actions import ContinuousActions, DiscreteGridActions
from proctor.envs.plume.config import (
    ComponentKind,
    Site,
    build,
    component_types,
    list_options,
    register_component,
)
from proctor.envs.plume.fields import GaussianPlume
from proctor.envs.plume.rewards import ShapedReward, SparseGoalReward, StepPenaltyReward
from proctor.envs.plume.sensors import DictSensor, HistorySensor, PoissonHitSensor
from proctor.errors import ComponentError, ValidationError

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


def test_a_name_alone_is_a_whole_description() -> None:
    assert isinstance(build("action", "discrete_grid", SITE), DiscreteGridActions)


def test_options_reach_the_part() -> None:
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


def test_a_description_is_not_changed_by_building() -> None:
    spec = {"type": "history", "sensor": {"type": "antennae", "reach": 3.0}}

    build("observation", spec, SITE)

    assert spec == {"type": "history", "sensor": {"type": "antennae", "reach": 3.0}}


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


def test_a_description_without_a_type_is_refused_with_the_list() -> None:
    with pytest.raises(ComponentError, match="gaussian"):
        build("plume", {"sigma": 3.0}, SITE)


@pytest.mark.parametrize("spec", [5, None, ["gaussian"], 1.5, True], ids=repr)
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


def test_an_option_that_is_not_known_is_refused_with_the_list_of_those_that_are() -> None:
    with pytest.raises(ComponentError, match="unknown option") as caught:
        build("plume", {"type": "advected", "speed": 3.0}, SITE)

    assert caught.value.found == "speed"
    assert caught.value.expected == "options wind, spread, growth"
    assert "'advected'" in str(caught.value)


def test_a_type_without_options_says_so() -> None:
    with pytest.raises(ComponentError, match="options none"):
        build("observation", {"type": "concentration", "gain": 2.0}, SITE)


def test_an_option_of_what_the_site_brings_is_not_known() -> None:
    with pytest.raises(ComponentError, match="unknown option"):
        build("plume", {"type": "gaussian", "grid_size": (3, 3)}, SITE)


def test_a_needed_option_that_is_missing_is_named() -> None:
    with pytest.raises(ComponentError, match="option missing") as caught:
        build("plume", "movie", SITE)

    assert caught.value.found == "path"


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


def test_only_keyword_only_parameters_are_options() -> None:
    def factory(site: Site, strength: float = 1.0, *, needed: int, optional: str = "x") -> None: ...

    assert list_options(factory) == {"needed": ..., "optional": "x"}


def test_what_cannot_be_called_is_no_factory() -> None:
    with pytest.raises(ValidationError, match="not a factory"):
        register_component("plume", "three", 3)  # type: ignore[arg-type]


def test_a_factory_that_takes_any_option_gets_them_all() -> None:
    def factory(site: Site, **options: Any) -> dict[str, Any]:
        return options

    register_component("plume", "anything", factory)

    assert build("plume", {"type": "anything", "depth": 3}, SITE) == {"depth": 3}
