"""MCP as agents meet it: the only file of the server that imports `mcp`.

Rule 1: an agent gets tools and `ping`. There are no resources, no prompts, no logging, and nothing is asked of the client.
Rule 2: what a request may do is decided by the view that its own token gave, never by the session that it names.
Rule 3: what breaks inside is logged once, with a number; the peer gets the number.
Rule 4: the library's own log lines name a place in the library and the kind of an exception, never what a peer sent.
Rule 5: a call that is cancelled is cancelled and nothing more: the view sees to it that no action is left half done. So is one
    whose peer has gone, where each request stands for itself; with a handshake a call outlives its connection.

Both eras that the library speaks are served: the revisions with a handshake and sessions, and the one in which every request
stands for itself.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, MutableMapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from mcp import MCPError
from mcp.server import Server, ServerRequestContext
from mcp.server.context import CallNext, HandlerResult
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, CallToolRequestParams, PaginatedRequestParams
from pydantic import ValidationError as ModelError
from sse_starlette.sse import AppStatus

from proctor.access.limits import LogBudget, RequestLimits
from proctor.server.agent_access import AgentView
from proctor.server.agents.fair_use import GrantUsage, HeldBodies, QueueTurn
from proctor.server.agents.mcp_messages import Wire, encode_result, make_catalogue
from proctor.server.runtime.results import new_incident

LOG: Final = logging.getLogger("proctor.agents")
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Context = ServerRequestContext[Any, Any]

SESSION: Final = b"mcp-session-id"
IDLE_SECONDS: Final = 1800.0
MOST_SESSIONS: Final = 10_000
LAST_WORDS_SECONDS: Final = 2.0
"""How long the sessions of a dead grant may still answer what they were asked."""
SHORT: Final = 64
"""How much of an unknown name is repeated to whoever called it."""
AGENT_REQUEST: Final = "proctor.visit"
"""Where a request's scope says whose it is."""
_INTRODUCTIONS: Final = frozenset({"initialize", "server/discover"})


@dataclass(slots=True)
class AgentRequest:
    """One request of an agent: what its own token lets it use, and what its grant has open."""

    view: AgentView
    guest: GrantUsage
    turn: QueueTurn
    arguments: bytes = b"{}"
    """Of the call that it makes; the library does not see them."""
    logged: bool = False
    """Whether the log says already why it was refused."""


class McpServer:
    """MCP for the agents of one server; `library` is the library's own object, which a test may give more to serve."""

    def __init__(
        self,
        name: str,
        version: str,
        *,
        limits: RequestLimits,
        idle_seconds: float = IDLE_SECONDS,
        max_sessions: int = MOST_SESSIONS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for library in map(logging.getLogger, ("mcp", "sse_starlette")):
            library.setLevel(logging.WARNING)
            library.propagate = False
            library.handlers[:] = [_PlaceLogger()]
        # Told to stop, it would cut off replies that are still to come; `close` ends the streams when they have.
        AppStatus.enable_automatic_graceful_drain = False
        # A server that was told to stop before in this process has left a word that would end our streams, too.
        AppStatus.should_exit = False
        # Without the second argument the library lists all tools before each call, to look for arguments in headers.
        self.library: Final[Server[Any]] = Server(name, version=version, get_tool_input_schema=_no_headers)
        self.library.add_request_handler("tools/list", PaginatedRequestParams, _list_tools)
        self.library.add_request_handler("tools/call", CallToolRequestParams, _call_tool)
        # In place of the library's own, which traces every message for a collector that nobody runs.
        self.library.middleware[:] = [_hide_errors, _add_instructions]
        self._guests: dict[str, GrantUsage] = {}
        self._limits = limits
        self._held = HeldBodies()
        self._closings: set[asyncio.Task[None]] = set()
        self._clock = clock
        self._manager = StreamableHTTPSessionManager(
            self.library,
            # The access checks have judged Host and Origin.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            session_idle_timeout=idle_seconds,
            max_request_body_size=limits.max_body_bytes,
            max_sessions=max_sessions,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve while this is entered; once only, as the library wants it."""
        async with self._manager.run():
            try:
                yield
            finally:
                await self.close()

    def guest(self, view: AgentView) -> GrantUsage:
        """Return what the view's grant has open."""
        guest = self._guests.get(view.grant)
        if guest is None:
            catalogue = make_catalogue(view.tools, self._limits)
            guest = self._guests[view.grant] = GrantUsage(view.grant, catalogue, self._clock, self._limits, self._held)
        return guest

    async def serve(self, visit: AgentRequest, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of an agent."""
        scope[AGENT_REQUEST] = visit
        guest = visit.guest
        session = _find_session(scope["headers"])
        if session is None:
            await self._manager.handle_request(scope, receive, self._note_sessions(guest, send))
        elif session not in guest.sessions:
            await send_json(send, 404, make_error(INVALID_REQUEST, "Session not found"))
        elif scope["method"] == "POST":
            guest.start_message(session)
            try:
                await self._manager.handle_request(scope, receive, send)
            finally:
                guest.finish_message(session)
        else:
            await self._manager.handle_request(scope, receive, send)
            if scope["method"] == "DELETE":
                guest.close_session(session)

    def _note_sessions(self, guest: GrantUsage, send: Send) -> Send:
        """Return a `send` that notes a new session before its client can know of it."""

        async def noting(message: Any) -> None:
            begins = message["type"] == "http.response.start" and message["status"] < 400
            opened = _find_session(message["headers"]) if begins else None
            surplus = None if opened is None else guest.open_session(opened)
            if surplus is not None:
                self._start_closing(self._close_session(surplus))
            await send(message)

        return noting

    def forget(self, grant: str) -> None:
        """Close, soon, what a grant has open that has died; one that had nothing open needs nothing."""
        guest = self._guests.pop(grant, None)
        if guest is not None:
            guest.gone = True
            if guest.log.left_out:
                LOG.info("more requests of an agent were refused: %d", guest.log.left_out, extra={"grant": grant})
            self._start_closing(self._close_soon(guest))

    async def close(self) -> None:
        """Close all that is open; what was asked before is still answered, for a little while."""
        for grant in list(self._guests):
            self.forget(grant)
        if self._closings:
            await asyncio.wait(self._closings)

    def _start_closing(self, closing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(closing)
        self._closings.add(task)
        task.add_done_callback(self._closings.discard)

    async def _close_soon(self, guest: GrantUsage) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await guest.quiet.wait()
        for session in list(guest.sessions):
            await self._close_session(session)

    async def _close_session(self, session: str) -> None:
        """Close a session as its client would; the library promises no other way."""
        headers = [(SESSION, session.encode("ascii"))]
        scope = {"type": "http", "method": "DELETE", "path": "/", "query_string": b"", "headers": headers}
        await self._manager.handle_request(scope, _receive_nothing, _send_nowhere)


async def _list_tools(ctx: Context, params: PaginatedRequestParams) -> Wire:
    return _find_request(ctx).guest.catalogue.listing


async def _call_tool(ctx: Context, params: CallToolRequestParams) -> Wire:
    visit = _find_request(ctx)
    names = visit.guest.catalogue.names
    if params.name not in names:
        raise MCPError(INVALID_PARAMS, f"Unknown tool: {params.name[:SHORT]}. The tools are {', '.join(names)}.")
    # From here on it may wait for its environment, or for an operator.
    visit.turn.end()
    # A client is told how far its call is if it asked for that.
    listens = ctx.meta is not None and "progress_token" in ctx.meta
    progress = ctx.session.report_progress if listens else None
    return encode_result(await visit.view.call(params.name, visit.arguments, progress))


def _find_request(ctx: Context) -> AgentRequest:
    """Return what was noted of the very request that is answered, not of the one that opened its session."""
    request: Any = ctx.request
    visit: AgentRequest = request.scope[AGENT_REQUEST]
    return visit


def _no_headers(tool: str) -> None:
    """Return no schema: no tool asks for arguments in headers, `content` sees to that."""


async def _hide_errors(ctx: Context, call_next: CallNext) -> HandlerResult:
    """Log what is refused; let nothing out of what breaks but a number."""
    try:
        return await call_next(ctx)
    except MCPError as refusal:
        _log_refusal(ctx, refusal.error.code)
        raise
    except ModelError:
        _log_refusal(ctx, INVALID_PARAMS)
        raise
    except Exception as problem:  # the library would tell the peer what it says
        incident = new_incident()
        _find_request(ctx).logged = True
        LOG.error("an agent's request failed inside, incident %s", incident, exc_info=problem)
        raise MCPError(INTERNAL_ERROR, f"the server failed, incident {incident}") from None


def _log_refusal(ctx: Context, code: int) -> None:
    visit = _find_request(ctx)
    visit.logged = True
    fields = visit.guest.log.take()
    if fields is not None:
        extra = {"grant": visit.guest.grant, **fields}
        LOG.info("an agent's request was refused: JSON-RPC error %d", code, extra=extra)


async def _add_instructions(ctx: Context, call_next: CallNext) -> HandlerResult:
    result = await call_next(ctx)
    if ctx.method in _INTRODUCTIONS and isinstance(result, dict):
        return {**result, "instructions": _find_request(ctx).view.instructions}
    return result


def _find_session(headers: Any) -> str | None:
    """Return the MCP session that a request names; the library, too, reads the first one."""
    return next((value.decode("latin-1") for name, value in headers if name == SESSION), None)


def make_error(code: int, message: str) -> dict[str, Any]:
    """Return the document of a refusal that answers no request by its id."""
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}


async def send_json(
    send: Send,
    status: int,
    document: dict[str, Any],
    headers: tuple[tuple[bytes, bytes], ...] = (),
    kind: str = "http.response",
) -> None:
    """Send a whole reply."""
    body = msgspec.json.encode(document)
    length = (b"content-length", str(len(body)).encode())
    json = (b"content-type", b"application/json")
    await send({"type": f"{kind}.start", "status": status, "headers": [json, length, *headers]})
    await send({"type": f"{kind}.body", "body": body})


async def _receive_nothing() -> Any:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _send_nowhere(message: Any) -> None:
    return None


class _PlaceLogger(logging.Handler):
    """Says where in a library something was logged; what was said there may be a peer's text."""

    def __init__(self) -> None:
        super().__init__()
        self._budgets: dict[int, LogBudget] = {}

    def emit(self, record: logging.LogRecord) -> None:
        fields = self._budgets.setdefault(record.lineno, LogBudget()).take()
        if fields is None:
            return
        kind = record.exc_info[0].__name__ if record.exc_info and record.exc_info[0] else "no exception"
        LOG.log(record.levelno, "%s, line %d, reports a problem (%s)", record.name, record.lineno, kind, extra=fields)
