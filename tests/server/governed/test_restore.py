"""What a governor knows again after a restart, and what it remembers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from proctor.errors import ComponentError
from proctor.models.events import PacketJudged, decode_event, encode_event
from proctor.server.governed.episode_memory import LONGEST_VALUE
from proctor.server.governed.governance import Governance, list_waiting
from proctor.server.governed.governor import Governor
from tests.server.bare_sessions import run
from tests.server.governed.governed_sessions import BELIEF, Agent, Hall, assert_judged_alike, packet
from tests.server.governed.test_whatever_agents_do import POLICIES, calls, operated, used

pytestmark = pytest.mark.anyio


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
        hall, agent = await Hall.with_agent(policy=POLICIES["strict"], max_steps=12)
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


async def test_an_agent_goes_on_with_it_where_it_was() -> None:
    hall = await Hall.start()
    granted = hall.give()
    await Agent(hall.view(granted)).permitted("move", uses=2)

    governor = restored(hall)
    hall.for_agents._views.pop(granted.grant)
    agent = Agent(hall.view(granted))
    await governor.resume()
    told = [await agent.use("move", direction="up") for _ in range(3)]

    assert [one.refused for one in told] == [False, False, True]
    assert_judged_alike(hall.lines, hall.policy)


async def test_a_directive_whose_end_nobody_knows_is_cancelled() -> None:
    hall = await Hall.start()
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


async def test_a_record_that_gets_other_verdicts_is_not_taken_up() -> None:
    import msgspec

    hall, agent = await Hall.with_agent()
    await agent.believe()
    lines = [msgspec.structs.replace(line, state="S7_REVIEW") for line in kept(hall)]

    with pytest.raises(ComponentError, match="another verdict"):
        hall.governance.restore_governor(hall.session, lines)


@given(lengths=st.lists(st.integers(0, 3 * LONGEST_VALUE), min_size=1, max_size=4))
@settings(max_examples=10, deadline=None)
def test_a_long_belief_is_remembered_and_repeated_by_its_digest(lengths: list[int]) -> None:
    async def scenario() -> None:
        hall, agent = await Hall.with_agent()
        for number, length in enumerate(lengths):
            await agent.believe(**{f"k{number}": "x" * length})

        await agent.believe(**{f"k{number}": 1 for number in range(len(lengths))})

        changes = json.loads(bytes(hall.lines[-1].line))["payload"]["belief_changes"]
        for change, length in zip(changes, lengths, strict=True):
            if length + 2 <= LONGEST_VALUE:
                assert change["prior_value"] == "x" * length
            else:
                assert change["prior_value"]["bytes"] == length + 2
        assert len(bytes(hall.lines[-1].line)) < 4000 + len(lengths) * 2 * LONGEST_VALUE
        assert_judged_alike(hall.lines, hall.policy)

    run(scenario())


async def test_what_is_remembered_of_a_submitted_belief_is_no_part_of_its_line() -> None:
    hall, agent = await Hall.with_agent()
    change = {"domain": "d", "prior_value": None}
    names = ("k", "n" * 50_000)
    payload = {**BELIEF, "belief_changes": [{**change, "key": name, "new_value": 1} for name in names]}

    told = await agent.submit(packet(hall.policy, "BeliefUpdatePacket", payload, 3))

    assert not told.refused
    (kept,) = hall.governor.stream.memory.beliefs.items()
    assert (kept[0], bytes(kept[1])) == (("d", "k"), b"1")
