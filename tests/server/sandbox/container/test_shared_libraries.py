"""The libraries of a program are those that this machine's loader finds for it."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import ComponentError
from proctor.server.sandbox.container import shared_libraries
from proctor.server.sandbox.container.shared_libraries import (
    SharedLibraries,
    find_late_libraries,
    find_libraries,
    is_elf,
    parse_ldd,
)

TOLD = """\
/opt/a/bin/tool:
\tlinux-vdso.so.1 (0x00007ffd1b5f2000)
\tlibz.so.1 => /lib/libz.so.1 (0x00007f1e3c000000)
\tlibodd.so => /opt/with a blank/libodd.so (0x00007f1e3c100000)
\tlibgone.so.2 => not found
\tlibc.so.6 => /lib/libc.so.6 (0x00007f1e3c200000)
\t/lib64/ld-linux-x86-64.so.2 (0x00007f1e3c300000)
/opt/a/lib/ext.so:
\tlibz.so.1 => /opt/other/libz.so.1 (0x00007f1e3c000000)
\tlibgone.so.3 => not found
\tstatically linked
"""


def test_what_ldd_says_is_read_line_by_line() -> None:
    found = parse_ldd(TOLD)

    assert found.files == {
        "libz.so.1": Path("/lib/libz.so.1"),
        "libodd.so": Path("/opt/with a blank/libodd.so"),
        "libc.so.6": Path("/lib/libc.so.6"),
    }
    assert found.loader == Path("/lib64/ld-linux-x86-64.so.2")
    assert found.absent == {"libgone.so.2", "libgone.so.3"}


def test_a_library_that_one_file_finds_is_not_absent_because_another_does_not() -> None:
    assert parse_ldd("\tliba.so => not found\n\tliba.so => /x/liba.so (0x1)\n").absent == frozenset()


@given(st.text(alphabet="\t =>()/0x.ablibdno tfu\n", max_size=200))
def test_whatever_is_said_is_read_without_a_mistake(text: str) -> None:
    found = parse_ldd(text)

    assert not found.absent & found.files.keys()


def test_the_libraries_of_this_python_are_found() -> None:
    python = Path(sys.executable).resolve()
    extensions = list((Path(sysconfig.get_path("stdlib")) / "lib-dynload").glob("_ctypes.*.so"))

    found = find_libraries([python, *extensions])

    assert is_elf(python)
    assert not is_elf(Path(__file__))
    assert found.loader is not None
    assert found.loader.is_file()
    assert {"libc.so.6", "libm.so.6"} <= found.files.keys()
    assert all(path.is_file() for path in found.files.values())
    assert not found.absent


def test_a_library_among_the_files_themselves_travels_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = tmp_path / "libours.so.1"
    ours.write_bytes(b"\x7fELF")
    said = f"\tlibours.so.1 => {ours} (0x1)\n\tlibhere.so => not found\n\tlibc.so.6 => {tmp_path}/libc.so.6 (0x1)\n"
    monkeypatch.setattr(shared_libraries, "_run_ldd", lambda paths: said)

    found = find_libraries([ours, tmp_path / "libhere.so"])

    assert found == SharedLibraries({"libc.so.6": tmp_path / "libc.so.6"})


def test_what_is_opened_by_name_comes_from_the_same_folders(tmp_path: Path) -> None:
    (tmp_path / "libgcc_s.so.1").write_bytes(b"")

    found = dict(find_late_libraries([tmp_path / "libc.so.6", Path("/nowhere/libm.so.6")]))

    assert found == {"libgcc_s.so.1": tmp_path / "libgcc_s.so.1"}


def test_without_ldd_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(ComponentError, match="ldd on the PATH"):
        find_libraries([Path(sys.executable)])


def test_an_ldd_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(command: list[str], **options: object) -> None:
        raise subprocess.TimeoutExpired(command, 1)

    monkeypatch.setattr(subprocess, "run", hangs)

    with pytest.raises(ComponentError, match="did not end in time"):
        find_libraries([Path(sys.executable)])
