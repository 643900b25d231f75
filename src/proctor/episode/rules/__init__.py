"""What a rule is: an id, a sentence, the events it judges, and a function that finds where it is broken.

Rule 1: a rule's function is pure, and answers for every packet of its events in its positions, also where the table has
    refused the packet already, so that a refusal can name all it broke.
Rule 2: a rule that the table implies (`implied`) is asked only when the table refuses: it says why. A rule about what
    seldom happens (`rare`) is asked only of a packet that is remarkable (`machine.py` looks at all of them at once).
Rule 3: a rule of shape has no function: the reader finds it broken (`validation.py`).
"""

from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

from msgspec import Struct

from proctor.episode.episode_state import EpisodeState
from proctor.episode.settings import Settings
from proctor.episode.transition_table import CLOSES, Event, Position


class Gravity(StrEnum):
    """What a broken rule does to the packet."""

    ERROR = "error"
    WARNING = "warning"


class RuleFinding(Struct, frozen=True, gc=False):
    """A rule that a packet breaks: where, and why, in one sentence."""

    rule: str
    pointer: str
    reason: str
    gravity: Gravity = Gravity.ERROR


Findings: TypeAlias = tuple[RuleFinding, ...]
# The packet is a Packet or a Record, as the rule's events say.
RuleFunction: TypeAlias = Callable[[EpisodeState, Any, datetime, Settings], Findings]

NO_FINDINGS: Final[Findings] = ()

# Where most rules point to.
TYPE_POINTER: Final = "/header/packet_type"


def violation(name: str, pointer: str, reason: str) -> Findings:
    """Return the finding that the rule `name` is broken."""
    return (RuleFinding(name, pointer, reason),)


def warning(name: str, pointer: str, reason: str) -> Findings:
    """Return the warning that the rule `name` is broken."""
    return (RuleFinding(name, pointer, reason, Gravity.WARNING),)


class Rule(NamedTuple):
    """One rule of the protocol; `places` are the positions in which it judges packets, all if there are none."""

    id: str
    sentence: str
    level: str = "error"
    events: frozenset[Event] = frozenset()
    places: frozenset[Position] = frozenset()
    implied: bool = False
    rare: bool = False
    judge: RuleFunction | None = None

    def asks(self, position: Position, event: Event) -> RuleFunction | None:
        """Return the function that judges `event` in `position`, if the rule is about it."""
        about = event in self.events and (not self.places or position in self.places or event in CLOSES)
        return self.judge if about else None


def rule(
    name: str,
    events: tuple[Event, ...],
    places: tuple[Position, ...] = (),
    *,
    level: str = "error",
    implied: bool = False,
    rare: bool = False,
) -> Callable[[RuleFunction], Rule]:
    """Return a decorator that makes a function the rule `name`; its docstring is the rule's sentence."""

    def decorate(function: RuleFunction) -> Rule:
        sentence = " ".join((function.__doc__ or "").split())
        return Rule(name, sentence, level, frozenset(events), frozenset(places), implied, rare, function)

    return decorate
