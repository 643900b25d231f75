"""What every environment of ours shares: the lifecycle, seeds, options, counters, and the window."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from proctor.contracts.chance import SEED_LIMIT
from proctor.contracts.guarded_env import GuardedEnv, parse_reset_options, parse_seed
from proctor.contracts.lifecycle import AFTER_STEP, EnvironmentState, LifecycleMethod, guard
from proctor.errors import StateError, ValidationError


class Counting(GuardedEnv[Any, Any]):
    """Counts to three; the least that an environment must bring."""

    metadata = {"render_modes": ["human", "rgb_array"], "render_fps": 1}
    reset_options = ("from",)
    observation_space = spaces.Discrete(100)
    action_space = spaces.Discrete(1)

    def __init__(self, render_mode: str | None = None) -> None:
        super().__init__(render_mode)
        self.window = Mock(["show", "close"])
        self.fails = False
        self.started_with: list[int] = []

    def _check_options(self, options: dict[str, Any], episode_seed: int | None) -> None:
        if options.get("from", 0) < 0:
            raise ValidationError("too low", found=options["from"], clause="ENV-RESET-P3")

    def _start(self, episode_seed: int, options: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if self.fails:
            raise RuntimeError("no start")
        self.started_with.append(episode_seed)
        return options.get("from", 0), {"from": options.get("from", 0)}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        guard(self._state, LifecycleMethod.STEP)
        self._step_count += 1
        self._state = AFTER_STEP[False, self._step_count == 3]
        return self._step_count, 0.0, False, self._step_count == 3, {}

    def scene(self) -> dict[str, Any]:
        return {"count": self._step_count}

    def _draw(self, scene: dict[str, Any]) -> Any:
        return np.full((1, 1, 3), scene["count"], np.uint8)

    def _open_window(self) -> Mock:
        return self.window


class Bare(GuardedEnv[Any, Any]):
    metadata = {"render_modes": ["rgb_array"]}


@given(st.integers(0, SEED_LIMIT - 1))
def test_a_seed_in_range_is_taken_as_a_plain_int(seed: int) -> None:
    assert parse_seed(seed) == parse_seed(np.int64(seed)) == seed
    assert type(parse_seed(np.uint32(seed))) is int


@given(
    st.integers(max_value=-1) | st.integers(min_value=SEED_LIMIT) | st.booleans() | st.floats() | st.text() | st.none()
)
def test_anything_else_is_no_seed(seed: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        parse_seed(seed)

    assert caught.value.clause == "ENV-RESET-P2"


@given(st.dictionaries(st.sampled_from("abc"), st.integers()))
def test_known_options_pass_as_they_are(options: dict[str, int]) -> None:
    assert parse_reset_options(options, ("a", "b", "c")) is options
    assert parse_reset_options(None, ("a",)) == {}


@pytest.mark.parametrize(
    ("options", "known", "words"),
    [([("a", 1)], ("a",), "a dict or None"), ({"z": 1}, ("a", "b"), "only a, b"), ({"z": 1}, (), "no options")],
)
def test_options_that_are_not_known_are_refused_with_those_that_are(options: Any, known: Any, words: str) -> None:
    with pytest.raises(ValidationError, match=words) as caught:
        parse_reset_options(options, known)

    assert caught.value.clause == "ENV-RESET-P3"


def test_a_render_mode_that_is_not_listed_is_refused() -> None:
    with pytest.raises(ValidationError) as caught:
        Counting(render_mode="ansi")

    assert (caught.value.found, caught.value.clause) == ("ansi", "ENV-INIT-P6")


def test_reset_reports_seed_and_episode_and_what_the_start_says() -> None:
    env = Counting()
    first = env.reset(seed=5, options={"from": 2})
    env.step(0)
    _, info = env.reset(seed=6)

    assert first == (2, {"seed": 5, "episode": 1, "from": 2})
    assert (info["episode"], env.step_count, env.seed) == (2, 0, 6)


def test_unseeded_resets_follow_from_the_last_seed_and_replay_by_the_reported_one() -> None:
    one, other = Counting(), Counting()
    one.reset(seed=9)
    other.reset(seed=9)
    drawn = [one.reset()[1]["seed"] for _ in range(3)]

    assert drawn == [other.reset()[1]["seed"] for _ in range(3)]
    assert len(set(drawn)) == 3
    assert one.started_with == [9, *drawn]


@pytest.mark.parametrize("arguments", [{"seed": -1}, {"options": 3}, {"options": {"z": 1}}, {"options": {"from": -1}}])
def test_a_refused_reset_changes_nothing(arguments: dict[str, Any]) -> None:
    env = Counting()
    env.reset(seed=1)
    env.step(0)

    with pytest.raises(ValidationError):
        env.reset(**arguments)

    assert (env.state, env.step_count, env.episode_count, env.seed) == (EnvironmentState.READY, 1, 1, 1)


@pytest.mark.parametrize("seed", [None, 77])
def test_a_start_that_fails_leaves_no_trace_not_even_in_the_generator(seed: int | None) -> None:
    env, twin = Counting(), Counting()
    for each in (env, twin):
        each.reset(seed=1)
    env.fails = True
    for _ in range(2):
        with pytest.raises(RuntimeError):
            env.reset(seed=seed)
    env.fails = False

    assert (env.episode_count, env.seed, env.state) == (1, 1, EnvironmentState.READY)
    assert [env.reset()[1]["seed"] for _ in range(3)] == [twin.reset()[1]["seed"] for _ in range(3)]


def test_a_seed_given_after_a_failed_start_counts() -> None:
    env, twin = Counting(), Counting()
    env.fails = True
    for seed in (None, 8):
        with pytest.raises(RuntimeError):
            env.reset(seed=seed)
        assert (env.state, env.episode_count, env.seed) == (EnvironmentState.CREATED, 0, None)
    env.fails = False
    for each in (env, twin):
        each.reset(seed=4)

    assert env.reset()[1]["seed"] == twin.reset()[1]["seed"]


@pytest.mark.parametrize(
    ("call", "closed", "rule"),
    [
        ("reset", True, "NO-RESET-AFTER-CLOSE"),
        ("render", True, "NO-RENDER-AFTER-CLOSE"),
        ("render", False, "NO-RENDER-BEFORE-RESET"),
    ],
)
def test_a_closed_environment_and_one_that_was_never_reset_refuse(call: str, closed: bool, rule: str) -> None:
    env = Counting()
    if closed:
        env.close()

    with pytest.raises(StateError) as caught:
        getattr(env, call)()

    assert caught.value.clause == rule


def test_an_array_is_returned_in_the_mode_rgb_array() -> None:
    env = Counting(render_mode="rgb_array")
    env.reset(seed=1)
    env.step(0)
    picture = env.render()

    assert picture.tolist() == [[[1, 1, 1]]]
    assert not env.window.show.called


def test_the_mode_human_shows_a_picture_at_reset_and_closes_its_window_once() -> None:
    env = Counting(render_mode="human")
    env.reset(seed=1)
    answer = env.render()
    env.close()
    env.close()

    assert answer is None
    assert env.window.show.call_count == 2
    assert env.window.close.call_count == 1


def test_a_reset_that_cannot_be_shown_is_taken_back() -> None:
    env = Counting(render_mode="human")
    env.window.show.side_effect = ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        env.reset(seed=1)

    assert (env.state, env.episode_count, env.seed) == (EnvironmentState.CREATED, 0, None)


def test_a_window_that_does_not_close_stops_nobody() -> None:
    env = Counting(render_mode="human")
    env.reset(seed=1)
    env.window.close.side_effect = ZeroDivisionError

    env.close()

    assert env.state is EnvironmentState.CLOSED


@pytest.mark.parametrize(
    ("name", "arguments"), [("scene", ()), ("_start", (1, {})), ("_draw", ({},)), ("_open_window", ()), ("reset", ())]
)
def test_what_an_environment_must_bring_itself_is_named_by_its_absence(name: str, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(NotImplementedError):
        getattr(Bare(None), name)(*arguments)
