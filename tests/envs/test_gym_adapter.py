"""Any Gymnasium environment as an `Environment`: its models, and its pictures."""

import json
import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pydantic
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Text, Tuple
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import StrictInt

from proctor.contracts.tools import ToolPlan, ToolSafety, tool
from proctor.envs.gym_adapter import (
    MOST_BYTES,
    AdaptedAction,
    AdaptedEnvironment,
    AdaptedObservation,
    GymEnvironment,
    is_quick,
    render_scene,
)
from proctor.errors import ComponentError, StateError, ValidationError
from proctor.models.arrays import unpack_array
from proctor.models.events import SessionOpened
from proctor.models.infos import OMITTED
from proctor.models.wire import Action, Encoding, State
from proctor.replay.replayer import replay_rows
from tests.models.space_strategies import identical, members, spaces
from tests.replay.recorded_ledgers import Play, Sitting, record, rows_of


class Echo(gym.Env[Any, Any]):
    """

    ## Heading
    An environment that observes what it is told to.
    """

    def __init__(self, action: gym.Space[Any] | None = None, observation: gym.Space[Any] | None = None) -> None:
        self.action_space = Discrete(3) if action is None else action
        self.observation_space = Box(0, 1, (2,), np.float32) if observation is None else observation
        self.seen: Any = np.zeros(2, np.float32)
        self.reward: Any = 1.0
        self.flags: tuple[Any, Any] = (False, False)
        self.info: dict[str, Any] = {}
        self.calls: list[tuple[str, Any]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.calls.append(("reset", (seed, options)))
        return self.seen, self.info

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.calls.append(("step", action))
        return self.seen, self.reward, *self.flags, self.info

    def close(self) -> None:
        self.calls.append(("close", None))


class SlowWrapper(gym.Wrapper[Any, Any, Any, Any]):
    """A wrapper that nobody knows."""


@st.composite
def spaces_with_members(draw: st.DrawFn) -> tuple[gym.Space[Any], Any]:
    space = draw(spaces(depth=2))
    return space, draw(members(space))


def act(environment: GymEnvironment, text: str) -> Any:
    return environment.step(environment.action_type.model_validate_json(text))


@settings(max_examples=50)
@given(action=spaces_with_members(), seen=spaces_with_members())
def test_a_step_carries_the_spaces_own_values_there_and_back(
    action: tuple[gym.Space[Any], Any], seen: tuple[gym.Space[Any], Any]
) -> None:
    env = Echo(action[0], seen[0])
    env.seen = seen[1]
    environment = GymEnvironment(env)
    sent = environment.action_type(action=action[1]).model_dump_json()

    answer = act(environment, sent)
    read = environment.observation_type.model_validate_json(answer.inside())

    assert identical(env.calls[-1][1], action[1])
    assert identical(read.observation, seen[1])


@given(seen=st.floats(width=32) | st.integers(-5, 5))
def test_what_is_written_fast_is_what_pydantic_writes(seen: float) -> None:
    env = Echo(observation=Dict(a=Box(0, 1, (), np.float32), b=Tuple((Text(3), Discrete(3)))))
    env.seen = {"a": np.float32(seen), "b": ("é", np.int64(2))}
    answer = GymEnvironment(env).reset()

    for encoding in (Encoding(), Encoding(packed=True)):
        written = answer.model_dump_json(include={"observation"}, context=encoding)
        assert json.loads(answer.inside(encoding)) == json.loads(written)


def test_a_real_environment_plays_as_it_does_without_us() -> None:
    alone = gym.make("CartPole-v1")
    environment = GymEnvironment(gym.make("CartPole-v1"))
    first, _ = alone.reset(seed=3)

    answers = [environment.reset(seed=3)]
    expected: list[Any] = [(first, None, False, False)]
    for step in range(12):
        expected.append(alone.step(np.int64(step % 2))[:4])
        answers.append(act(environment, f'{{"action": {step % 2}}}'))

    for answer, (observation, reward, terminated, truncated) in zip(answers, expected, strict=True):
        assert identical(answer.observation, observation)
        assert (answer.reward, answer.terminated, answer.truncated) == (reward, terminated, truncated)


@pytest.mark.parametrize(
    "env_id", ["Acrobot-v1", "MountainCarContinuous-v0", "Pendulum-v1", "FrozenLake-v1", "Taxi-v4", "Blackjack-v1"]
)
def test_gymnasiums_own_environments_take_what_the_model_reads(env_id: str) -> None:
    env = gym.make(env_id)
    environment = GymEnvironment(env)
    env.action_space.seed(1)
    environment.reset(seed=1)

    answer = environment.step(environment.action_type(action=env.action_space.sample()))

    json.loads(answer.inside())
    assert isinstance(answer.reward, float)
    assert environment.quick


@pytest.mark.parametrize(
    "text", ['{"action": 3}', '{"action": true}', '{"action": [1]}', "{}", '{"action": 1, "b": 2}', "3"]
)
def test_an_action_that_is_no_member_never_reaches_the_environment(text: str) -> None:
    env = Echo()

    with pytest.raises(pydantic.ValidationError):
        act(GymEnvironment(env), text)
    assert env.calls == []


def test_a_refused_action_is_told_what_would_be_legal() -> None:
    with pytest.raises(pydantic.ValidationError) as caught:
        act(GymEnvironment(Echo()), '{"action": 7}')

    (error,) = caught.value.errors()
    assert error["loc"] == ("action",)
    assert "an integer from 0 to 2" in error["msg"]


def test_info_becomes_metadata_as_far_as_json_goes() -> None:
    env = Echo()
    env.info = {"lives": np.int64(3), "mask": np.array([1, 0], np.int8), "p": math.inf, "raw": object()}

    answer = GymEnvironment(env).reset()

    assert answer.metadata == {"lives": 3, "mask": [1, 0], "p": "Infinity", OMITTED: ["raw"]}


@pytest.mark.parametrize(
    ("reward", "expected"), [(2, 2.0), (True, 1.0), (np.float32(0.5), 0.5), (np.array([1.5]), 1.5), (np.array(2), 2.0)]
)
def test_a_reward_is_a_float_whatever_number_it_was(reward: Any, expected: float) -> None:
    env = Echo()
    env.reward = reward
    env.flags = (np.bool_(True), np.bool_(False))

    answer = act(GymEnvironment(env), '{"action": 0}')

    assert (answer.terminated, answer.truncated, answer.done) == (True, False, True)
    assert type(answer.reward) is float
    assert answer.reward == expected


@pytest.mark.parametrize("reward", [math.nan, math.inf, None, "x", 1j, np.zeros(2), 10**400, np.float32("nan")])
def test_a_reward_that_is_no_finite_number_is_the_environments_fault(reward: Any) -> None:
    env = Echo()
    env.reward = reward
    environment = GymEnvironment(env)

    with pytest.raises(ComponentError, match="reward"):
        act(environment, '{"action": 0}')
    assert environment.state.step_count == 0


def test_an_observation_of_another_shape_is_the_environments_fault() -> None:
    env = Echo()
    env.seen = np.zeros(3)

    with pytest.raises(ComponentError, match="form"):
        GymEnvironment(env).reset().inside()


def test_an_observation_beyond_its_bounds_is_passed_on_and_read_back() -> None:
    env = Echo()
    env.seen = np.array([2, np.nan], np.float32)
    environment = GymEnvironment(env)

    written = environment.reset().inside()

    assert written == b'{"observation":[2.0,"NaN"]}'
    assert identical(environment.observation_type.model_validate_json(written).observation, env.seen)


def test_options_reach_the_next_reset_and_no_other() -> None:
    env = Echo()
    environment = GymEnvironment(env)
    environment.configure({"start": [1, 2]})

    environment.reset(seed=5)
    environment.reset()
    environment.configure({})
    environment.reset()

    assert [call[1] for call in env.calls] == [(5, {"start": [1, 2]}), (None, None), (None, None)]


def test_an_environment_of_ours_refuses_unknown_options_before_the_reset() -> None:
    environment = GymEnvironment(gym.make("proctor/PlumeSearch-v0"))

    with pytest.raises(ValidationError, match="unknown reset option"):
        environment.configure({"wind": 1})
    environment.configure({"start": [1, 2]})
    assert environment.reset(seed=1).metadata["agent_xy"] == [1, 2]


@pytest.mark.parametrize("seed", [-1, 2**64, True, 1.0, "1"])
def test_a_seed_that_no_generator_takes_is_refused_before_the_environment_sees_it(seed: Any) -> None:
    env = Echo()

    with pytest.raises(ValidationError, match="seed"):
        GymEnvironment(env).reset(seed=seed)
    assert env.calls == []


def test_the_state_counts_the_steps_of_the_episode() -> None:
    environment = GymEnvironment(Echo())
    before = environment.state
    environment.reset(episode_id="one")
    act(environment, '{"action": 0}')
    during = environment.state
    environment.reset()

    assert (before, during, environment.state) == (State(), State(episode_id="one", step_count=1), State())


def test_a_reset_that_fails_leaves_the_state() -> None:
    environment = GymEnvironment(gym.make("proctor/PlumeSearch-v0"))
    environment.reset(seed=1, episode_id="one")
    environment.configure({"start": [-1, 0]})

    with pytest.raises(ValidationError):
        environment.reset(episode_id="two")
    assert environment.state.episode_id == "one"
    environment.reset(episode_id="three")
    assert environment.state.episode_id == "three"


def test_closing_twice_closes_once() -> None:
    env = Echo()
    environment = GymEnvironment(env)

    environment.close()
    environment.close()

    assert env.calls == [("close", None)]


def test_an_environment_says_what_it_is() -> None:
    made, bare = GymEnvironment(gym.make("CartPole-v1")), GymEnvironment(Echo())

    assert (made.name, made.version) == ("CartPole-v1", "1")
    assert made.description.startswith("This environment corresponds")
    assert (bare.name, bare.version) == ("Echo", "0")
    assert bare.description == "An environment that observes what it is told to."
    assert bare.spaces == (Discrete(3), Box(0, 1, (2,), np.float32))


@pytest.mark.parametrize(
    ("env", "quick"),
    [
        (gym.make("CartPole-v1"), True),
        (gym.make("CartPole-v1", render_mode="rgb_array"), False),
        (gym.make("proctor/ColumnPopper-v0"), True),
        (gym.wrappers.FlattenObservation(gym.make("proctor/ColumnPopper-v0")), True),
        (Echo(), False),
        (gym.wrappers.TimeLimit(Echo(), 5), False),
        (SlowWrapper(gym.make("CartPole-v1")), False),
    ],
    ids=str,
)
def test_only_what_is_known_to_be_quick_is_called_quick(env: gym.Env[Any, Any], quick: bool) -> None:
    assert is_quick(env) == quick
    assert GymEnvironment(env).quick == quick


def test_equal_spaces_share_their_models() -> None:
    one, other = GymEnvironment(gym.make("CartPole-v1")), GymEnvironment(gym.make("CartPole-v1"))

    assert one.action_type is other.action_type
    assert one.observation_type is other.observation_type
    third = GymEnvironment(Echo(Discrete(4), Discrete(3)))
    assert third.action_type is not one.action_type
    assert third.observation_type.codec is not one.observation_type.codec


def test_the_schemas_are_those_of_the_spaces() -> None:
    environment = GymEnvironment(gym.make("CartPole-v1"))

    action = environment.action_type.model_json_schema()["properties"]
    seen = environment.observation_type.model_json_schema(mode="serialization")["properties"]

    assert action["action"] == {"title": "Action", "type": "integer", "minimum": 0, "maximum": 1}
    assert seen["observation"]["anyOf"][0]["maxItems"] == 4


def test_a_space_that_cannot_cross_the_wire_is_refused_at_once() -> None:
    with pytest.raises(ComponentError, match="cross the wire"):
        GymEnvironment(Echo(action=gym.Space()))


def test_the_latest_observation_is_that_of_the_last_call_that_succeeded() -> None:
    env = Echo()
    environment = GymEnvironment(env)

    with pytest.raises(StateError, match="nothing has been observed"):
        environment.latest()
    first = environment.reset()
    assert environment.latest() is first
    second = act(environment, '{"action": 1}')
    assert environment.latest() is second
    env.reward = math.nan
    with pytest.raises(ComponentError):
        act(environment, '{"action": 1}')
    assert environment.latest() is second


class Counting(GymEnvironment):
    """An adapted environment with a tool of its own."""

    @tool(ToolSafety.WRITE)
    def twice(self, action: int) -> list[AdaptedAction]:
        """Do it twice."""
        return [self.action_type(action=action)] * 2


def test_an_adapted_environment_may_declare_tools() -> None:
    environment = Counting(Echo())

    plan = environment.toolbox().plan("twice", b'{"action": 2}')

    assert isinstance(plan, ToolPlan)
    assert [each.model_dump_json() for each in plan.actions] == ['{"action":2}'] * 2
    assert [each.name for each in environment.toolbox().tools] == ["twice"]
    with pytest.raises(ValidationError, match="an integer from 0 to 2"):
        environment.toolbox().plan("twice", b'{"action": 7}')


class Chosen(Action):
    """Which one."""

    number: StrictInt


class Typed(AdaptedEnvironment[Chosen, AdaptedObservation, State]):
    """A user's own models around a Gymnasium environment."""

    def _convert_action(self, action: Chosen) -> int:
        return action.number

    def _convert_observation(self, observation: Any) -> Any:
        return observation

    @property
    def state(self) -> State:
        return State()


def test_typed_models_of_ones_own_make_the_tools() -> None:
    environment = Typed(Echo())
    environment.observation_type = GymEnvironment(Echo()).observation_type
    seen = environment.reset()
    box = environment.toolbox()

    assert box.plan("act", b'{"number": 1}') == ToolPlan((Chosen(number=1),))
    assert box.plan("observe", b"{}") == ToolPlan(seen=seen)
    assert "Which one." in box.tools[1].description


def test_an_author_says_in_metadata_what_agents_see() -> None:
    env = Echo()
    env.metadata = {"agent_info": ["score"], "shows_reward": True, "max_agents": 2}

    adapted, plain = GymEnvironment(env), GymEnvironment(Echo())

    assert (plain.agent_info, plain.shows_reward, plain.max_agents) == ((), False, 1)
    assert (adapted.agent_info, adapted.shows_reward, adapted.max_agents) == (("score",), True, 2)


@pytest.mark.parametrize("metadata", [{"agent_info": "score"}, {"agent_info": [1]}, {"max_agents": 0}])
def test_what_makes_no_sense_for_agents_is_refused(metadata: dict[str, Any]) -> None:
    env = Echo()
    env.metadata = metadata

    with pytest.raises((ComponentError, ValidationError)):
        GymEnvironment(env)


class Painter(gym.Env[Any, Any]):
    """Draws what it is told to."""

    metadata = {"render_modes": ["rgb_array", "ansi"]}
    action_space = Discrete(2)
    observation_space = Box(0, 1, (1,), np.float32)

    def __init__(self, picture: Any, render_mode: str | None = "rgb_array") -> None:
        self.picture = picture
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), 1.0, False, False, {}

    def render(self) -> Any:
        if isinstance(self.picture, BaseException):
            raise self.picture
        return self.picture


RED = np.full((4, 6, 3), (255, 0, 0), np.uint8)


def test_a_picture_is_a_scene_at_the_reset_and_a_frame_later() -> None:
    environment = GymEnvironment(Painter(RED))
    environment.reset(seed=1)
    scene, frame = environment.scene(begins=True), environment.scene(begins=False)

    assert scene == {"environment": "pixels", "frame": frame}
    assert np.array_equal(unpack_array(frame["pixels"]), RED)


@pytest.mark.parametrize(
    "picture",
    [
        RuntimeError("no display"),
        SystemExit(1),
        None,
        "text",
        [[0]],
        RED.astype(float),
        RED[:, :, :2],
        RED[0, 0],
        RED[:0],
        np.zeros((1, 1, MOST_BYTES // 4 + 1, 4), np.uint8),
        np.broadcast_to(np.uint8(0), (MOST_BYTES + 1, 1)),
    ],
    ids=["error", "exit", "none", "text", "list", "floats", "channels", "line", "empty", "dimensions", "huge"],
)
def test_what_is_no_picture_is_no_scene(picture: Any) -> None:
    environment = GymEnvironment(Painter(picture))
    environment.reset(seed=1)

    assert environment.scene(begins=True) is None
    assert environment.scene(begins=False) is None


def test_grey_pictures_and_views_of_larger_ones_are_taken() -> None:
    for picture in (RED[:, :, 0], RED[:, :, :1], RED[::2, ::-1]):
        frame = render_scene(Painter(picture), begins=False)

        assert frame is not None
        assert np.array_equal(unpack_array(frame["pixels"]), picture)


@pytest.mark.parametrize("mode", [None, "ansi"])
def test_without_the_mode_nothing_is_drawn(mode: str | None) -> None:
    assert render_scene(Painter(AssertionError("drawn"), mode), begins=True) is None


def test_an_episode_with_pixels_comes_out_the_same_again(tmp_path: Path) -> None:
    settings = {"render_mode": "rgb_array"}
    rows = rows_of(record(tmp_path / "ledger", Sitting("CartPole-v1", settings, [Play(1, 5)], scenes=True)))

    opened = rows[0].event
    assert isinstance(opened, SessionOpened)

    found = list(replay_rows(opened, rows))

    assert [bytes(row.event.scene) != b"null" for row in found] == [True] * 6  # type: ignore[union-attr]
    assert all(row.equal for row in found)
