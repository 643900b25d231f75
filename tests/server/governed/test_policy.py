"""Policies: the shipped ones, files, what is refused, and the way to the record and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from proctor.contracts.tools import Tool, ToolSafety
from proctor.episode.packets.enums import Level
from proctor.errors import ValidationError
from proctor.server.governed.governance_tools import GOVERNANCE_TOOL_NAMES
from proctor.server.governed.policy import (
    SHIPPED,
    EscalationCondition,
    GuardedAction,
    TokenIssuer,
    load_policy,
    parse_condition,
    policy_from_document,
)
from tests.server.governed.governed_sessions import policy_with


def tool(name: str, safety: ToolSafety) -> Tool:
    return Tool(name=name, description="d", safety=safety, input_schema={})


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_policy_goes_on_record_and_comes_back(name: str) -> None:
    policy = load_policy(name)

    document = msgspec.json.decode(msgspec.json.encode(policy.as_document()))

    assert policy_from_document(document) == policy
    assert policy.name == name
    assert policy.settings.layer_rules == "error"


def test_the_shipped_policies_grow_stricter() -> None:
    free, standard, strict = (load_policy(name) for name in SHIPPED)

    assert [one.stakes.stakes_level for one in (free, standard, strict)] == ["LOW", "MEDIUM", "HIGH"]
    assert free.tokens.max_uses > standard.tokens.max_uses > strict.tokens.max_uses
    assert (standard.tokens.issuer, strict.tokens.issuer) == (TokenIssuer.AUTO, TokenIssuer.HUMAN)
    assert strict.quality.quality_tier == "SUPERB"


def test_a_policy_is_read_from_a_file_with_the_rules_beside_it(tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text('name = "mine"\nhouse_rules = "my.rules"\n[tokens]\nissuer = "never"\n', "utf-8")
    (tmp_path / "my.rules").write_text("ASK: DecisionPacket(ESCALATE) before DecisionPacket(ACT)\n", "utf-8")

    policy = load_policy(tmp_path / "my.toml")

    assert (policy.name, policy.tokens.issuer) == ("mine", TokenIssuer.NEVER)
    assert [rule.id for rule in policy.written_rules] == ["ASK"]
    (tmp_path / "my.rules").unlink()
    assert policy_from_document(policy.as_document()).written_rules == policy.written_rules


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name = ", "TOML"),
        ("", "name"),
        ('name = "x"\ncolour = "red"', "colour"),
        ('name = "x"\n[stakes]\nimpact = "TINY"', "stakes.impact"),
        ('name = "x"\n[tokens]\nmax_uses = 0', "tokens.max_uses"),
        ('name = "x"\n[budgets]\ntool_call_budget = -1', "budgets.tool_call_budget"),
        ('name = "x"\n[escalation]\nwhen = ["sometimes"]', "condition"),
        ('name = "x"\nrules = "nonsense"', "house rules"),
        ('name = "x"\nhouse_rules = "missing.rules"', "missing.rules"),
        ('name = "x"\nhouse_rules = "a"\nrules = "b"', "twice"),
        ('name = "x"\n[tools]\nmove = "CAREFUL"', "tools.move"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_by_its_place(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text, "utf-8")

    with pytest.raises(ValidationError, match=words):
        load_policy(str(path))


def test_a_policy_that_is_not_there_says_which_are_shipped() -> None:
    with pytest.raises(ValidationError, match="open, standard, strict"):
        load_policy("relaxed")


@pytest.mark.parametrize(
    ("tools", "says", "words"),
    [
        ([tool("believe", ToolSafety.READ)], {}, "believe"),
        ([tool("move", ToolSafety.WRITE)], {"move": "READ"}, "weaker"),
        ([tool("move", ToolSafety.WRITE)], {"fly": "WRITE"}, "fly"),
    ],
)
def test_a_policy_that_cannot_govern_an_environment_says_so(
    tools: list[Tool], says: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        policy_with(tools=says).check(tools, GOVERNANCE_TOOL_NAMES)


def test_a_policy_makes_tools_stricter_and_never_weaker() -> None:
    policy = policy_with(tools={"look": "WRITE", "move": "READ"})

    assert policy.safety_of(tool("look", ToolSafety.READ)) is ToolSafety.WRITE
    assert policy.safety_of(tool("move", ToolSafety.WRITE)) is ToolSafety.WRITE
    assert policy.safety_of(tool("turn", ToolSafety.MIXED)) is ToolSafety.MIXED
    policy_with(tools={"look": "WRITE"}).check([tool("look", ToolSafety.READ)], GOVERNANCE_TOOL_NAMES)


@pytest.mark.parametrize("deed", list(GuardedAction))
@pytest.mark.parametrize("level", list(Level))
def test_a_condition_is_read_as_it_is_written(deed: GuardedAction, level: Level) -> None:
    condition = EscalationCondition(deed, level)

    assert parse_condition(f" {deed}  at {level} stakes ") == condition
    assert parse_condition(str(condition)) == condition


@pytest.mark.parametrize("text", ["", "write", "write at stakes", "read at HIGH stakes", "write at HUGE stakes"])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match="condition"):
        parse_condition(text)


@pytest.mark.parametrize(
    ("changes", "needs"),
    [
        ({}, False),
        ({"tokens": {"issuer": "human"}}, False),
        ({"tokens": {"issuer": "never"}}, True),
        ({"quality": {"verification_requirement": "VERIFY_ONE"}}, True),
        ({"quality": {"verification_requirement": "VERIFY_ALL"}}, True),
    ],
)
def test_where_an_agent_must_read_to_go_on_there_is_a_tool_that_reads(changes: dict[str, Any], needs: bool) -> None:
    policy = policy_with(**changes)
    acting, reading = tool("move", ToolSafety.WRITE), tool("look", ToolSafety.READ)

    assert policy.lets_go_on([acting]) is not needs
    assert policy.lets_go_on([acting, reading])
    if needs:
        with pytest.raises(ValidationError, match="nothing leads on"):
            policy.check([acting], GOVERNANCE_TOOL_NAMES)
        with pytest.raises(ValidationError, match="nothing leads on"):
            policy_with(**changes, tools={"look": "MIXED"}).check([acting, reading], GOVERNANCE_TOOL_NAMES)
