"""Finds the words that the project does not use: in module names, in class names and in tracked files.

Rule 1: `MODULES` and `CLASS_ENDINGS` hold in `src`; `TEXTS` hold in every file that git tracks or would track.
Rule 2: a finding names file, line and reason; there is no list of exceptions.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

MODULES = {"utils", "helpers", "common", "core", "base", "manager"}
CLASS_ENDINGS = ("Manager", "Helper", "Util", "Utils", "Base", "Data", "Info")
TEXTS = {
    "a package registry's host name": re.compile(
        r"pypi\.org|pythonhosted\.org|download\.pytorch\.org|registry\.npmjs\.org|conda\.anaconda\.org"
    ),
    "a path of one machine": re.compile(r"(?<![\w.~$}/*-])/(?:work|root|home|Users|opt/pypi[\w-]*|opt/wheels)/"),
}


def tracked() -> list[Path]:
    """Return the files that git tracks or would track."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    paths = {ROOT / name for name in listing.split("\0") if name}
    return sorted(path for path in paths if path.is_file())


def bad_texts(path: Path) -> Iterator[str]:
    """Yield one finding for each line of a text file that holds a forbidden text."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return
    for number, line in enumerate(lines, start=1):
        for reason, pattern in TEXTS.items():
            if pattern.search(line):
                yield f"{path.relative_to(ROOT)}:{number}: {reason}"


def bad_names(path: Path) -> Iterator[str]:
    """Yield one finding for each module or class name of `src` that says nothing."""
    place = path.relative_to(ROOT)
    for part in place.with_suffix("").parts:
        if part in MODULES:
            yield f"{place}:1: a module named `{part}` says nothing about what it holds"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef) and node.name.endswith(CLASS_ENDINGS):
            yield f"{place}:{node.lineno}: the last word of class `{node.name}` says nothing"


def main() -> int:
    """Print every finding; return the exit code."""
    try:
        files = tracked()
    except (OSError, subprocess.CalledProcessError):
        print("check_words: not a git checkout, so only names in src were looked at", file=sys.stderr)
        files = []
    findings = [finding for path in files for finding in bad_texts(path)]
    findings += [finding for path in sorted(ROOT.glob("src/**/*.py")) for finding in bad_names(path)]
    print(*findings, sep="\n", end="\n" if findings else "")
    print(f"words: {len(files)} files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
