"""One HTTP request and its answer, with nothing but the standard library.

Rule 1: a connection serves one request; nothing is kept open, nothing is sent twice, no redirect and no proxy is followed: a
    credential goes where the user sent it.
Rule 2: every wait for the server is bounded, and so is the size of what is read.
Rule 3: RequestTimeout says that nothing has changed, so only a request that changes nothing raises it. Where it is not known
    whether the server did what it was asked, the error says so.
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import urlsplit

from proctor.client.address import PATH, Address
from proctor.errors import ConnectionFailed, RequestTimeout

MOST_BYTES: Final = 64 * 2**20
"""The largest answer that is read."""
JSON: Final = "application/json"
GET: Final = "GET"
UNKNOWN: Final = "whether it did what it was asked is not known"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered."""

    status: int
    body: bytes


class _UnixConnection(HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, *, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def exchanged(
    address: Address, method: str, path: str, body: bytes | None = None, *, connect_seconds: float, seconds: float
) -> Answer:
    """Return the answer to a request for `path` on the server at `address`.

    Raises ConnectionFailed if there is no connection or it breaks, and RequestTimeout if no answer to a GET comes in time.
    """
    connection = _connection(address, connect_seconds)
    try:
        _connect(connection, address)
        connection.sock.settimeout(seconds)
        return _answer(connection, method, _prefix(address) + path, body, address.headers)
    except TimeoutError:
        if method == GET:
            raise RequestTimeout(f"no answer from {address}", expected=f"one within {seconds:g} seconds") from None
        raise ConnectionFailed(f"no answer from {address} within {seconds:g} seconds: {UNKNOWN}") from None
    except (OSError, HTTPException) as problem:
        if isinstance(problem, ConnectionFailed):
            raise
        unknown = "" if method == GET else f"; {UNKNOWN}"
        raise ConnectionFailed(f"the connection to {address} broke: {_reason(problem)}{unknown}") from None
    finally:
        connection.close()


def _answer(
    connection: HTTPConnection, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
) -> Answer:
    kind = {} if body is None else {"Content-Type": JSON}
    connection.request(method, path, body, {**headers, **kind, "Accept": JSON, "Connection": "close"})
    with connection.getresponse() as response:
        content = response.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise HTTPException(f"it is larger than {MOST_BYTES // 2**20} MiB")
        return Answer(response.status, content)


def _connection(address: Address, seconds: float) -> HTTPConnection:
    if address.socket_path is not None:
        return _UnixConnection(address.socket_path, timeout=seconds)
    where = urlsplit(address.uri)
    kind = HTTPSConnection if address.secure else HTTPConnection
    return kind(where.hostname or "", where.port, timeout=seconds)


def _connect(connection: HTTPConnection, address: Address) -> None:
    try:
        connection.connect()
    except (OSError, HTTPException) as problem:
        raise ConnectionFailed(f"no connection to {address}: {_reason(problem)}") from None


def _prefix(address: Address) -> str:
    """Return what stands before every path, where a server is not at the root of its address."""
    return urlsplit(address.uri).path.removesuffix(PATH)


def _reason(problem: Exception) -> str:
    return str(problem) or type(problem).__name__
