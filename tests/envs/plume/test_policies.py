"""Policies: legal with every part, the same for the same seed, and better than chance."""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.envs.evaluation import make_policy, play_episode, run_episodes
from proctor.envs.plume.config import ComponentKind
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.plume.policies import POLICIES, fit_slope, search_pattern, turn_by_quarters
from proctor.errors import ValidationError

ACTIONS = ["discrete_grid", "oriented_grid", "eight_direction", "continuous", "run_tumble"]
SENSORS: dict[str, Any] = {
    "concentration": "concentration",
    "binary_hit": "binary_hit",
    "poisson_hits": "poisson_hits",
    "antennae": "antennae",
    "wind": "wind",
    "history": {"type": "history", "sensor": "antennae", "length": 3},
    "dict": {"type": "dict", "sensors": {"odor": "concentration", "wind": "wind"}},
}
SEARCHERS = [name for name in POLICIES if name != "random"]


def puffs(action: str, sensor: str) -> PlumeSearchEnv:
    plume = {"type": "puffs", "lifetime": 12, "warm_up": 4}
    config = {"plume": plume, "action": action, "observation": SENSORS[sensor]}
    return PlumeSearchEnv(config=config, grid_size=(14, 11), max_steps=60)


def actions_in(env: PlumeSearchEnv, name: str, seed: int) -> list[Any]:
    """Return what the policy does in one episode, each action found legal."""
    policy = make_policy(name, env)
    policy.reset(seed)
    observation, _ = env.reset(seed=seed)
    taken = []
    over = False
    while not over:
        action = policy.act(observation)
        assert env.components[ComponentKind.ACTION].validate_action(action)
        assert env.action_space.contains(action)
        observation, _, terminated, truncated, _ = env.step(action)
        taken.append(np.asarray(action).tolist())
        over = terminated or truncated
    return taken


@pytest.mark.parametrize("sensor", SENSORS)
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("name", POLICIES)
def test_every_policy_acts_legally_and_alike_for_a_seed_with_every_part(name: str, action: str, sensor: str) -> None:
    env = puffs(action, sensor)

    assert actions_in(env, name, 5) == actions_in(env, name, 5)


@pytest.mark.parametrize("name", POLICIES)
def test_another_seed_is_another_search(name: str) -> None:
    env = PlumeSearchEnv(grid_size=(30, 30), max_steps=40)

    assert len({str(actions_in(env, name, seed)) for seed in range(5)}) > 1


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_begins_anew_at_reset(name: str) -> None:
    env = PlumeSearchEnv()
    policy = make_policy(name, env)
    fresh = play_episode(env, policy, 3)
    play_episode(env, policy, 4)

    assert play_episode(env, policy, 3) == fresh


def found(name: str, episodes: int, **settings: Any) -> int:
    env = PlumeSearchEnv(**settings)
    return sum(bool(result.success) for result in run_episodes(env, make_policy(name, env), episodes, seed=0))


@pytest.mark.parametrize("name", SEARCHERS)
def test_every_searcher_finds_the_default_source_far_more_often_than_chance(name: str) -> None:
    assert found("random", 20) <= 4
    assert found(name, 20) >= 18


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("name", SEARCHERS)
def test_every_searcher_finds_the_default_source_on_any_legs(name: str, action: str) -> None:
    assert found(name, 8, config={"action": action}) >= 7


@pytest.mark.parametrize("plume", ["advected", "puffs"])
def test_surge_and_cast_uses_the_wind(plume: str) -> None:
    config = {"plume": plume, "observation": SENSORS["dict"], "action": "eight_direction"}
    size: dict[str, Any] = {"grid_size": (64, 48), "source_location": (12, 24)}

    assert found("surge_cast", 10, config=config, **size) >= 9


def test_surge_and_cast_without_wind_where_a_wind_could_be_keeps_its_course() -> None:
    still = {"type": "puffs", "wind": [0, 0], "noise": 0}
    env = PlumeSearchEnv(config={"plume": still, "observation": SENSORS["dict"]}, grid_size=(14, 11), max_steps=60)

    assert actions_in(env, "surge_cast", 1)


def test_a_policy_that_steers_needs_a_plume_search() -> None:
    env = gym.make("CartPole-v1")

    with pytest.raises(ValidationError, match="searches plumes only") as caught:
        POLICIES["surge_cast"].make(env)
    env.close()

    assert caught.value.found == "CartPoleEnv"


PLACES = st.lists(st.tuples(st.integers(-20, 20), st.integers(-20, 20)), min_size=1, max_size=8)
SLOPES = st.floats(-1.0, 1.0)


@given(places=PLACES, gx=SLOPES, gy=SLOPES, level=SLOPES)
def test_a_plane_has_its_own_slope_wherever_it_was_walked(
    places: list[tuple[int, int]], gx: float, gy: float, level: float
) -> None:
    xs, ys = (np.array(side, float) - np.mean(side) for side in zip(*places, strict=True))
    past = [((float(x), float(y)), gx * x + gy * y + level) for x, y in places]

    slope = fit_slope(past)

    assert all(math.isfinite(part) for part in slope)
    if (xs @ xs) * (ys @ ys) - (xs @ ys) ** 2 > 1.0:
        assert slope == pytest.approx((gx, gy), abs=1e-6)


def test_an_axis_that_was_not_walked_has_no_slope() -> None:
    assert fit_slope([((0.0, 0.0), 0.1), ((1.0, 0.0), 0.2)]) == pytest.approx((0.1, 0.0))


@given(surge=st.integers(0, 5), reach=st.integers(1, 4), first=st.sampled_from([1, 3]))
def test_a_search_surges_then_casts_ever_wider_to_either_side(surge: int, reach: int, first: int) -> None:
    pattern = list(islice(search_pattern(surge, reach, first), surge + 100))

    across = 0
    reached = []
    for quarter in pattern[surge:]:
        across += {1: 1, 3: -1}.get(quarter, 0)
        reached.append(across)
    assert pattern[:surge] == [0] * surge
    assert pattern[surge] == first
    assert 0 not in pattern[surge:]
    assert min(reached) < 0 < max(reached)
    assert max(map(abs, reached)) >= 2 * reach


@given(quarters=st.integers(0, 3), x=SLOPES, y=SLOPES)
def test_a_turn_by_quarters_is_a_rotation(quarters: int, x: float, y: float) -> None:
    angle = quarters * math.pi / 2

    expected = (x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle))

    assert turn_by_quarters((x, y), quarters) == pytest.approx(expected, abs=1e-9)
