"""An agent is told what it observes and how far it is; nothing that it must not know."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.contracts.tools import Tool, ToolSafety
from proctor.envs.targets import Target
from proctor.models.control import Code, Problem
from proctor.server.runtime.env_adapter import EnvDescription, describe_target
from proctor.server.runtime.results import EnvOutcome, ToolOutcome
from proctor.server.sessions.episode_status import EpisodeStatus
from proctor.server.sessions.tool_results import (
    OVER,
    encode_first_observation,
    make_error_result,
    make_observation_schema,
    make_tool_result,
    write_governed_instructions,
    write_instructions,
)

CARD = describe_target(Target("proctor/PlumeSearch-v0"))
ACT = Tool(name="act", description="Acts.", safety=ToolSafety.WRITE, input_schema={"type": "object"})
HIDDEN = {"seed": 4711, "distance_to_source": 3.5, "agent_xy": [1, 2], "total_reward": 0.5}


def answer(content: Any = None, metadata: Any = None, *, reward: float | None = 0.25) -> ToolOutcome:
    said = json.dumps({"observation": [0.5]} if content is None else content).encode()
    outcome = EnvOutcome(said, json.dumps(HIDDEN if metadata is None else metadata).encode(), reward, False, False)
    return ToolOutcome("You smell something.", said, b'{"action":1}', outcome)


def card(**changes: Any) -> EnvDescription:
    return msgspec.structs.replace(CARD, **changes)


def seen(found: Any) -> Any:
    return json.loads(found.structured)


def test_an_observation_is_told_with_the_step_and_the_flags_and_nothing_else() -> None:
    found = make_tool_result(answer(), ACT, CARD, EpisodeStatus(reward=0.25, total_reward=0.5), 12)

    assert seen(found) == {"observation": [0.5], "step": 12, "done": False, "terminated": False, "truncated": False}
    assert found.text == "You smell something.\nStep 12."
    assert not found.is_error


def test_the_reward_is_told_only_where_the_author_says_so() -> None:
    standing = EpisodeStatus(reward=0.25)

    assert "reward" not in seen(make_tool_result(answer(), ACT, CARD, standing, 1))
    shown = make_tool_result(answer(), ACT, card(shows_reward=True), standing, 1)
    assert seen(shown)["reward"] == 0.25
    assert "Reward 0.25." in shown.text


def test_of_the_metadata_only_the_listed_keys_are_told() -> None:
    found = make_tool_result(answer(), ACT, card(agent_info=("agent_xy", "not_there")), EpisodeStatus(), 1)

    assert seen(found)["info"] == {"agent_xy": [1, 2]}
    assert "4711" not in found.text + found.structured.decode()


def test_the_end_is_said_in_words_too() -> None:
    found = make_tool_result(answer(), ACT, CARD, EpisodeStatus(terminated=True), 3)

    assert seen(found)["done"] is True
    assert found.text.endswith(OVER)


def test_an_observation_of_several_fields_stays_an_object() -> None:
    found = make_tool_result(answer({"left": 1, "right": 2}), ACT, CARD, EpisodeStatus(), 1)

    assert seen(found)["observation"] == {"left": 1, "right": 2}


def test_a_value_is_told_as_it_is() -> None:
    reading = msgspec.structs.replace(ACT, name="count", safety=ToolSafety.READ, output_schema={"type": "object"})

    found = make_tool_result(ToolOutcome('{"result":3}', b'{"result":3}'), reading, CARD, EpisodeStatus(), 1)

    assert (found.text, seen(found)) == ('{"result":3}', {"result": 3})


def test_a_refusal_says_what_would_have_been_right() -> None:
    found = make_error_result(Problem("there is no such tool", Code.VALIDATION_ERROR, expected="one of sniff, move"))

    assert found.is_error
    assert found.text == "VALIDATION_ERROR: there is no such tool. Expected: one of sniff, move."
    assert seen(found) == {
        "message": "there is no such tool",
        "code": "VALIDATION_ERROR",
        "expected": "one of sniff, move",
    }


@pytest.mark.parametrize("target", ["proctor/PlumeSearch-v0", "proctor/ColumnPopper-v0", "CartPole-v1", "Blackjack-v1"])
def test_what_is_told_fits_the_schema_that_was_announced(target: str) -> None:
    environment = Target(target).make()
    observation = environment.reset(seed=1)
    about = describe_target(Target(target))
    content = observation.inside()  # type: ignore[union-attr]  # it is no coroutine here

    found = make_tool_result(ToolOutcome("", content), ACT, about, EpisodeStatus(), 0)

    jsonschema.validate(seen(found), make_observation_schema(about))


def test_the_instructions_name_the_tools_and_no_secret() -> None:
    text = write_instructions(CARD)

    assert all(tool.name in text for tool in CARD.tools)
    assert CARD.name in text


@given(
    metadata=st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=8), max_size=5),
    reward=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    listed=st.lists(st.text(max_size=8), max_size=3),
)
def test_nothing_of_the_outcome_gets_out_that_is_not_listed(
    metadata: dict[str, Any], reward: float | None, listed: list[str]
) -> None:
    about = card(agent_info=tuple(listed))

    found = seen(
        make_tool_result(answer(metadata=metadata, reward=reward), ACT, about, EpisodeStatus(reward=reward), 1)
    )

    assert found.keys() - {"info"} == {"observation", "step", "done", "terminated", "truncated"}
    assert found.get("info", {}) == {key: value for key, value in metadata.items() if key in listed}


def test_a_lost_episode_is_said_to_be_lost_and_nothing_is_asked_of_the_agent() -> None:
    found = make_error_result(
        Problem("this episode is lost: it hung", Code.EPISODE_LOST, expected="a reset", lost=True)
    )

    assert "reset" not in found.text
    assert "expected" not in seen(found)
    assert "nothing more to do" in found.text


def test_the_first_observation_is_told_like_all_others() -> None:
    first = json.loads(encode_first_observation(msgspec.Raw(b'{"observation":[0.5]}'), EpisodeStatus()))

    assert first == {"observation": [0.5], "step": 0, "done": False, "terminated": False, "truncated": False}
    jsonschema.validate(first, make_observation_schema(CARD))
    several = json.loads(encode_first_observation(msgspec.Raw(b'{"observation":[0.5],"more":1}'), EpisodeStatus()))
    assert several["observation"] == {"observation": [0.5], "more": 1}
    assert json.loads(encode_first_observation(None, EpisodeStatus(terminated=True))) == {"step": 0, "done": True}


def test_a_governed_agent_reads_what_a_free_one_does_and_the_loop() -> None:
    words = write_governed_instructions(CARD, ["sniff"], ["move"], b'{"observation":[0.5]}')

    assert words.startswith(write_instructions(CARD))
    assert "tools that read at once (sniff)" in words
    assert "those that act (move)" in words
    assert words.endswith('so far: {"observation":[0.5]}')
    assert write_governed_instructions(CARD, [], [], None).count("there is none") == 2
