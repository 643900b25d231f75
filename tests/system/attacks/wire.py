"""HTTP made of bytes, so that a request can be anything; all that comes back is kept."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

PATIENCE: Final = 120.0
QUIET: Final = 1.0
"""Seconds without a byte, after which a server that keeps the connection open has said all."""
MOST: Final = 64 * 2**20
Header = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply; status 0: the connection was closed without one."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body as a value: a JSON text, or the last message of an event stream."""
        if not self.headers.get("content-type", "").startswith("text/event-stream"):
            return json.loads(self.body)
        lines = [line for line in self.body.splitlines() if line.startswith(b"data:") and line[5:].strip()]
        return json.loads(lines[-1][5:])


def request(
    method: str, target: str, host: str, headers: Iterable[Header] = (), body: bytes = b"", *, keep: bool = False
) -> bytes:
    """Return a well-formed request; the connection is to be closed after it unless it is to be kept."""
    lines = [("Host", host), *headers]
    if body or method in {"POST", "PUT", "PATCH"}:
        lines.append(("Content-Length", str(len(body))))
    if not keep:
        lines.append(("Connection", "close"))
    head = "".join(f"{name}: {value}\r\n" for name, value in lines)
    return f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode("utf-8", "surrogateescape") + body


@dataclass
class Wire:
    """A way to one port of this machine."""

    port: int
    heard: bytearray = field(default_factory=bytearray)
    """Everything that ever came back."""

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        """Return a connection; whoever asked closes it."""
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE)

    def ask(
        self, method: str, target: str, headers: Iterable[Header] = (), body: bytes = b"", host: str | None = None
    ) -> Reply:
        """Return the reply to a well-formed request."""
        return parsed(self.raw(request(method, target, self.host if host is None else host, headers, body)))

    def raw(self, sent: bytes, quiet: float = PATIENCE) -> bytes:
        """Send anything; return all that comes until the connection is closed, or nothing comes any more."""
        with self.connect() as peer:
            # A server that has heard enough may close before all is sent.
            with suppress(OSError):
                peer.sendall(sent)
            return self.rest(peer, quiet)

    def one(self, peer: socket.socket) -> Reply:
        """Return the first reply on a connection that stays open."""
        found = bytearray()
        while not _is_whole(found) and (piece := peer.recv(2**16)):
            found += piece
        self.heard += found
        return parsed(bytes(found))

    def rest(self, peer: socket.socket, quiet: float = PATIENCE) -> bytes:
        """Return all that comes on a connection."""
        peer.settimeout(quiet)
        found = bytearray()
        with suppress(OSError):
            while len(found) < MOST and (piece := peer.recv(2**16)):
                found += piece
        self.heard += found
        return bytes(found)


def parsed(reply: bytes) -> Reply:
    """Return the (only, or first) reply in some bytes."""
    head, _, body = reply.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/"):
        return Reply(0, {}, reply)
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    headers = {name.lower(): value.strip() for name, _, value in pairs}
    if headers.get("transfer-encoding") == "chunked":
        body = _unchunked(body)
    return Reply(int(first.split(" ", 2)[1]), headers, body)


def _is_whole(reply: bytearray) -> bool:
    head, end, body = bytes(reply).partition(b"\r\n\r\n")
    if b"chunked" in head:
        return body.endswith(b"0\r\n\r\n")
    return bool(end) and len(body) >= int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or b"0")


def statuses(replies: bytes) -> list[int]:
    """Return the status of every reply in some bytes."""
    return [int(part.split(b" ", 1)[0]) for part in replies.split(b"HTTP/1.1 ")[1:]]


def _unchunked(body: bytes) -> bytes:
    found = bytearray()
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size.split(b";")[0] or b"0", 16)
        if length == 0:
            break
        found += body[:length]
        body = body[length + 2 :]
    return bytes(found)
