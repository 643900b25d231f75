"""Bodies that are let through and bodies that are not; tools and answers as MCP reads them."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import mcp_types
import msgspec
import pydantic_core
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import methods
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from proctor.access.limits import RequestLimits
from proctor.contracts.tools import Tool, ToolSafety
from proctor.server.agent_access import LARGE_ARGUMENTS, SAID_VALUE_BYTES, SMALL_ARGUMENTS, VALUE_BYTES, AgentTool
from proctor.server.agents.mcp_messages import (
    ENVELOPE_BYTES,
    ENVELOPE_VALUES,
    ERROR_KEY,
    LONGEST_NAME,
    JsonRpcMessage,
    ToolCallMessage,
    Unreadable,
    check_envelope,
    encode_result,
    encode_tool,
    make_catalogue,
    read_call,
    read_message,
)
from proctor.server.sessions.tool_results import ToolResult
from tests.server.agents.stand_in import SEEN_SCHEMA, TOOLS, a_tool, seen

DEPTH = 16
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def read(body: object) -> JsonRpcMessage | Unreadable:
    return read_message(body if isinstance(body, bytes) else msgspec.json.encode(body), DEPTH)


@pytest.mark.parametrize(
    "body",
    [
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": "a", "method": "ping", "params": {}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 1, "result": {}},
        {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "a"}},
    ],
)
def test_requests_notifications_and_responses_are_let_through(body: object) -> None:
    assert isinstance(read(body), JsonRpcMessage)


@pytest.mark.parametrize(
    "body",
    [
        [{"jsonrpc": "2.0", "id": 1, "method": "ping"}],
        {"jsonrpc": "2.0", "id": None, "method": "ping"},
        {"jsonrpc": "2.0", "id": True, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1.5, "method": "ping"},
        {"jsonrpc": "1.0", "id": 1, "method": "ping"},
        {"id": 1, "method": "ping"},
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "2.0", "result": {}},
        {"jsonrpc": "2.0", "id": 1, "result": {}, "error": {"code": 1, "message": "a"}},
        {"jsonrpc": "2.0", "id": 1, "error": {"code": 1}},
        {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []},
        {"jsonrpc": "2.0", "id": 1, "result": 3},
        "ping",
        None,
    ],
)
def test_what_is_not_one_message_is_refused(body: object) -> None:
    assert read(body) is Unreadable.NO_MESSAGE


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":Infinity}}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\\ud800"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
        b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}',
        '{"jsonrpc":"2.0","id":1,"method":"ping"}'.encode("utf-16"),
        b'{"jsonrpc":"2.0","id":1,"method":"ping"} {}',
    ],
)
def test_what_is_not_strictly_json_is_refused(body: bytes) -> None:
    assert read(body) is Unreadable.NO_JSON


def test_a_message_as_deep_as_allowed_is_let_through_and_one_deeper_is_refused() -> None:
    def nested(levels: int) -> bytes:
        # The message, its params, and then these.
        return b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":' + b"[" * levels + b"]" * levels + b"}}"

    assert isinstance(read(nested(DEPTH - 2)), JsonRpcMessage)
    assert read(nested(DEPTH - 1)) is Unreadable.TOO_DEEP
    assert read(nested(100_000)) is Unreadable.TOO_DEEP


def test_only_a_call_is_a_call() -> None:
    for method, is_call in {"tools/call": True, "tools/list": False, "tools/call ": False, "TOOLS/CALL": False}.items():
        message = read({"jsonrpc": "2.0", "id": 1, "method": method})

        assert isinstance(message, JsonRpcMessage)
        assert message.is_call is is_call


def test_of_two_methods_the_one_counts_that_the_library_reads() -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}'

    message = read(body)

    assert isinstance(message, JsonRpcMessage)
    assert message.method == "tools/call" == pydantic_core.from_json(body)["method"] == json.loads(body)["method"]


@given(st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_whatever_is_posted_is_read_or_refused(body: bytes) -> None:
    assert isinstance(read_message(body, DEPTH), JsonRpcMessage | Unreadable)


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=3), st.sampled_from(["", " " * SMALL_ARGUMENTS]))
def test_arguments_that_are_let_through_read_alike_for_every_decoder(arguments: dict[str, object], space: str) -> None:
    text = json.dumps(arguments)
    body = (
        f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"look","arguments":{text[:-1]}{space}}}}}}}'
    )

    message = read_message(body.encode(), 64)
    call = read_call(message, {}, 10**6) if isinstance(message, JsonRpcMessage) else message

    if isinstance(call, ToolCallMessage):
        assert json.loads(call.arguments) == arguments == pydantic_core.from_json(call.arguments)
        assert json.loads(call.envelope)["params"] == {"name": "look", "arguments": {}}


def call_with(arguments: bytes, most: int = 10**6, **limits: int) -> ToolCallMessage | Unreadable:
    message = read(
        b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"look","arguments":' + arguments + b"}}"
    )
    assert isinstance(message, JsonRpcMessage)
    return read_call(message, limits, most)


def test_a_call_is_taken_apart_and_the_library_gets_no_arguments() -> None:
    call = call_with(b'{ "a" : [1, 2.50] }')

    assert isinstance(call, ToolCallMessage)
    assert (call.tool, call.arguments) == ("look", b'{"a":[1,2.5]}')
    assert json.loads(call.envelope) == {
        "jsonrpc": "2.0",
        "id": 7,
        "method": "tools/call",
        "params": {"name": "look", "arguments": {}},
    }


def test_large_arguments_stay_the_bytes_that_they_were() -> None:
    sent = b'{"a": "' + b"x" * SMALL_ARGUMENTS + b'"}'

    call = call_with(sent)

    assert isinstance(call, ToolCallMessage)
    assert call.arguments == sent
    assert len(call.envelope) < 200


@pytest.mark.parametrize(("given", "left"), [(b"null", None), (b"[1]", 0), (b'"a"', 0), (b"true", 0), (b"7", 0)])
def test_arguments_that_are_no_object_are_left_to_the_library_to_refuse(given: bytes, left: object) -> None:
    call = call_with(given)

    assert isinstance(call, ToolCallMessage)
    assert json.loads(call.envelope)["params"]["arguments"] == left
    assert call.arguments == b"{}"


@pytest.mark.parametrize("params", [b"", b',"params":{}', b',"params":{"name":3}', b',"params":{"arguments":{}}'])
def test_a_call_without_a_name_is_left_to_the_library_to_refuse(params: bytes) -> None:
    message = read(b'{"jsonrpc":"2.0","id":1,"method":"tools/call"' + params + b"}")
    assert isinstance(message, JsonRpcMessage)

    call = read_call(message, {}, 100)

    assert isinstance(call, ToolCallMessage)
    assert call.tool == ""


def test_a_call_without_an_id_has_none_for_the_library() -> None:
    message = read(b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"look"}}')
    assert isinstance(message, JsonRpcMessage)

    call = read_call(message, {}, 100)

    assert isinstance(call, ToolCallMessage)
    assert "id" not in json.loads(call.envelope)


def test_arguments_are_held_to_the_limit_of_their_own_tool() -> None:
    arguments = b'{"a":"' + b"x" * 100 + b'"}'

    assert isinstance(call_with(arguments, 1, look=len(arguments)), ToolCallMessage)
    assert call_with(arguments, 10**6, look=len(arguments) - 1) is Unreadable.LARGE_ARGUMENTS
    assert call_with(arguments, len(arguments) - 1, other=10**6) is Unreadable.LARGE_ARGUMENTS


def test_a_number_beyond_all_floats_is_refused() -> None:
    assert call_with(b'{"a":1e999}') is Unreadable.NO_MESSAGE


def test_of_a_key_that_is_there_twice_the_last_counts() -> None:
    call = call_with(b'{"a":1,"a":2}')

    assert isinstance(call, ToolCallMessage)
    assert call.arguments == b'{"a":2}'


def test_what_the_library_reads_has_few_values_and_is_not_large() -> None:
    def ping(meta: bytes) -> bytes:
        return b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":' + meta + b"}}"

    assert check_envelope(ping(b'{"a":[' + b",".join([b"1"] * (ENVELOPE_VALUES // 2)) + b"]}")) is None
    assert check_envelope(ping(b'{"a":"' + b"x" * (ENVELOPE_BYTES // 2) + b'"}')) is None
    assert check_envelope(ping(b'{"a":[' + b",".join([b"[]"] * ENVELOPE_VALUES) + b"]}")) is Unreadable.MANY_VALUES
    assert check_envelope(ping(b'{"a":"' + b"x" * ENVELOPE_BYTES + b'"}')) is Unreadable.TOO_LARGE
    assert check_envelope(ping(b'{"a":1e999}')) is Unreadable.NO_MESSAGE
    assert check_envelope(ping(b'{"progressToken":"' + b"x" * LONGEST_NAME + b'"}')) is Unreadable.LONG_NAME
    assert check_envelope(ping(b'{"progressToken":"abc"}')) is None
    assert check_envelope(ping(b"3")) is None


def test_a_call_with_much_besides_its_arguments_is_refused() -> None:
    lists = b",".join([b"[]"] * ENVELOPE_VALUES)
    message = read(
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"look","_meta":{"a":[' + lists + b"]}}}"
    )
    assert isinstance(message, JsonRpcMessage)

    assert read_call(message, {}, 100) is Unreadable.MANY_VALUES


@pytest.mark.parametrize("name", ["id", "method"])
def test_a_name_that_replies_would_repeat_is_not_long(name: str) -> None:
    whole = {"jsonrpc": "2.0", "id": 1, "method": "ping"}

    assert isinstance(read({**whole, name: "x" * LONGEST_NAME}), JsonRpcMessage)
    assert read({**whole, name: "x" * (LONGEST_NAME + 1)}) is Unreadable.LONG_NAME


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
