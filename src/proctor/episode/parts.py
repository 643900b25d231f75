"""The parts of payloads from plain words: a belief, a target, an option, and what another packet carries.

Rule 1: whoever passes the whole part keeps it as it is; whoever passes a word gets a part made from it.
Rule 2: a part that cannot be made is a ValidationError that names the field by its JSON pointer.
"""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from proctor.episode.coercion import Grounds, packet_id, raw, word
from proctor.episode.envelope import Evidence
from proctor.episode.kinds import OperationType
from proctor.episode.packets import AnyPacket, Packet
from proctor.episode.payloads import (
    BeliefChange,
    EscalationOption,
    EvidenceGap,
    LoadBearingAssumption,
    Token,
    VerificationTarget,
)
from proctor.errors import ValidationError

_Payload = TypeVar("_Payload")


def carried(payload: type[_Payload], packet: AnyPacket, pointer: str) -> _Payload:
    """Return what `packet` carries, which must be a `payload`."""
    found = packet.payload if isinstance(packet, Packet) else packet
    if not isinstance(found, payload):
        expected = f"the packet of a {payload.__name__}"
        raise ValidationError(f"{pointer} is not known", found=type(found).__name__, expected=expected)
    return found


def token_id(of: Packet[Token] | str, pointer: str) -> str:
    """Return the id of a token that is given as its packet or by its id."""
    return of if isinstance(of, str) else carried(Token, of, pointer).token_id


def belief_changes(changes: Mapping[str, object] | Iterable[BeliefChange], domain: str) -> list[BeliefChange]:
    """Return the changes; a mapping states new values in one `domain`, with nothing believed before."""
    if not isinstance(changes, Mapping):
        return list(changes)
    nothing = raw(None, "")
    return [
        BeliefChange(domain, key, raw(value, f"/payload/belief_changes/{index}/new_value"), nothing)
        for index, (key, value) in enumerate(changes.items())
    ]


def integrated(grounds: Grounds, stated: Iterable[AnyPacket | str] | None) -> list[str] | None:
    """Return the ids of what a belief integrates: what is stated, or else the packets among its evidence."""
    if stated is None:
        stated = () if isinstance(grounds, Evidence) else [item for item in grounds if isinstance(item, Packet)]
    return [packet_id(packet) for packet in stated] or None


def assumptions(verified: Mapping[str, bool] | None) -> list[LoadBearingAssumption] | None:
    """Return the assumptions that bear the load, each with whether it is verified."""
    return None if verified is None else [LoadBearingAssumption(*item) for item in verified.items()]


def targets(stated: Iterable[str | VerificationTarget]) -> list[VerificationTarget]:
    """Return what is to be verified; a text is the assumption."""
    return [item if isinstance(item, VerificationTarget) else _target(i, item) for i, item in enumerate(stated, 1)]


def _target(number: int, assumption: str) -> VerificationTarget:
    return VerificationTarget(
        target_id=f"target_{number}",
        description=f"verify: {assumption}",
        assumption_text=assumption,
        verification_method="read it again",
        success_criteria="it is seen again",
    )


def operations(stated: Iterable[str]) -> list[OperationType]:
    """Return what a token allows to do."""
    pointer = "/payload/authorized_scope/operation_types"
    return [word(OperationType, operation, f"{pointer}/{i}") for i, operation in enumerate(stated)]


def options(stated: Iterable[str | EscalationOption]) -> list[EscalationOption]:
    """Return what a human can choose; a text is the description."""
    return [item if isinstance(item, EscalationOption) else _option(i, item) for i, item in enumerate(stated, 1)]


def _option(number: int, description: str) -> EscalationOption:
    return EscalationOption(
        option_id=f"option_{number}", description=description, pros=["it is possible"], cons=["it is not certain"]
    )


def gaps(stated: Iterable[str | EvidenceGap]) -> list[EvidenceGap]:
    """Return what is not known; a text is the gap."""
    return [item if isinstance(item, EvidenceGap) else EvidenceGap(item, "the choice may be wrong") for item in stated]
