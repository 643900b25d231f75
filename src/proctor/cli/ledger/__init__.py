"""`proctor ledger`: what is on record, whether it is as it was written, and how to take it along.

Rule 1: exit code 0; 1 if `verify` finds something; 2 if the command line or the ledger named by it is wrong.
Rule 2: only `prune` changes a ledger, and it says what it will remove before it asks.
Rule 3: results go to standard output, progress and what is said beside them to standard error.
Rule 4: `export` writes each format with its row of `WRITERS`, which returns what is to be said beside it. What is written to
    standard output can be piped on; a file or a folder appears whole or not at all. What a format needs is imported when it is asked for.
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final, NamedTuple, TypeAlias

import typer
from rich.filesize import decimal

from proctor.cli.ledger.pages import OPEN_REASON, describe_ending, format_episode, print_episodes
from proctor.cli.options import TrustOption, command_with_trust, load_signing_key, parse_public_key
from proctor.cli.output import encode_line, make_app, print_note, printable, printable_json, standard_output
from proctor.cli.terminal import format_time, progress_bar, stdout_format
from proctor.errors import ValidationError
from proctor.ledger import export as exports
from proctor.ledger.export import encode_row, select_episodes
from proctor.ledger.prune import prune as remove_episodes
from proctor.ledger.reader import EpisodeSummary, Ledger
from proctor.ledger.verify import VerificationReport
from proctor.ledger.verify import verify as verified
from proctor.models.descriptions import format_count

LedgerArgument: TypeAlias = Annotated[
    Path, typer.Argument(metavar="LEDGER", help="The folder of a ledger, one of its files, or a bundle.")
]
EpisodeArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="EPISODE", help="A chain, an episode_id, or a beginning of one.")
]
EpisodesArgument: TypeAlias = Annotated[
    list[str] | None, typer.Argument(metavar="EPISODE", help="Chains, episode_ids, or beginnings of them.")
]
JsonOption: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON, an object a line.")]

ledger = make_app("List, show, verify, export and prune what is on record.")


@ledger.command("list")
def list_episodes(
    path: LedgerArgument,
    environment: Annotated[str | None, typer.Option(metavar="NAME", help="Only of environments like this.")] = None,
    is_open: Annotated[bool, typer.Option("--open", help="Only episodes that have not ended.")] = False,
    governed: Annotated[bool, typer.Option("--governed", help="Only governed episodes.")] = False,
    as_json: JsonOption = False,
) -> None:
    """List the episodes, the oldest first."""
    with Ledger.open(path) as record:
        found = [
            each
            for each in record.episodes()
            if (environment or "").lower() in each.environment.lower()
            and (each.reason == OPEN_REASON or not is_open)
            and (each.governed or not governed)
        ]
        _report_unread_files(record)
    with standard_output() as output:
        if not as_json:
            print_episodes(output, found)
            return
        for each in found:
            output.write(encode_line({**asdict(each), "end": describe_ending(each), "file": str(each.file)}))


@ledger.command()
def show(
    path: LedgerArgument,
    episode: EpisodeArgument,
    rows: Annotated[str | None, typer.Option(metavar="A:B", help="Only the rows from A to before B.")] = None,
    each: Annotated[bool, typer.Option("--each", help="Give every step a line, also those that repeat.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Tell an episode: when, who, what, and what came of it."""
    wanted = None if rows is None else _parse_range(rows)
    with Ledger.open(path) as record, standard_output() as output:
        found = record.find(episode)
        _report_unread_files(record)
        if as_json:
            for row in record.rows(found.chain):
                if wanted is None or row.seq in wanted:
                    output.write(printable_json(encode_row(row)))
            return
        command = f"proctor ledger verify {path} --head HEAD"
        for line in format_episode(stdout_format(), record, found, wanted, folded=not each, verify=command):
            output.print(line)


def _parse_range(text: str) -> range:
    """Return the rows that A:B names; either may be left out."""
    first, colon, last = text.partition(":")
    if not colon or not all(part == "" or (part.isascii() and part.isdigit()) for part in (first, last)):
        raise ValidationError("these are no rows", found=text, expected="A:B, such as 10:20, 10: or :20")
    return range(int(first or 0), int(last) if last else sys.maxsize)


@ledger.command()
def verify(
    path: LedgerArgument,
    head: Annotated[
        list[str] | None, typer.Option(metavar="HEAD", help="A head that you were given: CHAIN@ROWS:HASH.")
    ] = None,
    key: Annotated[
        str | None, typer.Option(metavar="PUB", help="The public key of who signed: its digits, or a file with them.")
    ] = None,
    allow_unsealed: Annotated[
        bool,
        typer.Option("--allow-unsealed", help="Accept rows after the last seal of their chain, which nothing proves."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as one JSON object.")] = False,
) -> None:
    """Check every row, chain and seal, and say what that proves."""
    public = None if key is None else parse_public_key(key)
    with progress_bar("verifying", unit="rows") as shown:
        report = verified(path, heads=head or (), public=public, allow_unsealed=allow_unsealed, progress=shown.update)
    with standard_output() as output:
        if as_json:
            names = ("ok", "findings", "rows", "chains", "seals", "unsealed", "signed", "headed", "says")
            findings = [asdict(each) | {"file": str(each.file)} for each in report.findings]
            output.write(encode_line({name: getattr(report, name) for name in names} | {"findings": findings}))
        else:
            output.print("".join(f"{line}\n" for line in _report_lines(report)))
    raise typer.Exit(0 if report.ok else 1)


def _report_lines(report: VerificationReport) -> Iterator[str]:
    """Yield the findings, the first first, then the counts and what that proves."""
    form = stdout_format()
    for finding in report.findings:
        words = [finding.file.name]
        words += [] if finding.number is None else [f"row {finding.number}"]
        if finding.chain is not None:
            words.append(finding.chain if finding.seq is None else f"{finding.chain} at {finding.seq}")
        place = printable(", ".join(words))
        yield form.style(f"{place}: ", fg="red", bold=True) + printable(finding.what)
    if not report.ok:
        verdict = form.style(format_count(len(report.findings), "finding"), fg="red", bold=True)
    elif report.unsealed:
        verdict = form.style(f"no finding, but {format_count(report.unsealed, 'row')} without proof", fg="yellow")
    else:
        verdict = form.style("nothing is wrong", fg="green", bold=True)
    counts = ((report.rows, "row"), (report.chains, "chain"), (report.seals, "seal"))
    rows, chains, seals = (format_count(count, what) for count, what in counts)
    yield f"{rows} in {chains}, {seals}: {verdict}"
    for line in form.wrap(report.says):
        yield form.style(line, dim=report.signed or report.headed, fg=None if report.signed else "yellow")


# --------------------------------------------------------------------------------------------------------------- export
class ExportFormat(StrEnum):
    """What an export can be."""

    JSONL = "jsonl"
    PARQUET = "parquet"
    MINARI = "minari"
    OTEL = "otel"


class Export(NamedTuple):
    """What is exported: `found` None is everything, with the server's own rows; `packets` is for `jsonl`: nothing else."""

    record: Ledger
    found: Sequence[EpisodeSummary] | None
    out: Path | None
    packets: bool
    more: Callable[[int], None]


def _export_jsonl(asked: Export) -> str:
    rows = exports.report_progress(exports.read_rows(asked.record, asked.found), asked.more)
    return _write_text(exports.encode_packets(rows) if asked.packets else map(encode_row, rows), asked.out)


def _export_otel(asked: Export) -> str:
    from proctor.integrations.otel import otlp_lines

    return _write_text(otlp_lines(asked.record, asked.found or (), asked.more), asked.out)


def _write_text(text: Iterable[bytes], out: Path | None) -> str:
    if out is None:
        with standard_output() as output:
            shown = map(printable_json, text) if sys.stdout.isatty() else text
            for line in shown:
                output.write(line)
        return ""
    with exports.new_file(out) as file:
        count = sum(map(bool, map(file.write, text)))
    return f"{format_count(count, 'line')} in {out}"


def _export_parquet(asked: Export) -> str:
    from proctor.ledger.export import write_parquet

    path = asked.out or Path()
    written = write_parquet(asked.record, asked.found or (), path, asked.more)
    return f"{format_count(written, 'row')} in {path}"


def _export_minari(asked: Export) -> str:
    from proctor.integrations.minari import export_minari

    path = asked.out or Path()
    made = export_minari(asked.record, asked.found or (), path, asked.more)
    empty = f"; left out, because they have no step: {', '.join(made.left_out)}" if made.left_out else ""
    return (
        f"{format_count(made.episodes, 'episode')}, {format_count(made.steps, 'step')} in {path}{empty}\n"
        f"MINARI_DATASETS_PATH={path.absolute().parent} python -c "
        f"\"import minari; print(minari.load_dataset('{made.dataset_id}').spec)\""
    )


WRITERS: Final[Mapping[ExportFormat, Callable[[Export], str]]] = {
    ExportFormat.JSONL: _export_jsonl,
    ExportFormat.PARQUET: _export_parquet,
    ExportFormat.MINARI: _export_minari,
    ExportFormat.OTEL: _export_otel,
}
NOT_TEXT: Final = {ExportFormat.PARQUET: "steps.parquet", ExportFormat.MINARI: "plume-v0"}
"""What cannot go to standard output, with an example of a path."""


@ledger.command()
def export(
    context: typer.Context,
    path: LedgerArgument,
    episodes: EpisodesArgument = None,
    form: Annotated[ExportFormat, typer.Option("--format", help="What to write.")] = ExportFormat.JSONL,
    out: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="A new file, of minari a new folder; jsonl and otel: standard output."),
    ] = None,
    packets: Annotated[
        bool, typer.Option("--packets", help="Of governed episodes only the packets, for `proctor judge -`.")
    ] = False,
    trust: TrustOption = False,
) -> None:
    """Write episodes for other programs, all where none is named.

    JSON lines of all have the server's own rows, too. For people there is `proctor export`: a page to look at. Only minari makes the
    environment, which it asks for its spaces; without --trust that is one that is registered here.
    """
    if packets and form is not ExportFormat.JSONL:
        raise ValidationError("packets are lines of JSON", found=f"--format {form}", expected="--format jsonl")
    where = None if out is None or str(out) == "-" else out
    if where is None and form in NOT_TEXT:
        raise ValidationError(
            "this format is not for standard output", expected=f"--out PATH, such as {NOT_TEXT[form]}"
        )
    with Ledger.open(path) as record:
        everything = form is ExportFormat.JSONL and not (episodes or packets)
        found = None if everything else select_episodes(record, episodes or [])
        if form is ExportFormat.MINARI and not trust:
            from proctor.replay.replayer import check_episode

            for each in found or ():
                check_episode(record, each.chain, trusting=command_with_trust(context))
        total = None if found is None else sum(each.rows for each in found)
        quiet = where is None and sys.stdout.isatty()
        with progress_bar("reading", total, unit="rows", quiet=quiet) as shown:
            said = WRITERS[form](Export(record, found, where, packets, shown.advance))
        _report_unread_files(record)
    if said:
        print_note(*said.split("\n"))


@ledger.command()
def bundle(
    path: LedgerArgument,
    episode: EpisodeArgument,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The new file, such as episode.ledger.")],
) -> None:
    """Write one episode to a file that stands alone.

    It can be handed over, verified and replayed.
    """
    with Ledger.open(path) as record:
        found = record.find(episode)
        exports.write_bundle(record, found.chain, out)
    with standard_output() as output:
        output.print(f"{printable(found.head)}\n")
    print_note(f"{found.rows:,} rows are in {out}; proctor ledger verify {out} --head {found.head}")


MOST_NAMED: Final = 20
"""Of more episodes than that, the first are named."""


@ledger.command()
def prune(
    path: LedgerArgument,
    episodes: EpisodesArgument = None,
    before: Annotated[
        str | None, typer.Option(metavar="DATE", help="All that ended before: 2026-01-31, or with a time, in UTC.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
) -> None:
    """Remove whole episodes; signed tombstones stay."""
    with Ledger.open(path) as record:
        found = _select_prunable(record, episodes or [], before)
        _report_unread_files(record)
    print_note(*_describe_plan(found), style="")
    if not found or dry_run:
        return
    if not yes:
        if not _can_be_asked():
            raise ValidationError("there is nobody to ask", expected="--yes")
        typer.confirm("Remove them for good?", abort=True, err=True)
    # What was announced is what is removed: chains by name, never a condition that is looked at again.
    why = "" if before is None else f"ended before {before}"
    done = remove_episodes(path, [each.chain for each in found], load_signing_key().signer, time.time, why=why)
    with standard_output() as output:
        size = decimal(done.bytes)
        output.print(f"removed {format_count(done.chains, 'episode')}, {format_count(done.rows, 'row')}, {size}\n")


def _select_prunable(record: Ledger, names: Sequence[str], before: str | None) -> list[EpisodeSummary]:
    """Return the episodes that are named, or all that ended before a date.

    One that is open, or whose session is not over, is refused by name, and passed over if only the date was named.
    """
    if bool(names) == (before is not None):
        raise ValidationError("it is not clear what to remove", expected="episodes by name, or --before DATE")
    held = record.unfinished()
    if before is not None:
        limit = _parse_time(before)
        over = (each for each in record.episodes() if each.reason != OPEN_REASON and each.chain not in held)
        # One that was left without a word has no end: its beginning counts.
        return [each for each in over if (each.opened_at if each.closed_at is None else each.closed_at) < limit]
    found = select_episodes(record, names)
    for each in found:
        if each.reason == OPEN_REASON or each.chain in held:
            what = "an episode" if each.reason == OPEN_REASON else "an episode of a session"
            raise ValidationError(f"{what} that is not over stays", found=each.chain, expected="one that has ended")
    return found


def _parse_time(text: str) -> float:
    """Return a date or a time in seconds since 1970; without a zone it is in UTC."""
    try:
        said = datetime.fromisoformat(text)
    except ValueError:
        raise ValidationError("not a date", found=text, expected="2026-01-31 or 2026-01-31T12:00") from None
    return (said if said.tzinfo is not None else said.replace(tzinfo=UTC)).timestamp()


def _describe_plan(found: Sequence[EpisodeSummary]) -> Iterator[str]:
    if not found:
        yield "There is nothing to remove."
        return
    for each in found[:MOST_NAMED]:
        facts = (each.environment, format_time(each.opened_at), format_count(each.rows, "row"), describe_ending(each))
        yield "  ".join((each.chain, *facts))
    if len(found) > MOST_NAMED:
        yield f"... and {len(found) - MOST_NAMED:,} more"
    episodes, rows = format_count(len(found), "episode"), format_count(sum(each.rows for each in found), "row")
    yield f"To be removed: {episodes} with {rows}. A signed tombstone of each stays."


def _can_be_asked() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


@ledger.command()
def key() -> None:
    """Print the public key that verifies what this machine signs."""
    found = load_signing_key()
    with standard_output() as output:
        output.print(f"{found.signer.public.hex()}\n")
    where = "the environment" if found.path is None else str(found.path)
    print_note(f"{'a new key was made; its' if found.made else 'the'} secret half is in {where}")


def _report_unread_files(record: Ledger) -> None:
    """Say which files could not be read: what they hold is not in the result."""
    for problem in record.unread.values():
        print_note(problem)
