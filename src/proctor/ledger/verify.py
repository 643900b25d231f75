"""Whether a ledger is as it was written: every row, value and seal, and what that proves.

Rule 1: a damaged file is a finding, never an exception. Every finding names the file and, as far as it is known, the chain, the
    place in it and the number of the row; the first bad row comes first.
Rule 2: where a key is given, nothing signed is a finding, and tombstones count for heads, which is said: their rows are gone.
Rule 3: what can be proved and what cannot is said always, in one sentence that depends on what was given: a key, heads, both or nothing.
Rule 4: what was written while it was read without locks is read again.
Rule 5: in a signed ledger, rows after the last seal of their chain are a finding unless a server is seen writing to the file, or the
    caller accepts them: somebody may have dropped the end of the record, and written anew what comes before it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from proctor.errors import ValidationError
from proctor.ledger.audit import FileAudit, LedgerFinding, format_row_count
from proctor.ledger.chain import Head, is_episode_chain, parse_head
from proctor.ledger.rows import Tombstone
from proctor.ledger.storage.ledger_file import ledger_files
from proctor.ledger.storage.lock import has_writer
from proctor.ledger.storage.sqlite import connect_for_reading, file_fingerprint

__all__ = ["LedgerFinding", "VerificationReport", "verify"]

Progress: TypeAlias = Callable[[int, int], None]
MAX_TRIES: Final = 3
MOST_KEYS: Final = 4


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """What was looked at, what was found, and what that proves."""

    findings: tuple[LedgerFinding, ...]
    rows: int
    chains: int
    seals: int
    unsealed: int
    """Rows of open chains after their last seal, for which no head speaks either; in a ledger that nobody signs they are not counted."""
    signed: bool
    """A key was given, every seal is by it, and no row waits for a seal."""
    headed: bool
    """Heads were given, and every one of them is there: none was pruned."""
    says: str

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings


@dataclass(frozen=True, slots=True)
class ProofInputs:
    """What was given: whether a key, how many heads, and of how many of these the episodes were pruned."""

    keyed: bool
    heads: int
    pruned: int
    allow_unsealed: bool


def verify(
    path: Path | str,
    *,
    heads: Sequence[str] = (),
    public: bytes | None = None,
    allow_unsealed: bool = False,
    progress: Progress | None = None,
) -> VerificationReport:
    """Return whether the ledger at `path` is as it was written.

    `heads` are texts that a server gave out, and `public` is the key of the server that signed, both kept elsewhere. With `allow_unsealed`,
    rows after the last seal of their chain are counted and are no finding. `progress` is told how many rows of how many are done.
    A ValidationError if there is no ledger, or a head is none.
    """
    wanted = [parse_head(text) for text in heads]
    audits: list[FileAudit] = []
    for file in ledger_files(path):
        shifted = None if progress is None else _shift_progress(progress, sum(each.rows for each in audits))
        audits.append(_audit_file(file, wanted, public, shifted))
        audits[-1].findings.sort(key=lambda found: (found.number is None, found.number or 0))
    findings = [finding for audit in audits for finding in audit.findings]
    findings += _find_duplicates(audits)
    if public is not None and not any(audit.seals for audit in audits):
        findings.append(LedgerFinding(audits[0].path, None, None, None, "nothing here is signed, and a key was given"))
    # Of chains whose tombstones do not speak against their heads, that is all that can be said.
    stones = {chain: stone for audit in audits for chain, stone in audit.statements.tombstones.items()}
    pruned = [
        head
        for head in wanted
        if public is not None and head.chain in stones and _tombstone_agrees(head, stones[head.chain])
    ]
    met = {head for audit in audits for head in audit.found_heads}
    findings += [_explain_unmet_head(head, audits) for head in wanted if head not in pruned and head not in met]
    return _build_report(findings, audits, ProofInputs(public is not None, len(wanted), len(pruned), allow_unsealed))


def _audit_file(path: Path, wanted: list[Head], public: bytes | None, progress: Progress | None) -> FileAudit:
    """Return what is found in a file; if somebody began to write it meanwhile, what is found after that."""
    tries = 0
    while True:
        before, audit = file_fingerprint(path), FileAudit(path, wanted, public)
        audit.live = has_writer(path) is True
        try:
            with closing(connect_for_reading(path)) as connection:
                audit.run(connection, progress)
        except ValidationError as problem:
            audit.add_finding(str(problem))
        tries += 1
        if tries > MAX_TRIES or file_fingerprint(path) == before:
            return audit


def _shift_progress(progress: Progress, done: int) -> Progress:
    return lambda rows, total: progress(done + rows, done + total)


def _find_duplicates(audits: list[FileAudit]) -> list[LedgerFinding]:
    seen: dict[str, Path] = {}
    found: list[LedgerFinding] = []
    for audit in audits:
        chains = [walk.name for walk in audit.chain_walks.values() if is_episode_chain(walk.name)]
        names: dict[str, str | None] = {f"the chain {chain}": chain for chain in chains}
        names |= {f"the run {boot} of worker {worker}": None for boot, worker in sorted(audit.statements.runs)}
        for what, chain in names.items():
            first = seen.setdefault(what, audit.path)
            if first != audit.path:
                found.append(LedgerFinding(audit.path, chain, None, None, f"{what} is in {first.name}, too"))
    return found


def _tombstone_agrees(head: Head, stone: Tombstone) -> bool:
    return stone.head == str(head) or stone.rows > head.rows


def _explain_unmet_head(head: Head, audits: list[FileAudit]) -> LedgerFinding:
    for audit in audits:
        stone = audit.statements.tombstones.get(head.chain)
        if stone is not None:
            what = (
                "the chain was pruned, and only with a key is it known by whom"
                if _tombstone_agrees(head, stone)
                else "its tombstone says otherwise than a head"
            )
            return LedgerFinding(audit.path, head.chain, None, None, f"{what}: {head}")
        for walk in audit.chain_walks.values():
            if walk.name == head.chain:
                what = f"the rows {walk.seq + 1} to {head.rows - 1} of the chain are missing: a head says so"
                return LedgerFinding(audit.path, head.chain, walk.seq + 1, None, what)
    what = f"the chain is missing, of which a head speaks: {head}"
    return LedgerFinding(audits[0].path, head.chain, None, None, what)


def _build_report(findings: list[LedgerFinding], audits: list[FileAudit], asked: ProofInputs) -> VerificationReport:
    damaged = bool(findings)
    if not asked.allow_unsealed:
        findings = findings + [each.to_finding() for audit in audits if not audit.live for each in audit.unsealed]
    ok = not findings
    unsealed = sum(each.rows for audit in audits for each in audit.unsealed)
    return VerificationReport(
        findings=tuple(findings),
        rows=sum(audit.rows for audit in audits),
        chains=sum(len(audit.chain_walks) for audit in audits),
        seals=sum(audit.seals for audit in audits),
        unsealed=unsealed,
        signed=asked.keyed and ok and not unsealed,
        headed=asked.heads > 0 and not asked.pruned and ok,
        says=" ".join([*_describe_result(audits, asked, damaged=damaged), _describe_proof(asked)]),
    )


def _describe_result(audits: list[FileAudit], asked: ProofInputs, *, damaged: bool) -> Iterator[str]:
    if damaged:
        yield "The ledger is not as it was written: see the findings."
        return
    yield "Every row follows on the one before it, and every value has the hash by which it is named."
    keys = sorted({key.hex() for audit in audits for key in audit.keys})
    if asked.keyed:
        yield "Every seal is by the key that was given, and what is closed is sealed."
    elif keys:
        more = f" and {len(keys) - MOST_KEYS} more" if len(keys) > MOST_KEYS else ""
        named = f"the key{'s' if len(keys) > 1 else ''} {', '.join(keys[:MOST_KEYS])}{more}"
        yield f"The seals are by {named}, as the ledger itself says: only --key tells whether that is the server's."
    yield from _describe_unsealed_rows(audits, asked)
    if asked.pruned:
        yield f"Heads whose episodes were pruned, so that no row can be held against them any more: {asked.pruned}."
    if asked.heads > asked.pruned:
        yield f"Nothing up to the {'other ' if asked.pruned else ''}heads that were given was changed or dropped."
    bundles = sum(audit.bundle for audit in audits)
    if bundles:
        files = "It is a bundle, which has" if bundles == 1 else f"{bundles} files are bundles, of which each has"
        yield f"{files} one episode, and shows nothing of others."


def _describe_unsealed_rows(audits: list[FileAudit], asked: ProofInputs) -> Iterator[str]:
    found = [(audit, each) for audit in audits for each in audit.unsealed]
    writing = [each.rows for audit, each in found if audit.live]
    if any(writing):
        yield (
            f"A server seems to be writing: {format_row_count(sum(writing))} in {_format_chain_count(len(writing))} come after the last seal of their "
            "chain. They cannot be proved yet, and are sealed when the episode ends or the server stops."
        )
    elif writing:
        yield "A server seems to be writing: its run has no end yet."
    left = [each.rows for audit, each in found if not audit.live]
    if not left:
        return
    yield f"Nothing proves {format_row_count(sum(left))} in {_format_chain_count(len(left))}, which no seal covers and no server is seen writing to."
    if asked.allow_unsealed:
        return
    if any(audit.bundle for audit, _ in found):
        yield "Of a bundle, ask for the head of its last row, or for a new bundle when the episode is over."
    if any(not audit.bundle for audit, _ in found):
        yield (
            "Either a server was killed, or somebody dropped the end of the record. Start the server on this folder again: it takes its sessions "
            "up, and seals what it finds. Hold the heads that you kept against it first."
        )
    yield "To accept such rows without proof, use --allow-unsealed."


def _format_chain_count(count: int) -> str:
    return "1 chain" if count == 1 else f"{count} chains"


def _describe_proof(asked: ProofInputs) -> str:
    if asked.keyed and asked.heads > asked.pruned:
        return (
            "With the key and the heads this can prove that the owner of the key wrote every row up to the last seal of its chain and that "
            "nothing up to the heads is missing; it cannot prove that nothing is missing after the heads, or of other chains."
        )
    if asked.keyed:
        return (
            "With the key this can prove that its owner wrote every row up to the last seal of its chain; it cannot prove that "
            "nothing is missing: rows that were dropped from the end of a file, whole runs and whole files show only with a head."
        )
    if asked.heads > asked.pruned:
        return (
            "With the heads this can prove that nothing up to them was changed or dropped in their chains; of later rows and of other "
            "chains it shows accidental damage only."
        )
    return (
        "Without a key or a head from elsewhere this shows accidental damage only: somebody who can write the file "
        "could have written it anew."
    )
