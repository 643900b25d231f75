"""`observe` and `act` for any Gymnasium environment, from its spaces and from what its author wrote."""

import json
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from proctor.contracts.tools import Tool, ToolPlan, ToolSafety
from proctor.envs.gym_adapter import LONGEST, GymEnvironment, find_action_names, read_doc_section
from proctor.errors import StateError, ValidationError
from proctor.models.spaces import codec_of
from tests.models.space_strategies import bent, identical, json_values, members, spaces

# Gymnasium's own judgement of stacked scalars warns about them.
pytestmark = pytest.mark.filterwarnings("ignore:.*Casting input x to numpy array")

SEED = 987_654_321_012_345
"""Longer than any number that is told in words, so that none looks like it."""


class Echo(gym.Env[Any, Any]):
    """An environment that gives back what it is told."""

    def __init__(self, action: gym.Space[Any], observation: gym.Space[Any] | None = None) -> None:
        self.action_space = action
        self.observation_space = Discrete(9) if observation is None else observation
        self.seen: Any = np.int64(3)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self.seen, {"seed": SEED}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.seen, 99.0, False, False, {"hidden": 55}


@st.composite
def spaces_with_members(draw: st.DrawFn) -> tuple[gym.Space[Any], Any]:
    space = draw(spaces(depth=2))
    return space, draw(members(space))


def tools_of(env: gym.Env[Any, Any]) -> tuple[Tool, ...]:
    return GymEnvironment(env).toolbox().tools


def acted(environment: GymEnvironment, arguments: Any) -> Any:
    plan = environment.toolbox().plan("act", json.dumps(arguments).encode())
    assert isinstance(plan, ToolPlan)
    (action,) = plan.actions
    return action


@settings(max_examples=40)
@given(drawn=spaces_with_members())
def test_an_action_that_an_agent_says_is_the_same_action(drawn: tuple[gym.Space[Any], Any]) -> None:
    space, value = drawn
    environment = GymEnvironment(Echo(space))
    said = {"action": codec_of(space).encode(value)}

    action = acted(environment, said)

    assert isinstance(action, environment.action_type)
    assert identical(action.action, value)
    assert environment.action_type.model_validate_json(action.model_dump_json()) is not None
    assert Draft202012Validator(environment.toolbox().tools[1].input_schema).is_valid(said)


@settings(max_examples=40)
@given(data=st.data())
def test_what_is_taken_fits_the_schema_and_all_else_is_refused_in_words(data: st.DataObject) -> None:
    space, value = data.draw(spaces_with_members())
    environment = GymEnvironment(Echo(space))
    said = {"action": codec_of(space).encode(value)}
    near = data.draw(bent(said) | json_values())

    try:
        action = acted(environment, near)
    except ValidationError:
        return
    assert Draft202012Validator(environment.toolbox().tools[1].input_schema).is_valid(near)
    assert space.contains(action.action)


@settings(max_examples=25)
@given(drawn=spaces_with_members())
def test_whatever_is_observed_can_be_told(drawn: tuple[gym.Space[Any], Any]) -> None:
    env = Echo(Discrete(2), drawn[0])
    env.seen = drawn[1]
    environment = GymEnvironment(env)

    told = environment.describe_observation(environment.reset())

    assert str(SEED) not in told
    assert environment.toolbox().plan("observe", b"{}") == ToolPlan(seen=environment.latest())


def test_the_tools_read_and_act() -> None:
    observe, act = tools_of(Echo(Discrete(3)))

    assert [(each.name, each.safety, each.output_schema) for each in (observe, act)] == [
        ("observe", ToolSafety.READ, None),
        ("act", ToolSafety.WRITE, None),
    ]
    assert "An observation is an integer from 0 to 8." in observe.description
    assert "The action is an integer from 0 to 2." in act.description
    assert act.input_schema == {
        "type": "object",
        "properties": {"action": {"type": "integer", "minimum": 0, "maximum": 2}},
        "required": ["action"],
        "additionalProperties": False,
    }


def test_the_latest_observation_is_shown_after_the_first_reset() -> None:
    env = Echo(Discrete(3))
    environment = GymEnvironment(env)
    box = environment.toolbox()

    with pytest.raises(StateError, match="nothing has been observed"):
        box.plan("observe", b"{}")
    first = environment.reset()
    assert box.plan("observe", b"{}") == ToolPlan(seen=first)
    env.seen = np.int64(5)
    after = environment.step(acted(environment, {"action": 1}))
    assert box.plan("observe", b"{}") == ToolPlan(seen=after)
    assert environment.describe_observation(after) == "observation: 5"


def test_nothing_but_what_is_observed_is_told() -> None:
    environment = GymEnvironment(Echo(Discrete(3)))
    environment.reset()

    told = environment.describe_observation(environment.step(acted(environment, {"action": 1})))

    assert not any(number in told for number in ("99", str(SEED), "55"))


@pytest.mark.parametrize(
    ("text", "reason", "expected"),
    [
        (b'{"action": 3}', "action: should be less than or equal to 2", "action (an integer from 0 to 2)"),
        (b"{}", "action: is missing", "action (an integer from 0 to 2)"),
        (b'{"action": 1, "seed": 2}', "seed: is unknown", "action (an integer from 0 to 2)"),
    ],
)
def test_a_refusal_says_what_would_be_right(text: bytes, reason: str, expected: str) -> None:
    with pytest.raises(ValidationError) as caught:
        GymEnvironment(Echo(Discrete(3))).toolbox().plan("act", text)
    assert caught.value.message == f"these are no arguments of act: {reason}"
    assert caught.value.expected == expected


class Named(Echo):
    action_names = ("left", "stay", "right")


class Meant(Echo):
    def get_action_meanings(self) -> list[str]:
        return ["NOOP", "FIRE", "UP"]


class Numbered(Echo):
    metadata: dict[str, Any] = {"render_modes": [], "action_names": {1: "one", 2: "two"}}


class Noted(Echo):
    metadata: dict[str, Any] = {"render_modes": [], "action_names": {0: "a", 1: "b", 2: "c"}}


@pytest.mark.parametrize(
    ("env", "names"),
    [
        (Named(Discrete(3)), ("left", "stay", "right")),
        (gym.wrappers.TimeLimit(Named(Discrete(3)), 5), ("left", "stay", "right")),
        (Meant(Discrete(3)), ("NOOP", "FIRE", "UP")),
        (Noted(Discrete(3)), ("a", "b", "c")),
        (Numbered(Discrete(2, start=1)), ("one", "two")),
        (Named(Discrete(4)), None),
        (Noted(Discrete(4)), None),
        (Noted(Discrete(2)), None),
        (Named(Box(0, 1, (3,))), None),
        (Named(MultiDiscrete([3])), None),
        (Echo(Discrete(3)), None),
    ],
    ids=str,
)
def test_an_authors_names_are_found_where_they_fit(env: gym.Env[Any, Any], names: tuple[str, ...] | None) -> None:
    assert find_action_names(env) == names


@pytest.mark.parametrize(
    "names", [("a", "a", "b"), ("a", "", "b"), (1, 2, 3), "abc", 3, None, ["a", None, "c"]], ids=str
)
def test_names_that_are_none_are_left_aside(names: Any) -> None:
    env = Echo(Discrete(3))
    env.action_names = names  # type: ignore[attr-defined]

    assert find_action_names(env) is None
    assert acted(GymEnvironment(env), {"action": 2}).action == 2


def test_named_actions_are_taken_by_name() -> None:
    environment = GymEnvironment(Named(Discrete(3, start=4)))
    act = environment.toolbox().tools[1]

    assert act.input_schema["properties"]["action"] == {"type": "string", "enum": ["left", "stay", "right"]}
    assert 'The action is one of "left", "stay", "right".' in act.description
    assert acted(environment, {"action": "right"}).action == 6
    with pytest.raises(ValidationError, match="'left', 'stay' or 'right'"):
        acted(environment, {"action": 6})


class Written(Echo):
    """Something.

    ## Action Space
    Push or pull.

      - 0: push

     ## Observation space

    A number.
    ### More of it
    Really.

    ## Rewards
    A secret.
    """


def test_what_the_author_wrote_of_actions_and_observations_is_told_and_no_more() -> None:
    observe, act = tools_of(Written(Discrete(3)))

    assert act.description.endswith("The action is an integer from 0 to 2.\n\nPush or pull.\n\n  - 0: push")
    assert observe.description.endswith("\n\nA number.\n### More of it\nReally.")
    assert "secret" not in observe.description + act.description


@pytest.mark.parametrize("env_id", ["CartPole-v1", "FrozenLake-v1", "Taxi-v4", "Pendulum-v1", "Blackjack-v1"])
def test_gymnasiums_own_texts_are_told_without_their_rewards(env_id: str) -> None:
    observe, act = tools_of(gym.make(env_id))

    assert "## " not in observe.description + act.description
    assert len(act.description) > 300


def test_a_long_text_is_cut() -> None:
    doc = "Long.\n\n## Action Space\n" + "x" * (LONGEST + 1)

    assert read_doc_section(doc, "Action Space") == "x" * LONGEST + " ..."
    assert read_doc_section(doc, "Observation Space") == read_doc_section(None, "Action Space") == ""


def test_an_environment_without_a_docstring_has_tools_all_the_same() -> None:
    class Silent(Echo):
        pass

    Silent.__doc__ = None

    assert len(tools_of(Silent(Discrete(2)))) == 2
    assert GymEnvironment(Silent(Discrete(2))).description == ""


def test_equal_environments_share_their_tools() -> None:
    one, other = gym.make("CartPole-v1"), gym.make("CartPole-v1")

    assert all(first is second for first, second in zip(tools_of(one), tools_of(other), strict=True))


def test_a_dict_is_an_object() -> None:
    environment = GymEnvironment(Echo(Dict(go=Discrete(2), force=Box(0, 1, (1,), np.float32))))

    action = acted(environment, {"action": {"force": [0.5], "go": 1}})

    assert action.action["go"] == 1
    with pytest.raises(ValidationError, match=r"action.force.0: should be less than or equal to 1"):
        acted(environment, {"action": {"force": [2], "go": 1}})
