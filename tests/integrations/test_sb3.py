"""A vector environment keeps stable-baselines3's customs; what needs the library itself is in tests/system."""

import sys
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from hypothesis import given
from hypothesis import strategies as st

from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.plume.vector.batched_env import BatchedPlumeSearch
from proctor.envs.popper.env import ColumnPopperEnv
from proctor.envs.popper.vector.batched_env import BatchedColumnPopper
from proctor.errors import MissingExtraError, ValidationError
from proctor.integrations import sb3
from proctor.integrations.sb3 import VecEnvAdapter, as_sb3, select_info

SAME_STEP = AutoresetMode.SAME_STEP
FALL = 3


class Seat:
    """What the adapter needs of VecEnv: a constructor of three."""

    def __init__(self, num_envs: int, observation_space: Any, action_space: Any) -> None:
        self.spaces = observation_space, action_space


class Seated(VecEnvAdapter, Seat):
    """The adapter without stable-baselines3."""


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def plumes(num_envs: int = 3, **settings: Any) -> VectorEnv[Any, Any, Any]:
    settings = {"grid_size": (9, 7), "max_steps": 5, **settings}
    return BatchedPlumeSearch(num_envs, autoreset_mode=SAME_STEP, **settings)


def poppers(num_envs: int = 3, **settings: Any) -> VectorEnv[Any, Any, Any]:
    return SyncVectorEnv([lambda: ColumnPopperEnv(**settings)] * num_envs, autoreset_mode=SAME_STEP)


def batched(num_envs: int = 3, **settings: Any) -> VectorEnv[Any, Any, Any]:
    return BatchedColumnPopper(num_envs, autoreset_mode=SAME_STEP, **settings)


def seated(vector_env: VectorEnv[Any, Any, Any], clock: Any = None) -> Seated:
    # Seeded once, so that every later start, asked for without a seed, is the same in every run.
    vector_env.reset(seed=5)
    return Seated(vector_env, clock or Clock())


def step(env: VecEnvAdapter, actions: Any) -> Any:
    env.step_async(np.asarray(actions))
    return env.step_wait()


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
def test_a_vector_that_restarts_later_is_refused_with_the_way_to_make_it(mode: AutoresetMode) -> None:
    with pytest.raises(ValidationError, match='autoreset_mode="SameStep"') as refusal:
        as_sb3(BatchedPlumeSearch(2, autoreset_mode=mode))

    assert refusal.value.found == mode


def test_a_vector_that_does_not_say_when_it_restarts_is_refused() -> None:
    env = plumes()
    env.metadata = {}

    with pytest.raises(ValidationError, match="found None"):
        as_sb3(env)


def test_the_ways_to_make_it_that_the_refusal_names_work() -> None:
    own = gym.make_vec("proctor/PlumeSearch-v0", num_envs=2, autoreset_mode="SameStep")
    theirs = gym.make_vec(
        "proctor/PlumeSearch-v0", num_envs=2, vectorization_mode="sync", vector_kwargs={"autoreset_mode": "SameStep"}
    )

    assert own.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"] == SAME_STEP


def test_without_stable_baselines3_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("stable_baselines3", "stable_baselines3.common.vec_env"):
        monkeypatch.setitem(sys.modules, module, None)
    sb3._vec_env_class.cache_clear()

    with pytest.raises(MissingExtraError, match=r"proctor-rl\[train\]"):
        as_sb3(plumes())


@pytest.mark.parametrize("make", [poppers, batched])
def test_where_an_episode_ends_the_observation_is_the_next_ones_first(make: Any) -> None:
    clock = Clock()
    env = seated(make(2, duration_ms=200), clock)
    env.seed(11)
    env.reset()
    twin = ColumnPopperEnv(duration_ms=200)
    twin.reset(seed=12)
    twin.step(FALL)

    step(env, [0, FALL])
    clock.now = 2.5
    observations, rewards, dones, infos = step(env, [0, 1])
    last, _, _, truncated, last_info = twin.step(1)
    first, first_info = twin.reset(seed=int(env.reset_infos[1]["seed"]))

    assert truncated
    assert dones.tolist() == [True, True]
    assert all(np.array_equal(infos[1]["terminal_observation"][part], last[part]) for part in last)
    assert all(np.array_equal(observations[part][1], first[part]) for part in first)
    assert infos[1]["score"] == last_info["score"]
    assert infos[1]["reward_parts"] == last_info["reward_parts"]
    assert env.reset_infos[1].keys() <= first_info.keys()
    assert env.reset_infos[1]["seed"] != 12
    assert infos[1]["episode"] == {"r": pytest.approx(2 * (1 - 0.01) - 0.5), "l": 2, "t": 2.5}
    assert rewards[1] == np.float32(1 - 0.01 - 0.5)


def test_only_an_episode_that_was_cut_off_counts_as_truncated() -> None:
    env = seated(plumes(2, grid_size=(3, 3), max_steps=1, source_location=(1, 1), goal_radius=1.0))
    env.set_options({"start": (0, 0)})
    env.reset()

    # North from a corner reaches the goal on the very last step; south stays outside until time is up.
    _, _, dones, infos = step(env, [0, 2])

    assert dones.tolist() == [True, True]
    assert [info["TimeLimit.truncated"] for info in infos] == [False, True]
    assert [bool(info["goal_reached"]) for info in infos] == [True, False]


def test_an_info_is_empty_until_an_episode_ends_and_nobody_shares_it() -> None:
    env = seated(plumes(3, max_steps=4))
    env.reset()

    infos = step(env, [0, 1, 2])[3]

    assert infos == [{}, {}, {}]
    assert infos[0] is not infos[1]


def test_returns_and_lengths_begin_anew_with_every_episode() -> None:
    env = seated(poppers(1, duration_ms=300))
    env.reset()
    step(env, [FALL])
    env.reset()

    episodes = [info["episode"] for _ in range(6) for info in step(env, [FALL])[3] if info]

    assert [(episode["r"], episode["l"]) for episode in episodes] == [(pytest.approx(3 * 0.99 - 0.5), 3)] * 2


def test_what_a_step_returns_may_be_written_to() -> None:
    env = seated(plumes())
    observations = env.reset()

    later, rewards, dones, _ = step(env, [0, 1, 2])
    rewards += 5

    assert rewards.dtype == np.float32
    assert dones.dtype == np.bool_
    assert not np.shares_memory(observations, later)
    assert env._returns.max() <= 1.0


def test_seeds_and_options_hold_for_one_reset() -> None:
    env = seated(plumes(3))

    assert env.seed(40) == [40, 41, 42]
    env.set_options({"start": (2, 1)})
    env.reset()
    once = env.reset_infos
    env.reset()

    assert [info["seed"] for info in once] == [40, 41, 42]
    assert all(tuple(info["agent_xy"]) == (2, 1) for info in once)
    assert [info["seed"] for info in env.reset_infos] != [40, 41, 42]
    assert env.seed() == [None, None, None]


def test_options_that_differ_are_refused() -> None:
    env = seated(plumes(2))
    env.set_options([{"start": (1, 1)}, {"start": (1, 1)}])

    different: list[list[dict[str, Any]]] = [[{"start": (1, 1)}, {}], [], [{}] * 3]
    for options in different:
        with pytest.raises(ValidationError, match="share their options"):
            env.set_options(options)


def test_options_with_arrays_are_compared_by_their_values() -> None:
    env = seated(batched(2))
    board = np.zeros((12, 3), int)
    env.set_options([{"board": board}, {"board": board.copy()}])

    assert not env.reset()["board"].any()


def test_options_that_a_reset_refuses_are_given_up() -> None:
    env = seated(batched(2))
    env.set_options({"board": [[1]]})
    with pytest.raises(ValidationError):
        env.reset()

    assert env.reset()["board"].any()


@pytest.mark.parametrize("make", [poppers, batched])
def test_the_masks_are_those_of_the_observation_at_hand(make: Any) -> None:
    env = seated(make(2, duration_ms=200))
    board = np.zeros((12, 3), int)
    board[:, 0] = [1, 2] * 6
    board[0, 1] = 3
    env.set_options({"board": board})

    env.reset()
    told = [[mask.tolist() for mask in env.env_method("action_masks")]]
    for _ in range(2):
        step(env, [1, 1])
        told.append([mask.tolist() for mask in env.env_method("action_masks")])

    # An empty column gives nothing, a full one takes nothing, and the next episode's first board allows all.
    assert told == [[[1, 1, 0, 1]] * 2, [[0, 1, 1, 1]] * 2, [[1, 1, 1, 1]] * 2]
    assert env.env_method("action_masks", indices=1)[0].tolist() == [1, 1, 1, 1]
    assert [ask().tolist() for ask in env.get_attr("action_masks")] == told[-1]


def test_an_environment_without_masks_has_no_such_method() -> None:
    env = seated(plumes())

    with pytest.raises(AttributeError, match="no action_mask"):
        env.get_attr("action_masks")


def test_attributes_are_those_of_the_vector_environment() -> None:
    env = seated(RecordEpisodeStatistics(plumes(3)))

    assert env.get_attr("render_mode") == [None] * 3
    assert env.get_attr("autoreset_mode", indices=[0, 2]) == [SAME_STEP] * 2
    with pytest.raises(AttributeError):
        env.get_attr("colour")
    with pytest.raises(AttributeError, match="no method 'render'"):
        env.env_method("render")


def test_what_a_batch_was_made_with_cannot_be_set() -> None:
    with pytest.raises(ValidationError, match="'max_steps' cannot be set"):
        seated(plumes()).set_attr("max_steps", 7)


def test_it_counts_as_monitored_and_as_nothing_else() -> None:
    class Monitor: ...

    env = seated(plumes(2))

    assert env.env_is_wrapped(Monitor) == [True, True]
    assert env.env_is_wrapped(gym.Wrapper, indices=0) == [False]


def test_closing_closes_the_vector_environment() -> None:
    env = seated(plumes())

    env.close()

    assert env.vector_env.closed


def test_one_sub_environment_is_enough() -> None:
    env = seated(plumes(1, max_steps=2))
    env.reset()

    ends = [step(env, [0])[2].tolist() for _ in range(4)]

    assert ends == [[False], [True], [False], [True]]


def test_the_spaces_are_those_of_one_sub_environment() -> None:
    single = PlumeSearchEnv(grid_size=(9, 7))

    assert seated(plumes()).spaces == (single.observation_space, single.action_space)


@given(
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={"fault": st.text(), "score": st.integers(0, 99), "parts": st.just({}) | st.just({"step": 1.5})},
        )
    )
)
def test_a_row_says_what_its_sub_environment_said(rows: list[dict[str, Any]]) -> None:
    vector: VectorEnv[Any, Any, Any] = VectorEnv()
    vector.num_envs = len(rows)
    info: dict[str, Any] = {}
    for i, row in enumerate(rows):
        info = vector._add_info(info, row, i)

    told = [select_info(info, i) for i in range(len(rows))]

    assert told == rows


def test_a_value_that_is_no_array_is_everybodys() -> None:
    assert select_info({"version": "1.0.0", "seeds": [4, 5]}, 1) == {"version": "1.0.0", "seeds": 5}
