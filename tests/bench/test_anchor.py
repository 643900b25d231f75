"""The C loop does exactly what the single environment does: only then is it an honest anchor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from ctypes import CDLL
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from bench import c_plume
from bench.c_plume import CPlume, Layout, compiled, compiler
from bench.gyms import drawn_rows
from bench.measure import Gap
from proctor.contracts.chance import next_seed
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.registration import register

SETTINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "short episodes": {"max_steps": 17, "goal_radius": 20.5},
    "tiny": {"grid_size": (5, 3), "source_location": (0, 2), "max_steps": 9},
    "wide": {"grid_size": (200, 7), "source_location": (150, 1), "max_steps": 60, "goal_radius": 4.0},
    "one cell": {"grid_size": (1, 1), "max_steps": 3},
    "long strides": {"config": {"action": {"type": "discrete_grid", "step_size": 3}}, "max_steps": 40},
}
STEPS = 300
ENVS = 5


@pytest.fixture(scope="module")
def library() -> Iterator[CDLL]:
    with ExitStack() as stack:
        yield compiled(stack)


class Autoreset:
    """One single environment that begins its next episode on the step after an end, as a batch does."""

    def __init__(self, settings: dict[str, Any], seed: int) -> None:
        self.env = PlumeSearchEnv(**settings)
        self.root = seed
        self.later = 0
        self.ended = False
        observation, info = self.env.reset(seed=seed)
        self.seen = self._seen(observation, 0.0, False, False, info)

    def step(self, action: int) -> None:
        if self.ended:
            self.later += 1
            observation, info = self.env.reset(seed=next_seed(self.root, self.later))
            self.seen = self._seen(observation, 0.0, False, False, info)
        else:
            self.seen = self._seen(*self.env.step(action))

    def _seen(self, observation: Any, reward: float, terminated: bool, truncated: bool, info: dict[str, Any]) -> Any:
        self.ended = terminated or truncated
        agent = self.env.agent_state
        assert agent is not None
        return {
            "observation": observation[0].tobytes(),
            "reward": reward,
            "terminated": terminated,
            "truncated": truncated,
            "done": self.ended,
            "x": info["agent_xy"][0],
            "y": info["agent_xy"][1],
            "distance": info["distance_to_source"],
            "steps": agent.step_count,
            "total": agent.total_reward,
            "seed": self.env.seed,
            "episode": self.later,
        }


def seen_by(loop: CPlume, i: int) -> dict[str, Any]:
    values = {name: array[i].item() for name, array in loop.state.items() if name not in ("root_seed", "ended")}
    return {**values, "observation": loop.state["observation"][i].tobytes()}


@pytest.mark.system
@pytest.mark.parametrize("seed", [0, 1234, 2**31 - ENVS])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_c_loop_agrees_with_single_environments_bit_for_bit(library: CDLL, name: str, seed: int) -> None:
    settings = SETTINGS[name]
    loop = CPlume(library, Layout.of(PlumeSearchEnv(**settings)), ENVS)
    loop.reset(seed)
    singles = [Autoreset(settings, seed + i) for i in range(ENVS)]

    assert [seen_by(loop, i) for i in range(ENVS)] == [single.seen for single in singles]
    for row in drawn_rows(4, STEPS, ENVS):
        loop.run(row[None])
        for single, action in zip(singles, row.tolist(), strict=True):
            single.step(action)
        assert [seen_by(loop, i) for i in range(ENVS)] == [single.seen for single in singles]


@pytest.mark.system
@pytest.mark.parametrize("num_envs", [1, 7, 64])
def test_many_steps_in_one_call_are_the_same_as_one_by_one(library: CDLL, num_envs: int) -> None:
    layout = Layout.of(PlumeSearchEnv(max_steps=23))
    together, apart = (CPlume(library, layout, num_envs) for _ in range(2))
    together.reset(5)
    apart.reset(5)
    actions = drawn_rows(4, 200, num_envs)
    together.run(actions)
    for row in actions:
        apart.run(row[None])

    for name in together.state:
        np.testing.assert_array_equal(together.state[name], apart.state[name], err_msg=name)


@pytest.mark.system
def test_the_c_loop_agrees_with_our_batch(library: CDLL) -> None:
    register()
    num_envs = 64
    env = gym.make_vec("proctor/PlumeSearch-v0", num_envs=num_envs, max_steps=40, goal_radius=10.0)
    loop = CPlume(library, Layout.of(PlumeSearchEnv(max_steps=40, goal_radius=10.0)), num_envs)
    env.reset(seed=3)
    loop.reset(3)

    for row in drawn_rows(4, STEPS, num_envs):
        observation, reward, terminated, truncated, _ = env.step(row)
        loop.run(row[None])
        np.testing.assert_array_equal(observation[:, 0], loop.state["observation"])
        np.testing.assert_array_equal(reward, loop.state["reward"])
        np.testing.assert_array_equal(terminated, loop.state["terminated"])
        np.testing.assert_array_equal(truncated, loop.state["truncated"])
    env.close()


@pytest.mark.system
@pytest.mark.parametrize(
    "actions", [np.zeros((2, 3), np.int64), np.zeros((2, 4), np.int32), np.zeros((4, 2), np.int64).T, np.zeros(4, int)]
)
def test_actions_of_another_shape_never_reach_the_c_loop(library: CDLL, actions: Any) -> None:
    loop = CPlume(library, Layout.of(PlumeSearchEnv()), 4)
    loop.reset(0)

    with pytest.raises(ValueError, match="contiguous int64"):
        loop.run(actions)


def test_more_moves_than_the_c_loop_knows_are_refused() -> None:
    env = PlumeSearchEnv(config={"action": "eight_direction"})

    with pytest.raises(ValueError, match="at most four moves"):
        Layout.of(env)


def test_a_missing_compiler_is_a_gap_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")

    with pytest.raises(Gap, match="no-such-compiler is not installed"):
        compiler()
    assert c_plume.compiler_version() is None


@pytest.mark.system
def test_a_compiler_that_fails_is_a_gap_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_plume, "FLAGS", ("-O3", "--no-such-flag"))

    with ExitStack() as stack, pytest.raises(Gap, match=r"the C compiler failed: .*no-such-flag"):
        compiled(stack)
