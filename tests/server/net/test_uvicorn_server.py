"""Connections are accepted a few at a time, whoever opens how many."""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import os
import re
import socket
import stat
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import uvloop

from proctor.errors import ValidationError
from proctor.server.net import uvicorn_server
from proctor.server.net.uvicorn_server import (
    ACCEPTED_AT_ONCE,
    FILE,
    FairListener,
    bind_remembered_port,
    bind_tcp,
    bind_unix,
    port_of,
)
from tests.server.live_server import PATIENCE

BURST = 41


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE):
            await scenario()

    uvloop.run(bounded())


class Counted(asyncio.Protocol):
    """A connection that is counted."""

    made = 0

    def connection_made(self, transport: Any) -> None:
        Counted.made += 1
        transport.abort()


@pytest.fixture(autouse=True)
def uncounted() -> None:
    Counted.made = 0


def test_a_burst_of_connections_is_accepted_a_few_in_each_turn_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_server, "BATCH_SECONDS", 0.0)
    turns: list[int] = []

    async def scenario() -> None:
        with ExitStack() as stack:
            listener = stack.enter_context(bind_tcp("127.0.0.1", 0))
            fair = FairListener(listener, BURST, Counted)
            stack.callback(fair.close)
            for _ in range(BURST):
                stack.enter_context(socket.create_connection(listener.getsockname(), PATIENCE))
            while Counted.made < BURST:
                turns.append(Counted.made)
                await asyncio.sleep(0)

    run(scenario)

    most = max(after - before for before, after in itertools.pairwise(turns))
    assert 0 < most <= ACCEPTED_AT_ONCE


def test_after_a_batch_nothing_is_accepted_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uvicorn_server, "BATCH_SECONDS", 3600.0)

    async def scenario() -> None:
        with ExitStack() as stack:
            listener = stack.enter_context(bind_tcp("127.0.0.1", 0))
            fair = FairListener(listener, BURST, Counted)
            stack.callback(fair.close)
            for _ in range(ACCEPTED_AT_ONCE + 1):
                stack.enter_context(socket.create_connection(listener.getsockname(), PATIENCE))
            while Counted.made < ACCEPTED_AT_ONCE:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)

    run(scenario)

    assert Counted.made == ACCEPTED_AT_ONCE


def test_a_listener_that_is_closed_accepts_no_more() -> None:
    async def scenario() -> None:
        with bind_tcp("127.0.0.1", 0) as listener:
            fair = FairListener(listener, BURST, Counted)
            fair.close()
            with socket.create_connection(listener.getsockname(), PATIENCE):
                await asyncio.sleep(0.05)

    run(scenario)

    assert Counted.made == 0


def test_where_no_descriptor_is_left_the_listener_waits_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(uvicorn_server, "NO_DESCRIPTOR_SECONDS", 0.01)

    class Full(socket.socket):
        refusals = 2

        def accept(self) -> tuple[socket.socket, Any]:
            if Full.refusals:
                Full.refusals -= 1
                raise OSError(errno.EMFILE, "too many open files")
            return super().accept()

    async def scenario() -> None:
        with Full(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
            listener.bind(("127.0.0.1", 0))
            fair = FairListener(listener, BURST, Counted)
            with socket.create_connection(listener.getsockname(), PATIENCE):
                while not Counted.made:
                    await asyncio.sleep(0.001)
            fair.close()

    with caplog.at_level(logging.ERROR, "proctor.server"):
        run(scenario)

    assert len(caplog.records) == 2


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]"])
def test_any_free_port_is_taken_and_told(host: str) -> None:
    with closing(bind_tcp(host, 0)) as listener:
        port = port_of(listener)
        assert port
        with socket.create_connection((host.strip("[]"), port), PATIENCE) as peer:
            assert peer.getpeername()[1] == port


def test_a_port_that_is_taken_is_refused_by_its_name() -> None:
    with closing(bind_tcp("127.0.0.1", 0)) as listener, pytest.raises(ValidationError) as caught:
        bind_tcp("127.0.0.1", port_of(listener) or 0)

    assert re.search(r"127\.0\.0\.1:\d+: .*in use", str(caught.value))


@pytest.mark.parametrize("host", ["192.0.2.1", "no.such.host.invalid", "a..b", "x" * 300, "2001:db8::zz"])
def test_an_address_that_is_not_ours_is_refused(host: str) -> None:
    with pytest.raises(ValidationError, match="cannot listen"):
        bind_tcp(host, 0)


def test_no_name_is_not_every_address_of_the_machine() -> None:
    with pytest.raises(ValidationError, match="cannot listen"), closing(bind_tcp("", 0)):
        pass


def test_a_port_can_be_taken_again_at_once() -> None:
    listener = bind_tcp("127.0.0.1", 0)
    port = port_of(listener) or 0
    with socket.create_connection(("127.0.0.1", port), PATIENCE), closing(listener.accept()[0]):
        listener.close()

    with closing(bind_tcp("127.0.0.1", port)) as again:
        assert port_of(again) == port


def test_a_unix_socket_is_its_owners_only(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    before = os.umask(0)
    try:
        with closing(bind_unix(path)) as listener:
            mode = stat.S_IMODE(path.stat().st_mode)
            found = port_of(listener)
    finally:
        os.umask(before)

    assert mode == 0o600
    assert found is None


def test_a_dead_socket_is_replaced_and_a_live_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    bind_unix(path).close()
    assert path.is_socket()

    with closing(bind_unix(path)):
        with pytest.raises(ValidationError, match="somebody listens"):
            bind_unix(path)
        assert path.is_socket()


@pytest.mark.parametrize("kind", ["file", "folder", "missing folder", "long"])
def test_a_path_that_is_no_place_for_a_socket_is_refused_and_left_alone(tmp_path: Path, kind: str) -> None:
    path = tmp_path / ("x" * 200 if kind == "long" else "place")
    if kind == "file":
        path.write_text("kept")
    elif kind == "folder":
        path.mkdir()
    elif kind == "missing folder":
        path = path / "socket"

    with pytest.raises(ValidationError, match="cannot listen on") as caught:
        bind_unix(path)

    assert "None" not in str(caught.value)
    assert kind != "file" or path.read_text() == "kept"


def test_a_socket_of_another_kind_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(path))

        with pytest.raises(ValidationError, match="cannot listen on"):
            bind_unix(path)

    assert path.is_socket()


def test_a_refused_address_leaves_no_file_open(tmp_path: Path) -> None:
    def held() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    with closing(bind_tcp("127.0.0.1", 0)) as listener:
        before = held()
        for _ in range(10):
            with pytest.raises(ValidationError):
                bind_tcp("127.0.0.1", port_of(listener) or 0)
            with pytest.raises(ValidationError):
                bind_unix(tmp_path / "missing" / "socket")

        assert held() <= before


HERE = "127.0.0.1"


def chosen(folder: Path | None, name: str = "control", port: int = 0) -> int | None:
    with bind_remembered_port(folder, name, HERE, port) as listener:
        return port_of(listener)


def test_the_next_run_has_the_same_ports(tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    before = [chosen(folder, name) for name in ("control", "worker-0", "worker-1")]

    assert [chosen(folder, name) for name in ("control", "worker-0", "worker-1")] == before
    assert len(set(before)) == 3


def test_a_port_that_is_taken_meanwhile_is_replaced_for_this_run_only(tmp_path: Path) -> None:
    before = chosen(tmp_path)
    with bind_remembered_port(tmp_path, "control", HERE, 0):
        other = chosen(tmp_path)

    assert other != before
    assert chosen(tmp_path) == before


def test_what_is_remembered_is_for_the_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    chosen(folder)

    assert folder.stat().st_mode & 0o077 == 0
    assert (folder / FILE).stat().st_mode & 0o077 == 0


def test_a_port_that_was_asked_for_is_taken_or_refused(tmp_path: Path) -> None:
    before = chosen(tmp_path)
    with bind_remembered_port(tmp_path, "agents-0", HERE, 0) as listener:
        taken = port_of(listener) or 0
        with pytest.raises(ValidationError):
            chosen(tmp_path, port=taken)

    assert chosen(tmp_path) == before


@pytest.mark.parametrize("text", ["", "[1]", '{"control": "x"}', '{"control": 70000}', '{"control": -1}'])
def test_what_cannot_be_read_was_not_written(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)

    assert chosen(tmp_path)


def test_without_a_ledger_nothing_is_remembered() -> None:
    assert chosen(None)


def test_where_nothing_can_be_written_a_port_is_found_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    assert chosen(tmp_path / "file" / "ledger")
