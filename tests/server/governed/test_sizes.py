"""How much an agent puts on record: one packet, and all that is refused of it."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

import msgspec
import pytest

from proctor.models.events import EpisodeClosed, Failed, encode_event
from proctor.server.governed.packet_stream import MOST_LISTED, PacketLimits
from tests.server.bare_sessions import run
from tests.server.governed.governed_sessions import BELIEF, Hall, Heard, assert_judged_alike, packet
from tests.server.governed.test_restore import restored

MOST = 8192


def hall_with(**limits: int) -> Hall:
    return Hall(packet_limits=PacketLimits(**limits))


@pytest.mark.parametrize("tool", ["believe", "sniff", "submit_packet", "escalate"])
def test_arguments_that_are_too_long_are_refused_unread_with_what_can_be_done(tool: str) -> None:
    async def scenario() -> None:
        hall = hall_with(packet_bytes=MOST)
        agent = await hall.agent()
        arguments = b'{"anything":"%b"}' % (b"x" * MOST)
        before = hall.governor.stream.standing

        told = Heard(await agent.view.call(tool, arguments))
        again = await agent.believe()

        assert (told.rules, told.said["code"]) == (["SIZE-1"], "REFUSED")
        assert str(MOST) in told.text
        assert told.said["legal_next"]
        line = hall.lines[-2]
        said = msgspec.json.decode(line.line)
        assert said == {"tool": tool, "bytes": len(arguments), "sha256": sha256(arguments).hexdigest()}
        assert (line.judged, line.accepted, line.rules) == (False, False, ["SIZE-1"])
        assert not again.refused
        assert before.position is not hall.governor.stream.position
        assert_judged_alike(hall.lines, hall.policy)

    run(scenario())


def submit(hall: Hall, size: int) -> tuple[str, bytes]:
    """Return a call that submits a belief of so many bytes."""
    changes = [{"domain": "d", "key": "k", "new_value": "x" * size, "prior_value": None}]
    said = packet(hall.policy, "BeliefUpdatePacket", {**BELIEF, "belief_changes": changes}, 3)
    return "submit_packet", msgspec.json.encode({"packet": said})


def believe(hall: Hall, size: int) -> tuple[str, bytes]:
    """Return a call that states a belief of so many bytes."""
    return "believe", msgspec.json.encode({"changes": {"k": "x" * size}})


@pytest.mark.parametrize("call", [submit, believe])
def test_a_packet_that_is_too_long_with_its_envelope_is_refused_before_it_is_judged(
    call: Callable[[Hall, int], tuple[str, bytes]],
) -> None:
    async def scenario() -> None:
        hall = hall_with(packet_bytes=MOST)
        agent = await hall.agent()
        tool, arguments = call(hall, MOST - len(call(hall, 0)[1]))
        told = Heard(await agent.view.call(tool, arguments))
        line = hall.lines[-1]
        short = Heard(await agent.view.call(*call(hall, 10)))

        assert len(arguments) == MOST
        assert told.rules == ["SIZE-1"]
        assert (line.judged, line.accepted) == (False, False)
        assert len(bytes(line.line)) < 200
        assert not short.refused
        assert all(len(bytes(each.line)) <= MOST for each in hall.lines)
        assert_judged_alike(hall.lines, hall.policy)

    run(scenario())


def test_a_packet_of_just_so_many_bytes_is_judged() -> None:
    async def scenario() -> None:
        hall = hall_with(packet_bytes=MOST)
        agent = await hall.agent()
        await agent.believe(k="x")
        await agent.believe(k="y")
        envelope = len(bytes(hall.lines[-1].line)) - 1

        told = await agent.believe(k="x" * (MOST - envelope))

        assert not told.refused
        assert len(bytes(hall.lines[-1].line)) == MOST

    run(scenario())


def test_refused_calls_end_the_episode_when_they_have_put_too_much_on_record() -> None:
    async def scenario() -> None:
        hall = hall_with(refused_bytes=20_000)
        agent = await hall.agent()
        told = []
        for _ in range(200):
            told.append(await agent.use("escalate"))
            if told[-1].code != "REFUSED":
                break
        after = await agent.believe()
        await hall.session.close("closed")

        assert 5 < len(told) < 50
        assert (told[-1].code, after.code) == ("EPISODE_FULL", "EPISODE_LOST")
        assert "refused calls" in told[-1].text
        assert next(event.code for event in hall.events if isinstance(event, Failed)) == "EPISODE_FULL"
        assert [event.reason for event in hall.events if isinstance(event, EpisodeClosed)] == ["lost"]
        assert sum(len(bytes(line.line)) for line in hall.lines if not line.accepted) < 20_000

    run(scenario())


def test_what_was_refused_before_a_restart_counts_after_it() -> None:
    async def scenario() -> None:
        hall = Hall()
        agent = await hall.agent()
        for _ in range(4):
            await agent.use("escalate")
        counted = hall.governor.stream._refused_bytes
        again = restored(hall)

        assert counted == sum(len(encode_event(line)) for line in hall.lines if not line.accepted) > 0
        assert again.stream._refused_bytes == counted

    run(scenario())


def test_of_a_line_of_errors_the_first_are_on_record_and_every_byte_of_them_counts() -> None:
    async def scenario() -> None:
        hall = Hall()
        agent = await hall.agent()
        said = packet(hall.policy, "BeliefUpdatePacket", {**BELIEF, **{f"k{n:03}": 0 for n in range(400)}}, 3)

        told = await agent.submit(said)
        line = hall.lines[-1]

        assert (told.rules, line.judged) == (["SCHEMA"], True)
        assert line.pointers == [f"/payload/k{n:03}" for n in range(MOST_LISTED)]
        assert hall.governor.stream._refused_bytes == len(encode_event(line))
        assert_judged_alike(hall.lines, hall.policy)

    run(scenario())


def test_of_references_by_names_of_the_agents_own_the_first_are_on_record() -> None:
    async def scenario() -> None:
        hall = Hall()
        agent = await hall.agent()
        named = packet(hall.policy, "BeliefUpdatePacket", dict(BELIEF), 3, header={"packet_id": "pkt_mine"})
        assert not (await agent.submit(named)).refused
        again = packet(hall.policy, "BeliefUpdatePacket", {**BELIEF, "evidence_integration": ["pkt_mine"] * 100}, 3)

        told = await agent.submit(again)

        assert told.rules == ["GOV-2"]
        assert hall.lines[-1].pointers == [f"/payload/evidence_integration/{n}" for n in range(MOST_LISTED)]

    run(scenario())
