"""What comes of a directive can be stated, or it is refused; and where that fails all the same, it is loud."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.episode.episode_state import new_episode
from proctor.episode.rules.house_rules import find_violations, initial_marks, load_rules, next_marks
from proctor.episode.settings import Limits
from proctor.episode.transition_table import DIRECTIVES, Event
from proctor.errors import ValidationError
from proctor.models.control import Reset
from proctor.server.governed import packet_checks
from proctor.server.governed.policy import (
    MOST_CALLS,
    PACKETS_OF_A_CALL,
    find_permanent_blocker,
    find_result_blockers,
    load_policy,
)
from proctor.server.runtime.results import RequestFailed
from tests.server.bare_sessions import run
from tests.server.governed.governed_sessions import Hall, assert_judged_alike, policy_with

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


def test_a_directive_whose_result_a_house_rule_would_refuse_does_not_run() -> None:
    async def scenario() -> None:
        hall = Hall(policy=policy_with(rules="SOON: DecisionPacket(ACT) leads to BeliefUpdatePacket within 4"))
        agent = await hall.agent()
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

    run(scenario())


def test_an_episode_that_is_nearly_full_lets_its_agent_stop() -> None:
    async def scenario() -> None:
        hall = Hall()
        agent = await hall.agent()
        await agent.permitted("move")
        stream = hall.governor.stream
        stream.standing = msgspec.structs.replace(stream.standing, packets=Limits().packets - 15)

        told = await agent.use("move", direction="up")

        assert told.rules == ["LIMIT-2"]
        assert "room to stop" in told.text
        assert hall.steps == 0

    run(scenario())


@pytest.mark.parametrize("within", [1, 2])
def test_a_proctors_packet_that_is_refused_all_the_same_loses_the_episode_loudly(
    within: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(packet_checks, "find_result_blockers", lambda *_: [])

    async def scenario() -> None:
        hall = Hall(policy=policy_with(rules=SOON.format(within)))
        agent = await hall.agent()
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

    run(scenario())


def test_an_episode_whose_first_observation_is_refused_never_begins() -> None:
    async def scenario() -> None:
        hall = Hall(policy=policy_with(rules="X: approval record before ObservationPacket"))
        await hall.session.open()

        with pytest.raises(RequestFailed, match="SESSION_ERROR"):
            await hall.granting.reset(hall.session, Reset(seed=1), 1)

        assert hall.session.loss is not None

    run(scenario())
