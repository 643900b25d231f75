"""Policies: what is read, what is refused, and that what comes of a directive can be stated, or it is refused."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.contracts.tools import Tool, ToolSafety
from proctor.episode.episode_state import new_episode
from proctor.episode.packets.enums import Level
from proctor.episode.rules.house_rules import find_violations, initial_marks, load_rules, next_marks
from proctor.episode.settings import Limits
from proctor.episode.transition_table import DIRECTIVES, Event
from proctor.errors import ValidationError
from proctor.models.control import Reset
from proctor.server.governed import packet_checks
from proctor.server.governed.governance_tools import GOVERNANCE_TOOL_NAMES
from proctor.server.governed.policy import (
    MOST_CALLS,
    PACKETS_OF_A_CALL,
    SHIPPED,
    EscalationCondition,
    GuardedAction,
    TokenIssuer,
    find_permanent_blocker,
    find_result_blockers,
    load_policy,
    parse_condition,
    policy_from_document,
)
from proctor.server.runtime.results import RequestFailed
from tests.server.governed.governed_sessions import Hall, assert_judged_alike, policy_with

pytestmark = pytest.mark.anyio


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


SOON = "TELL: TaskDirectivePacket(WRITE) leads to BeliefUpdatePacket within {}"
RULES = load_rules(
    "A: DecisionPacket(ACT) leads to BeliefUpdatePacket within 4\n"
    "B: never ObservationPacket after IntegrityAlertPacket\n"
    "C: approval record before TaskResultPacket\n"
    "D [warning]: never TaskResultPacket after DecisionPacket\n"
)


@given(events=st.lists(st.sampled_from(list(Event)), max_size=12), directive=st.sampled_from(DIRECTIVES))
def test_a_directive_is_let_pass_exactly_if_its_result_and_observation_break_no_rule(
    events: list[Event], directive: Event
) -> None:
    marks = initial_marks(RULES)
    for event in events:
        marks = next_marks(RULES, marks, event)
    episode = msgspec.structs.replace(new_episode("corr_x"), marks=marks)

    barred = find_result_blockers(episode, RULES, directive, Limits())

    directed = next_marks(RULES, marks, directive)
    told = [*find_violations(RULES, directed, Event.RESULT)]
    told += find_violations(RULES, next_marks(RULES, directed, Event.RESULT), Event.OBSERVATION)
    assert {rule for rule, _ in barred} == {rule.id for rule, _ in told if rule.level == "error"}


@pytest.mark.parametrize(
    ("rule", "sense"),
    [
        (SOON.format(1), False),
        (SOON.format(2), False),
        (SOON.format(3), True),
        ("X: never TaskResultPacket after TaskDirectivePacket(READ)", False),
        ("X: never ObservationPacket after TaskResultPacket", False),
        ("X: approval record before ObservationPacket", False),
        ("X: TaskResultPacket leads to BeliefUpdatePacket within 1", False),
        ("X: TaskResultPacket leads to ObservationPacket within 1", True),
        ("X: approval record before TaskResultPacket", True),
        ("X [warning]: never TaskResultPacket after TaskDirectivePacket", True),
    ],
)
def test_a_policy_under_which_no_directive_could_have_its_result_is_not_loaded(
    rule: str, sense: bool, tmp_path: Path
) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(f'name = "mine"\nrules = "{rule}"\n', "utf-8")

    assert (find_permanent_blocker(load_rules(rule)) is None) is sense
    if sense:
        assert load_policy(path).rules == rule
    else:
        with pytest.raises(ValidationError, match="the proctor must state"):
            load_policy(path)


def test_a_policy_promises_no_more_tool_calls_than_an_episode_has_room_for(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(f'name = "mine"\n[budgets]\ntool_call_budget = {MOST_CALLS + 1}\n', "utf-8")

    assert load_policy("open").budgets.tool_call_budget * PACKETS_OF_A_CALL < Limits().packets
    with pytest.raises(ValidationError, match="more tool calls"):
        load_policy(path)


async def test_a_directive_whose_result_a_house_rule_would_refuse_does_not_run() -> None:
    hall, agent = await Hall.with_agent(
        policy=policy_with(rules="SOON: DecisionPacket(ACT) leads to BeliefUpdatePacket within 4")
    )
    await agent.permitted("move")

    told = [await agent.use("move", direction="up") for _ in range(2)]
    believed = await agent.believe()

    # The token, the directive and the result are three of the four, and the observation would be the last.
    assert [one.rules for one in told] == [["SOON"], ["SOON"]]
    assert "could not be stated" in told[0].text
    assert "way" not in told[0].said
    assert hall.steps == 0
    assert hall.session.loss is None
    assert not hall.lines[-2].judged
    assert believed.refused
    assert_judged_alike(hall.lines, hall.policy)


async def test_an_episode_that_is_nearly_full_lets_its_agent_stop() -> None:
    hall, agent = await Hall.with_agent()
    await agent.permitted("move")
    stream = hall.governor.stream
    stream.standing = msgspec.structs.replace(stream.standing, packets=Limits().packets - 15)

    told = await agent.use("move", direction="up")

    assert told.rules == ["LIMIT-2"]
    assert "room to stop" in told.text
    assert hall.steps == 0


@pytest.mark.parametrize("within", [1, 2])
async def test_a_proctors_packet_that_is_refused_all_the_same_loses_the_episode_loudly(
    within: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(packet_checks, "find_result_blockers", lambda *_: [])

    hall, agent = await Hall.with_agent(policy=policy_with(rules=SOON.format(within)))
    await agent.permitted("move")

    with caplog.at_level(logging.ERROR):
        told = await agent.use("move", direction="up")
    after = await agent.believe()

    assert told.code == "SESSION_ERROR"
    assert "TELL" in told.text
    assert hall.session.loss is not None
    assert after.code == "EPISODE_LOST"
    assert "TELL" in caplog.text
    assert_judged_alike(hall.lines, hall.policy)


async def test_an_episode_whose_first_observation_is_refused_never_begins() -> None:
    hall = Hall(policy=policy_with(rules="X: approval record before ObservationPacket"))
    await hall.session.open()

    with pytest.raises(RequestFailed, match="SESSION_ERROR"):
        await hall.granting.reset(hall.session, Reset(seed=1), 1)

    assert hall.session.loss is not None
