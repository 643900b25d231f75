"""A WebSocket client made of bytes, so that its frames can lie.

It knows the handshake and the frame's layout, and checks nothing of what it sends.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

PATIENCE: Final = 120.0
"""Seconds after which a server that says nothing has failed."""
MOST: Final = 64 * 2**20

TEXT: Final = 0x1
BINARY: Final = 0x2
CONTINUATION: Final = 0x0
CLOSE: Final = 0x8
PING: Final = 0x9
PONG: Final = 0xA


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens, and its secret (None: it takes none)."""

    port: int
    secret: str | None
    host: str = "127.0.0.1"

    def authorization(self) -> str:
        """Return the header's line, or nothing."""
        return "" if self.secret is None else f"Authorization: Bearer {self.secret}\r\n"


def frame(payload: bytes, opcode: int = TEXT, *, final: bool = True, reserved: int = 0, masked: bool = True) -> bytes:
    """Return one frame; everything about it can be wrong."""
    return head(len(payload), opcode, final=final, reserved=reserved, masked=masked) + (
        scrambled(payload) if masked else payload
    )


def head(length: int, opcode: int = TEXT, *, final: bool = True, reserved: int = 0, masked: bool = True) -> bytes:
    """Return a frame's head that claims `length` bytes; the mask is part of it."""
    first = (0x80 if final else 0) | reserved << 4 | opcode
    mask = 0x80 if masked else 0
    if length < 126:
        size = struct.pack("!BB", first, mask | length)
    elif length < 2**16:
        size = struct.pack("!BBH", first, mask | 126, length)
    else:
        size = struct.pack("!BBQ", first, mask | 127, length)
    return size + (MASK if masked else b"")


MASK: Final = b"\x5a\x17\xc3\x08"


def scrambled(payload: bytes) -> bytes:
    """Return the payload under the mask."""
    mask = int.from_bytes((MASK * (len(payload) // 4 + 1))[: len(payload)], "big")
    return (int.from_bytes(payload, "big") ^ mask).to_bytes(len(payload), "big")


def handshake(address: Address, *, path: str = "/ws", extra: str = "") -> bytes:
    """Return a good handshake, with `extra` lines (each ending in CRLF)."""
    key = base64.b64encode(os.urandom(16)).decode("ascii")
    return (
        f"GET {path} HTTP/1.1\r\nHost: {address.host}:{address.port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n{address.authorization()}{extra}\r\n"
    ).encode("latin-1")


class Ended(Exception):
    """The server closed: `code` is that of its close frame, None if it sent none."""

    def __init__(self, code: int | None) -> None:
        super().__init__(f"the server closed with {code}")
        self.code = code


class RawSocket:
    """A connection on which anything can be sent, and on which every wait is bounded."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connected(cls, address: Address) -> RawSocket:
        """Return a TCP connection, nothing sent yet."""
        async with asyncio.timeout(PATIENCE):
            return cls(*await asyncio.open_connection(address.host, address.port, limit=MOST))

    @classmethod
    async def upgraded(cls, address: Address, extra: str = "") -> RawSocket:
        """Return a connection that shook hands."""
        raw = await cls.connected(address)
        await raw.send(handshake(address, extra=extra))
        status, headers = await raw.response_head()
        if status != 101:
            raw.reset()
            raise ConnectionError(f"the handshake was answered with {status}: {headers!r}")
        return raw

    async def send(self, what: bytes) -> None:
        """Send bytes; a server that has closed meanwhile is no error here, for reading will tell."""
        self.writer.write(what)
        try:
            async with asyncio.timeout(PATIENCE):
                await self.writer.drain()
        except ConnectionError:
            return

    async def say(self, message: object) -> None:
        """Send a value as one good text frame."""
        await self.send(frame(json.dumps(message).encode("utf-8")))

    async def ask(self, message: object) -> Any:
        """Send a value and return the reply."""
        await self.say(message)
        return await self.reply()

    async def reply(self) -> Any:
        """Return the next message as a value, or raise Ended."""
        return json.loads(await self.message())

    async def message(self) -> bytes:
        """Return the next text or binary message, or raise Ended; pings are answered."""
        while True:
            opcode, payload = await self._frame()
            if opcode == CLOSE:
                raise Ended(int.from_bytes(payload[:2], "big") if len(payload) >= 2 else None)
            if opcode == PING:
                await self.send(frame(payload, PONG))
            elif opcode != PONG:
                return payload

    async def _frame(self) -> tuple[int, bytes]:
        async with asyncio.timeout(PATIENCE):
            try:
                first, second = await self.reader.readexactly(2)
                length = second & 0x7F
                if length > 125:
                    length = int.from_bytes(await self.reader.readexactly(2 if length == 126 else 8), "big")
                return first & 0x0F, await self.reader.readexactly(length)
            except (asyncio.IncompleteReadError, ConnectionError):
                raise Ended(None) from None

    async def response_head(self) -> tuple[int, bytes]:
        """Return the status and the head of an HTTP response; status 0 is a connection closed without one."""
        async with asyncio.timeout(PATIENCE):
            try:
                found = await self.reader.readuntil(b"\r\n\r\n")
            except (asyncio.IncompleteReadError, ConnectionError):
                return 0, b""
        return int(found.split(b" ", 2)[1]), found

    async def rest(self) -> bytes:
        """Return everything until the server closes."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read(-1)
            except ConnectionError:
                return b""

    def reset(self) -> None:
        """Drop the connection with a TCP reset."""
        there: socket.socket | None = self.writer.get_extra_info("socket")
        if there is not None and there.fileno() >= 0:
            there.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    def close(self) -> None:
        """Close the TCP connection without a close frame."""
        self.writer.close()


@asynccontextmanager
async def open_socket(address: Address, extra: str = "") -> AsyncIterator[RawSocket]:
    """Give a connection that shook hands and drop it at the end."""
    raw = await RawSocket.upgraded(address, extra)
    try:
        yield raw
    finally:
        raw.reset()
