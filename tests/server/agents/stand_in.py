"""A stand-in for `AgentAccess`, and the real plane in front of it on loopback, on a thread and an event loop of its own."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import httpx
import msgspec
import uvicorn
import uvloop

from proctor.access.limits import RequestLimits
from proctor.access.request_policy import AccessPolicy, policy_for
from proctor.contracts.tools import Tool, ToolSafety
from proctor.server.agent_access import AgentAccess, AgentTool, AgentView, Progress
from proctor.server.agents.mcp_server import McpServer
from proctor.server.agents.plane import AgentPlane
from proctor.server.net.uvicorn_http import LimitedHttpProtocol
from proctor.server.net.uvicorn_server import FairServer, bind_tcp, port_of
from proctor.server.sessions.tool_results import ToolResult

PATIENCE = 120.0
TOKEN = "a-token-of-the-first-agent"
OTHER_TOKEN = "a-token-of-the-second-agent"
MODERN = "2026-07-28"
HANDSHAKE = "2025-11-25"
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
SEEN_SCHEMA = {
    "type": "object",
    "properties": {
        "observation": {"type": "object"},
        "step": {"type": "integer"},
        "done": {"type": "boolean"},
        "terminated": {"type": "boolean"},
        "truncated": {"type": "boolean"},
    },
    "required": ["observation", "step", "done", "terminated", "truncated"],
    "additionalProperties": False,
}


def seen(step: int, **observation: Any) -> bytes:
    """Return what an acting or observing tool answers with."""
    flags = {"done": False, "terminated": False, "truncated": False}
    return msgspec.json.encode({"observation": observation, "step": step, **flags})


def a_tool(name: str, safety: ToolSafety, arguments: dict[str, Any] | None = None, **keywords: Any) -> AgentTool:
    """Return a tool that answers with an observation."""
    schema = {
        "type": "object",
        "properties": arguments or {},
        "required": list(arguments or {}),
        "additionalProperties": False,
    }
    return AgentTool(
        Tool(name=name, description=f"About {name}.", safety=safety, input_schema=schema, **keywords), SEEN_SCHEMA
    )


TOOLS = (
    a_tool("look", ToolSafety.READ, title="Look around"),
    a_tool("move", ToolSafety.WRITE, {"steps": {"type": "integer", "minimum": 1, "maximum": 20}}),
    a_tool("burn", ToolSafety.WRITE, destructive=True),
)

Script = Callable[[str, bytes, Progress | None], Awaitable[ToolResult]]


async def walking(tool: str, arguments: bytes, progress: Progress | None) -> ToolResult:
    """Answer as an environment would in which nothing ever goes wrong but `burn`."""
    if tool == "burn":
        problem = {"code": "STATE_ERROR", "message": "nothing burns here", "expected": "another tool"}
        return ToolResult(
            "STATE_ERROR: nothing burns here. Expected: another tool.", msgspec.json.encode(problem), is_error=True
        )
    steps: int = msgspec.json.decode(arguments).get("steps", 0)
    for done in range(1, steps):
        if progress is not None:
            await progress(done, steps)
    return ToolResult(f"You stand at {steps}.", seen(steps, place=steps, note=None))


@dataclass
class StandInView:
    """One grant."""

    grant: str
    script: Script = walking
    tools: tuple[AgentTool, ...] = TOOLS
    instructions: str = "Walk with move, look with look."
    calls: list[tuple[str, bytes]] = field(default_factory=list)

    async def call(self, tool: str, arguments: bytes, progress: Progress | None = None) -> ToolResult:
        self.calls.append((tool, arguments))
        return await self.script(tool, arguments, progress)


@dataclass
class StandIn:
    """The grants of a server that has no sessions; `wait` is what the rate says."""

    views: dict[str | None, StandInView] = field(
        default_factory=lambda: {TOKEN: StandInView("first"), OTHER_TOKEN: StandInView("second")}
    )
    wait: float = 0.0
    taken_by: list[str] = field(default_factory=list)

    def find_view(self, secret: str | None) -> AgentView | None:
        return cast("AgentView | None", self.views.get(secret))

    def take_call(self, view: AgentView) -> float:
        self.taken_by.append(view.grant)
        return self.wait

    def seen_by(self, secret: str) -> AgentView:
        return cast("AgentView", self.views[secret])

    @property
    def for_agents(self) -> AgentAccess:
        return cast("AgentAccess", self)


@dataclass
class Plane:
    """A plane that listens, and the loop that it runs on."""

    stand_in: StandIn
    plane: AgentPlane
    server: McpServer
    port: int
    loop: asyncio.AbstractEventLoop
    refused: list[int]
    http: httpx.Client
    uvicorn: uvicorn.Server

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def on_loop(self, work: Callable[[], Any]) -> Any:
        """Return what `work` returns on the plane's loop."""

        async def call() -> Any:
            answer = work()
            return await answer if asyncio.iscoroutine(answer) else answer

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(PATIENCE)

    def post(self, body: Any, token: str | None = TOKEN, **headers: str) -> httpx.Response:
        """Return the answer to a body; what is not bytes is sent as JSON."""
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return self.request("POST", token, content=content, **headers)

    def request(
        self, method: str, token: str | None = TOKEN, path: str = "/mcp", content: bytes = b"", **headers: str
    ) -> httpx.Response:
        """Return the answer to a request; a header's name is written with underscores."""
        bearer = {} if token is None else {"Authorization": f"Bearer {token}"}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        url = f"http://127.0.0.1:{self.port}{path}"
        return self.http.request(method, url, content=content, headers={**ACCEPT, **bearer, **named})

    def opened(self, token: str = TOKEN) -> str:
        """Return a new MCP session of the era with handshakes."""
        reply = self.post(handshake(), token)
        assert reply.status_code == 200, reply.text
        session = reply.headers["mcp-session-id"]
        self.post({"jsonrpc": "2.0", "method": "notifications/initialized"}, token, mcp_session_id=session)
        return session

    def modern(self, method: str, params: dict[str, Any] | None = None, token: str = TOKEN) -> httpx.Response:
        """Return the answer to a request of the era without sessions."""
        named = {} if params is None or "name" not in params else {"Mcp_Name": params["name"]}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**(params or {}), "_meta": envelope()}}
        return self.post(body, token, MCP_Protocol_Version=MODERN, Mcp_Method=method, **named)


def handshake() -> dict[str, Any]:
    """Return the first message of a client of the handshake era."""
    params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}


def envelope() -> dict[str, Any]:
    """Return what every request of the modern era says of its client."""
    return {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    }


def call_of(name: str, arguments: dict[str, Any], number: int = 1) -> dict[str, Any]:
    """Return a call of a tool, as the handshake era writes it."""
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


@contextmanager
def plane_of(
    stand_in: StandIn | None = None, *, limits: RequestLimits | None = None, pages: bool = False, **keywords: Any
) -> Iterator[Plane]:
    """Serve a stand-in to agents on a free port until the block ends; `pages` lets in pages of its own origin."""
    held = StandIn() if stand_in is None else stand_in
    bounds = RequestLimits() if limits is None else limits
    listener = bind_tcp("127.0.0.1", 0)
    port = port_of(listener)
    assert port is not None
    refused: list[int] = []
    server = McpServer("proctor", "1", limits=bounds, **keywords)
    policies: dict[int | None, AccessPolicy] = {port: policy_for("127.0.0.1", port, None, pages=pages)}
    plane = AgentPlane(policies, held.for_agents, server, limits=bounds, refused=refused.append)
    config = uvicorn.Config(
        plane, http=LimitedHttpProtocol, ws="none", lifespan="off", log_config=None, access_log=False
    )
    uvicorned = _Uvicorn(config, plane)
    thread = threading.Thread(target=_run, args=(_running(uvicorned, plane, listener),), daemon=True)
    thread.start()
    assert uvicorned.ready.wait(PATIENCE), "the plane did not start"
    try:
        # Nothing is encrypted here, and to read all certificates takes longer than most tests.
        with httpx.Client(timeout=PATIENCE, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), trust_env=False) as http:
            yield Plane(held, plane, server, port, uvicorned.loop, refused, http, uvicorned)
    finally:
        uvicorned.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the plane did not stop"


class _Uvicorn(FairServer):
    def __init__(self, config: uvicorn.Config, plane: AgentPlane) -> None:
        super().__init__(config)
        self.ready = threading.Event()
        self._plane = plane

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        self.loop = asyncio.get_running_loop()
        self.ready.set()

    async def shutdown(self, sockets: Any = None) -> None:
        await self._plane.close()
        await super().shutdown(sockets)


async def _running(server: uvicorn.Server, plane: AgentPlane, listener: Any) -> None:
    async with plane.running():
        await server.serve(sockets=[listener])


def _run(running: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(running)
