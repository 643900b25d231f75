"""Attacks on the disk: agents that state as much as they can, and an environment that returns noise.

    python -m bench.attacks.disk_floods KIND [--seconds 10] [--bytes N] [OPTION OF `proctor serve` ...]
    python -m bench.attacks.disk_floods KIND --url ws://127.0.0.1:8000/ws [--token T] [--ledger FOLDER] [--seconds 10] [--bytes N]

The first starts a server with a ledger in a temporary folder and passes on the options that it does not know. The second attacks
a server that runs already, and must serve what the kind needs:

    beliefs   a governed agent believes as fast as it can     any environment with tools, `--governed open --agent-port 0`
    calls     an agent calls a tool with long arguments       `bench.control_env:quick`, `--agent-port 0`
    noise     an environment returns what nothing compresses  `bench.attacks.disk_floods:Noise`

Each prints one line of JSON: what was sent, by how much the ledger grew, and the code of the error that ended the flood; empty: it
went on until its time was over.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import gymnasium as gym
import httpx2
import numpy as np
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from websockets.sync.client import ClientConnection, connect

from bench.control_servers import TOKEN, ours, started
from proctor.server.agents.mcp_messages import ERROR_KEY

WAIT_SECONDS: Final = 60.0
PAUSE: Final = 0.05
"""After a call that came too soon."""
MOST_CALLS: Final = 1_000_000
SIZES: Final = {"beliefs": 60_000, "calls": 60_000, "noise": 29 * 2**20}
"""Bytes of one step or call, where nobody says how many."""
AGENTS: Final = ("--agent-port", "0")
SERVED: Final = {
    "beliefs": ("proctor/PlumeSearch-v0", *AGENTS, "--governed", "open"),
    "calls": ("bench.control_env:quick", *AGENTS),
    "noise": ("bench.attacks.disk_floods:Noise",),
}
"""What a server of our own serves, and its options."""
AGENT_CALLS: Final[dict[str, Callable[[str], tuple[str, dict[str, Any]]]]] = {
    "beliefs": lambda noise: ("believe", {"changes": {f"noise {noise[:8]}": noise}}),
    "calls": lambda noise: ("act", {"message": noise}),
}
"""The tool that an agent calls with some noise."""


class Noise(gym.Env[Any, Any]):
    """Observations that nothing makes shorter; an action says of how many bytes, 0: of `size`."""

    def __init__(self, size: int = 29 * 2**20, render_mode: str | None = None) -> None:
        self.observation_space = gym.spaces.Text(2**30, charset="0123456789abcdef")
        self.action_space = gym.spaces.Discrete(2**31 - 1)
        self.render_mode = render_mode
        self._size = size
        self._rng = np.random.default_rng(0)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin with an observation of eight bytes."""
        return self._noise(8), {}

    def step(self, action: Any) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Return noise."""
        return self._noise(int(action) or self._size), 0.0, False, False, {}

    def _noise(self, size: int) -> str:
        return self._rng.bytes(size // 2).hex()


@dataclass
class DiskFloodReport:
    """What became of a flood."""

    calls: int = 0
    refused: int = 0
    sent_bytes: int = 0
    seconds: float = 0.0
    ledger_bytes: int = 0
    """By how much the ledger's folder grew; 0 if it is not known."""
    bytes_per_second: int = 0
    """Of the ledger, or else of what was sent."""
    code: str = ""
    """Of the error that ended it."""


class FloodSession:
    """One session on a plain WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._session: dict[str, Any] = {}
        self._id = 0
        self.ask("hello", {"protocols": [1]})
        self._session = {"session": self.ask("open", {})["session"]}
        self._id = 0

    def ask(self, kind: str, data: Any, **beside: Any) -> dict[str, Any]:
        """Return the reply to a request."""
        self._id += 1
        numbered = {} if kind == "hello" else {"id": self._id}
        self._socket.send(json.dumps({"type": kind, "data": data, **numbered, **self._session, **beside}))
        reply: dict[str, Any] = json.loads(self._socket.recv(WAIT_SECONDS))
        return reply


@contextmanager
def open_session(url: str, token: str | None = None) -> Iterator[FloodSession]:
    """Connect, and open a session; `url` is that of the WebSocket."""
    headers = None if token is None else {"Authorization": f"Bearer {token}"}
    with connect(url, additional_headers=headers, compression=None, max_size=None, ping_interval=None) as socket:
        yield FloodSession(socket)


def folder_bytes(folder: Path | None) -> int:
    """Return how many bytes the files of a folder have."""
    return 0 if folder is None else sum(path.stat().st_size for path in folder.iterdir())


def flood_with_noise(session: FloodSession, seconds: float, size: int) -> DiskFloodReport:
    """Step an environment that returns `size` bytes of noise until an error comes, or the time is over."""
    report, began = DiskFloodReport(), time.monotonic()
    epoch = session.ask("reset", {"seed": 1})["epoch"]
    while time.monotonic() - began < seconds and report.calls < MOST_CALLS:
        reply = session.ask("step", {"action": size}, epoch=epoch)
        report.calls += 1
        report.sent_bytes += size
        if reply["type"] == "error":
            report.refused += 1
            report.code = reply["data"]["code"]
            break
    report.seconds = time.monotonic() - began
    return report


async def flood_as_agent(kind: str, address: str, token: str, seconds: float, size: int) -> DiskFloodReport:
    """Call a tool over and over with `size` bytes of noise until the episode is lost, or the time is over."""
    report, began, rng = DiskFloodReport(), time.monotonic(), np.random.default_rng(0)
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=WAIT_SECONDS) as http,
        Client(streamable_http_client(address, http_client=http)) as client,
    ):
        while time.monotonic() - began < seconds and report.calls < MOST_CALLS:
            report.calls += 1
            report.sent_bytes += size
            try:
                answer = await client.call_tool(*AGENT_CALLS[kind](rng.bytes(size // 2).hex()))
            except MCPError:  # too many bytes a second
                report.refused += 1
                await asyncio.sleep(PAUSE)
                continue
            problem = (answer.meta or {}).get(ERROR_KEY, {})
            report.refused += answer.is_error
            if problem.get("lost"):
                report.code = problem["code"]
                break
    report.seconds = time.monotonic() - began
    return report


def attack(
    kind: str, url: str, *, token: str | None, ledger: Path | None, seconds: float, size: int | None = None
) -> DiskFloodReport:
    """Flood a server that runs in another process; `ledger` is the folder that it writes to."""
    before, size = folder_bytes(ledger), SIZES[kind] if size is None else size
    with open_session(url, token) as session:
        if kind == "noise":
            report = flood_with_noise(session, seconds, size)
        else:
            grant = session.ask("reset", {"seed": 1, "grant": {}})["data"]["grant"]
            report = asyncio.run(flood_as_agent(kind, grant["address"], grant["token"], seconds, size))
    report.ledger_bytes = max(0, folder_bytes(ledger) - before)
    report.bytes_per_second = int((report.ledger_bytes or report.sent_bytes) / max(report.seconds, 1e-9))
    return report


def attack_own_server(kind: str, options: Sequence[str], seconds: float, size: int | None = None) -> DiskFloodReport:
    """Start a server with these options and a ledger of its own, and flood it."""
    with TemporaryDirectory(prefix="disk-flood-") as folder, ExitStack() as stack:
        target, *usual = SERVED[kind]
        server = started(stack, ours(target, *usual, "--ledger", folder, *options))
        url = f"ws://127.0.0.1:{server.port}/ws"
        return attack(kind, url, token=TOKEN, ledger=Path(folder), seconds=seconds, size=size)


def main(argv: Sequence[str] | None = None) -> int:
    """Attack as the command line says, and print what became of it."""
    parser = argparse.ArgumentParser(prog="python -m bench.attacks.disk_floods")
    parser.add_argument("kind", choices=sorted(SERVED))
    parser.add_argument("--url", help="the WebSocket of a server that runs; without it one is started")
    parser.add_argument("--token", help="the control plane's credential")
    parser.add_argument("--ledger", type=Path, help="the folder that the server writes to, to see by how much it grows")
    parser.add_argument("--seconds", type=float, default=10.0, help="(default 10)")
    parser.add_argument("--bytes", type=int, help="of one step or call")
    given, options = parser.parse_known_args(argv)
    if given.url is None:
        report = attack_own_server(given.kind, options, given.seconds, given.bytes)
    else:
        report = attack(
            given.kind, given.url, token=given.token, ledger=given.ledger, seconds=given.seconds, size=given.bytes
        )
    sys.stdout.write(json.dumps(asdict(report)) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
