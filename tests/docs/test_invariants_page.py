"""docs/invariants.md names tests and lint rules that exist, for every invariant that is present."""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests.docs.tables import ROOT, page, table

PAGE = page("invariants.md")
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
IDS = [title.partition(":")[0] for title in SECTIONS if re.match(r"[A-Z]+-\d:", title)]
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)))
RULES = sorted(set(re.findall(r"`lint: ([^`]+)`", PAGE)))


@cache
def names_in(path: Path) -> set[str]:
    """Return the functions of a file and the names that it assigns, as a state machine's test is."""
    nodes = list(ast.walk(ast.parse(path.read_text("utf-8"))))
    functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assigned = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return functions | assigned


@pytest.mark.parametrize(("file", "name"), NAMED, ids=[name for _, name in NAMED])
def test_a_test_that_the_page_names_exists(file: str, name: str) -> None:
    assert name.lower().startswith("test")
    assert name in names_in(ROOT / file)


def test_a_lint_rule_that_the_page_names_exists() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]

    assert RULES
    assert set(RULES) <= {contract["name"] for contract in contracts}


def test_every_invariant_is_held_or_said_to_be_absent() -> None:
    counts = {kind: sum(each.startswith(f"{kind}-") for each in IDS) for kind in ("API", "SEC", "ARCH")}

    assert counts == {"API": 3, "SEC": 3, "ARCH": 4}
    for text in SECTIONS.values():
        assert "| held by |" in text or "**Not yet present**" in text or text is SECTIONS["Breaking changes"]


def test_every_row_names_what_holds_and_what_it_shows() -> None:
    for text in SECTIONS.values():
        for holder, shown in table(text, "| held by |") if "| held by |" in text else []:
            assert re.fullmatch(r"`(tests/[\w/]+\.py::\w+|lint: [^`]+)`", holder)
            assert shown


def test_the_flag_that_contributors_are_shown_names_an_invariant() -> None:
    named = re.findall(r"Invariant at risk: ([A-Z]+-\d), (.+)", (ROOT / "CONTRIBUTING.md").read_text("utf-8"))

    assert [f"{number}: {title}" in SECTIONS for number, title in named] == [True]
