"""A server that says what a test tells it to: for faults that a real one does not have."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.server import ServerConnection, serve

Request = dict[str, Any]
Answer = Callable[["Fake", Request], Awaitable[None]]

WELCOME = {
    "protocol": 1,
    "server": "fake",
    "boot": "first",
    "environment": "Fake",
    "address": None,
    "packed": False,
    "compression": False,
    "max_message_bytes": 2**20,
    "max_pending": 32,
}
OPENED = {
    "resume_token": "again",
    "grace_seconds": 10.0,
    "step_timeout_seconds": None,
    "idle_timeout_seconds": None,
    "num_envs": None,
    "autoreset_mode": None,
}


class Fake:
    """One honest session, unless `lies` has another answer for a kind of request.

    A lie gets the fake and the request and sends what it likes with `send`; it may call `honest` for the truth.
    """

    def __init__(self) -> None:
        self.lies: dict[str, Answer] = {}
        self.requests: list[Request] = []
        self.welcome = dict(WELCOME)
        self.opened = dict(OPENED)
        self.epoch = 0
        self.step = 0
        self.connections = 0
        self.url = ""
        self.socket: ServerConnection | None = None

    async def serve(self, socket: ServerConnection) -> None:
        self.connections += 1
        self.socket = socket
        async for message in socket:
            request = json.loads(message)
            self.requests.append(request)
            await self.lies.get(request["type"], Fake.honest)(self, request)

    async def honest(self, request: Request) -> None:
        answers = {
            "hello": ("hello", self.welcome),
            "open": ("opened", self.opened),
            "cancel": ("cancelled", {"id": request.get("data", {}).get("id"), "outcome": "dropped"}),
            "close": ("closed", {"episodes": self.epoch, "steps": self.step}),
            "state": ("state", {"episode_id": "e", "step_count": self.step}),
            "resume": ("resumed", self.resumed()),
        }
        if request["type"] == "reset":
            self.epoch, self.step = self.epoch + 1, 0
        elif request["type"] == "step":
            self.step += 1
        kind, data = answers.get(request["type"], ("observation", self.seen()))
        await self.reply(request, kind, data)

    def seen(self, **other: Any) -> dict[str, Any]:
        told = {"observation": {"count": self.step}, "reward": 1.0, "done": False, "terminated": False}
        return {**told, "truncated": False, "step": self.step, "episode_id": "e", **other}

    def resumed(self, **other: Any) -> dict[str, Any]:
        last = max((request["id"] for request in self.requests if "session" in request), default=0)
        told = {"episode_id": "e", "step": self.step, "last_id": last, "lost": False, "num_envs": None}
        return {**told, "autoreset_mode": None, **other}

    async def reply(self, request: Request, kind: str, data: Any, **other: Any) -> None:
        await self.send(
            {"type": kind, "data": data, "id": request.get("id"), "session": "s", "epoch": self.epoch, **other}
        )

    async def send(self, message: Any) -> None:
        assert self.socket is not None
        await self.socket.send(message if isinstance(message, str | bytes) else json.dumps(message))

    async def cut(self) -> None:
        assert self.socket is not None
        self.socket.transport.abort()

    def asked(self, kind: str) -> list[Request]:
        return [request for request in self.requests if request["type"] == kind]


@asynccontextmanager
async def faking() -> AsyncIterator[Fake]:
    """Serve a fake on a free port."""
    fake = Fake()
    async with serve(fake.serve, "127.0.0.1", 0, compression=None) as server:
        fake.url = f"http://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        yield fake
