"""What an environment needs is found in metadata and in source, and nothing of it is imported for that."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import Distribution, PackageNotFoundError, PathDistribution
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import ValidationError
from proctor.server.sandbox.container import distributions
from proctor.server.sandbox.container.distributions import (
    ONLY_SERVERS,
    Requirement,
    find_dependencies,
    find_distribution_files,
    find_module_files,
    find_module_path,
    find_source,
    parse_imports,
    resolve_requirements,
)


def installed(folder: Path, name: str, *requires: str, files: tuple[str, ...] = (), url: str = "{}") -> Distribution:
    """Return a distribution as an installer leaves it."""
    about = folder / f"{name}-1.dist-info"
    about.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", "Version: 1", *(f"Requires-Dist: {each}" for each in requires)]
    (about / "METADATA").write_text("\n".join(lines) + "\n")
    (about / "direct_url.json").write_text(url)
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("# a file\n")
    if files:
        (about / "RECORD").write_text("".join(f"{file},,\n" for file in (*files, f"{about.name}/METADATA")))
    return PathDistribution(about)


def shelf(*found: Distribution) -> Callable[[str], Distribution]:
    """Return a lookup that knows these distributions only."""
    by_name = {each.metadata["Name"]: each for each in found}

    def find(name: str) -> Distribution:
        if name not in by_name:
            raise PackageNotFoundError(name)
        return by_name[name]

    return find


# ------------------------------------------------------------------------------------------------------ requirements
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("numpy>=1.26", Requirement("numpy")),
        ("Typing_Extensions (>=4)", Requirement("typing-extensions")),
        ("uvicorn[Standard, http2]", Requirement("uvicorn", frozenset({"standard", "http2"}))),
        ("numba>=0.6; extra == 'vector'", Requirement("numba", guards=frozenset({"vector"}), marked=True)),
        ('tomli; python_version < "3.11"', Requirement("tomli", marked=True)),
        ("thing @ https://example.org/thing.whl", Requirement("thing")),
    ],
)
def test_a_requirement_is_read_as_metadata_writes_it(text: str, expected: Requirement) -> None:
    assert Requirement.parse(text) == expected


@given(st.text(max_size=40))
def test_any_text_is_a_requirement_or_is_refused(text: str) -> None:
    with suppress(ValidationError):
        found = Requirement.parse(text)

        assert found.name
        assert found.name == found.name.lower()


def test_what_is_required_goes_along_and_what_an_extra_guards_only_if_it_is_asked_for(tmp_path: Path) -> None:
    find = shelf(
        installed(tmp_path, "env", "engine[fast]", "old; python_version < '3'", "gone", "odd; extra == 'more'"),
        installed(tmp_path, "engine", "speed; extra == 'fast'", "docs; extra == 'docs'", "env"),
        *(installed(tmp_path, name) for name in ("speed", "docs", "odd")),
    )

    found, missing = resolve_requirements([Requirement("env")], find)

    assert sorted(found) == ["engine", "env", "speed"]
    assert missing == ["gone"]


def test_of_proctor_only_what_a_worker_imports_goes_along(tmp_path: Path) -> None:
    names = ("numpy", "uvicorn", "rich")
    find = shelf(installed(tmp_path, "proctor", *names), *(installed(tmp_path, name) for name in names))

    found, _ = resolve_requirements([Requirement("proctor")], find)
    asked, _ = resolve_requirements([Requirement("proctor"), Requirement("rich")], find)

    assert sorted(found) == ["numpy", "proctor"]
    assert sorted(asked) == ["numpy", "proctor", "rich"]
    assert {"uvicorn", "rich"} < ONLY_SERVERS


# ----------------------------------------------------------------------------------------------------------- what a source names
SOURCE = b"""
import os, numpy.linalg as algebra
from . import beside
from ..above import one
from far.away import *
try:
    import box
except ImportError:
    import spare
class Thing:
    import inner
def later():
    import lazy
"""


def test_imports_are_read_from_the_source() -> None:
    at_once = parse_imports(SOURCE, "mine.below", deep=False)

    assert at_once >= {"os", "numpy.linalg", "mine.below.beside", "mine.above", "mine.above.one", "far.away"}
    assert at_once >= {"box", "spare", "inner"}
    assert parse_imports(SOURCE, "mine.below", deep=True) - at_once == {"lazy"}


@given(st.binary(max_size=60))
def test_a_source_that_is_none_imports_nothing_and_is_no_mistake(text: bytes) -> None:
    assert all(parse_imports(text, "a", deep=True))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that modules are found in, with modules that must not be imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    trap = "raise SystemExit('imported')\n"
    (tmp_path / "loose_env.py").write_text(f"{trap}import loose_helper, msgspec, json\n")
    (tmp_path / "loose_helper.py").write_text(trap)
    package = tmp_path / "loose_package"
    (package / "below" / "__pycache__").mkdir(parents=True)
    (package / ".hidden").mkdir()
    for name, text in {
        "__init__.py": f"{trap}import loose_helper\n",
        "below/__init__.py": trap,
        "below/env.py": f"{trap}from . import near\n",
        "below/near.py": f"{trap}def f():\n    import gymnasium\n",
        "below/never.py": "import hypothesis\n",
        "below/__pycache__/env.pyc": "",
        "below/table.csv": "1\n",
        ".hidden/key": "secret\n",
    }.items():
        (package / name).write_text(text)
    return tmp_path


def test_a_module_of_nobody_goes_along_with_what_it_imports(folder: Path) -> None:
    needs = find_dependencies("loose_env")

    assert needs.loose == {"loose_env": folder / "loose_env.py", "loose_helper": folder / "loose_helper.py"}
    assert {"proctor", "numpy", "msgspec", "pydantic"} <= needs.distributions.keys()
    assert not {"uvicorn", "hypothesis"} & needs.distributions.keys()
    assert "loose_env" not in sys.modules


def test_a_package_goes_along_whole_but_only_what_the_target_reaches_counts(folder: Path) -> None:
    needs = find_dependencies("loose_package.below.env")

    assert needs.loose.keys() == {"loose_package", "loose_helper"}
    assert "hypothesis" not in needs.distributions
    assert sorted(place for place, _ in find_module_files(needs.loose["loose_package"])) == [
        "loose_package/__init__.py",
        "loose_package/below/__init__.py",
        "loose_package/below/env.py",
        "loose_package/below/near.py",
        "loose_package/below/never.py",
        "loose_package/below/table.csv",
    ]


def test_an_installed_module_is_not_searched_beyond_what_it_imports_at_once() -> None:
    needs = find_dependencies("gymnasium.envs.classic_control.cartpole")

    assert not needs.loose
    # It imports pygame only when it draws.
    assert "pygame" not in needs.distributions
    assert "pygame" in find_dependencies("gymnasium.envs.classic_control.cartpole", ["pygame"]).distributions


def test_what_is_asked_for_by_name_has_to_be_there() -> None:
    with pytest.raises(ValidationError, match="not installed"):
        find_dependencies("gymnasium", ["no-such-distribution"])
    with pytest.raises(ValidationError, match="names no distribution"):
        find_dependencies("gymnasium", ["-"])


@pytest.mark.parametrize("module", ["no_such_module_at_all", "no_such_module.env", "", "."])
def test_a_target_without_a_module_is_refused(module: str) -> None:
    with pytest.raises(ValidationError, match="cannot find"):
        find_dependencies(module)


def test_a_module_is_found_by_its_path(folder: Path) -> None:
    assert find_source("loose_package.below") == folder / "loose_package" / "below" / "__init__.py"
    assert find_source("loose_package.below.near") == folder / "loose_package" / "below" / "near.py"
    assert find_source("loose_package.nowhere") is None
    assert find_source("loose_env") == folder / "loose_env.py"
    assert find_module_path("sys") is None


# ------------------------------------------------------------------------------------------------------------- files
def test_a_distribution_is_its_files_below_site_packages(tmp_path: Path) -> None:
    files = ("thing/__init__.py", "thing/__pycache__/x.pyc", "thing.pth", "../outside.txt")
    found = installed(tmp_path / "site", "thing", files=files)
    (tmp_path / "site" / "thing.pth").unlink()

    assert [place for place, _ in find_distribution_files(found)] == ["thing/__init__.py", "thing-1.dist-info/METADATA"]


def test_an_editable_distribution_is_its_module_and_not_the_path_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "source" / "odd_thing").mkdir(parents=True)
    (tmp_path / "source" / "odd_thing" / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path / "source"))
    found = installed(
        tmp_path / "site", "Odd-Thing", files=("_odd.pth",), url='{"dir_info": {"editable": true}, "url": "file:///x"}'
    )

    assert [place for place, _ in find_distribution_files(found)] == [
        "Odd-Thing-1.dist-info/METADATA",
        "odd_thing/__init__.py",
    ]


def test_a_distribution_without_a_list_of_files_is_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distributions, "find_module_path", {"thing": tmp_path / "thing.py"}.get)
    (tmp_path / "thing.py").write_text("")
    found = installed(tmp_path, "Thing")
    (tmp_path / "Thing-1.dist-info" / "top_level.txt").write_text("thing\nother\n")

    assert list(find_distribution_files(found)) == [("thing.py", tmp_path / "thing.py")]


def test_this_proctor_can_be_taken_along() -> None:
    places = {place for place, _ in find_distribution_files(find_dependencies("proctor").distributions["proctor"])}

    assert {"proctor/__init__.py", "proctor/server/sandbox/worker/stdio_worker.py", "proctor/envs/targets.py"} <= places
