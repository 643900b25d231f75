"""How an episode is judged: the profile, the switches, and how much of a stream is kept in memory.

Rule 1: settings belong to an episode for its whole life; an `open` record states the ones that differ.
Rule 2: a limit is a refusal with a rule id, never a silent loss.
"""

from enum import StrEnum
from typing import Final

from msgspec import Struct
from msgspec.structs import force_setattr

from proctor.episode.transition_table import TableOption
from proctor.errors import ValidationError

# A line of nothing but errors must not fill the memory: after so many, one more says that there are others.
MOST_ERRORS: Final = 1000


class Profile(StrEnum):
    """How much of the verification's order is required."""

    STRICT = "strict"
    LENIENT = "lenient"


class LayerRules(StrEnum):
    """What a packet from the wrong layer gets."""

    WARN = "warn"
    ERROR = "error"


class Clock(StrEnum):
    """What time it is: what packets say, or what the caller's clock says."""

    EVENT = "event"
    WALL = "wall"


class OnOverrun(StrEnum):
    """Where an episode goes when a result shows that a budget was overrun."""

    SAFEMODE = "safemode"
    ESCALATE = "escalate"


_WORDS: Final[dict[str, type[StrEnum]]] = {
    "profile": Profile,
    "layer_rules": LayerRules,
    "clock": Clock,
    "on_overrun": OnOverrun,
}


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """The profile and the switches of an episode; each may be given as its word."""

    profile: Profile = Profile.STRICT
    layer_rules: LayerRules = LayerRules.WARN
    clock: Clock = Clock.EVENT
    on_overrun: OnOverrun = OnOverrun.SAFEMODE
    initial_beliefs: bool = False

    def __post_init__(self) -> None:
        for name, words in _WORDS.items():
            value = getattr(self, name)
            if value not in list(words):
                raise ValidationError(f"there is no such {name}", found=value, expected=" or ".join(words))
            force_setattr(self, name, words(value))
        if not isinstance(self.initial_beliefs, bool):
            raise ValidationError("initial_beliefs is a switch", found=self.initial_beliefs, expected="True or False")

    @property
    def options(self) -> tuple[TableOption, ...]:
        """What the table must know of these settings."""
        profile = TableOption.LENIENT if self.profile is Profile.LENIENT else TableOption.STRICT
        return (profile, TableOption.INITIAL_BELIEFS) if self.initial_beliefs else (profile,)


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """How much is kept: a line that would need more is refused (LIMIT-1, LIMIT-2); old summaries are forgotten.

    `errors` is how many of a malformed line are listed.
    """

    open_episodes: int = 100_000
    closed_episodes: int = 100_000
    packets: int = 100_000
    open_tasks: int = 1_000
    tokens: int = 1_000
    errors: int = MOST_ERRORS

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValidationError(f"{name} is a limit", found=value, expected="a whole number of at least 1")
