"""Agents for tests: the stock MCP client with a grant in its hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from proctor.server.agents.mcp_messages import ERROR_KEY


@dataclass
class Answer:
    """What a tool answered with; `code` is that of a refusal."""

    text: str
    told: dict[str, Any]
    code: str | None = None


class Agent:
    """An MCP client that knows an address and a token."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def tools(self) -> list[str]:
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def use(self, tool: str, **arguments: Any) -> Answer:
        answer = await self.client.call_tool(tool, arguments)
        text = "".join(getattr(part, "text", "") for part in answer.content)
        if not answer.is_error:
            return Answer(text, answer.structured_content or {})
        told: dict[str, Any] = (answer.meta or {})[ERROR_KEY]
        return Answer(text, told, told["code"])


@asynccontextmanager
async def agent_with(address: str, token: str) -> AsyncIterator[Agent]:
    """Connect to the agent plane."""
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=300) as http,
        Client(streamable_http_client(address, http_client=http)) as client,
    ):
        yield Agent(client)


async def lets_in(address: str, token: str | None) -> bool:
    """Return whether the door of the agent plane opens to a token."""
    headers = {"Accept": "application/json, text/event-stream"}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    async with httpx2.AsyncClient(headers=headers, timeout=300) as http:
        reply = await http.post(address, json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
        return reply.status_code != 401
