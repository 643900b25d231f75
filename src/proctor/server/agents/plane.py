"""The agent plane as one ASGI application: the access checks first, then the token, then `/mcp`.

Rule 1: Host and Origin, then the token, then the path, the method, what the grant may send, the size, the message and the rate:
    the first that fails is the answer. Only `/health` needs no token.
Rule 2: the token is looked at with every request, whatever MCP session it names.
Rule 3: every refusal is counted and leaves one line in the log, without anything that the peer sent; where one grant is refused
    too often, most of its lines are left out and counted.
Rule 4: nothing is decoded before the grant has paid for its bytes, and nobody is answered out of turn (`FairQueue`).
Rule 5: this file holds an `AgentAccess` and an `McpServer`, and nothing else of the server.
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from proctor.access.credentials import read_presented_secret
from proctor.access.limits import RequestLimits
from proctor.access.request_policy import READING, AccessPolicy, AccessVerdict, judge_address
from proctor.server.agent_access import AgentAccess
from proctor.server.agents import mcp_messages
from proctor.server.agents.fair_use import MOST_REQUESTS, FairQueue, GrantUsage, QueueTurn
from proctor.server.agents.mcp_server import (
    AGENT_REQUEST,
    AgentRequest,
    McpServer,
    Receive,
    Scope,
    Send,
    make_error,
    send_json,
)
from proctor.server.net.connections import RefusalLog, authenticate, note_refusal
from proctor.server.runtime.results import new_incident

LOG: Final = logging.getLogger("proctor.agents")
REFUSED: Final = "a request of an agent was refused: %s"
PATH, HEALTH = "/mcp", "/health"
METHODS: Final = ("GET", "POST", "DELETE")
LONGEST_WAIT: Final = 3600
LAST_EVENT: Final = b"last-event-id"
NOBODY, ANYBODY = "?", "/"
"""The parties of requests without a good token, and of those that need none; no grant is called so."""


@dataclass(frozen=True, slots=True)
class AgentRefusal:
    """Why a request is not served; `code` is JSON-RPC's, which clients show beside the text."""

    status: int
    text: str
    code: int = mcp_messages.INVALID_REQUEST
    headers: tuple[tuple[bytes, bytes], ...] = ()


BAD_TOKEN: Final = AgentRefusal(
    401,
    "this token is good for nothing: it was never given out, or what it was given out for is over",
    headers=AccessVerdict.NO_CREDENTIAL.headers,
)
NO_PAGE: Final = AgentRefusal(404, "there is no such page")
NO_METHOD: Final = AgentRefusal(405, "not with this method", headers=((b"allow", ", ".join(METHODS).encode()),))
NO_RESUMPTION: Final = AgentRefusal(
    400, "this server keeps no events, so no stream can be resumed: ask again without Last-Event-ID"
)
TOO_LARGE: Final = AgentRefusal(413, "the body is too large")
AT_ONCE: Final = AgentRefusal(429, "too many requests at once", headers=((b"retry-after", b"1"),))
BYTES_AT_ONCE: Final = AgentRefusal(429, "too many bytes at once", headers=((b"retry-after", b"1"),))
STOPPING: Final = AgentRefusal(503, "the server is stopping")
GONE: Final = AgentRefusal(400, "the body ended too early")


class AgentPlane:
    """Everything that listens for agents."""

    def __init__(
        self,
        policies: Mapping[int | None, AccessPolicy],
        for_agents: AgentAccess,
        server: McpServer,
        *,
        limits: RequestLimits,
        refused: Callable[[int], object],
    ) -> None:
        self._policies = policies
        self._for_agents = for_agents
        self._server = server
        self._limits = limits
        self._refused = refused
        self._queue = FairQueue()
        self._strangers = RefusalLog(LOG)
        self._stopping = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve while this is entered; once only."""
        async with self._server.running():
            yield

    def forget(self, grant: str) -> None:
        """Close, soon, what a grant has open that has died."""
        self._server.forget(grant)

    def stop(self) -> None:
        """Take nothing new; what runs is answered."""
        self._stopping = True

    async def close(self) -> None:
        """Take nothing new and close all that is open, so that the sockets can be closed."""
        self.stop()
        await self._server.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "websocket":
            await receive()  # websocket.connect
            await self._turn_away(scope, send, NO_PAGE, "websocket.http.response")
        elif scope["type"] == "http":
            await self._serve(scope, receive, _Reply(send))

    async def _serve(self, scope: Scope, receive: Receive, reply: "_Reply") -> None:
        turn = self._queue.turn()
        try:
            try:
                refusal = await self._serve_request(turn, scope, receive, reply)
            except Exception as problem:  # whatever breaks, the peer learns a number
                incident = new_incident()
                LOG.error("the agent plane failed, incident %s", incident, exc_info=problem)
                refusal = AgentRefusal(500, f"the server failed, incident {incident}", mcp_messages.INTERNAL_ERROR)
            if reply.status is None and refusal is not None:
                await self._refuse(turn, scope, reply, refusal)
            elif reply.status is not None and reply.status >= 400:
                self._note(scope, reply.status, "not as MCP wants it")
        finally:
            turn.end()

    async def _refuse(self, turn: QueueTurn, scope: Scope, reply: "_Reply", refusal: AgentRefusal) -> None:
        """Say why a request is refused, later if its grant is refused all the time, and in a turn of its own."""
        visit = scope.get(AGENT_REQUEST)
        if visit is not None:
            # It may have begun: what waits for its pace must not keep the others waiting.
            turn.end()
            await asyncio.sleep(visit.guest.refusals.note())
            turn = self._queue.turn()
        try:
            await turn.begin(NOBODY if visit is None else visit.guest.grant)
            await self._turn_away(scope, reply, refusal)
        finally:
            turn.end()

    async def _serve_request(
        self, turn: QueueTurn, scope: Scope, receive: Receive, reply: "_Reply"
    ) -> AgentRefusal | None:
        # Space around a value is not part of it; the parser leaves what comes after.
        scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        port = (scope.get("server") or (None, None))[1]
        # A grant's token is not for the access checks to judge.
        policy = self._policies[None if None in self._policies else port]
        verdict = judge_address(policy, scope["path"], scope["headers"])
        if not verdict.allowed:
            return AgentRefusal(verdict.status, verdict.text)
        if self._stopping:
            return STOPPING
        if scope["path"] == HEALTH and scope["method"] in READING:
            await turn.begin(ANYBODY)
            await send_json(reply, 200, {"status": "healthy"})
            return None
        view = self._for_agents.find_view(read_presented_secret(scope["headers"]))
        if view is None:
            return BAD_TOKEN
        visit = scope[AGENT_REQUEST] = AgentRequest(view, self._server.guest(view), turn)
        authenticate(scope, visit.guest.grant)
        # As it was sent: another spelling of a path is another path.
        if scope["raw_path"] != PATH.encode():
            return NO_PAGE
        if scope["method"] not in METHODS:
            return NO_METHOD
        if scope["method"] == "GET" and any(name == LAST_EVENT for name, _ in scope["headers"]):
            return NO_RESUMPTION
        return await self._serve_within_limits(visit, scope, receive, reply)

    async def _serve_within_limits(
        self, visit: AgentRequest, scope: Scope, receive: Receive, reply: "_Reply"
    ) -> AgentRefusal | None:
        guest = visit.guest
        if guest.requests >= MOST_REQUESTS:
            return AT_ONCE
        # 0 if nothing is said, or if it is no number: the parser refuses that.
        said = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        length = int(said) if said.isdigit() else 0
        if length > guest.largest:
            return TOO_LARGE
        wait = guest.take_request(length)
        if wait:
            return _refuse_rate(wait)
        # From its first byte: a body that comes slowly takes room, too.
        guest.requests += 1
        body = reply.body = _Body(guest, length)
        try:
            refusal = await body.read(receive)
            return await self._answer_message(visit, body, scope, receive, reply) if refusal is None else refusal
        finally:
            body.release()
            guest.requests -= 1

    async def _answer_message(
        self, visit: AgentRequest, body: "_Body", scope: Scope, receive: Receive, reply: "_Reply"
    ) -> AgentRefusal | None:
        await visit.turn.begin(visit.guest.grant)
        read = self._read_message(visit, scope["method"], bytes(body.content))
        if isinstance(read, AgentRefusal):
            return read
        body.content.clear()
        if scope["method"] == "GET":
            visit.turn.end()  # a stream, which may last
        await self._server.serve(visit, scope, _replay(read, receive), reply)
        return None

    def _read_message(self, visit: AgentRequest, method: str, body: bytes) -> bytes | AgentRefusal:
        """Return what the library reads, or why the message is refused: it cannot be read, or comes too late or too soon."""
        guest = visit.guest
        if guest.gone:
            return BAD_TOKEN
        if method != "POST":
            wait = guest.bucket.take()
            return _refuse_rate(wait) if wait else body
        message = mcp_messages.read_message(body, self._limits.max_depth)
        if isinstance(message, mcp_messages.Unreadable):
            return _refuse_unreadable(message)
        wait = self._for_agents.take_call(visit.view) if message.is_call else guest.bucket.take()
        if wait:
            return _refuse_rate(wait)
        if not message.is_call:
            problem = mcp_messages.check_envelope(body)
            return body if problem is None else _refuse_unreadable(problem)
        call = mcp_messages.read_call(message, guest.catalogue.argument_limits, self._limits.max_arguments_bytes)
        if isinstance(call, mcp_messages.Unreadable):
            return _refuse_unreadable(call)
        visit.arguments = call.arguments
        return call.envelope

    async def _turn_away(self, scope: Scope, send: Send, refusal: AgentRefusal, kind: str = "http.response") -> None:
        self._note(scope, refusal.status, refusal.text)
        await send_json(send, refusal.status, make_error(refusal.code, refusal.text), refusal.headers, kind)

    def _note(self, scope: Scope, status: int, text: str) -> None:
        self._refused(status)
        visit, peer = scope.get(AGENT_REQUEST), scope.get("client")
        if visit is not None and visit.logged:
            return
        fields = {"status": status, "peer": "unknown" if peer is None else peer[0]}
        if visit is None:
            note_refusal(scope)
            self._strangers.write(REFUSED, text, extra={**fields, "grant": "none"})
        elif (left_out := visit.guest.log.take()) is not None:
            LOG.info(REFUSED, text, extra={**fields, "grant": visit.guest.grant, **left_out})


class _Reply:
    """A `send` that remembers the status that was sent, and lets go of a request's body before its peer can send another."""

    __slots__ = ("_send", "body", "status")

    def __init__(self, send: Send) -> None:
        self.status: int | None = None
        self.body: _Body | None = None
        self._send = send

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif self.body is not None and not message.get("more_body", False):
            self.body.release()
        await self._send(message)


def _replay(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` for a body that has been read already."""
    bodies = [body]

    async def replay() -> Any:
        return {"type": "http.request", "body": bodies.pop(), "more_body": False} if bodies else await receive()

    return replay


class _Body:
    """The body of one request, as far as its grant may send and hold it."""

    __slots__ = ("_guest", "_paid", "content")

    def __init__(self, guest: GrantUsage, paid: int) -> None:
        self.content: Final = bytearray()
        self._guest = guest
        self._paid = paid

    async def read(self, receive: Receive) -> AgentRefusal | None:
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return GONE
            refusal = self._add(message.get("body", b""))
            if refusal is not None or not message.get("more_body", False):
                return refusal

    def release(self) -> None:
        self._guest.release(self)

    def _add(self, piece: bytes) -> AgentRefusal | None:
        guest = self._guest
        if len(self.content) + len(piece) > guest.largest:
            return TOO_LARGE
        unpaid = max(0, len(piece) - self._paid)
        self._paid -= len(piece) - unpaid
        wait = guest.take_bytes(unpaid)
        if wait:
            return _refuse_rate(wait)
        if not guest.hold(self, len(piece)):
            return BYTES_AT_ONCE
        self.content.extend(piece)
        return None


def _refuse_rate(wait: float) -> AgentRefusal:
    seconds = LONGEST_WAIT if wait > LONGEST_WAIT else math.ceil(wait)
    return AgentRefusal(
        429, f"too many requests or bytes: try again in {seconds} s", headers=((b"retry-after", str(seconds).encode()),)
    )


def _refuse_unreadable(problem: mcp_messages.Unreadable) -> AgentRefusal:
    status, code, text = problem.value
    return AgentRefusal(status, text, code)
