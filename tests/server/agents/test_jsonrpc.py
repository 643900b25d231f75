"""Bodies that are let through, and bodies that are not."""

import json

import msgspec
import pydantic_core
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.server.agent_access import SMALL_ARGUMENTS
from proctor.server.agents.mcp_messages import (
    ENVELOPE_BYTES,
    ENVELOPE_VALUES,
    LONGEST_NAME,
    JsonRpcMessage,
    ToolCallMessage,
    Unreadable,
    check_envelope,
    read_call,
    read_message,
)

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
