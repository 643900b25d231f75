"""Servers as processes: started, waited for, measured from outside, ended.

Rule 1: ours and OpenEnv's are started and measured by the same code; a server is ready when /health says so.
Rule 2: memory is what the system says of the process, never what the process says of itself.
"""

from __future__ import annotations

import http.client
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from bench.measure import Gap
from bench.peers import ROOT, openenv_python

PATIENCE: Final = 60.0
PAUSE: Final = 0.005
TOKEN: Final = "a-secret-for-the-bench-only"


@dataclass(frozen=True, slots=True)
class Kind:
    """How a server is started: its command without the port, which comes last, and what its environment adds."""

    name: str
    command: Callable[[], Sequence[str | Path]]
    variables: Mapping[str, str]
    secret: str | None = None

    def url(self, port: int) -> str:
        """Return the address for a client, credential included."""
        user = "" if self.secret is None else f"proctor:{self.secret}@"
        return f"http://{user}127.0.0.1:{port}"


def ours(target: str, *options: str, sandbox: str = "none") -> Kind:
    """Our server with `target`, with its credential and all of its checks; `sandbox` is its tier."""
    command = [
        sys.executable,
        "-m",
        "proctor",
        "serve",
        target,
        "--sandbox",
        sandbox,
        "--max-sessions",
        "512",
        *options,
        "--port",
    ]
    return Kind("proctor", lambda: command, {"PROCTOR_CONTROL_TOKEN": TOKEN}, TOKEN)


def openenv(way: str = "sync") -> Kind:
    """OpenEnv's server with the echo; `way` is sync or async."""
    command = ("-m", "bench.peer_openenv_server")
    return Kind("openenv", lambda: [openenv_python(), *command], {"PROCTOR_BENCH_ENV": way})


def echo() -> Kind:
    """The bare `websockets` echo."""
    return Kind("websockets", lambda: [sys.executable, "-m", "bench.echo_server"], {})


@dataclass(frozen=True, slots=True)
class Server:
    """A server that is ready."""

    url: str
    port: int
    pid: int
    seconds_to_ready: float

    def resident(self) -> int:
        """Return the bytes of memory that the process has in use."""
        try:
            pages = Path(f"/proc/{self.pid}/statm").read_text("ascii").split()[1]
        except FileNotFoundError:
            raise Gap("resident memory is read from /proc, which this system lacks") from None
        return int(pages) * resource.getpagesize()


def started(stack: ExitStack, kind: Kind, port: int | None = None) -> Server:
    """Return a server that is ready and that `stack` ends; one that does not come up is a ChildProcessError."""
    port = free_port() if port is None else port
    errors = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115  # the stack closes it
    begun = time.perf_counter()
    process = subprocess.Popen(
        [*kind.command(), str(port)],
        cwd=ROOT,
        env={**os.environ, **kind.variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,
    )
    stack.callback(ended, process)
    while not healthy(port):
        if process.poll() is not None or time.perf_counter() - begun > PATIENCE:
            raise ChildProcessError(f"the server of {kind.name} does not come up: {_last_line(errors)}")
        time.sleep(PAUSE)
    return Server(kind.url(port), port, process.pid, time.perf_counter() - begun)


def free_port() -> int:
    """Return a port on loopback that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def healthy(port: int) -> bool:
    """Return whether a server on this port answers; a server without HTTP (the echo) is well if it refuses politely."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status in (http.HTTPStatus.OK, http.HTTPStatus.UPGRADE_REQUIRED)
    except OSError:
        return False
    finally:
        connection.close()


def ended(process: subprocess.Popen[bytes]) -> None:
    """End a server; one that lingers is killed."""
    process.terminate()
    try:
        process.wait(10.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10.0)


def _last_line(errors: IO[bytes]) -> str:
    errors.seek(0)
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"
