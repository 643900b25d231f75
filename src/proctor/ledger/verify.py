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
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from proctor.errors import ValidationError
from proctor.ledger.audit import Audit
from proctor.ledger.chain import is_episode
from proctor.ledger.files import ledger_files
from proctor.ledger.findings import Finding, counted_rows
from proctor.ledger.head import Head, parsed_head
from proctor.ledger.lock import has_writer
from proctor.ledger.rows import Tombstone
from proctor.ledger.schema import connected_for_reading, stamp

__all__ = ["Finding", "Report", "verify"]

Progress: TypeAlias = Callable[[int, int], None]
TRIES: Final = 3
MOST_KEYS: Final = 4
"""So many keys are named."""
_BY_WHOM: Final = "the chain was pruned, and only with a key is it known by whom"
_OTHERWISE: Final = "its tombstone says otherwise than a head"


@dataclass(frozen=True, slots=True)
class Report:
    """What was looked at, what was found, and what that proves."""

    findings: tuple[Finding, ...]
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
    """What was found, in a few sentences, of which the last says what this can prove and what it cannot."""

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
    allow_unsealed: bool


def verify(
    path: Path | str,
    *,
    heads: Sequence[str] = (),
    public: bytes | None = None,
    allow_unsealed: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Return whether the ledger at `path` is as it was written.

    `heads` are texts that a server gave out, and `public` is the key of the server that signed, both kept elsewhere. With `allow_unsealed`,
    rows after the last seal of their chain are counted and are no finding. `progress` is told how many rows of how many are done.
    A ValidationError if there is no ledger, or a head is none.
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
    return _report(findings, audits, Asked(public is not None, len(wanted), len(pruned), allow_unsealed))


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
    audit.live = has_writer(path) is True
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


def _report(findings: list[Finding], audits: list[Audit], asked: Asked) -> Report:
    damaged = bool(findings)
    if not asked.allow_unsealed:
        findings = findings + [each.finding() for audit in audits if not audit.live for each in audit.unsealed]
    ok = not findings
    unsealed = sum(each.rows for audit in audits for each in audit.unsealed)
    return Report(
        findings=tuple(findings),
        rows=sum(audit.rows for audit in audits),
        chains=sum(len(audit.links) for audit in audits),
        seals=sum(audit.seals for audit in audits),
        unsealed=unsealed,
        signed=asked.keyed and ok and not unsealed,
        headed=asked.heads > 0 and not asked.pruned and ok,
        says=" ".join([*_says(audits, asked, damaged=damaged), _proves(asked)]),
    )


def _says(audits: list[Audit], asked: Asked, *, damaged: bool) -> Iterator[str]:
    if damaged:
        yield "The ledger is not as it was written: see the findings."
        return
    yield "Every row follows on the one before it, and every value has the hash by which it is named."
    keys = sorted({key.hex() for audit in audits for key in audit.keys})
    if asked.keyed:
        yield "Every seal is by the key that was given, and what is closed is sealed."
    elif keys:
        yield f"The seals are by {_keys(keys)}, as the ledger itself says: only --key tells whether that is the server's."
    yield from _unsealed_words(audits, asked)
    if asked.pruned:
        yield f"Heads whose episodes were pruned, so that no row can be held against them any more: {asked.pruned}."
    if asked.heads > asked.pruned:
        yield f"Nothing up to the {'other ' if asked.pruned else ''}heads that were given was changed or dropped."
    bundles = sum(audit.bundle for audit in audits)
    if bundles:
        files = "It is a bundle, which has" if bundles == 1 else f"{bundles} files are bundles, of which each has"
        yield f"{files} one episode, and shows nothing of others."


def _keys(keys: list[str]) -> str:
    more = f" and {len(keys) - MOST_KEYS} more" if len(keys) > MOST_KEYS else ""
    return f"the key{'s' if len(keys) > 1 else ''} {', '.join(keys[:MOST_KEYS])}{more}"


def _unsealed_words(audits: list[Audit], asked: Asked) -> Iterator[str]:
    """Yield how much is not sealed, why that may be, and what to do."""
    found = [(audit, each) for audit in audits for each in audit.unsealed]
    writing = [each.rows for audit, each in found if audit.live]
    if any(writing):
        yield (
            f"A server seems to be writing: {counted_rows(sum(writing))} in {_chains(len(writing))} come after the last seal of their "
            "chain. They cannot be proved yet, and are sealed when the episode ends or the server stops."
        )
    elif writing:
        yield "A server seems to be writing: its run has no end yet."
    left = [each.rows for audit, each in found if not audit.live]
    if not left:
        return
    yield f"Nothing proves {counted_rows(sum(left))} in {_chains(len(left))}, which no seal covers and no server is seen writing to."
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


def _chains(count: int) -> str:
    return "1 chain" if count == 1 else f"{count} chains"


def _proves(asked: Asked) -> str:
    """Return what a look at the ledger can prove, and what it cannot."""
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
