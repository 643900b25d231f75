"""How a client behaves: how long it waits, how often it tries to connect, and how arrays travel."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields

from proctor.errors import ValidationError


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


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """All times are in seconds; a time that is not positive is refused."""

    connect_timeout: float = 10.0
    """For the handshake, and again for what is said first."""
    request_timeout: float = 60.0
    """For one request, a reconnection in between included."""
    cancel_timeout: float = 5.0
    """For taking back a request that came to no end; without an answer the episode is lost."""
    ping_interval: float = 20.0
    """Between two signs of life; one that is not answered for as long breaks the connection."""
    backoff: Backoff = field(default_factory=Backoff)
    packed: bool = False
    """Ask for arrays as bytes; the models of a typed client read lists."""
    compression: bool = False
    """Ask for large arrays to be made smaller; only where they are packed."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, float | int) and not isinstance(value, bool) and not 0 < value < float("inf"):
                raise ValidationError(f"not a time: {each.name}", found=value, expected="a positive number of seconds")
