"""A desktop client on standard input and output, an agent plane on HTTP: messages are carried, not understood.

Rule 1: the token leaves in the one header that it belongs in, to the grant's own address: no proxy of the environment is
    asked, and no redirect leads elsewhere.
Rule 2: every request is answered. A plane that cannot be reached, or that refuses, is an error in the client's own protocol.
Rule 3: standard output carries messages and nothing else; standard error a line for a person, never with the token.
Rule 4: a file of a grant that others can read holds no token: it is refused, with the command that mends it. No error shows what
    is in the file.

Both eras are carried. What the modern one wants to see in HTTP headers is taken from the message itself; for the others the
revision that was agreed on is repeated.
"""

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import anyio
import httpx2
import msgspec
from mcp import types
from mcp.client.streamable_http import streamable_http_client
from mcp.server.stdio import stdio_server
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
)
from mcp.shared.message import ClientMessageMetadata, SessionMessage

from proctor.access.credentials import check_secret, read_private
from proctor.errors import ValidationError

TIMEOUT: Final = httpx2.Timeout(30.0, read=300.0)
LARGEST: Final = 64 * 2**20
"""Bytes of one message from the plane: an observation may be a picture."""
UNREACHABLE: Final = -32000
"""A code that JSON-RPC leaves to whoever carries the messages."""
MOST_BYTES: Final = 256 * 1024
"""Of a grant's file: tools are named in it, and there may be many."""


@dataclass(frozen=True, slots=True)
class SavedGrant:
    """What opens an agent plane."""

    address: str
    token: str = field(repr=False)


def read_grant(path: Path) -> SavedGrant:
    """Return what the file says, or raise a ValidationError that says what is wrong with the file."""
    try:
        text = read_private(path, follow_links=True, most=MOST_BYTES)
    except FileNotFoundError:
        raise ValidationError(f"there is no file {path}", expected="a file that an orchestrator saved") from None
    try:
        grant = msgspec.json.decode(text, type=SavedGrant)
    except msgspec.DecodeError:
        raise ValidationError(
            f"{path} does not hold a grant", expected="a JSON object with an address and a token"
        ) from None
    check_secret(grant.token, where=f"the token in {path}")
    try:
        parts = urlsplit(grant.address)
        usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0 and "@" not in parts.netloc
    except ValueError:
        usable = False
    if not usable:
        raise ValidationError(f"the address in {path} is not one of an agent plane", expected="http://HOST:PORT/mcp")
    return grant


def bridge(key: SavedGrant) -> None:
    """Carry messages until standard input ends."""
    logging.getLogger("mcp").setLevel(logging.CRITICAL)  # it writes down messages that it cannot read
    try:
        anyio.run(_run_over_stdio, key)
    except* (BrokenPipeError, KeyboardInterrupt):
        pass  # the client has gone, or somebody has had enough: both are an end like any other


async def _run_over_stdio(key: SavedGrant) -> None:
    # The streams are closed first: the writer to standard output waits for that.
    async with stdio_server() as (from_client, to_client), from_client, to_client:
        await carry_messages(key, from_client, to_client)


async def carry_messages(key: SavedGrant, from_client: Any, to_client: Any) -> None:
    """Carry messages until the client has no more."""
    headers = {"Authorization": f"Bearer {key.token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=TIMEOUT, transport=_AnsweringTransport(), trust_env=False) as http,
        streamable_http_client(key.address, http_client=http, max_sse_event_size=LARGEST) as (from_plane, to_plane),
        anyio.create_task_group() as carrying,
    ):
        agreed = _NegotiatedVersion()
        carrying.start_soon(_carry_to_client, from_plane, to_client, agreed)
        await _carry_to_plane(from_client, to_plane, to_client, agreed)
        carrying.cancel_scope.cancel()


class _NegotiatedVersion:
    """The revision that a handshake led to; None before, and in the era without handshakes."""

    version: str | None = None


async def _carry_to_plane(from_client: Any, to_plane: Any, to_client: Any, agreed: _NegotiatedVersion) -> None:
    async for item in from_client:
        if isinstance(item, Exception):
            error = types.ErrorData(code=types.PARSE_ERROR, message="this line is not a JSON-RPC message")
            await to_client.send(SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=None, error=error)))
        else:
            headers = make_headers(item.message, agreed.version)
            await to_plane.send(SessionMessage(item.message, metadata=ClientMessageMetadata(headers=headers)))


async def _carry_to_client(from_plane: Any, to_client: Any, agreed: _NegotiatedVersion) -> None:
    async for item in from_plane:
        if isinstance(item, Exception):
            print("proctor mcp: the agent plane sent something unreadable", file=sys.stderr)  # noqa: T201
        else:
            message = item.message
            # The answer to a handshake is the only message that names a revision.
            if isinstance(message, types.JSONRPCResponse) and isinstance(message.result.get("protocolVersion"), str):
                agreed.version = message.result["protocolVersion"]
            await to_client.send(SessionMessage(item.message))


def make_headers(message: types.JSONRPCMessage, agreed: str | None) -> dict[str, str]:
    """Return the headers that say in HTTP what a message says of itself."""
    version = _find_version(message)
    if version is None or not isinstance(message, types.JSONRPCRequest):
        return {} if agreed is None else {MCP_PROTOCOL_VERSION_HEADER: agreed}
    headers = {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: encode_header_value(message.method)}
    name = (message.params or {}).get(NAME_BEARING_METHODS.get(message.method, ""))
    return {**headers, MCP_NAME_HEADER: encode_header_value(name)} if isinstance(name, str) else headers


def _find_version(message: types.JSONRPCMessage) -> str | None:
    params = getattr(message, "params", None)
    meta = params.get("_meta") if isinstance(params, Mapping) else None
    version = meta.get(types.PROTOCOL_VERSION_META_KEY) if isinstance(meta, Mapping) else None
    return version if isinstance(version, str) and version.isascii() and version.isprintable() else None


class _AnsweringTransport(httpx2.AsyncHTTPTransport):
    """HTTP that answers for a server that cannot be reached: the library would give up the whole conversation."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return await super().handle_async_request(request)
        except httpx2.TransportError:
            print("proctor mcp: the agent plane cannot be reached", file=sys.stderr)  # noqa: T201
            error = {"code": UNREACHABLE, "message": "the agent plane cannot be reached"}
            return httpx2.Response(502, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)
