"""`proctor demo`: a governed episode from end to end, with real parts: server, sandbox, agent, operator, ledger, replay.

Rule 1: what is shown is read from the ledger while it is written. The demo knows no more than anybody who has the file.
Rule 2: whatever was started is ended with the demo, however that ends.
"""

import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer
from rich.console import Console
from rich.text import Text

from proctor.cli.demo_hall import READING_SECONDS, Desk, Hall, Tape
from proctor.cli.demo_proof import Proof, print_commands, print_summary, proved
from proctor.cli.demo_server import Place, Served, acting, check_ended, serving
from proctor.cli.demo_show import Show, show_for
from proctor.cli.demo_story import Story
from proctor.cli.output import plain
from proctor.client import EnvClient, GrantWish, OperatorClient, SyncEnvClient
from proctor.contracts.guarded import checked_seed
from proctor.envs.plume.models import PlumeAction, PlumeObservation, PlumeState
from proctor.errors import ComponentError, ValidationError
from proctor.ledger.reader import Ledger
from proctor.viewer.episode import Episode

TARGET: Final = "proctor/PlumeSearch-v0"
FIELD: Final = ("grid_size=[96,48]", "source_location=[14,24]", "plume=advected", "max_steps=600")
SEED: Final = 8
"""Of a search in which the agent comes to a point where it asks."""
EPISODE: Final = "demo"
PAUSE_SECONDS: Final = 0.1
ASK_SECONDS: Final = 60.0
TERMINATED: Final = 143


class PlumeClient(EnvClient[PlumeAction, PlumeObservation, PlumeState]):
    """The orchestrator's side."""


Client: TypeAlias = SyncEnvClient[PlumeAction, PlumeObservation, PlumeState]


def demo(
    seed: Annotated[int, typer.Option(metavar="S", help="The seed of the search.")] = SEED,
    governed: Annotated[
        str, typer.Option(metavar="POLICY", help="open, standard, strict or a TOML file.")
    ] = "standard",
    sandbox: Annotated[str, typer.Option(help="As for `proctor serve`; auto: the strongest that works.")] = "auto",
    keep: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Keep ledger, keys and logs in this new folder.")
    ] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the episode as a page that opens in any browser.")
    ] = None,
    live: Annotated[bool, typer.Option("--live/--no-live", help="Pictures in place, or a running log.")] = True,
    fast: Annotated[bool, typer.Option("--fast", help="Do not wait for anybody to look.")] = False,
) -> None:
    """Watch an agent search a plume under supervision, cheat once and ask once; then prove and replay what happened."""
    checked_seed(seed)
    console = Console(highlight=False)
    with _ended_by_signals(), _place(keep) as place:
        console.print("A server, an agent and an operator. What you see is the ledger, as it is written.")
        story, proof = _performed(console, place, _arguments(governed, sandbox), seed, live=live, fast=fast)
        print_summary(console, story, proof)
        if page is not None:
            _write_page(console, page, place, proof)
        print_commands(console, place, proof, kept=keep is not None)


def _write_page(console: Console, page: Path, place: Place, proof: Proof) -> None:
    with suppress(OSError):  # what is wrong with the folder is said by whoever writes there
        page.parent.mkdir(parents=True, exist_ok=True)
    Episode(place.ledger, proof.episode.chain).save(page)
    console.print(
        Text.assemble(
            ("page", "bold"), f"      {plain(str(page))} shows it in any browser: scrub, charts, every verdict"
        )
    )


def _arguments(governed: str, sandbox: str) -> list[str]:
    settings = [part for setting in FIELD for part in ("--set", setting)]
    return [TARGET, *settings, "--governed", governed, "--sandbox", sandbox]


def _performed(
    console: Console, place: Place, arguments: list[str], seed: int, *, live: bool, fast: bool
) -> tuple[Story, Proof]:
    """Run the episode in a server of its own, and prove it when the server has gone."""
    with ExitStack() as stack:
        with console.status("starting a server in the strongest sandbox that works here"):
            served = stack.enter_context(serving(place, arguments))
        client = stack.enter_context(PlumeClient.blocking(served.url, token=served.control_token))
        client.reset(seed=seed, episode_id=EPISODE, grant=GrantWish(agent="governed_agent.py"))
        show = show_for(console, live=live)
        chain = _watched(place, served, client, show, fast=fast)
    return show.story, proved(place, chain, client.head)


def _watched(place: Place, served: Served, client: Client, show: Show, *, fast: bool) -> str:
    """Let the agent go, show what happens until the episode is closed, and return its chain."""
    session = client.client.session
    chain = f"{session.name}.{session.place.epoch}"
    wish = ["--cheat", "--ask", str(ASK_SECONDS), "--pause", str(0.0 if fast else PAUSE_SECONDS)]
    if client.granted is None:
        raise ComponentError("the reset brought no grant")
    with Ledger.open(place.ledger) as ledger, show:
        desk = Desk(OperatorClient(served.url, token=served.operator_token), 0.0 if fast else READING_SECONDS)
        hall = Hall(show, Tape(ledger, chain), desk, fast=fast)
        with acting(place, client.granted, wish) as agent:
            hall.watch(lambda: agent.poll() is None)
        check_ended(agent, place.agent_log)
        client.close()
        hall.watch(lambda: False)
    return chain


@contextmanager
def _place(keep: Path | None) -> Iterator[Place]:
    """Yield the folder of everything; one that is not to be kept is removed."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="proctor-demo-") as folder:
            yield Place(Path(folder))
        return
    try:
        keep.mkdir(mode=0o700, parents=True, exist_ok=True)
        empty = not any(keep.iterdir())
    except OSError as problem:
        raise ValidationError(f"{keep} cannot be used: {problem.strerror}", expected="a new folder") from None
    if not empty:
        raise ValidationError(f"{keep} is not empty", expected="a new folder: nothing is written over")
    yield Place(keep.resolve())


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as an interrupt does, so that what was started is ended too."""

    def leave(*_: Any) -> None:
        raise SystemExit(TERMINATED)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
