"""The rows of the agent plane: an agent's tool calls against a bare server of the MCP SDK, and against OpenEnv's.

Rule 1: ours is the whole server: the grant's token, the access checks, the limits, the session and its environment, which makes
    a step for every call. The environment is the echo, on the event loop; its episodes do not end.
Rule 2: against the bare server both sides have the same client from the same script; one process for the client and one for the
    server. Rows that name no client have the SDK's own, which takes more time than either server; `plain` is without any.
Rule 3: an MCP client cannot call OpenEnv's tools. Each is asked by its fastest way without a client library, ours by kept HTTP
    connections, OpenEnv's by its WebSocket, and in a row of its own each by its own client.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from importlib.metadata import version
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
PLAIN: Final = Driver("proctor", "bench.agents_plain", own_python)
OPENENV_CALLER: Final = Driver("openenv", "bench.peer_openenv_caller", openenv_python)
MICRO: Final = 1e6
NANO: Final = 1e-9


def bare(kind: str) -> Kind:
    """The bare server of the SDK; kinds as in `bench.agents_bare`."""
    return Kind(f"mcp, {kind}", lambda: [sys.executable, "-m", "bench.agents_bare", kind], {})


def openenv_tools(kind: str) -> Kind:
    """OpenEnv's server with a tool; kinds as in `bench.peer_openenv_tools`."""
    return Kind("openenv", lambda: [openenv_python(), "-m", "bench.peer_openenv_tools", kind], {})


NOOP: Final = bare("noop")
ALIKE: Final = bare("alike")
SDK: Final = f"mcp {version('mcp')}, bare"
ANCHORS: Final = {
    NOOP.name: f"{SDK}, a tool that says ok",
    ALIKE.name: f"{SDK}, with our schemas and a constant as long as our answer",
}


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


def _against_bare(
    name: str, anchor: Kind, client: Driver, arguments: tuple[str, ...], note: str, goal: Goal | None
) -> Row:
    subject, other = driven(OURS, client, *arguments), driven(anchor, client, *arguments)
    return _calls(name, subject, other, ANCHORS[anchor.name], goal, note)


def _against_openenv(name: str, kind: str, agents: int, note: str, goal: Goal | None) -> Row:
    """Return a row without client libraries."""
    anchor = driven(openenv_tools(kind), OPENENV_CALLER, str(agents), "websocket")
    return _calls(name, driven(OURS, PLAIN, str(agents)), anchor, "OpenEnv", goal, note)


ROWS: Final = (
    _against_bare("agents.calls/bare", NOOP, AGENT, ("1", HANDSHAKE), "with a handshake", ratio_at_least(0.85)),
    _against_bare("agents.calls/bare-alike", ALIKE, AGENT, ("1", HANDSHAKE), "with a handshake", None),
    _against_bare("agents.calls-modern/bare", NOOP, AGENT, ("1", ONE_BY_ONE), "each request for itself", None),
    _against_bare(
        f"agents.calls{MANY}/bare", NOOP, AGENT, (str(MANY), HANDSHAKE), f"{MANY} agents, an episode each", None
    ),
    _against_bare(
        f"agents.plain{MANY}/bare", NOOP, PLAIN, (str(MANY),), f"{MANY} agents, each request for itself", None
    ),
    Row(
        "agents.server-cpu/bare",
        server_cpu(OURS, "1", HANDSHAKE),
        server_cpu(NOOP, "1", HANDSHAKE),
        ANCHORS[NOOP.name],
        unit="us/call",
        better=Better.LOWER,
        note="CPU of the server's process",
        tier="none",
    ),
    _against_openenv("agents.calls/openenv", "declared", 1, "no client libraries", ratio_at_least(5.0)),
    _against_openenv(
        f"agents.calls{MANY}/openenv", "declared", MANY, f"{MANY} agents, no client libraries", ratio_at_least(5.0)
    ),
    _calls(
        "agents.clients/openenv",
        driven(OURS, AGENT, "1", ONE_BY_ONE),
        driven(openenv_tools("declared"), OPENENV_CALLER, "1", "client"),
        "OpenEnv",
        None,
        "the SDK's client against OpenEnv's own",
    ),
    _against_openenv("agents.calls/openenv-undeclared", "undeclared", 1, "there: no tools declared or checked", None),
)
