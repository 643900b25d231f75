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


def test_every_source_of_the_highest_package_counts(package: Package) -> None:
    folder = package(
        "here", {"own_thing/__init__.py": "", "own_thing/deep/__init__.py": "", "own_thing/deep/env.py": CLASS}
    )

    before = digest_of("own_thing.deep.env")
    (folder / "own_thing" / "physics.py").write_text("x = 1")
    after = digest_of("own_thing.deep.env")
    (folder / "own_thing" / "notes.txt").write_text("no source")
    (folder / "outside.py").write_text("x = 2")

    assert before != after
    assert digest_of("own_thing.deep.env") == after


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


def test_a_folder_that_is_no_regular_package_is_never_walked(package: Package) -> None:
    folder = package("home", {"own_home/projects/env.py": CLASS, "own_home/projects/other.py": "", "own_home/x.py": ""})

    before = digest_of("own_home.projects.env")
    for name in ("own_home/x.py", "own_home/projects/other.py"):
        (folder / name).write_text("changed = True")

    assert digest_of("own_home.projects.env") == before


def test_a_regular_package_below_such_a_folder_is_walked_and_no_more(package: Package) -> None:
    folder = package("home", {"own_space/inner/__init__.py": CLASS, "own_space/x.py": "", "own_space/inner/y.py": ""})

    before = digest_of("own_space.inner")
    (folder / "own_space/x.py").write_text("changed = True")
    same = digest_of("own_space.inner")
    (folder / "own_space/inner/y.py").write_text("changed = True")

    assert before == same != digest_of("own_space.inner")


def test_a_folder_with_a_mark_above_the_package_is_not_part_of_it(package: Package) -> None:
    folder = package("marked", {"__init__.py": "", "own_marked/__init__.py": CLASS})

    before = digest_of("own_marked")
    (folder / "__init__.py").write_text("changed = True")

    assert digest_of("own_marked") == before


@pytest.mark.parametrize(
    "stranger", [".hidden/a.py", "site-packages/a.py", "node_modules/a.py", "venv/lib/a.py", "examples/a.py"]
)
def test_other_peoples_code_inside_a_package_is_not_walked(package: Package, stranger: str) -> None:
    folder = package("here", {"own_guests/__init__.py": CLASS, "own_guests/venv/pyvenv.cfg": ""})

    before = digest_of("own_guests")
    (folder / "own_guests" / stranger).parent.mkdir(parents=True, exist_ok=True)
    (folder / "own_guests" / stranger).write_text("x = 1")

    assert digest_of("own_guests") == before


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
