"""A port that was chosen once is taken again by the next run, if it is free."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.errors import ValidationError
from proctor.server.net.listeners import FILE, RememberedPorts
from proctor.server.net.uvicorn_protocols import port_of

HERE = "127.0.0.1"


def chosen(folder: Path | None, name: str = "control", port: int = 0) -> int | None:
    with RememberedPorts(folder).bind(name, HERE, port) as listener:
        return port_of(listener)


def test_the_next_run_has_the_same_ports(tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    before = [chosen(folder, name) for name in ("control", "worker-0", "worker-1")]

    assert [chosen(folder, name) for name in ("control", "worker-0", "worker-1")] == before
    assert len(set(before)) == 3


def test_a_port_that_is_taken_meanwhile_is_replaced_for_this_run_only(tmp_path: Path) -> None:
    before = chosen(tmp_path)
    with RememberedPorts(tmp_path).bind("control", HERE, 0):
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
    with RememberedPorts(tmp_path).bind("agents-0", HERE, 0) as listener:
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
