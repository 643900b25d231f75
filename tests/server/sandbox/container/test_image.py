"""An image has this Python, its libraries, Proctor and the environment in it, and nothing else of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from proctor import __version__
from proctor.errors import ComponentError, ValidationError
from proctor.server.sandbox.container import image
from proctor.server.sandbox.container.image import (
    ROOT,
    ImageContents,
    ImageRequest,
    build_image,
    collect_contents,
    dockerfile_changes,
    find_module,
)
from proctor.server.sandbox.container.image_archive import (
    BytecodeEntry,
    FileEntry,
    FolderEntry,
    ImageConfig,
    LinkEntry,
    TextEntry,
)
from proctor.server.sandbox.tiers import Mount
from tests.server.sandbox.fake_engine import stand_in

SMALL = ImageContents({"/opt/proctor/a": TextEntry(b"a")}, ("/opt/proctor/loader", "/opt/proctor/python"), ())


@pytest.fixture(scope="module")
def cartpole() -> ImageContents:
    return collect_contents(ImageRequest("CartPole-v1"))


# ---------------------------------------------------------------------------------------------------------- contents
@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("CartPole-v1", "gymnasium.envs.classic_control.cartpole"),
        ("proctor/ColumnPopper-v0", "proctor.envs.popper.env"),
        ("my.module:Env", "my.module"),
        ("my_module:Some-v0", "my_module"),
    ],
)
def test_a_target_comes_from_a_module(target: str, expected: str) -> None:
    assert find_module(target) == expected


def test_everything_lies_under_one_folder_but_what_an_empty_root_lacks(cartpole: ImageContents) -> None:
    elsewhere = {place: entry for place, entry in cartpole.tree.items() if not place.startswith(f"{ROOT}/")}
    links = {place for place, entry in elsewhere.items() if isinstance(entry, LinkEntry)}

    assert elsewhere.keys() - links == {"/etc/passwd", "/etc/group", "/tmp", "/dev", "/proc", "/sys"}
    assert elsewhere["/tmp"] == FolderEntry(0o1777)
    assert b"nobody:x:65534:65534" in getattr(elsewhere["/etc/passwd"], "content", b"")
    assert [elsewhere[place] for place in links] == [LinkEntry(cartpole.entrypoint[0])]


def test_python_the_loader_and_the_libraries_are_in_it(cartpole: ImageContents) -> None:
    loader, option, libraries, python = cartpole.entrypoint

    assert (option, libraries) == ("--library-path", f"{ROOT}/lib")
    assert python == f"{ROOT}/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    assert {loader, python, f"{ROOT}/lib/libc.so.6"} <= cartpole.tree.keys()
    assert all(entry.path.is_file() for entry in cartpole.tree.values() if isinstance(entry, FileEntry | BytecodeEntry))
    assert not cartpole.missing


def test_the_packages_that_a_worker_imports_are_in_it_and_no_server(cartpole: ImageContents) -> None:
    tops = {place.rsplit("site-packages/", 1)[-1].split("/")[0] for place in cartpole.tree if "site-packages" in place}

    assert {"proctor", "gymnasium", "numpy", "pydantic", "msgspec"} <= tops
    assert not {"uvicorn", "starlette", "mcp", "rich", "pytest", "numba", "torch", "tests"} & tops


def test_nothing_is_in_it_that_nobody_looks_into(cartpole: ImageContents) -> None:
    library = [place for place in cartpole.tree if place.startswith(f"{ROOT}/lib/python") and "-packages/" not in place]

    assert any(place.endswith("/json/decoder.py") for place in library)
    assert not [place for place in library if {"test", "idlelib", "tkinter", "ensurepip"} & set(place.split("/"))]
    assert not [place for place in library if "_tkinter" in place or place.endswith(".a")]


def test_modules_are_compiled_for_their_place(cartpole: ImageContents) -> None:
    place = next(place for place in cartpole.tree if place.endswith("/proctor/server/runtime/env_adapter.py"))
    cached = f"{place.rpartition('/')[0]}/__pycache__/env_adapter.{sys.implementation.cache_tag}.pyc"

    entry = cartpole.tree[cached]

    assert isinstance(entry, BytecodeEntry)
    assert entry.place == place


def test_an_image_is_of_a_reasonable_size(cartpole: ImageContents) -> None:
    paths = [entry.path for entry in cartpole.tree.values() if isinstance(entry, FileEntry)]

    assert sum(path.stat().st_size for path in paths) < 200 * 10**6


def test_an_environment_in_the_working_directory_goes_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_env.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    contents = collect_contents(ImageRequest("own_env:Env"))

    assert [place for place in contents.tree if place.endswith("/site-packages/own_env.py")]


def test_what_is_mounted_becomes_part_of_the_image(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "table.csv").write_text("1")

    contents = collect_contents(ImageRequest("CartPole-v1", mounts=(Mount(tmp_path), Mount(Path(__file__)))))

    assert contents.tree[str(tmp_path / "below" / "table.csv")] == FileEntry(tmp_path / "below" / "table.csv")
    assert contents.tree[__file__] == FileEntry(Path(__file__))
    with pytest.raises(ValidationError, match="no writable mounts"):
        collect_contents(ImageRequest("CartPole-v1", mounts=(Mount(tmp_path, writable=True),)))


def test_on_top_of_another_image_nothing_of_its_own_is_touched(cartpole: ImageContents) -> None:
    contents = collect_contents(ImageRequest("CartPole-v1", base="debian:12"))

    assert all(place.startswith(f"{ROOT}/") for place in contents.tree)
    assert contents.entrypoint == cartpole.entrypoint


def test_a_python_without_a_loader_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "is_elf", lambda path: False)

    with pytest.raises(ComponentError, match="no loader"):
        collect_contents(ImageRequest("CartPole-v1"))


def test_the_python_of_the_image_runs_on_this_machine_too(cartpole: ImageContents, tmp_path: Path) -> None:
    """The interpreter, the loader and the standard library alone, under another root."""
    python = cartpole.entrypoint[3]
    core = [place for place in cartpole.tree if "/site-packages/" not in place and place.startswith(ROOT)]
    for place in core:
        entry, path = cartpole.tree[place], tmp_path / place.lstrip("/")
        if isinstance(entry, FileEntry):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(entry.path)
    script = "import sys, json, ctypes, ssl, sqlite3; print(sys.prefix)"
    command = [f"{tmp_path}{cartpole.entrypoint[0]}", "--library-path", f"{tmp_path}{ROOT}/lib", f"{tmp_path}{python}"]

    done = subprocess.run([*command, "-I", "-S", "-c", script], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


# ------------------------------------------------------------------------------------------------------------- build
def test_an_image_is_written_to_a_file_without_an_engine_and_the_same_twice(tmp_path: Path) -> None:
    wish, outs = ImageRequest("CartPole-v1"), (tmp_path / "1.tar", tmp_path / "2.tar")

    first, second = (build_image(wish, SMALL, None, out, lambda: None) for out in outs)

    assert first == second
    assert outs[0].read_bytes() == outs[1].read_bytes()
    assert first.name == f"proctor-env:cartpole-v1-{first.digest[:12]}"
    assert first.size > 0
    with tarfile.open(outs[0]) as tar:
        told = json.load(tar.extractfile(f"{first.digest}.json") or pytest.fail("no description"))
    assert told["config"]["Labels"] == {"proctor.target": "CartPole-v1", "proctor.version": __version__}
    assert told["config"]["Env"] == [
        *("HOME=/tmp", "LANG=C.UTF-8", "LD_LIBRARY_PATH=/opt/proctor/lib", "PATH=/opt/proctor/bin")
    ]


def test_an_image_is_loaded_into_the_engine(tmp_path: Path) -> None:
    made = stand_in(tmp_path)

    built = build_image(ImageRequest("CartPole-v1", name="mine:1"), SMALL, made.engine, None, lambda: None)

    assert built.name == "mine:1"
    assert [line.split(" --input")[0] for line in made.asked()] == ["load --quiet"]


def test_on_a_base_the_engine_puts_the_layer_on_top_and_saves(tmp_path: Path) -> None:
    made = stand_in(tmp_path)

    built = build_image(
        ImageRequest("CartPole-v1", base="debian:12"), SMALL, made.engine, tmp_path / "out.tar", lambda: None
    )

    assert made.verbs() == ["image", "create", "cp", "commit", "rm", "save", "image"]
    assert "--pull never" in made.asked()[1]
    assert made.asked()[1].endswith("debian:12 nothing")
    assert built.name.startswith("proctor-env:cartpole-v1-")
    with tarfile.open(made.folder / "cp") as tar:
        assert tar.getnames() == ["opt", "opt/proctor", "opt/proctor/a"]


def test_a_layer_that_cannot_be_put_on_top_leaves_no_container(tmp_path: Path) -> None:
    made = stand_in(tmp_path)
    made.answers("commit", "no space left on device")

    with pytest.raises(ComponentError, match="no space"):
        build_image(ImageRequest("CartPole-v1", base="debian:12"), SMALL, made.engine, None, lambda: None)

    assert made.verbs()[-1] == "rm"


def test_an_image_on_top_starts_what_was_added_and_quotes_what_it_says() -> None:
    config = ImageConfig(("/a b", "/c"), {"LD_LIBRARY_PATH": "/x"}, {"proctor.target": 'x "y"'})

    assert dockerfile_changes(config) == [
        'LABEL "proctor.target"="x \\"y\\""',
        'ENTRYPOINT ["/a b", "/c"]',
        "CMD []",
        "USER 65534:65534",
    ]


@pytest.mark.parametrize(
    ("target", "name"),
    [("proctor/PlumeSearch-v0", "proctor-plumesearch-v0"), ("a.b:C_d", "a-b-c-d"), ("x" * 99, "x" * 60)],
)
def test_the_name_of_an_image_is_one_that_engines_take(tmp_path: Path, target: str, name: str) -> None:
    built = build_image(ImageRequest(target), SMALL, None, tmp_path / "x.tar", lambda: None)

    assert built.name == f"proctor-env:{name}-{built.digest[:12]}"
