"""What a governor remembers stays small, whatever agents say."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.server.governed.episode_memory import LONGEST_VALUE
from tests.server.bare_sessions import run
from tests.server.governed.governed_sessions import BELIEF, Hall, assert_judged_alike, packet


@given(lengths=st.lists(st.integers(0, 3 * LONGEST_VALUE), min_size=1, max_size=4))
@settings(max_examples=10, deadline=None)
def test_a_long_belief_is_remembered_and_repeated_by_its_digest(lengths: list[int]) -> None:
    async def scenario() -> None:
        hall = Hall()
        agent = await hall.agent()
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


def test_what_is_remembered_of_a_submitted_belief_is_no_part_of_its_line() -> None:
    async def scenario() -> None:
        hall = Hall()
        agent = await hall.agent()
        change = {"domain": "d", "prior_value": None}
        names = ("k", "n" * 50_000)
        payload = {**BELIEF, "belief_changes": [{**change, "key": name, "new_value": 1} for name in names]}

        told = await agent.submit(packet(hall.policy, "BeliefUpdatePacket", payload, 3))

        assert not told.refused
        (kept,) = hall.governor.stream.memory.beliefs.items()
        assert (kept[0], bytes(kept[1])) == (("d", "k"), b"1")

    run(scenario())
