"""What `proctor ledger verify` prints: every finding by its row, the counts, and what was proved and what not."""

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from proctor.cli.columns import Sheet, many, wrapped
from proctor.cli.output import plain, plain_json
from proctor.ledger.verify import Finding, Report


class Found(Struct, frozen=True):
    """A finding as JSON says it."""

    file: str
    chain: str | None
    seq: int | None
    number: int | None
    what: str


class Said(Struct, frozen=True):
    """A report as JSON says it."""

    ok: bool
    findings: list[Found]
    rows: int
    chains: int
    seals: int
    unsealed: int
    signed: bool
    headed: bool
    says: str


def as_json(report: Report) -> bytes:
    """Return the report as one object, with its line's end."""
    said = Said(
        report.ok,
        [Found(str(each.file), each.chain, each.seq, each.number, each.what) for each in report.findings],
        report.rows,
        report.chains,
        report.seals,
        report.unsealed,
        report.signed,
        report.headed,
        report.says,
    )
    return plain_json(msgspec.json.encode(said)) + b"\n"


def as_text(sheet: Sheet, report: Report) -> Iterator[str]:
    """Yield the report, a line or a few at a time; the first finding stands first."""
    for finding in report.findings:
        yield sheet.styled(f"{plain(place(finding))}: ", fg="red", bold=True) + plain(finding.what) + "\n"
    counts = f"{many(report.rows, 'row')} in {many(report.chains, 'chain')}, {many(report.seals, 'seal')}: "
    if report.ok and report.unsealed:
        yield counts + sheet.styled(f"no finding, but {many(report.unsealed, 'row')} without proof", fg="yellow") + "\n"
    elif report.ok:
        yield counts + sheet.styled("nothing is wrong", fg="green", bold=True) + "\n"
    else:
        yield counts + sheet.styled(many(len(report.findings), "finding"), fg="red", bold=True) + "\n"
    for line in wrapped(report.says, sheet.width) if sheet.terminal else [plain(report.says)]:
        yield sheet.styled(line, dim=report.signed or report.headed, fg=None if report.signed else "yellow") + "\n"


def place(finding: Finding) -> str:
    """Return where something is wrong."""
    words = [finding.file.name]
    words += [] if finding.number is None else [f"row {finding.number}"]
    if finding.chain is not None:
        words.append(finding.chain if finding.seq is None else f"{finding.chain} at {finding.seq}")
    return ", ".join(words)
