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

from proctor.contracts.chance import SEED_LIMIT, next_seed
from proctor.envs.plume import batch as batch_module
from proctor.envs.plume.actions import DiscreteGridActions
from proctor.envs.plume.batch import BatchedPlumeSearch
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.errors import ComponentError, StateError, ValidationError
from tests.envs.plume.mirror import Mirror, same, settings_of_a_batch

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
def test_a_thousand_episodes_of_each_plume_and_mode_agree(plume: str, mode: AutoresetMode) -> None:
    mirror = Mirror({"grid_size": (12, 10), "max_steps": 15, "config": {"plume": plume}}, 16, mode)
    mirror.reset(seed=11)
    rng = np.random.default_rng(5)

    while mirror.episodes < 1000:
        mirror.step(rng.integers(0, 4, 16))


def test_start_and_orientation_hold_for_every_sub_environment() -> None:
    keywords = {**SMALL, "config": {"action": "oriented_grid", "observation": "antennae"}}
    mirror = Mirror(keywords, 3, AutoresetMode.NEXT_STEP)
    mirror.reset(5, {"start": (1, 2), "orientation": 45.5})
    rng = np.random.default_rng(0)

    for _ in range(20):
        mirror.step(rng.integers(0, 3, 3))


def test_an_orientation_alone_keeps_the_drawn_starts() -> None:
    keywords = {**SMALL, "config": {"action": "oriented_grid", "observation": "antennae"}}
    mirror = Mirror(keywords, 3, AutoresetMode.NEXT_STEP)

    mirror.reset(5, {"orientation": 90.0})


def test_later_episodes_have_the_seeds_that_the_root_predicts() -> None:
    batch = BatchedPlumeSearch(2, grid_size=(9, 7), max_steps=1)
    batch.reset(seed=40)
    batch.step(np.zeros(2, np.int64))

    info = batch.step(np.zeros(2, np.int64))[4]

    assert info["seed"].tolist() == [next_seed(40, 1), next_seed(41, 1)]
    assert info["_seed"].all()


def test_an_unseeded_reset_goes_on_with_the_generator() -> None:
    one, other = (BatchedPlumeSearch(3, **SMALL) for _ in range(2))
    one.reset(seed=3)
    other.reset(seed=3)

    assert one.reset()[1]["seed"].tolist() == other.reset()[1]["seed"].tolist()
    assert one.reset()[1]["seed"].tolist() != other.reset(seed=3)[1]["seed"].tolist()


@pytest.mark.parametrize(
    "seed",
    [np.array(5), np.array(5, np.uint8), [5, 6, 7], (5, 6, 7), np.array([5, 6, 7]), [np.array(5), np.int64(6), 7]],
)
def test_a_seed_is_an_integer_in_any_form_or_one_each(seed: Any) -> None:
    batch = BatchedPlumeSearch(3, **SMALL)

    _, info = batch.reset(seed=seed)

    assert info["seed"].tolist() == [5, 6, 7]


def test_a_seed_that_a_list_leaves_open_is_drawn_from_the_generator() -> None:
    one, other = (BatchedPlumeSearch(3, **SMALL) for _ in range(2))
    one.reset(seed=1)
    other.reset(seed=1)

    drawn = [one.reset(seed=[None, 8, None])[1]["seed"].tolist() for _ in range(2)]
    again = [other.reset(seed=[None, 8, None])[1]["seed"].tolist() for _ in range(2)]

    assert drawn == again
    assert [seeds[1] for seeds in drawn] == [8, 8]
    assert len({seed for seeds in drawn for seed in seeds}) == 5


@given(seeds=st.lists(st.none() | st.integers(0, SEED_LIMIT - 1), min_size=2, max_size=2))
@settings(max_examples=25)
def test_every_episode_that_a_list_begins_is_replayed_by_the_seed_it_reports(seeds: list[int | None]) -> None:
    batch, single = BatchedPlumeSearch(2, **SMALL), PlumeSearchEnv(**SMALL)

    observation, info = batch.reset(seed=seeds)

    for i, seed in enumerate(seeds):
        assert seed in (None, info["seed"][i])
        assert same(observation[i], single.reset(seed=int(info["seed"][i]))[0])


@pytest.mark.parametrize(
    "seed",
    [
        -1,
        1.0,
        True,
        SEED_LIMIT,
        SEED_LIMIT - 1,
        [1, 2],
        [1, 2, -3],
        "123",
        b"123",
        bytearray(3),
        memoryview(b"123"),
        {1, 2, 3},
        [1, 2, True],
        [None, None, "3"],
        [None, None],
        [1, 2, [3]],
        np.array(5.0),
        np.array(True),
        np.array(None),
        np.array(-5),
        np.array([1.0, 2.0, 3.0]),
        np.ones((3, 1), np.int64),
        np.array([1, 2]),
    ],
)
def test_a_bad_seed_changes_nothing(seed: Any) -> None:
    batch = BatchedPlumeSearch(3, **SMALL)
    batch.reset(seed=1)
    before = pickle.dumps(batch)

    with pytest.raises(ValidationError) as caught:
        batch.reset(seed=seed)

    assert caught.value.clause == "ENV-RESET-P2"
    assert pickle.dumps(batch) == before


@pytest.mark.parametrize(
    "options",
    [
        5,
        [("start", (1, 1))],
        {"start": (9, 0)},
        {"orientation": "north"},
        {"unknown": 1},
        {"reset_mask": [True, False, True]},
        {"reset_mask": np.zeros(3, np.bool_)},
        {"reset_mask": np.ones(2, np.bool_)},
        {"reset_mask": np.ones(3, np.int64)},
    ],
)
def test_bad_options_change_nothing(options: Any) -> None:
    batch = BatchedPlumeSearch(3, **SMALL)
    batch.reset(seed=1)
    before = pickle.dumps(batch)

    with pytest.raises(ValidationError) as caught:
        batch.reset(seed=2, options=options)

    assert caught.value.clause == "ENV-RESET-P3"
    assert pickle.dumps(batch) == before


@pytest.mark.parametrize(
    "actions",
    [
        np.array([0, 1, 4]),
        np.array([0, -1, 3]),
        np.array([0.0, 1.0, 2.0]),
        np.array([True, False, True]),
        np.array([0, 1]),
        np.zeros((3, 1), np.int64),
        [0, 1, 9],
        None,
        [[1], [1, 2]],
        [[1], [1, 2], 3],
        [2**70, 0, 1],
        np.array([0, 1, 2**64 - 1], np.uint64),
    ],
)
@pytest.mark.parametrize("config", [{"action": "discrete_grid"}, {"plume": "puffs"}])
def test_a_batch_with_an_illegal_action_changes_nothing(actions: Any, config: dict[str, Any]) -> None:
    batch = BatchedPlumeSearch(3, config=config, **SMALL)
    batch.reset(seed=1)
    batch.step(np.array([0, 1, 2]))
    before = pickle.dumps(batch)

    with pytest.raises(ValidationError) as caught:
        batch.step(actions)

    assert caught.value.clause == "ENV-STEP-P2"
    assert pickle.dumps(batch) == before


@pytest.mark.parametrize("actions", [np.array([0, 2**64 - 1, 9], np.uint64), np.array([0, 255, 9], np.uint8)])
def test_the_first_illegal_action_is_reported_as_it_was(actions: Any) -> None:
    batch = BatchedPlumeSearch(3, **SMALL)
    batch.reset(seed=1)

    with pytest.raises(ValidationError, match="sub-environment 1") as caught:
        batch.step(actions)

    assert caught.value.found == int(actions[1])


@pytest.mark.parametrize(
    "actions",
    [
        [0, 1, 2],
        np.array([0, 1, 2], np.uint8),
        np.array([0, 9, 1, 9, 2, 9])[::2],
        np.broadcast_to(np.array([1]), (3,)),
    ],
)
def test_any_integers_of_the_right_shape_are_actions(actions: Any) -> None:
    one, other = (BatchedPlumeSearch(3, **SMALL) for _ in range(2))
    one.reset(seed=1)
    other.reset(seed=1)

    assert np.array_equal(one.step(actions)[0], other.step(np.array(actions, np.int64))[0])


def test_what_a_step_returns_is_never_changed_by_a_later_one() -> None:
    batch = BatchedPlumeSearch(4, **SMALL)
    returned = [*batch.reset(seed=1)]
    for t in range(20):
        returned += batch.step(np.full(4, t % 4))
    before = pickle.dumps(returned)

    for t in range(20):
        batch.step(np.full(4, t % 4))

    assert pickle.dumps(returned) == before


def test_writing_to_what_a_step_returned_never_reaches_the_batch() -> None:
    one, other = (BatchedPlumeSearch(4, config={"observation": "antennae"}, **SMALL) for _ in range(2))
    one.reset(seed=1)
    other.reset(seed=1)

    for t in range(30):
        spoiled, kept = one.step(np.full(4, t % 4)), other.step(np.full(4, t % 4))
        for mine, theirs in zip(spoiled[:4], kept[:4], strict=True):
            assert np.array_equal(mine, theirs)
            mine[...] = 1
        for array in spoiled[4].values():
            if array.flags.writeable:
                array[...] = 1


def test_a_step_is_refused_before_a_reset_and_after_close() -> None:
    batch = BatchedPlumeSearch(2, **SMALL)
    with pytest.raises(StateError) as early:
        batch.step(np.zeros(2, np.int64))
    batch.close()
    batch.close()
    with pytest.raises(StateError) as late:
        batch.step(np.zeros(2, np.int64))
    with pytest.raises(StateError) as reset:
        batch.reset()

    assert (early.value.clause, late.value.clause) == ("NO-STEP-BEFORE-RESET", "NO-STEP-AFTER-CLOSE")
    assert reset.value.clause == "NO-RESET-AFTER-CLOSE"


def test_without_autoreset_an_ended_episode_must_be_reset_first() -> None:
    batch = BatchedPlumeSearch(2, autoreset_mode="Disabled", grid_size=(9, 7), max_steps=1)
    batch.reset(seed=1)
    batch.step(np.zeros(2, np.int64))

    with pytest.raises(StateError) as caught:
        batch.step(np.zeros(2, np.int64))

    assert caught.value.clause == "NO-STEP-AFTER-END"
    assert caught.value.found == [0, 1]


def test_the_first_reset_cannot_be_partial() -> None:
    batch = BatchedPlumeSearch(2, **SMALL)

    with pytest.raises(StateError):
        batch.reset(options={"reset_mask": np.array([True, False])})


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


@pytest.mark.parametrize("observation", ["wind", {"type": "dict", "sensors": {"a": "wind"}}])
def test_a_wind_sensor_without_wind_is_refused(observation: Any) -> None:
    with pytest.raises(ComponentError, match="wind"):
        BatchedPlumeSearch(2, config={"observation": observation})


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

    for name in ("batch_space", "batched_field"):
        monkeypatch.setattr(batch_module, name, noting(getattr(batch_module, name)))

    batch = BatchedPlumeSearch(np.uint8(3), config={"plume": plume}, **SMALL)  # type: ignore[arg-type]  # as numpy users do

    assert [type(number) for number in (*seen, batch.num_envs)] == [int] * 4
    assert batch.reset(seed=0)[0].shape == (3, 1)


@pytest.mark.parametrize("num_envs", [0, -1, 2.0, True, 2**31, 2**70])
def test_a_bad_number_of_environments_is_refused(num_envs: Any) -> None:
    with pytest.raises(ValidationError):
        BatchedPlumeSearch(num_envs)


def test_a_batch_neither_renders_nor_knows_other_modes() -> None:
    with pytest.raises(ValidationError) as rendering:
        BatchedPlumeSearch(2, render_mode="rgb_array")
    with pytest.raises(ValidationError):
        BatchedPlumeSearch(2, autoreset_mode="sometimes")

    assert rendering.value.clause == "ENV-INIT-P6"


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


def test_observations_lie_in_the_batched_space() -> None:
    for observation in ("concentration", "binary_hit", "poisson_hits", "antennae", "wind"):
        config = {"plume": "puffs", "observation": observation}
        envs = gym.make_vec("proctor/PlumeSearch-v0", num_envs=3, config=config)
        observed, _ = envs.reset(seed=0)

        assert envs.observation_space.contains(observed)


def test_without_numba_the_error_names_the_extra() -> None:
    script = (
        "import sys; sys.modules['numba'] = None\n"
        "import gymnasium as gym\n"
        "gym.make('proctor/PlumeSearch-v0').reset()\n"
        "try:\n    gym.make_vec('proctor/PlumeSearch-v0', num_envs=2)\n"
        "except ImportError as error:\n    print(error)\n"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)

    assert "pip install 'proctor[vector]'" in done.stdout


def test_a_goal_at_the_start_ends_on_the_first_step_in_both() -> None:
    mirror = Mirror({"grid_size": (1, 1), "max_steps": 3}, 2, AutoresetMode.SAME_STEP)
    mirror.reset(0)

    mirror.step(np.zeros(2, np.int64))

    assert isinstance(mirror.singles[0], PlumeSearchEnv)
    assert mirror.episodes == 4
