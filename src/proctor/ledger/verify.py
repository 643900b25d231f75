"""Whether a ledger is as it was written: every row, value and seal, and what that proves.

Rule 1: a damaged file is a finding, never an exception. Every finding names the file and, as far as it is known, the chain, the
    place in it and the number of the row; the first bad row comes first.
Rule 2: where a key is given, nothing signed is a finding, and tombstones count for heads, which is said: their rows are gone.
Rule 3: without a key or a head from elsewhere, somebody who can write the file can write it anew from end to end: then only
    accidental damage is shown, and the report says so.
Rule 4: what was written while it was read without locks is read again.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from proctor.errors import ValidationError
from proctor.ledger.audit import Audit
from proctor.ledger.chain import is_episode
from proctor.ledger.files import ledger_files
from proctor.ledger.findings import Finding
from proctor.ledger.head import Head, parsed_head
from proctor.ledger.rows import Tombstone
from proctor.ledger.schema import connected_for_reading, stamp

__all__ = ["Finding", "Report", "verify"]

Progress: TypeAlias = Callable[[int, int], None]
TRIES: Final = 3
_BY_WHOM: Final = "the chain was pruned, and only with a key is it known by whom"
_OTHERWISE: Final = "its tombstone says otherwise than a head"


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
    """Heads were given, and every one of them is there: none was pruned."""
    says: str
    """What was proved and what was not, in a few sentences."""

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings


@dataclass(frozen=True, slots=True)
class Asked:
    """What was given: whether a key, how many heads, and of how many of these the episodes were pruned."""

    keyed: bool
    heads: int
    pruned: int


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
        shifted = None if progress is None else _shifted(progress, sum(each.rows for each in audits))
        audits.append(_audited(file, wanted, public, shifted))
    findings = [finding for audit in audits for finding in sorted(audit.findings, key=_place)]
    findings += _twice(audits)
    if public is not None and not any(audit.seals for audit in audits):
        findings.append(Finding(audits[0].path, None, None, None, "nothing here is signed, and a key was given"))
    pruned = _pruned(wanted, audits) if public is not None else []
    findings += _unmet([head for head in wanted if head not in pruned], audits)
    return _report(tuple(findings), audits, Asked(public is not None, len(wanted), len(pruned)))


def _audited(path: Path, wanted: list[Head], public: bytes | None, progress: Progress | None) -> Audit:
    """Return what is found in a file; if somebody began to write it meanwhile, what is found after that."""
    before, audit = _walked(path, wanted, public, progress)
    for _ in range(TRIES):
        if stamp(path) == before:
            break
        before, audit = _walked(path, wanted, public, progress)
    return audit


def _walked(
    path: Path, wanted: list[Head], public: bytes | None, progress: Progress | None
) -> tuple[tuple[object, ...], Audit]:
    """Return how the file was before it was looked at, and what is found."""
    before, audit = stamp(path), Audit(path, wanted, public)
    _walk(audit, progress)
    return before, audit


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


def _twice(audits: list[Audit]) -> list[Finding]:
    """Return what is in two files: episodes, and runs of one worker."""
    seen: dict[str, Path] = {}
    found: list[Finding] = []
    for audit in audits:
        for what, chain in _own_names(audit):
            first = seen.setdefault(what, audit.path)
            if first != audit.path:
                found.append(Finding(audit.path, chain, None, None, f"{what} is in {first.name}, too"))
    return found


def _own_names(audit: Audit) -> list[tuple[str, str | None]]:
    """Return what no other file has: how it is called, and its chain."""
    episodes = [(f"the chain {link.name}", link.name) for link in audit.links.values() if is_episode(link.name)]
    runs = [(f"the run {boot} of worker {worker}", None) for boot, worker in sorted(audit.claims.runs)]
    return [*episodes, *runs]


def _pruned(wanted: list[Head], audits: list[Audit]) -> list[Head]:
    """Return the heads of chains whose tombstones do not speak against them; that is all that can be said of them."""
    stones = {chain: stone for audit in audits for chain, stone in audit.claims.tombstones.items()}
    return [head for head in wanted if head.chain in stones and _agree(head, stones[head.chain])]


def _agree(head: Head, stone: Tombstone) -> bool:
    return stone.head == str(head) or stone.rows > head.rows


def _unmet(wanted: list[Head], audits: list[Audit]) -> list[Finding]:
    """Return what is missing of the heads that were given."""
    met = {head for audit in audits for head in audit.met}
    return [finding for head in wanted if head not in met for finding in _missing(head, audits)]


def _missing(head: Head, audits: list[Audit]) -> list[Finding]:
    for audit in audits:
        stone = audit.claims.tombstones.get(head.chain)
        if stone is not None:
            what = _BY_WHOM if _agree(head, stone) else _OTHERWISE
            return [Finding(audit.path, head.chain, None, None, f"{what}: {head}")]
        for link in audit.links.values():
            if link.name == head.chain:
                what = f"the rows {link.seq + 1} to {head.rows - 1} of the chain are missing: a head says so"
                return [Finding(audit.path, head.chain, link.seq + 1, None, what)]
    return [Finding(audits[0].path, head.chain, None, None, f"the chain is missing, of which a head speaks: {head}")]


def _report(findings: tuple[Finding, ...], audits: list[Audit], asked: Asked) -> Report:
    ok = not findings
    return Report(
        findings=findings,
        rows=sum(audit.rows for audit in audits),
        chains=sum(len(audit.links) for audit in audits),
        seals=sum(audit.seals for audit in audits),
        signed=asked.keyed and ok,
        headed=asked.heads > 0 and not asked.pruned and ok,
        says=" ".join(_says(audits, asked)) if ok else "The ledger is not as it was written: see the findings.",
    )


def _says(audits: list[Audit], asked: Asked) -> Iterator[str]:
    yield "Every row follows on the one before it, and every value has the hash by which it is named."
    if asked.keyed:
        yield _sealed(sum(audit.unsealed for audit in audits), sum(audit.bare for audit in audits))
    if asked.pruned:
        yield f"Heads whose episodes were pruned, so that no row can be held against them any more: {asked.pruned}."
    if asked.heads > asked.pruned:
        yield f"Nothing up to the {'other ' if asked.pruned else ''}heads that were given was changed or dropped."
    if not asked.keyed and not asked.heads:
        yield (
            "Without a key or a head from elsewhere this shows accidental damage only: somebody who can write the file "
            "could have written it anew."
        )
    elif asked.heads == asked.pruned:
        yield "Rows that were dropped from the end of a file, and files that are missing, show only with a head."
    bundles = sum(audit.bundle for audit in audits)
    if bundles:
        files = "It is a bundle, which has" if bundles == 1 else f"{bundles} files are bundles, of which each has"
        yield f"{files} one episode, and shows nothing of others."


def _sealed(rows: int, chains: int) -> str:
    bare = f", among them all of {chains} chains that have no seal" if chains else ""
    return (
        f"Every seal is by the key that was given, and what is closed is sealed; {rows} rows come after the last seal of "
        f"their chain{bare}."
    )
