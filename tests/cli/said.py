"""What a command answered."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Said:
    """What the command answered."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        """Its lines of JSON."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Said]


def assert_mistake(said: Said, *words: str) -> None:
    """Hold an answer to what a user's mistake gets: one line that says these words, and nothing else."""
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("proctor: ")
    assert said.err.count("\n") == 1
    assert all(word in said.err for word in words)
