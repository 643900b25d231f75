"""A bare server of the official MCP SDK with one tool that does nothing: `python -m bench.agents_bare KIND PORT`.

KIND is `noop` (the tool answers "ok") or `alike` (it has the schemas of our tool, and a constant that is as long as our answer,
so that client and library read and write as much as with ours).

Rule 1: the library is used as its pages say: the low-level `Server`, its own application, its own checks of the address.
Rule 2: uvicorn is set as the agent plane's is: uvloop, httptools, no access log, no extra headers; replies are event streams.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import uvicorn
from mcp.server import Server, ServerRequestContext
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, TextContent, Tool
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from bench.control_env import EchoAction, EchoEnvironment
from bench.control_load import MESSAGE
from proctor.contracts.tools import Tool as OurTool
from proctor.envs.targets import Target
from proctor.server.runtime.env_adapter import describe_target
from proctor.server.sessions.tool_results import make_observation_schema

Context = ServerRequestContext[Any, Any]
NOOP: Final = CallToolResult(content=[TextContent(type="text", text="ok")])
SEEN: Final[dict[str, Any]] = {
    "observation": {"echoed": MESSAGE, "count": 1000},
    "step": 1000,
    "done": False,
    "terminated": False,
    "truncated": False,
}


def tool_of(kind: str) -> Tool:
    """Return what is listed."""
    if kind == "noop":
        return Tool(name="act", description="Does nothing.", input_schema=EchoAction.model_json_schema())
    card = describe_target(Target("bench.control_env:quick"))
    ours: OurTool = next(each for each in card.tools if each.name == "act")
    return Tool(
        name="act",
        description=ours.description,
        input_schema=ours.input_schema,
        output_schema=make_observation_schema(card),
    )


def answer_of(kind: str) -> CallToolResult:
    """Return what every call is answered with."""
    if kind == "noop":
        return NOOP
    said = EchoEnvironment().describe_observation(EchoEnvironment().step(EchoAction(message=MESSAGE)))
    return CallToolResult(content=[TextContent(type="text", text=f"{said}\nStep 1000.")], structured_content=SEEN)


def server_of(kind: str) -> Server[Any]:
    """Return the library's server with its one tool."""
    listing, answer = ListToolsResult(tools=[tool_of(kind)]), answer_of(kind)

    async def list_tools(_: Context, __: PaginatedRequestParams | None) -> ListToolsResult:
        return listing

    async def call_tool(_: Context, __: CallToolRequestParams) -> CallToolResult:
        return answer

    return Server("bare", version="1", on_list_tools=list_tools, on_call_tool=call_tool)


async def _well(_: Request) -> PlainTextResponse:
    return PlainTextResponse("well")


def main(kind: str, port: str) -> None:
    """Serve until ended."""
    app = server_of(kind).streamable_http_app(custom_starlette_routes=[Route("/health", _well)])
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(port),
        loop="uvloop",
        http="httptools",
        ws="none",
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
