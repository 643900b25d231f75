"""Sessions without a socket: an outlet that remembers what it was told, and requests as a connection hands them on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from msgspec import Raw

from proctor.contracts.recorder import Recorder
from proctor.models.control import Open, Request
from proctor.models.wire import Encoding
from proctor.server.app import Keys, Listening, Server
from proctor.server.control.channel import SessionChannel
from proctor.server.control.protocol import RULES
from proctor.server.control.session_registry import SessionRegistry
from proctor.server.settings import parse_settings
from tests.server.live_server import PATIENCE
from tests.server.witness_env import LEDGER

WITNESS = "tests.server.witness_env:Witness"


class Clock:
    """A clock that stands still until it is told to move."""

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Outlet:
    """A connection that keeps what it should send."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.ended: tuple[int, str] | None = None
        self.forgotten: list[str] = []

    async def send(self, message: bytes) -> None:
        self.post(message)

    def post(self, message: bytes) -> None:
        self.messages.append(json.loads(message))

    def end(self, code: int, reason: str) -> None:
        self.ended = (code, reason)

    def forget(self, session: str) -> None:
        self.forgotten.append(session)

    async def message(self, number: int = 0) -> dict[str, Any]:
        """Return the message with this number as soon as it is there."""
        await holds(lambda: len(self.messages) > number)
        return self.messages[number]

    @property
    def codes(self) -> list[str]:
        return [message["data"].get("code", message["type"]) for message in self.messages]


def made_sessions(
    clock: Callable[[], float] | None = None, recorder: Recorder | None = None, target: str = WITNESS, **settings: Any
) -> SessionRegistry:
    """Return the sessions of a server that listens nowhere."""
    made = parse_settings({"target": target, "sandbox": "none", "insecure": True, **settings})
    told = Clock() if clock is None else clock
    with ThreadPoolExecutor(1) as pool:  # as the command does: a target is made where no event loop runs
        return pool.submit(Server, made, Keys(), Listening([]), recorder=recorder, clock=told).result(PATIENCE).sessions


async def opened(sessions: SessionRegistry, outlet: Outlet, **wish: Any) -> tuple[SessionChannel, str]:
    """Return a new session's channel and its resume token."""
    channel, told = await sessions.open(Open(**wish), outlet, Encoding())
    return channel, told.resume_token


def request(
    kind: str, data: Any = None, number: int | None = None, session: str | None = None, epoch: int | None = None
) -> Request:
    """Return a request as it is read from a socket."""
    raw = Raw(b"") if data is None else Raw(json.dumps(data).encode())
    return Request(kind, raw, number, session, epoch)


async def taken(channel: SessionChannel, kind: str, data: Any = None, number: int | None = None, **beside: Any) -> Any:
    """Have a channel take a request; return what it answers at once, None if that comes later."""
    answer = await channel.take(request(kind, data, number, channel.session.name, **beside), RULES[kind])
    return None if answer is None else json.loads(answer)


async def asked(
    channel: SessionChannel, outlet: Outlet, kind: str, data: Any = None, number: int = 0, **beside: Any
) -> Any:
    """Return the reply to a request, whenever it comes."""
    before = len(outlet.messages)
    answer = await taken(channel, kind, data, number, **beside)
    return await outlet.message(before) if answer is None else answer


async def held(channel: SessionChannel, outlet: Outlet, nonce: int, number: int = 2) -> None:
    """Begin an episode (request 1) and a step that stays inside."""
    await asked(channel, outlet, "reset", {"seed": 1}, 1)
    await taken(channel, "step", {"nonce": nonce, "how": "hold"}, number, epoch=1)
    await holds(lambda: nonce in LEDGER.holding)


async def holds(true: Callable[[], object]) -> None:
    """Wait until it is true."""
    async with asyncio.timeout(PATIENCE):
        while not true():
            await asyncio.sleep(0.001)
