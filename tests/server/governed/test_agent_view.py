"""What a governed agent reads: instructions, tools, schemas; and that what it is told fits them."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from proctor.contracts.tools import Tool, ToolSafety
from proctor.episode.rules.governance import ADVICE, SENTENCES
from proctor.errors import ValidationError
from proctor.server.governed.governance import Governance
from proctor.server.governed.governance_tools import (
    GOVERNANCE_TOOL_NAMES,
    GovernanceTool,
    governance_tools,
    parse_arguments,
    status_fits,
)
from proctor.server.governed.policy import load_policy
from proctor.server.governed.replies import IN_WORDS
from tests.server.governed.governed_sessions import PLUME, POPPER, Hall, policy_with

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("target", [PLUME, POPPER, "CartPole-v1"])
async def test_an_agent_has_the_environments_tools_and_its_own(target: str) -> None:
    hall, agent = await Hall.with_agent(target)

    tools = {each.tool.name: each.tool for each in agent.view.tools}

    own = [tool.name for tool in hall.session.spec.card.tools]
    assert list(tools) == [*own, *GOVERNANCE_TOOL_NAMES]
    for name in own:
        said = "request_token" in tools[name].description
        assert said == (tools[name].safety is not ToolSafety.READ)


async def test_the_instructions_say_the_loop_and_what_was_seen() -> None:
    _, agent = await Hall.with_agent()

    words = agent.view.instructions

    for word in ("believe", "decide", "request_token", "plan_verification", "escalate", "safe mode", "sniff", "move"):
        assert word in words
    assert '"observation":[' in words
    for hidden in ("seed", "source_location", "reward", "distance"):
        assert hidden not in words


@pytest.mark.parametrize("policy", ["open", "standard", "strict"])
def test_every_tool_says_what_it_is_for_and_what_comes_back(policy: str) -> None:
    for tool in governance_tools(load_policy(policy)):
        assert len(tool.description) > 200
        assert "{" not in tool.description
        assert "refused" in tool.description
        assert all("description" in part for part in tool.input_schema["properties"].values()), tool.name
        jsonschema_rs.validator_for(tool.input_schema)


def test_what_is_said_of_tokens_is_what_the_policy_does() -> None:
    said = {
        issuer: next(
            tool.description
            for tool in governance_tools(policy_with(tokens={"issuer": issuer}))
            if tool.name == "request_token"
        )
        for issuer in ("auto", "human", "never")
    }

    assert "at once, for at most 20 calls and 300 seconds" in said["auto"]
    assert "an operator approves it" in said["human"]
    assert "no tokens are issued" in said["never"]


async def test_everything_that_is_told_fits_the_schema_of_its_tool() -> None:
    _, agent = await Hall.with_agent()
    schemas = {each.tool.name: jsonschema_rs.validator_for(each.output_schema) for each in agent.view.tools}
    calls: list[tuple[str, dict[str, Any]]] = [
        ("believe", {"changes": {"a": 1}}),
        ("decide", {"outcome": "ACT", "summary": "s"}),
        ("request_token", {"tools": ["move"], "rationale": "r"}),
        ("move", {"direction": "up", "steps": 2}),
        ("sniff", {}),
        ("believe", {"changes": {"a": 2}}),
        ("decide", {"outcome": "VERIFY_FIRST", "summary": "s"}),
        ("plan_verification", {"targets": ["a"]}),
        ("sniff", {}),
        ("believe", {"changes": {"a": 3}, "confidence": 1}),
        ("decide", {"outcome": "ESCALATE", "summary": "s", "risks": ["r"], "alternatives": ["b"]}),
        ("escalate", {"question": "q", "options": ["a", {"id": "b", "description": "c"}], "wait_seconds": 0}),
    ]

    for tool, arguments in calls:
        told = await agent.view.call(tool, json.dumps(arguments).encode())
        assert not told.is_error, told.text
        assert schemas[tool].is_valid(json.loads(told.structured)), told.structured


def test_where_a_schema_has_no_room_the_standing_is_in_the_text() -> None:
    closed = {"type": "object", "properties": {"a": {}}, "additionalProperties": False}
    taken = {"type": "object", "properties": {"governed": {}}}

    def fits(schema: dict[str, Any] | None) -> bool:
        return status_fits(
            Tool(name="t", description="d", safety=ToolSafety.READ, input_schema={}, output_schema=schema)
        )

    assert [fits(None), fits({"type": "object"}), fits(closed), fits(taken)] == [True, True, False, False]


def test_an_environment_whose_tools_have_taken_names_cannot_be_governed() -> None:
    tool = Tool(name="decide", description="d", safety=ToolSafety.READ, input_schema={})

    with pytest.raises(ValidationError, match="decide"):
        Governance(load_policy("open")).check([tool])


@pytest.mark.parametrize("saying", list(GovernanceTool))
def test_a_form_refuses_what_it_does_not_know(saying: GovernanceTool) -> None:
    for arguments in (b"", b"[]", b'{"colour":"red"}'):
        with pytest.raises(ValidationError, match=saying):
            parse_arguments(saying, arguments)


def test_every_position_and_every_rule_of_ours_has_words() -> None:
    from proctor.episode.transition_table import Position

    ours = {"GOV-1", "GOV-2", "GOV-3", "POLICY-1", "POLICY-2", "POLICY-3"}

    assert set(IN_WORDS) == set(Position)
    assert ours <= set(ADVICE)
    assert ours <= set(SENTENCES)
