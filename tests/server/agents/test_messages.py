"""Bodies that are let through, and bodies that are not."""

import json

import msgspec
import pydantic_core
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.server.agents.messages import Message, Unreadable, read_message
from tests.server.agents.stand_in import call_of

DEPTH = 16
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def read(body: object) -> Message | Unreadable:
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
    assert isinstance(read(body), Message)


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

    assert isinstance(read(nested(DEPTH - 2)), Message)
    assert read(nested(DEPTH - 1)) is Unreadable.TOO_DEEP
    assert read(nested(100_000)) is Unreadable.TOO_DEEP


def test_only_a_call_is_a_call() -> None:
    for method, is_call in {"tools/call": True, "tools/list": False, "tools/call ": False, "TOOLS/CALL": False}.items():
        message = read({"jsonrpc": "2.0", "id": 1, "method": method})

        assert isinstance(message, Message)
        assert message.is_call is is_call


def test_of_two_methods_the_one_counts_that_the_library_reads() -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}'

    message = read(body)

    assert isinstance(message, Message)
    assert message.method == "tools/call" == pydantic_core.from_json(body)["method"] == json.loads(body)["method"]


@given(st.binary(max_size=200) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_whatever_is_posted_is_read_or_refused(body: bytes) -> None:
    assert isinstance(read_message(body, DEPTH), Message | Unreadable)


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=3))
def test_arguments_that_are_let_through_read_alike_for_the_library(arguments: dict[str, object]) -> None:
    body = json.dumps(call_of("look", arguments)).encode()

    message = read_message(body, 64)

    if isinstance(message, Message):
        assert message.params == json.loads(body)["params"] == pydantic_core.from_json(body)["params"]
