"""Drives a batch and, beside it, one single environment per sub-environment, and compares every value."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from hypothesis import strategies as st

from proctor.contracts.chance import SEED_LIMIT
from proctor.envs.plume.batch import BatchedPlumeSearch
from proctor.envs.plume.env import PlumeSearchEnv

WINDS = st.tuples(st.floats(-2, 2), st.floats(-2, 2)).filter(lambda wind: wind != (0.0, 0.0))
PLUMES = st.one_of(
    st.fixed_dictionaries({"type": st.just("gaussian"), "sigma": st.floats(0.3, 30)}),
    st.fixed_dictionaries(
        {"type": st.just("advected"), "wind": WINDS, "spread": st.floats(0.3, 5), "growth": st.floats(0, 1)}
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("puffs"),
            "wind": WINDS,
            "noise": st.floats(0, 1),
            "memory": st.floats(0, 0.99),
            "drift": st.floats(0, 0.5),
            "spread": st.floats(0.3, 4),
            "growth": st.floats(0, 1),
            "release_every": st.integers(1, 5),
            "lifetime": st.integers(1, 20),
            "warm_up": st.integers(0, 20),
        }
    ),
)
ACTIONS = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["discrete_grid", "oriented_grid", "eight_direction"]),
        "step_size": st.integers(1, 3),
    }
)
STILL_AIR = st.one_of(
    st.just({"type": "concentration"}),
    st.fixed_dictionaries({"type": st.just("binary_hit"), "threshold": st.floats(0, 1)}),
    st.fixed_dictionaries(
        {
            "type": st.just("poisson_hits"),
            "rate": st.floats(0.1, 50),
            "most": st.integers(1, 30),
            "channel": st.integers(0, 3),
        }
    ),
    st.fixed_dictionaries({"type": st.just("antennae"), "reach": st.floats(0.5, 5), "angle": st.floats(-180, 180)}),
)
WINDY = st.one_of(STILL_AIR, st.fixed_dictionaries({"type": st.just("wind"), "limit": st.floats(0.1, 3)}))
GOALS = st.one_of(
    st.just({"type": "sparse_goal"}),
    st.fixed_dictionaries({"type": st.just("sparse_goal"), "goal_radius": st.floats(0, 4)}),
    st.fixed_dictionaries(
        {"type": st.just("step_penalty"), "goal_reward": st.floats(-5, 5), "step_penalty": st.floats(-1, 1)}
    ),
)
REWARDS = st.one_of(
    GOALS,
    st.fixed_dictionaries(
        {"type": st.just("shaped"), "inner": GOALS, "scale": st.floats(-1, 1), "discount": st.floats(0, 1)}
    ),
)


@st.composite
def settings_of_a_batch(draw: st.DrawFn) -> dict[str, Any]:
    """Return keywords with which both the batch and the single environment can be built."""
    width, height = draw(st.integers(1, 24)), draw(st.integers(1, 24))
    plume = draw(PLUMES)
    sensors = STILL_AIR if plume["type"] == "gaussian" else WINDY
    several = st.fixed_dictionaries(
        {"type": st.just("dict"), "sensors": st.dictionaries(st.sampled_from("abc"), sensors, min_size=1)}
    )
    return {
        "grid_size": (width, height),
        "source_location": (draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))),
        "goal_radius": draw(st.floats(0.1, 6)),
        "max_steps": draw(st.integers(1, 25)),
        "config": {
            "plume": plume,
            "action": draw(ACTIONS),
            "observation": draw(st.one_of(sensors, several)),
            "reward": draw(REWARDS),
            "info_level": draw(st.sampled_from(["full", "minimal"])),
        },
    }


def plain(value: Any) -> Any:
    """Return arrays as their type, shape and bytes, within any containers, so that `==` compares every bit."""
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list) or (isinstance(value, np.ndarray) and value.dtype == object):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.str, value.shape, value.tobytes()
    return value


def same(one: Any, other: Any) -> bool:
    """Return whether two values agree in every bit."""
    return bool(plain(one) == plain(other))


def entry(batch: Any, i: int) -> Any:
    """Return what a batched value says of sub-environment i."""
    return {key: value[i] for key, value in batch.items()} if isinstance(batch, Mapping) else batch[i]


class Mirror:
    """The batch under test and its single twins."""

    def __init__(self, settings: Mapping[str, Any], num_envs: int, mode: AutoresetMode) -> None:
        self.batch = BatchedPlumeSearch(num_envs, autoreset_mode=mode, **settings)
        self.singles = [PlumeSearchEnv(**settings) for _ in range(num_envs)]
        self.mode = mode
        self.episodes = 0

    def reset(self, seed: int, options: dict[str, Any] | None = None) -> None:
        """Reset both sides and compare."""
        observation, info = self.batch.reset(seed=seed, options=options)
        for i, single in enumerate(self.singles):
            self._compare_reset(i, single, seed + i, options, observation, info)
            assert info["episode"][i] == single.episode_count

    def _compare_reset(self, i: int, single: Any, seed: int, options: Any, observation: Any, info: Any) -> None:
        self.episodes += 1
        expected, single_info = single.reset(seed=seed, options=options)
        assert same(entry(observation, i), expected)
        assert info["_seed"][i]
        assert info["seed"][i] == single_info["seed"]
        self._compare_info(i, {key: value for key, value in single_info.items() if key != "episode"}, info)

    def _compare_info(self, i: int, single_info: dict[str, Any], info: dict[str, Any]) -> None:
        for key, value in single_info.items():
            assert info["_" + key][i]
            assert np.array_equal(info[key][i], value), (key, info[key][i], value)

    def step(self, actions: np.ndarray[Any, Any]) -> None:
        """Step both sides and compare everything."""
        ended = [str(single.state) != "ready" for single in self.singles]
        observation, reward, terminated, truncated, info = self.batch.step(actions)
        for i, single in enumerate(self.singles):
            if ended[i]:
                assert (reward[i], terminated[i], truncated[i]) == (0.0, False, False)
                assert not info["_step_count"][i]
                self._compare_reset(i, single, int(info["seed"][i]), None, observation, info)
                continue
            expected = single.step(int(actions[i]))
            assert (reward[i], terminated[i], truncated[i]) == expected[1:4]
            if (expected[2] or expected[3]) and self.mode is AutoresetMode.SAME_STEP:
                assert info["_final_obs"][i]
                assert same(info["final_obs"][i], expected[0])
                self._compare_info(i, expected[4], info["final_info"])
                self._compare_reset(i, single, int(info["seed"][i]), None, observation, info)
            else:
                assert same(entry(observation, i), expected[0])
                self._compare_info(i, expected[4], info)
        if self.mode is AutoresetMode.DISABLED:
            self._reset_the_ended(terminated | truncated, int(reward.size))

    def _reset_the_ended(self, ended: np.ndarray[Any, Any], shift: int) -> None:
        if ended.any():
            seeds = [(int(seed) + shift) % SEED_LIMIT for seed in self.batch._seeds[2]]
            observation, info = self.batch.reset(seed=seeds, options={"reset_mask": ended})
            for i in np.flatnonzero(ended):
                self._compare_reset(int(i), self.singles[i], seeds[i], None, observation, info)
