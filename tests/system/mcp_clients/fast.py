"""fastmcp: run as a program with its own interpreter, it prints what it found.

Arguments: the address, the token, and the calls to make, as JSON: [[name, arguments], ...].
"""

from __future__ import annotations

import asyncio
import json
import sys
from importlib import import_module
from typing import Any

# By name: what checks the types here does not have it.
fastmcp: Any = import_module("fastmcp")
transports: Any = import_module("fastmcp.client.transports")


async def found(url: str, token: str, calls: list[Any]) -> dict[str, Any]:
    """Do what a user of this library does."""
    heard: list[Any] = []

    async def progress(done: float, total: float | None, message: str | None) -> None:
        heard.append([done, total])

    async def called(client: Any, name: str, arguments: Any) -> dict[str, Any]:
        try:
            answer = await client.call_tool(name, arguments, raise_on_error=False, progress_handler=progress)
        except Exception as refusal:  # noqa: BLE001  # whatever this client makes of a refusal is what is asked
            return {"refused": str(refusal)}
        return {"error": answer.is_error, "text": answer.content[0].text, "structured": answer.structured_content}

    transport = transports.StreamableHttpTransport(url, headers={"Authorization": f"Bearer {token}"})
    async with fastmcp.Client(transport) as client:
        return {
            "tools": [tool.name for tool in await client.list_tools()],
            "calls": [await called(client, name, arguments) for name, arguments in calls],
            "progress": heard,
        }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(found(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))))
