"""Verdicts as JSON: one object a line.

Rule 1: the keys are the same for every line; `file`, `record`, `synthetic` and what an explanation adds are there only
    where they say something.
Rule 2: nothing that is not printable leaves here raw, not even what JSON would allow: somebody looks at it in a terminal.
"""

from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from proctor.cli.output import printable_json
from proctor.cli.verdicts.json_lines import InputLine
from proctor.episode.explanations import rule_sentence, states_where_legal
from proctor.episode.packets.enums import RecordKind
from proctor.episode.rules.rule import RuleFinding
from proctor.episode.transition_table import ProtocolState
from proctor.episode.verdicts import Obligation, SyntheticTransition, Verdict

ACCEPTED: Final = "accepted"
REFUSED: Final = "refused"


class FindingJson(Struct, frozen=True, gc=False):
    """A finding; `sentence` is what its rule says, where an explanation was asked for."""

    rule: str
    pointer: str
    reason: str
    sentence: str | UnsetType = UNSET


class VerdictJson(Struct, frozen=True, gc=False):
    """A verdict as it is printed."""

    line: int
    packet_id: str | None
    correlation_id: str | None
    verdict: str
    path: tuple[ProtocolState, ...]
    rules: tuple[str, ...]
    pointers: tuple[str, ...]
    reason: str
    warnings: tuple[FindingJson, ...]
    legal_next: tuple[str, ...]
    obligations: tuple[Obligation, ...]
    file: str | UnsetType = UNSET
    record: str | UnsetType = UNSET
    synthetic: tuple[SyntheticTransition, ...] | UnsetType = UNSET
    findings: tuple[FindingJson, ...] | UnsetType = UNSET
    legal_in: tuple[ProtocolState, ...] | UnsetType = UNSET
    way: tuple[str, ...] | UnsetType = UNSET


class _RecordHead(Struct, frozen=True):
    """The part of a record that says which it is."""

    record: RecordKind


_RECORD: Final = msgspec.json.Decoder(_RecordHead)
_NONE: Final = ()


def verdict_as_json(
    line: InputLine, verdict: Verdict, *, file: str | UnsetType = UNSET, explain: bool = False
) -> VerdictJson:
    """Return what is printed of `verdict`."""
    refused = not verdict.accepted
    return VerdictJson(
        line=line.number,
        packet_id=verdict.packet_id,
        correlation_id=verdict.correlation_id,
        verdict=REFUSED if refused else ACCEPTED,
        path=verdict.path,
        rules=verdict.rules if refused else _NONE,
        pointers=verdict.pointers if refused else _NONE,
        reason=verdict.reason,
        warnings=tuple(_finding_as_json(warning) for warning in verdict.warnings) if verdict.warnings else _NONE,
        legal_next=verdict.legal_next,
        obligations=verdict.obligations,
        file=file,
        record=find_record_kind(line) if verdict.packet_id is None else UNSET,
        synthetic=verdict.synthetic or UNSET,
        findings=tuple(_finding_as_json(each, verdict) for each in verdict.findings) if explain and refused else UNSET,
        legal_in=_find_legal_states(verdict) if explain and refused else UNSET,
        way=verdict.way if explain and refused else UNSET,
    )


def _finding_as_json(finding: RuleFinding, verdict: Verdict | None = None) -> FindingJson:
    sentence = UNSET if verdict is None else rule_sentence(finding.rule, verdict.context)
    return FindingJson(finding.rule, finding.pointer, finding.reason, sentence)


def _find_legal_states(verdict: Verdict) -> tuple[ProtocolState, ...] | UnsetType:
    return UNSET if verdict.event is None else states_where_legal(verdict.event, verdict.context.settings)


def find_record_kind(line: InputLine) -> str | UnsetType:
    """Return which record a line is, or tries to be; UNSET if it is none."""
    try:
        return UNSET if line.text is None else _RECORD.decode(line.text).record.value
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return UNSET


def encode_line(value: Struct | dict[str, Any]) -> bytes:
    """Return `value` as one line, with its end."""
    return printable_json(msgspec.json.encode(value)) + b"\n"
