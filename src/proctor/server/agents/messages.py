"""What a peer may post: one JSON-RPC message, read strictly. Pure.

Rule 1: the MCP library reads the same bytes again, less strictly. What is let through here is read alike by both: plain JSON
    in UTF-8, no NaN, no half characters, not too deep.
Rule 2: a refusal never repeats what the peer sent.
"""

from enum import Enum
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from proctor.door.limits import too_deep

PARSE_ERROR, INVALID_REQUEST, INTERNAL_ERROR = -32700, -32600, -32603
CALL: Final = "tools/call"


class Unreadable(Enum):
    """Why a body is refused: the code of JSON-RPC, and a text for the peer."""

    NO_JSON = (PARSE_ERROR, "the body is not JSON")
    TOO_DEEP = (INVALID_REQUEST, "the body is nested too deep")
    NO_MESSAGE = (INVALID_REQUEST, "the body is not one JSON-RPC message")


class _Problem(Struct):
    code: int
    message: str


class Message(Struct):
    """One message; a request or a notification has a `method`, a response has none."""

    jsonrpc: Literal["2.0"]
    id: int | str | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: dict[str, Any] | UnsetType = UNSET
    result: dict[str, Any] | UnsetType = UNSET
    error: _Problem | UnsetType = UNSET

    @property
    def is_call(self) -> bool:
        """Whether a tool is to be called."""
        return self.method == CALL

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing that a message of its kind needs."""
        if self.method is not UNSET:
            return self.id is not None
        return self.id is not UNSET and (self.result is UNSET) != (self.error is UNSET)


_decode: Final = msgspec.json.Decoder(Message).decode


def read_message(body: bytes, most_depth: int) -> Message | Unreadable:
    """Return the message in a body, or why it is refused; never raises."""
    if too_deep(body, most_depth):
        return Unreadable.TOO_DEEP
    try:
        message = _decode(body)
    except msgspec.ValidationError:
        return Unreadable.NO_MESSAGE
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Unreadable.NO_JSON
    return message if message.is_whole else Unreadable.NO_MESSAGE
