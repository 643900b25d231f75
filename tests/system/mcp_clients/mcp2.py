"""The official SDK, second generation: run as a program with its own interpreter, it prints what it found.

Arguments: the address, the token, the calls to make, as JSON: [[name, arguments], ...], and the era: `legacy`, `auto` or a
revision.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client


async def found(url: str, token: str, calls: list[Any], era: str) -> dict[str, Any]:
    """Do what a user of this library does."""
    heard: list[Any] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        heard.append([progress, total])

    async def called(client: Client, name: str, arguments: Any) -> dict[str, Any]:
        try:
            answer: Any = await client.call_tool(name, arguments, progress_callback=note)
        except MCPError as refusal:
            return {"refused": refusal.error.message}
        return {"error": answer.is_error, "text": answer.content[0].text, "structured": answer.structured_content}

    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=300) as http,
        Client(streamable_http_client(url, http_client=http), mode=era) as client,
    ):
        tools: list[Any] = list((await client.list_tools()).tools)
        return {
            "version": client.protocol_version,
            "instructions": client.instructions,
            "tools": [tool.name for tool in tools],
            "read_only": [tool.annotations.read_only_hint for tool in tools],
            "calls": [await called(client, name, arguments) for name, arguments in calls],
            "progress": heard,
        }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(found(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), sys.argv[4]))))
