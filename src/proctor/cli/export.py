"""`proctor export`: an episode as a page that is one file, to look at and to hand over.

Rule 1: the file appears whole or not at all, and takes another's place only with --force.
Rule 2: the path and the size go to standard output, progress to standard error.
Rule 3: only --fork runs an environment, and without --trust only one that is registered here; everything else reads the record.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.filesize import decimal

from proctor.cli.output import printable, standard_output
from proctor.cli.replay_options import TrustOption, command_with_trust, parse_actions
from proctor.cli.terminal import progress_bar
from proctor.errors import ValidationError
from proctor.ledger.reader import Ledger
from proctor.replay.replayer import check_episode
from proctor.viewer.comparison import fork_episode as forked
from proctor.viewer.episode import find_episode
from proctor.viewer.single_file import build_page, save_page

LEDGER_VARIABLE: Final = "PROCTOR_LEDGER"
LEDGER_FOLDER: Final = Path("ledger")
"""Where the ledger is that nobody named, if it is there."""


def export(
    context: typer.Context,
    episode: Annotated[
        str,
        typer.Argument(
            metavar="EPISODE", help="A chain, an episode_id, or a beginning of one; or a ledger with one episode."
        ),
    ],
    html: Annotated[Path, typer.Option("--html", metavar="FILE", help="The page to write, such as out.html.")],
    ledger: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help=f"The ledger: a folder, a file, a bundle; else {LEDGER_VARIABLE}, else ./{LEDGER_FOLDER}.",
        ),
    ] = None,
    beside: Annotated[
        str | None, typer.Option(metavar="OTHER", help="Another episode of the ledger, side by side with this one.")
    ] = None,
    fork: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="Side by side with a branch after step N, with --actions; runs the environment's code.",
        ),
    ] = None,
    actions: Annotated[
        str | None, typer.Option(metavar="JSON|FILE", help="A JSON list of actions, or a file with one.")
    ] = None,
    trust: TrustOption = False,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="The title of the page.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Take the place of a file that is there already.")] = False,
) -> None:
    """Write an episode as a page: one file that opens from disk, with no server.

    For other programs there is `proctor ledger export`.
    """
    if (fork is None) != (actions is None):
        raise ValidationError("--fork and --actions go together", expected="--fork N --actions '[...]'")
    _check_target(html, force)
    where, name = _find_ledger(episode, ledger)
    with Ledger.open(where) as record:
        chain = find_episode(record, name).chain
        others = [] if beside is None else [record.find(beside).chain]
        if fork is not None and not trust:
            check_episode(record, chain, trusting=command_with_trust(context))
        forks = [] if fork is None else [forked(record, chain, fork, parse_actions(actions or ""))]
        with progress_bar("reading", unit="rows") as shown:
            text = build_page(
                record, list(dict.fromkeys([chain, *others])), title=title, forks=forks, progress=shown.update
            )
    save_page(html, text)
    with standard_output() as output:
        name = printable(str(html)) if sys.stdout.isatty() else str(html)
        output.write(os.fsencode(f"{name}  {decimal(len(text.encode()))}\n"))


def _check_target(path: Path, force: bool) -> None:
    """Refuse a place that is taken before anything is read."""
    if os.path.lexists(path) and not force:
        raise ValidationError(f"{str(path)!r} is there already", expected="another name, or --force")
    if not path.parent.is_dir():
        raise ValidationError(f"there is no folder {str(path.parent)!r}", expected="a folder to write to")


def _find_ledger(episode: str, ledger: Path | None) -> tuple[Path, str | None]:
    """Return which ledger is meant, and which episode of it; None: the only one."""
    if ledger is not None:
        return ledger, episode
    with suppress(OSError):  # a name that no file can have
        if Path(episode).exists():
            return Path(episode), None
    told = os.environ.get(LEDGER_VARIABLE)
    if told:
        return Path(told), episode
    if LEDGER_FOLDER.is_dir():
        return LEDGER_FOLDER, episode
    raise ValidationError(
        f"no ledger was named, and {episode!r} is none itself",
        expected=f"--ledger PATH, or {LEDGER_VARIABLE} in the environment, or a folder ./{LEDGER_FOLDER}",
    )
