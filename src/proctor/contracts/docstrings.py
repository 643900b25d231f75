"""What a docstring says of each argument, in Google's style: a section `Args:` with a line or more for each name."""

import re
from collections.abc import Iterator
from typing import Final

HEADING: Final = re.compile(r"(?:Args|Arguments|Parameters):\s*")
ENTRY: Final = re.compile(r"(\s+)\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)")


def described_arguments(doc: str) -> Iterator[tuple[str, str]]:
    """Yield each argument with its description, from a docstring that `inspect.cleandoc` has cleaned."""
    name, text, margin = "", "", ""
    for line in _section(doc):
        entry = ENTRY.fullmatch(line)
        # What is indented deeper than the first name goes on with the description above it.
        if entry and (not margin or entry[1] == margin):
            if name:
                yield name, text
            margin, name, text = entry[1], entry[2], entry[3]
        else:
            text = f"{text} {line.strip()}".strip()
    if name:
        yield name, text


def _section(doc: str) -> Iterator[str]:
    """Yield the lines below the heading that are indented."""
    inside = False
    for line in doc.splitlines():
        if inside and line and not line[0].isspace():
            return
        if inside and line.strip():
            yield line.rstrip()
        inside = inside or HEADING.fullmatch(line) is not None
