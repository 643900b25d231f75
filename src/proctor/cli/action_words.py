"""What an action of a known environment is called: the record has its number, people read its name.

Rule 1: a name is given only where the settings on record say which actions there are; else the value is told as it is.
Rule 2: no environment is made or imported for it.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw

from proctor.models.events import SessionOpened
from proctor.models.value_words import told_value

Words: TypeAlias = Callable[[Raw], str]
"""Tells an action, given as it stands on record."""

GRID: Final = ("up", "right", "down", "left")
COMPASS: Final = ("north", "north_east", "east", "south_east", "south", "south_west", "west", "north_west", "stay")
ORIENTED: Final = ("ahead", "turn left", "turn right")
PLUME: Final[Mapping[str, tuple[str, ...]]] = {
    "discrete_grid": GRID,
    "eight_direction_stay": COMPASS,
    "oriented_grid": ORIENTED,
}
"""The names of a plume search's actions, by the type of its action processor."""
COLUMNS: Final = 3
"""Of Column Popper, where the settings do not say another number."""


def action_words(opened: SessionOpened | None) -> Words:
    """Return what tells the actions of a session."""
    names = () if opened is None else _names(opened)

    def words(action: Raw) -> str:
        said = msgspec.json.decode(action)
        value = said["action"] if isinstance(said, dict) and said.keys() == {"action"} else said
        if type(value) is int and 0 <= value < len(names):
            return names[value]
        return told_value(value)

    return words


def _names(opened: SessionOpened) -> tuple[str, ...]:
    if opened.num_envs is not None:
        return ()
    if "PlumeSearch-" in opened.environment:
        return _of_plume(opened.settings)
    if "ColumnPopper-" in opened.environment:
        columns = opened.settings.get("columns", COLUMNS)
        return (*(f"column {number}" for number in range(columns)), "fall") if type(columns) is int else ()
    return ()


def _of_plume(settings: Mapping[str, Any]) -> tuple[str, ...]:
    if not {"config", "action_processor"}.isdisjoint(settings):
        return ()
    action = settings.get("action", "discrete_grid")
    kind = action.get("type") if isinstance(action, Mapping) else action
    return PLUME.get(kind, ()) if isinstance(kind, str) else ()
