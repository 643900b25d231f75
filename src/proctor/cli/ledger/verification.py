"""What `proctor ledger verify` prints: every finding by its row, the counts, and what was proved and what not."""

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from proctor.cli.output import printable, printable_json
from proctor.cli.terminal import OutputFormat, format_count, wrap_words
from proctor.ledger.verify import LedgerFinding, VerificationReport


class VerifyFindingJson(Struct, frozen=True):
    """A finding as JSON says it."""

    file: str
    chain: str | None
    seq: int | None
    number: int | None
    what: str


class VerifyReportJson(Struct, frozen=True):
    """A report as JSON says it."""

    ok: bool
    findings: list[VerifyFindingJson]
    rows: int
    chains: int
    seals: int
    unsealed: int
    signed: bool
    headed: bool
    says: str


def report_as_json(report: VerificationReport) -> bytes:
    """Return the report as one object, with its line's end."""
    said = VerifyReportJson(
        report.ok,
        [VerifyFindingJson(str(each.file), each.chain, each.seq, each.number, each.what) for each in report.findings],
        report.rows,
        report.chains,
        report.seals,
        report.unsealed,
        report.signed,
        report.headed,
        report.says,
    )
    return printable_json(msgspec.json.encode(said)) + b"\n"


def report_as_text(sheet: OutputFormat, report: VerificationReport) -> Iterator[str]:
    """Yield the report, a line or a few at a time; the first finding stands first."""
    for finding in report.findings:
        yield (
            sheet.style(f"{printable(describe_location(finding))}: ", fg="red", bold=True)
            + printable(finding.what)
            + "\n"
        )
    counts = f"{format_count(report.rows, 'row')} in {format_count(report.chains, 'chain')}, {format_count(report.seals, 'seal')}: "
    if report.ok and report.unsealed:
        yield (
            counts
            + sheet.style(f"no finding, but {format_count(report.unsealed, 'row')} without proof", fg="yellow")
            + "\n"
        )
    elif report.ok:
        yield counts + sheet.style("nothing is wrong", fg="green", bold=True) + "\n"
    else:
        yield counts + sheet.style(format_count(len(report.findings), "finding"), fg="red", bold=True) + "\n"
    for line in wrap_words(report.says, sheet.width) if sheet.terminal else [printable(report.says)]:
        yield sheet.style(line, dim=report.signed or report.headed, fg=None if report.signed else "yellow") + "\n"


def describe_location(finding: LedgerFinding) -> str:
    """Return where something is wrong."""
    words = [finding.file.name]
    words += [] if finding.number is None else [f"row {finding.number}"]
    if finding.chain is not None:
        words.append(finding.chain if finding.seq is None else f"{finding.chain} at {finding.seq}")
    return ", ".join(words)
