"""Actions, packets and values of the record in a few words.

Rule 1: an action gets a name only where the settings on record say which actions there are; else its value is shown as it is.
    No environment is made or imported for it.
Rule 2: whatever stands in a line, describing it never fails; a packet that is long or cannot be read is described by its kind alone.
Rule 3: a long value is never decoded. Whoever wrote the file decides what is in it, and as Python's objects it can take more than
    twenty times its length.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw

from proctor.models.events import SessionOpened
from proctor.models.value_text import describe_value

MOST_DECODED_BYTES: Final = 2**21
"""Bytes of a value that is decoded: the rewards of the largest batch have fewer."""


def decode_short(value: Raw, otherwise: Any) -> Any:
    """Return what a value says, or `otherwise` where it is long or cannot be decoded."""
    if memoryview(value).nbytes > MOST_DECODED_BYTES:
        return otherwise
    try:
        return msgspec.json.decode(value)
    # A whole number of more than 4300 digits is JSON, too.
    except (msgspec.DecodeError, RecursionError):
        return otherwise


def describe_size(value: Raw) -> str:
    """Return the size of a value, which stands for one that is not told itself."""
    return f"{memoryview(value).nbytes:,} bytes"


UNREADABLE_PACKET: Final = "unreadable packet"
MOST_NAMES: Final = 3
"""How many of several names are told."""

DESCRIBED_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "ObservationPacket": ("observation_type", "source_tool"),
    "BeliefUpdatePacket": ("belief_changes",),
    "DecisionPacket": ("decision_outcome", "decision_summary"),
    "VerificationPlanPacket": ("plan_summary",),
    "ToolAuthorizationToken": ("authorized_scope", "token_id"),
    "TaskDirectivePacket": ("execution_method",),
    "TaskResultPacket": ("result_status",),
    "EscalationPacket": ("escalation_trigger", "recommended_next_step"),
    "IntegrityAlertPacket": ("severity", "alert_type", "summary"),
    "open": ("profile",),
    "approval": ("note",),
    "user_input": ("choice", "text"),
    "safemode": ("reason",),
}
"""What is told of a kind, in this order: fields of a packet's payload, or of a record's data."""

INNER_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "belief_changes": ("domain", "key"),
    "authorized_scope": ("tool_ids",),
    "execution_method": ("tool_id", "code_ref", "method"),
    "recommended_next_step": ("step",),
}
"""Of a field that is an object, which part is told: the first that is there; of beliefs all of them, joined."""


def describe_packet(kind: str, line: Raw) -> str:
    """Return what a line of a governed episode says, in one line."""
    name = kind or UNREADABLE_PACKET
    said = decode_short(line, None)
    inside = said.get("payload", said.get("data")) if isinstance(said, dict) else None
    if not isinstance(inside, dict):
        return name
    is_record = isinstance(said, dict) and "record" in said
    parts = (_describe_field(field, inside.get(field)) for field in DESCRIBED_FIELDS.get(kind, ()))
    return " ".join([f"record {name}" if is_record else name, *filter(None, parts)])


def _describe_field(field: str, value: Any) -> str:
    if isinstance(value, list):
        names = [_describe_field(field, each) for each in value]
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        return ", ".join(names[:MOST_NAMES]) + more
    if isinstance(value, dict):
        parts = [
            _describe_field("", value[each]) for each in INNER_FIELDS.get(field, ()) if value.get(each) is not None
        ]
        return ".".join(parts) if field == "belief_changes" else next(iter(parts), "")
    return "" if value is None else str(value)


def format_path(path: Iterable[str]) -> str:
    """Return states by their numbers, once where it was stayed in one: S2>S3."""
    return ">".join(state for state, _ in groupby(each.partition("_")[0] for each in path))


ActionDescriber: TypeAlias = Callable[[Raw], str]
"""Tells an action, given as it stands on record."""
ActionNamer: TypeAlias = Callable[[int], str | None]
"""Tells the action of a number; None: no action has it."""

GRID_ACTIONS: Final = ("up", "right", "down", "left")
COMPASS_ACTIONS: Final = (
    "north",
    "north_east",
    "east",
    "south_east",
    "south",
    "south_west",
    "west",
    "north_west",
    "stay",
)
ORIENTED_ACTIONS: Final = ("ahead", "turn left", "turn right")
PLUME_ACTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "discrete_grid": GRID_ACTIONS,
    "eight_direction_stay": COMPASS_ACTIONS,
    "oriented_grid": ORIENTED_ACTIONS,
}
"""The names of a plume search's actions, by the type of its action processor."""
POPPER_COLUMNS: Final = 3
"""Of Column Popper, where the settings do not say another number."""


def action_describer(opened: SessionOpened | None) -> ActionDescriber:
    """Return what tells the actions of a session."""
    name = _namer_from_list(()) if opened is None else _find_namer(opened)

    def words(action: Raw) -> str:
        said = decode_short(action, describe_size(action))
        value = said["action"] if isinstance(said, dict) and said.keys() == {"action"} else said
        found = name(value) if type(value) is int else None
        return describe_value(value) if found is None else found

    return words


def _find_namer(opened: SessionOpened) -> ActionNamer:
    if opened.num_envs is not None:
        return _namer_from_list(())
    if "PlumeSearch-" in opened.environment:
        return _namer_from_list(_plume_action_names(opened.settings))
    if "ColumnPopper-" in opened.environment:
        columns = opened.settings.get("columns", POPPER_COLUMNS)
        return _popper_namer(columns) if type(columns) is int else _namer_from_list(())
    return _namer_from_list(())


def _namer_from_list(names: Sequence[str]) -> ActionNamer:
    return lambda number: names[number] if 0 <= number < len(names) else None


def _popper_namer(columns: int) -> ActionNamer:
    """Return what names a column; they are not listed, because a record may say any number of them."""

    def name(number: int) -> str | None:
        if number == columns:
            return "fall"
        return f"column {number}" if 0 <= number < columns else None

    return name


def _plume_action_names(settings: Mapping[str, Any]) -> tuple[str, ...]:
    if not {"config", "action_processor"}.isdisjoint(settings):
        return ()
    action = settings.get("action", "discrete_grid")
    kind = action.get("type") if isinstance(action, Mapping) else action
    return PLUME_ACTIONS.get(kind, ()) if isinstance(kind, str) else ()
