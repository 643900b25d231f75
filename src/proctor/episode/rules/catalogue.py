"""Every rule, in the order in which a verdict names them.

Rule 1: `CATALOGUE` is the whole list: docs, tests and `proctor judge --explain` read it.
Rule 2: rules about the stream itself stand here, those of the contract in `contract.py`.
"""

from datetime import datetime
from functools import cache
from typing import Final

from proctor.episode.episode_state import CLEARING, EpisodeState, contradicts_itself
from proctor.episode.packets.enums import CLEAR, RecordSource, Severity
from proctor.episode.packets.fields import Alert, Directive, Record, Token
from proctor.episode.packets.reader import AnyPacket, Packet
from proctor.episode.rules import (
    NO_FINDINGS,
    Findings,
    Gravity,
    Rule,
    RuleFinding,
    RuleFunction,
    rule,
    violation,
    warning,
)
from proctor.episode.rules.contract import CONTRACT
from proctor.episode.settings import Clock, LayerRules, Settings
from proctor.episode.transition_table import ALERTS, DIRECTIVES, PACKETS, Event, Position

# Found by others than a function: by the reader, by the table, by whoever keeps the episodes.
JSON: Final = Rule("JSON", "A line is one JSON value in UTF-8.")
SCHEMA: Final = Rule("SCHEMA", "A packet has the fields of its kind, and no others.")
FSM: Final = Rule("FSM", "A packet is legal only where the table has a row for it.")
EPISODE_CLOSED: Final = Rule("EPISODE_CLOSED", "After the close nothing is taken any more.")
LIMIT_1: Final = Rule("LIMIT-1", "No more episodes are open at a time than the limit says.")
LIMIT_2: Final = Rule("LIMIT-2", "An episode has no more packets, open tasks and tokens than the limits say.")

ISSUING: Final = (1, 5)
REVOKING: Final = "Integrity"


@rule("RECORD-1", (Event.APPROVAL,))
def record_1(episode: EpisodeState, record: Record, now: datetime, settings: Settings) -> Findings:
    """An episode is opened once, before its packets, and by a clock that the judge has; only the operator approves."""
    if record.by is RecordSource.OPERATOR:
        return NO_FINDINGS
    return violation("RECORD-1", "/by", "only the operator approves")


@rule("ID-1", PACKETS, rare=True)
def id_1(episode: EpisodeState, packet: AnyPacket, now: datetime, settings: Settings) -> Findings:
    """A packet id is used once in an episode."""
    if packet.header.packet_id not in episode.seen:
        return NO_FINDINGS
    return violation("ID-1", "/header/packet_id", f"{packet.header.packet_id} was accepted before")


@rule("ID-2", PACKETS, level="warning", rare=True)
def id_2(episode: EpisodeState, packet: AnyPacket, now: datetime, settings: Settings) -> Findings:
    """The previous packet is one that was accepted."""
    previous = packet.header.previous_packet_id
    if previous is None or previous in episode.seen:
        return NO_FINDINGS
    reason = f"{previous} is no accepted packet of this episode"
    return warning("ID-2", "/header/previous_packet_id", reason)


@rule("TIME-1", PACKETS, level="warning", rare=True)
def time_1(episode: EpisodeState, packet: AnyPacket, now: datetime, settings: Settings) -> Findings:
    """Time does not run backwards; where it seems to, the clock stays."""
    if packet.header.created_at >= episode.clock or settings.clock is Clock.WALL:
        return NO_FINDINGS
    reason = f"the packet is dated before {episode.clock.isoformat()}, where the episode's clock stands"
    return warning("TIME-1", "/header/created_at", reason)


@rule("QUEUE-1", (Event.QUEUE,), level="warning")
def queue_1(episode: EpisodeState, packet: AnyPacket, now: datetime, settings: Settings) -> Findings:
    """A queue update is neutral."""
    reason = "a QueueUpdatePacket is taken and changes nothing"
    return warning("QUEUE-1", "/header/packet_type", reason)


@rule("SAFETY-1", DIRECTIVES)
def safety_1(episode: EpisodeState, packet: Packet[Directive], now: datetime, settings: Settings) -> Findings:
    """A directive's safety class agrees with its task type."""
    if not contradicts_itself(packet.payload):
        return NO_FINDINGS
    reason = f"{packet.payload.tool_safety_class} contradicts the task type {packet.payload.task_type}"
    return violation("SAFETY-1", "/payload/tool_safety_class", reason)


@rule("LAYER-1", (Event.TOKEN, Event.REVOCATION, *ALERTS), level="warning, or error if the layer rules say so")
def layer_1(episode: EpisodeState, packet: Packet[Token | Alert], now: datetime, settings: Settings) -> Findings:
    """Tokens are issued by layer 1 or 5, and revoked by Integrity."""
    payload = packet.payload
    if isinstance(payload, Token) and not payload.revoked:
        pointers = {"/header/layer_source": packet.header.layer_source, "/payload/issuer_layer": payload.issuer_layer}
        return tuple(
            _layer_finding("LAYER-1", pointer, "a token is issued by layer 1 or 5", settings)
            for pointer, layer in pointers.items()
            if layer not in ISSUING
        )
    revokes = payload.revoked if isinstance(payload, Token) else bool(payload.revoked_token_ids)
    if not revokes or packet.header.layer_source == REVOKING:
        return NO_FINDINGS
    return (_layer_finding("LAYER-1", "/header/layer_source", "a token is revoked by Integrity", settings),)


@rule("LAYER-2", (Event.ALERT,), (Position.SAFEMODE,), level="warning, or error if the layer rules say so")
def layer_2(episode: EpisodeState, packet: Packet[Alert], now: datetime, settings: Settings) -> Findings:
    """Safe mode is lifted by Integrity or layer 1."""
    clears = packet.payload.alert_type == CLEAR and packet.payload.severity is not Severity.CRITICAL
    if not clears or packet.header.layer_source in CLEARING:
        return NO_FINDINGS
    return (_layer_finding("LAYER-2", "/header/layer_source", "only Integrity or layer 1 lifts safe mode", settings),)


def _layer_finding(name: str, pointer: str, reason: str, settings: Settings) -> RuleFinding:
    gravity = Gravity.ERROR if settings.layer_rules is LayerRules.ERROR else Gravity.WARNING
    return RuleFinding(name, pointer, reason, gravity)


CATALOGUE: Final[tuple[Rule, ...]] = (
    JSON,
    SCHEMA,
    EPISODE_CLOSED,
    LIMIT_1,
    LIMIT_2,
    FSM,
    record_1,
    id_1,
    id_2,
    time_1,
    queue_1,
    safety_1,
    layer_1,
    layer_2,
    *CONTRACT,
)

SENTENCES: Final = {found.id: found.sentence for found in CATALOGUE}


def select_for_legal_event(position: Position, event: Event, *, remarkable: bool) -> tuple[RuleFunction, ...]:
    """Return what is asked about an event that the table has a row for."""
    asked = [rule for rule in CATALOGUE if not rule.implied and (remarkable or not rule.rare)]
    return tuple(judge for rule in asked if (judge := rule.asks(position, event)) is not None)


@cache
def select_for_illegal_event(position: Position, event: Event) -> tuple[RuleFunction, ...]:
    """Return what is asked about an event that the table refuses, to say all that it breaks."""
    return tuple(judge for rule in CATALOGUE if (judge := rule.asks(position, event)) is not None)
