"""The control plane as one ASGI application: the access checks first, then `/ws` or a page.

Rule 1: nothing is routed before the access checks have judged Host, Origin and credential, on HTTP and on WebSockets alike.
Rule 2: every port has its own policy, because a Host names a port.
Rule 3: what is below `/operator/` is opened by the operator's credential and by no other. That credential opens nothing
    else, but for the pages that say how the server is and what it serves; it never opens a socket.
Rule 4: where there is a viewer, what is below `/viewer/` is the operator's, too, and a browser's visit opens both, with more
    asked of it (`access/browser_visits.py`). Nothing else looks at a cookie.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from starlette.applications import Starlette

from proctor.access.browser_visits import OPERATOR_PATH, PAGE_PATH, Visits, is_open_page, is_page_path, judge_visitor
from proctor.access.limits import RequestLimits
from proctor.access.request_policy import READING, AccessPolicy, AccessVerdict, is_open_path, judge_request
from proctor.errors import ValidationError
from proctor.models.control import Problem
from proctor.server.control.session_registry import SessionRegistry
from proctor.server.control.websocket import ControlConnection, Receive, Send
from proctor.server.net.connections import RefusalLog, authenticate, note_refusal
from proctor.server.net.metrics import Metrics
from proctor.server.runtime.env_description import ServerDescription

LOG: Final = logging.getLogger("proctor.control")
PATH: Final = "/ws"
OPERATOR_READS: Final = frozenset({"/health", "/metadata"})
"""The pages that the operator's credential opens as well."""
WEBSOCKET: Final = "WEBSOCKET"
"""What the access checks call the method of a handshake."""
GOING_AWAY: Final = 1001
GOODBYE_SECONDS: Final = 2.0
Scope = Mapping[str, Any]
Policies = Mapping[int | None, AccessPolicy]


class ControlPlane:
    """Everything that listens for orchestrators, and for operators where episodes are governed.

    `operator_policies` has the same ports as `policies`; without it there is no operator, and `/operator/` is nothing
    special. `visits` are those of its viewer, None where there is none. `stopped` is called when the server says goodbye,
    for those who wait for an answer.
    """

    def __init__(
        self,
        policies: Policies,
        sessions: SessionRegistry,
        description: ServerDescription,
        pages: Starlette,
        metrics: Metrics,
        *,
        limits: RequestLimits,
        max_pending: int,
        max_connections: int,
        own_port: int | None,
        operator_policies: Policies | None = None,
        visits: Visits | None = None,
        stopped: Callable[[], object] | None = None,
    ) -> None:
        self.connections: Final[set[ControlConnection]] = set()
        self._policies = policies
        self._operator_policies = None if operator_policies is None else _check_separate(operator_policies, policies)
        self._visits = visits
        self._stopped = stopped
        self._sessions = sessions
        self._description = description
        self._pages = pages
        self._metrics = metrics
        self._limits = limits
        self._max_pending = max_pending
        self._max_connections = max_connections
        self._own_port = own_port
        self._refusals = RefusalLog(LOG)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection or one request."""
        if scope["type"] == "websocket":
            await self._socket(scope, receive, send)
        elif scope["type"] == "http":
            await self._page(scope, receive, send)

    async def _page(self, scope: Scope, receive: Receive, send: Send) -> None:
        verdict = self._judge(scope, scope["method"])
        if verdict.allowed:
            if not self._is_open(scope):
                authenticate(scope)
            await self._pages(dict(scope), receive, send)
            return
        media, text = self._encode_refusal(scope["path"], verdict)
        headers = [*verdict.headers, (b"content-type", media)]
        await send({"type": "http.response.start", "status": verdict.status, "headers": headers})
        await send({"type": "http.response.body", "body": text})

    def _encode_refusal(self, path: str, verdict: AccessVerdict) -> tuple[bytes, bytes]:
        """Return what a refused peer reads: a page's script reads codes, everybody else a sentence."""
        if self._visits is not None and path.startswith(PAGE_PATH):
            return b"application/json", msgspec.json.encode(Problem(verdict.text, verdict.name))
        return b"text/plain; charset=utf-8", verdict.text.encode()

    async def _socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        verdict = self._judge(scope, WEBSOCKET)
        if not verdict.allowed:
            await _turn_away(send, verdict.status, verdict.text, list(verdict.headers))
        elif scope["path"] != PATH:
            await _turn_away(send, 404, "there is no such socket", [])
        elif self._sessions.stopping or len(self.connections) >= self._max_connections:
            await _turn_away(send, 503, "no more connections are taken", [])
        else:
            await send({"type": "websocket.accept"})
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = ControlConnection(
            scope,
            send,
            self._sessions,
            self._description,
            self._metrics,
            limits=self._limits,
            max_pending=self._max_pending,
            address=self._address(scope),
        )
        self.connections.add(connection)
        self._metrics.count_connection(1)
        try:
            await connection.serve(receive)
        finally:
            self.connections.discard(connection)
            self._metrics.count_connection(-1)

    def _judge(self, scope: Scope, method: str) -> AccessVerdict:
        verdict = self._verdict(scope, method)
        if not verdict.allowed:
            self._metrics.count_refusal(verdict.status)
            peer = scope.get("client")
            fields = {"status": verdict.status, "peer": "unknown" if peer is None else peer[0]}
            note_refusal(scope)
            self._refusals.write("a request was refused at the door: %s", verdict.text, extra=fields)
        return verdict

    def _is_open(self, scope: Scope) -> bool:
        """Return whether anybody may ask for this: then it shows no credential."""
        method, path = scope["method"], scope["path"]
        if self._visits is not None and is_open_page(method, path):
            return True
        return is_open_path(_find_policy(self._policies, scope)[0], method, path)

    def _verdict(self, scope: Scope, method: str) -> AccessVerdict:
        path, operators = scope["path"], self._operator_policies
        if operators is not None and method != WEBSOCKET:
            if self._visits is not None and is_page_path(path):
                policy, port = _find_policy(operators, scope)
                return judge_visitor(policy, self._visits, port, method, path, scope["headers"])
            if path.startswith(OPERATOR_PATH):
                return _judge_by(operators, scope, method)
        verdict = _judge_by(self._policies, scope, method)
        if (
            verdict is AccessVerdict.NO_CREDENTIAL
            and operators is not None
            and method in READING
            and path in OPERATOR_READS
        ):
            return _judge_by(operators, scope, method)
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
        """Tell every client, and every operator who waits, that the server goes away."""
        if self._stopped is not None:
            self._stopped()
        goodbyes = {
            asyncio.create_task(connection.close(GOING_AWAY, "the server is stopping")): connection
            for connection in self.connections
        }
        if goodbyes:
            _, late = await asyncio.wait(goodbyes, timeout=GOODBYE_SECONDS)
            for goodbye in late:
                goodbyes[goodbye].abort()


def _judge_by(policies: Policies, scope: Scope, method: str) -> AccessVerdict:
    return judge_request(_find_policy(policies, scope)[0], method, scope["path"], scope["headers"])


def _find_policy(policies: Policies, scope: Scope) -> tuple[AccessPolicy, int | None]:
    """Return the policy of the port that a request came to, and that port."""
    server = scope.get("server")
    port = None if server is None or None in policies else server[1]
    return policies[port], port


def _check_separate(operators: Policies, others: Policies) -> Policies:
    """Return the operators' policies, or raise if one secret would open both planes, or none is needed for theirs alone."""
    taken = {policy.credential for policy in others.values()} - {None}
    if taken and any(policy.credential is None for policy in operators.values()):
        raise ValidationError("the operator has no credential", expected="a secret, as the control plane has one")
    if any(policy.credential in taken for policy in operators.values()):
        raise ValidationError(
            "the operator's credential is the one of the control plane", expected="a secret of its own"
        )
    return operators


async def _turn_away(send: Send, status: int, text: str, headers: list[tuple[bytes, bytes]]) -> None:
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": text.encode()})
