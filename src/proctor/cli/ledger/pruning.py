"""Which episodes `proctor ledger prune` removes, what it says of them, and how it asks.

Rule: what was announced is what is removed: chains by name, never a condition that is looked at again.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import typer
from rich.filesize import decimal

from proctor.cli.ledger.episode_pages import OPEN_REASON, describe_ending
from proctor.cli.ledger_key import load_signer
from proctor.cli.terminal import format_count, format_time
from proctor.errors import ValidationError
from proctor.ledger.export.output import select_episodes
from proctor.ledger.prune import prune
from proctor.ledger.reader import EpisodeSummary, Ledger

SHOWN: Final = 20
"""Of more episodes than that, the first are named."""
_EITHER: Final = "episodes by name, or --before DATE"


def select_prunable(record: Ledger, names: Sequence[str], before: str | None) -> list[EpisodeSummary]:
    """Return the episodes that are named, or all that ended before a date.

    One that is open, or whose session is not over, is refused by name, and passed over if only the date was named.
    """
    if bool(names) == (before is not None):
        raise ValidationError("it is not clear what to remove", expected=_EITHER)
    if before is not None:
        limit, held = parse_time(before), record.unfinished()
        over = (each for each in record.episodes() if each.reason != OPEN_REASON and each.chain not in held)
        return [each for each in over if _end_time(each) < limit]
    found, held = select_episodes(record, names), record.unfinished()
    for each in found:
        if each.reason == OPEN_REASON or each.chain in held:
            what = "an episode" if each.reason == OPEN_REASON else "an episode of a session"
            raise ValidationError(f"{what} that is not over stays", found=each.chain, expected="one that has ended")
    return found


def _end_time(episode: EpisodeSummary) -> float:
    """Return when an episode ended; of one that was left without a word, when it began."""
    return episode.opened_at if episode.closed_at is None else episode.closed_at


def parse_time(text: str) -> float:
    """Return a date or a time in seconds since 1970; without a zone it is in UTC."""
    try:
        said = datetime.fromisoformat(text)
    except ValueError:
        raise ValidationError("not a date", found=text, expected="2026-01-31 or 2026-01-31T12:00") from None
    return (said if said.tzinfo is not None else said.replace(tzinfo=UTC)).timestamp()


def describe_plan(found: Sequence[EpisodeSummary]) -> Iterator[str]:
    """Yield what will be removed, a line each."""
    if not found:
        yield "There is nothing to remove."
        return
    for each in found[:SHOWN]:
        yield f"{each.chain}  {each.environment}  {format_time(each.opened_at)}  {format_count(each.rows, 'row')}  {describe_ending(each)}"
    if len(found) > SHOWN:
        yield f"... and {len(found) - SHOWN:,} more"
    rows = sum(each.rows for each in found)
    yield f"To be removed: {format_count(len(found), 'episode')} with {format_count(rows, 'row')}. A signed tombstone of each stays."


def confirm(*, yes: bool) -> None:
    """Return if it may be done; one who cannot be asked must have said --yes."""
    if yes:
        return
    if not _can_be_asked():
        raise ValidationError("there is nobody to ask", expected="--yes")
    typer.confirm("Remove them for good?", abort=True, err=True)


def _can_be_asked() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def prune_episodes(path: Path, found: Sequence[EpisodeSummary], why: str) -> str:
    """Remove these episodes and return what came of it; `why` is for their tombstones."""
    done = prune(path, [each.chain for each in found], load_signer(), time.time, why=why)
    return f"removed {format_count(done.chains, 'episode')}, {format_count(done.rows, 'row')}, {decimal(done.bytes)}\n"
