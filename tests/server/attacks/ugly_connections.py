"""Connections dropped in every ugly way.

Rule 1: nobody here says goodbye properly, but for one way that does, for comparison.
Rule 2: afterwards, once the grace period is over, the server has what it had before: no session, connection, thread,
    file or memory more.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from itertools import islice
from random import Random
from typing import Any, Final

from tests.server.attacks.patient import SLOW
from tests.server.attacks.raw_socket import CLOSE, CONTINUATION, Address, Ended, RawSocket, frame, handshake, head
from tests.server.attacks.vitals import Victim
from tests.server.attacks.witness import HELLO, complain_of, watched

TARGET: Final = "tests.server.attacks.patient:Patient"
SETTINGS: Final[dict[str, Any]] = {"grace_seconds": 1.0, "max_sessions": 2048}
ATTACKERS: Final = 32
MUTES: Final = 20
MUTE_SECONDS, GRACE_SECONDS = 90.0, 30.0
"""How long a server may take to give up a peer that answers no pings, and a session whose client is gone."""
STATE: Final = {"type": "state"}


async def at_once(address: Address, rng: Random) -> None:
    """Connect and drop."""
    dropped(await RawSocket.connected(address), rng)


async def mid_handshake(address: Address, rng: Random) -> None:
    """Drop in the middle of the handshake."""
    raw = await RawSocket.connected(address)
    whole = handshake(address)
    await raw.send(whole[: rng.randrange(1, len(whole))])
    dropped(raw, rng)


async def before_the_answer(address: Address, rng: Random) -> None:
    """Send the handshake and frames with it, and do not wait."""
    raw = await RawSocket.connected(address)
    await raw.send(handshake(address) + frame(b'{"type":"reset"}') * rng.randrange(1, 5))
    dropped(raw, rng)


async def mid_frame(address: Address, rng: Random) -> None:
    """Drop in the middle of a frame, or of a message in fragments."""
    raw = await RawSocket.upgraded(address)
    beginning = frame(b"[", final=False)
    await raw.send(rng.choice((head(500), head(500) + b"x" * 100, beginning, beginning + head(9, CONTINUATION))))
    dropped(raw, rng)


async def after_hello(address: Address, rng: Random) -> None:
    """Drop after hello, without a session."""
    raw = await RawSocket.upgraded(address)
    await raw.ask(HELLO)
    dropped(raw, rng)


async def with_open_sessions(address: Address, rng: Random) -> None:
    """Drop with sessions open, some of them reset."""
    raw = await RawSocket.upgraded(address)
    await raw.ask(HELLO)
    for number in range(rng.randrange(1, 4)):
        opened = await raw.ask({"type": "open", "id": number + 1, "data": {}})
        if rng.random() < 0.5:
            await raw.ask({"type": "reset", "id": 1, "session": opened["session"], "data": {}})
    dropped(raw, rng)


async def in_an_episode(address: Address, rng: Random) -> None:
    """Drop in base mode, in the middle of an episode."""
    raw = await RawSocket.upgraded(address)
    await raw.ask({"type": "reset"})
    await raw.ask({"type": "step", "data": {"message": "x"}})
    dropped(raw, rng)


async def during_a_slow_step(address: Address, rng: Random) -> None:
    """Drop while the environment is busy, in base mode."""
    raw = await RawSocket.upgraded(address)
    await raw.ask({"type": "reset"})
    await raw.say({"type": "step", "data": {"message": SLOW}})
    dropped(raw, rng)


async def during_slow_steps_of_sessions(address: Address, rng: Random) -> None:
    """Drop while several sessions are busy, with more requests waiting."""
    raw = await RawSocket.upgraded(address)
    await raw.ask(HELLO)
    for number in range(rng.randrange(1, 4)):
        session = (await raw.ask({"type": "open", "id": number + 1, "data": {}}))["session"]
        await raw.say({"type": "reset", "id": 1, "session": session, "data": {}})
        for own in (2, 3, 4):
            await raw.say({"type": "step", "id": own, "session": session, "epoch": 1, "data": {"message": SLOW}})
    dropped(raw, rng)


async def close_frame_only(address: Address, rng: Random) -> None:
    """Send a close frame and keep the TCP connection: the server must hang up."""
    raw = await RawSocket.upgraded(address)
    if rng.random() < 0.5:
        await raw.ask({"type": "reset"})
    await raw.send(frame(struct.pack("!H", 1000), CLOSE))
    await raw.rest()
    raw.reset()


async def half_closed(address: Address, rng: Random) -> None:
    """Close the sending half only: the server must hang up."""
    raw = await RawSocket.upgraded(address)
    await raw.ask({"type": "reset"})
    raw.writer.write_eof()
    await raw.rest()
    raw.reset()


async def never_reading(address: Address, rng: Random) -> None:
    """Ask for much, read nothing, and drop."""
    raw = await RawSocket.connected(address)
    there: socket.socket = raw.writer.get_extra_info("socket")
    there.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    raw.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a socket's transport can
    raw.writer.write(handshake(address) + frame(b'{"type":"reset"}') + frame(b'{"type":"schema"}') * 300)
    with suppress(TimeoutError):
        async with asyncio.timeout(0.2):
            await raw.writer.drain()
    raw.reset()


async def taken_over(address: Address, rng: Random) -> None:
    """Resume a session from another connection while the first still lives, then drop both."""
    first, second = await RawSocket.upgraded(address), await RawSocket.upgraded(address)
    for raw in (first, second):
        await raw.ask(HELLO)
    opened = await first.ask({"type": "open", "id": 1, "data": {}})
    claim = {"session": opened["session"], "resume_token": opened["data"]["resume_token"]}
    await second.ask({"type": "resume", "id": 1, "data": claim})
    with suppress(Ended):
        await first.message()
    for raw in (first, second):
        dropped(raw, rng)


async def dropped_and_resumed(address: Address, rng: Random) -> None:
    """Drop, come back with the token, and drop again."""
    raw = await RawSocket.upgraded(address)
    await raw.ask(HELLO)
    opened = await raw.ask({"type": "open", "id": 1, "data": {}})
    claim = {"session": opened["session"], "resume_token": opened["data"]["resume_token"]}
    for _ in range(rng.randrange(1, 3)):
        dropped(raw, rng)
        raw = await RawSocket.upgraded(address)
        await raw.ask(HELLO)
        await raw.ask({"type": "resume", "id": 1, "data": claim})
    dropped(raw, rng)


async def politely(address: Address, rng: Random) -> None:
    """Say goodbye as one should."""
    raw = await RawSocket.upgraded(address)
    await raw.ask({"type": "reset"})
    await raw.say({"type": "close"})
    with suppress(Ended):
        await raw.message()
    raw.close()


def dropped(raw: RawSocket, rng: Random) -> None:
    """Hang up: with a TCP reset, or by closing."""
    rng.choice((raw.reset, raw.close))()


Way = Callable[[Address, Random], Awaitable[None]]
WAYS: Final[tuple[Way, ...]] = (
    *(at_once, mid_handshake, before_the_answer, mid_frame, after_hello, with_open_sessions, in_an_episode),
    *(during_a_slow_step, during_slow_steps_of_sessions, close_frame_only, half_closed, never_reading, taken_over),
    *(dropped_and_resumed, politely),
)


def drawn_ways(count: int, seed: int) -> Iterator[tuple[Way, Random]]:
    """Yield `count` ways, each equally often, in an order and with the chances that the seed gives."""
    ways = [WAYS[number % len(WAYS)] for number in range(count)]
    Random(seed).shuffle(ways)
    return ((way, Random(f"{seed} {number}")) for number, way in enumerate(ways))


async def dropped_all(address: Address, ways: Iterator[tuple[Way, Random]], told: Counter[str]) -> None:
    """Make the connections, some at a time."""

    async def work() -> None:
        for way, rng in ways:
            # A server that hangs up first is its good right here; what it leaves behind is what is asked.
            with suppress(Ended, ConnectionError):
                await way(address, rng)
            told[way.__name__] += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(ATTACKERS):
            group.create_task(work())


async def mute(address: Address) -> RawSocket:
    """Return a connection with a session whose peer is gone without a word: nothing is read, no ping is answered."""
    raw = await RawSocket.upgraded(address)
    await raw.ask(HELLO)
    await raw.ask({"type": "open", "id": 1, "data": {}})
    return raw


async def attacked(there: Victim, count: int, seed: int, *, mutes: int = 0) -> tuple[Counter[str], list[str]]:
    """Return how `count` connections were dropped, and what they left behind; some more warm the server up before.

    `mutes` connections are held open until the server itself has given them up, which takes two of its pings.
    """
    told: Counter[str] = Counter()
    async with watched(there.address) as witnesses:
        ways = drawn_ways(count + max(count // 10, 200), seed)
        await dropped_all(there.address, islice(ways, max(count // 10, 200)), Counter())
        before = await there.settled(lambda vitals: vitals.sessions <= len(witnesses))
        held = [await mute(there.address) for _ in range(mutes)]
        await dropped_all(there.address, ways, told)
        after = await there.settled(
            lambda vitals: not vitals.complaints(before), MUTE_SECONDS if mutes else GRACE_SECONDS
        )
        for raw in held:
            raw.reset()
        await there.get("/health")
    return told, after.complaints(before) + complain_of(witnesses)
