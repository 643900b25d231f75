"""An image is made of bytes that depend on what is in it, and on nothing else."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.server.sandbox.container.image_archive import (
    DATE,
    ArchiveEntry,
    ArchiveTree,
    BytecodeEntry,
    FileEntry,
    FolderEntry,
    ImageConfig,
    LinkEntry,
    TextEntry,
    compile_source,
    compute_image_id,
    describe_image,
    write_image,
    write_layer,
)

SOURCE = b'"""A module."""\nNAMES = {"a", "b", "c"}\ndef f(x):\n    return x in {"one", "two", 3.0} and "\\d"\n'


def layer(tree: ArchiveTree) -> tuple[str, dict[str, tarfile.TarInfo], bytes]:
    file = io.BytesIO()
    digest = write_layer(tree, file)
    with tarfile.open(fileobj=io.BytesIO(file.getvalue())) as tar:
        return digest, {member.name: member for member in tar}, file.getvalue()


@pytest.fixture
def tree(tmp_path: Path) -> dict[str, ArchiveEntry]:
    """One entry of each kind, of files with various rights and dates."""
    program, source, broken = tmp_path / "program", tmp_path / "module.py", tmp_path / "broken.py"
    program.write_bytes(b"\x7fELF")
    program.chmod(0o700)
    source.write_bytes(SOURCE)
    source.chmod(0o600)
    broken.write_bytes(b"def (")
    return {
        "/opt/thing/bin/program": FileEntry(program),
        "/opt/thing/module.py": FileEntry(source),
        "/opt/thing/__pycache__/module.pyc": BytecodeEntry(source, "/opt/thing/module.py"),
        "/opt/thing/__pycache__/broken.pyc": BytecodeEntry(broken, "/opt/thing/broken.py"),
        "/etc/motd": TextEntry(b"hello\n"),
        "/lib64/loader": LinkEntry("/opt/thing/lib/loader"),
        "/tmp": FolderEntry(0o1777),
    }


def test_a_layer_has_every_entry_and_the_folders_above_them(tree: dict[str, ArchiveEntry]) -> None:
    _, members, body = layer(tree)

    assert list(members) == [
        *("etc", "etc/motd", "lib64", "lib64/loader", "opt", "opt/thing"),
        *("opt/thing/__pycache__", "opt/thing/__pycache__/module.pyc"),
        *("opt/thing/bin", "opt/thing/bin/program", "opt/thing/module.py", "tmp"),
    ]
    assert {each.mtime for each in members.values()} == {DATE}
    assert {(each.uid, each.gid, each.uname, each.gname) for each in members.values()} == {(0, 0, "", "")}
    assert members["opt/thing/bin/program"].mode == 0o755
    assert members["opt/thing/module.py"].mode == 0o644
    assert members["tmp"].mode == 0o1777
    assert members["lib64/loader"].linkname == "/opt/thing/lib/loader"
    with tarfile.open(fileobj=io.BytesIO(body)) as tar:
        motd = tar.extractfile("etc/motd")
        assert motd is not None
        assert motd.read() == b"hello\n"


def test_the_same_files_give_the_same_bytes_whatever_their_dates_and_order(tree: dict[str, ArchiveEntry]) -> None:
    first, _, body = layer(tree)
    for entry in tree.values():
        if isinstance(entry, FileEntry):
            os.utime(entry.path, (1, 1))

    second, _, again = layer(dict(reversed(tree.items())))

    assert first == second == hashlib.sha256(body).hexdigest()
    assert body == again


def test_another_byte_gives_another_digest(tree: dict[str, ArchiveEntry]) -> None:
    assert layer(tree)[0] != layer(tree | {"/etc/motd": TextEntry(b"hallo\n")})[0]


@given(st.dictionaries(st.from_regex(r"(/[a-c]{1,3}){1,4}\.f", fullmatch=True), st.binary(max_size=20), max_size=6))
def test_any_tree_comes_back_as_it_went_in(contents: dict[str, bytes]) -> None:
    _, members, body = layer({place: TextEntry(content) for place, content in contents.items()})

    with tarfile.open(fileobj=io.BytesIO(body)) as tar:
        found = {name: tar.extractfile(name) for name, member in members.items() if member.isfile()}
        assert {f"/{name}": file.read() for name, file in found.items() if file} == contents


def test_every_entry_is_counted_once(tree: dict[str, ArchiveEntry]) -> None:
    ticks: list[int] = []

    write_layer(tree, io.BytesIO(), lambda: ticks.append(1))

    assert len(ticks) == len(tree)


# ---------------------------------------------------------------------------------------------------------- bytecode
def test_python_runs_the_bytecode_and_never_asks_for_the_source(tmp_path: Path) -> None:
    place = tmp_path / "module.py"
    place.write_bytes(b"raise SystemExit('the source was read')")
    cached = tmp_path / "__pycache__" / f"module.{sys.implementation.cache_tag}.pyc"
    cached.parent.mkdir()
    cached.write_bytes(compile_source(SOURCE, str(place)) or b"")

    done = subprocess.run(
        [sys.executable, "-c", "import module; print(module.f('one'), module.__file__)"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == f"\\d {place}\n"


def test_bytecode_is_the_same_in_every_process() -> None:
    script = (
        "import sys, hashlib; from proctor.server.sandbox.container.image_archive import compile_source;"
        "print(hashlib.sha256(compile_source(sys.argv[1].encode(), '/m.py')).hexdigest())"
    )

    told = {
        subprocess.run(
            [sys.executable, "-c", script, SOURCE.decode()],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }

    assert told == {hashlib.sha256(compile_source(SOURCE, "/m.py") or b"").hexdigest()}


@pytest.mark.parametrize("source", [b"def (", b"\x00", b"# coding: nothing\n"])
def test_what_does_not_compile_has_no_bytecode(source: bytes) -> None:
    assert compile_source(source, "/m.py") is None


# ------------------------------------------------------------------------------------------------------------- image
def test_an_image_says_how_it_is_run_and_its_id_is_the_digest_of_that(tmp_path: Path) -> None:
    place = tmp_path / "layer.tar"
    with place.open("wb") as file:
        digest = write_layer({"/a": TextEntry(b"a")}, file)
    config = ImageConfig(("/loader", "/python"), {"B": "2", "A": "1"}, {"proctor.target": "X"})
    description = describe_image(digest, config)
    out = io.BytesIO()

    write_image(place, digest, description, "some:name", out)

    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as tar:
        files = {member.name: tar.extractfile(member) for member in tar if member.isfile()}
        bodies = {name: file.read() for name, file in files.items() if file is not None}
    (manifest,) = json.loads(bodies["manifest.json"])
    told = json.loads(bodies[manifest["Config"]])
    assert manifest["RepoTags"] == ["some:name"]
    assert manifest["Config"] == f"{compute_image_id(description)}.json"
    assert hashlib.sha256(bodies[manifest["Layers"][0]]).hexdigest() == digest
    assert told["rootfs"] == {"type": "layers", "diff_ids": [f"sha256:{digest}"]}
    assert told["config"]["Env"] == ["A=1", "B=2"]
    assert told["config"]["Entrypoint"] == ["/loader", "/python"]
    assert told["config"]["User"] == "65534:65534"
    assert told["config"]["Labels"] == {"proctor.target": "X"}
    assert compute_image_id(describe_image(digest, config)) == compute_image_id(description)
