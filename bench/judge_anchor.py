"""The judge that one would put together from packages: jsonschema for the shape, `transitions` for the table.

Rule 1: it uses both as their docs say and as fast as they go: each schema is compiled to a validator once; one machine,
    without automatic transitions, has a light model for each episode that is open.
Rule 2: it does the schema and the table only: no sequence, no token, no budget, no reason why.
Rule 3: schemas and table are our own, so that both sides decide by the same. `inlined` writes every `$ref` of a schema
    out in its place, which nobody does by hand: a validator resolves a reference anew each time it meets it.
"""

from __future__ import annotations

import json
from typing import Any, Final

from bench.measure import Gap
from proctor.episode.packets.enums import PacketKind, RecordKind, RecordSource
from proctor.episode.packets.schemas import schemas
from proctor.episode.transition_table import EVENTS, Event, Position, TableOption, rows_for_options

_OUTCOMES: Final = {outcome.value.partition("(")[2][:-1]: outcome for outcome in EVENTS[PacketKind.DECISION]}
_PLAIN: Final = {kind.value: events[0] for kind, events in EVENTS.items() if len(events) == 1}
_WRITES: Final = frozenset({"WRITE", "MIXED"})


class Walk:
    """Where one episode stands; the machine gives it its methods."""

    state: str
    trigger: Any


class Assembled:
    """Both packages, joined by the correlation id; raises a Gap if one is not installed."""

    def __init__(self, *, inlined: bool = False) -> None:
        try:
            from jsonschema import Draft202012Validator
            from transitions import Machine
        except ImportError as problem:
            raise Gap(f"{problem.name} is not installed: it comes with the dev extra") from None
        shapes = {kind.value: schemas()[kind.value] for kind in PacketKind}
        if inlined:
            shapes = {name: written_out(shape, shape.get("$defs", {})) for name, shape in shapes.items()}
        self._valid = {name: Draft202012Validator(shape).is_valid for name, shape in shapes.items()}
        self._machine = Machine(
            model=None,
            states=[position.name for position in Position],
            initial=Position.IDLE.name,
            auto_transitions=False,
            transitions=[
                [row.event.name, row.source.name, row.target.name]
                for rows in rows_for_options([TableOption.STRICT]).values()
                for row in rows.values()
            ],
        )
        self._walks: dict[str, Walk] = {}

    def apply(self, line: bytes) -> bool:
        """Return whether `line` has the shape of its kind and a row of the table; raises if it has no row."""
        said = json.loads(line)
        if "record" in said:
            return self._closed(said)
        header = said["header"]
        kind = header["packet_type"]
        if not self._valid[kind](said):
            return False
        name = header["correlation_id"]
        walk = self._walks.get(name)
        if walk is None:
            walk = self._walks[name] = Walk()
            self._machine.add_model(walk)
        accepted: bool = walk.trigger(event_of(kind, said["payload"]).name)
        return accepted

    def _closed(self, record: dict[str, Any]) -> bool:
        if record["record"] != RecordKind.CLOSE:
            return False
        walk = self._walks.pop(record["correlation_id"])
        event = Event.OPERATOR_CLOSE if record["by"] == RecordSource.OPERATOR else Event.CLOSE
        accepted: bool = walk.trigger(event.name)
        self._machine.remove_model(walk)
        return accepted


def written_out(schema: Any, parts: dict[str, Any]) -> Any:
    """Return a schema with the named parts in the place of their references; none of ours contains itself."""
    if isinstance(schema, list):
        return [written_out(each, parts) for each in schema]
    if not isinstance(schema, dict):
        return schema
    own = {key: written_out(value, parts) for key, value in schema.items() if key not in ("$ref", "$defs")}
    if "$ref" not in schema:
        return own
    part = written_out(parts[schema["$ref"].removeprefix("#/$defs/")], parts)
    return {"allOf": [part], **own} if own else part


def event_of(kind: str, payload: dict[str, Any]) -> Event:
    """Return what the table sees of a packet; as much of it as conforming episodes need."""
    plain = _PLAIN.get(kind)
    if plain is not None:
        return plain
    if kind == PacketKind.OBSERVATION:
        return Event.USER_INPUT if payload["observation_type"] == "user_input" else Event.OBSERVATION
    if kind == PacketKind.DECISION:
        return _OUTCOMES[payload["decision_outcome"]]
    if kind == PacketKind.DIRECTIVE:
        return Event.WRITE if payload.get("tool_safety_class") in _WRITES else Event.READ
    if kind == PacketKind.TOKEN:
        return Event.REVOCATION if payload.get("revoked") else Event.TOKEN
    return Event.CRITICAL if payload["severity"] == "CRITICAL" else Event.ALERT
