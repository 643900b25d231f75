"""How long to wait between two attempts to connect: twice as long each time, with chance so that clients part ways."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """The first attempt comes at once; before attempt n + 1 lie `first * 2**n` seconds at most, never above `longest`.

    Chance takes away up to half of each delay.
    """

    first: float = 0.05
    longest: float = 5.0

    def delays(self, chance: Callable[[], float]) -> Iterator[float]:
        """Yield the seconds before each attempt, without end; `chance` draws from [0, 1)."""
        yield 0.0
        delay = self.first
        while True:
            yield delay * (1.0 - chance() / 2.0)
            delay = min(delay * 2.0, self.longest)
