"""The control plane as one ASGI application: the door first, then `/ws` or a page.

Rule 1: nothing is routed before the door has judged Host, Origin and credential, on HTTP and on WebSockets alike.
Rule 2: every port has its own policy, because a Host names a port.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from starlette.applications import Starlette

from proctor.door.gate import Policy, Verdict, judge_request
from proctor.door.limits import Limits
from proctor.server.control.description import Description
from proctor.server.control.endpoint import Connection, Receive, Send
from proctor.server.control.sessions import Sessions
from proctor.server.metrics import Metrics
from proctor.server.sockets import ABORT, LISTEN, WRITABLE

LOG: Final = logging.getLogger("proctor.control")
PATH: Final = "/ws"
GOING_AWAY: Final = 1001
GOODBYE_SECONDS: Final = 2.0
Scope = Mapping[str, Any]


class ControlPlane:
    """Everything that listens for orchestrators."""

    def __init__(
        self,
        policies: Mapping[int | None, Policy],
        sessions: Sessions,
        description: Description,
        pages: Starlette,
        metrics: Metrics,
        *,
        limits: Limits,
        max_pending: int,
        max_connections: int,
        own_port: int | None,
    ) -> None:
        self.connections: Final[set[Connection]] = set()
        self._policies = policies
        self._sessions = sessions
        self._description = description
        self._pages = pages
        self._metrics = metrics
        self._limits = limits
        self._max_pending = max_pending
        self._max_connections = max_connections
        self._own_port = own_port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection or one request."""
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send)
        elif scope["type"] == "http":
            await self._page(scope, receive, send)

    async def _page(self, scope: Scope, receive: Receive, send: Send) -> None:
        verdict = self._judged(scope, scope["method"])
        if verdict.allowed:
            await self._pages(dict(scope), receive, send)
            return
        headers = [*verdict.headers, (b"content-type", b"text/plain; charset=utf-8")]
        await send({"type": "http.response.start", "status": verdict.status, "headers": headers})
        await send({"type": "http.response.body", "body": verdict.text.encode()})

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        verdict = self._judged(scope, "WEBSOCKET")
        if not verdict.allowed:
            await _turned_away(send, verdict.status, verdict.text, list(verdict.headers))
        elif scope["path"] != PATH:
            await _turned_away(send, 404, "there is no such socket", [])
        elif self._sessions.stopping or len(self.connections) >= self._max_connections:
            await _turned_away(send, 503, "no more connections are taken", [])
        else:
            await send({"type": "websocket.accept"})
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = Connection(
            send,
            scope["extensions"][ABORT],
            scope["extensions"][WRITABLE],
            self._sessions,
            self._description,
            self._metrics,
            limits=self._limits,
            max_pending=self._max_pending,
            address=self._address(scope),
        )
        self.connections.add(connection)
        self._metrics.connected(1)
        try:
            await connection.serve(receive, scope["extensions"][LISTEN])
        finally:
            self.connections.discard(connection)
            self._metrics.connected(-1)

    def _judged(self, scope: Scope, method: str) -> Verdict:
        server = scope.get("server")
        policy = self._policies[None if server is None or None in self._policies else server[1]]
        verdict = judge_request(policy, method, scope["path"], scope["headers"])
        if not verdict.allowed:
            self._metrics.turned_away(verdict.status)
            peer = scope.get("client")
            fields = {"status": verdict.status, "peer": "unknown" if peer is None else peer[0]}
            LOG.info("a request was refused at the door: %s", verdict.text, extra=fields)
        return verdict

    def _address(self, scope: Scope) -> str | None:
        """Return where this very worker is found again, by the name that the client used; None if it is where it was."""
        server = scope.get("server")
        if self._own_port is None or server is None or server[1] == self._own_port:
            return None
        host = next(value for name, value in scope["headers"] if name == b"host").decode("ascii")
        name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
        return f"ws://{name}:{self._own_port}{PATH}"

    async def close_connections(self) -> None:
        """Tell every client that the server goes away."""
        goodbyes = {
            asyncio.create_task(connection.close(GOING_AWAY, "the server is stopping")): connection
            for connection in self.connections
        }
        if goodbyes:
            _, late = await asyncio.wait(goodbyes, timeout=GOODBYE_SECONDS)
            for goodbye in late:
                goodbyes[goodbye].abort()


async def _turned_away(send: Send, status: int, text: str, headers: list[tuple[bytes, bytes]]) -> None:
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": text.encode()})
