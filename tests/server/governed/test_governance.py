"""How a server's resets are governed: every single session, no batch, and the head of the record is the latest."""

from __future__ import annotations

import json
from dataclasses import replace

from proctor.models.control import Reset
from proctor.models.grants import GrantWish
from proctor.models.wire import Encoding
from proctor.server.control.granting import Granting
from proctor.server.governed.governor import governor_of
from tests.server.governed.rooms import Hall
from tests.server.rooms import run


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
        assert governor_of(hall.session) is not None
        assert len(hall.lines) == 2

    run(scenario())


def test_without_a_policy_nothing_is_governed() -> None:
    async def scenario() -> None:
        hall = Hall()
        hall.granting = Granting(hall.grants, wall=hall.wall)

        await hall.begin()
        await hall.granting.wrap_up()

        assert governor_of(hall.session) is None
        assert hall.lines == []

    run(scenario())


def test_an_observation_that_is_packed_for_a_machine_is_not_repeated_to_an_agent() -> None:
    async def scenario() -> None:
        hall = Hall()
        hall.session.opening = replace(hall.session.opening, encoding=Encoding(packed=True))  # type: ignore[misc]

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
