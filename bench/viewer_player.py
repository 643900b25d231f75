"""A player of one long search that somebody watches, as a child: `python -m bench.viewer_player URL RATE`.

It goes round and round, so that the episode never ends, and steps so often in a second, or as often as it can. It sends a few
steps at once and speaks to the socket itself: what is watched is a fast run, not the client.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from itertools import count
from typing import Any, Final
from urllib.parse import urlsplit

from websockets.sync.client import ClientConnection, connect

from bench.control_load import answer_rates_of
from bench.viewer_files import ROUND, SIDE

CHUNK: Final = 10
START: Final = [20, 20]


def begun(socket: ClientConnection) -> Callable[[int], str]:
    """Open a session and reset it; return what makes the message of a step by its number."""
    _asked(socket, {"type": "hello", "data": {"protocols": [1]}})
    session = _asked(socket, {"type": "open", "id": 1, "data": {}})["session"]
    options = {"seed": 1, "options": {"start": START}}
    epoch = _asked(socket, {"type": "reset", "id": 1, "session": session, "data": options})["epoch"]

    def step(number: int) -> str:
        action = {"action": ROUND[number // SIDE % 4]}
        return json.dumps({"type": "step", "id": number + 1, "session": session, "epoch": epoch, "data": action})

    return step


def _asked(socket: ClientConnection, message: dict[str, Any]) -> dict[str, Any]:
    socket.send(json.dumps(message))
    return _checked(socket.recv())


def _checked(reply: str | bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(reply)
    if found["type"] == "error":
        raise RuntimeError(f"a request was refused: {found['data']}")
    return found


def pacing(socket: ClientConnection, step: Callable[[int], str], rate: float) -> Callable[[], int]:
    """Return a chunk of steps that begins when it is due; whoever is late does not wait."""
    numbers = count(1)
    due = 0.0

    def chunk() -> int:
        nonlocal due
        now = time.perf_counter()
        time.sleep(max(0.0, due - now))
        for _ in range(CHUNK):
            socket.send(step(next(numbers)))
        replies = [socket.recv() for _ in range(CHUNK)]
        _checked(replies[-1])
        # A pause between two measurements is not caught up with.
        due = max(now, due) + CHUNK / rate
        return CHUNK

    return chunk


def main(url: str, rate: str) -> None:
    """Answer every `go SECONDS` with the steps a second."""
    place = urlsplit(url)
    headers = {"Authorization": f"Bearer {place.password}"}
    address = f"ws://{place.hostname}:{place.port}/ws"
    with connect(address, additional_headers=headers, compression=None) as socket:
        answer_rates_of(pacing(socket, begun(socket), float(rate)))


if __name__ == "__main__":
    main(*sys.argv[1:])
