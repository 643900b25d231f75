"""What the table sees of a packet or a record, told from its content alone."""

from collections.abc import Callable
from typing import Any, Final

from proctor.episode.envelope import Layer
from proctor.episode.kinds import (
    CLEAR,
    DecisionOutcome,
    ObservationType,
    PacketKind,
    RecordKind,
    SafetyClass,
    Severity,
    Speaker,
    TaskType,
)
from proctor.episode.packets import AnyPacket, Packet
from proctor.episode.payloads import Alert, Decision, Directive, Observation, Token
from proctor.episode.records import Record
from proctor.episode.states import EVENTS, Event

# Who may lift safe mode.
CLEARING: Final[tuple[Layer, ...]] = ("Integrity", 1)

# Whether a task writes, by what it asks for, where its directive does not say.
INFERRED: Final = {
    TaskType.TOOL_READ: Event.READ,
    TaskType.TOOL_WRITE: Event.WRITE,
    TaskType.COMPUTATION: Event.READ,
    TaskType.VERIFICATION: Event.READ,
    TaskType.MEMORY_LOOKUP: Event.READ,
}
STATED: Final = {
    SafetyClass.READ: Event.READ,
    SafetyClass.WRITE: Event.WRITE,
    SafetyClass.MIXED: Event.WRITE,
}
_DECIDED: Final = {outcome: Event(f"{PacketKind.DECISION}({outcome})") for outcome in DecisionOutcome}
# Looked up here once: every packet asks for them.
_INPUT: Final = ObservationType.USER_INPUT
_USER_INPUT: Final = Event.USER_INPUT
_OBSERVATION: Final = Event.OBSERVATION
_WRITE: Final = Event.WRITE
_TOKEN: Final = Event.TOKEN
_REVOCATION: Final = Event.REVOCATION


def conflicting(payload: Directive) -> bool:
    """Return whether a directive's class says the opposite of its task type."""
    stated = payload.tool_safety_class
    return stated is not None and STATED[stated] is not INFERRED[payload.task_type]


def safety_of(payload: Directive) -> Event:
    """Return READ or WRITE; a directive that contradicts itself counts as a WRITE."""
    inferred = INFERRED[payload.task_type]
    if payload.tool_safety_class is None or STATED[payload.tool_safety_class] is inferred:
        return inferred
    return _WRITE


def _observed(packet: Packet[Observation]) -> Event:
    is_input = packet.payload.observation_type is _INPUT
    return _USER_INPUT if is_input else _OBSERVATION


def _decided(packet: Packet[Decision]) -> Event:
    return _DECIDED[packet.payload.decision_outcome]


def _issued(packet: Packet[Token]) -> Event:
    return _REVOCATION if packet.payload.revoked else _TOKEN


def _directed(packet: Packet[Directive]) -> Event:
    return safety_of(packet.payload)


def _alerted(packet: Packet[Alert]) -> Event:
    if packet.payload.severity is Severity.CRITICAL:
        return Event.CRITICAL
    lifts = packet.payload.alert_type == CLEAR and packet.header.layer_source in CLEARING
    return Event.CLEAR if lifts else Event.ALERT


# How it is told which of its events a packet is; the other kinds have only one.
_TOLD: Final[dict[PacketKind, Callable[[Packet[Any]], Event]]] = {
    PacketKind.OBSERVATION: _observed,
    PacketKind.DECISION: _decided,
    PacketKind.TOKEN: _issued,
    PacketKind.DIRECTIVE: _directed,
    PacketKind.ALERT: _alerted,
}
_ONLY: Final = {kind: events[0] for kind, events in EVENTS.items() if len(events) == 1}
_RECORDED: Final = {
    RecordKind.USER_INPUT: Event.ANSWER,
    RecordKind.APPROVAL: Event.APPROVAL,
    RecordKind.SAFEMODE: Event.HALT,
}


def event_of(packet: AnyPacket) -> Event:
    """Return what the table sees of `packet`."""
    kind = packet.header.packet_type
    only = _ONLY.get(kind)
    return _TOLD[kind](packet) if only is None else only


def event_of_record(record: Record) -> Event:
    """Return what the table sees of `record`, which is no `open`."""
    if record.record is RecordKind.CLOSE:
        return Event.OPERATOR_CLOSE if record.by is Speaker.OPERATOR else Event.CLOSE
    return _RECORDED[record.record]
