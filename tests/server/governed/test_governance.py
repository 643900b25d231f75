"""How a server's resets are governed: every single session, no batch, and the head of the record is the latest."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from proctor.errors import ComponentError
from proctor.models.control import Granted, GrantWish, Reset
from proctor.models.wire import Encoding
from proctor.server.governed.governor import find_governor
from proctor.server.governed.policy import GovernancePolicy, load_policy
from proctor.server.grants import GrantService
from proctor.server.runtime.results import RequestRefused
from tests.server.bare_sessions import run
from tests.server.governed.governed_sessions import Agent, Hall, policy_with


def test_the_head_in_the_reply_is_that_of_the_last_line() -> None:
    async def scenario() -> None:
        hall = Hall()
        hall.diary.head = lambda session: f"s.1@{len(hall.events)}:00"  # type: ignore[method-assign, assignment]  # a ledger's
        await hall.session.open()

        alone = json.loads(bytes(await hall.granting.reset(hall.session, Reset(seed=1), 1)))
        granted = json.loads(bytes(await hall.granting.reset(hall.session, Reset(seed=1, grant=GrantWish()), 2)))

        # Opened, reset, the record and the first observation; then the end, and the same again with a grant.
        assert alone["head"] == "s.1@4:00"
        assert granted["head"] == "s.1@9:00"
        assert granted["grant"]["tools"] == ["sniff", "move"]

    run(scenario())


def test_a_client_without_hello_is_governed_and_its_reply_is_as_it_was() -> None:
    async def scenario() -> None:
        hall = Hall()
        await hall.session.open()

        reply = json.loads(bytes(await hall.granting.reset(hall.session, Reset(seed=1), None)))

        assert "head" not in reply
        assert find_governor(hall.session) is not None
        assert len(hall.lines) == 2

    run(scenario())


def test_without_a_policy_nothing_is_governed() -> None:
    async def scenario() -> None:
        hall = Hall()
        hall.granting = GrantService(hall.grants, wall=hall.wall)

        await hall.begin()
        await hall.granting.sweep()

        assert find_governor(hall.session) is None
        assert hall.lines == []

    run(scenario())


def test_an_observation_that_is_packed_for_a_machine_is_not_repeated_to_an_agent() -> None:
    async def scenario() -> None:
        hall = Hall()
        hall.session.spec = replace(hall.session.spec, encoding=Encoding(packed=True))  # type: ignore[misc]

        agent = await hall.agent()

        assert json.loads(bytes(hall.lines[1].line))["payload"]["data"] == {"step": 0, "done": False}
        assert "base64" not in agent.view.instructions

    run(scenario())


def test_the_next_episode_has_a_governor_of_its_own() -> None:
    async def scenario() -> None:
        hall = Hall()
        await hall.begin()
        first = hall.governor

        await hall.begin()

        assert hall.governor is not first
        assert first.closed
        assert list(hall.governance.registry) == [hall.governor]
        assert hall.governor.stream.name == "corr_s_2"

    run(scenario())


NEVER = policy_with(tokens={"issuer": "never"})


@pytest.mark.parametrize("policy", [load_policy("strict"), NEVER], ids=["strict", "never"])
def test_a_grant_with_which_an_agent_could_not_go_on_is_refused(policy: GovernancePolicy) -> None:
    async def scenario() -> None:
        hall = Hall(policy=policy)
        await hall.begin()
        moves, both = GrantWish(tools=["move"]), GrantWish(tools=["move", "sniff"])

        with pytest.raises(RequestRefused) as alone:
            await hall.granting.grant(hall.session, moves, 2)
        with pytest.raises(RequestRefused) as with_reset:
            await hall.granting.reset(hall.session, Reset(seed=1, grant=moves), 3)
        granted = await hall.granting.grant(hall.session, both, 4)

        assert {each.value.problem.code for each in (alone, with_reset)} == {"VALIDATION_ERROR"}
        assert "only reads" in alone.value.problem.message
        assert hall.session.epoch == 1
        assert granted.tools == ["sniff", "move"]

    run(scenario())


def test_where_tokens_are_issued_a_grant_may_be_without_a_tool_that_reads() -> None:
    async def scenario() -> None:
        hall = Hall()
        await hall.begin()

        assert (await hall.granting.grant(hall.session, GrantWish(tools=["move"]), 2)).tools == ["move"]

    run(scenario())


@pytest.mark.parametrize("policy", [load_policy("strict"), NEVER], ids=["strict", "never"])
def test_an_agent_that_lacks_a_tool_is_told_so_and_never_a_false_way(policy: GovernancePolicy) -> None:
    async def scenario() -> None:
        hall = Hall(policy=policy)
        agent = Agent(hall.view(await given(hall)))
        await agent.believe()

        told = [await agent.decide("ACT"), await agent.use("move", direction="up")]
        await agent.decide("VERIFY_FIRST")
        await agent.use("plan_verification", targets=["a"])
        told += [await agent.believe(), await agent.decide("CANCEL"), await agent.use("move", direction="up")]

        refused = [one for one in told if one.refused]
        assert len(refused) >= 4
        assert all("way" not in one.said for one in refused)
        assert all("needs a t" in one.text and "orchestrator" in one.text for one in refused)
        assert all("request_token" not in one.said["next_calls"] for one in refused)

    run(scenario())


async def given(hall: Hall) -> Granted:
    """Return a grant of a tool that acts, as an earlier run of the server may have given it."""
    await hall.begin()
    return hall.give(tools=["move"])


def test_one_episode_that_cannot_be_recorded_does_not_keep_the_others_from_their_end() -> None:
    async def scenario() -> None:
        halls = [Hall(max_steps=2), Hall(max_steps=2, name="t")]
        halls[1].governance = halls[0].governance
        for hall in halls:
            hall.granting = GrantService(hall.grants, wall=hall.wall, governance=halls[0].governance)
            agent = await hall.agent()
            await agent.permitted("move")
            await agent.use("move", direction="up", steps=2)

        def full(event: object) -> None:
            raise ComponentError("the disk is full")

        halls[0].now += 100
        halls[0].diary.record = full  # type: ignore[method-assign]  # a disk that is full
        await halls[0].granting.sweep()

        assert halls[0].session.loss is not None
        assert [end.session for end in halls[1].ends] == ["t"]

    run(scenario())
