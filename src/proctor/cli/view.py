"""`proctor view`: the pages over a ledger, in a browser, with no server beside it.

Rule: the address that is printed holds a code that is good once; when it was used, the next one is printed.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import quote

import typer
from rich.console import Console
from rich.text import Text

from proctor.cli.output import open_in_browser, printable
from proctor.errors import ValidationError

HOST: Final = "127.0.0.1"
UNENCRYPTED: Final = "Note: others can reach this address, and nothing is encrypted: whoever sees the traffic sees the code and the cookie."


def view(
    ledger: Annotated[Path, typer.Argument(metavar="LEDGER", help="A folder, a file of one, or a bundle.")],
    episode: Annotated[
        str | None, typer.Argument(metavar="EPISODE", help="Its chain or id, or how one of them begins.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any that is free.")] = 0,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = HOST,
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
    way = _first_page(ledger, episode)
    # Here: `proctor view --help` needs none of it.
    from proctor.server.logs import set_up_viewer_logs
    from proctor.server.viewer_http.standalone import ViewerServer, ViewerSocket, run_viewer

    set_up_viewer_logs()
    place = ViewerSocket.bind(host, port, allow_host or ())
    if not place.is_private:
        typer.echo(UNENCRYPTED, err=True)
    try:
        run_viewer(
            lambda: ViewerServer(ledger, place, _make_announcer(ledger, as_json, open_browser), way=way, trusts=trust)
        )
    except KeyboardInterrupt:
        pass  # this is how one is meant to end it
    finally:
        place.listener.close()


def _first_page(ledger: Path, episode: str | None) -> str:
    """Return which page a browser opens first: the list, or the episode that is meant."""
    if episode is None:
        return ""
    from proctor.ledger.reader import Ledger

    with Ledger.open(ledger) as opened:
        page = f"/episode/{quote(opened.find(episode).chain, safe='')}"
    return f"&to={quote(page, safe='')}"


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
