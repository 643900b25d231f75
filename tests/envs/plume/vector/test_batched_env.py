"""The batched plume search equals the single one, value for value."""

import pickle
import subprocess
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.contracts.chance import SEED_LIMIT
from proctor.envs.plume.actions import DiscreteGridActions
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.plume.vector import batched_env as batch_module
from proctor.envs.plume.vector.batched_env import BatchedPlumeSearch
from proctor.envs.vector import batched_env
from proctor.errors import ComponentError, ValidationError
from tests.envs.mirror import same
from tests.envs.plume.mirror import Mirror, settings_of_a_batch

MODES = list(AutoresetMode)
SMALL: dict[str, Any] = {"grid_size": (9, 7), "max_steps": 6}


@given(
    keywords=settings_of_a_batch(),
    num_envs=st.integers(1, 4),
    seed=st.integers(0, SEED_LIMIT - 5),
    mode=st.sampled_from(MODES),
    data=st.data(),
)
@settings(max_examples=60)
def test_every_sub_environment_is_the_single_environment(
    keywords: dict[str, Any], num_envs: int, seed: int, mode: AutoresetMode, data: st.DataObject
) -> None:
    mirror = Mirror(keywords, num_envs, mode)
    n_actions = int(mirror.batch.single_action_space.n)
    mirror.reset(seed)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))

    for _ in range(40):
        mirror.step(rng.integers(0, n_actions, num_envs))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("plume", ["gaussian", "advected", "puffs"])
@pytest.mark.parametrize("episodes", [150, pytest.param(1000, marks=pytest.mark.slow)])
def test_episodes_of_each_plume_and_mode_agree(episodes: int, plume: str, mode: AutoresetMode) -> None:
    mirror = Mirror({"grid_size": (12, 10), "max_steps": 15, "config": {"plume": plume}}, 16, mode)
    mirror.reset(seed=11)
    rng = np.random.default_rng(5)

    while mirror.episodes < episodes:
        mirror.step(rng.integers(0, 4, 16))


@pytest.mark.parametrize("options", [{"start": (1, 2), "orientation": 45.5}, {"orientation": 90.0}])
def test_start_and_orientation_hold_for_every_sub_environment(options: dict[str, Any]) -> None:
    keywords = {**SMALL, "config": {"action": "oriented_grid", "observation": "antennae"}}
    mirror = Mirror(keywords, 3, AutoresetMode.NEXT_STEP)
    mirror.reset(5, options)
    rng = np.random.default_rng(0)

    for _ in range(20):
        mirror.step(rng.integers(0, 3, 3))


@pytest.mark.parametrize("options", [{"start": (9, 0)}, {"orientation": "north"}])
def test_bad_options_change_nothing(options: Any) -> None:
    batch = BatchedPlumeSearch(3, **SMALL)
    batch.reset(seed=1)
    before = pickle.dumps(batch)

    with pytest.raises(ValidationError) as caught:
        batch.reset(seed=2, options=options)

    assert caught.value.clause == "ENV-RESET-P3"
    assert pickle.dumps(batch) == before


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "config",
    [
        {"observation": "poisson_hits"},
        {"plume": "puffs", "observation": "wind"},
        {"plume": "advected", "action": "oriented_grid", "observation": "antennae"},
    ],
)
def test_a_pickle_in_the_middle_goes_on_identically(mode: AutoresetMode, config: dict[str, Any]) -> None:
    batch = BatchedPlumeSearch(4, autoreset_mode=mode, config=config, grid_size=(60, 50), max_steps=12)
    batch.reset(seed=1)
    rng = np.random.default_rng(1)
    for _ in range(5):
        batch.step(rng.integers(0, 3, 4))
    copy = pickle.loads(pickle.dumps(batch))

    for _ in range(30 if mode is not AutoresetMode.DISABLED else 3):
        actions = rng.integers(0, 3, 4)
        assert same(batch.step(actions), copy.step(actions))


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"action": "continuous"}, "ContinuousActions"),
        ({"action": "run_tumble"}, "RunTumbleActions"),
        ({"observation": "history"}, "HistorySensor"),
        ({"observation": {"type": "dict", "sensors": {"a": "history"}}}, "HistorySensor"),
        ({"reward": {"type": "shaped", "inner": "shaped"}}, "ShapedReward"),
    ],
)
def test_a_configuration_that_cannot_be_batched_says_so(config: dict[str, Any], name: str) -> None:
    with pytest.raises(ComponentError, match="cannot be batched") as caught:
        BatchedPlumeSearch(2, config=config)

    assert caught.value.found == name


def test_a_movie_and_a_subclass_cannot_be_batched() -> None:
    class Mine(DiscreteGridActions):
        pass

    from proctor.envs.plume.movies import MoviePlume

    with pytest.raises(ComponentError, match="MoviePlume"):
        BatchedPlumeSearch(2, plume_model=MoviePlume(np.zeros((2, 4, 4))))
    with pytest.raises(ComponentError, match="Mine"):
        BatchedPlumeSearch(2, action_processor=Mine())


@pytest.mark.parametrize(
    "reward",
    [
        {"type": "step_penalty", "step_penalty": -1e308},
        {"type": "step_penalty", "step_penalty": 1e308},
        {"type": "step_penalty", "goal_reward": 1e308},
        {"type": "shaped", "inner": {"type": "step_penalty", "step_penalty": 1e308}},
        {"type": "shaped", "scale": 1e307},
        {"type": "shaped", "scale": -1e305, "discount": 1000.0},
        {"type": "shaped", "scale": 1e308, "discount": 0.0},
    ],
)
def test_rewards_whose_total_may_be_infinite_cannot_be_batched(reward: dict[str, Any]) -> None:
    with pytest.raises(ComponentError, match=r"cannot be batched: the total reward .* over 6 steps is finite"):
        BatchedPlumeSearch(2, config={"reward": reward}, **SMALL)


HUGE = st.floats(1e303, allow_infinity=False) | st.floats(max_value=-1e303, allow_infinity=False) | st.just(0.0)


@given(inner=st.tuples(HUGE, HUGE), scale=HUGE, discount=st.floats(0, 1e5), max_steps=st.integers(1, 6))
@settings(max_examples=60)
def test_what_is_batched_has_finite_totals(
    inner: tuple[float, float], scale: float, discount: float, max_steps: int
) -> None:
    goal = {"type": "step_penalty", "goal_reward": inner[0], "step_penalty": inner[1]}
    reward = {"type": "shaped", "inner": goal, "scale": scale, "discount": discount}
    keywords = {"grid_size": (4, 3), "max_steps": max_steps, "config": {"reward": reward}}
    try:
        mirror = Mirror(keywords, 3, AutoresetMode.SAME_STEP)
    except ComponentError:
        return
    mirror.reset(0)

    for action in range(12):
        mirror.step(np.full(3, action % 4))  # in which the single environments would refuse an infinite total


@pytest.mark.parametrize("plume", ["gaussian", "advected", "puffs"])
def test_a_number_of_environments_of_numpy_s_is_a_plain_one_everywhere(
    plume: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def noting(real: Any) -> Any:
        def noted(part: Any, number: Any) -> Any:
            seen.append(number)
            return real(part, number)

        return noted

    for module, name in ((batched_env, "batch_space"), (batch_module, "make_batched_field")):
        monkeypatch.setattr(module, name, noting(getattr(module, name)))

    batch = BatchedPlumeSearch(np.uint8(3), config={"plume": plume}, **SMALL)  # type: ignore[arg-type]  # as numpy users do

    assert [type(number) for number in (*seen, batch.num_envs)] == [int] * 4
    assert batch.reset(seed=0)[0].shape == (3, 1)


def test_gymnasium_makes_the_batch_by_default_and_its_statistics_work() -> None:
    envs = RecordEpisodeStatistics(gym.make_vec("proctor/PlumeSearch-v0", num_envs=5, **SMALL))
    envs.reset(seed=0)

    lengths = []
    for t in range(40):
        info = envs.step(np.full(5, t % 4))[4]
        if "episode" in info:
            lengths += info["episode"]["l"][info["_episode"]].tolist()

    assert isinstance(envs.unwrapped, BatchedPlumeSearch)
    assert lengths
    assert set(lengths) <= set(range(1, 7))


@pytest.mark.parametrize("observation", ["concentration", "binary_hit", "poisson_hits", "antennae", "wind"])
def test_observations_lie_in_the_batched_space(observation: str) -> None:
    envs = BatchedPlumeSearch(3, config={"plume": "puffs", "observation": observation})

    assert envs.observation_space.contains(envs.reset(seed=0)[0])


def test_without_numba_the_error_names_the_extra() -> None:
    script = (
        "import sys; sys.modules['numba'] = None\n"
        "import gymnasium as gym\n"
        "gym.make('proctor/PlumeSearch-v0').reset()\n"
        "try:\n    gym.make_vec('proctor/PlumeSearch-v0', num_envs=2)\n"
        "except ImportError as error:\n    print(error)\n"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True)

    assert "pip install 'proctor-rl[vector]'" in done.stdout


def test_a_goal_at_the_start_ends_on_the_first_step_in_both() -> None:
    mirror = Mirror({"grid_size": (1, 1), "max_steps": 3}, 2, AutoresetMode.SAME_STEP)
    mirror.reset(0)

    mirror.step(np.zeros(2, np.int64))

    assert isinstance(mirror.singles[0], PlumeSearchEnv)
    assert mirror.episodes == 4
