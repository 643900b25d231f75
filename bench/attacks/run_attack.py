"""An attacker as a child: `python -m bench.attacks.run_attack NAME URL AGENT_PORT [PROCESSOR]`, which waits until it is told to begin.

It answers every `go SECONDS` with how much it did in that time: bytes sent, requests answered, connections held. The URL is the
control plane's, credential included.

Rule 1: it runs on the processor that it is told, which nobody else uses: in truth an attacker has a machine of its own, and takes no
    processor from the server. Without one it runs only when a processor has nothing else to do (SCHED_IDLE).
Rule 2: every attack is bounded in time. One that the server ends begins anew.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlsplit

from bench.attacks import disk_floods, hostile_answers, socket_floods, starving_agent
from bench.control_load import answer_rates
from proctor.client import Connection, GenericClient, Grant

NO_END: Final = 2**62
"""Bytes: a flood ends when its time is over."""
SOCKETS_TOO_MANY: Final = 1200
IDLE_AGENTS: Final = 2000
SLOW_EACH: Final = 500
SESSIONS: Final = 200
SESSIONS_SECONDS: Final = 4.0
REOPEN_SECONDS: Final = 0.5
AT_ONCE: Final = 16
EPISODE_SECONDS: Final = 2.0
"""Then a governed agent gets a new episode: what is refused all the time ends one."""
STRANGERS: Final = ("401", "403", "404")
"""What is answered to who has no grant: such a reply is nothing that an agent did."""
NOISE_BYTES: Final = 15 * 2**19
"""Nearly as much as an environment in a sandbox may answer."""


@dataclass(frozen=True, slots=True)
class Victim:
    """Where to attack: the control plane's address with its credential, and the port for agents."""

    url: str
    agent_port: int

    @property
    def control(self) -> socket_floods.Listener:
        """The control plane's listener."""
        parts = urlsplit(self.url)
        return socket_floods.Listener(parts.hostname or "", parts.port or 0, "/ws", parts.password)

    @property
    def agents(self) -> socket_floods.Listener:
        """The agents' listener; whoever attacks it has no credential."""
        return socket_floods.Listener(self.control.host, self.agent_port, "/mcp")


Attack = Callable[[Victim, float], Coroutine[Any, Any, float]]
"""Attacks for so many seconds, and returns how much was done."""


# ---------------------------------------------------------------------------------------------------------- raw sockets
def flood_agents(flood: socket_floods.Flood) -> Attack:
    """Send something without end to the agents' listener; the amount is bytes."""
    return lambda victim, seconds: _flood(flood, victim.agents, seconds)


def flood_stranger(flood: socket_floods.Flood) -> Attack:
    """Send something without end to the control plane, without a credential; the amount is bytes."""
    return lambda victim, seconds: _flood(flood, replace(victim.control, token=None), seconds)


def flood_control(flood: socket_floods.Flood) -> Attack:
    """Send something without end to the control plane, with its credential; the amount is bytes."""
    return lambda victim, seconds: _flood(flood, victim.control, seconds)


async def _flood(flood: socket_floods.Flood, there: socket_floods.Listener, seconds: float) -> float:
    report = await asyncio.to_thread(socket_floods.run_flood, flood, there, seconds, NO_END)
    return float(report.sent)


async def keep_idle(victim: Victim, seconds: float) -> float:
    """Keep more connections open than the server has descriptors; what it closes is opened anew. The amount is connections."""
    return await asyncio.to_thread(_reopen_idle, victim.control, SOCKETS_TOO_MANY, seconds)


def _reopen_idle(there: socket_floods.Listener, count: int, seconds: float) -> float:
    """Return how many connections were opened."""
    until, opened = time.monotonic() + seconds, 0
    with ExitStack() as stack:
        peers: list[socket.socket] = []
        while time.monotonic() < until:
            peers = [peer for peer in peers if is_open(peer)]
            with suppress(OSError):
                more = socket_floods.open_idle(there, count - len(peers), stack)
                opened += len(more)
                peers += more
            time.sleep(REOPEN_SECONDS)
    return float(opened)


def is_open(peer: socket.socket) -> bool:
    """Return whether the server has kept a connection; one that it has closed is closed here too."""
    peer.setblocking(False)
    try:
        kept = bool(peer.recv(1))
    except BlockingIOError:
        return True
    except ConnectionError:
        kept = False
    if not kept:
        peer.close()
    return kept


async def hold_idle_agents(victim: Victim, seconds: float) -> float:
    """Hold idle connections to the agents' listener; the amount is how many the server kept."""
    return await asyncio.to_thread(_hold, [(socket_floods.open_idle, victim.agents, IDLE_AGENTS)], seconds)


async def hold_slow_requests(victim: Victim, seconds: float) -> float:
    """Hold connections with half of a request on both ports; the amount is how many the server kept."""
    slow = [(socket_floods.open_slow, there, SLOW_EACH) for there in (victim.control, victim.agents)]
    return await asyncio.to_thread(_hold, slow, seconds)


Opening = Callable[[socket_floods.Listener, int, ExitStack], list[socket.socket]]


def _hold(loads: Sequence[tuple[Opening, socket_floods.Listener, int]], seconds: float) -> float:
    until = time.monotonic() + seconds
    with ExitStack() as stack:
        peers = [peer for load, there, count in loads for peer in load(there, count, stack)]
        time.sleep(max(0.0, until - time.monotonic()))
        kept = sum(map(is_open, peers))
    if kept < len(peers):
        raise RuntimeError(f"the server kept {kept} of {len(peers)} connections")
    return float(kept)


# ----------------------------------------------------------------------------------------------------------- agents
def send_requests(*kinds: str, episode_seconds: float = math.inf) -> Attack:
    """Be one agent with 64 connections that sends requests of these kinds, see `starving_agent`; the amount is replies."""

    async def attack(victim: Victim, seconds: float) -> float:
        until, replies = time.monotonic() + seconds, 0
        async with GenericClient(victim.url) as client:
            while (left := until - time.monotonic()) > 0.0:
                granted = await grant_of(client)
                replies += await _send(kinds, granted, min(left, episode_seconds))
        return float(replies)

    return attack


async def _send(kinds: Sequence[str], granted: Grant, seconds: float) -> int:
    """Return how many replies came to requests that a live grant has sent."""
    each = starving_agent.CONNECTIONS // len(kinds)
    floods = (starving_agent.flood(granted.address, granted.token, kind, seconds, connections=each) for kind in kinds)
    return sum(
        count for counts in await asyncio.gather(*floods) for status, count in counts.items() if status not in STRANGERS
    )


async def write_beliefs(victim: Victim, seconds: float) -> float:
    """Be a governed agent that believes as much as it may, as often as it can; the amount is calls."""
    until, calls = time.monotonic() + seconds, 0
    async with GenericClient(victim.url) as client:
        while (left := until - time.monotonic()) > 0.0:
            granted = await grant_of(client)
            there = (granted.address, granted.token)
            calls += (await disk_floods.flood_as_agent("beliefs", *there, left, disk_floods.SIZES["beliefs"])).calls
    return float(calls)


async def grant_of(client: GenericClient) -> Grant:
    """Return the grant of a new episode."""
    await client.reset(seed=0, grant=True)
    if client.granted is None:
        raise RuntimeError("there was no grant")
    return client.granted


# ----------------------------------------------------------------------------------------------------- environments
def answer_with(kind: str) -> Attack:
    """Step an environment whose answers are as `bench.attacks.hostile_answers` names them; the amount is answers."""

    async def attack(victim: Victim, seconds: float) -> float:
        return float(await hostile_answers.attack_for(victim.url, kind, seconds))

    return attack


async def store_noise(victim: Victim, seconds: float) -> float:
    """Step an environment that puts noise on record, as much as it may; the amount is steps."""
    return await asyncio.to_thread(_store_noise, victim, seconds)


def _store_noise(victim: Victim, seconds: float) -> float:
    until, steps = time.monotonic() + seconds, 0
    there = victim.control
    with disk_floods.open_session(f"ws://{there.host}:{there.port}/ws", there.token) as session:
        while (left := until - time.monotonic()) > 0.0:
            steps += disk_floods.flood_with_noise(session, left, NOISE_BYTES).calls
    return float(steps)


# --------------------------------------------------------------------------------------------------------- sessions
async def open_sessions(victim: Victim, seconds: float) -> float:
    """Open many sessions, as fast as it goes; the amount is the seconds until every one of them had been reset."""
    limit = asyncio.Semaphore(AT_ONCE)
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(Connection(victim.url))
        begun = time.monotonic()
        await asyncio.gather(*(_open_session(stack, connection, limit) for _ in range(SESSIONS)))
        return time.monotonic() - begun


async def keep_opening_sessions(victim: Victim, seconds: float) -> float:
    """Open 200 sessions in 4 seconds at an even pace, and hold them; the amount is sessions."""
    limit, until = asyncio.Semaphore(AT_ONCE), time.monotonic() + seconds
    begun = time.monotonic()
    async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
        connection = await stack.enter_async_context(Connection(victim.url))
        opened = 0
        while opened < SESSIONS and time.monotonic() < until:
            group.create_task(_open_session(stack, connection, limit))
            opened += 1
            await asyncio.sleep(max(0.0, begun + opened * SESSIONS_SECONDS / SESSIONS - time.monotonic()))
        await asyncio.sleep(max(0.0, until - time.monotonic()))
    return float(opened)


async def _open_session(stack: AsyncExitStack, connection: Connection, limit: asyncio.Semaphore) -> None:
    async with limit:
        client = await stack.enter_async_context(GenericClient(connection))
        await client.reset(seed=0)


ATTACKS: Final[dict[str, Attack]] = {
    "trailers": flood_agents(socket_floods.many_trailers),
    "chunk-extension": flood_agents(socket_floods.chunk_extension),
    "small-chunks": flood_stranger(socket_floods.small_chunks),
    "pipelined": flood_agents(socket_floods.pipelined),
    "fragments": flood_control(socket_floods.empty_fragments),
    "pings": flood_control(socket_floods.unread_pings),
    "idle-sockets": keep_idle,
    "nested-lists": send_requests("calls of 1 MiB of lists"),
    "calls": send_requests("calls that are carried out"),
    "keys": send_requests("calls of 60 KiB of keys"),
    "unknown-fields": send_requests(
        "packets of 1000 unknown fields", "packets of 2000 unknown fields", episode_seconds=EPISODE_SECONDS
    ),
    "believed-lists": send_requests(
        "beliefs of 1000 lists", "beliefs of 54 KiB of lists", episode_seconds=EPISODE_SECONDS
    ),
    "plans": send_requests("plans of 28 kB", "plans of 60 kB", "plans of 1 MiB", episode_seconds=EPISODE_SECONDS),
    "answers": answer_with("lists"),
    "errors": answer_with("errors"),
    "beliefs": write_beliefs,
    "noise": store_noise,
    "idle-agents": hold_idle_agents,
    "slow-requests": hold_slow_requests,
    "open-sessions": open_sessions,
    "opening-sessions": keep_opening_sessions,
}


def main(name: str, url: str, agent_port: str, processor: str = "") -> None:
    """Attack whenever it is told to, until the input ends."""
    if processor:
        os.sched_setaffinity(0, {int(processor)})
    else:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    victim = Victim(url, int(agent_port))
    asyncio.run(answer_rates(lambda seconds: ATTACKS[name](victim, seconds)))


if __name__ == "__main__":
    main(*sys.argv[1:])
