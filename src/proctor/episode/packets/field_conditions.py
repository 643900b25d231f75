"""What one field requires of another, and whether every id of a packet is one.

Rule 1: a condition that is not in `CONDITIONS` does not exist: the reader, the list of errors and the JSON Schemas all
    use this table. Types and sizes stand in the Structs.
Rule 2: `unmet` and `ids_match` are called for every packet and take typed parts; what is wrong with the rest of a
    packet is told by `validation.py`.
Rule 3: the ids of fields are joined to one text and matched at once; those in lists one by one. The text has as many
    separators as its pattern, so none can stand inside an id, and a match proves every id. In place of an absent id
    stands one that matches.
"""

import re
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from msgspec import Struct

from proctor.episode.packets.enums import PacketKind, ResultStatus, SafetyClass, UpdateType
from proctor.episode.packets.envelope import ID_TAIL, Compliance, Header
from proctor.episode.packets.payloads import (
    Alert,
    BeliefUpdate,
    Decision,
    Directive,
    Escalation,
    TaskResult,
    Token,
    VerificationPlan,
)

SCHEMA: Final = "SCHEMA"


class ShapeError(Struct, frozen=True):
    """Something that is wrong with a line: where (a JSON pointer), why, and the rules that it breaks."""

    pointer: str
    reason: str
    rules: tuple[str, ...]


# ------------------------------------------------------------------------------------------- which rules a place breaks
# The kinds whose envelope must be complete by the contract too.
_INV_001: Final = (PacketKind.DECISION, PacketKind.DIRECTIVE, PacketKind.TOKEN, PacketKind.ESCALATION)
_COMPLETE: Final = ("E5", "S8", "INV-009")
CONTRACT: Final[dict[tuple[PacketKind, str], tuple[str, ...]]] = {
    **{(kind, "/mcp"): ("INV-001",) for kind in _INV_001},
    (PacketKind.ESCALATION, "/payload/top_options"): _COMPLETE,
    (PacketKind.ESCALATION, "/payload/evidence_gaps"): _COMPLETE,
    (PacketKind.ESCALATION, "/payload/recommended_next_step"): _COMPLETE,
}


def is_within(pointer: str, place: str) -> bool:
    """Return whether `pointer` names `place` or something inside of it."""
    return pointer == place or pointer.startswith(f"{place}/")


def rules_at(kind: PacketKind | None, pointer: str) -> tuple[str, ...]:
    """Return the rules that an error at `pointer` of a packet breaks, the schema first; `kind` is None if unknown."""
    added = (
        rules
        for (whose, place), rules in CONTRACT.items()
        if whose is kind and (is_within(pointer, place) or is_within(place, pointer))
    )
    return (SCHEMA, *dict.fromkeys(rule for rules in added for rule in rules))


# ------------------------------------------------------------------------------------------------------- the conditions
class FieldCondition(Struct, frozen=True):
    """Where the field `given` has one of `values`, something must stand at `pointer`.

    `kind` is None if every packet has the condition; `rules` are those beside the schema's.
    """

    kind: PacketKind | None
    given: str
    values: tuple[Any, ...]
    pointer: str
    reason: str
    rules: tuple[str, ...]
    unmet: Callable[[Any, Any], bool]


_RESOLVED: Final = UpdateType.CONTRADICTION_RESOLVED
_FAILURE: Final = ResultStatus.FAILURE
_WRITES: Final = (SafetyClass.WRITE, SafetyClass.MIXED)


# Compared by value: the list of errors asks with words that were not read into enums.
def _lacks_evidence(compliance: Compliance, payload: object) -> bool:
    return not compliance.evidence.evidence_refs and not compliance.evidence.evidence_absent_reason


def _lacks_resolution(compliance: Compliance, payload: BeliefUpdate) -> bool:
    return payload.contradiction_details is None and payload.update_type == _RESOLVED


def _lacks_token(compliance: Compliance, payload: Directive) -> bool:
    return payload.authorization_token_id is None and payload.tool_safety_class in _WRITES


def _lacks_error(compliance: Compliance, payload: TaskResult) -> bool:
    return payload.error_details is None and payload.result_status == _FAILURE


CONDITIONS: Final = (
    FieldCondition(
        kind=None,
        given="/mcp/evidence/evidence_refs",
        values=([],),
        pointer="/mcp/evidence/evidence_absent_reason",
        reason="without evidence_refs a reason that is not empty is required",
        rules=(),
        unmet=_lacks_evidence,
    ),
    FieldCondition(
        kind=PacketKind.BELIEF_UPDATE,
        given="/payload/update_type",
        values=(_RESOLVED,),
        pointer="/payload/contradiction_details",
        reason="contradiction_details are required when update_type is contradiction_resolved",
        rules=(),
        unmet=_lacks_resolution,
    ),
    FieldCondition(
        kind=PacketKind.DIRECTIVE,
        given="/payload/tool_safety_class",
        values=_WRITES,
        pointer="/payload/authorization_token_id",
        reason="a token is required when tool_safety_class is WRITE or MIXED",
        rules=("E4",),
        unmet=_lacks_token,
    ),
    FieldCondition(
        kind=PacketKind.RESULT,
        given="/payload/result_status",
        values=(_FAILURE,),
        pointer="/payload/error_details",
        reason="error_details are required when result_status is FAILURE",
        rules=(),
        unmet=_lacks_error,
    ),
)
_OWN: Final = {condition.kind: condition.unmet for condition in CONDITIONS if condition.kind is not None}
_NOTHING: Final[tuple[ShapeError, ...]] = ()


def conditions_for(kind: PacketKind) -> tuple[FieldCondition, ...]:
    """Return the conditions that a packet of this kind has."""
    return tuple(condition for condition in CONDITIONS if condition.kind in (None, kind))


def error_for(condition: FieldCondition, kind: PacketKind) -> ShapeError:
    """Return the error of a packet of this kind that does not meet `condition`."""
    return ShapeError(condition.pointer, condition.reason, (*rules_at(kind, condition.pointer), *condition.rules))


def find_unmet_conditions(kind: PacketKind, compliance: Compliance, payload: Any) -> tuple[ShapeError, ...]:
    """Return an error for every condition between fields that does not hold."""
    evidence = compliance.evidence
    # `_lacks_evidence` written out, as every packet comes by here.
    if evidence.evidence_refs or evidence.evidence_absent_reason:
        own = _OWN.get(kind)
        if own is None or not own(compliance, payload):
            return _NOTHING
    return tuple(
        error_for(condition, kind) for condition in conditions_for(kind) if condition.unmet(compliance, payload)
    )


# --------------------------------------------------------------------------------------------------------------- the ids
Match: TypeAlias = Callable[[str], object]

_PACKET: Final = f"pkt_{ID_TAIL}"
_TOKEN: Final = f"token_{ID_TAIL}"
_TASK: Final = f"task_{ID_TAIL}"
# In place of an absent id.
_A_PACKET: Final = "pkt_0"
_A_TOKEN: Final = "token_0"  # noqa: S105  # an id, not a secret


def _compile_ids(*ids: str) -> Match:
    """Return a function that matches ids joined by the separator, and returns None if they are not such."""
    return re.compile(r"\|".join(ids)).fullmatch


_HEADER_IDS: Final = (_PACKET, f"corr_{ID_TAIL}", _PACKET)
_header_matches: Final = _compile_ids(*_HEADER_IDS)
_plan_matches: Final = _compile_ids(*_HEADER_IDS, _PACKET)
_token_matches: Final = _compile_ids(*_HEADER_IDS, _TOKEN)
_directive_matches: Final = _compile_ids(*_HEADER_IDS, _TASK, _TOKEN)
_result_matches: Final = _compile_ids(*_HEADER_IDS, _TASK, _PACKET, _PACKET)
_escalation_matches: Final = _compile_ids(*_HEADER_IDS, _PACKET)
_is_packet_id: Final = _compile_ids(_PACKET)
_is_token_id: Final = _compile_ids(_TOKEN)
_is_campaign_id: Final = _compile_ids(f"camp_{ID_TAIL}")


def _belief_ids_match(header: str, payload: BeliefUpdate) -> bool:
    if not _header_matches(header):
        return False
    details = payload.contradiction_details
    integrated = payload.evidence_integration
    return (integrated is None or all(map(_is_packet_id, integrated))) and (
        details is None or all(map(_is_packet_id, details.conflicting_packet_ids or ()))
    )


def _decision_ids_match(header: str, payload: Decision) -> bool:
    if not _header_matches(header):
        return False
    verified = (assumption.verification_packet_id for assumption in payload.load_bearing_assumptions or ())
    return all(named is None or _is_packet_id(named) for named in verified)


def _plan_ids_match(header: str, payload: VerificationPlan) -> bool:
    return _plan_matches(f"{header}|{payload.triggering_decision_id}") is not None


def _token_ids_match(header: str, payload: Token) -> bool:
    return _token_matches(f"{header}|{payload.token_id}") is not None


def _directive_ids_match(header: str, payload: Directive) -> bool:
    token = payload.authorization_token_id
    return _directive_matches(f"{header}|{payload.task_id}|{_A_TOKEN if token is None else token}") is not None


def _result_ids_match(header: str, payload: TaskResult) -> bool:
    seen = payload.observation_packet_id
    ids = f"{header}|{payload.task_id}|{payload.directive_packet_id}|{_A_PACKET if seen is None else seen}"
    return _result_matches(ids) is not None


def _escalation_ids_match(header: str, payload: Escalation) -> bool:
    blocking = payload.blocking_decision_packet_id
    return _escalation_matches(f"{header}|{_A_PACKET if blocking is None else blocking}") is not None


def _alert_ids_match(header: str, payload: Alert) -> bool:
    if not _header_matches(header):
        return False
    return all(map(_is_packet_id, payload.related_packet_ids or ())) and all(
        map(_is_token_id, payload.revoked_token_ids or ())
    )


# By kind: whether the header's ids, joined, and those of the payload are ids; the other payloads have none.
_ID_CHECKS: Final[dict[PacketKind, Callable[[str, Any], bool]]] = {
    PacketKind.BELIEF_UPDATE: _belief_ids_match,
    PacketKind.DECISION: _decision_ids_match,
    PacketKind.VERIFICATION_PLAN: _plan_ids_match,
    PacketKind.TOKEN: _token_ids_match,
    PacketKind.DIRECTIVE: _directive_ids_match,
    PacketKind.RESULT: _result_ids_match,
    PacketKind.ESCALATION: _escalation_ids_match,
    PacketKind.ALERT: _alert_ids_match,
}


def ids_match(header: Header, payload: Any, kind: PacketKind) -> bool:
    """Return whether every id in the header and the payload has its prefix and, after it, only what an id may hold."""
    campaign = header.campaign_id
    if campaign is not None and not _is_campaign_id(campaign):
        return False
    previous = header.previous_packet_id
    text = f"{header.packet_id}|{header.correlation_id}|{_A_PACKET if previous is None else previous}"
    match = _ID_CHECKS.get(kind)
    return _header_matches(text) is not None if match is None else match(text, payload)
