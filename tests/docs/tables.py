"""Tables on pages, as lists of cells."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text("utf-8")


def table(text: str, head: str) -> list[list[str]]:
    """Return the rows beneath the head line that begins with `head`."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(head))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows
