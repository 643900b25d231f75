"""What must be sayable after a directive: its result and what was seen, which the proctor states. Pure.

Rule 1: a directive runs only if its result and its observation could be stated right after it. So no rule of the house, and no
    limit of the judge, leaves a step on record without its result.
Rule 2: what is so in every episode is known when a policy is loaded (`never_statable`).
"""

from collections.abc import Iterator
from typing import Final

from proctor.episode.history import Episode
from proctor.episode.house_rules import Form, HouseRule, Marks, Rules, after, broken, unmarked
from proctor.episode.rules import LIMIT_2
from proctor.episode.settings import Limits
from proctor.episode.states import DIRECTIVES, Event

PACKETS_OF_A_CALL: Final = 3
"""The directive, its result and the observation."""
ROOM: Final = 20
"""Packets that are kept for an agent to stop in an episode that is full."""


def unstatable(episode: Episode, rules: Rules, directive: Event, limits: Limits) -> list[tuple[str, str]]:
    """Return the rules by which what comes of a directive could not be stated if it were accepted now, with the reasons."""
    if episode.packets + PACKETS_OF_A_CALL + ROOM > limits.packets:
        return [(LIMIT_2.id, f"the episode is nearly full: it holds {limits.packets} packets")]
    return [
        (rule.id, f"what comes of it could not be stated: {reason}")
        for rule, reason in _refusals(rules, after(rules, episode.marks, directive), (Event.RESULT, Event.OBSERVATION))
    ]


def never_statable(rules: Rules) -> HouseRule | None:
    """Return a rule under which no episode could begin, or no directive of some sort could ever have its result."""
    marks = unmarked(rules)
    first = next(_refusals(rules, marks, (Event.OBSERVATION,)), None)
    if first is not None:
        return first[0]
    # At best all that had to come before has come, and nothing has that forbids or promises something.
    best = tuple(1 if rule.form is Form.BEFORE else 0 for rule in rules)
    for directive in DIRECTIVES:
        found = next(_refusals(rules, after(rules, best, directive), (Event.RESULT, Event.OBSERVATION)), None)
        if found is not None:
            return found[0]
    return None


def _refusals(rules: Rules, marks: Marks, events: tuple[Event, ...]) -> Iterator[tuple[HouseRule, str]]:
    """Yield the rules that refuse one of the events, coming one after the other."""
    for event in events:
        yield from ((rule, reason) for rule, reason in broken(rules, marks, event) if rule.level == "error")
        marks = after(rules, marks, event)
