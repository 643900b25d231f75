"""Drives a batch and, beside it, one single environment per sub-environment, and compares every value."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from proctor.contracts.chance import SEED_LIMIT
from proctor.contracts.guarded_env import GuardedEnv
from proctor.envs.vector.batched_env import BatchedEnv

OF_THE_BATCH = ("final_obs", "final_info")
"""Keys that a single environment's info never has."""


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
    return {key: entry(value, i) for key, value in batch.items()} if isinstance(batch, Mapping) else batch[i]


def told(info: Mapping[str, Any], i: int) -> dict[str, Any]:
    """Return what a batched info says of sub-environment i, as the single environment's info would say it."""
    keys = [key for key in info if not key.startswith("_") and key not in OF_THE_BATCH]
    return {key: _part(info[key], i) for key in keys if info["_" + key][i]}


def _part(value: Any, i: int) -> Any:
    """Return the entry of a value of the info; a dict in it may have masks of its own, as Gymnasium makes them."""
    if not isinstance(value, Mapping):
        return value[i]
    marked = [key for key in value if not key.startswith("_") and ("_" + key not in value or value["_" + key][i])]
    return {key: _part(value[key], i) for key in marked}


def agree(one: Any, other: Any) -> bool:
    """Return whether two values of an info are equal, be they numpy's or Python's."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(agree(one[key], other[key]) for key in one)
    return bool(np.array_equal(one, other))


class Mirror:
    """The batch under test and its single twins."""

    def __init__(
        self,
        batch_class: type[BatchedEnv],
        single_class: type[GuardedEnv[Any, Any]],
        settings: Mapping[str, Any],
        num_envs: int,
        mode: AutoresetMode,
    ) -> None:
        self.batch = batch_class(num_envs, autoreset_mode=mode, **settings)
        self.singles = [single_class(**settings) for _ in range(num_envs)]
        self.mode = mode
        self.episodes = 0

    def reset(self, seed: int, options: dict[str, Any] | None = None) -> None:
        """Reset both sides and compare."""
        observation, info = self.batch.reset(seed=seed, options=options)
        for i, single in enumerate(self.singles):
            self._compare_reset(i, single, seed + i, options, observation, info)
            assert info["_episode"][i]

    def _compare_reset(self, i: int, single: Any, seed: int, options: Any, observation: Any, info: Any) -> None:
        self.episodes += 1
        expected, single_info = single.reset(seed=seed, options=options)
        assert same(entry(observation, i), expected)
        assert info["_seed"][i]
        self._compare_info(i, single_info, info)

    def _compare_info(self, i: int, single_info: dict[str, Any], info: dict[str, Any]) -> None:
        found = told(info, i)
        # The batch tells the count of an episode only if reset() was called for it.
        expected = {key: value for key, value in single_info.items() if key != "episode" or key in found}
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert agree(found[key], value), (key, found[key], value)

    def step(self, actions: np.ndarray[Any, Any]) -> None:
        """Step both sides and compare everything."""
        ended = [str(single.state) != "ready" for single in self.singles]
        observation, reward, terminated, truncated, info = self.batch.step(actions)
        for i, single in enumerate(self.singles):
            if ended[i]:
                assert (reward[i], terminated[i], truncated[i]) == (0.0, False, False)
                self._compare_reset(i, single, int(info["seed"][i]), None, observation, info)
                continue
            expected = single.step(int(actions[i]))
            assert (reward[i], terminated[i], truncated[i]) == expected[1:4]
            if (expected[2] or expected[3]) and self.mode is AutoresetMode.SAME_STEP:
                assert info["_final_obs"][i]
                assert info["_final_info"][i]
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
                assert info["_episode"][i]
