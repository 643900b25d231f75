"""Policies by name: an environment's own from its own table, and one that plays anything."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from proctor.envs.evaluation import GENERAL_POLICIES, RandomPolicy, find_policies, make_policy
from proctor.envs.plume import policies as plume_policies
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.popper import policies as popper_policies
from proctor.envs.popper.env import ContractColumnPopperEnv
from proctor.errors import ValidationError


class Odd(gym.Env[Any, Any]):
    """Has an attribute of that name which means something else."""

    policies = 3
    action_space = spaces.Discrete(2)


def test_policies_by_name_import_no_environment_before_one_is_there() -> None:
    code = (
        "import sys; import proctor.envs.evaluation; print([m for m in sys.modules if m.startswith('proctor.envs.p')])"
    )

    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=True)

    assert process.stdout == "[]\n"


def test_an_environment_has_the_policies_of_its_folder() -> None:
    assert find_policies(PlumeSearchEnv()) is plume_policies.POLICIES
    assert find_policies(ContractColumnPopperEnv()) is popper_policies.POLICIES


def test_a_wrapped_environment_and_a_subclass_have_the_same_policies() -> None:
    class Own(PlumeSearchEnv):
        """A user's own."""

    wrapped = gym.wrappers.TimeLimit(Own(), 3)

    assert find_policies(wrapped) is plume_policies.POLICIES


def test_any_other_environment_has_the_random_policy_alone() -> None:
    with gym.make("CartPole-v1") as env:
        assert find_policies(env) is GENERAL_POLICIES
    assert find_policies(Odd()) is GENERAL_POLICIES
    assert list(GENERAL_POLICIES) == ["random"]


def test_every_policy_of_ours_is_made_by_its_name() -> None:
    env = PlumeSearchEnv()

    kinds = {name: type(make_policy(name, env)).__name__ for name in find_policies(env)}

    assert kinds == {
        "random": "RandomPolicy",
        "gradient_greedy": "GradientGreedy",
        "run_tumble": "RunTumble",
        "surge_cast": "SurgeCast",
    }


@pytest.mark.parametrize(
    ("env", "known"),
    [(PlumeSearchEnv(), "one of random, gradient_greedy, run_tumble, surge_cast"), (Odd(), "one of random")],
    ids=["ours", "another"],
)
def test_an_unknown_policy_is_refused_with_those_that_the_environment_has(env: gym.Env[Any, Any], known: str) -> None:
    with pytest.raises(ValidationError, match=f"unknown policy of {type(env).__name__}") as caught:
        make_policy("clever", env)

    assert (caught.value.found, caught.value.expected) == ("clever", known)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(3, start=-1),
        spaces.MultiDiscrete([2, 5]),
        spaces.Box(-2.0, 2.0, (3,), np.float32),
        spaces.Dict({"a": spaces.Discrete(2), "b": spaces.MultiBinary(3)}),
    ],
    ids=str,
)
def test_random_acts_in_any_space_and_leaves_the_spaces_own_generator_alone(space: spaces.Space[Any]) -> None:
    space.seed(1)
    before = str(space.np_random.bit_generator.state)
    policy = RandomPolicy(space)

    def five(seed: int) -> list[str]:
        policy.reset(seed)
        taken = [policy.act(None) for _ in range(5)]
        assert all(space.contains(action) for action in taken)
        return [str(action) for action in taken]

    assert five(7) == five(7)
    assert len({str(five(seed)) for seed in range(20)}) > 1
    assert str(space.np_random.bit_generator.state) == before


def test_the_random_policy_stays_the_one_whose_figures_are_published() -> None:
    policy = RandomPolicy(spaces.Discrete(4))
    policy.reset(0)

    assert [int(policy.act(None)) for _ in range(12)] == [2, 2, 0, 0, 3, 3, 3, 1, 2, 0, 0, 0]


@given(seed=st.integers(0, 2**31 - 1), size=st.integers(1, 9))
def test_random_is_a_function_of_its_seed_alone(seed: int, size: int) -> None:
    one, other = (RandomPolicy(spaces.Discrete(size)) for _ in range(2))
    one.reset(seed)
    other.reset(seed)

    assert [one.act(None) for _ in range(5)] == [other.act("anything") for _ in range(5)]
