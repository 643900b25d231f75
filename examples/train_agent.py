"""What a trainer does for an agent that sees nothing but tools: reset, grant, watch, and keep the trajectory with its rewards.

The agent is a script here, where a language model would be; it meets the environment over MCP, with a stock client, and
holds nothing but its grant: no seed, no reward, no way to reset.
"""

import asyncio
import json
import subprocess
import sys
import tempfile
from itertools import cycle
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from proctor.client import EnvClient, Grant, GrantWish, Transition
from proctor.envs.plume.models import PlumeAction, PlumeObservation, PlumeState

SERVED = """
target = "proctor/PlumeSearch-v0"

[[transforms]]  # the trainer's own reward, on top of the environment's: every cell nearer to the source counts
type = "potential"
key = "distance_to_source"
weight = -0.1
gamma = 1.0
"""

WAYS = {"up": "down", "right": "left", "down": "up", "left": "right"}


class PlumeClient(EnvClient[PlumeAction, PlumeObservation, PlumeState]):
    """The orchestrator's side."""


async def search(grant: Grant) -> None:
    """Climb: go on for as long as it smells stronger, else go back and turn; where no way leads up, make shorter moves."""
    async with (
        httpx2.AsyncClient(headers=grant.headers()) as http,
        Client(streamable_http_client(grant.address, http_client=http)) as agent,
    ):
        print("the agent's tools:", ", ".join(tool.name for tool in (await agent.list_tools()).tools))
        seen = await used(agent, "sniff")
        strongest, steps, dead_ends = seen["observation"], 8, 0
        for way, back in cycle(WAYS.items()):
            seen = await used(agent, "move", direction=way, steps=steps)
            while seen["observation"] > strongest and not seen["done"]:
                strongest, dead_ends = seen["observation"], 0
                seen = await used(agent, "move", direction=way, steps=steps)
            if not seen["done"]:
                seen = await used(agent, "move", direction=back, steps=steps)
            if seen["done"]:
                return
            dead_ends += 1
            if dead_ends > len(WAYS):
                steps, dead_ends = max(1, steps // 4), 0


async def used(agent: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """Return what a tool answers with; what it refuses is for people to read."""
    answer = await agent.call_tool(tool, arguments)
    found: dict[str, Any] | None = answer.structured_content
    if found is None:
        raise SystemExit(f"{tool} was refused: {answer.content}")
    return found


async def episode(client: PlumeClient, seed: int) -> list[Transition[PlumeAction, PlumeObservation]]:
    """Return all that the agent did in one episode, with what each step was worth."""
    await client.reset(seed=seed, grant=GrantWish(agent="climber"))
    if client.granted is None:
        raise SystemExit("there is no grant")
    async with asyncio.TaskGroup() as together:
        together.create_task(search(client.granted))
        return [row async for row in client.watch()]


async def train(url: str) -> None:
    """Run two episodes and show what a learner would get of them."""
    async with PlumeClient(url) as client:
        for seed in (7, 8):
            rows = await episode(client, seed)
            for row in rows[::20]:
                x, y = row.observation.agent_xy or (0, 0)
                print(
                    f"  {row.step:4} {row.tool} to ({x:3}, {y:3})  reward {row.reward:+.3f} (raw {row.raw_reward:+.1f})"
                )
            ended = await client.wait_end()
            word = "found the source" if ended.terminated else "ran out of steps"
            total = sum(row.reward or 0.0 for row in rows)
            print(
                f"seed {seed}: {ended.steps} steps, {word}, return {total:.2f} (the server's: {ended.total_reward:.2f})"
            )


def main() -> None:
    """Serve the plume search on this machine, for trainers on one port and for agents on another."""
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "serve.toml")
        config.write_text(SERVED, encoding="utf-8")
        ports = ["--port", "0", "--agent-port", "0", "--insecure", "--json"]
        command = [sys.executable, "-m", "proctor", "serve", "--config", str(config), *ports]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:  # noqa: S603  # our own command
            try:
                ready = server.stdout.readline() if server.stdout else ""
                asyncio.run(train(json.loads(ready)["url"]))
            finally:
                server.terminate()


if __name__ == "__main__":
    main()
