"""Verdicts as JSON: one object a line.

Rule 1: the keys are the same for every line; `file`, `record`, `synthetic` and what an explanation adds are there only
    where they say something.
Rule 2: nothing that is not printable leaves here raw, not even what JSON would allow: somebody looks at it in a terminal.
"""

from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from proctor.cli.lines import Line
from proctor.cli.output import plain_json
from proctor.episode.kinds import RecordKind
from proctor.episode.rulebook import Finding
from proctor.episode.states import State
from proctor.episode.verdict_words import legal_in, sentence_of
from proctor.episode.verdicts import Obligation, Synthetic, Verdict

ACCEPTED: Final = "accepted"
REFUSED: Final = "refused"


class Told(Struct, frozen=True, gc=False):
    """A finding; `sentence` is what its rule says, where an explanation was asked for."""

    rule: str
    pointer: str
    reason: str
    sentence: str | UnsetType = UNSET


class Answer(Struct, frozen=True, gc=False):
    """A verdict as it is printed."""

    line: int
    packet_id: str | None
    correlation_id: str | None
    verdict: str
    path: tuple[State, ...]
    rules: tuple[str, ...]
    pointers: tuple[str, ...]
    reason: str
    warnings: tuple[Told, ...]
    legal_next: tuple[str, ...]
    obligations: tuple[Obligation, ...]
    file: str | UnsetType = UNSET
    record: str | UnsetType = UNSET
    synthetic: tuple[Synthetic, ...] | UnsetType = UNSET
    findings: tuple[Told, ...] | UnsetType = UNSET
    legal_in: tuple[State, ...] | UnsetType = UNSET
    way: tuple[str, ...] | UnsetType = UNSET


class _Recorded(Struct, frozen=True):
    """The part of a record that says which it is."""

    record: RecordKind


_RECORD: Final = msgspec.json.Decoder(_Recorded)
_NONE: Final = ()


def answer(line: Line, verdict: Verdict, *, file: str | UnsetType = UNSET, explain: bool = False) -> Answer:
    """Return what is printed of `verdict`."""
    refused = not verdict.accepted
    return Answer(
        line=line.number,
        packet_id=verdict.packet_id,
        correlation_id=verdict.correlation_id,
        verdict=REFUSED if refused else ACCEPTED,
        path=verdict.path,
        rules=verdict.rules if refused else _NONE,
        pointers=verdict.pointers if refused else _NONE,
        reason=verdict.reason,
        warnings=tuple(_told(warning) for warning in verdict.warnings) if verdict.warnings else _NONE,
        legal_next=verdict.legal_next,
        obligations=verdict.obligations,
        file=file,
        record=record_of(line) if verdict.packet_id is None else UNSET,
        synthetic=verdict.synthetic or UNSET,
        findings=tuple(_told(each, verdict) for each in verdict.findings) if explain and refused else UNSET,
        legal_in=_legal_in(verdict) if explain and refused else UNSET,
        way=verdict.way if explain and refused else UNSET,
    )


def _told(finding: Finding, verdict: Verdict | None = None) -> Told:
    sentence = UNSET if verdict is None else sentence_of(finding.rule, verdict.context)
    return Told(finding.rule, finding.pointer, finding.reason, sentence)


def _legal_in(verdict: Verdict) -> tuple[State, ...] | UnsetType:
    return UNSET if verdict.event is None else legal_in(verdict.event, verdict.context.settings)


def record_of(line: Line) -> str | UnsetType:
    """Return which record a line is, or tries to be; UNSET if it is none."""
    try:
        return UNSET if line.text is None else _RECORD.decode(line.text).record.value
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return UNSET


def encoded(value: Struct | dict[str, Any]) -> bytes:
    """Return `value` as one line, with its end."""
    return plain_json(msgspec.json.encode(value)) + b"\n"
