"""A line carries one message out and one back; whatever else comes over it breaks it."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.server.sandbox.line import Break, Broken, Line
from proctor.server.sandbox.pipe import LENGTH, MOST_BYTES, PIECE, framed, read
from tests.server.sandbox.processes import comes_true, run
from tests.server.served import PATIENCE

ASK = framed(b"ask")


@asynccontextmanager
async def lines() -> AsyncIterator[tuple[Line, socket.socket, list[Break]]]:
    """Give a line, the other end, which blocks, and why it broke."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(PATIENCE)
    broken: list[Break] = []
    line = Line(ours, broken.append)
    try:
        with theirs:
            yield line, theirs, broken
    finally:
        line.cut(Break.LEFT)
    assert ours.fileno() == -1
    assert len(broken) == 1


async def answered(line: Line, theirs: socket.socket, reply: bytes) -> bytes:
    """Return what an asking gets if the other end answers with these bytes."""
    asking = asyncio.create_task(line.asked(ASK))
    await asyncio.to_thread(read, theirs)
    threading.Thread(target=theirs.sendall, args=(reply,)).start()
    return bytes(await asking)


def breaks(reply: bytes) -> Break:
    """Return how a line breaks if the other end answers with these bytes and stays."""

    async def scenario() -> Break:
        async with lines() as (line, theirs, broken):
            with pytest.raises(Broken) as caught:
                await answered(line, theirs, reply)
            assert broken == [caught.value.how]
            return caught.value.how

    return run(scenario())


@pytest.mark.parametrize("length", [0, 1, PIECE - LENGTH.size, PIECE, 5 * PIECE + 3])
def test_an_answer_of_any_length_comes_back(length: int) -> None:
    async def scenario() -> list[bytes]:
        async with lines() as (line, theirs, _):
            reply = LENGTH.pack(length) + bytes(length)
            return [await answered(line, theirs, reply) for _ in range(2)]

    assert run(scenario()) == [bytes(length)] * 2


def test_a_question_that_does_not_fit_the_socket_is_sent_as_it_is_read() -> None:
    async def scenario() -> tuple[bytes, bytes]:
        async with lines() as (line, theirs, _):
            asking = asyncio.create_task(line.asked(framed(bytes(2**22))))
            body = await asyncio.to_thread(read, theirs)
            theirs.sendall(framed(b"yes"))
            return bytes(body or b""), bytes(await asking)

    asked, answer = run(scenario())

    assert len(asked) > 2**22
    assert answer == framed(b"yes")[LENGTH.size :]


@settings(max_examples=20, deadline=None)
@given(st.binary(min_size=1, max_size=30), st.integers(1, 33))
def test_an_answer_comes_back_from_whatever_pieces(body: bytes, cut: int) -> None:
    frame = LENGTH.pack(len(body)) + body

    async def scenario() -> bytes:
        async with lines() as (line, theirs, _):
            asking = asyncio.create_task(line.asked(ASK))
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
        (LENGTH.pack(MOST_BYTES + 1), Break.TOO_MUCH),
        (b"\xff" * 100, Break.TOO_MUCH),
        (LENGTH.pack(1) + b"ab", Break.UNASKED),
        (bytes(LENGTH.size + 1), Break.UNASKED),
        (bytes(3 * PIECE), Break.UNASKED),
    ],
)
def test_an_answer_that_is_none_breaks_the_line(reply: bytes, how: Break) -> None:
    assert breaks(reply) is how


def test_a_line_whose_other_end_closes_is_broken_and_stays_so() -> None:
    async def scenario() -> list[Break]:
        async with lines() as (line, theirs, _):
            asking = asyncio.create_task(line.asked(ASK))
            await asyncio.to_thread(read, theirs)
            theirs.close()
            found = []
            for question in (asking, line.asked(ASK)):
                with pytest.raises(Broken) as caught:
                    await question
                found.append(caught.value.how)
            return found

    assert run(scenario()) == [Break.ENDED, Break.ENDED]


def test_what_comes_unasked_breaks_the_line_at_once() -> None:
    async def scenario() -> list[Break]:
        async with lines() as (_, theirs, broken):
            theirs.sendall(framed(b"hello"))
            await comes_true(lambda: broken)
            return broken[:]

    assert run(scenario()) == [Break.UNASKED]


def test_a_question_that_is_given_up_breaks_the_line() -> None:
    async def scenario() -> list[Break]:
        async with lines() as (line, theirs, broken):
            asking = asyncio.create_task(line.asked(ASK))
            await asyncio.to_thread(read, theirs)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            return broken[:]

    assert run(scenario()) == [Break.LEFT]


def test_a_second_question_before_the_answer_is_refused() -> None:
    async def scenario() -> None:
        async with lines() as (line, theirs, broken):
            asking = asyncio.create_task(line.asked(ASK))
            await asyncio.to_thread(read, theirs)
            with pytest.raises(Broken):
                await line.asked(ASK)
            theirs.sendall(framed(b"yes"))
            await asking
            assert broken == []

    run(scenario())


def test_an_answer_that_takes_too_long_breaks_the_line() -> None:
    async def scenario() -> Break:
        async with lines() as (line, theirs, _):
            line.patience = PATIENCE
            await answered(line, theirs, bytes(framed(b"in time")))
            line.patience = 0.05
            line._look()  # what was set for the first question
            with pytest.raises(Broken) as caught:
                await line.asked(ASK)
            return caught.value.how

    assert run(scenario()) is Break.LATE


def test_a_timer_that_rings_too_early_for_a_later_question_is_set_anew() -> None:
    async def scenario() -> bytes:
        async with lines() as (line, theirs, broken):
            line.patience = PATIENCE
            asking = asyncio.create_task(line.asked(ASK))
            await asyncio.to_thread(read, theirs)
            line._look()
            assert broken == []
            theirs.sendall(framed(b"in time"))
            return bytes(await asking)

    assert run(scenario()) == framed(b"in time")[LENGTH.size :]


def test_a_timer_that_rings_when_nothing_is_asked_breaks_nothing() -> None:
    async def scenario() -> list[Break]:
        async with lines() as (line, theirs, broken):
            line.patience = PATIENCE
            await answered(line, theirs, bytes(framed(b"in time")))
            line._look()
            return broken[:]

    assert run(scenario()) == []
