"""The rows of the attacks: what a witness and the server's memory feel while one peer, agent or environment misbehaves.

Rule 1: the witness is one session of the same server that steps; see `bench.witness_client`. Its quiet value, the anchor, is measured
    by turns with the attacked one, on a server like it.
Rule 2: the attacker is a process of its own and has a processor of its own, see `bench.attacks.run_attack`; server, environments and
    witness share the others, whether somebody attacks or not. An attack that does nothing
    is an error.
Rule 3: memory is the highest that the server's own processes had during the attack, above what they had before. A hostile environment's worker
    is not one of them: the sandbox limits it. Every sample has a new server, because memory that was freed hides what is taken next.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Final

from bench.control_servers import Kind, Server, free_port, ours, started
from bench.ledger_files import folder, with_keys
from bench.measure import Gap, Probe
from bench.peers import Peer
from bench.row import Better, Opener, Row, ratio_below, value_below
from bench.rows.control import own_python
from bench.sandbox_processes import PROC, enforced
from proctor.server.sandbox.tiers import Tier

LONGER: Final = 8.0
"""An attack lasts so many times the seconds of a sample: a percentile needs thousands of steps."""
LEAD: Final = 1.0
"""Seconds that an attack has before the witness is measured."""
MS: Final = 1000.0
MB: Final = 1e6
KIB: Final = 1024
SLOWER: Final = 5.0
MOST_MEMORY: Final = 300.0
MOST_STEP_MS: Final = 10.0
MOST_OPENING_SECONDS: Final = 4.0
FEW_DESCRIPTORS: Final = 1024
RESET_PEAK: Final = "5"
"""What `clear_refs` takes so that the system forgets how much memory a process once had."""
SANDBOX: Final = "bwrap"
PROCESSORS: Final = sorted(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class Setup:
    """A server under attack: what it serves, how it keeps sessions apart and on record, and the witness's action."""

    target: str = "bench.control_env:quick"
    action: str = '{"message":"the quick brown fox jumps over"}'
    tier: Tier = Tier.STRICT
    durability: str = "full"
    options: tuple[str, ...] = ()
    descriptors: int | None = None

    def kind(self, stack: ExitStack, agent_port: int) -> Kind:
        """Return how the server is started; its ledger is removed by `stack`."""
        options = ["--agent-port", str(agent_port), *self.options]
        if self.durability != "none":
            options += ["--ledger", str(folder(stack)), "--durability", self.durability]
        kind = with_keys(ours(self.target, *options, sandbox=self.tier))
        return kind if self.descriptors is None else with_descriptors(kind, self.descriptors)


def with_descriptors(kind: Kind, count: int) -> Kind:
    """Return the same server, which may open so many files and no more."""
    return replace(kind, command=lambda: ["sh", "-c", f'ulimit -n {count} && exec "$@"', "sh", *kind.command()])


@dataclass(frozen=True, slots=True)
class Scene:
    """A server that runs, a witness, and an attacker that waits to be told."""

    server: Server
    witness: Peer
    attacker: Peer

    def quiet(self, seconds: float) -> float:
        """Return the witness's p99 in ms while nobody attacks."""
        return MS * self.witness.measure(LONGER * seconds)

    def attacked(self, seconds: float) -> float:
        """Return the witness's p99 in ms during an attack."""
        lasting = LONGER * seconds
        with ThreadPoolExecutor(1) as pool:
            attack = pool.submit(self.attack, LEAD + lasting)
            time.sleep(LEAD)
            found = MS * self.witness.measure(lasting)
            attack.result()
        return found

    def attack(self, seconds: float) -> float:
        """Attack for so long; return how much was done."""
        done = self.attacker.measure(seconds)
        if not done:
            raise RuntimeError("the attack did nothing")
        return done


def opened(stack: ExitStack, setup: Setup, attack: str) -> Scene:
    """Return a scene that `stack` ends; a tier that this host does not enforce is a Gap."""
    if setup.tier is not Tier.NONE:
        enforced(setup.tier)
    processor = reserve_processor(stack)
    port = free_port()
    server = started(stack, setup.kind(stack, port))
    witness = Peer(own_python(), "bench.witness_client", "the witness", server.url, setup.action)
    stack.enter_context(witness)
    attacker = Peer(own_python(), "bench.attacks.run_attack", "the attacker", attack, server.url, str(port), processor)
    return Scene(server, witness, stack.enter_context(attacker))


def reserve_processor(stack: ExitStack) -> str:
    """Keep this process and its children off one processor until `stack` ends; return its number, or nothing where there is one only."""
    if len(PROCESSORS) == 1:
        return ""
    os.sched_setaffinity(0, PROCESSORS[:-1])
    stack.callback(os.sched_setaffinity, 0, PROCESSORS)
    return str(PROCESSORS[-1])


# ---------------------------------------------------------------------------------------------------------------- memory
def own_processes(pid: int) -> Iterator[int]:
    """Yield a server's process and those below it, but for the sandbox's."""
    yield pid
    for task in (PROC / str(pid) / "task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in map(int, task.read_text("ascii").split()):
                if (PROC / str(child) / "comm").read_text("ascii").strip() != SANDBOX:
                    yield from own_processes(child)


def memory_in(pid: int, field: str) -> int:
    """Return a process's `VmRSS`, or `VmHWM`, the highest that it had, in bytes; one that is gone has none."""
    with suppress(FileNotFoundError, ProcessLookupError):
        for line in (PROC / str(pid) / "status").read_text("utf-8").splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * KIB
    return 0


def forget_peaks(pid: int) -> int:
    """Let the system forget how much memory a server once had; return the bytes that it has now."""
    processes = list(own_processes(pid))
    try:
        for each in processes:
            (PROC / str(each) / "clear_refs").write_text(RESET_PEAK, "ascii")
    except FileNotFoundError:
        raise Gap("the highest resident memory is read from /proc, which this system lacks") from None
    return sum(memory_in(each, "VmRSS") for each in processes)


def peak_of(pid: int) -> int:
    """Return the sum of the highest memory that a server's own processes had."""
    return sum(memory_in(each, "VmHWM") for each in own_processes(pid))


# ----------------------------------------------------------------------------------------------------------------- rows
def attacked(setup: Setup, attack: str) -> Opener:
    """The witness's p99 in ms during an attack."""
    return lambda stack: opened(stack, setup, attack).attacked


def quiet(setup: Setup, attack: str) -> Opener:
    """The witness's p99 in ms on a server like it, while nobody attacks."""
    return lambda stack: opened(stack, setup, attack).quiet


def memory(setup: Setup, attack: str) -> Opener:
    """Megabytes that an attack adds at most to a server that only has a witness."""

    def probe(seconds: float) -> float:
        with ExitStack() as stack:
            scene = opened(stack, setup, attack)
            scene.quiet(seconds / LONGER)
            before = forget_peaks(scene.server.pid)
            scene.attacked(seconds)
            return (peak_of(scene.server.pid) - before) / MB

    return lambda _stack: probe


def opening(setup: Setup) -> Opener:
    """Seconds in which one client opens and resets many sessions."""

    def probe(stack: ExitStack) -> Probe:
        scene = opened(stack, setup, "open-sessions")
        return scene.attacker.measure

    return probe


def constant(value: float) -> Opener:
    """The bound itself."""
    return lambda _stack: lambda _seconds: value


HOSTILE: Final = "bench.attacks.hostile_answers:Hostile"
NOISE: Final = "bench.attacks.disk_floods:Noise"
ANSWER_KIB: Final = 29 * KIB
LARGEST_KIB: Final = 8 * KIB - 1
"""As much as an answer may have, and a little less."""
DEFAULT: Final = Setup()
GOVERNED: Final = replace(DEFAULT, options=("--governed", "open"))


def hostile(kib: int) -> Setup:
    """A server whose environments answer with so many kilobytes, if they are told to."""
    return Setup(HOSTILE, '{"move":1}', options=("--set", f"kib={kib}"))


ATTACKED: Final[dict[str, tuple[Setup, str, str]]] = {
    "trailers": (DEFAULT, "trailers", "trailers without end, no credential"),
    "chunk-extension": (DEFAULT, "chunk-extension", "one chunk extension without end, no credential"),
    "small-chunks": (DEFAULT, "small-chunks", "a body of chunks of one byte without end, no credential"),
    "pipelined": (DEFAULT, "pipelined", "pipelined requests, replies not read, no credential"),
    "fragments": (DEFAULT, "fragments", "one WebSocket message of empty fragments without end"),
    "pings": (DEFAULT, "pings", "WebSocket pings without end, pongs not read"),
    "idle-sockets": (
        replace(DEFAULT, descriptors=FEW_DESCRIPTORS),
        "idle-sockets",
        f"1,200 idle connections, {FEW_DESCRIPTORS:,} descriptors",
    ),
    "nested-lists": (DEFAULT, "nested-lists", "one agent, 64 connections, calls of 1 MiB of nested lists"),
    "answers": (hostile(ANSWER_KIB), "answers", "an environment answers with 29 MiB of empty lists"),
    "answers-largest": (hostile(LARGEST_KIB), "answers", "the same with 8 MiB, the largest answer that is read"),
    "errors": (hostile(ANSWER_KIB), "errors", "an environment refuses with 29 MiB of errors"),
    "errors-largest": (hostile(LARGEST_KIB), "errors", "the same with 8 MiB"),
    "calls": (DEFAULT, "calls", "one agent, 64 connections, calls that are carried out"),
    "keys": (DEFAULT, "keys", "one agent, 64 connections, calls of 60 KiB of keys"),
    "beliefs": (GOVERNED, "beliefs", "a governed agent writes beliefs of 60 kB"),
    "unknown-fields": (GOVERNED, "unknown-fields", "a governed agent, 64 connections, packets of 1,000 unknown fields"),
    "believed-lists": (GOVERNED, "believed-lists", "a governed agent, 64 connections, beliefs of nested empty lists"),
    "plans": (GOVERNED, "plans", "a governed agent, 64 connections, the largest plans that are taken, and larger ones"),
    "noise": (Setup(NOISE, '{"action":8}'), "noise", "an environment puts 7.5 MiB of noise on record with each step"),
}
"""Name of a row: the server, the attack in `bench.attacks.run_attack`, and what it is."""

HELD: Final = {
    "idle-agents": "2,000 idle connections of agents",
    "slow-requests": "500 connections with half a request on each port",
    "opening-sessions": "200 sessions opened in 4 s",
}
"""Loads under which a step stays quick, by the name of the attack."""


def _attack(name: str) -> tuple[Row, Row]:
    """Return the two rows of an attack: the witness's p99, and the server's memory."""
    setup, attack, note = ATTACKED[name]
    return (
        Row(
            f"attacks.{name}/quiet",
            attacked(setup, attack),
            quiet(setup, attack),
            "the same witness while nobody attacks",
            ratio_below(SLOWER),
            unit="ms",
            better=Better.LOWER,
            note=f"p99 of a step; {note}",
            tier=setup.tier,
            durability=setup.durability,
        ),
        Row(
            f"attacks.memory-{name}/bound",
            memory(setup, attack),
            constant(MOST_MEMORY),
            "300 MB",
            value_below(MOST_MEMORY),
            unit="MB",
            better=Better.LOWER,
            note=f"above idle; {note}",
            tier=setup.tier,
            durability=setup.durability,
        ),
    )


def _held(name: str) -> Row:
    return Row(
        f"attacks.held-{name}/quiet",
        attacked(DEFAULT, name),
        quiet(DEFAULT, name),
        "the same witness alone",
        value_below(MOST_STEP_MS),
        unit="ms",
        better=Better.LOWER,
        note=f"p99 of a step; {HELD[name]}",
        tier=DEFAULT.tier,
        durability=DEFAULT.durability,
    )


ROWS: Final = (
    *(row for name in ATTACKED for row in _attack(name)),
    *map(_held, HELD),
    Row(
        "attacks.open-sessions/bound",
        opening(DEFAULT),
        constant(MOST_OPENING_SECONDS),
        "4 s",
        value_below(MOST_OPENING_SECONDS),
        unit="s",
        better=Better.LOWER,
        note="200 sessions opened and reset by one client, 16 at once",
        tier=DEFAULT.tier,
        durability=DEFAULT.durability,
    ),
)
