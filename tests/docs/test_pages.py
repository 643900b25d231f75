"""The pages tell the truth: generated ones are fresh, code blocks and examples run, links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.contracts.lifecycle import diagram
from tools import make_docs

ROOT = Path(__file__).resolve().parents[2]
SERVING = ("client.md", "serving.md", "control-protocol.md")
"""Pages whose code starts servers."""
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")])
# Training needs the extra `train`: tests/system/test_train_popper.py runs it. The presets take minutes: test_reward_figures.py.
LONG = {ROOT / "examples/train_popper.py", ROOT / "examples/reward_presets.py"}
# An agent needs a grant: tests/examples/test_governed_agent.py gives it one.
GRANTED = {ROOT / "examples/governed_agent.py"}
EXAMPLES = sorted(set((ROOT / "examples").glob("*.py")) - LONG - GRANTED)


def code_blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def test_no_generated_page_is_stale() -> None:
    assert make_docs.stale() == []


def test_the_lifecycle_page_shows_the_diagram_of_the_table() -> None:
    assert diagram() in (ROOT / "docs/lifecycle.md").read_text("utf-8")


def test_a_stale_page_is_named_and_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(make_docs, "DOCS", tmp_path)

    assert make_docs.main(["--check"]) == 1
    assert "docs/lifecycle.md is stale" in capsys.readouterr().out
    assert make_docs.main([]) == 0
    assert make_docs.main(["--check"]) == 0


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] if page.name in SERVING else [], id=page.name)
        for page in PAGES
        if code_blocks(page)
    ],
)
def test_the_code_on_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from proctor.envs.plume import config

    # What a page registers is forgotten after it.
    monkeypatch.setattr(config, "_REGISTRY", {kind: dict(known) for kind, known in config._REGISTRY.items()})
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": page.stem}
    for block in code_blocks(page):
        exec(compile(block, page.name, "exec"), namespace)  # the pages of this repository, as a reader would run them


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text("utf-8"))

    assert [link for link in links if not (page.parent / link).exists()] == []


def anchors(page: Path) -> set[str]:
    """Return what a link can name on a page: its headings, as they are shown in addresses."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_heading_finds_it(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text("utf-8"))

    assert [anchor for name, anchor in links if anchor not in anchors(page.parent / name if name else page)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_holds_a_placeholder(page: Path) -> None:
    assert re.findall(r"^[A-Z]+(?:_[A-Z]+)+$", page.read_text("utf-8"), re.MULTILINE) == []
