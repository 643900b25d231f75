"""One WebSocket of a test, and the replies that must still come on it."""

from __future__ import annotations

import json
import socket
import struct
from dataclasses import dataclass
from typing import Any

from websockets.exceptions import ConnectionClosed

from tests.server.control.connection_model import GONE, Ask
from tests.server.live_server import PATIENCE, Served


@dataclass(eq=False)
class Owed:
    """A reply that must come: one of `expected`; `in_order` if none of its session may overtake it."""

    session: str | None
    expected: tuple[dict[str, Any], ...]
    ask: Ask | None = None
    in_order: bool = False

    def fits(self, message: dict[str, Any]) -> bool:
        return any(matches(each, message) for each in self.expected)


def matches(expected: dict[str, Any], message: dict[str, Any]) -> bool:
    """Return whether a message is the expected one, to the last field.

    A session that is gone has no epoch to tell: it may be there or not.
    """
    if expected["data"] is GONE:
        expected, message = ({k: v for k, v in each.items() if k != "epoch"} for each in (expected, message))
    if set(expected) != set(message):
        return False
    # In this order: a value that the server chooses is learned only from a message that answers this very request.
    keys = sorted(expected, key="data".__eq__)
    return all(expected[key] == message[key] for key in keys)


class Line:
    """One connection; `greeted` if it said hello."""

    def __init__(self, served: Served, *, greeted: bool = True) -> None:
        self.socket = served.connect(close_timeout=PATIENCE).__enter__()
        self.greeted = greeted
        self.owed: list[Owed] = []
        self._requests = 0
        if greeted:
            self.welcome = self._asked("hello", {"protocols": [1]})

    def send(self, message: dict[str, Any]) -> None:
        self.socket.send(json.dumps(message))

    def hear(self) -> str:
        text = self.socket.recv(PATIENCE)
        assert isinstance(text, str)
        return text

    def request(self, kind: str, data: Any) -> int:
        """Send a request that names no session; return its id."""
        self._requests += 1
        self.send({"type": kind, "data": data, "id": self._requests})
        return self._requests

    def _asked(self, kind: str, data: Any) -> dict[str, Any]:
        self.request(kind, data)
        message: dict[str, Any] = json.loads(self.hear())
        return message

    def closed_with(self) -> tuple[int | None, list[str]]:
        """Return the code of the server's close frame, and what came before it."""
        texts = []
        try:
            while True:
                texts.append(self.hear())
        except ConnectionClosed as end:
            self.socket.close()
            return (None if end.rcvd is None else end.rcvd.code), texts

    def close(self) -> None:
        """Say goodbye."""
        self.socket.close()

    def abort(self) -> None:
        """Drop the connection without a word: the server sees a TCP reset."""
        self.socket.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close_socket()
