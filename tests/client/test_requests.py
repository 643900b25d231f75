import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.client.requests import PendingRequests
from proctor.errors import ConnectionFailed, StateError, ValidationError
from proctor.models.control import MessageKind, RawReply


@given(st.lists(st.integers(0, 9), max_size=30))
def test_an_id_alone_tells_whose_reply_it_is(order: list[int]) -> None:
    outbox = PendingRequests()
    asked = [outbox.add_with_id(MessageKind.METADATA, b"", None, None, 1000) for _ in range(10)]
    for index in order:
        outbox.answer(RawReply("metadata", id=asked[index].number))

    assert [each.reply is not None for each in asked] == [index in order for index in range(10)]
    assert outbox.waiting() == [each for index, each in enumerate(asked) if index not in order]


def test_a_reply_that_comes_twice_or_to_nobody_is_dropped() -> None:
    outbox = PendingRequests()
    asked = outbox.add_with_id(MessageKind.METADATA, b"", None, None, 1000)
    first = RawReply("metadata", id=asked.number)
    for reply in (first, RawReply("state", id=asked.number), RawReply("state", id=99)):
        outbox.answer(reply)

    assert asked.reply is first


def test_without_ids_one_request_waits_at_a_time() -> None:
    outbox = PendingRequests()
    first = outbox.add_without_id(MessageKind.STATE, b"")

    with pytest.raises(StateError):
        outbox.add_without_id(MessageKind.STATE, b"")
    outbox.forget(first)
    assert outbox.add_without_id(MessageKind.STATE, b"").number is None


def test_a_request_that_is_too_large_does_not_wait() -> None:
    outbox = PendingRequests()

    with pytest.raises(ValidationError):
        outbox.add_with_id(MessageKind.STEP, b"x" * 100, None, 1, 50)
    assert outbox.waiting() == []


def test_a_request_is_forgotten_only_by_itself() -> None:
    outbox = PendingRequests()
    first = outbox.add_without_id(MessageKind.STATE, b"")
    outbox.forget(first)
    second = outbox.add_without_id(MessageKind.STATE, b"")
    outbox.forget(first)

    assert outbox.waiting() == [second]


def test_an_error_without_an_id_is_about_the_only_one_or_nobody_knows() -> None:
    outbox = PendingRequests()
    error = RawReply("error")
    asked = [outbox.add_with_id(MessageKind.METADATA, b"", None, None, 1000) for _ in range(2)]
    outbox.blame(error)
    before = [each.reply for each in asked]
    outbox.forget(asked[0])
    outbox.blame(error)

    assert before == [None, None]
    assert asked[1].reply is error


def test_all_who_wait_learn_that_there_will_be_no_answer() -> None:
    outbox = PendingRequests()
    asked = outbox.add_with_id(MessageKind.METADATA, b"", None, None, 1000)
    outbox.fail(None, "broken")

    with pytest.raises(ConnectionFailed, match="broken"):
        asyncio.run(asked.answer(20))
