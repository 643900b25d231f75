"""What is told of tools and calls, read with the library's own models and with what its clients check."""

from typing import Any

import jsonschema
import mcp_types
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import methods
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from proctor.access.limits import RequestLimits
from proctor.contracts.tools import Tool, ToolSafety
from proctor.server.agent_access import LARGE_ARGUMENTS, SAID_VALUE_BYTES, VALUE_BYTES, AgentTool
from proctor.server.agents.mcp_messages import ERROR_KEY, encode_result, encode_tool, make_catalogue
from proctor.server.sessions.tool_results import ToolResult
from tests.server.agents.stand_in import SEEN_SCHEMA, TOOLS, a_tool, seen

VERSIONS = (*HANDSHAKE_PROTOCOL_VERSIONS, *MODERN_PROTOCOL_VERSIONS)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_listing_is_one_that_every_revision_can_carry(version: str) -> None:
    listing = make_catalogue(TOOLS, RequestLimits()).listing

    sent = methods.serialize_server_result("tools/list", version, listing)

    read = mcp_types.ListToolsResult.model_validate(sent, by_name=False)
    assert [tool.name for tool in read.tools] == ["look", "move", "burn"]
    assert [tool.output_schema for tool in read.tools] == [SEEN_SCHEMA] * 3
    assert read.tools[0].title == "Look around"


@pytest.mark.parametrize(
    ("safety", "destructive", "hints"),
    [
        (ToolSafety.READ, False, {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True}),
        (ToolSafety.READ, True, {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True}),
        (ToolSafety.WRITE, False, {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False}),
        (ToolSafety.WRITE, True, {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False}),
        (ToolSafety.MIXED, False, {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False}),
    ],
)
def test_the_hints_say_what_a_tool_does_to_the_environment_and_that_it_does_nothing_else(
    safety: ToolSafety, destructive: bool, hints: dict[str, bool]
) -> None:
    told = encode_tool(a_tool("act", safety, destructive=destructive))

    assert told["annotations"] == {**hints, "openWorldHint": False}


def test_a_tool_without_a_title_has_none() -> None:
    told = encode_tool(a_tool("act", ToolSafety.WRITE))

    assert "title" not in told
    assert "title" not in told["annotations"]


def test_a_schema_never_asks_for_arguments_in_headers() -> None:
    inner = {"type": "string", "x-mcp-header": "Region"}
    schema: dict[str, Any] = {"type": "object", "properties": {"region": inner, "list": {"items": [inner]}}}
    tool = Tool(name="act", description="", safety=ToolSafety.WRITE, input_schema=schema)

    told = encode_tool(AgentTool(tool, SEEN_SCHEMA))

    assert told["inputSchema"] == {
        "type": "object",
        "properties": {"region": {"type": "string"}, "list": {"items": [{"type": "string"}]}},
    }


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_is_text_and_what_the_output_schema_promised(version: str) -> None:
    told = ToolResult("You stand at 3.", seen(3, place=3, note=None))

    sent = methods.serialize_server_result("tools/call", version, encode_result(told))

    read = mcp_types.CallToolResult.model_validate(sent, by_name=False)
    assert read.content == [mcp_types.TextContent(type="text", text="You stand at 3.")]
    assert read.is_error is False
    assert read.structured_content == msgspec.json.decode(told.structured)
    jsonschema.validate(read.structured_content, SEEN_SCHEMA)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_error_is_text_for_a_model_and_a_note_for_a_program_but_no_structured_content(version: str) -> None:
    problem = {"code": "ENDED", "message": "the episode is over", "incident": None}

    sent = methods.serialize_server_result(
        "tools/call", version, encode_result(ToolResult("ENDED: over.", msgspec.json.encode(problem), is_error=True))
    )

    read = mcp_types.CallToolResult.model_validate(sent, by_name=False)
    assert read.is_error is True
    assert read.structured_content is None
    assert read.meta == {ERROR_KEY: problem}


@given(st.text(), st.dictionaries(st.text(), JSON, max_size=4), st.booleans())
def test_whatever_is_told_reaches_the_client_unchanged(text: str, structured: dict[str, Any], is_error: bool) -> None:
    told = ToolResult(text, msgspec.json.encode(structured), is_error=is_error)

    for version in (HANDSHAKE_PROTOCOL_VERSIONS[-1], MODERN_PROTOCOL_VERSIONS[-1]):
        sent = methods.serialize_server_result("tools/call", version, encode_result(told))
        message = mcp_types.JSONRPCResponse(jsonrpc="2.0", id=1, result=sent)
        back = msgspec.json.decode(message.model_dump_json(by_alias=True, exclude_unset=True))["result"]

        assert back["content"] == [{"type": "text", "text": text}]
        assert (back["_meta"][ERROR_KEY] if is_error else back["structuredContent"]) == structured


def test_a_tool_takes_what_its_author_says_else_what_its_schema_needs_and_never_more_than_a_body() -> None:
    limits = RequestLimits(max_arguments_bytes=1000, max_body_bytes=50_000)

    def limit(schema: dict[str, Any], most: int | None = None) -> int:
        named = Tool(name="a", description="A.", safety=ToolSafety.READ, input_schema=schema, max_arguments_bytes=most)
        return make_catalogue([AgentTool(named, {})], limits).argument_limits["a"]

    def numbers(count: int) -> dict[str, Any]:
        part = {"type": "array", "items": {"type": "number"}, "minItems": count, "maxItems": count}
        return {"type": "object", "properties": {"action": part}, "additionalProperties": False}

    assert limit({"type": "object"}) == limit(numbers(2)) == 1000
    assert 24 * 1000 < limit(numbers(1000)) < 50_000
    assert limit(numbers(100_000)) == limit({"type": "object"}, 10**9) == 50_000
    assert limit(numbers(1000), 10) == 10


def test_a_governed_agents_tool_takes_no_more_than_a_packet() -> None:
    limits = RequestLimits()
    numbers = {"type": "array", "items": {"type": "number"}, "maxItems": 10_000}
    schema = {"type": "object", "properties": {"action": numbers}, "additionalProperties": False}
    tools = [
        Tool(name="a", description="A.", safety=ToolSafety.READ, input_schema=schema),
        Tool(name="b", description="B.", safety=ToolSafety.READ, input_schema={}, max_arguments_bytes=500_000),
    ]

    free = [AgentTool(tool, {}) for tool in tools]
    governed = [AgentTool(tool, {}, 50_000) for tool in tools]

    assert list(make_catalogue(free, limits).argument_limits.values()) == [320_070, 500_000]
    assert list(make_catalogue(governed, limits).argument_limits.values()) == [50_000, 50_000]
    assert [each.most_values(limits) for each in free] == [320_070 // VALUE_BYTES, 500_000 // VALUE_BYTES]
    assert [each.most_values(limits) for each in governed] == [10_004, LARGE_ARGUMENTS // SAID_VALUE_BYTES]
