"""A governor that was rebuilt from the record: it says what the one before would have said."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from proctor.errors import ComponentError
from proctor.models.events import PacketJudged, decode_event, encode_event
from proctor.server.governed.governance import Governance, list_waiting
from proctor.server.governed.governor import Governor
from tests.server.bare_sessions import run
from tests.server.governed.governed_sessions import Agent, Hall, assert_judged_alike
from tests.server.governed.test_whatever_agents_do import POLICIES, calls, operated, used


def kept(hall: Hall) -> list[PacketJudged]:
    """Return the lines as they come back from a file."""
    found = [decode_event(encode_event(line)) for line in hall.lines]
    return [line for line in found if isinstance(line, PacketJudged)]


def restored(hall: Hall) -> Governor:
    """Put a rebuilt governor in the place of the one that governs."""
    hall.governance = Governance(hall.policy, wall=hall.wall, clock=lambda: hall.now)
    return hall.governance.restore_governor(hall.session, kept(hall), next(iter(hall.ends), None))


@given(doings=calls)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
def test_it_knows_what_the_one_before_knew(doings: list[Any]) -> None:
    async def scenario() -> None:
        hall = Hall(policy=POLICIES["strict"], max_steps=12)
        agent = await hall.agent()
        for doing in doings:
            await (operated(hall, doing) if isinstance(doing, str) else used(hall, agent, doing))
        before = hall.governor
        waiting = list_waiting(before.stream)

        after = restored(hall)

        assert after is hall.governor is not before
        assert after.stream.standing == before.stream.standing
        assert after.stream.memory == before.stream.memory
        assert list_waiting(after.stream) == waiting
        assert after.stream.now() == before.stream.now()
        assert (after.closed, after.conclusion) == (before.closed, before.conclusion)
        assert len(list(hall.governance.registry)) == (not after.closed)

    run(scenario())


def test_an_agent_goes_on_with_it_where_it_was() -> None:
    async def scenario() -> None:
        hall = Hall()
        await hall.begin()
        granted = hall.give()
        await Agent(hall.view(granted)).permitted("move", uses=2)

        governor = restored(hall)
        hall.for_agents._views.pop(granted.grant)
        agent = Agent(hall.view(granted))
        await governor.resume()
        told = [await agent.use("move", direction="up") for _ in range(3)]

        assert [one.refused for one in told] == [False, False, True]
        assert_judged_alike(hall.lines, hall.policy)

    run(scenario())


def test_a_directive_whose_end_nobody_knows_is_cancelled() -> None:
    async def scenario() -> None:
        hall = Hall()
        await hall.begin()
        granted = hall.give()
        agent = Agent(hall.view(granted))
        await agent.permitted("move")
        await agent.use("move", direction="up")
        killed = next(i for i, line in enumerate(hall.lines) if line.kind == "TaskResultPacket")
        # As if the server had been killed between the directive and its result.
        hall.diary.events[:] = [event for event in hall.events if event not in hall.lines[killed:]]

        governor = restored(hall)
        hall.for_agents._views.pop(granted.grant)
        stuck = dict(governor.stream.standing.tasks)
        await governor.resume()
        told = await Agent(hall.view(granted)).believe()

        assert len(stuck) == 1
        assert hall.lines[-2].kind == "TaskResultPacket"
        assert governor.stream.standing.tasks == {}
        assert not told.refused
        assert_judged_alike(hall.lines, hall.policy)

    run(scenario())


def test_a_record_that_gets_other_verdicts_is_not_taken_up() -> None:
    import msgspec

    async def scenario() -> None:
        hall = Hall()
        agent = await hall.agent()
        await agent.believe()
        lines = [msgspec.structs.replace(line, state="S7_REVIEW") for line in kept(hall)]

        with pytest.raises(ComponentError, match="another verdict"):
            hall.governance.restore_governor(hall.session, lines)

    run(scenario())
