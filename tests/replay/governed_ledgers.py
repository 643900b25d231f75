"""Ledgers of governed episodes: an agent that follows the protocol, breaks it now and then, and acts at random."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proctor.contracts.tools import Tool, ToolSafety
from proctor.ledger.writer import LedgerWriter
from proctor.models.events import Event
from tests.envs.plume.catalogue import ACTIONS
from tests.server.governed.governed_sessions import PLUME, POPPER, Agent, Hall
from tests.server.live_server import PATIENCE

ROUNDS = 3


def kinds() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the plume with every action model, and Column Popper."""
    for action in ACTIONS:
        yield PLUME, {"action": action, "grid_size": [24, 18], "max_steps": 12}
    yield POPPER, {"duration_ms": 2000}


def record_governed(folder: Path, episodes: int) -> Path:
    """Put so many governed episodes on record, of every kind in turn; return the ledger's folder."""
    known = list(kinds())
    writer = LedgerWriter(folder, boot="governed", server="1", signer=None, durability="off")
    try:
        for number in range(episodes):
            target, settings = known[number % len(known)]
            for event in asyncio.run(_played(target, settings, number)):
                writer.record(event)
    finally:
        writer.close()
    return folder


async def _played(target: str, settings: dict[str, Any], number: int) -> list[Event]:
    chance = random.Random(number)
    hall = Hall(
        target, "open", seed=number, name=f"g{number}", **({"config": settings} if target == PLUME else settings)
    )
    async with asyncio.timeout(PATIENCE):
        agent = await hall.agent()
        tools = [tool for tool in hall.session.spec.card.tools if tool.safety is not ToolSafety.READ]
        for _ in range(ROUNDS):
            await _round(agent, tools, chance)
        await agent.believe(over=True)
        await hall.session.close("done")
    return list(hall.events)


async def _round(agent: Agent, tools: list[Tool], chance: random.Random) -> None:
    """Believe, decide, ask and act; one time in three something is tried that is not legal now."""
    if chance.random() < 0.34:
        await agent.use(tools[0].name, **_arguments(tools[0], chance))
    await agent.permitted(*(tool.name for tool in tools), uses=4)
    for tool in chance.choices(tools, k=3):
        await agent.use(tool.name, **_arguments(tool, chance))


def _arguments(tool: Tool, chance: random.Random) -> dict[str, Any]:
    """Return arguments that fit the tool's schema."""
    properties: dict[str, Any] = tool.input_schema.get("properties", {})
    return {name: _value(schema, chance) for name, schema in properties.items()}


def _value(schema: dict[str, Any], chance: random.Random) -> Any:
    if "enum" in schema:
        return chance.choice(schema["enum"])
    low, high = schema.get("minimum", 0), min(schema.get("maximum", 3), 3)
    return chance.randint(low, high) if schema["type"] == "integer" else chance.uniform(low, high)
