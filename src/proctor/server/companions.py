"""Who goes with an episode to its end, and what is said of it then."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What is said of an episode when it is closed: the judge's outcome, the state it was in and what was still open."""

    outcome: str | None = None
    state: str | None = None
    obligations: tuple[str, ...] = ()


class Companion(Protocol):
    """Who goes with an episode to its end: the judge of a governed one."""

    async def conclude(self, reason: str) -> Conclusion:
        """Say the last words, which go on record before the episode is closed; called once, in the session's turn."""
        ...
