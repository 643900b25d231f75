"""One agent that tries to take the server from everybody else, and an orchestrator that measures whether it does.

`python -m bench.attacks.starving_agent [KIND ...]` starts a server, measures a quiet orchestrator's steps, then the same steps
during each kind of attack, and prints a table; attacks of governed agents have a server of their own. `--url URL` measures a server that runs already (its credential stands in the
URL, its agent plane must listen; `--pid` names its process, for the memory).

Rule 1: the attackers run in a process of their own at the lowest priority: in truth they are on another machine.
Rule 2: an attacker keeps `CONNECTIONS` connections busy with the same request; it opens anew what the server closes.
Rule 3: every attack is bounded in time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from bench.control_client import ACTION, EchoClient
from bench.control_servers import Server, free_port, ours, started
from proctor.client import Connection

CONNECTIONS: Final = 64
SECONDS: Final = 6.0
PAUSE: Final = 0.001
"""Between two steps of the orchestrator: without it, a long stall would be one latency among many short ones."""
LOWEST_PRIORITY: Final = 19
MIB: Final = 2**20
REVISION: Final = "2026-07-28"
HANDSHAKE: Final = "2025-06-18"
ABOUT: Final = "io.modelcontextprotocol"
META: Final = {
    f"{ABOUT}/protocolVersion": REVISION,
    f"{ABOUT}/clientInfo": {"name": "attack", "version": "1"},
    f"{ABOUT}/clientCapabilities": {},
}
REPLY_SECONDS: Final = 30.0


def nested(size: int) -> str:
    """Return a JSON list of empty lists, about `size` bytes: each byte of it costs a decoder the most memory."""
    return f"[{','.join(['[]'] * (size // 3))}]"


def numbers(size: int) -> str:
    """Return a JSON list of numbers, about `size` bytes."""
    return f"[{','.join(['1'] * (size // 2))}]"


def keys(size: int) -> str:
    """Return members of a JSON object with keys that are all different, about `size` bytes."""
    return ",".join(f'"{number:04x}":0' for number in range(size // 9))


def texts(count: int, length: int) -> str:
    """Return a JSON list of texts that are all different."""
    return json.dumps([f"{number:04x}".ljust(length, "x") for number in range(count)], separators=(",", ":"))


def _modern(method: str, params: str, meta: str | None = None) -> tuple[str, str, str]:
    """Return revision, method and body of a request that stands for itself; `params` are its members without `_meta`."""
    members = f"{params}," if params else ""
    meta = json.dumps(META) if meta is None else meta
    body = f'{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{{{members}"_meta":{meta}}}}}'
    return REVISION, method, body


def _call(arguments: str, tool: str = "act") -> tuple[str, str, str]:
    return _modern("tools/call", f'"name":"{tool}","arguments":{arguments}')


def _packet_of(count: int) -> str:
    """Return the arguments that submit a packet with so many fields that no packet has, all like one that it has."""
    header = '{"packet_type":"BeliefUpdatePacket","layer_source":3}'
    payload = ",".join(f'"belief_changez_{number:x}":0' for number in range(count))
    return f'{{"packet":{{"header":{header},"mcp":{{}},"payload":{{{payload}}}}}}}'


def _handshake(capabilities: str) -> tuple[str, str, str]:
    about = f'"protocolVersion":"{HANDSHAKE}","clientInfo":{{"name":"attack","version":"1"}}'
    params = f'{{{about},"capabilities":{{"experimental":{{"x":{{"y":{capabilities}}}}}}}}}'
    return HANDSHAKE, "initialize", f'{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{params}}}'


def _notification(params: str) -> tuple[str, str, str]:
    return REVISION, "notifications/x", f'{{"jsonrpc":"2.0","method":"notifications/x","params":{{"a":{params}}}}}'


def _meta_with(value: str) -> str:
    return f'{json.dumps(META)[:-1]},"a":{value}}}'


LIMIT: Final = 60 * 1024
"""Under the limit of a body, with what is around it."""
KINDS: Final[dict[str, Callable[[], tuple[str, str, str]]]] = {
    "calls of 1 MiB of lists": lambda: _call(f'{{"message":{nested(MIB - 1024)}}}'),
    "calls of 60 KiB of lists": lambda: _call(f'{{"message":{nested(LIMIT)}}}'),
    "calls of 60 KiB of numbers": lambda: _call(f'{{"message":{numbers(LIMIT)}}}'),
    "calls of 60 KiB of keys": lambda: _call(f'{{"message":"x",{keys(LIMIT)}}}'),
    "calls that are carried out": lambda: _call('{"message":"hello"}'),
    "tools/list": lambda: _modern("tools/list", ""),
    "tools/list with 60 KiB of _meta": lambda: _modern("tools/list", "", _meta_with(nested(LIMIT))),
    "tools/list with 15 KiB of _meta": lambda: _modern("tools/list", "", _meta_with(nested(15 * 1024))),
    "handshakes": lambda: _handshake("1"),
    "handshakes of 60 KiB": lambda: _handshake(nested(LIMIT)),
    "notifications of 60 KiB": lambda: _notification(nested(LIMIT)),
    "responses of 60 KiB": lambda: (HANDSHAKE, "", f'{{"jsonrpc":"2.0","id":1,"result":{{"a":{nested(LIMIT)}}}}}'),
    "batches of 60 KiB": lambda: (HANDSHAKE, "", nested(LIMIT)),
    "bodies of 16 MiB": lambda: _call(f'{{"message":{nested(16 * MIB)}}}'),
}
GOVERNED: Final[dict[str, Callable[[], tuple[str, str, str]]]] = {
    "packets of 1000 unknown fields": lambda: _call(_packet_of(1000), "submit_packet"),
    "packets of 2000 unknown fields": lambda: _call(_packet_of(2000), "submit_packet"),
    "beliefs of 1000 lists": lambda: _call(f'{{"changes":{{"a":{nested(3000)}}}}}', "believe"),
    "beliefs of 54 KiB of lists": lambda: _call(f'{{"changes":{{"a":{nested(54 * 1024)}}}}}', "believe"),
    "plans of 28 kB": lambda: _call(f'{{"targets":{texts(7, 4000)}}}', "plan_verification"),
    "plans of 60 kB": lambda: _call(f'{{"targets":{texts(15, 4000)}}}', "plan_verification"),
    "plans of 1 MiB": lambda: _call(f'{{"targets":{texts(100_000, 7)}}}', "plan_verification"),
}
"""The same of an agent in a governed episode."""
ALL_KINDS: Final = {**KINDS, **GOVERNED}


def request_of(address: str, token: str, kind: str) -> bytes:
    """Return one request of an attack as it goes over the wire."""
    revision, method, body = ALL_KINDS[kind]()
    url = urlsplit(address)
    lines = [
        f"POST {url.path} HTTP/1.1",
        f"Host: {url.netloc}",
        f"Authorization: Bearer {token}",
        "Accept: application/json, text/event-stream",
        "Content-Type: application/json",
        f"Mcp-Protocol-Version: {revision}",
        f"Content-Length: {len(body)}",
    ]
    lines += [f"Mcp-Method: {method}"] if revision == REVISION else []
    named = re.search(r'"name":"(\w+)"', body)
    lines += [f"Mcp-Name: {named[1]}"] if method == "tools/call" and named else []
    return "\r\n".join((*lines, "", body)).encode()


async def flood(
    address: str, token: str, kind: str, seconds: float, *, connections: int = CONNECTIONS
) -> dict[str, int]:
    """Attack for some seconds; return how many replies of each status came."""
    sent, counts = request_of(address, token, kind), dict[str, int]()
    url = urlsplit(address)
    until = time.monotonic() + seconds

    async def attack() -> None:
        while time.monotonic() < until:
            # Whatever the server does with a connection, an attacker comes back.
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
                await _keep_asking(url.hostname or "", url.port or 0, sent, until, counts)
            await asyncio.sleep(0.01)

    await asyncio.gather(*(attack() for _ in range(connections)))
    return counts


async def _keep_asking(host: str, port: int, sent: bytes, until: float, counts: dict[str, int]) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        while time.monotonic() < until:
            writer.write(sent)
            async with asyncio.timeout(REPLY_SECONDS):
                status = await _reply(reader)
            counts[status] = counts.get(status, 0) + 1
            if writer.transport.get_write_buffer_size():
                return  # refused before it was read
    finally:
        writer.transport.abort()


async def _reply(reader: asyncio.StreamReader) -> str:
    """Return the status of a reply that is read to its end."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
    if "content-length" in fields:
        await reader.readexactly(int(fields["content-length"]))
    elif "transfer-encoding" in fields:
        while (await reader.readline()) != b"0\r\n":
            pass
        await reader.readline()
    return head.split(" ", 2)[1]


@dataclass(frozen=True, slots=True)
class Seen:
    """What an orchestrator saw: milliseconds of its steps, and the server's memory at its highest."""

    steps: int
    p50: float
    p99: float
    longest: float
    peak_bytes: int


def summarize(latencies: Sequence[float], peak: int) -> Seen:
    """Return the figures of some latencies in seconds."""
    places = statistics.quantiles(latencies, n=100)
    return Seen(len(latencies), places[49] * 1e3, places[98] * 1e3, max(latencies) * 1e3, peak)


async def watch(client: EchoClient, seconds: float, resident: Callable[[], int]) -> Seen:
    """Step one session for some seconds, one step after the other."""
    latencies: list[float] = []
    until, peak, look_at = time.perf_counter() + seconds, resident(), 0.0
    while (begun := time.perf_counter()) < until:
        await client.step(ACTION)
        latencies.append(time.perf_counter() - begun)
        await asyncio.sleep(PAUSE)
        if begun > look_at:
            peak, look_at = max(peak, resident()), begun + 0.02
    return summarize(latencies, peak)


async def measure(
    url: str, kinds: Iterable[str], resident: Callable[[], int], *, grants: int, seconds: float
) -> list[tuple[str, Seen, dict[str, int]]]:
    """Return what an orchestrator sees quietly, and during each attack of `grants` agents."""
    async with AsyncExitStack() as stack:
        connection = await stack.enter_async_context(Connection(url))
        witness = await stack.enter_async_context(EchoClient(url))
        victims = [await stack.enter_async_context(EchoClient(connection)) for _ in range(grants)]
        await witness.reset(seed=0)
        await watch(witness, 1.0, resident)
        rows = [("quiet", await watch(witness, seconds, resident), dict[str, int]())]
        for kind in kinds:
            places = [await _grant_of(victim) for victim in victims]
            attackers = [await _start_attacker(*place, kind, seconds + 1.0) for place in places]
            await asyncio.sleep(0.5)
            seen = await watch(witness, seconds, resident)
            rows.append((kind, seen, await _counts(attackers)))
            await asyncio.sleep(1.0)
        return rows


async def _grant_of(victim: EchoClient) -> tuple[str, str]:
    """Return address and token of a grant on a new episode."""
    await victim.reset(seed=0, grant=True)
    if victim.granted is None:
        raise RuntimeError("there was no grant")
    return victim.granted.address, victim.granted.token


async def _start_attacker(address: str, token: str, kind: str, seconds: float) -> asyncio.subprocess.Process:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.attacks.starving_agent", "--attack", kind, "--seconds", str(seconds)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    if child.stdin is not None:
        child.stdin.write(f"{address}\n{token}\n".encode())
        child.stdin.close()
    return child


async def _counts(attackers: Sequence[asyncio.subprocess.Process]) -> dict[str, int]:
    total: dict[str, int] = {}
    for child in attackers:
        said, _ = await child.communicate()
        for status, count in json.loads(said or b"{}").items():
            total[status] = total.get(status, 0) + count
    return total


def show(rows: Sequence[tuple[str, Seen, dict[str, int]]]) -> None:
    """Print a table."""
    quiet = rows[0][1]
    for kind, seen, counts in rows:
        above = (seen.peak_bytes - quiet.peak_bytes) / MIB
        print(
            f"{kind:34} {seen.steps:6} steps  p50 {seen.p50:8.2f} ms  p99 {seen.p99:8.2f} ms ({seen.p99 / quiet.p99:6.1f} x)"
            f"  longest {seen.longest:8.1f} ms  memory +{above:6.1f} MiB  {counts}"
        )


def _attack_as_child(kind: str, seconds: float) -> None:
    os.nice(LOWEST_PRIORITY)
    address, token = (sys.stdin.readline().strip() for _ in range(2))
    print(json.dumps(asyncio.run(flood(address, token, kind, seconds))))


def _own_server(stack: ExitStack, options: Sequence[str]) -> Server:
    return started(stack, ours("bench.control_env:quick", "--agent-port", str(free_port()), *options))


def main() -> None:
    """Measure, or attack as a child."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*", choices=[[], *ALL_KINDS])
    parser.add_argument("--attack")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--url")
    parser.add_argument("--pid", type=int)
    parser.add_argument("--grants", type=int, default=1, help="how many agents attack at once")
    parser.add_argument("--config", help="a file of settings for the server that is started")
    asked: Any = parser.parse_args()
    if asked.attack is not None:
        _attack_as_child(asked.attack, asked.seconds)
        return
    options = [] if asked.config is None else ["--config", asked.config]
    for table, governed in ((KINDS, []), (GOVERNED, ["--governed", "open"])):
        kinds = [kind for kind in asked.kinds or ALL_KINDS if kind in table]
        if not kinds:
            continue
        with ExitStack() as stack:
            if asked.url is None:
                server = _own_server(stack, [*options, *governed])
                url, pid = server.url, server.pid
            else:
                url, pid = asked.url, asked.pid or os.getpid()
            resident = Server(url, 0, pid, 0.0).resident
            show(asyncio.run(measure(url, kinds, resident, grants=asked.grants, seconds=asked.seconds)))


if __name__ == "__main__":
    main()
