"""The repository keeps the promises that its pages and targets make."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet

from tools.coverage_gate import Tally, main, room_of

ROOT = Path(__file__).resolve().parents[2]
TARGETS = ["setup", "check", "test", "test-system", "bench", "demo", "docs", "clean", "help"]
EXTRAS = ["serve", "all", "vector", "train", "video", "human", "plot", "movies", "export", "otel", "dev"]
FILE_NAME = re.compile(r"(?<![\w*./<-])[\w.][\w./-]*\.(?:py|md|toml|ya?ml|json)\b(?![\w(])")
FOLDER_NAME = re.compile(r"`((?:src|docs|tests|bench|tools|\.ci)/[\w./-]*)`")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads(read("pyproject.toml"))["project"]
    return table


def named_paths(text: str) -> set[str]:
    """Return every file or folder that a page names, in prose, in links and in drawings."""
    prose = re.sub(r"https?://\S+", "", text)
    return set(FILE_NAME.findall(prose)) | set(FOLDER_NAME.findall(prose))


def exists(name: str) -> bool:
    """Return whether a named path is there: from the root, from docs/, inside the package, or, bare, anywhere in it."""
    if any((ROOT / start / name).exists() for start in ("", "docs", "src", "src/proctor")):
        return True
    return "/" not in name and any(any((ROOT / top).rglob(name)) for top in ("src", "tests", "bench", "tools", "docs"))


@pytest.mark.parametrize("extra", EXTRAS)
def test_every_promised_extra_is_declared(extra: str) -> None:
    extras = project()["optional-dependencies"]

    assert extras[extra]


def test_the_makefile_installs_a_build_of_torch_that_the_extra_takes() -> None:
    [wanted] = [each for each in project()["optional-dependencies"]["train"] if each.startswith("torch")]
    [pinned] = re.findall(r"^TORCH := torch==(\S+)$", read("Makefile"), re.MULTILINE)

    assert SpecifierSet(wanted.removeprefix("torch")).contains(pinned)


@pytest.mark.parametrize("library", ["uvicorn", "httptools", "websockets", "mcp"])
def test_a_library_whose_inner_parts_are_used_has_an_upper_bound(library: str) -> None:
    wanted = [*project()["dependencies"], *project()["optional-dependencies"]["serve"]]
    [requirement] = [each for each in wanted if each.startswith(library)]

    assert ",<" in requirement


def test_the_entry_points_name_functions_that_exist() -> None:
    named = [*project()["scripts"].values(), *project()["entry-points"]["gymnasium.envs"].values()]

    for module, _, function in (entry.partition(":") for entry in named):
        source = read(f"src/{module.replace('.', '/')}.py")
        assert re.search(rf"^(def {function}\(|{function}\b.* = )", source, re.MULTILINE), f"{module} has no {function}"


@pytest.mark.parametrize("target", TARGETS)
def test_the_makefile_has_every_promised_target(target: str) -> None:
    rule = re.compile(rf"^{target}:.*## \w", re.MULTILINE)

    assert rule.search(read("Makefile"))


def test_the_gate_runs_check_then_test_then_test_system() -> None:
    calls = re.findall(r"^make (\S+)$", read(".ci/run"), re.MULTILINE)

    assert calls == ["check", "test", "test-system"]
    assert os.access(ROOT / ".ci/run", os.X_OK)


def test_the_architecture_page_names_only_files_that_exist() -> None:
    names = named_paths(read("docs/architecture.md"))
    missing = sorted(name for name in names if not exists(name))

    assert names
    assert missing == []


def test_the_readme_opens_with_the_two_commands_to_try() -> None:
    opening = "\n".join(read("README.md").splitlines()[:25])

    assert "make demo" in opening
    assert "make test" in opening


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("`src/proctor/errors.py` and [why](decisions.md)", {"src/proctor/errors.py", "decisions.md"}),
        ("├── lifecycle.py   the table", {"lifecycle.py"}),
        ("the folder `src/proctor/envs/`", {"src/proctor/envs/"}),
        ("`gym.make`, `proctor/PlumeSearch-v0`, `*.md`, https://example.org/a.md", set()),
    ],
)
def test_a_page_is_searched_for_the_paths_it_names(text: str, names: set[str]) -> None:
    assert named_paths(text) == names


@given(covered=st.integers(0, 10**6), missed=st.integers(0, 10**6), floor=st.integers(0, 100))
def test_a_room_reaches_a_floor_exactly_when_its_share_does(covered: int, missed: int, floor: int) -> None:
    room = Tally(covered=covered, total=covered + missed)

    assert room.reaches(floor) == (covered * 100 >= floor * (covered + missed))
    assert not (missed and room.reaches(100))


@pytest.mark.parametrize(
    ("path", "room"),
    [
        ("src/proctor/errors.py", "errors"),
        ("src/proctor/contracts/lifecycle.py", "contracts"),
        ("src/proctor/__init__.py", "proctor"),
        ("elsewhere/proctor/src/proctor/envs/plume/env.py", "envs"),
    ],
)
def test_a_file_counts_for_the_room_it_lies_in(path: str, room: str) -> None:
    assert room_of(path) == room


def report_with(room: str, covered: int, total: int) -> str:
    summary = f'{{"covered_lines": {covered}, "num_statements": {total}, "covered_branches": 0, "num_branches": 0}}'
    missing = list(range(total - covered))
    return f'{{"files": {{"src/proctor/{room}/a.py": {{"summary": {summary}, "missing_lines": {missing}}}}}}}'


@pytest.mark.parametrize(
    ("room", "covered", "code"), [("contracts", 99, 1), ("contracts", 100, 0), ("envs", 90, 0), ("envs", 89, 1)]
)
def test_the_gate_fails_only_below_the_floor(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], room: str, covered: int, code: int
) -> None:
    report = tmp_path / "coverage.json"
    report.write_text(report_with(room, covered, 100), encoding="utf-8")

    assert main([str(report)]) == code
    assert (f"room `{room}` is below its floor" in capsys.readouterr().err) == bool(code)


@pytest.mark.parametrize("content", [None, '{"files": {}}'])
def test_a_report_without_the_package_never_passes(tmp_path: Path, content: str | None) -> None:
    report = tmp_path / "coverage.json"
    if content is not None:
        report.write_text(content, encoding="utf-8")

    assert main([str(report)]) == 1
