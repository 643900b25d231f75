"""`proctor view`: the pages over a ledger, in a browser, with no server beside it; `proctor export`: an episode as a page that is one file.

Rule 1: the address that is printed holds a code that is good once; when it was used, the next one is printed.
Rule 2: an exported page appears whole or not at all, and takes another's place only with --force.
Rule 3: only --fork runs an environment, and without --trust only one that is registered here; everything else reads the record.
"""

import json
import os
import sys
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import quote

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.text import Text

from proctor.cli.options import TrustOption, command_with_trust, parse_actions
from proctor.cli.output import open_in_browser, print_note, printable, standard_output
from proctor.cli.terminal import progress_bar
from proctor.errors import ValidationError
from proctor.ledger.reader import Ledger

UNENCRYPTED: Final = "Note: others can reach this address, and nothing is encrypted: whoever sees the traffic sees the code and the cookie."


def view(
    ledger: Annotated[Path, typer.Argument(metavar="LEDGER", help="A folder, a file of one, or a bundle.")],
    episode: Annotated[
        str | None, typer.Argument(metavar="EPISODE", help="Its chain or id, or how one of them begins.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any that is free.")] = 0,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    allow_host: Annotated[list[str] | None, typer.Option(help="Another name of this machine.")] = None,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = False,
    trust: Annotated[bool, typer.Option("--trust", help="Forks may import and run whatever the record names.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print each address as one line of JSON.")] = False,
) -> None:
    """Show the episodes of a ledger in a browser: scrub, compare, fork. Ctrl-C ends it.

    A fork runs the environment's code; without --trust only that of environments that are registered here.
    """
    if not ledger.exists():
        raise ValidationError(f"there is no {ledger}", expected="a ledger: a folder, a file of one, or a bundle")
    way = ""
    if episode is not None:
        with Ledger.open(ledger) as opened:
            page = f"/episode/{quote(opened.find(episode).chain, safe='')}"
        way = f"&to={quote(page, safe='')}"
    # Here: `proctor view --help` needs none of it.
    from proctor.server.logs import set_up_viewer_logs
    from proctor.server.viewer_http.standalone import ViewerServer, ViewerSocket, run_viewer

    set_up_viewer_logs()
    place = ViewerSocket.bind(host, port, allow_host or ())
    if not place.is_private:
        print_note(UNENCRYPTED, style="")
    tell = _make_announcer(ledger, as_json, open_browser)
    with closing(place.listener), suppress(KeyboardInterrupt):  # this is how one is meant to end it
        run_viewer(lambda: ViewerServer(ledger, place, tell, way=way, trusts=trust))


def _make_announcer(ledger: Path, as_json: bool, opens: bool) -> Callable[[str], None]:
    """Return what tells an address; the first one is opened, if that is wanted."""
    words = [f"{printable(str(ledger))} can be looked at, once with this address: "]

    def tell(address: str) -> None:
        first = words.pop() if words else None
        if as_json:
            typer.echo(json.dumps({"viewer": address, "ledger": str(ledger)}))
        else:
            console = Console(highlight=False, soft_wrap=True)
            console.print(Text.assemble(first or "the next address: ", (address, "bold cyan")))
            if first:
                console.print("Ctrl-C stops it.")
        sys.stdout.flush()
        if first and opens:
            open_in_browser(address)

    return tell


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
    from proctor.replay.replayer import check_episode
    from proctor.viewer.comparison import fork_episode
    from proctor.viewer.single_file import build_page, find_episode, save_page

    if (fork is None) != (actions is None):
        raise ValidationError("--fork and --actions go together", expected="--fork N --actions '[...]'")
    # Before anything is read.
    if os.path.lexists(html) and not force:
        raise ValidationError(f"{str(html)!r} is there already", expected="another name, or --force")
    if not html.parent.is_dir():
        raise ValidationError(f"there is no folder {str(html.parent)!r}", expected="a folder to write to")
    where, name = _find_ledger(episode, ledger)
    with Ledger.open(where) as record:
        chain = find_episode(record, name).chain
        others = [] if beside is None else [record.find(beside).chain]
        if fork is not None and not trust:
            check_episode(record, chain, trusting=command_with_trust(context))
        forks = [] if fork is None else [fork_episode(record, chain, fork, parse_actions(actions or ""))]
        with progress_bar("reading", unit="rows") as shown:
            chains = list(dict.fromkeys([chain, *others]))
            text = build_page(record, chains, title=title, forks=forks, progress=shown.update)
    save_page(html, text)
    with standard_output() as output:
        name = printable(str(html)) if sys.stdout.isatty() else str(html)
        output.write(os.fsencode(f"{name}  {decimal(len(text.encode()))}\n"))


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
