"""What an action of a known environment is called: the record has its number, people read its name.

Rule 1: a name is given only where the settings on record say which actions there are; else the value is told as it is.
Rule 2: no environment is made or imported for it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from msgspec import Raw

from proctor.cli.short_values import decode_short, told_size
from proctor.models.events import SessionOpened
from proctor.models.value_words import told_value

Words: TypeAlias = Callable[[Raw], str]
"""Tells an action, given as it stands on record."""
Name: TypeAlias = Callable[[int], str | None]
"""Tells the action of a number; None: no action has it."""

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
    name = _listed(()) if opened is None else _naming(opened)

    def words(action: Raw) -> str:
        said = decode_short(action, told_size(action))
        value = said["action"] if isinstance(said, dict) and said.keys() == {"action"} else said
        found = name(value) if type(value) is int else None
        return told_value(value) if found is None else found

    return words


def _naming(opened: SessionOpened) -> Name:
    if opened.num_envs is not None:
        return _listed(())
    if "PlumeSearch-" in opened.environment:
        return _listed(_of_plume(opened.settings))
    if "ColumnPopper-" in opened.environment:
        columns = opened.settings.get("columns", COLUMNS)
        return _of_popper(columns) if type(columns) is int else _listed(())
    return _listed(())


def _listed(names: Sequence[str]) -> Name:
    return lambda number: names[number] if 0 <= number < len(names) else None


def _of_popper(columns: int) -> Name:
    """Return what names a column; they are not listed, because a record may say any number of them."""

    def name(number: int) -> str | None:
        if number == columns:
            return "fall"
        return f"column {number}" if 0 <= number < columns else None

    return name


def _of_plume(settings: Mapping[str, Any]) -> tuple[str, ...]:
    if not {"config", "action_processor"}.isdisjoint(settings):
        return ()
    action = settings.get("action", "discrete_grid")
    kind = action.get("type") if isinstance(action, Mapping) else action
    return PLUME.get(kind, ()) if isinstance(kind, str) else ()
