"""A grant is good for one episode of one session, for as long as was said, and for nobody who only nearly knows its token."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from proctor.models.control import Code
from proctor.server.runtime.results import RequestRefused
from tests.server.bare_sessions import ADDRESS, Room, run

pytestmark = pytest.mark.anyio


def refusal(room: Room, **wish: Any) -> str:
    with pytest.raises(RequestRefused) as caught:
        room.give(**wish)
    return caught.value.problem.code


async def test_a_grant_names_address_tools_episode_and_end() -> None:
    room = await Room.start()

    granted = room.give(agent="bob", ttl_seconds=60)

    assert granted.address == ADDRESS
    assert granted.tools == ["observe", "act"]
    assert granted.episode_id == "s.1"
    assert granted.expires_at == 100.0 + 1e9 + 60
    assert granted.token not in repr(room.grants.find(granted.token))


async def test_before_a_reset_and_after_the_end_there_is_nothing_to_grant() -> None:
    room = Room()
    assert refusal(room) == Code.STATE_ERROR

    await room.begin()
    room.session.standing.terminated = True

    assert refusal(room) == Code.STATE_ERROR


async def test_a_server_without_agent_plane_gives_no_grants() -> None:
    room = await Room.start(address=None)

    assert refusal(room) == Code.NO_AGENT_PLANE


async def test_only_so_many_agents_at_once_as_the_environment_allows() -> None:
    room = await Room.start()
    first = room.give()
    assert refusal(room) == Code.GRANTS_TAKEN

    room.grants.revoke(room.session, first.grant)

    assert room.grants.find(room.give().token) is not None


async def test_a_grant_can_be_for_some_tools_only() -> None:
    room = await Room.start()
    assert refusal(room, tools=["observe", "reset"]) == Code.VALIDATION_ERROR

    granted = room.give(tools=["observe"])
    told = await room.view(granted).call("act", b'{"action":1}')

    assert granted.tools == ["observe"]
    assert told.is_error
    assert room.session.step_count == 0


@pytest.mark.parametrize("end", ["reset", "close"])
async def test_another_reset_and_the_end_of_the_session_kill_a_grant_for_good(end: str) -> None:
    room = await Room.start()
    granted = room.give()

    await (room.begin() if end == "reset" else room.session.close("closed"))

    assert room.grants.find(granted.token) is None
    assert room.grants.live(room.session) == []


async def test_what_is_dead_is_forgotten_and_whoever_asked_is_told() -> None:
    room, forgotten = Room(), list[str]()
    room.grants.on_forget(forgotten.append)
    await room.begin()
    granted = room.give(ttl_seconds=5)
    room.grants.sweep()
    assert forgotten == []

    room.now += 5
    room.grants.sweep()

    assert forgotten == [granted.grant]
    assert room.grants.find(granted.token) is None


@pytest.mark.parametrize("wrong", [None, "", "x", "x" * 2000, "a b" * 10, "ü" * 20])
def test_what_is_no_token_finds_nothing(wrong: str | None) -> None:
    assert Room().grants.find(wrong) is None


async def test_a_token_with_one_bit_flipped_finds_nothing() -> None:
    room = await Room.start()
    token = room.give().token

    flipped = [token[:i] + chr(ord(token[i]) ^ bit) + token[i + 1 :] for i in range(len(token)) for bit in (1, 2, 4)]

    assert all(room.grants.find(each) is None for each in flipped)
    assert room.grants.find(token) is not None


class GrantMachine(RuleBasedStateMachine):
    """Grants against a model that knows, for each token, of which episode it is, until when, and whether it was revoked."""

    def __init__(self) -> None:
        super().__init__()
        self.room = Room()
        self.model: dict[str, tuple[str, int, float | None]] = {}
        self.epoch = 0

    @rule(seconds=st.sampled_from([1.0, 5.0, 30.0]))
    def pass_time(self, seconds: float) -> None:
        self.room.now += seconds

    @rule()
    def reset(self) -> None:
        run(self.room.begin())
        self.epoch += 1

    @precondition(lambda self: self.epoch > 0)
    @rule(ttl=st.none() | st.sampled_from([2.0, 10.0]))
    def grant(self, ttl: float | None) -> None:
        if any(self._holds(token) for token in self.model):
            assert refusal(self.room, ttl_seconds=ttl) == Code.GRANTS_TAKEN
            return
        granted = self.room.give(ttl_seconds=ttl)
        self.model[granted.token] = (granted.grant, self.epoch, None if ttl is None else self.room.now + ttl)

    @precondition(lambda self: self.model)
    @rule(which=st.integers(0, 10))
    def revoke(self, which: int) -> None:
        token = list(self.model)[which % len(self.model)]
        name, _, _ = self.model[token]

        live = self.room.grants.revoke(self.room.session, name)

        assert live == self._holds(token)
        self.model[token] = (name, -1, None)

    @rule()
    def sweep(self) -> None:
        self.room.grants.sweep()

    def _holds(self, token: str) -> bool:
        _, epoch, ends_at = self.model[token]
        return epoch == self.epoch and (ends_at is None or self.room.now < ends_at)

    @invariant()
    def a_token_is_good_exactly_while_the_model_says_so(self) -> None:
        for token in self.model:
            assert (self.room.grants.find(token) is not None) == self._holds(token)


GrantMachine.TestCase.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)
TestAGrantLivesAsLongAsTheModelSays = GrantMachine.TestCase
