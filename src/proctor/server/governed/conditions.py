"""When an agent must ask first: conditions of a policy such as `write at HIGH stakes`, read and held against what is done.

Rule: a condition is about what an agent is about to do (`act`: to decide so; `write`: to use a tool that acts) and about the
stakes at which it does so; a level means that level or a higher one.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from proctor.episode.kinds import Level
from proctor.errors import ValidationError

_SHAPE: Final = re.compile(r"(?P<deed>\w+) at (?P<level>\w+) stakes")
LEVELS: Final = tuple(Level)


class Deed(StrEnum):
    """What an agent is about to do."""

    ACT = "act"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class Condition:
    """Something that an agent may do only after an operator has answered."""

    deed: Deed
    level: Level

    def __str__(self) -> str:
        return f"{self.deed} at {self.level} stakes"

    def holds(self, deed: Deed, level: Level) -> bool:
        """Return whether it is about this deed, at stakes of this level."""
        return deed is self.deed and LEVELS.index(level) >= LEVELS.index(self.level)


def condition_of(text: str) -> Condition:
    """Return the condition that a text says, or raise a ValidationError."""
    found = _SHAPE.fullmatch(" ".join(text.split()))
    if found is not None and found["deed"] in tuple(Deed) and found["level"] in LEVELS:
        return Condition(Deed(found["deed"]), Level(found["level"]))
    raise ValidationError(
        "this is no condition for an escalation",
        found=text,
        expected=f"`{' or '.join(Deed)} at {', '.join(LEVELS)} stakes`",
    )
