"""How a governed episode is introduced to an agent: what it reads first, and the tools with their schemas. Pure."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from proctor.contracts.tools import Tool, ToolSafety
from proctor.server.governed.governor import Governor
from proctor.server.governed.replies import GOVERNED, MOST_TOLD, REPLY_SCHEMA, STANDING_SCHEMA
from proctor.server.governed.tools import governance_tools, governed_tool
from proctor.server.telling import governed_instructions, seen_schema

Offered: TypeAlias = list[tuple[Tool, dict[str, Any]]]
"""Tools, each with what it answers with."""


def governed_view(governor: Governor, tools: Sequence[Tool]) -> tuple[str, Offered]:
    """Return the instructions and all tools: those of the environment as the policy sees them, then the governance tools."""
    policy, card = governor.policy, governor.session.opening.card
    own = [governed_tool(tool, policy) for tool in tools]
    reads = [tool.name for tool in own if tool.safety is ToolSafety.READ]
    seen = governor.stream.memory.seen
    first = seen.data if seen is not None and len(seen.data) <= MOST_TOLD else None
    words = governed_instructions(card, reads, [tool.name for tool in own if tool.name not in reads], first)
    offered = [(tool, _answers(tool, seen_schema(card))) for tool in own]
    return words, [*offered, *((tool, REPLY_SCHEMA) for tool in governance_tools(policy))]


def standing_fits(tool: Tool) -> bool:
    """Return whether what a tool answers may hold where the episode stands."""
    if tool.output_schema is None:
        return True
    return tool.output_schema.get("additionalProperties", True) is not False and GOVERNED not in tool.output_schema.get(
        "properties", {}
    )


def _answers(tool: Tool, seen: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of what a tool answers, with where the episode stands if there is room for it."""
    schema = seen if tool.output_schema is None else tool.output_schema
    if not standing_fits(tool):
        return schema
    return {**schema, "properties": {**schema.get("properties", {}), GOVERNED: STANDING_SCHEMA}}
