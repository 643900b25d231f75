"""The rows of the control plane: our server and client against OpenEnv's, and against a bare echo.

Rule 1: both sides of a row are one server process and one client process, with the same environment written twice.
Rule 2: our server has its credential, its checks and its limits on; nothing is switched off to be measured.
Rule 3: a row's note says where the subject's environment runs: `inline` on the event loop (`quick = True`), or in a
    `thread`, as an environment does of which a server knows nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.control_servers import Kind, echo, openenv, ours, started
from bench.measure import Probe
from bench.peers import Peer, openenv_python
from bench.row import Better, Goal, Opener, Row, ratio_at_least, ratio_below, value_at_least

QUICK: Final = ours("bench.control_env:quick")
THREADED: Final = ours("bench.control_env:threaded")
ASYNC: Final = ours("bench.control_env:asynchronous")
PLUME: Final = ours("proctor/PlumeSearch-v0")
OPENENV: Final = openenv()
OPENENV_ASYNC: Final = openenv("async")

N: Final = 1024
WARMING: Final = 16
HELD: Final = 256
A_MOMENT: Final = 0.5


@dataclass(frozen=True, slots=True)
class Driver:
    """A client's script, and the interpreter that runs it."""

    name: str
    module: str
    python: Callable[[], Path]

    def beside(self, url: str, *arguments: str) -> Peer:
        """Return the running client of the server at `url`."""
        return Peer(self.python(), self.module, self.name, url, *arguments)


def own_python() -> Path:
    """Return the interpreter that runs this."""
    return Path(sys.executable)


OUR_CLIENT: Final = Driver("proctor", "bench.control_client", own_python)
OUR_BATCH_CLIENT: Final = Driver("proctor", "bench.control_batch", own_python)
THEIR_CLIENT: Final = Driver("openenv", "bench.peer_openenv_client", openenv_python)
ECHO_CLIENT: Final = Driver("websockets", "bench.echo_client", own_python)


def driven(server: Kind, client: Driver, *arguments: str) -> Opener:
    """Steps a second of all sessions together, as one client's process sees them."""

    def opened(stack: ExitStack) -> Probe:
        there = started(stack, server)
        return stack.enter_context(client.beside(there.url, *arguments)).measure

    return opened


def ready(server: Kind) -> Opener:
    """Seconds from the start of the process to its first good answer on /health."""

    def probe(_seconds: float) -> float:
        with ExitStack() as stack:
            return started(stack, server).seconds_to_ready

    return lambda _stack: probe


def idle_memory(server: Kind) -> Opener:
    """Resident bytes of a server that is ready and has no session."""

    def probe(_seconds: float) -> float:
        with ExitStack() as stack:
            return float(started(stack, server).resident())

    return lambda _stack: probe


def session_memory(server: Kind, client: Driver) -> Opener:
    """Resident bytes that each of many open and stepped sessions adds; a smaller lot loads what all of them share.

    Every session has a connection of its own. The client matters: OpenEnv's asks for compression, for which a server
    that agrees keeps buffers with every connection.
    """

    def probe(_seconds: float) -> float:
        with ExitStack() as stack:
            there = started(stack, server)
            stack.enter_context(client.beside(there.url, str(WARMING))).measure(A_MOMENT)
            before = there.resident()
            stack.enter_context(client.beside(there.url, str(HELD))).measure(A_MOMENT)
            return (there.resident() - before) / HELD

    return lambda _stack: probe


def _rate(name: str, subject: Opener, anchor: Opener, anchor_name: str, goal: Goal | None, place: str) -> Row:
    return Row(name, subject, anchor, anchor_name, goal, note=place, tier="none")


def _cost(name: str, subject: Opener, anchor: Opener, unit: str, goal: Goal | None, note: str = "") -> Row:
    """Return a row that is better the lower it is."""
    return Row(name, subject, anchor, "OpenEnv", goal, unit=unit, better=Better.LOWER, note=note, tier="none")


def _against_openenv(name: str, bound: float, sessions: int = 1) -> tuple[Row, Row]:
    """Return the rows of one load, inline and in threads; OpenEnv has the same environment, written synchronously.

    Each client drives its sessions as its own docs say: ours all on one connection, OpenEnv's one on each.
    """
    anchor = driven(OPENENV, THEIR_CLIENT, str(sessions))
    way = (str(sessions), "shared" if sessions > 1 else "async")
    goal = ratio_at_least(bound)
    note = ", one connection" if sessions > 1 else ""
    return (
        _rate(f"{name}/openenv", driven(QUICK, OUR_CLIENT, *way), anchor, "OpenEnv", goal, f"inline{note}"),
        _rate(f"{name}-thread/openenv", driven(THREADED, OUR_CLIENT, *way), anchor, "OpenEnv", goal, f"thread{note}"),
    )


def _sockets(sessions: int) -> Row:
    """Return the row of many sessions with a connection each, on both sides."""
    return _rate(
        f"control.sockets{sessions}/openenv",
        driven(QUICK, OUR_CLIENT, str(sessions)),
        driven(OPENENV, THEIR_CLIENT, str(sessions)),
        "OpenEnv",
        None,
        "inline, a connection each",
    )


ROWS: Final = (
    _rate(
        "control.sequential/echo",
        driven(QUICK, OUR_CLIENT),
        driven(echo(), ECHO_CLIENT),
        "a bare websockets echo",
        ratio_at_least(0.8),
        "inline",
    ),
    *_against_openenv("control.sequential", 2.5),
    _rate(
        "control.sequential-async/openenv-async",
        driven(ASYNC, OUR_CLIENT),
        driven(OPENENV_ASYNC, THEIR_CLIENT),
        "OpenEnv, asynchronous",
        ratio_at_least(2.0),
        "inline, async",
    ),
    *_against_openenv("control.sessions64", 6.0, 64),
    *_against_openenv("control.sessions256", 3.0, 256),
    _sockets(64),
    _sockets(256),
    _rate(
        "control.sessions64-async/openenv-async",
        driven(ASYNC, OUR_CLIENT, "64"),
        driven(OPENENV_ASYNC, THEIR_CLIENT, "64"),
        "OpenEnv, asynchronous",
        None,
        "inline, async",
    ),
    _rate(
        "control.blocking/openenv",
        driven(QUICK, OUR_CLIENT, "1", "sync"),
        driven(OPENENV, THEIR_CLIENT, "1", "sync"),
        "OpenEnv",
        None,
        "inline, synchronous clients",
    ),
    _rate(
        "control.server/openenv",
        driven(QUICK, THEIR_CLIENT),
        driven(OPENENV, THEIR_CLIENT),
        "OpenEnv",
        None,
        "inline, OpenEnv's client on both",
    ),
    _rate(
        "control.server64/openenv",
        driven(QUICK, THEIR_CLIENT, "64"),
        driven(OPENENV, THEIR_CLIENT, "64"),
        "OpenEnv",
        None,
        "inline, OpenEnv's client on both",
    ),
    Row(
        "control.batch1024/plain",
        driven(PLUME, OUR_BATCH_CLIENT, str(N), "packed"),
        driven(PLUME, OUR_BATCH_CLIENT, str(N), "plain"),
        "the same as plain JSON",
        value_at_least(1_000_000),
        unit="env steps/s",
        note=f"N={N}, inline",
        tier="none",
    ),
    _cost("control.ready/openenv", ready(QUICK), ready(OPENENV), "s", ratio_below(1 / 3)),
    _cost("control.idle-memory/openenv", idle_memory(QUICK), idle_memory(OPENENV), "bytes", ratio_below(1 / 2)),
    _cost(
        "control.session-memory/openenv",
        session_memory(QUICK, OUR_CLIENT),
        session_memory(OPENENV, THEIR_CLIENT),
        "bytes/session",
        ratio_below(1 / 4),
        f"{HELD} sessions, each with its own client",
    ),
    _cost(
        "control.session-memory-thread/openenv",
        session_memory(THREADED, OUR_CLIENT),
        session_memory(OPENENV, THEIR_CLIENT),
        "bytes/session",
        None,
        f"{HELD} sessions, thread",
    ),
    _cost(
        "control.session-memory-alike/openenv",
        session_memory(QUICK, OUR_CLIENT),
        session_memory(OPENENV, OUR_CLIENT),
        "bytes/session",
        None,
        f"{HELD} sessions, our client on both",
    ),
)
