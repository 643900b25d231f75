"""The official SDK, first generation: run as a program with its own interpreter, it prints what it found.

Arguments: the address, the token, and the calls to make, as JSON: [[name, arguments], ...].
"""

from __future__ import annotations

import asyncio
import json
import sys
from importlib import import_module
from typing import Any

import httpx

# By name: what checks the types here has another version of the library.
mcp: Any = import_module("mcp")
streamable_http: Any = import_module("mcp.client.streamable_http")


async def found(url: str, token: str, calls: list[Any]) -> dict[str, Any]:
    """Do what a user of this library does."""
    heard: list[Any] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        heard.append([done, total])

    async def called(session: Any, name: str, arguments: Any) -> dict[str, Any]:
        try:
            answer = await session.call_tool(name, arguments, progress_callback=progress)
        except mcp.McpError as refusal:
            return {"refused": refusal.error.message}
        return {"error": answer.isError, "text": answer.content[0].text, "structured": answer.structuredContent}

    async with (
        httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=300) as http,
        streamable_http.streamable_http_client(url, http_client=http) as (read, write, _),
        mcp.ClientSession(read, write) as session,
    ):
        hello = await session.initialize()
        await session.send_ping()
        tools = (await session.list_tools()).tools
        return {
            "version": hello.protocolVersion,
            "instructions": hello.instructions,
            "tools": [tool.name for tool in tools],
            "read_only": [tool.annotations.readOnlyHint for tool in tools],
            "calls": [await called(session, name, arguments) for name, arguments in calls],
            "progress": heard,
        }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(found(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))))
