"""The control plane's rows: both sides are started and measured by the same code."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.control_load import rate_of_all
from bench.control_servers import Kind, echo, free_port, healthy, ours, started
from bench.measure import Gap
from bench.peers import openenv_python, version_of
from bench.row import Better
from bench.rows import control
from bench.rows.control import ECHO_CLIENT, driven, ready


@given(sessions=st.integers(1, 20), steps=st.integers(1, 20))
def test_the_rate_counts_the_steps_of_all_sessions(sessions: int, steps: int) -> None:
    ticks = count()
    made = 0

    async def step() -> None:
        nonlocal made
        made += 1

    # Every look at the clock is a second: the one at the beginning, one after every step, one at the end.
    found = asyncio.run(rate_of_all([step] * sessions, float(steps), clock=lambda: float(next(ticks))))

    assert made >= sessions
    assert found == made / (made + 1)


def test_the_bare_echo_gives_a_rate() -> None:
    with ExitStack() as stack:
        assert driven(echo(), ECHO_CLIENT)(stack)(0.05) > 0.0


def test_a_server_has_a_time_and_a_memory() -> None:
    with ExitStack() as stack:
        server = started(stack, echo())

        assert server.seconds_to_ready > 0.0
        assert server.resident() > 2**20
        assert healthy(server.port)


def test_a_server_that_does_not_come_up_says_why(tmp_path: Path) -> None:
    broken = Kind("nothing", lambda: [*echo().command()[:1], "-c", "raise SystemExit('it has no wish to')"], {})

    with ExitStack() as stack, pytest.raises(ChildProcessError, match="no wish to"):
        ready(broken)(stack)(0.1)


def test_nobody_listens_on_a_free_port() -> None:
    assert not healthy(free_port())


def test_a_server_with_a_secret_has_it_in_its_address_only() -> None:
    kind = ours("CartPole-v1")

    assert kind.secret is not None
    assert kind.url(80) == f"http://proctor:{kind.secret}@127.0.0.1:80"
    assert not any(kind.secret in str(part) for part in kind.command())


def test_openenv_that_is_not_installed_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_OPENENV", str(tmp_path / "nowhere"))

    with pytest.raises(Gap, match="not installed"):
        openenv_python()
    assert version_of("openenv", openenv_python) is None


def test_every_row_says_how_it_was_isolated_and_recorded() -> None:
    assert {row.tier for row in control.ROWS} == {"none"}
    assert {row.durability for row in control.ROWS} <= {"none", "memory", "file"}
    assert all(row.better is Better.LOWER for row in control.ROWS if "memory" in row.name or "ready" in row.name)


@pytest.mark.system
def test_openenv_is_measured_in_its_own_environment() -> None:
    with ExitStack() as stack:
        assert driven(control.OPENENV, control.THEIR_CLIENT, "2")(stack)(0.1) > 0.0
    assert version_of("openenv", openenv_python) == "0.10.0"


@pytest.mark.system
@pytest.mark.parametrize("arguments", [("1", "async"), ("3", "shared"), ("1", "sync")])
def test_our_client_is_measured_in_every_way(arguments: tuple[str, ...]) -> None:
    with ExitStack() as stack:
        assert driven(control.QUICK, control.OUR_CLIENT, *arguments)(stack)(0.1) > 0.0
