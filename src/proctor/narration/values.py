"""Actions, packets and values of the record in a few words.

Rule 1: an action gets a name only where the settings on record say which actions there are; else its value is shown as it is.
    No environment is made or imported for it.
Rule 2: describing never fails, whatever stands in a line; a packet that is long or cannot be read is described by its kind alone.
Rule 3: a long value is never decoded: as Python's objects it can take more than twenty times its length.
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw

from proctor.models.descriptions import describe_value
from proctor.models.events import SessionOpened

MOST_DECODED_BYTES: Final = 2**21
"""Bytes of a value that is decoded: the rewards of the largest batch have fewer."""
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


def format_count(count: int, what: str) -> str:
    """Return a number of things in words."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def format_path(path: Iterable[str]) -> str:
    """Return states by their numbers, once where it was stayed in one: S2>S3."""
    return ">".join(state for state, _ in groupby(each.partition("_")[0] for each in path))


def describe_packet(kind: str, line: Raw) -> str:
    """Return what a line of a governed episode says, in one line."""
    name = kind or UNREADABLE_PACKET
    said = decode_short(line, None)
    inside = said.get("payload", said.get("data")) if isinstance(said, dict) else None
    if not isinstance(inside, dict):
        return name
    parts = [_describe_field(field, inside.get(field)) for field in DESCRIBED_FIELDS.get(kind, ())]
    if kind == "EscalationPacket":
        parts.insert(0, _find_question(said))
    return " ".join([f"record {name}" if "record" in said else name, *filter(None, parts)])


def _find_question(packet: dict[str, Any]) -> str:
    """Return what an escalation asks; empty where it does not say."""
    found: Any = packet
    for key in ("mcp", "intent", "summary"):
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""


def _describe_field(field: str, value: Any) -> str:
    if isinstance(value, list):
        more = f" and {len(value) - MOST_NAMES} more" if len(value) > MOST_NAMES else ""
        return ", ".join(_describe_field(field, each) for each in value[:MOST_NAMES]) + more
    if isinstance(value, dict):
        inner = (value.get(each) for each in INNER_FIELDS.get(field, ()))
        parts = [_describe_field("", each) for each in inner if each is not None]
        return ".".join(parts) if field == "belief_changes" else next(iter(parts), "")
    return "" if value is None else str(value)


ActionDescriber: TypeAlias = Callable[[Raw], str]
"""Tells an action, given as it stands on record."""

PLUME_ACTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "discrete_grid": ("up", "right", "down", "left"),
    "eight_direction_stay": (
        "north",
        "north_east",
        "east",
        "south_east",
        "south",
        "south_west",
        "west",
        "north_west",
        "stay",
    ),
    "oriented_grid": ("ahead", "turn left", "turn right"),
}
"""The names of a plume search's actions, by the type of its action processor."""
POPPER_COLUMNS: Final = 3
"""Of Column Popper, where the settings do not say another number."""


def action_describer(opened: SessionOpened | None) -> ActionDescriber:
    """Return what tells the actions of a session."""

    def words(action: Raw) -> str:
        said = decode_short(action, describe_size(action))
        value = said["action"] if isinstance(said, dict) and said.keys() == {"action"} else said
        name = _name_action(opened, value) if opened is not None and type(value) is int else None
        return describe_value(value) if name is None else name

    return words


def _name_action(opened: SessionOpened, number: int) -> str | None:
    """Return what the environment calls the action of this number; None where the record does not say."""
    if opened.num_envs is not None or number < 0:
        return None
    if "PlumeSearch-" in opened.environment:
        names = _plume_action_names(opened.settings)
        return names[number] if number < len(names) else None
    columns = opened.settings.get("columns", POPPER_COLUMNS)
    if "ColumnPopper-" not in opened.environment or type(columns) is not int or number > columns:
        return None
    return "fall" if number == columns else f"column {number}"


def _plume_action_names(settings: Mapping[str, Any]) -> tuple[str, ...]:
    if not {"config", "action_processor"}.isdisjoint(settings):
        return ()
    action = settings.get("action", "discrete_grid")
    kind = action.get("type") if isinstance(action, Mapping) else action
    return PLUME_ACTIONS.get(kind, ()) if isinstance(kind, str) else ()
