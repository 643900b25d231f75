"""What the page about governed episodes says is so: its tools, policies and rules, and its dialogue word for word."""

from __future__ import annotations

import json
import re
import tomllib

import msgspec
import pytest

from proctor.episode.rules.governance import ADVICE
from proctor.server.governed.governance_tools import GOVERNANCE_TOOL_NAMES, governance_tools
from proctor.server.governed.policy import SHIPPED, load_policy, policy_from_document
from proctor.server.governed.replies import GovernedReply
from tests.docs.tables import page, table
from tests.server.bare_sessions import run
from tests.server.governed.governed_sessions import Hall

PAGE = page("governed-episodes.md")


def words(text: str) -> str:
    return " ".join(text.split())


def test_the_page_tells_every_tool_and_every_argument() -> None:
    rows = {row[0].strip("`"): row[1] for row in table(PAGE, "| tool |")}

    assert tuple(rows) == GOVERNANCE_TOOL_NAMES
    for tool in governance_tools(load_policy("open")):
        assert all(f"`{name}`" in rows[tool.name] for name in tool.input_schema["properties"]), tool.name


def test_the_page_tells_every_key_of_an_answer() -> None:
    told = re.findall(r"`(\w+)`", " ".join(row[0] for row in table(PAGE, "| key |")))

    assert set(told) == {field.name for field in msgspec.structs.fields(GovernedReply)} - {"code"}


@pytest.mark.parametrize("column", range(len(SHIPPED)))
def test_the_page_tells_the_shipped_policies_as_they_are(column: int) -> None:
    policy = load_policy(SHIPPED[column]).as_document()

    for row in table(PAGE, "| | `open` |")[1:]:
        found = policy
        for part in row[0].partition(" ")[0].strip("`").split("."):
            found = found[part]
        said = (
            ", ".join(found) or "-" if isinstance(found, list) else f"{found:g}" if isinstance(found, float) else found
        )
        assert row[1 + column] == str(said), row[0]


def test_the_policy_on_the_page_can_be_read() -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    said = tomllib.loads(text)

    policy = policy_from_document({key: value for key, value in said.items() if key != "house_rules"})

    assert policy.name == "mine"
    assert set(policy.as_document()) == {*said, "rules"}


def test_the_page_tells_every_rule_of_ours() -> None:
    told = {row[0] for head in ("| rule | an", "| rule | what") for row in table(PAGE, head)}

    assert told == {rule for rule in ADVICE if rule.startswith(("GOV", "POLICY", "SIZE"))}


def test_the_dialogue_on_the_page_is_true() -> None:
    dialogue = PAGE.rpartition("```\n> ")[2].partition("```")[0]
    calls = [part.partition("\n") for part in dialogue.split("\n> ")]

    async def scenario() -> None:
        agent = await Hall(boot="5e884898da280471").agent()
        for call, _, answer in calls:
            tool, _, arguments = call.partition(" ")
            told = await agent.view.call(tool, json.dumps(json.loads(arguments)).encode())
            assert words(told.text) == words(answer), call

    run(scenario())
    assert len(calls) == 9
