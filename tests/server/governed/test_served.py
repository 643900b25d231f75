"""A governed episode over real sockets: an orchestrator with a WebSocket, and an agent with the stock MCP client."""

from __future__ import annotations

import asyncio
from typing import Any

from mcp import Client

from tests.server.live_server import PATIENCE, Session, Talk, serving
from tests.server.mcp_agents import Answer, agent_with, lets_in

SMALL = {"max_steps": 3}


async def played(granted: dict[str, Any]) -> tuple[list[str], str, list[Answer]]:
    """Return the agent's tools, what it reads first, and what its calls are answered with."""
    async with asyncio.timeout(PATIENCE), agent_with(granted["address"], granted["token"]) as agent:
        client: Client = agent.client
        tools = await agent.tools()
        answers = [
            await agent.use("move", direction="up"),
            await agent.use("believe", changes={"odor": "faint"}),
            await agent.use("decide", outcome="ACT", summary="go up"),
            await agent.use("request_token", tools=["move"], rationale="to go up"),
            await agent.use("move", direction="up", steps=3),
            await agent.use("sniff"),
            await agent.use("believe", changes={"ended": True}),
        ]
        return tools, str(client.instructions), answers


def test_an_agent_lives_through_a_governed_episode() -> None:
    with (
        serving("proctor/PlumeSearch-v0", agent_port=0, governed="standard", settings=SMALL) as there,
        Talk(there, greet=True) as talk,
    ):
        session = Session(talk)
        reset = session.ask("reset", {"seed": 1, "grant": {}})
        granted = reset["data"]["grant"]

        tools, instructions, answers = asyncio.run(played(granted))
        end = session.ask("wait_end", {"wait_seconds": 10}, epoch=reset["epoch"])["data"]
        alive = asyncio.run(lets_in(granted["address"], granted["token"]))

    assert tools == [
        "sniff",
        "move",
        "believe",
        "decide",
        "plan_verification",
        "request_token",
        "escalate",
        "submit_packet",
    ]
    assert "The loop is" in instructions
    assert [answer.code for answer in answers] == ["REFUSED", None, None, None, None, "ENDED", None]
    assert answers[0].told["way"][-1] == "move"
    assert answers[4].told["governed"]["state"] == "S6_EXECUTE"
    assert answers[-1].told["closed"]
    assert (end["over"], end["outcome"], end["state"]) == (True, "conforming", "S7_REVIEW")
    assert not alive
