"""Requests that wait for their answers: whose a reply is, how long one waits, and what is kept."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert

from proctor.client.connection import Connection, PendingRequest, encode_request
from proctor.client.replies import EpisodeLoss
from proctor.errors import ConnectionFailed, EpisodeLost, StateError
from proctor.models.control import MessageKind, RawReply, Welcome
from tests.client.fake_server import WELCOME

pytestmark = pytest.mark.anyio

REPLY = RawReply("state")
NUMBERS = st.none() | st.integers(1, 2**53)
LEAVES = st.none() | st.booleans() | st.integers() | st.text()
VALUES = st.dictionaries(st.text(), LEAVES | st.lists(LEAVES))
PATIENCE = 120.0


@given(st.sampled_from(list(MessageKind)), st.none() | VALUES, NUMBERS, st.none() | st.text(), NUMBERS)
def test_a_request_says_what_it_was_given_and_nothing_else(
    kind: MessageKind, data: Any, number: int | None, session: str | None, epoch: int | None
) -> None:
    given_data = b"" if data is None else json.dumps(data).encode()
    given_session = None if session is None else json.dumps(session).encode()
    said = json.loads(encode_request(kind, given_data, number, given_session, epoch))
    expected = {"type": kind.value, "data": data, "id": number, "session": session, "epoch": epoch}

    assert said == {key: value for key, value in expected.items() if value is not None}


def pending() -> PendingRequest:
    return PendingRequest(MessageKind.STATE, b"", 1)


async def test_an_answer_that_comes_too_late_is_kept_for_whoever_asks_again() -> None:
    asked = pending()
    first = await asked.answer(0.001)
    asked.settle(REPLY)
    result = first, await asked.answer(20)

    assert result == (None, REPLY)


async def test_an_answer_survives_the_one_who_waited_for_it() -> None:
    asked = pending()
    waiting = asyncio.create_task(asked.answer(20))
    await asyncio.sleep(0)
    asked.settle(REPLY)
    waiting.cancel()
    await asyncio.wait([waiting])
    result = await asked.answer(20)

    assert result is REPLY


@pytest.mark.parametrize(
    ("reason", "kind"), [(EpisodeLoss("gone", "X"), EpisodeLost), (ConnectionFailed("broke"), ConnectionFailed)]
)
def test_a_reason_why_there_is_no_answer_is_raised(
    reason: EpisodeLoss | ConnectionFailed, kind: type[EpisodeLost] | type[ConnectionFailed]
) -> None:
    asked = pending()
    asked.fail(reason)

    with pytest.raises(kind):
        asyncio.run(asked.answer(20))


class WrittenSocket:
    """Takes what is sent to it, and says nothing."""

    def __init__(self) -> None:
        self.said: list[bytes] = []

    def say(self, message: bytes) -> None:
        self.said.append(message)


def connected(*, greeted: bool = True, most: int = 1000) -> Connection:
    """Return a connection to nobody."""
    connection = Connection("http://h:1", environment={})
    connection.welcome = convert({**WELCOME, "max_message_bytes": most}, Welcome) if greeted else None
    connection._socket = WrittenSocket()  # type: ignore[assignment]  # only `say` is asked of it
    return connection


def tell(connection: Connection, kind: str, number: int | None, **more: Any) -> None:
    connection.on_message(json.dumps({"type": kind, "data": {}, "id": number, **more}).encode())


@given(st.lists(st.integers(0, 9), max_size=30))
def test_an_id_alone_tells_whose_reply_it_is(order: list[int]) -> None:
    connection = connected()
    asked = [connection.ask(MessageKind.METADATA, b"") for _ in range(10)]
    for index in order:
        tell(connection, "metadata", asked[index].number)
    tell(connection, "metadata", 99)

    assert [each.reply is not None for each in asked] == [index in order for index in range(10)]


def test_without_ids_one_request_waits_at_a_time_and_is_forgotten_only_by_itself() -> None:
    connection = connected(greeted=False)
    first = connection.ask(MessageKind.STATE, b"")
    with pytest.raises(StateError):
        connection.ask(MessageKind.STATE, b"")
    connection.forget(first)
    second = connection.ask(MessageKind.STATE, b"")
    connection.forget(first)

    assert second.number is None
    with pytest.raises(StateError):
        connection.ask(MessageKind.STATE, b"")


def test_an_error_without_an_id_is_about_the_only_one_or_nobody_knows() -> None:
    connection = connected()
    asked = [connection.ask(MessageKind.METADATA, b"") for _ in range(2)]
    problem = {"message": "no", "code": "INVALID_JSON"}
    tell(connection, "error", None, data=problem)
    before = [each.reply for each in asked]
    connection.forget(asked[0])
    tell(connection, "error", None, data=problem)

    assert before == [None, None]
    assert asked[1].reply is not None


@given(st.lists(st.integers(0, 20), min_size=1, max_size=12), st.sets(st.integers(0, 11)))
async def test_all_are_woken_when_they_are_due_and_not_before_but_for_those_let_alone(
    times: list[int], alone: set[int]
) -> None:
    loop = asyncio.get_running_loop()
    begun, woken = loop.time(), dict[int, float]()

    async def wait(index: int, milliseconds: int) -> None:
        if await pending().answer(milliseconds / 1000) is None:
            woken[index] = loop.time()

    tasks = [asyncio.create_task(wait(index, time)) for index, time in enumerate(times)]
    await asyncio.sleep(0)
    for index in alone & set(range(len(times))):
        tasks[index].cancel()
    async with asyncio.timeout(PATIENCE):
        await asyncio.wait(tasks)
    assert woken.keys() == set(range(len(times))) - alone
    assert all(at >= begun + times[index] / 1000 - 1e-3 for index, at in woken.items())
