"""The messages of agents, as JSON-RPC and MCP write them: what a peer may post, what is told of the tools, and answers. Pure.

Rule 1: the MCP library reads the same bytes again, less strictly. What is let through here is read alike by both: plain JSON
    in UTF-8, no NaN, no half characters, not too deep.
Rule 2: a refusal never repeats what the peer sent.
Rule 3: the arguments of a call stay bytes; up to `SMALL_ARGUMENTS` they are decoded and written anew, each key once. The library gets
    the call without them (`ToolCallMessage.envelope`), the environment's tool reads them. All that the library does read has few
    values and short names, so that no message costs much to decode.
Rule 4: an answer with an error has no structured content. A tool's output schema describes what it answers with when all is
    well; clients that validate (the TypeScript SDK does, errors too) would refuse an error of another shape. What a program
    wants to know of an error is in `_meta`, under `ERROR_KEY`.
Rule 5: nobody but the environment is touched by a tool: `openWorldHint` is false for all of them.
Rule 6: no tool asks for an argument in a header of the request: what a schema says of that is left out, so that there is
    nothing to compare.

What is written here are the objects of the wire, not the library's models: they are made once for each grant, or on every call,
and a model would be made only to be taken apart again. A test reads all of them with the library's models.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from proctor.access.limits import KIB, RequestLimits, is_too_deep
from proctor.contracts.tools import ToolSafety
from proctor.server.agent_access import SMALL_ARGUMENTS, AgentTool
from proctor.server.sessions.tool_results import ToolResult

PARSE_ERROR, INVALID_REQUEST, INTERNAL_ERROR = -32700, -32600, -32603
BAD_REQUEST, CONTENT_TOO_LARGE = 400, 413
CALL: Final = "tools/call"
OPENING: Final = ord("{")
ARGUMENTS: Final = "arguments"
META: Final = "_meta"
ENVELOPE_BYTES: Final = 64 * KIB
"""Of a message without the arguments of a call."""
ENVELOPE_VALUES: Final = 1000
"""Lists, objects and commas in it, wherever they stand."""
LONGEST_NAME: Final = 256
"""Characters of a method or an id, and bytes of a progress token: replies and notifications repeat them."""


class Unreadable(Enum):
    """Why a body is refused: the HTTP status, the code of JSON-RPC, and a text for the peer."""

    NO_JSON = (BAD_REQUEST, PARSE_ERROR, "the body is not JSON")
    TOO_DEEP = (BAD_REQUEST, INVALID_REQUEST, "the body is nested too deep")
    NO_MESSAGE = (BAD_REQUEST, INVALID_REQUEST, "the body is not one JSON-RPC message")
    LONG_NAME = (BAD_REQUEST, INVALID_REQUEST, f"an id, a method or a progress token is longer than {LONGEST_NAME}")
    TOO_LARGE = (CONTENT_TOO_LARGE, INVALID_REQUEST, "the body is too large")
    MANY_VALUES = (CONTENT_TOO_LARGE, INVALID_REQUEST, "the message has too many values besides its arguments")
    LARGE_ARGUMENTS = (CONTENT_TOO_LARGE, INVALID_REQUEST, "the arguments are too large for this tool")


class _Problem(Struct):
    code: int
    message: str


class JsonRpcMessage(Struct):
    """One message; a request or a notification has a `method`, a response has none."""

    jsonrpc: Literal["2.0"]
    id: int | str | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: _Problem | UnsetType = UNSET

    @property
    def is_call(self) -> bool:
        """Whether a tool is to be called."""
        return self.method == CALL

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing that a message of its kind needs, and what is there has the right kind."""
        if not all(part is UNSET or memoryview(part)[0] == OPENING for part in (self.params, self.result)):
            return False
        if self.method is not UNSET:
            return self.id is not None
        return self.id is not UNSET and (self.result is UNSET) != (self.error is UNSET)


@dataclass(frozen=True, slots=True)
class ToolCallMessage:
    """A call of a tool: the message without its arguments, as it is for the library, and the arguments as they came."""

    tool: str
    envelope: bytes
    arguments: bytes


_decode: Final = msgspec.json.Decoder(JsonRpcMessage).decode
_encode: Final = msgspec.json.Encoder().encode
_members: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_whole: Final = msgspec.json.Decoder(dict[str, Any]).decode
_text: Final = msgspec.json.Decoder(str).decode


def read_message(body: bytes, most_depth: int) -> JsonRpcMessage | Unreadable:
    """Return the message in a body, whose params are still bytes, or why it is refused; never raises."""
    if is_too_deep(body, most_depth):
        return Unreadable.TOO_DEEP
    try:
        if not body.isascii():
            body.decode()  # what is only skipped is not looked at
        message = _decode(body)
    except msgspec.ValidationError:
        return Unreadable.NO_MESSAGE
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Unreadable.NO_JSON
    if not message.is_whole:
        return Unreadable.NO_MESSAGE
    names = (str(name) for name in (message.id, message.method) if name is not UNSET)
    return Unreadable.LONG_NAME if any(len(name) > LONGEST_NAME for name in names) else message


def read_call(message: JsonRpcMessage, limits: Mapping[str, int], most: int) -> ToolCallMessage | Unreadable:
    """Return a call taken apart, or why it is refused; `limits` has the bytes that the tools take, `most` is for all others."""
    members = {} if message.params is UNSET else _members(message.params)
    given = members.get(ARGUMENTS)
    raw = b"" if given is None else bytes(given)
    try:
        name = _text(members["name"])
    except (KeyError, msgspec.ValidationError):
        name = ""  # whatever is no name is left to the library, which refuses it
    if len(raw) > limits.get(name, most):
        return Unreadable.LARGE_ARGUMENTS
    if given is not None:
        members[ARGUMENTS] = Raw(_STAND_INS.get(raw[:1], b"0"))
    whole = {"jsonrpc": "2.0", "method": CALL, "params": members}
    envelope = _encode(whole if message.id is UNSET else {**whole, "id": message.id})
    problem = check_envelope(envelope)
    if problem is not None:
        return problem
    if raw[:1] != b"{":
        return ToolCallMessage(name, envelope, b"{}")
    if len(raw) > SMALL_ARGUMENTS:
        return ToolCallMessage(name, envelope, raw)  # for the view to check
    try:
        return ToolCallMessage(name, envelope, _encode(_whole(raw)))
    except msgspec.ValidationError:
        return Unreadable.NO_MESSAGE


_STAND_INS: Final = {b"{": b"{}", b"n": b"null"}
"""What the library reads in place of arguments, by their first byte; anything else it refuses, as it refuses a number."""


def check_envelope(raw: bytes) -> Unreadable | None:
    """Return why the library is not to read this message, which has no arguments; None if it is."""
    if len(raw) > ENVELOPE_BYTES:
        return Unreadable.TOO_LARGE
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") > ENVELOPE_VALUES:
        return Unreadable.MANY_VALUES
    try:
        params = _whole(raw).get("params")
    except msgspec.ValidationError:  # a number that is none
        return Unreadable.NO_MESSAGE
    meta = params.get(META) if isinstance(params, dict) else None
    token = meta.get("progressToken") if isinstance(meta, dict) else None
    return Unreadable.LONG_NAME if len(_encode(token)) > LONGEST_NAME else None


Wire: TypeAlias = dict[str, Any]
"""One JSON object, as it is written."""
ERROR_KEY: Final = "proctor/error"
HEADER_KEY: Final = "x-mcp-header"
"""With this a schema asks for an argument to be repeated in a header."""
FRESH_MS: Final = 60_000
"""How long a client may believe what it was told of the tools; they never change while a grant lives."""
COMPLETE: Final = "complete"


@dataclass(frozen=True, slots=True)
class ToolCatalogue:
    """The tools of one grant: what is told of them, their names in order, and how many bytes of arguments each takes."""

    listing: Wire
    names: tuple[str, ...]
    argument_limits: Mapping[str, int]


def make_catalogue(tools: Sequence[AgentTool], limits: RequestLimits) -> ToolCatalogue:
    """Return what is told of the tools; the server's limits bound what a tool asks for."""
    return ToolCatalogue(
        # Private: another token may have other tools.
        {
            "tools": [encode_tool(each) for each in tools],
            "resultType": COMPLETE,
            "ttlMs": FRESH_MS,
            "cacheScope": "private",
        },
        tuple(each.tool.name for each in tools),
        {each.tool.name: each.most_bytes(limits) for each in tools},
    )


def encode_tool(each: AgentTool) -> Wire:
    """Return one tool as it is listed."""
    tool = each.tool
    title = {} if tool.title is None else {"title": tool.title}
    reads = tool.safety is ToolSafety.READ
    hints = {
        "readOnlyHint": reads,
        "destructiveHint": tool.destructive and not reads,
        "idempotentHint": reads,
        "openWorldHint": False,
    }
    return {
        "name": tool.name,
        **title,
        "description": tool.description,
        "inputSchema": _without_headers(tool.input_schema),
        "outputSchema": each.output_schema,
        "annotations": {**title, **hints},
    }


def _without_headers(part: Any) -> Any:
    """Return a schema, or a part of one, that asks for no headers."""
    if isinstance(part, dict):
        return {key: _without_headers(value) for key, value in part.items() if key != HEADER_KEY}
    return [_without_headers(each) for each in part] if isinstance(part, list) else part


def encode_result(told: ToolResult) -> Wire:
    """Return what a call is answered with."""
    content = [{"type": "text", "text": told.text}]
    structured = _whole(told.structured)
    if told.is_error:
        return {"content": content, "isError": True, "resultType": COMPLETE, "_meta": {ERROR_KEY: structured}}
    return {"content": content, "structuredContent": structured, "isError": False, "resultType": COMPLETE}
