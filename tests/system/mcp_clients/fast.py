"""fastmcp: run as a program with its own interpreter, it prints what it found.

Arguments: the address, the token, and the calls to make, as JSON: [[name, arguments], ...].
"""

import asyncio
import json
import sys

from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport


async def found(url, token, calls):
    heard = []

    async def progress(done, total, message):
        heard.append([done, total])

    async def called(client, name, arguments):
        try:
            answer = await client.call_tool(name, arguments, raise_on_error=False, progress_handler=progress)
        except Exception as refusal:  # noqa: BLE001  # whatever this client makes of a refusal is what is asked
            return {"refused": str(refusal)}
        return {"error": answer.is_error, "text": answer.content[0].text, "structured": answer.structured_content}

    transport = StreamableHttpTransport(url, headers={"Authorization": f"Bearer {token}"})
    async with Client(transport) as client:
        tools = await client.list_tools()
        return {
            "tools": [tool.name for tool in tools],
            "calls": [await called(client, name, arguments) for name, arguments in calls],
            "progress": heard,
        }


print(json.dumps(asyncio.run(found(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))))
