"""Writes the pages of docs/ that are made from tables in the code; `--check` only says which are stale."""

import sys
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Final

from proctor.contracts.clauses import CLAUSES
from proctor.contracts.lifecycle import TABLE, EnvironmentState, diagram, reachable
from proctor.envs.plume.factories import Kind, component_types

DOCS: Final = Path(__file__).resolve().parent.parent / "docs"
NOTE: Final = "<!-- Made by `make docs`; edit the table in the code, not this page. -->\n"


def lifecycle_page() -> str:
    """Return the page about states and transitions."""
    rows = "".join(
        f"| {row.source} | `{row.method}()` | {row.target or 'StateError'} | {row.when or ''} | {row.rule} |\n"
        for row in TABLE
    )
    reach = "".join(
        f"- from {state}: {', '.join(sorted(reachable(state) - {state})) or 'nothing else'}\n"
        for state in EnvironmentState
    )
    return (
        f"{NOTE}\n# The lifecycle of an environment\n\n"
        "Every environment stands in one of five states, and one table says which call is legal in which. The table is\n"
        "`src/proctor/contracts/lifecycle.py`; the guard of every environment, this page and the tests are made from it.\n"
        "A refused call raises a `StateError` that names the rule, and changes nothing.\n\n"
        f"```mermaid\n{diagram()}```\n\n"
        f"| from | call | to | when | rule |\n|---|---|---|---|---|\n{rows}\n"
        "A step that both reaches the goal and uses up the last step sets both flags; the state is terminated.\n\n"
        f"## What one call can lead to\n\n{reach}"
    )


def clauses_page() -> str:
    """Return the page that lists every clause by its subject."""
    text = (
        f"{NOTE}\n# Clauses\n\n"
        "Every sentence of the contracts has an id. Errors name the clause that was broken, `proctor check` judges each\n"
        "of them, and each has a test that keeps it and one that breaks it.\n"
    )
    for subject, clauses in groupby(
        sorted(CLAUSES.values(), key=lambda clause: clause.subject), lambda clause: clause.subject
    ):
        rows = "".join(f"| {clause.id} | {clause.sentence} |\n" for clause in clauses)
        text += f"\n## {subject.capitalize()}\n\n| id | sentence |\n|---|---|\n{rows}"
    return text


def components_page() -> str:
    """Return the page that lists the component types with their options."""
    text = (
        f"{NOTE}\n# Component types\n\n"
        "What a configuration of plume search can name, with every option and its default; one without a default must be\n"
        "given. A reward's `goal_radius` is the environment's unless it is set. `proctor envs` prints the same.\n"
    )
    for kind in Kind:
        text += f"\n## {kind}\n\n| type | options |\n|---|---|\n"
        for name, options in component_types(kind).items():
            shown = ", ".join(f"`{key}`" + ("" if value is ... else f" = {value!r}") for key, value in options.items())
            text += f"| `{name}` | {shown or 'none'} |\n"
    return text


PAGES: Final[dict[str, Callable[[], str]]] = {
    "lifecycle.md": lifecycle_page,
    "clauses.md": clauses_page,
    "components.md": components_page,
}


def stale() -> list[str]:
    """Return the names of the pages that differ from what the code says."""
    return [
        name for name, make in PAGES.items() if not (DOCS / name).exists() or (DOCS / name).read_text("utf-8") != make()
    ]


def main(arguments: list[str]) -> int:
    """Write the stale pages, or with `--check` fail if there are any."""
    names = stale()
    for name in names:
        if "--check" in arguments:
            print(f"docs/{name} is stale: run `make docs`")
        else:
            (DOCS / name).write_text(PAGES[name](), "utf-8")
            print(f"wrote docs/{name}")
    return 1 if names and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
