"""The rows of the attacks: who attacks, who is measured, and what counts as the server's memory."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.attacks import run_attack, socket_floods
from bench.attacks.run_attack import ATTACKS, Victim, is_open
from bench.measure import Gap
from bench.rows import attacks
from bench.rows.attacks import ATTACKED, HELD, ROWS, Scene, Setup, own_processes, peak_of
from bench.witness_client import measure_p99, percentile
from proctor.client import Grant
from proctor.server.sandbox.tiers import Tier
from tests.server.agents.stand_in import TOKEN, plane_of
from tests.server.live_server import Served, serving

SOON = 0.2
QUICK = ("trailers", "chunk-extension", "small-chunks", "pipelined", "idle-sockets", "idle-agents", "slow-requests")
"""Attacks on listeners that need no credential."""
HUNGRY = """
import sys
print("ready", flush=True)
sys.stdin.readline()
del (taken := bytearray(64 * 2**20))[:]
print("done", flush=True)
sys.stdin.readline()
"""


# -------------------------------------------------------------------------------------------------------- the witness
@given(st.lists(st.floats(0.0, 100.0), min_size=1), st.integers(1, 100))
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(values: list[float], hundredths: int) -> None:
    found = percentile(values, hundredths)

    assert found in values
    assert sum(value <= found for value in values) * 100 >= hundredths * len(values)
    assert sum(value < found for value in values) * 100 < hundredths * len(values)


def test_a_witness_is_measured_by_its_steps_and_not_by_its_pauses() -> None:
    now = 0.0

    async def pass_time(seconds: float) -> None:
        nonlocal now
        now += seconds

    steps = count(1)

    async def step() -> None:
        # One step in fifty is slow.
        await pass_time(0.5 if next(steps) % 50 == 0 else 0.001)

    found = asyncio.run(measure_p99(step, 10.0, clock=lambda: now, sleep=pass_time))

    assert found == pytest.approx(0.5)


def test_a_witness_with_no_time_makes_one_step() -> None:
    made: list[int] = []

    async def step() -> None:
        made.append(1)

    assert asyncio.run(measure_p99(step, 0.0, clock=lambda: 7.0)) == 0.0
    assert made == [1]


# ------------------------------------------------------------------------------------------------------ the attackers
@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving() as found:
        yield found


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attacks with ten connections."""
    for name in ("SOCKETS_TOO_MANY", "IDLE_AGENTS", "SLOW_EACH"):
        monkeypatch.setattr(run_attack, name, 10)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("name", QUICK)
def test_every_attack_on_a_listener_does_something_and_ends_in_time(name: str, served: Served) -> None:
    victim = Victim(f"http://proctor:no-credential@127.0.0.1:{served.port}", served.port)

    assert asyncio.run(ATTACKS[name](victim, SOON)) > 0.0


def test_replies_to_a_grant_that_is_dead_are_nothing_done() -> None:
    with plane_of() as plane:

        def sent(token: str) -> int:
            grant = Grant("g", plane.url, token, (), None, "e")
            return asyncio.run(run_attack._send(["calls that are carried out", "tools/list"], grant, SOON))

        assert (sent(TOKEN) > 0, sent("no-token")) == (True, 0)


def test_a_victim_is_both_of_its_listeners() -> None:
    victim = Victim("http://proctor:a-secret@127.0.0.1:81", 82)

    assert (victim.control.port, victim.control.token) == (81, "a-secret")
    assert (victim.agents.port, victim.agents.token, victim.agents.path) == (82, None, "/mcp")


@contextmanager
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with closing(ours), closing(theirs):
        yield ours, theirs


def test_a_connection_is_open_until_its_peer_has_closed_it() -> None:
    with pair() as (ours, theirs):
        quiet = is_open(ours)
        theirs.send(b"xx")
        told = is_open(ours)
        ours.setblocking(True)
        ours.recv(1)
        theirs.close()

        assert (quiet, told, is_open(ours)) == (True, True, False)
        assert ours.fileno() == -1


def test_a_load_that_the_server_does_not_keep_is_an_error() -> None:
    def open_pairs(_there: socket_floods.Listener, amount: int, stack: ExitStack) -> list[socket.socket]:
        pairs = [stack.enter_context(pair()) for _ in range(amount)]
        pairs[0][1].close()
        return [ours for ours, _ in pairs]

    with pytest.raises(RuntimeError, match="kept 4 of 5"):
        run_attack._hold([(open_pairs, socket_floods.Listener("", 0), 5)], 0.0)


def test_every_row_has_an_attack() -> None:
    assert {attack for _, attack, _ in ATTACKED.values()} | set(HELD) | {"open-sessions"} == set(ATTACKS)


# --------------------------------------------------------------------------------------------------------- the server
def test_a_server_has_the_descriptors_the_tier_and_the_record_that_are_asked_for() -> None:
    with ExitStack() as stack:
        command = list(map(str, Setup(descriptors=77, options=("--idle", "9")).kind(stack, 81).command()))
        bare = list(map(str, Setup(tier=Tier.NONE, durability="none").kind(stack, 81).command()))

    assert command[:2] == ["sh", "-c"]
    assert "ulimit -n 77" in command[2]
    for option, value in (
        ("--sandbox", "strict"),
        ("--durability", "full"),
        ("--agent-port", "81"),
        ("--idle", "9"),
    ):
        assert command[command.index(option) + 1] == value
    assert "--ledger" in command
    assert "--ledger" not in bare
    assert bare[bare.index("--sandbox") + 1] == "none"


@contextmanager
def child(*command: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    return process.stdout.readline().strip() if process.stdout is not None else ""


def tell(process: subprocess.Popen[str]) -> None:
    if process.stdin is not None:
        process.stdin.write("\n")
        process.stdin.flush()


def test_the_highest_memory_is_found_after_it_was_given_back() -> None:
    with child(sys.executable, "-c", HUNGRY) as process:
        assert line_of(process) == "ready"
        before = attacks.forget_peaks(process.pid)
        calm = peak_of(process.pid) - before
        tell(process)
        assert line_of(process) == "done"
        grown = peak_of(process.pid) - before

    assert calm < 16 * 2**20
    assert grown > 60 * 2**20
    assert peak_of(process.pid) == 0


def test_what_runs_in_a_sandbox_is_not_the_servers_own(tmp_path: Path) -> None:
    sandbox = tmp_path / "bwrap"
    sandbox.write_text("#!/bin/sh\necho $$\nread x\n")
    sandbox.chmod(0o700)
    with child("sh", "-c", f"{sandbox}; :") as server:
        inside = int(line_of(server))
        found = list(own_processes(server.pid))
        also = list(own_processes(os.getpid()))

    assert found == [server.pid]
    assert server.pid in also
    assert inside not in also


def test_a_system_that_does_not_tell_of_memory_is_a_gap(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(attacks, "PROC", tmp_path)

    with pytest.raises(Gap, match="/proc"):
        attacks.forget_peaks(os.getpid())


class Idle:
    """A child that measures nothing."""

    def __init__(self, found: float) -> None:
        self.found = found
        self.asked: list[float] = []

    def measure(self, seconds: float) -> float:
        """Note the time, and return what was set."""
        self.asked.append(seconds)
        return self.found


def scene_of(witness: Any, attacker: Any) -> Scene:
    return Scene(server=None, witness=witness, attacker=attacker)  # type: ignore[arg-type]  # neither needs it


def test_a_witness_is_measured_while_the_attack_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attacks, "LEAD", 0.0)
    witness, attacker = Idle(0.002), Idle(5.0)
    scene = scene_of(witness, attacker)

    assert (scene.attacked(1.0), scene.quiet(1.0)) == (2.0, 2.0)
    assert (witness.asked, attacker.asked) == ([attacks.LONGER] * 2, [attacks.LONGER])


def test_an_attack_that_does_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attacks, "LEAD", 0.0)

    with pytest.raises(RuntimeError, match="did nothing"):
        scene_of(Idle(0.002), Idle(0.0)).attacked(1.0)


def test_a_tier_that_this_host_does_not_enforce_is_a_named_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(tier: Tier) -> None:
        raise Gap(f"{tier} cannot be had here")

    monkeypatch.setattr(attacks, "enforced", refuse)
    with ExitStack() as stack, pytest.raises(Gap, match="strict cannot be had here"):
        attacks.attacked(Setup(), "trailers")(stack)


# ------------------------------------------------------------------------------------------------------------ the rows
def test_every_row_says_how_it_was_isolated_and_recorded() -> None:
    assert {(row.tier, row.durability) for row in ROWS} == {("strict", "full")}
    assert len({row.name for row in ROWS}) == len(ROWS)


def test_the_goals_are_the_ones_that_were_set() -> None:
    goals = {row.name: str(row.goal) for row in ROWS}

    for name in ATTACKED:
        assert goals.pop(f"attacks.{name}/quiet") == "ratio < 5"
        assert goals.pop(f"attacks.memory-{name}/bound") == "value < 300"
    for name in HELD:
        assert goals.pop(f"attacks.held-{name}/quiet") == "value < 10"
    assert goals == {"attacks.open-sessions/bound": "value < 4"}


@pytest.mark.slow
def test_a_witness_and_a_servers_memory_are_measured_during_an_attack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attacks, "LEAD", SOON)
    bare = Setup(tier=Tier.NONE, durability="none")

    with ExitStack() as stack:
        assert attacks.memory(bare, "fragments")(stack)(0.02) >= 0.0


@pytest.mark.system
def test_sessions_are_opened_in_a_sandbox() -> None:
    with ExitStack() as stack:
        assert attacks.opening(Setup())(stack)(0.1) > 0.0
