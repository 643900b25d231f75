"""Malformed messages, frames and handshakes from a raw socket.

Rule 1: a bad message gets one coded error and changes nothing: the attacker's own session stands where it stood.
Rule 2: a bad frame ends its connection, a bad handshake is refused; nobody else notices.
Rule 3: the same seed sends the same bytes (but for the sessions' ids), in the same jobs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count as counting
from random import Random
from typing import Any, Final

from tests.server.attacks import bad_frames, bad_handshakes, bad_messages
from tests.server.attacks.bad_messages import Scene
from tests.server.attacks.judged import Misjudged, coded_error, without_leaks
from tests.server.attacks.raw_socket import (
    BINARY,
    CONTINUATION,
    PING,
    TEXT,
    Address,
    Ended,
    RawSocket,
    frame,
    open_socket,
)
from tests.server.attacks.vitals import Victim
from tests.server.attacks.witness import HELLO, Witness, complain_of, watched

TARGET: Final = "tests.server.attacks.patient:Quick"
SETTINGS: Final[dict[str, Any]] = {"grace_seconds": 1.0, "max_sessions": 512, "limits": {"max_message_bytes": 2**20}}
PIPELINE: Final = 40
ENOUGH: Final = 20
"""Problems after which an attack is given up."""
ATTACKERS: Final = 16
MESSAGES, FRAMES = 0.85, 0.10
DEFLATE: Final = "Sec-WebSocket-Extensions: permessage-deflate\r\n"


@dataclass(slots=True)
class Tally:
    """How many frames, messages and handshakes were sent, and what was wrong with the answers."""

    attempts: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Attack:
    """One seeded attack on one server, with the sessions of others that it may try to disturb."""

    address: Address
    seed: int
    others: tuple[Witness, ...]
    tally: Tally

    async def run(self, jobs: Iterator[tuple[int, str, int]]) -> None:
        """Do the jobs, some at a time."""
        async with asyncio.TaskGroup() as group:
            for _ in range(ATTACKERS):
                group.create_task(self._work(jobs))

    async def _work(self, jobs: Iterator[tuple[int, str, int]]) -> None:
        for number, kind, size in jobs:
            rng = Random(f"{self.seed} {number}")
            try:
                await self._job(kind, rng, size)
            except (Misjudged, Ended, TimeoutError, ConnectionError) as problem:
                self.tally.problems.append(f"job {number} ({kind}) of seed {self.seed}: {problem!r}")
                if len(self.tally.problems) >= ENOUGH:
                    return

    async def _job(self, kind: str, rng: Random, size: int) -> None:
        if kind == "frame":
            await self._bad_frame(rng)
        elif kind == "handshake":
            await self._bad_handshake(rng)
        else:
            await self._bad_messages(rng, size, after_hello=kind == "hello")

    async def _bad_messages(self, rng: Random, size: int, *, after_hello: bool) -> None:
        """Send many bad messages at once, read an error for each, and see that the session has not moved."""
        async with open_socket(self.address) as raw:
            scene = await self._begun(raw, after_hello=after_hello)
            makers = {
                **bad_messages.ANYWHERE,
                **(bad_messages.AFTER_HELLO if after_hello else bad_messages.BEFORE_HELLO),
            }
            drawn = rng.choices(sorted(makers), k=size)
            sent = [makers[case](rng, scene) for case in drawn]
            await raw.send(b"".join(dressed(rng, message) for message in sent))
            for case, message in zip(drawn, sent, strict=True):
                coded_error(case, message, await raw.message())
                self.tally.attempts += 1
            await self._unmoved(raw, scene)

    async def _begun(self, raw: RawSocket, *, after_hello: bool) -> Scene:
        other = next(witness for witness in self.others if witness.session is not None)
        scene = Scene.in_base_mode(other.session or "", other.resume_token)
        if after_hello:
            await raw.ask(HELLO)
            opened = await raw.ask({"type": "open", "id": 1, "data": {}})
            scene.session, scene.ids = opened["session"], counting(2)
        reset = scene.envelope("reset", data={"episode_id": "mine"})
        reset.pop("epoch", None)
        reply = await raw.ask(reset)
        if reply["type"] != "observation":
            raise Misjudged(f"a good reset was answered with {reply}")
        return scene

    async def _unmoved(self, raw: RawSocket, scene: Scene) -> None:
        state = await raw.ask(scene.envelope("state"))
        if state["type"] != "state" or (state["data"]["episode_id"], state["data"]["step_count"]) != ("mine", 0):
            raise Misjudged(f"after bad messages only, the session says {state}")

    async def _bad_frame(self, rng: Random) -> None:
        """Send frames that end the connection, and see how."""
        name = rng.choice(sorted(bad_frames.CASES))
        case = bad_frames.CASES[name]
        async with open_socket(self.address, DEFLATE if name == "compressed bomb" else "") as raw:
            if rng.random() < 0.5:
                await self._begun(raw, after_hello=rng.random() < 0.5)
            await raw.send(case.make(rng))
            self.tally.attempts += 1
            if case.patient:
                rng.choice((raw.reset, raw.close))()
                return
            code = await ending(name, raw)
            if code not in case.codes:
                raise Misjudged(f"{name}: the server closed with {code}, expected one of {set(case.codes)}")

    async def _bad_handshake(self, rng: Random) -> None:
        """Send first bytes that lead nowhere."""
        name = rng.choice(sorted(bad_handshakes.CASES))
        case = bad_handshakes.CASES[name]
        raw = await RawSocket.connected(self.address)
        try:
            await raw.send(case.make(rng, self.address))
            self.tally.attempts += 1
            if not case.patient:
                status, found = await raw.response_head()
                without_leaks(name, found)
                if status != 0 and not 400 <= status < 500:
                    raise Misjudged(f"{name}: the server answered with {status}: {found[:300]!r}")
        finally:
            raw.reset()


async def ending(case: str, raw: RawSocket) -> int | None:
    """Return the code with which the server closes; what it says before must not come from inside."""
    while True:
        try:
            without_leaks(case, await raw.message())
        except Ended as end:
            return end.code


def dressed(rng: Random, message: bytes) -> bytes:
    """Return a message in one frame, or in fragments with pings between them; as text, or as binary."""
    draw = rng.random()
    if draw < 0.1:
        return frame(message, BINARY)
    if draw < 0.2:
        middle = rng.randrange(len(message) + 1)
        return frame(message[:middle], final=False) + frame(b"still?", PING) + frame(message[middle:], CONTINUATION)
    return frame(message, TEXT)


def jobs_for(attempts: int) -> Iterator[tuple[int, str, int]]:
    """Yield numbered jobs, each with its kind and its number of attempts, until there are `attempts` in all."""
    numbers = counting()
    messages, frames = int(attempts * MESSAGES), int(attempts * FRAMES)
    handshakes = attempts - messages - frames
    pipelines = [PIPELINE] * (messages // PIPELINE) + [messages % PIPELINE]
    kinds = [("base" if number % 2 else "hello", size) for number, size in enumerate(pipelines) if size]
    kinds += [("frame", 1)] * frames + [("handshake", 1)] * handshakes
    Random(attempts).shuffle(kinds)
    return ((next(numbers), kind, size) for kind, size in kinds)


async def attacked(there: Victim, count: int, seed: int) -> tuple[int, list[str]]:
    """Return how many malformed attempts there were, and what is not as it must be; some warm the server up before."""
    tally = Tally()
    async with watched(there.address) as witnesses:
        await Attack(there.address, seed, witnesses, tally).run(jobs_for(max(count // 10, 1_000)))
        before = await there.settled(lambda vitals: vitals.sessions <= len(witnesses))
        await Attack(there.address, seed + 1, witnesses, tally).run(jobs_for(count))
        await there.get("/health")
        after = await there.settled(lambda vitals: not vitals.complaints(before))
    complaints = tally.problems + after.complaints(before) + complain_of(witnesses)
    return tally.attempts, complaints if there.alive else [*complaints, "the server died"]
