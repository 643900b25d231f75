"""The viewer's modules are modules, and what is pure in them does what it should: Node runs their tests.

Rule: they run in a copy of the tree in which `package.json` says what a browser takes for granted, that `.js` is a module.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from proctor import viewer
from tests.system import programs

pytestmark = pytest.mark.system

MODULES = Path(viewer.__file__).parent / "static" / "js"
TESTS = Path(__file__).parent / "js"
COPIES = {MODULES: "src/proctor/viewer/static/js", TESTS: "tests/viewer/js"}
NAMES = sorted(path.name for path in TESTS.glob("*.test.mjs"))
SECONDS = 60


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for folder, place in COPIES.items():
        shutil.copytree(folder, tmp_path / place)
    (tmp_path / "package.json").write_text('{"type": "module"}', "utf-8")
    return tmp_path


def node(tree: Path, *arguments: str) -> str:
    """Return what Node says; empty if it is content."""
    command = [*programs.node(), *arguments]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=SECONDS, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_there_is_something_to_run() -> None:
    assert "dom.test.mjs" in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_tests_of_javascript_pass(tree: Path, name: str) -> None:
    assert node(tree, "--test", f"{COPIES[TESTS]}/{name}") == ""


def test_every_module_can_be_read(tree: Path) -> None:
    found = {path.name: node(tree, "--check", str(path)) for path in sorted((tree / COPIES[MODULES]).glob("*.js"))}

    assert "main.js" in found
    assert {name: said for name, said in found.items() if said} == {}
