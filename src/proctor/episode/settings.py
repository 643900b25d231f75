"""How an episode is judged: the profile, the switches, and how much of a stream is kept in memory.

Rule 1: settings belong to an episode for its whole life; an `open` record states the ones that differ.
Rule 2: a limit is a refusal with a rule id, never a silent loss.
"""

from enum import StrEnum

from msgspec import Struct

from proctor.episode.table import Option


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


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """The profile and the switches of an episode."""

    profile: Profile = Profile.STRICT
    layer_rules: LayerRules = LayerRules.WARN
    clock: Clock = Clock.EVENT
    on_overrun: OnOverrun = OnOverrun.SAFEMODE
    initial_beliefs: bool = False

    @property
    def options(self) -> tuple[Option, ...]:
        """What the table must know of these settings."""
        profile = Option.LENIENT if self.profile is Profile.LENIENT else Option.STRICT
        return (profile, Option.INITIAL_BELIEFS) if self.initial_beliefs else (profile,)


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """How much is kept: a line that would need more is refused (LIMIT-1, LIMIT-2); old summaries are forgotten."""

    open_episodes: int = 100_000
    closed_episodes: int = 100_000
    packets: int = 100_000
    open_tasks: int = 1_000
    tokens: int = 1_000
