"""A target makes what its text says: an id, a class or a factory, one environment or many that step together."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.contracts.environment import Environment
from proctor.envs.gym_adapter import GymEnvironment
from proctor.envs.plume.typed_env import PlumeEnvironment
from proctor.envs.plume.vector.batched_env import BatchedPlumeSearch
from proctor.envs.popper.typed_env import PopperEnvironment
from proctor.envs.popper.vector.batched_env import BatchedColumnPopper, BatchedContractColumnPopper
from proctor.envs.targets import MODES, Target, as_environment, is_async
from proctor.errors import ComponentError, ProctorError, ValidationError
from tests.server.environments import HIDDEN_TEXT, Corridor, Counting, Later, RaisingLater, diary

HERE = "tests.server.environments"


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("CartPole-v1", GymEnvironment, "CartPole-v1"),
        ("proctor/PlumeSearch-v0", PlumeEnvironment, "proctor/PlumeSearch-v0"),
        ("proctor/ColumnPopper-v0", PopperEnvironment, "proctor/ColumnPopper-v0"),
        ("SpecKitAI/ColumnPopper-v1", PopperEnvironment, "SpecKitAI/ColumnPopper-v1"),
        ("proctor.envs.plume.env:PlumeSearchEnv", PlumeEnvironment, "PlumeSearchEnv"),
        (f"{HERE}:Counting", Counting, "Counting"),
        (f"{HERE}:counting", Counting, "Counting"),
        (f"{HERE}:Later", Later, "Later"),
        (f"{HERE}:Corridor", GymEnvironment, "Corridor"),
        (f"{HERE}:corridor", GymEnvironment, "Corridor"),
        (f"{HERE}:Corridor-v0", GymEnvironment, "Corridor-v0"),
        ("gymnasium:CartPole-v1", GymEnvironment, "CartPole-v1"),
        ("gymnasium:envs.classic_control.CartPoleEnv", GymEnvironment, "CartPoleEnv"),
    ],
)
def test_a_text_makes_what_it_names(text: str, kind: type, name: str) -> None:
    environment = Target(text).make()

    assert type(environment) is kind
    assert isinstance(environment, Environment)
    assert environment.name == name


@pytest.mark.parametrize("text", [f"{HERE}:Corridor", f"{HERE}:corridor", f"{HERE}:Corridor-v0"])
def test_settings_reach_the_constructor(text: str) -> None:
    environment: Any = Target(text, {"length": 1, "key": "settings"}).make()

    environment.reset()
    last = environment.step(environment.action_type(action=1))

    assert last.terminated
    assert diary("settings").methods()[-2:] == ["reset", "step"]


def test_making_does_not_change_the_target() -> None:
    values: dict[str, Any] = {"max_steps": 3, "plume": {"type": "gaussian"}}
    target = Target("proctor/PlumeSearch-v0", values)
    before = json.dumps(values)

    target.make()
    target.make_batch(2)

    assert json.dumps(target.settings) == before
    assert dataclasses.replace(target) == target


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("CartPole-v1", {"nonsense": 1}, "no such setting"),
        (f"{HERE}:Counting", {"nonsense": 1}, "could not be made"),
        (f"{HERE}:Corridor", {"fails_at": -1}, "could not be made"),
        (f"{HERE}:Corridor-v0", {"nonsense": 1}, "no such setting"),
        (f"{HERE}:Missing", {}, "no such member"),
        (f"{HERE}:Corridor.missing", {}, "no such member"),
        (f"{HERE}:NOT_A_FACTORY", {}, "cannot be called"),
        ("no.such.module:Thing", {}, "cannot import"),
        ("no.such.module:Thing-v0", {}, "cannot import"),
        (":Thing", {}, "cannot import"),
    ],
)
def test_what_cannot_be_made_is_refused_with_a_reason(text: str, values: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValidationError, match=expected):
        Target(text, values).make()


def test_a_factory_of_something_else_breaks_its_contract() -> None:
    with pytest.raises(ComponentError, match="makes no environment"):
        Target(f"{HERE}:nothing").make()


def test_a_factory_that_fails_is_not_covered_up() -> None:
    with pytest.raises(RuntimeError, match=HIDDEN_TEXT):
        Target(f"{HERE}:Raising", {"where": "make"}).make()


@settings(max_examples=60)
@given(st.text("aZ9-v0/:. _", max_size=14))
def test_any_text_is_made_or_refused(text: str) -> None:
    try:
        Target(text).make()
        outcome = "made"
    except (ProctorError, gym.error.Error):
        outcome = "refused"

    assert outcome == "refused"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("text", "engine"),
    [
        ("proctor/PlumeSearch-v0", BatchedPlumeSearch),
        ("proctor/ColumnPopper-v0", BatchedColumnPopper),
        ("SpecKitAI/ColumnPopper-v1", BatchedContractColumnPopper),
    ],
)
def test_ours_are_batched_by_their_own_engines(text: str, engine: type, mode: str) -> None:
    vector = Target(text).make_batch(3, mode)

    assert type(vector.unwrapped) is engine
    assert vector.num_envs == 3
    assert vector.metadata["autoreset_mode"] is MODES[mode] is AutoresetMode[mode.upper()]
    vector.close()


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("CartPole-v1", None),
        ("CartPole-v1", "same_step"),
        ("FrozenLake-v1", "next_step"),
        (f"{HERE}:Corridor", "next_step"),
        (f"{HERE}:corridor", "disabled"),
        (f"{HERE}:Corridor-v0", "same_step"),
        ("proctor.envs.plume.env:PlumeSearchEnv", "next_step"),
    ],
)
def test_others_are_batched_by_a_sync_vector_that_restarts_as_wanted(text: str, mode: str | None) -> None:
    vector = Target(text).make_batch(2, mode)

    assert isinstance(vector, SyncVectorEnv)
    assert vector.num_envs == 2
    assert vector.metadata["autoreset_mode"] is MODES[mode or "next_step"]
    vector.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("CartPole-v1", {"max_episode_steps": 2}),
        ("proctor/PlumeSearch-v0", {"max_steps": 2}),
        (f"{HERE}:Corridor-v0", {"max_episode_steps": 2}),
    ],
)
def test_settings_reach_every_environment_of_a_batch(text: str, values: dict[str, Any], mode: str) -> None:
    vector = Target(text, values).make_batch(2, mode)
    vector.reset(seed=1)
    actions = np.zeros(2, np.int64)

    first, second = vector.step(actions)[3], vector.step(actions)[3]

    assert (first.tolist(), second.tolist()) == ([False, False], [True, True])
    vector.close()


@pytest.mark.parametrize("text", ["CartPole-v1", "proctor/PlumeSearch-v0"])
def test_a_sub_environment_is_the_single_one_of_its_own_seed(text: str) -> None:
    vector = Target(text).make_batch(3)
    observations, _ = vector.reset(seed=5)

    alone = [gym.make(text).reset(seed=5 + i)[0] for i in range(3)]

    assert np.array_equal(observations, np.stack(alone))
    vector.close()


def test_a_batch_closes_every_environment() -> None:
    Target(f"{HERE}:Corridor", {"key": "batch"}).make_batch(3).close()

    assert diary("batch").methods() == ["close"] * 3


@pytest.mark.parametrize("mode", ["", "sometimes", "NEXT_STEP", "NextStep"])
@pytest.mark.parametrize("text", ["CartPole-v1", "proctor/PlumeSearch-v0", f"{HERE}:Corridor"])
def test_a_mode_that_does_not_exist_is_refused(text: str, mode: str) -> None:
    with pytest.raises(ValidationError, match="unknown autoreset mode") as caught:
        Target(text).make_batch(2, mode)

    assert caught.value.found == mode


@pytest.mark.parametrize("name", ["Counting", "counting", "Later", "Spaced"])
def test_what_is_no_gymnasium_environment_cannot_be_batched(name: str) -> None:
    with pytest.raises(ValidationError, match="cannot be batched"):
        Target(f"{HERE}:{name}").make_batch(2)


@pytest.mark.parametrize("text", ["CartPole-v1", "proctor/PlumeSearch-v0", f"{HERE}:Corridor-v0"])
def test_a_batch_with_settings_that_do_not_exist_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        Target(text, {"nonsense": 1}).make_batch(2)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [(Counting(), False), (Later(), True), (RaisingLater(), True), (as_environment(Corridor()), False)],
)
def test_steps_are_coroutines_or_not(environment: Environment[Any, Any, Any], expected: bool) -> None:
    assert is_async(environment) == expected


def test_an_environment_of_ours_is_served_typed_however_it_was_made() -> None:
    assert type(as_environment(gym.make("proctor/PlumeSearch-v0"))) is PlumeEnvironment
    assert type(as_environment(gym.make("CartPole-v1"))) is GymEnvironment
