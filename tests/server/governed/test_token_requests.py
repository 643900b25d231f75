"""Tokens: who issues them, for which tools, how often and how long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.contracts.tools import ToolSafety
from proctor.episode.episode_state import EpisodeState, IssuedToken, new_episode
from proctor.episode.packets.enums import OperationType
from proctor.server.governed.packet_builders import NO_TOKEN, choose_token, token_opens
from proctor.server.governed.packet_checks import token_refusals
from tests.server.bare_sessions import run
from tests.server.governed.governed_sessions import Hall, assert_judged_alike, policy_with

NOW = datetime(2030, 1, 1, tzinfo=UTC)
permits = st.builds(
    lambda number, tools, used, revoked, life: IssuedToken(
        f"token_{number}",
        tuple(tools),
        (OperationType.WRITE,),
        NOW + timedelta(seconds=life),
        3,
        used,
        revoked,
        "",
    ),
    st.integers(0, 9),
    st.lists(st.sampled_from(["move", "turn"]), min_size=1),
    st.integers(0, 3),
    st.booleans(),
    st.integers(-5, 5),
)


def with_tokens(found: list[IssuedToken]) -> EpisodeState:
    import msgspec

    return msgspec.structs.replace(new_episode("corr_x"), tokens={permit.token_id: permit for permit in found})


@given(found=st.lists(permits, max_size=5, unique_by=lambda permit: permit.token_id))
def test_a_call_names_the_latest_token_that_opens_its_tool_if_one_does(found: list[IssuedToken]) -> None:
    chosen = choose_token("move", ToolSafety.WRITE, with_tokens(found), NOW)

    fitting = [permit.token_id for permit in found if permit.live(NOW) and token_opens(permit, "move")]
    assert chosen == fitting[-1] if fitting else chosen in {NO_TOKEN, *(permit.token_id for permit in found)}
    assert choose_token("move", ToolSafety.READ, with_tokens(found), NOW) is None


@pytest.mark.parametrize(
    ("tools", "operations", "uses", "pointer"),
    [
        (["fly"], ["write"], 1, "/tools"),
        (["move"], ["write"], 21, "/uses"),
        (["move"], ["delete", "write"], 1, "/operations"),
        (["move"], ["write"], 20, None),
    ],
)
def test_what_is_beyond_the_policy_is_not_issued(
    tools: list[str], operations: list[str], uses: int, pointer: str | None
) -> None:
    bars = token_refusals(tools, operations, uses, ["sniff", "move"], policy_with("standard"))

    assert [bar.pointer for bar in bars] == ([] if pointer is None else [pointer])


def test_a_token_is_good_for_its_tools_its_uses_and_its_time() -> None:
    async def scenario() -> None:
        hall = Hall(action="oriented_grid")
        agent = await hall.agent()

        issued = await agent.permitted("turn", uses=2)
        other = await agent.use("move")
        turned = [await agent.use("turn", direction="left") for _ in range(3)]
        again = await agent.permitted("turn", uses=2)
        hall.now += 301
        expired = await agent.use("turn", direction="left")

        assert issued.said["token"]["tools"] == ["turn"]
        assert other.rules == ["INV-007"]
        assert other.said["way"] == ['request_token(tools=["move"])', "move"]
        assert [one.refused for one in turned] == [False, False, True]
        assert turned[-1].rules == ["E4"]
        assert again.said["token"]["uses_left"] == 2
        assert "expired" in expired.text
        assert expired.said["way"] == ['request_token(tools=["turn"])', "turn"]
        assert hall.steps == 2
        assert_judged_alike(hall.lines, hall.policy)

    run(scenario())


def test_a_request_beyond_the_limits_is_refused_recorded_and_told() -> None:
    async def scenario() -> None:
        hall = Hall()
        agent = await hall.agent()
        await agent.believe()
        await agent.decide()

        told = await agent.use("request_token", tools=["move"], uses=21, rationale="many")

        assert told.rules == ["POLICY-3"]
        assert "20 uses at most" in told.text
        line = hall.lines[-1]
        assert (line.judged, line.accepted, line.kind) == (False, False, "request_token")
        assert hall.governor.stream.standing.tokens == {}

    run(scenario())


def test_where_nobody_issues_tokens_nothing_acts() -> None:
    async def scenario() -> None:
        hall = Hall(policy=policy_with(tokens={"issuer": "never"}))
        agent = await hall.agent()

        told = await agent.permitted("move")
        moved = await agent.use("move", direction="up")
        read = await agent.use("sniff")

        assert told.rules == ["POLICY-3"]
        assert moved.refused
        assert not read.refused
        assert hall.steps == 0

    run(scenario())


def test_one_request_at_a_time_waits_for_an_operator() -> None:
    async def scenario() -> None:
        hall = Hall(policy=policy_with(tokens={"issuer": "human"}))
        agent = await hall.agent()
        nothing = await agent.use("request_token", wait_seconds=0)

        first = await agent.permitted("move", wait_seconds=0)
        second = await agent.use("request_token", tools=["move"], rationale="again", wait_seconds=0)

        assert nothing.rules == ["POLICY-3"]
        assert first.said["verdict"] == "waiting"
        assert second.rules == ["POLICY-3"]
        assert "without tools" in second.text
        assert len(hall.operator.pending()) == 1

    run(scenario())


def test_a_request_where_no_token_is_legal_is_refused_at_once() -> None:
    async def scenario() -> None:
        hall = Hall(policy=policy_with(tokens={"issuer": "human"}))
        agent = await hall.agent()

        told = await agent.use("request_token", tools=["move"], rationale="too early", wait_seconds=10)

        assert told.rules == ["FSM"]
        assert told.said["way"] == ["believe", 'decide(outcome="ACT")', "request_token"]
        assert hall.operator.pending() == []
        assert_judged_alike(hall.lines, hall.policy)

    run(scenario())


@pytest.mark.parametrize("how", ["revoked", "used up", "expired"])
def test_a_token_that_opens_nothing_any_more_is_told_as_that(how: str) -> None:
    async def scenario() -> None:
        hall = Hall(policy=policy_with(tokens={"issuer": "human"}))
        agent = await hall.agent()
        await agent.permitted("move", uses=1, wait_seconds=0)
        await hall.operator.approve(hall.operator.pending()[0])
        good = await agent.use("request_token")
        if how == "revoked":
            await hall.operator.revoke(hall.episode, token_id=good.said["token"]["token_id"])
        elif how == "used up":
            await agent.use("move", direction="up")
        else:
            hall.now += 301

        told = await agent.use("request_token")

        assert "you may use move once" in good.text
        assert told.rules == ["POLICY-3"]
        assert f"is {how}" in told.text
        assert "you have a token" not in told.text
        assert not hall.lines[-1].accepted

    run(scenario())
