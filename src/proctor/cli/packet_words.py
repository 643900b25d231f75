"""A packet or a record in a few words: its kind, and the one thing in it that people look for.

Rule: whatever stands in a line, this never fails; a packet that is long or cannot be read is told by its kind alone.
"""

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, Final

from msgspec import Raw

from proctor.cli.short_values import decode_short

UNREADABLE: Final = "unreadable packet"
MOST: Final = 3
"""How many of several names are told."""

TOLD: Final[Mapping[str, tuple[str, ...]]] = {
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

INNER: Final[Mapping[str, tuple[str, ...]]] = {
    "belief_changes": ("domain", "key"),
    "authorized_scope": ("tool_ids",),
    "execution_method": ("tool_id", "code_ref", "method"),
    "recommended_next_step": ("step",),
}
"""Of a field that is an object, which part is told: the first that is there; of beliefs all of them, joined."""


def packet_words(kind: str, line: Raw) -> str:
    """Return what a line of a governed episode says, in one line."""
    name = kind or UNREADABLE
    said = decode_short(line, None)
    inside = said.get("payload", said.get("data")) if isinstance(said, dict) else None
    if not isinstance(inside, dict):
        return name
    is_record = isinstance(said, dict) and "record" in said
    parts = (_part(field, inside.get(field)) for field in TOLD.get(kind, ()))
    return " ".join([f"record {name}" if is_record else name, *filter(None, parts)])


def _part(field: str, value: Any) -> str:
    if isinstance(value, list):
        names = [_part(field, each) for each in value]
        more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
        return ", ".join(names[:MOST]) + more
    if isinstance(value, dict):
        parts = [_part("", value[each]) for each in INNER.get(field, ()) if value.get(each) is not None]
        return ".".join(parts) if field == "belief_changes" else next(iter(parts), "")
    return "" if value is None else str(value)


def places(path: Iterable[str]) -> str:
    """Return states by their numbers, once where it was stayed in one: S2>S3."""
    return ">".join(state for state, _ in groupby(each.partition("_")[0] for each in path))
