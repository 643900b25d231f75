"""Checks the names of `src`: what functions are called, and that a class's name is good for one class.

    python tools/check_names.py                 # what `make check` runs
    python tools/check_names.py --list PATH     # every name below PATH that it would have another one for

Rule 1: a function is not called by a participle. The exceptions stand in `tools/participles.txt`, each with its reason, and are at most
    `MOST_PARTICIPLES` of all functions. Properties are facts and not asked; neither are names that the standard library gives.
Rule 2: no two public classes have one name, in all of `src`.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "proctor"
ALLOWED = ROOT / "tools" / "participles.txt"
MOST_PARTICIPLES = 0.02

IRREGULAR = frozenset(
    (
        "begun",
        "bound",
        "broken",
        "brought",
        "built",
        "bought",
        "caught",
        "chosen",
        "come",
        "cut",
        "done",
        "drawn",
        "driven",
        "dropt",
        "fallen",
        "fed",
        "felt",
        "fetched",
        "forgotten",
        "found",
        "frozen",
        "given",
        "gone",
        "grown",
        "handed",
        "heard",
        "held",
        "hidden",
        "kept",
        "known",
        "laid",
        "led",
        "left",
        "lent",
        "lost",
        "made",
        "meant",
        "met",
        "paid",
        "put",
        "seen",
        "sent",
        "set",
        "shown",
        "shut",
        "split",
        "spent",
        "spoken",
        "stood",
        "stolen",
        "struck",
        "sworn",
        "swept",
        "taken",
        "taught",
        "thought",
        "thrown",
        "told",
        "torn",
        "understood",
        "undone",
        "won",
        "worn",
        "wound",
        "woken",
        "written",
    )
)
"""Participles that do not end with `ed`; those that are verbs in the same form are taken out below."""
VERBS = frozenset(("put", "set", "cut", "shut", "split", "come", "wound", "bound"))
NO_PARTICIPLES = frozenset(
    (
        "bleed",
        "breed",
        "embed",
        "exceed",
        "feed",
        "heed",
        "need",
        "proceed",
        "red",
        "seed",
        "shed",
        "shred",
        "speed",
        "succeed",
        "weed",
    )
)
PREDICATES = frozenset(("is", "are", "was", "has", "have", "had", "may", "can", "needs", "wants", "should", "on", "as"))


@dataclass(frozen=True, slots=True)
class Function:
    """A function or method, and where it stands."""

    path: str
    line: int
    name: str

    @property
    def key(self) -> str:
        """How the list of exceptions names it."""
        return f"{self.path}:{self.name}"


def is_participle(word: str) -> bool:
    """Return whether a word is a past participle and no verb of the same form."""
    if word in NO_PARTICIPLES or word in VERBS:
        return False
    return word in IRREGULAR or bool(re.fullmatch(r"\w{2,}ed", word))


def is_named_by_participle(name: str) -> bool:
    """Return whether the first word of a function's name is a participle, or the last one of several."""
    words = [word for word in name.strip("_").lower().split("_") if word]
    if not words or words[0] in PREDICATES:
        return False
    return is_participle(words[0]) or is_participle(words[-1])


def functions(path: Path) -> Iterator[Function]:
    """Yield the functions and methods of a file that are not properties."""
    place = path.relative_to(SOURCE).as_posix()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_property(node):
            yield Function(place, node.lineno, node.name)


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    words = {part for decorator in node.decorator_list for part in ast.unparse(decorator).split(".")}
    return bool(words & {"property", "cached_property", "setter", "override"})


def public_classes(path: Path) -> Iterator[tuple[str, str]]:
    """Yield name and place of the public classes of a file's top level."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name, f"{path.relative_to(SOURCE).as_posix()}:{node.lineno}"


def same_names(paths: list[Path]) -> dict[str, list[str]]:
    """Return the places of each name that several public classes have."""
    places = defaultdict(list)
    for path in paths:
        for name, place in public_classes(path):
            places[name].append(place)
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}


def allowed() -> dict[str, str]:
    """Return the exceptions, each with its reason."""
    if not ALLOWED.exists():
        return {}
    lines = (line.partition("#") for line in ALLOWED.read_text(encoding="utf-8").splitlines() if line.strip())
    return {key.strip(): reason.strip() for key, _, reason in lines if key.strip()}


def main(arguments: list[str] | None = None) -> int:
    """Print what is wrong with the names; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", type=Path, metavar="PATH", help="list all names below PATH that are not allowed for")
    given = parser.parse_args(arguments)
    paths = sorted(SOURCE.rglob("*.py"))
    every = [function for path in paths for function in functions(path)]
    exceptions = allowed()
    participles = [function for function in every if is_named_by_participle(function.name)]
    if given.list is not None:
        below = given.list.resolve().relative_to(SOURCE).as_posix()
        found = [f for f in participles if f.path.startswith(below) and f.key not in exceptions]
        print(*(f"{f.path}:{f.line}: {f.name}" for f in found), sep="\n")
        for name, places in same_names(paths).items():
            if any(place.startswith(below) for place in places):
                print(f"class {name}: {', '.join(places)}")
        return 0
    findings = [
        f"{f.path}:{f.line}: `{f.name}` is a participle: name a function by what it does, or put it on the list with its reason"
        for f in participles
        if f.key not in exceptions
    ]
    findings += [
        f"tools/participles.txt: {key} is not there" for key in exceptions.keys() - {f.key for f in participles}
    ]
    findings += [f"tools/participles.txt: {key} has no reason" for key, reason in exceptions.items() if not reason]
    most = int(MOST_PARTICIPLES * len(every))
    if len(exceptions) > most:
        findings.append(
            f"tools/participles.txt: {len(exceptions)} functions, at most {most} of {len(every)} may be there"
        )
    findings += [
        f"class {name} is there more than once: {', '.join(places)}" for name, places in same_names(paths).items()
    ]
    print(*findings, sep="\n", end="\n" if findings else "")
    print(f"names: {len(every)} functions, {len(exceptions)} exceptions, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
