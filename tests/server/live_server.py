"""A real server on loopback for tests, on a thread and an event loop of its own, and a plain WebSocket to talk to it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from websockets.sync.client import ClientConnection, connect

from proctor.access.credentials import Credential
from proctor.access.request_policy import Visits
from proctor.contracts.recorder import Recorder
from proctor.server.app import Keys, Listening, Server
from proctor.server.net.uvicorn_server import bind_tcp, port_of
from proctor.server.settings import parse_settings

PATIENCE = 120.0
"""No wait in these tests is longer."""


@dataclass
class Served:
    """A running server, and the loop that it runs on."""

    server: Server
    port: int
    loop: asyncio.AbstractEventLoop
    headers: dict[str, str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ws_url(self) -> str:
        return f"ws://127.0.0.1:{self.port}/ws"

    def on_loop(self, work: Callable[[], Any]) -> Any:
        """Return what `work` returns on the server's loop."""

        async def call() -> Any:
            answer = work()
            return await answer if asyncio.iscoroutine(answer) else answer

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(PATIENCE)

    def connect(self, **keywords: Any) -> ClientConnection:
        """Return an open WebSocket; whoever asked closes it."""
        opening: Any = connect(
            self.ws_url, additional_headers=self.headers, compression=None, **{"open_timeout": PATIENCE, **keywords}
        )
        socket: ClientConnection = opening.__enter__()
        return socket


@contextmanager
def serving(
    target: str = "CartPole-v1",
    *,
    secret: str | None = None,
    operator: str | None = None,
    visits: Visits | None = None,
    recorder: Recorder | None = None,
    clock: Callable[[], float] | None = None,
    **settings: Any,
) -> Iterator[Served]:
    """Serve `target` on a free port until the block ends."""
    loop = asyncio.new_event_loop()
    listener = bind_tcp("127.0.0.1", 0)
    made = parse_settings({"target": target, "insecure": secret is None, "sandbox": "none", **settings})
    agents = None if made.agent_port is None else bind_tcp("127.0.0.1", made.agent_port)
    credential = None if secret is None else Credential.of(secret)
    keywords: dict[str, Any] = {} if clock is None else {"clock": clock}
    keys = Keys(credential, None if operator is None else Credential.of(operator))
    server = Server(made, keys, Listening([listener], agents=agents), recorder=recorder, visits=visits, **keywords)
    ready = threading.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(server.serve(ready.set),), daemon=True)
    thread.start()
    port = port_of(listener)
    assert port is not None
    headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    served = Served(server, port, loop, headers)
    assert ready.wait(PATIENCE), "the server did not start"
    try:
        yield served
    finally:
        loop.call_soon_threadsafe(server.stop)
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the server did not stop"
        loop.close()


def until(holds: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """Return what `holds` returns as soon as it is true; fail if it never is."""
    pause = threading.Event()
    for _ in range(int(patience / 0.005)):
        found = holds()
        if found:
            return found
        pause.wait(0.005)
    raise AssertionError("it never came true")


class Talk:
    """One WebSocket: `ask` sends a request and returns the next message."""

    def __init__(self, served: Served, **hello: Any) -> None:
        self.socket = served.connect()
        self.ids: dict[str | None, int] = {}
        if hello:
            self.welcome = self.ask("hello", {"protocols": [1], **{k: v for k, v in hello.items() if k != "greet"}})

    def __enter__(self) -> Talk:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, kind: str, data: Any = None, **beside: Any) -> None:
        message = {"type": kind, **({} if data is None else {"data": data}), **beside}
        self.socket.send(json.dumps(message))

    def receive(self, timeout: float = PATIENCE) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self.socket.recv(timeout))
        return message

    def ask(self, kind: str, data: Any = None, **beside: Any) -> dict[str, Any]:
        self.send(kind, data, **beside)
        return self.receive()


class Session:
    """A session on a greeted `Talk`, with ids that grow and the epoch that the last reply told."""

    def __init__(self, talk: Talk, **wish: Any) -> None:
        self.talk = talk
        opened = talk.ask("open", wish, id=1)
        assert opened["type"] == "opened", opened
        self.name = opened["session"]
        self.opened = opened["data"]
        self.epoch = 0
        self.last_id = 0

    def send(self, kind: str, data: Any = None, **beside: Any) -> int:
        self.last_id += 1
        beside = {"id": self.last_id, "session": self.name, **beside}
        if kind == "step":
            beside.setdefault("epoch", self.epoch)
        self.talk.send(kind, data, **beside)
        return int(beside["id"])

    def ask(self, kind: str, data: Any = None, **beside: Any) -> dict[str, Any]:
        self.send(kind, data, **beside)
        reply = self.talk.receive()
        self.epoch = reply.get("epoch", self.epoch)
        return reply
