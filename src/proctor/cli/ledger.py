"""`proctor ledger`: what is on record, whether it is as it was written, and how to take it along.

Rule 1: exit code 0; 1 if `verify` finds something; 2 if the command line or the ledger named by it is wrong.
Rule 2: only `prune` changes a ledger, and it says what it will remove before it asks.
Rule 3: results go to standard output, progress and what is said beside them to standard error.
"""

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer
from rich.console import Console

from proctor.cli import episode_list, pruning, verification
from proctor.cli.columns import Sheet, sheet
from proctor.cli.ledger_export import WRITERS, Asked, Format
from proctor.cli.ledger_key import found_key, public_key
from proctor.cli.narrator import Narrator
from proctor.cli.output import Output, plain, plain_json, standard_output
from proctor.cli.progress import bar
from proctor.cli.timeline import entries
from proctor.cli.timeline_page import Page
from proctor.cli.trust import TrustOption, trusting_command
from proctor.errors import ValidationError
from proctor.ledger.bundle import write_bundle
from proctor.ledger.export_jsonl import line_of
from proctor.ledger.reader import EpisodeSummary, Ledger, Row
from proctor.ledger.verify import verify as verified

FIRST: Final = 200
"""Rows that are read to know who takes part."""

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

ledger = typer.Typer(
    add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False, invoke_without_command=True
)


@ledger.callback()
def _group(context: typer.Context) -> None:
    """List, show, verify, export and prune what is on record."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


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
        found = episode_list.wanted(record.episodes(), environment=environment, is_open=is_open, governed=governed)
        _name_unread(record)
    with standard_output() as output:
        if as_json:
            for line in episode_list.as_json(found):
                output.write(line)
        else:
            _print(output, episode_list.as_text(sheet(), found))


@ledger.command()
def show(
    path: LedgerArgument,
    episode: EpisodeArgument,
    rows: Annotated[str | None, typer.Option(metavar="A:B", help="Only the rows from A to before B.")] = None,
    each: Annotated[bool, typer.Option("--each", help="Give every step a line, also those that repeat.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Tell an episode: when, who, what, and what came of it."""
    wanted = None if rows is None else _range(rows)
    with Ledger.open(path) as record, standard_output() as output:
        found = record.find(episode)
        _name_unread(record)
        if as_json:
            for row in _within(record.rows(found.chain), wanted):
                output.write(plain_json(line_of(row)))
        else:
            _print(output, _timeline(sheet(), record, found, path, wanted, folded=not each))


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
    public = None if key is None else public_key(key)
    with bar("verifying", unit="rows") as shown:
        report = verified(path, heads=head or (), public=public, allow_unsealed=allow_unsealed, progress=shown.to)
    with standard_output() as output:
        if as_json:
            output.write(verification.as_json(report))
        else:
            _print(output, verification.as_text(sheet(), report))
    raise typer.Exit(0 if report.ok else 1)


@ledger.command()
def export(
    context: typer.Context,
    path: LedgerArgument,
    episodes: EpisodesArgument = None,
    form: Annotated[Format, typer.Option("--format", help="What to write.")] = Format.JSONL,
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
    if packets and form is not Format.JSONL:
        raise ValidationError("packets are lines of JSON", found=f"--format {form}", expected="--format jsonl")
    where = None if out is None or str(out) == "-" else out
    with Ledger.open(path) as record:
        said = WRITERS[form](
            record, episodes or [], where, Asked(packets, None if trust else trusting_command(context))
        )
        _name_unread(record)
    if said:
        _remark(said)


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
        write_bundle(record, found.chain, out)
    with standard_output() as output:
        _print(output, [f"{plain(found.head)}\n"])
    _remark(f"{found.rows:,} rows are in {out}; proctor ledger verify {out} --head {found.head}")


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
        found = pruning.wanted(record, episodes or [], before)
        _name_unread(record)
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for line in pruning.announced(found):
        console.print(plain(line), markup=False)
    if not found or dry_run:
        return
    pruning.ask(yes=yes)
    why = "" if before is None else f"ended before {before}"
    with standard_output() as output:
        _print(output, [pruning.pruned(path, found, why)])


@ledger.command()
def key() -> None:
    """Print the public key that verifies what this machine signs."""
    found = found_key()
    with standard_output() as output:
        _print(output, [f"{found.signer.public.hex()}\n"])
    where = "the environment" if found.path is None else str(found.path)
    _remark(f"{'a new key was made; its' if found.made else 'the'} secret half is in {where}")


# --------------------------------------------------------------------------------------------------------------- parts
def _timeline(
    page_of: Sheet, record: Ledger, found: EpisodeSummary, path: Path, wanted: range | None, *, folded: bool
) -> Iterator[str]:
    """Yield the page of an episode."""
    narrator = Narrator()
    # Who takes part is known after a few rows; the columns are set before the first is printed.
    for row in islice(record.rows(found.chain), FIRST):
        narrator.hear(row.event)
    page = Page(page_of, max((len(f"agent {name}") for name in narrator.agents.values()), default=0))
    yield from page.header(found, narrator.opened, narrator.seed)
    narrator = Narrator()
    for entry in entries(record.rows(found.chain), narrator, folded=folded, wanted=wanted):
        yield page.entry(entry)
    yield from page.footer(found, narrator.count, f"proctor ledger verify {path} --head HEAD")


def _range(text: str) -> range:
    """Return the rows that A:B names; either may be left out."""
    first, colon, last = text.partition(":")
    if not colon or not all(part == "" or (part.isascii() and part.isdigit()) for part in (first, last)):
        raise ValidationError("these are no rows", found=text, expected="A:B, such as 10:20, 10: or :20")
    return range(int(first or 0), int(last) if last else sys.maxsize)


def _within(rows: Iterable[Row], wanted: range | None) -> Iterator[Row]:
    return (row for row in rows if wanted is None or row.seq in wanted)


def _print(output: Output, parts: Iterable[str]) -> None:
    encoding = sys.stdout.encoding or "utf-8"
    for part in parts:
        output.write(part.encode(encoding, "replace"))


def _name_unread(record: Ledger) -> None:
    """Say which files could not be read: what they hold is not in the result."""
    for problem in record.unread.values():
        _remark(problem)


def _remark(text: str) -> None:
    """Say something beside the result."""
    shown = "\n".join(map(plain, text.split("\n")))
    Console(stderr=True, highlight=False, soft_wrap=True).print(shown, style="dim", markup=False)
