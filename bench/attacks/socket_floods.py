"""Floods of one listener, on raw sockets: each sends something without end, and the server's memory is watched.

`python -m bench.attacks.socket_floods http://127.0.0.1:8000/mcp --pid PID` runs every flood that needs no credential, and prints
by how much the resident memory of the process grew at most. With `--token` the floods of an accepted WebSocket run as well.
Memory that a flood has freed is often kept by the process, and hides what the next one takes: for a figure of one flood start a
new server and use `--only`. `--idle COUNT` opens so many connections that send nothing and asks for `/health` every half second meanwhile.

Rule: a flood ends after `seconds`, or when it has sent `MOST_BYTES`; a server that closes the connection is attacked on a new one.
"""

from __future__ import annotations

import argparse
import base64
import os
import resource
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

MOST_BYTES: Final = 2 * 2**30
SEND_SECONDS: Final = 2.0
"""How long one `send` may take; a server that reads nothing holds nothing."""
HANDSHAKE_SECONDS: Final = 60.0
"""How long a server may take to answer a handshake; it may still be reading what the last flood left."""
PIECE: Final = 64 * 1024
MASK: Final = bytes(4)
TEXT, CONTINUATION, PING = 0x1, 0x0, 0x9


@dataclass(frozen=True, slots=True)
class Listener:
    """Where to attack; `token` is a credential of the control plane, or none."""

    host: str
    port: int
    path: str = "/"
    token: str | None = None

    def head(self, line: str, *headers: str) -> bytes:
        """Return a request line and headers, without the empty line at the end."""
        lines = [line, f"Host: {self.host}:{self.port}", *headers]
        return "".join(f"{each}\r\n" for each in lines).encode("ascii")

    def post(self, *headers: str) -> bytes:
        """Return the whole head of a request with a body."""
        return self.head(f"POST {self.path} HTTP/1.1", "Content-Type: application/json", *headers) + b"\r\n"

    def handshake(self, path: str = "/ws") -> bytes:
        """Return the handshake of a WebSocket, with the credential if there is one."""
        key = base64.b64encode(os.urandom(16)).decode("ascii")
        own = [] if self.token is None else [f"Authorization: Bearer {self.token}"]
        upgrade = (
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {key}",
            "Sec-WebSocket-Version: 13",
        )
        return self.head(f"GET {path} HTTP/1.1", *upgrade, *own) + b"\r\n"


@dataclass(frozen=True, slots=True)
class Report:
    """What a flood sent, and how many connections it needed."""

    sent: int
    connections: int


Pieces = Iterator[bytes]
Flood = Callable[[Listener], Pieces]
"""Returns what is sent on one connection, the first piece first, without end; with a credential, what follows the handshake."""


# ------------------------------------------------------------------------------------------------ without a credential
def request_line(there: Listener) -> Pieces:
    """One request line."""
    yield b"GET /"
    yield from repeat(b"a" * PIECE)


def one_header(there: Listener) -> Pieces:
    """One header."""
    yield there.head("GET /health HTTP/1.1") + b"X-More: "
    yield from repeat(b"a" * PIECE)


def many_headers(there: Listener) -> Pieces:
    """Headers as short as they can be."""
    yield there.head("GET /health HTTP/1.1")
    yield from repeat(b"a:\r\n" * (PIECE // 4))


def one_trailer(there: Listener) -> Pieces:
    """One trailer after a chunked body."""
    yield there.post("Transfer-Encoding: chunked") + b"1\r\nx\r\n0\r\nX-More: "
    yield from repeat(b"a" * PIECE)


def many_trailers(there: Listener) -> Pieces:
    """Trailers after a chunked body."""
    yield there.post("Transfer-Encoding: chunked") + b"1\r\nx\r\n0\r\n"
    yield from repeat(b"a: b\r\n" * (PIECE // 6))


def chunk_extension(there: Listener) -> Pieces:
    """One extension of one chunk."""
    yield there.post("Transfer-Encoding: chunked") + b"1;"
    yield from repeat(b"a" * PIECE)


def small_chunks(there: Listener) -> Pieces:
    """Chunks of one byte."""
    yield there.post("Transfer-Encoding: chunked")
    yield from repeat(b"1\r\nx\r\n" * (PIECE // 6))


def body(there: Listener) -> Pieces:
    """One body, of a request that is refused."""
    yield there.post(f"Content-Length: {MOST_BYTES}")
    yield from repeat(b"a" * PIECE)


def body_of_open_path(there: Listener) -> Pieces:
    """One body, of a request that anybody may send."""
    yield there.head("GET /health HTTP/1.1", f"Content-Length: {MOST_BYTES}") + b"\r\n"
    yield from repeat(b"a" * PIECE)


def body_of_code(there: Listener) -> Pieces:
    """One body, where a browser trades its code."""
    yield there.head("POST /viewer/enter HTTP/1.1", f"Content-Length: {MOST_BYTES}") + b"\r\n"
    yield from repeat(b"a" * PIECE)


def pipelined(there: Listener) -> Pieces:
    """Requests whose replies are never read."""
    one = there.head("GET /health HTTP/1.1") + b"\r\n"
    yield from repeat(one * (PIECE // len(one)))


def refused_pipelined(there: Listener) -> Pieces:
    """Requests that are refused, whose replies are never read."""
    yield from repeat(b"GET / HTTP/1.1\r\n\r\n" * (PIECE // 18))


def empty_lines(there: Listener) -> Pieces:
    """Empty lines after a request."""
    yield there.head("GET /health HTTP/1.1") + b"\r\n"
    yield from repeat(b"\r\n" * (PIECE // 2))


def frames_before_judgement(there: Listener) -> Pieces:
    """A handshake without a credential, and pings right behind it."""
    yield Listener(there.host, there.port).handshake()
    yield from repeat(frame(b"", PING) * (PIECE // 6))


def message_before_judgement(there: Listener) -> Pieces:
    """A handshake without a credential, and one long message right behind it."""
    yield Listener(there.host, there.port).handshake()
    yield head(2**24) + b"a" * PIECE
    yield from repeat(b"a" * PIECE)


# -------------------------------------------------------------------------------------------------- with a credential
def empty_fragments(there: Listener) -> Pieces:
    """A message of empty fragments."""
    yield frame(b"", TEXT, final=False)
    yield from repeat(frame(b"", CONTINUATION, final=False) * (PIECE // 6))


def small_fragments(there: Listener) -> Pieces:
    """A message of fragments of one byte."""
    yield frame(b"", TEXT, final=False)
    yield from repeat(frame(b"a", CONTINUATION, final=False) * (PIECE // 7))


def unread_pings(there: Listener) -> Pieces:
    """Pings whose pongs are never read."""
    yield from repeat(frame(b"a" * 125, PING) * (PIECE // 131))


def unread_replies(there: Listener) -> Pieces:
    """Questions with long answers that are never read."""
    one = frame(b'{"type":"schema"}')
    yield from repeat(one * (PIECE // len(one)))


def compressed_messages(there: Listener) -> Pieces:
    """Frames that say that they are compressed."""
    yield from repeat(frame(b"a" * 100, TEXT, reserved=4) * (PIECE // 110))


WITHOUT_CREDENTIAL: Final[tuple[Flood, ...]] = (
    request_line, one_header, many_headers, one_trailer, many_trailers, chunk_extension, small_chunks, body, body_of_open_path,
    body_of_code, pipelined, refused_pipelined, empty_lines, frames_before_judgement, message_before_judgement,
)  # fmt: skip
WITH_CREDENTIAL: Final[tuple[Flood, ...]] = (
    empty_fragments, small_fragments, unread_pings, unread_replies, compressed_messages,
)  # fmt: skip


def head(length: int, opcode: int = TEXT, *, final: bool = True, reserved: int = 0) -> bytes:
    """Return the head of a masked frame; the mask changes nothing."""
    first = (0x80 if final else 0) | reserved << 4 | opcode
    if length < 126:
        return struct.pack("!BB", first, 0x80 | length) + MASK
    if length < 2**16:
        return struct.pack("!BBH", first, 0x80 | 126, length) + MASK
    return struct.pack("!BBQ", first, 0x80 | 127, length) + MASK


def frame(payload: bytes, opcode: int = TEXT, *, final: bool = True, reserved: int = 0) -> bytes:
    """Return a masked frame."""
    return head(len(payload), opcode, final=final, reserved=reserved) + payload


# -------------------------------------------------------------------------------------------------------------- running
def run_flood(flood: Flood, there: Listener, seconds: float, most_bytes: int = MOST_BYTES) -> Report:
    """Send a flood for so long, on one connection after the other; nothing that comes back is read."""
    end = time.monotonic() + seconds
    sent = connections = 0
    while time.monotonic() < end and sent < most_bytes:
        connections += 1
        with suppress(OSError), socket.create_connection((there.host, there.port), SEND_SECONDS) as peer:
            if flood in WITH_CREDENTIAL:
                shake_hands(there, peer)
            for piece in flood(there):
                peer.sendall(piece)
                sent += len(piece)
                if time.monotonic() > end or sent >= most_bytes:
                    break
    return Report(sent, connections)


def shake_hands(there: Listener, peer: socket.socket) -> None:
    """Open a WebSocket, and wait until it is open: what comes in the same read as the handshake is dropped by the server."""
    peer.settimeout(HANDSHAKE_SECONDS)
    peer.sendall(there.handshake())
    said = b""
    while not said.endswith(b"\r\n\r\n"):
        piece = peer.recv(1)
        if not piece:
            break
        said += piece
    if not said.startswith(b"HTTP/1.1 101"):
        raise ValueError("the WebSocket was refused: is the credential right?")
    peer.settimeout(SEND_SECONDS)


def resident_bytes(pid: int) -> int:
    """Return the resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize()


def measure_flood(flood: Flood, there: Listener, pid: int, seconds: float) -> tuple[Report, int]:
    """Return what a flood sent, and by how many bytes the memory of the process grew at most."""
    before = most = resident_bytes(pid)
    over = threading.Event()

    def watch() -> None:
        nonlocal most
        while not over.wait(0.02):
            most = max(most, resident_bytes(pid))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        report = run_flood(flood, there, seconds)
    finally:
        over.set()
        watching.join()
    return report, max(most, resident_bytes(pid)) - before


def open_idle(there: Listener, count: int, stack: ExitStack) -> list[socket.socket]:
    """Open connections that send nothing, until `stack` is closed."""
    return [stack.enter_context(_connected(there)) for _ in range(count)]


def open_slow(there: Listener, count: int, stack: ExitStack) -> list[socket.socket]:
    """Open connections that send half of a request, until `stack` is closed."""
    peers = open_idle(there, count, stack)
    for peer in peers:
        with suppress(OSError):
            peer.sendall(there.head("GET /health HTTP/1.1"))
    return peers


def ask_health(there: Listener, seconds: float = 5.0) -> float | None:
    """Return after how many seconds `/health` was answered; None if it was not."""
    begun = time.monotonic()
    with suppress(OSError), socket.create_connection((there.host, there.port), seconds) as peer:
        peer.settimeout(seconds)
        peer.sendall(there.head("GET /health HTTP/1.1", "Connection: close") + b"\r\n")
        if peer.recv(4096).startswith(b"HTTP/1.1 200"):
            return time.monotonic() - begun
    return None


def _connected(there: Listener) -> socket.socket:
    return socket.create_connection((there.host, there.port), SEND_SECONDS)


def main(argv: Sequence[str] | None = None) -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.attacks.socket_floods", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("url", help="a listener, with the path that bodies are sent to")
    parser.add_argument("--pid", type=int, required=True, help="the process whose memory is watched")
    parser.add_argument("--token", help="the control plane's credential, for the floods of a WebSocket")
    parser.add_argument("--seconds", type=float, default=8.0, help="of each flood (default 8)")
    parser.add_argument("--only", default="", metavar="NAME", help="only floods whose names start with this")
    parser.add_argument("--idle", type=int, default=0, metavar="COUNT", help="hold so many idle connections instead")
    given = parser.parse_args(argv)
    parts = urlsplit(given.url)
    there = Listener(parts.hostname or "127.0.0.1", parts.port or 80, parts.path or "/", given.token)
    if given.idle:
        return _hold_idle(there, given.idle, given.seconds)
    floods = WITHOUT_CREDENTIAL + (WITH_CREDENTIAL if given.token is not None else ())
    chosen = [flood for flood in floods if flood.__name__.startswith(given.only)]
    if not chosen:
        parser.error(f"--only: no such flood; there are {', '.join(flood.__name__ for flood in floods)}")
    for flood in chosen:
        report, grown = measure_flood(flood, there, given.pid, given.seconds)
        memory = f"{grown / 2**20:8.1f} MB more memory, {resident_bytes(given.pid) / 2**20:.0f} MB in all"
        line = f"{flood.__name__:26} {report.sent / 2**20:9.1f} MB sent, {report.connections:5} connections, {memory}\n"
        sys.stdout.write(line)
        sys.stdout.flush()
    return 0


def _hold_idle(there: Listener, count: int, seconds: float) -> int:
    with ExitStack() as stack:
        open_idle(there, count, stack)
        end = time.monotonic() + seconds
        waits: list[float | None] = []
        while time.monotonic() < end:
            waits.append(ask_health(there))
            time.sleep(0.5)
    answered = [wait for wait in waits if wait is not None]
    longest = max(answered, default=0.0)
    sys.stdout.write(f"{len(answered)} of {len(waits)} questions were answered, the slowest after {longest:.3f} s\n")
    return 0 if len(answered) == len(waits) else 1


if __name__ == "__main__":
    sys.exit(main())
