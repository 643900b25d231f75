"""The official SDK, first generation: run as a program with its own interpreter, it prints what it found.

Arguments: the address, the token, and the calls to make, as JSON: [[name, arguments], ...].
"""

import asyncio
import json
import sys

import httpx
from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamable_http_client


async def found(url, token, calls):
    heard = []

    async def progress(done, total, message):
        heard.append([done, total])

    async def called(session, name, arguments):
        try:
            answer = await session.call_tool(name, arguments, progress_callback=progress)
        except McpError as refusal:
            return {"refused": refusal.error.message}
        return {"error": answer.isError, "text": answer.content[0].text, "structured": answer.structuredContent}

    async with (
        httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=30) as http,
        streamable_http_client(url, http_client=http) as (read, write, _),
        ClientSession(read, write) as session,
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


print(json.dumps(asyncio.run(found(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))))
