"""An environment that answers with the worst that is legal, as fast as it can, beside a witness on the same server.

    python -m bench.attacks.hostile_answers --sandbox strict --seconds 10 --attack lists

One session is hostile: from its first step on, its environment has taken over the worker's socket and answers every call with the
same bytes, made once. Another session of the same server, the witness, steps a cheap environment and measures each step. Printed
are the witness's p50, p99 and longest step, quiet and under attack, and how far the server's memory rose.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from statistics import quantiles
from typing import Any, Final

import msgspec
import websockets

from bench.control_servers import TOKEN, Server, ours, started
from bench.peers import ROOT
from proctor.contracts.environment import Environment
from proctor.contracts.tools import ToolSafety, tool
from proctor.models.wire import Action, Observation, State
from proctor.server.sandbox.messages import encode_frame, read_message

TARGET: Final = "bench.attacks.hostile_answers:Hostile"
MIB: Final = 2**20
MOST_REPLY: Final = 256 * MIB
STEP: Final = '{"type":"step","data":{"move":1}}'
FIRST_ATTACK: Final = 1000
"""A reset with this seed, or one of the next, makes the environment hostile; which seed says which attack."""


# ------------------------------------------------------------------------------------------------------- the answers
def outcome(observation: bytes, metadata: bytes = b"{}") -> dict[str, Any]:
    """Return an answer to a step as it travels."""
    return {"outcome": {"observation": observation, "metadata": metadata, "reward": 1.0}}


def filled(unit: bytes, size: int, last: bytes) -> bytes:
    """Return a JSON array of so many bytes, of the same unit over and over."""
    return b"[" + unit * ((size - len(last) - 2) // len(unit)) + last + b"]"


def lists(size: int) -> dict[str, Any]:
    """Return an observation of empty lists."""
    return outcome(b'{"observation":' + filled(b"[],", size, b"[]") + b"}")


def strings(size: int) -> dict[str, Any]:
    """Return an observation of empty strings, with something in the last that looks like a large number."""
    return outcome(b'{"observation":' + filled(b'"",', size, b'"1e999"') + b"}")


def numbers(size: int) -> dict[str, Any]:
    """Return an observation of numbers that are nearly too large."""
    return outcome(b'{"observation":' + filled(b"1e300,", size, b"1e300") + b"}")


def scenes(size: int) -> dict[str, Any]:
    """Return a scene of empty lists, beside a small observation."""
    answer = outcome(b"{}")
    answer["outcome"]["scene"] = filled(b"[],", size, b"[]")
    return answer


def keys(size: int) -> dict[str, Any]:
    """Return metadata of as many keys as fit."""
    return outcome(b"{}", b"{" + b",".join(b'"%06x":1' % each for each in range(size // 11)) + b"}")


def errors(size: int) -> dict[str, Any]:
    """Return a refusal with as many errors as fit."""
    return {"refused": {"message": "no", "code": "VALIDATION_ERROR", "errors": [{}] * size}}


def left(size: int) -> dict[str, Any]:
    """Return a tool's answer that leaves as many actions as fit."""
    told = {"text": "", "content": b"{}", "action": b"1", **outcome(b"{}"), "left": [b"1"] * (size // 3)}
    return {"tool": told}


ATTACKS: Final[dict[str, Callable[[int], dict[str, Any]]]] = {
    "lists": lists,
    "strings": strings,
    "numbers": numbers,
    "scenes": scenes,
    "keys": keys,
    "errors": errors,
    "left": left,
}


def frame_of(attack: str, size: int) -> bytearray:
    """Return the frame of an attack's answer, with a body of about so many bytes."""
    return encode_frame(ATTACKS[attack](size))


# --------------------------------------------------------------------------------------------------- the environment
class Move(Action):
    """An action that means nothing."""

    move: int = 0


class Count(Observation):
    """How many steps there were."""

    observation: int


class Hostile(Environment[Move, Count, State]):
    """Counts steps; after a reset with a seed from FIRST_ATTACK on, it answers with so many `kib` of what the seed names."""

    def __init__(self, kib: int = 4095) -> None:
        self.kib = kib
        self.steps = 0
        self.frame: bytearray | None = None

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Count:
        """Begin to count; make the answer once, if it is to be a hostile one."""
        self.steps = 0
        if seed is not None and seed >= FIRST_ATTACK:
            self.frame = frame_of(list(ATTACKS)[seed - FIRST_ATTACK], self.kib * 1024)
        return Count(observation=0)

    def step(self, action: Move) -> Count:
        """Count; or take the worker's socket over, and never come back."""
        if self.frame is not None:
            answer_for_ever(self.frame)
        self.steps += 1
        return Count(observation=self.steps, reward=1.0)

    @property
    def state(self) -> State:
        """How many steps there were."""
        return State(step_count=self.steps)

    @tool(ToolSafety.WRITE)
    def go(self) -> Move:
        """Go one step."""
        return Move()


def own_socket() -> socket.socket:
    """Return the worker's socket, which it holds by the first descriptor that is one."""
    for number in range(3, 256):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                return socket.socket(fileno=os.dup(number))
    raise RuntimeError("there is no socket")


def answer_for_ever(frame: bytes | bytearray) -> None:
    """Answer this call and every one that follows with the same frame, until the server closes the socket."""
    with own_socket() as channel, suppress(OSError):
        channel.sendall(frame)
        while read_message(channel) is not None:
            channel.sendall(frame)
    os._exit(0)


# --------------------------------------------------------------------------------------------------------- the drivers
def socket_of(url: str) -> str:
    """Return the address of the control plane's WebSocket."""
    return url.replace("http://", "ws://").replace(f"proctor:{TOKEN}@", "") + "/ws"


async def attack_for(url: str, attack: str, seconds: float) -> int:
    """Step a hostile session until the time is over; return how many answers came. A lost episode begins anew."""
    begin = json.dumps({"type": "reset", "data": {"seed": FIRST_ATTACK + list(ATTACKS).index(attack)}})
    until = time.monotonic() + seconds
    count = 0
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with websockets.connect(
        socket_of(url), additional_headers=headers, max_size=MOST_REPLY, compression=None, ping_interval=None
    ) as connection:
        while time.monotonic() < until:
            await connection.send(begin)
            await connection.recv()
            while time.monotonic() < until:
                await connection.send(STEP)
                reply = await connection.recv(decode=False)
                count += 1
                if b'"lost":true' in bytes(reply[:2000]):
                    break
    return count


@dataclass(frozen=True, slots=True)
class Steps:
    """How long the witness's steps took, in milliseconds."""

    count: int
    p50: float
    p99: float
    longest: float


async def witness_for(url: str, seconds: float) -> Steps:
    """Step a session that does no harm until the time is over, and measure each step."""
    taken: list[float] = []
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with websockets.connect(
        socket_of(url), additional_headers=headers, compression=None, ping_interval=None
    ) as connection:
        await connection.send('{"type":"reset","data":{"seed":1}}')
        await connection.recv()
        until = time.perf_counter() + seconds
        while (begun := time.perf_counter()) < until:
            await connection.send(STEP)
            await connection.recv()
            taken.append((time.perf_counter() - begun) * 1000)
    cuts = quantiles(taken, n=100)
    return Steps(len(taken), cuts[49], cuts[98], max(taken))


class Peak(threading.Thread):
    """Watches the memory of a server; `most` is the highest that was seen."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self.most = server.resident()
        self._server = server
        self._over = threading.Event()

    def run(self) -> None:
        """Look again and again until told to stop."""
        while not self._over.wait(0.01):
            self.most = max(self.most, self._server.resident())

    def stop(self) -> int:
        """Return the highest that was seen."""
        self._over.set()
        self.join()
        return self.most


@dataclass(frozen=True, slots=True)
class Report:
    """What an attack did to a server."""

    attack: str
    answers: int
    quiet: Steps
    attacked: Steps
    grown_mib: float
    """How far the server's memory rose above what it was before the attack."""


def measure(server: Server, attack: str, seconds: float) -> Report:
    """Return what an attack does to a server that serves TARGET; the attacker is a process of its own."""
    quiet = asyncio.run(witness_for(server.url, seconds))
    before = server.resident()
    peak = Peak(server)
    peak.start()
    command = [sys.executable, "-m", __spec__.name, "--url", server.url, "--attack", attack]
    with subprocess.Popen(
        [*command, "--seconds", str(seconds + 1)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as attacker:
        if attacker.stdout is None or attacker.stdout.readline() != "ready\n":
            raise ChildProcessError("the attacker did not start")
        attacked = asyncio.run(witness_for(server.url, seconds))
        answers = int(attacker.stdout.read())
    return Report(attack, answers, quiet, attacked, (peak.stop() - before) / MIB)


def main(words: Sequence[str] | None = None) -> None:
    """Start a server and attack it; with --url only attack, and say how many answers came."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attack", choices=[*ATTACKS, "all"], default="all")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--sandbox", default="strict")
    parser.add_argument("--kib", type=int, default=4095, help="the size of a hostile answer")
    parser.add_argument("--url", help="attack the server here, and measure nothing")
    parser.add_argument("--option", action="append", default=[], help="for `proctor serve`, as --option=--ledger=PATH")
    asked = parser.parse_args(words)
    if asked.url is not None:
        print("ready", flush=True)
        print(asyncio.run(attack_for(asked.url, asked.attack, asked.seconds)))
        return
    for attack in ATTACKS if asked.attack == "all" else [asked.attack]:
        with ExitStack() as stack:
            kind = ours(TARGET, "--set", f"kib={asked.kib}", *asked.option, sandbox=asked.sandbox)
            report = measure(started(stack, kind), attack, asked.seconds)
        print(msgspec.json.encode(report).decode(), flush=True)


if __name__ == "__main__":
    main()
