"""A server process and what can be seen of it from outside: memory, threads, files, sessions, connections."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.server.attacks.raw_socket import Address, RawSocket

ROOT: Final = Path(__file__).resolve().parents[3]
SECRET: Final = "a-secret-for-attacks-only-0123456789"
PATIENCE: Final = 120.0
GAUGES: Final = ("proctor_sessions", "proctor_connections")


@dataclass(frozen=True, slots=True)
class Vitals:
    """What a server uses at one moment."""

    resident: int
    threads: int
    files: int
    tasks: int
    sessions: float
    connections: float

    def complaints(self, before: Vitals, growth: int = 20 * 2**20) -> list[str]:
        """Return what the server uses more than before; memory may grow by `growth` bytes."""
        grown = self.resident - before.resident
        found = [f"memory grew by {grown / 2**20:.1f} MB"] if grown > growth else []
        for name in ("threads", "files", "tasks", "sessions", "connections"):
            then, now = getattr(before, name), getattr(self, name)
            found += [f"{name}: {then:g} before, {now:g} after"] if now > then else []
        return found


@dataclass(frozen=True, slots=True)
class Victim:
    """A running server."""

    address: Address
    process: subprocess.Popen[bytes]

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self.process.poll() is None

    async def vitals(self) -> Vitals:
        """Return what the server uses now."""
        proc = Path(f"/proc/{self.process.pid}")
        metrics = await self.get("/metrics")
        resident = int((proc / "statm").read_text("ascii").split()[1]) * resource.getpagesize()
        threads, files = (sum(1 for _ in (proc / kind).iterdir()) for kind in ("task", "fd"))
        tasks = int(self._answer())
        return Vitals(resident, threads, files, tasks, *(gauge(metrics, name) for name in GAUGES))

    def _answer(self) -> str:
        """Return the server's answer on its pipe, which it gives between two events."""
        question, answers = self.process.stdin, self.process.stdout
        if question is None or answers is None:
            raise ValueError("the server has no pipes")
        question.write(b"?\n")
        question.flush()
        if not select.select([answers], [], [], PATIENCE)[0]:
            raise AssertionError("the server's event loop stands still")
        return answers.readline().decode()

    async def get(self, path: str) -> str:
        """Return the body of a page that must be there."""
        raw = await RawSocket.connected(self.address)
        host = f"{self.address.host}:{self.address.port}"
        await raw.send(
            f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{self.address.authorization()}\r\n".encode()
        )
        status, found = await raw.response_head()
        body = await raw.rest()
        raw.reset()
        if status != 200:
            raise AssertionError(f"GET {path} was answered with {status}: {found!r}")
        return body.decode()

    async def settled(self, good: Callable[[Vitals], bool], seconds: float = 30.0) -> Vitals:
        """Return the vitals once they are good, or the last ones when the time is over."""
        until = time.monotonic() + seconds
        while not good(found := await self.vitals()) and time.monotonic() < until:
            await asyncio.sleep(0.1)
        return found


def gauge(metrics: str, name: str) -> float:
    """Return the sum over a metric's samples."""
    found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", metrics, re.MULTILINE)
    if not found:
        raise AssertionError(f"/metrics does not say {name}")
    return sum(map(float, found))


@contextmanager
def victim(target: str, *, secret: str | None = SECRET, **settings: object) -> Iterator[Victim]:
    """Give a server of its own on a port of its own; it is ended afterwards. `settings` are those of the server."""
    variables = {name: value for name, value in os.environ.items() if name != "PROCTOR_CONTROL_TOKEN"}
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.server.attacks.host",
            json.dumps({"target": target, "sandbox": "none", **settings}),
        ],
        cwd=ROOT,
        env=variables if secret is None else {**variables, "PROCTOR_CONTROL_TOKEN": secret},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    # Leaving the process closes its standard input, which is how it is told to stop, and waits for it.
    with process:
        try:
            yield Victim(Address(_port(process), secret), process)
        except BaseException:
            process.kill()
            raise


def _port(process: subprocess.Popen[bytes]) -> int:
    """Return the port that a server says it listens on."""
    line = b"" if process.stdout is None else process.stdout.readline()
    if not line:
        raise AssertionError("the server did not come up")
    return int(line)
