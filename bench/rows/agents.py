"""The rows of the agent plane: an agent's tool calls against a bare server of the MCP SDK, and against OpenEnv's.

Rule 1: ours is the whole server: the grant's token, the door's checks, the limits, the session and its environment, which makes
    a step for every call. The environment is the echo, on the event loop; its episodes do not end.
Rule 2: against the bare server both sides have the same client, the SDK's own, from the same script; one process for the client
    and one for the server.
Rule 3: OpenEnv's tools cannot be called by an MCP client; it is measured by its own client, and by its fastest way.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from bench.control_servers import Kind, ours, started
from bench.measure import Gap, Probe
from bench.peers import openenv_python
from bench.row import Better, Goal, Opener, Row, ratio_at_least
from bench.rows.control import Driver, driven, own_python

OURS: Final = ours("bench.control_env:quick", "--agent-port", "0")
HANDSHAKE: Final = "legacy"
ONE_BY_ONE: Final = "2026-07-28"
"""The revision in which every request stands for itself."""
MANY: Final = 16
AGENT: Final = Driver("mcp", "bench.agents_client", own_python)
OPENENV_CALLER: Final = Driver("openenv", "bench.peer_openenv_caller", openenv_python)
MICRO: Final = 1e6
NANO: Final = 1e-9


def bare(kind: str) -> Kind:
    """The bare server of the SDK; kinds as in `bench.agents_bare`."""
    return Kind("mcp", lambda: [sys.executable, "-m", "bench.agents_bare", kind], {})


def openenv_tools(kind: str) -> Kind:
    """OpenEnv's server with a tool; kinds as in `bench.peer_openenv_tools`."""
    return Kind("openenv", lambda: [openenv_python(), "-m", "bench.peer_openenv_tools", kind], {})


NOOP: Final = bare("noop")
ALIKE: Final = bare("alike")


def server_cpu(server: Kind, *arguments: str) -> Opener:
    """Microseconds of CPU that a call takes in the server's process."""

    def opened(stack: ExitStack) -> Probe:
        there = started(stack, server)
        client = stack.enter_context(AGENT.beside(there.url, *arguments))

        def probe(seconds: float) -> float:
            busy, begun = cpu_seconds(there.pid), time.perf_counter()
            calls = client.measure(seconds) * (time.perf_counter() - begun)
            return MICRO * (cpu_seconds(there.pid) - busy) / calls

        return probe

    return opened


def cpu_seconds(pid: int) -> float:
    """Return the seconds that the threads of a process have been at work."""
    threads = [path.read_text("ascii") for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    if not threads:
        raise Gap("times of work are read from /proc, which this system lacks")
    return NANO * sum(int(line.split()[0]) for line in threads)


def _calls(name: str, subject: Opener, anchor: Opener, anchor_name: str, goal: Goal | None, note: str) -> Row:
    return Row(name, subject, anchor, anchor_name, goal, unit="calls/s", note=note, tier="none")


def _against_bare(name: str, anchor: Kind, anchor_name: str, goal: Goal | None, note: str, *arguments: str) -> Row:
    return _calls(name, driven(OURS, AGENT, *arguments), driven(anchor, AGENT, *arguments), anchor_name, goal, note)


def _against_openenv(name: str, kind: str, way: str, goal: Goal | None, note: str) -> Row:
    anchor = driven(openenv_tools(kind), OPENENV_CALLER, "1", way)
    return _calls(name, driven(OURS, AGENT, "1", HANDSHAKE), anchor, "OpenEnv", goal, note)


ROWS: Final = (
    _against_bare(
        "agents.calls/bare", NOOP, "the bare SDK, a tool that says ok", ratio_at_least(0.85), "", "1", HANDSHAKE
    ),
    _against_bare(
        "agents.calls/bare-alike",
        ALIKE,
        "the bare SDK, a constant as long as our answer",
        None,
        "same schemas and answer",
        "1",
        HANDSHAKE,
    ),
    _against_bare(
        "agents.calls-modern/bare",
        NOOP,
        "the bare SDK, a tool that says ok",
        None,
        "each request for itself",
        "1",
        ONE_BY_ONE,
    ),
    _against_bare(
        f"agents.calls{MANY}/bare",
        NOOP,
        "the bare SDK, a tool that says ok",
        None,
        f"{MANY} agents, an episode each",
        str(MANY),
        HANDSHAKE,
    ),
    Row(
        "agents.server-cpu/bare",
        server_cpu(OURS, "1", HANDSHAKE),
        server_cpu(NOOP, "1", HANDSHAKE),
        "the bare SDK, a tool that says ok",
        unit="us/call",
        better=Better.LOWER,
        note="CPU of the server's process",
        tier="none",
    ),
    _against_openenv("agents.calls/openenv", "declared", "client", ratio_at_least(5.0), "its own client"),
    _against_openenv(
        "agents.calls/openenv-websocket", "declared", "websocket", ratio_at_least(5.0), "its fastest way, no client"
    ),
    _against_openenv(
        "agents.calls/openenv-undeclared", "undeclared", "websocket", None, "no client, no declared tools"
    ),
)
