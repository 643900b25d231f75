"""A line carries one message out and one back; whatever else comes over it breaks it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.server.sandbox.messages import LENGTH, MOST_BYTES, PIECE, encode_frame, read_message
from proctor.server.sandbox.pool import worker_socket as line_module
from proctor.server.sandbox.pool.worker_socket import (
    LONG,
    SO_PASSRIGHTS,
    AnswerBudget,
    BreakReason,
    SocketBroken,
    WorkerSocket,
)
from tests.server.live_server import PATIENCE
from tests.server.sandbox.processes import comes_true, run

pytestmark = pytest.mark.anyio

ASK = encode_frame(b"ask")


@asynccontextmanager
async def lines() -> AsyncIterator[tuple[WorkerSocket, socket.socket, list[BreakReason]]]:
    """Give a line, the other end, which blocks, and why it broke."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(PATIENCE)
    broken: list[BreakReason] = []
    line = WorkerSocket(ours, broken.append)
    try:
        with theirs:
            yield line, theirs, broken
    finally:
        line.cut(BreakReason.LEFT)
    assert ours.fileno() == -1
    assert len(broken) == 1


async def answered(line: WorkerSocket, theirs: socket.socket, reply: bytes) -> bytes:
    """Return what an asking gets if the other end answers with these bytes."""
    asking = asyncio.create_task(line.ask(ASK))
    await asyncio.to_thread(read_message, theirs)
    threading.Thread(target=theirs.sendall, args=(reply,)).start()
    return bytes(await asking)


def breaks(reply: bytes) -> BreakReason:
    """Return how a line breaks if the other end answers with these bytes and stays."""

    async def scenario() -> BreakReason:
        async with lines() as (line, theirs, broken):
            with pytest.raises(SocketBroken) as caught:
                await answered(line, theirs, reply)
            assert broken == [caught.value.reason]
            return caught.value.reason

    return run(scenario())


@pytest.mark.parametrize("length", [0, 1, PIECE - LENGTH.size, PIECE, 5 * PIECE + 3])
async def test_an_answer_of_any_length_comes_back(length: int) -> None:
    async with lines() as (line, theirs, _):
        reply = LENGTH.pack(length) + bytes(length)
        found = [await answered(line, theirs, reply) for _ in range(2)]

    assert found == [bytes(length)] * 2


async def test_a_question_that_does_not_fit_the_socket_is_sent_as_it_is_read() -> None:
    async with lines() as (line, theirs, _):
        asking = asyncio.create_task(line.ask(encode_frame(bytes(2**22))))
        body = await asyncio.to_thread(read_message, theirs)
        theirs.sendall(encode_frame(b"yes"))
        asked, answer = bytes(body or b""), bytes(await asking)

    assert len(asked) > 2**22
    assert answer == encode_frame(b"yes")[LENGTH.size :]


@settings(max_examples=20, deadline=None)
@given(st.binary(min_size=1, max_size=30), st.integers(1, 33))
def test_an_answer_comes_back_from_whatever_pieces(body: bytes, cut: int) -> None:
    frame = LENGTH.pack(len(body)) + body

    async def scenario() -> bytes:
        async with lines() as (line, theirs, _):
            asking = asyncio.create_task(line.ask(ASK))
            await asyncio.sleep(0)  # it has asked
            for piece in (frame[:cut], frame[cut:]):
                theirs.sendall(piece)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
            return bytes(await asking)

    assert run(scenario()) == body


@pytest.mark.parametrize(
    ("reply", "how"),
    [
        (LENGTH.pack(MOST_BYTES + 1), BreakReason.TOO_MUCH),
        (b"\xff" * 100, BreakReason.TOO_MUCH),
        (LENGTH.pack(1) + b"ab", BreakReason.UNASKED),
        (bytes(LENGTH.size + 1), BreakReason.UNASKED),
        (bytes(3 * PIECE), BreakReason.UNASKED),
    ],
)
def test_an_answer_that_is_none_breaks_the_line(reply: bytes, how: BreakReason) -> None:
    assert breaks(reply) is how


async def test_a_line_whose_other_end_closes_is_broken_and_stays_so() -> None:
    async with lines() as (line, theirs, _):
        asking = asyncio.create_task(line.ask(ASK))
        await asyncio.to_thread(read_message, theirs)
        theirs.close()
        found = []
        for question in (asking, line.ask(ASK)):
            with pytest.raises(SocketBroken) as caught:
                await question
            found.append(caught.value.reason)
        result = found

    assert result == [BreakReason.ENDED, BreakReason.ENDED]


async def test_what_comes_unasked_breaks_the_line_at_once() -> None:
    async with lines() as (_, theirs, broken):
        theirs.sendall(encode_frame(b"hello"))
        await comes_true(lambda: broken)
        found = broken[:]

    assert found == [BreakReason.UNASKED]


def test_a_descriptor_that_comes_with_an_answer_is_not_taken() -> None:
    def is_known() -> bool:
        with socket.socket(socket.AF_UNIX) as plain, suppress(OSError):
            return plain.getsockopt(socket.SOL_SOCKET, SO_PASSRIGHTS) == 1
        return False

    async def scenario() -> bool:
        async with lines() as (_, theirs, _):
            try:
                socket.send_fds(theirs, [b"x"], [0])
            except PermissionError:
                return True
            return False

    assert run(scenario()) == is_known()


LONGER = LENGTH.pack(2 * LONG) + bytes(2 * LONG)


@asynccontextmanager
async def lines_that_share(room: AnswerBudget, count: int) -> AsyncIterator[list[tuple[WorkerSocket, socket.socket]]]:
    """Give lines, each asked something, with their other ends."""
    pairs = [socket.socketpair() for _ in range(count)]
    found = [(WorkerSocket(ours, lambda how: None, room), theirs) for ours, theirs in pairs]
    for line, theirs in found:
        line.most = len(LONGER)
        theirs.settimeout(PATIENCE)
    try:
        yield found
    finally:
        for line, theirs in found:
            line.cut(BreakReason.LEFT)
            theirs.close()


async def hears(line: WorkerSocket) -> None:
    async with asyncio.timeout(PATIENCE):
        while not line.received_bytes:
            await asyncio.sleep(0.001)


async def test_a_long_answer_waits_for_room_and_a_short_one_does_not() -> None:
    room = AnswerBudget(3 * LONG)
    async with lines_that_share(room, 3) as ((one, first), (two, second), (three, third)):
        asked = [asyncio.create_task(line.ask(ASK)) for line in (one, two)]
        await asyncio.sleep(0)
        await asyncio.to_thread(first.sendall, LONGER[:-1])
        await hears(one)
        sending = asyncio.create_task(asyncio.to_thread(second.sendall, LONGER))
        await hears(two)
        short = await answered(three, third, bytes(encode_frame(b"short")))
        while_waiting = two.received_bytes
        await asyncio.to_thread(first.sendall, LONGER[-1:])
        long = bytes(await asked[0])
        assert not asked[1].done()
        one.release_answer()
        await sending
        longer = bytes(await asked[1])

    assert while_waiting <= PIECE
    assert short == encode_frame(b"short")[LENGTH.size :]
    assert long == longer == LONGER[LENGTH.size :]


async def test_who_holds_room_and_sends_nothing_more_makes_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_module, "STALL_SECONDS", 0.01)

    async with lines_that_share(AnswerBudget(3 * LONG), 2) as ((one, first), (two, second)):
        held = asyncio.create_task(one.ask(ASK))
        asked = asyncio.create_task(two.ask(ASK))
        await asyncio.sleep(0)
        await asyncio.to_thread(first.sendall, LONGER[:-1])
        await hears(one)
        await asyncio.to_thread(second.sendall, LONGER)
        with pytest.raises(SocketBroken):
            await held
        found = one.reason, bytes(await asked)

    assert found == (BreakReason.STALLED, LONGER[LENGTH.size :])


async def test_who_waits_for_room_and_leaves_is_in_nobodys_way() -> None:
    room = AnswerBudget(2 * LONG)
    async with lines_that_share(room, 3) as ((one, first), (two, second), (three, third)):
        asked = [asyncio.create_task(line.ask(ASK)) for line in (one, two, three)]
        await asyncio.sleep(0)
        for line, theirs in ((one, first), (two, second), (three, third)):
            threading.Thread(target=_send, args=(theirs, LONGER)).start()
            await hears(line) if line is not one else await asked[0]
        two.cut(BreakReason.LEFT)
        one.release_answer()
        with pytest.raises(SocketBroken):
            await asked[1]
        found = bytes(await asked[2])

    assert found == LONGER[LENGTH.size :]


def _send(theirs: socket.socket, reply: bytes) -> None:
    with suppress(OSError):
        theirs.sendall(reply)


async def test_a_question_that_is_given_up_breaks_the_line() -> None:
    async with lines() as (line, theirs, broken):
        asking = asyncio.create_task(line.ask(ASK))
        await asyncio.to_thread(read_message, theirs)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        found = broken[:]

    assert found == [BreakReason.LEFT]


async def test_a_second_question_before_the_answer_is_refused() -> None:
    async with lines() as (line, theirs, broken):
        asking = asyncio.create_task(line.ask(ASK))
        await asyncio.to_thread(read_message, theirs)
        with pytest.raises(SocketBroken):
            await line.ask(ASK)
        theirs.sendall(encode_frame(b"yes"))
        await asking
        assert broken == []


async def test_an_answer_that_takes_too_long_breaks_the_line() -> None:
    async with lines() as (line, theirs, _):
        line.timeout = PATIENCE
        await answered(line, theirs, bytes(encode_frame(b"in time")))
        line.timeout = 0.05
        line._check_progress()  # what was set for the first question
        with pytest.raises(SocketBroken) as caught:
            await line.ask(ASK)
        found = caught.value.reason

    assert found is BreakReason.LATE


async def test_a_timer_that_rings_too_early_for_a_later_question_is_set_anew() -> None:
    async with lines() as (line, theirs, broken):
        line.timeout = PATIENCE
        asking = asyncio.create_task(line.ask(ASK))
        await asyncio.to_thread(read_message, theirs)
        line._check_progress()
        assert broken == []
        theirs.sendall(encode_frame(b"in time"))
        found = bytes(await asking)

    assert found == encode_frame(b"in time")[LENGTH.size :]


async def test_a_timer_that_rings_when_nothing_is_asked_breaks_nothing() -> None:
    async with lines() as (line, theirs, broken):
        line.timeout = PATIENCE
        await answered(line, theirs, bytes(encode_frame(b"in time")))
        line._check_progress()
        found = broken[:]

    assert found == []
