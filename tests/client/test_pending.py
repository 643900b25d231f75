import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.client.continuity import EpisodeLoss
from proctor.client.requests import Alarm, PendingRequest, encode_request
from proctor.errors import ConnectionFailed, EpisodeLost
from proctor.models.control import MessageKind, RawReply

REPLY = RawReply("state")
NUMBERS = st.none() | st.integers(1, 2**53)
LEAVES = st.none() | st.booleans() | st.integers() | st.text()
VALUES = st.dictionaries(st.text(), LEAVES | st.lists(LEAVES))


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
    return PendingRequest(MessageKind.STATE, b"", 1, None, Alarm())


def test_an_answer_that_came_before_anybody_waited_is_there() -> None:
    asked = pending()
    asked.settle(REPLY)

    assert asyncio.run(asked.answer(20)) is REPLY


def test_an_answer_that_comes_while_somebody_waits_wakes_him() -> None:
    async def main() -> RawReply | None:
        asked = pending()
        asyncio.get_running_loop().call_soon(asked.settle, REPLY)
        return await asked.answer(20)

    assert asyncio.run(main()) is REPLY


def test_an_answer_that_comes_too_late_is_kept_for_whoever_asks_again() -> None:
    async def main() -> tuple[RawReply | None, RawReply | None]:
        asked = pending()
        first = await asked.answer(0.001)
        asked.settle(REPLY)
        return first, await asked.answer(20)

    assert asyncio.run(main()) == (None, REPLY)


def test_an_answer_survives_the_one_who_waited_for_it() -> None:
    async def main() -> RawReply | None:
        asked = pending()
        waiting = asyncio.create_task(asked.answer(20))
        await asyncio.sleep(0)
        asked.settle(REPLY)
        waiting.cancel()
        await asyncio.wait([waiting])
        return await asked.answer(20)

    assert asyncio.run(main()) is REPLY


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
