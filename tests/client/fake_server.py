"""A server that says what a test tells it to: for faults that a real one does not have."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

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
        self.session = "s"
        self.epoch = 0
        self.step = 0
        self.connections = 0
        self.url = ""
        self.socket: ServerConnection | None = None
        self.grants = 0
        self.rows: list[dict[str, Any]] = []
        self.forgotten = 0
        """So many rows are no longer kept."""
        self.ended = {"terminated": False, "truncated": False, "lost": False}
        self._news = asyncio.Event()
        self._polls: set[asyncio.Task[None]] = set()

    async def serve(self, socket: ServerConnection) -> None:
        self.connections += 1
        self.socket = socket
        async for message in socket:
            request = json.loads(message)
            self.requests.append(request)
            await self.lies.get(request["type"], type(self).honest)(self, request)

    async def honest(self, request: Request) -> None:
        answers = {
            "hello": ("hello", self.welcome),
            "open": ("opened", self.opened),
            "cancel": ("cancelled", {"id": request.get("data", {}).get("id"), "outcome": "dropped"}),
            "close": ("closed", {"episodes": self.epoch, "steps": self.step}),
            "state": ("state", {"episode_id": "e", "step_count": self.step}),
            "resume": ("resumed", self.resumed()),
            "revoke": ("revoked", {"grant": request.get("data", {}).get("grant"), "live": True}),
        }
        if request["type"] in ("watch", "wait_end"):
            poll = asyncio.create_task(self.polled(request))
            self._polls.add(poll)
            poll.add_done_callback(self._polls.discard)
            return
        if request["type"] == "grant":
            answers["grant"] = ("granted", self.granted())
        if request["type"] == "reset":
            self.epoch, self.step, self.ended = self.epoch + 1, 0, dict.fromkeys(self.ended, False)
            self.tell_news()
            if "grant" in request.get("data", {}):
                answers["reset"] = ("observation", self.seen(grant=self.granted()))
        elif request["type"] == "step":
            self.step += 1
        kind, data = answers.get(request["type"], ("observation", self.seen()))
        await self.reply(request, kind, data)

    def granted(self) -> dict[str, Any]:
        self.grants += 1
        told = {"grant": f"g{self.grants}", "address": "http://127.0.0.1:9/mcp", "token": f"secret-{self.grants}"}
        return {**told, "tools": ["look", "count"], "expires_at": None, "episode_id": "e"}

    def act(self, *, by: int = 1, **other: Any) -> None:
        """Let an agent take a step."""
        self.step += 1
        row = {
            "row": len(self.rows) + 1,
            "epoch": self.epoch,
            "step": self.step,
            "at": 5.0,
            "grant": "g1",
            "agent": "a",
        }
        row |= {"tool": "count", "action": {"by": by}, "observation": {"count": self.step}, "raw_reward": by / 2}
        self.rows.append({**row, "reward": float(by), "terminated": False, "truncated": False, **other})
        self.end(**{flag: bool(other.get(flag, self.ended[flag])) for flag in ("terminated", "truncated")})

    def end(self, **how: bool) -> None:
        """Let the episode end, or be lost."""
        self.ended |= how
        self.tell_news()

    def tell_news(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def polled(self, request: Request) -> None:
        """Answer a question that waits for news, as long as it wants to."""
        data = request.get("data", {})
        over, after = any(self.ended.values()), data.get("after", len(self.rows))
        if not over and len(self.rows) <= after and data["wait_seconds"] > 0:
            news = asyncio.create_task(self._news.wait())
            await asyncio.wait([news], timeout=data["wait_seconds"])
            news.cancel()
        over = any(self.ended.values())
        first = max(after, self.forgotten)
        missed = max(0, first - after)
        told = {"over": over, **self.told_end()}
        if request["type"] == "watch":
            rows = self.rows[first : first + data["most"]]
            told = {"rows": rows, "last": len(self.rows), "missed": missed, "over": over}
        with suppress(ConnectionClosed):  # whoever asked may have been cut off
            await self.reply(request, "watched" if request["type"] == "watch" else "ended", told)

    def told_end(self) -> dict[str, Any]:
        total = sum(row["reward"] for row in self.rows if row["epoch"] == self.epoch)
        return {"epoch": self.epoch, "episode_id": "e", "steps": self.step, "total_reward": total, **self.ended}

    def seen(self, **other: Any) -> dict[str, Any]:
        told = {"observation": {"count": self.step}, "reward": 1.0, "done": False, "terminated": False}
        return {**told, "truncated": False, "step": self.step, "episode_id": "e", **other}

    def resumed(self, **other: Any) -> dict[str, Any]:
        begun = [
            each["id"] for each in self.requests if "session" in each and each["type"] not in ("watch", "wait_end")
        ]
        last = max(begun, default=0)
        told = {"episode_id": "e", "step": self.step, "last_id": last, "lost": False, "num_envs": None}
        return {**told, "autoreset_mode": None, **other}

    async def reply(self, request: Request, kind: str, data: Any, **other: Any) -> None:
        await self.send(
            {"type": kind, "data": data, "id": request.get("id"), "session": self.session, "epoch": self.epoch, **other}
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
