"""Episodes are played as the seeds say and summed up with honest intervals, by policies that are found by name."""

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

from proctor.envs.evaluation import (
    GENERAL_POLICIES,
    EpisodeResult,
    RandomPolicy,
    find_policies,
    make_policy,
    mean_interval,
    play_episode,
    play_stepwise,
    run_episodes,
    summarize,
    wilson_interval,
)
from proctor.envs.plume import policies as plume_policies
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.popper import policies as popper_policies
from proctor.envs.popper.env import ContractColumnPopperEnv
from proctor.errors import ValidationError


class Straight:
    """Always the same action; remembers what it was given."""

    def __init__(self, action: int) -> None:
        self.action = action
        self.seeds: list[int] = []
        self.seen: list[Any] = []

    def reset(self, seed: int) -> None:
        self.seeds.append(seed)

    def act(self, observation: Any) -> int:
        self.seen.append(observation)
        return self.action


def test_an_episode_is_played_to_its_end() -> None:
    env = PlumeSearchEnv(grid_size=(9, 9), max_steps=7)

    result = play_episode(env, Straight(0), seed=4)

    assert result == EpisodeResult(4, 7, 0.0, terminated=False, truncated=True, success=False)
    assert env.seed == 4


def test_a_success_is_what_the_environment_calls_one() -> None:
    env = PlumeSearchEnv(grid_size=(3, 3), max_steps=500)

    result = play_episode(env, make_policy("random", env), seed=0)

    assert (result.success, result.terminated, result.total_reward) == (True, True, 1.0)


def test_a_policy_sees_observations_of_the_space_and_nothing_else() -> None:
    env = PlumeSearchEnv(grid_size=(9, 9), max_steps=5)
    policy = Straight(0)

    result = play_episode(env, policy, 4)

    assert len(policy.seen) == result.steps
    assert all(observation in env.observation_space for observation in policy.seen)


def test_a_stepwise_episode_stops_after_the_reset_and_after_every_step() -> None:
    env = PlumeSearchEnv(grid_size=(9, 9), max_steps=5)

    assert [env.step_count for _ in play_stepwise(env, Straight(0), 0)] == [0, 1, 2, 3, 4, 5]


def test_nothing_happens_until_a_moment_is_asked_for() -> None:
    policy = Straight(0)
    playing = play_stepwise(PlumeSearchEnv(), policy, 0)

    assert policy.seeds == []
    next(playing)
    assert policy.seeds == [0]


def test_episode_k_has_the_seed_s_plus_k() -> None:
    env = PlumeSearchEnv(grid_size=(9, 9), max_steps=5)
    policy = Straight(0)

    results = list(run_episodes(env, policy, 3, seed=40))

    assert policy.seeds == [result.seed for result in results] == [40, 41, 42]
    assert results[2] == play_episode(env, policy, 42)


@pytest.mark.parametrize(("episodes", "seed"), [(0, 0), (-1, 0), (1, -1), (2, 2**31 - 1), (1, 2**31)])
def test_a_run_without_episodes_or_beyond_the_seeds_is_refused(episodes: int, seed: int) -> None:
    with pytest.raises(ValidationError):
        run_episodes(PlumeSearchEnv(), Straight(0), episodes, seed)


def test_any_environment_can_be_played_at_random_and_has_no_success_rate_and_no_score_if_it_names_none() -> None:
    env = gym.make("CartPole-v1")

    results = list(run_episodes(env, make_policy("random", env), 3, seed=0))
    env.close()

    assert all(result.success is None and result.score is None and result.terminated for result in results)
    assert summarize(results).mean_score is None
    assert summarize(results).success_rate is None
    assert summarize(results).median_steps_to_goal is None


class Scorer(gym.Env[Any, Any]):
    """One step long; its info is what it was given."""

    observation_space = action_space = gym.spaces.Discrete(2)

    def __init__(self, score: Any) -> None:
        self.score = score

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        return 0, {"score": 99}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return 0, 1.0, True, False, {"score": self.score}


@pytest.mark.parametrize(
    ("said", "score"),
    [(27, 27.0), (np.int64(9), 9.0), (np.float32(0.5), 0.5), (None, None), (True, None), ("high", None)],
)
def test_a_score_is_the_number_that_the_last_info_calls_so(said: Any, score: float | None) -> None:
    assert play_episode(Scorer(said), Straight(0), 0).score == score


def test_a_summary_has_the_mean_of_the_scores_with_its_interval() -> None:
    results = [play_episode(Scorer(score), Straight(0), 0) for score in (9, 18, 27)]

    assert summarize(results).mean_score == mean_interval([9.0, 18.0, 27.0])


def a_result(*, steps: int, success: bool | None) -> EpisodeResult:
    return EpisodeResult(0, steps, float(bool(success)), bool(success), not success, success)


def test_a_summary_counts_only_successful_episodes_as_ways_to_the_goal() -> None:
    results = [a_result(steps=steps, success=steps < 100) for steps in (10, 20, 60, 100)]

    total = summarize(results)

    assert (total.episodes, total.steps) == (4, 190)
    assert (total.median_steps_to_goal, total.mean_steps_to_goal) == (20, 30.0)
    assert total.success_rate is not None
    assert total.success_rate.value == total.mean_return.value == 0.75


def test_no_success_has_no_steps_to_the_goal_and_nothing_cannot_be_summed_up() -> None:
    total = summarize([a_result(steps=5, success=False)])

    assert total.median_steps_to_goal is total.mean_steps_to_goal is None
    assert total.success_rate == wilson_interval(0, 1)
    with pytest.raises(ValidationError, match="nothing to sum up"):
        summarize([])


@given(trials=st.integers(1, 10_000), share=st.floats(0, 1))
def test_a_wilson_interval_holds_its_rate_and_stays_between_none_and_all(trials: int, share: float) -> None:
    successes = round(share * trials)

    interval = wilson_interval(successes, trials)

    assert interval.low is not None
    assert interval.high is not None
    assert 0.0 <= interval.low <= interval.value <= interval.high <= 1.0
    assert interval.low < interval.high


def test_a_wilson_interval_agrees_with_the_textbook() -> None:
    interval = wilson_interval(8, 10)

    assert (interval.value, interval.low, interval.high) == pytest.approx((0.8, 0.4902, 0.9433), abs=1e-4)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_the_interval_of_a_mean_is_symmetric_about_it(values: list[float]) -> None:
    interval = mean_interval(values)

    assert interval.low is not None
    assert interval.high is not None
    assert interval.low <= interval.value <= interval.high
    assert interval.value - interval.low == pytest.approx(interval.high - interval.value, rel=1e-6, abs=1e-6)


def test_the_mean_of_one_value_has_no_interval() -> None:
    interval = mean_interval([3.0])

    assert (interval.value, interval.low, interval.high) == (3.0, None, None)


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
    class Own(PlumeSearchEnv):
        """A user's own."""

    assert find_policies(gym.wrappers.TimeLimit(Own(), 3)) is plume_policies.POLICIES
    assert find_policies(ContractColumnPopperEnv()) is popper_policies.POLICIES


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
