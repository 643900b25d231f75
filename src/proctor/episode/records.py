"""What a line of a stream can be besides a packet: an episode is opened, closed, answered, approved or halted.

Rule 1: a record is what the API does, written down, so that a stream replays alone.
Rule 2: `data` of `open` and `approval` is read here; what others say in it is kept and not read.
"""

from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw

from proctor.episode.envelope import CorrelationId, Count, Moment, Part
from proctor.episode.kinds import RecordKind, Speaker
from proctor.episode.payloads import Opaque
from proctor.episode.settings import Clock, LayerRules, OnOverrun, Profile, Settings


class Opening(Part, frozen=True):
    """The settings that differ from the judge's."""

    profile: Profile | None = None
    layer_rules: LayerRules | None = None
    clock: Clock | None = None
    on_overrun: OnOverrun | None = None
    initial_beliefs: bool | list[Any] | None = None

    def over(self, settings: Settings) -> Settings:
        """Return `settings` with what is stated here in its place; a list of beliefs counts if it holds any."""
        stated = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        if "initial_beliefs" in stated:
            stated["initial_beliefs"] = bool(stated["initial_beliefs"])
        return msgspec.structs.replace(settings, **stated)


class Approval(Part, frozen=True):
    """What an operator adds to the budgets."""

    token_budget: Count = 0
    tool_call_budget: Count = 0
    time_budget_seconds: Count = 0
    note: str | None = None


Content: TypeAlias = Opening | Approval | Opaque


class RecordLine(Part, frozen=True):
    """A record as it stands on a line, its content not yet read."""

    record: RecordKind
    correlation_id: CorrelationId
    at: Moment
    by: Speaker
    data: Raw = Raw(b"{}")


class Record(Part, frozen=True):
    """A record that was read."""

    record: RecordKind
    correlation_id: CorrelationId
    at: Moment
    by: Speaker
    data: Content

    def line(self) -> bytes:
        """Return the record as one line of JSON, without the line's end."""
        return msgspec.json.encode(self)


# What `data` holds, by kind; the others hold any object.
CONTENTS: Final[dict[RecordKind, Any]] = {
    kind: {RecordKind.OPEN: Opening, RecordKind.APPROVAL: Approval}.get(kind, Opaque) for kind in RecordKind
}
