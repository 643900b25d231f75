"""A port that was chosen once is taken again by the next run, if it is free."""

from __future__ import annotations

import os
import re
import socket
import stat
from contextlib import closing
from pathlib import Path

import pytest

from proctor.errors import ValidationError
from proctor.server.net.listeners import FILE, bind_remembered_port, bind_tcp, bind_unix, port_of
from tests.server.live_server import PATIENCE


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
