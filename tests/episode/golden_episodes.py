"""The goldens on disk: streams and the verdicts that the specification expects of them.

`python -m tests.episode.golden_episodes` writes `goldens/` anew from the functions in `golden_rules`,
`golden_invariants` and `golden_templates`. Every stream is judged with `LIMITS`, so that limits can be shown.
"""

from pathlib import Path
from typing import Final

import msgspec

from proctor.episode.settings import Limits
from tests.episode import golden_invariants, golden_rules, golden_templates
from tests.episode.scripts import Golden, Script

FOLDER: Final = Path(__file__).parent / "goldens"
LIMITS: Final = Limits(open_episodes=2, open_tasks=3)
TEMPLATES: Final = golden_templates.SHELF.goldens
GOLDENS: Final[dict[str, Golden]] = {**golden_rules.SHELF.goldens, **golden_invariants.SHELF.goldens, **TEMPLATES}


def stream_of(script: Script) -> bytes:
    """Return the stream as its file holds it."""
    return b"".join(line + b"\n" for line in script.lines)


def expectations_of(script: Script) -> bytes:
    """Return the expected verdicts as their file holds them, one a line."""
    rows = b",\n".join(b"  " + msgspec.json.encode(expected) for expected in script.expected)
    return b"[\n" + rows + b"\n]\n"


def files() -> dict[str, bytes]:
    """Return the content of every file of the folder, by name."""
    found: dict[str, bytes] = {}
    for name, golden in GOLDENS.items():
        script = golden.script()
        found[f"{name}.jsonl"] = stream_of(script)
        found[f"{name}.expected.json"] = expectations_of(script)
    return found


def main() -> None:
    """Write every file anew, and take away those that no function writes."""
    FOLDER.mkdir(exist_ok=True)
    written = files()
    for path in FOLDER.iterdir():
        if path.name not in written:
            path.unlink()
    for name, content in written.items():
        (FOLDER / name).write_bytes(content)


if __name__ == "__main__":
    main()
