"""Whether a ledger is as it was written: every row, value and seal, and what that proves.

Rule 1: a damaged file is a finding, never an exception. Every finding names the file and, as far as it is known, the chain, the
    place in it and the number of the row; the first bad row comes first.
Rule 2: without a key or a head from elsewhere, somebody who can write the file can write it anew from end to end: then only
    accidental damage is shown, and the report says so.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from proctor.errors import ValidationError
from proctor.ledger.audit import Audit
from proctor.ledger.files import ledger_files
from proctor.ledger.findings import Finding
from proctor.ledger.head import Head, parsed_head
from proctor.ledger.schema import connected_for_reading

__all__ = ["Finding", "Report", "verify"]

Progress: TypeAlias = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Report:
    """What was looked at, what was found, and what that proves."""

    findings: tuple[Finding, ...]
    rows: int
    chains: int
    seals: int
    signed: bool
    """A key was given, and every seal is by it."""
    headed: bool
    """Heads were given, and every one of them is there."""
    says: str
    """What was proved and what was not, in a few sentences."""

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings


def verify(
    path: Path | str, *, heads: Sequence[str] = (), public: bytes | None = None, progress: Progress | None = None
) -> Report:
    """Return whether the ledger at `path` is as it was written.

    `heads` are texts that a server gave out, and `public` is the key of the server that signed, both kept elsewhere.
    `progress` is told how many rows of how many are done. A ValidationError if there is no ledger, or a head is none.
    """
    wanted = [parsed_head(text) for text in heads]
    audits: list[Audit] = []
    for file in ledger_files(path):
        audit = Audit(file, wanted, public)
        audits.append(audit)
        _walk(audit, None if progress is None else _shifted(progress, sum(each.rows for each in audits)))
    findings = [finding for audit in audits for finding in sorted(audit.findings, key=_place)]
    findings += _unmet(wanted, audits)
    return _report(tuple(findings), audits, bool(wanted), public is not None)


def _walk(audit: Audit, progress: Progress | None) -> None:
    try:
        connection = connected_for_reading(audit.path)
    except ValidationError as problem:
        audit.note(str(problem))
        return
    try:
        audit.walk(connection, progress)
    finally:
        connection.close()


def _shifted(progress: Progress, done: int) -> Progress:
    return lambda rows, total: progress(done + rows, done + total)


def _place(finding: Finding) -> tuple[bool, int]:
    return finding.number is None, finding.number or 0


def _unmet(wanted: list[Head], audits: list[Audit]) -> list[Finding]:
    """Return what is missing of the heads that were given."""
    met = {head for audit in audits for head in audit.met}
    return [finding for head in wanted if head not in met for finding in _missing(head, audits)]


def _missing(head: Head, audits: list[Audit]) -> list[Finding]:
    for audit in audits:
        stone = audit.claims.tombstones.get(head.chain)
        if stone is not None and (stone.head == str(head) or stone.rows > head.rows):
            return []
        for link in audit.links.values():
            if link.name == head.chain:
                what = f"the rows {link.seq + 1} to {head.rows - 1} of the chain are missing: a head says so"
                return [Finding(audit.path, head.chain, link.seq + 1, None, what)]
    return [Finding(audits[0].path, head.chain, None, None, f"the chain is missing, of which a head speaks: {head}")]


def _report(findings: tuple[Finding, ...], audits: list[Audit], headed: bool, keyed: bool) -> Report:
    seals = sum(audit.seals for audit in audits)
    signed = keyed and seals > 0
    return Report(
        findings=findings,
        rows=sum(audit.rows for audit in audits),
        chains=sum(len(audit.links) for audit in audits),
        seals=seals,
        signed=signed and not findings,
        headed=headed and not findings,
        says=_says(not findings, signed, headed, sum(audit.unsealed for audit in audits)),
    )


def _says(ok: bool, signed: bool, headed: bool, unsealed: int) -> str:
    if not ok:
        return "The ledger is not as it was written: see the findings."
    said = ["Every row follows on the one before it, and every value has the hash by which it is named."]
    if signed:
        said.append(
            f"Every chain is signed by the key that was given, but for the last {unsealed} rows after the seals."
        )
    if headed:
        said.append("Nothing up to the heads that were given was changed or dropped.")
    if not signed and not headed:
        said.append(
            "Without a key or a head from elsewhere this shows accidental damage only: somebody who can write the file "
            "could have written it anew."
        )
    elif not headed:
        said.append("Rows that were dropped from the end of the file show only with a head.")
    return " ".join(said)
