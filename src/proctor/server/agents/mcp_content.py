"""Tools and answers as MCP writes them. Pure.

What leaves here are the objects of the wire, not the library's models: they are made once for each grant, or on every call,
and a model would be made only to be taken apart again. A test reads all of them with the library's models.

Rule 1: an answer with an error has no structured content. A tool's output schema describes what it answers with when all is
    well; clients that validate (the TypeScript SDK does, errors too) would refuse an error of another shape. What a program
    wants to know of an error is in `_meta`, under `ERROR_KEY`.
Rule 2: nobody but the environment is touched by a tool: `openWorldHint` is false for all of them.
Rule 3: no tool asks for an argument in a header of the request: what a schema says of that is left out, so that there is
    nothing to compare.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import msgspec

from proctor.access.limits import RequestLimits
from proctor.contracts.tools import Tool, ToolSafety
from proctor.server.agent_access import AgentTool
from proctor.server.sessions.tool_results import ToolResult

Wire: TypeAlias = dict[str, Any]
"""One JSON object, as it is written."""
ERROR_KEY: Final = "proctor/error"
HEADER_KEY: Final = "x-mcp-header"
"""With this a schema asks for an argument to be repeated in a header."""
FRESH_MS: Final = 60_000
"""How long a client may believe what it was told of the tools; they never change while a grant lives."""
COMPLETE: Final = "complete"
_decode: Final = msgspec.json.Decoder(Wire).decode


@dataclass(frozen=True, slots=True)
class ToolCatalogue:
    """The tools of one grant: what is told of them, their names in order, and how many bytes of arguments each takes."""

    listing: Wire
    names: tuple[str, ...]
    argument_limits: Mapping[str, int]


def make_catalogue(tools: Sequence[AgentTool], limits: RequestLimits) -> ToolCatalogue:
    """Return what is told of the tools; the server's limits bound what a tool asks for."""
    return ToolCatalogue(
        # Private: another token may have other tools.
        {
            "tools": [encode_tool(each) for each in tools],
            "resultType": COMPLETE,
            "ttlMs": FRESH_MS,
            "cacheScope": "private",
        },
        tuple(each.tool.name for each in tools),
        {each.tool.name: each.most_bytes(limits) for each in tools},
    )


def encode_tool(each: AgentTool) -> Wire:
    """Return one tool as it is listed."""
    tool = each.tool
    title = {} if tool.title is None else {"title": tool.title}
    return {
        "name": tool.name,
        **title,
        "description": tool.description,
        "inputSchema": _without_headers(tool.input_schema),
        "outputSchema": each.output_schema,
        "annotations": {**title, **_hints(tool)},
    }


def _hints(tool: Tool) -> dict[str, bool]:
    reads = tool.safety is ToolSafety.READ
    return {
        "readOnlyHint": reads,
        "destructiveHint": tool.destructive and not reads,
        "idempotentHint": reads,
        "openWorldHint": False,
    }


def _without_headers(part: Any) -> Any:
    """Return a schema, or a part of one, that asks for no headers."""
    if isinstance(part, dict):
        return {key: _without_headers(value) for key, value in part.items() if key != HEADER_KEY}
    return [_without_headers(each) for each in part] if isinstance(part, list) else part


def encode_result(told: ToolResult) -> Wire:
    """Return what a call is answered with."""
    content = [{"type": "text", "text": told.text}]
    structured = _decode(told.structured)
    if told.is_error:
        return {"content": content, "isError": True, "resultType": COMPLETE, "_meta": {ERROR_KEY: structured}}
    return {"content": content, "structuredContent": structured, "isError": False, "resultType": COMPLETE}
