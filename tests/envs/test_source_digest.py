"""The digest of an environment's source changes with the source, and with nothing else."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from hypothesis import given
from hypothesis import strategies as st

import proctor
from proctor.envs import targets
from proctor.envs.targets import Target, digest_class, digest_environment
from tests.replay.environments import Adding

CLASS = "class Thing: pass\n"
Package = Callable[[str, dict[str, str]], Path]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Package]:
    """Write modules below a folder that can be imported from; nothing stays imported."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)

    def put(root: str, files: dict[str, str]) -> Path:
        folder = tmp_path / root
        for name, text in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, "utf-8")
        sys.path.insert(0, str(folder))
        return folder

    yield put
    for name in set(sys.modules) - before:
        del sys.modules[name]


def digest_of(module: str) -> str:
    targets._digest.cache_clear()
    sys.modules.pop(module, None)
    return digest_class(import_module(module).Thing)


def test_environments_of_one_package_share_a_digest_and_others_do_not() -> None:
    plume, popper, cart = (
        digest_environment(Target(text).make())
        for text in ("proctor/PlumeSearch-v0", "proctor/ColumnPopper-v0", "CartPole-v1")
    )

    assert plume == popper
    assert len({plume, cart, ""}) == 3
    assert len(plume) == len(cart) == 64


def test_the_wrapped_environment_counts_not_the_wrapper() -> None:
    thing = Target("CartPole-v1").make()

    assert digest_environment(thing) == digest_class(type(gym.make("CartPole-v1").unwrapped))


def test_a_module_without_a_package_is_its_own_file_alone() -> None:
    file = Path(sys.modules[Adding.__module__].__file__ or "")
    content = file.read_bytes()

    digest = sha256(f"{file.name}\0{len(content)}\0".encode() + content).hexdigest()

    assert digest_environment(Adding()) == digest


STRANGERS = [f"own/{name}/a.py" for name in (".hidden", "site-packages", "node_modules", "venv/lib", "examples")]


@pytest.mark.parametrize(
    ("module", "files", "outside", "inside"),
    [
        ("own.deep.env", ["own/__init__.py", "own/deep/__init__.py"], ["own/notes.txt", "outside.py"], "own/x.py"),
        ("own.projects.env", [], ["own/x.py", "own/projects/other.py"], "own/projects/env.py"),
        ("own.inner", ["own/inner/__init__.py"], ["own/x.py"], "own/inner/y.py"),
        ("own", ["__init__.py", "own/__init__.py"], ["__init__.py"], "own/x.py"),
        ("own", ["own/__init__.py", "own/venv/pyvenv.cfg"], STRANGERS, "own/__init__.py"),
    ],
    ids=["highest package", "no regular package", "package below such a folder", "mark above", "other people's code"],
)
def test_every_source_of_the_highest_regular_package_counts_and_nothing_else(
    package: Package, module: str, files: list[str], outside: list[str], inside: str
) -> None:
    place = module.replace(".", "/")
    folder = package(
        "here", dict.fromkeys([*files, *([] if f"{place}/__init__.py" in files else [f"{place}.py"])], CLASS)
    )
    before = digest_of(module)
    for name in outside:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("changed = True")

        assert digest_of(module) == before

    (folder / inside).write_text(f"{CLASS}changed = True")
    assert digest_of(module) != before


def test_a_file_that_is_renamed_is_another_source(package: Package) -> None:
    folder = package("here", {"own_names/__init__.py": CLASS, "own_names/a.py": "x = 1"})

    before = digest_of("own_names")
    (folder / "own_names" / "a.py").rename(folder / "own_names" / "b.py")

    assert digest_of("own_names") != before


def test_the_place_of_a_package_says_nothing(package: Package) -> None:
    files = {"own_place/__init__.py": CLASS, "own_place/b.py": "x = 1", "own_place/a.py": "y = 1"}
    package("here", files)
    here = digest_of("own_place")

    package("there", dict(reversed(files.items())))

    assert digest_of("own_place") == here


@pytest.mark.system
def test_a_wheel_has_the_digest_of_the_checkout_that_it_was_built_from(tmp_path: Path) -> None:
    checkout = Path(proctor.__file__).parents[2]
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(checkout)]
    subprocess.run(command, timeout=600, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")

    assert (tmp_path / "site/proctor/examples/governed_agent.py").is_file()
    assert targets._digest(tmp_path / "site/proctor") == targets._digest(checkout / "src/proctor") != ""


def test_a_link_to_a_folder_is_not_followed(package: Package, tmp_path: Path) -> None:
    folder = package("here", {"own_links/__init__.py": CLASS})
    before = digest_of("own_links")

    (folder / "own_links" / "up").symlink_to(tmp_path, target_is_directory=True)

    assert digest_of("own_links") == before


def test_too_many_files_are_no_environment(package: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "MOST_FILES", 2)
    package("here", {f"own_many/{name}.py": CLASS for name in ("__init__", "a", "b")})

    assert digest_of("own_many") == ""


def test_a_file_that_cannot_be_read_any_more_gives_no_digest(package: Package) -> None:
    folder = package("here", {"own_gone/__init__.py": CLASS, "own_gone/a.py": ""})
    (folder / "own_gone" / "b.py").symlink_to(folder / "nowhere.py")

    assert digest_of("own_gone") == ""


@pytest.mark.parametrize("module", ["builtins", "no_such_module", "numpy._core._multiarray_umath"])
def test_without_a_source_there_is_no_digest(module: str) -> None:
    assert digest_class(type("Thing", (), {"__module__": module})) == ""


@given(st.dictionaries(st.sampled_from("abcdef"), st.binary(max_size=8), min_size=1))
def test_any_change_of_any_file_changes_the_digest(tmp_path_factory: Any, files: dict[str, bytes]) -> None:
    folder = tmp_path_factory.mktemp("any")
    for name, content in files.items():
        (folder / f"{name}.py").write_bytes(content)
    targets._digest.cache_clear()
    before = targets._digest(folder)

    name = min(files)
    (folder / f"{name}.py").write_bytes(files[name] + b"#")
    kept = targets._digest(folder)
    targets._digest.cache_clear()

    assert kept == before != targets._digest(folder)
