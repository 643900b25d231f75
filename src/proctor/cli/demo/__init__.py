"""`proctor demo`: a governed episode from end to end, with real parts: server, sandbox, agent, operator, ledger, replay.

Rule 1: what is shown is read from the ledger while it is written. The demo knows no more than anybody who has the file.
Rule 2: whatever was started is ended with the demo, however that ends.
Rule 3: everything is kept in one folder, the credentials and the signing key too; the user's own are neither read nor made.
Rule 4: nothing is started in the terminal's own group: an interrupt reaches the demo alone, which ends the others in order.
Rule 5: at the end it proves that the record is whole and signed, and replays bit for bit. A proof that fails is a ComponentError:
    the demo does not end as if nothing had happened.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

import proctor
from proctor.access.credentials import CONTROL, OPERATOR, CredentialKind, default_state_file, read_private
from proctor.cli.demo.display import READING_SECONDS, DemoOperator, EpisodeStory, RowFollower, show_episode
from proctor.cli.options import load_signing_key
from proctor.cli.output import printable
from proctor.client import EnvClient, GrantWish, OperatorClient, SyncEnvClient
from proctor.client.agents import Grant
from proctor.contracts.guarded_env import parse_seed
from proctor.envs.plume.models import PlumeAction, PlumeObservation, PlumeState
from proctor.episode.verdicts import Outcome
from proctor.errors import ComponentError, ValidationError
from proctor.ledger.reader import EpisodeSummary, Ledger, Row
from proctor.ledger.verify import VerificationReport, verify
from proctor.replay.replayer import ReplayResult, replay_episode
from proctor.viewer.single_file import Episode

START_SECONDS: Final = 60.0
AGENT: Final = Path("examples") / "governed_agent.py"


class DemoFolder:
    """The folder of one demo, and what is where in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger: Final = folder / "ledger"
        self.public_key: Final = folder / "ledger-key.pub"
        self.server_log: Final = folder / "server.log"
        self.agent_log: Final = folder / "agent.log"

    @property
    def variables(self) -> dict[str, str]:
        """The environment of the server: ours, but for what names credentials and where they are kept."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("PROCTOR_")}
        return {**ours, "XDG_STATE_HOME": str(self.folder / "state")}

    def secret(self, kind: CredentialKind) -> str:
        """Return a credential that the server has made."""
        return read_private(default_state_file(self.variables, kind), follow_links=False)

    def write_public_key(self) -> bytes:
        """Return the public key of the ledger, which is then in its file."""
        public = load_signing_key(self.variables).signer.public
        self.public_key.write_text(f"{public.hex()}\n")
        return public


@contextmanager
def run_server(place: DemoFolder, arguments: Sequence[str]) -> Iterator[str]:
    """Run `proctor serve` with these arguments and the demo's own for the block, and yield its address."""
    command = [sys.executable, "-m", "proctor", "serve", *arguments, "--ledger", str(place.ledger)]
    command += ["--port", "0", "--agent-port", "0", "--json"]
    with (
        place.server_log.open("wb") as log,
        _run_process(command, place.variables, stdout=subprocess.PIPE, stderr=log) as process,
    ):
        yield _read_announcement(process, place)["url"]


@contextmanager
def run_agent(place: DemoFolder, grant: Grant, arguments: Sequence[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """Run the reference agent for the block, or until it has done; all that it is given is its grant."""
    command = [sys.executable, str(agent_file()), *arguments]
    given = {"PROCTOR_GRANT_ADDRESS": grant.address, "PROCTOR_GRANT_TOKEN": grant.token}
    with place.agent_log.open("wb") as log, _run_process(command, given, stdout=log, stderr=log, cwd="/") as process:
        yield process


def agent_file() -> Path:
    """Return where the reference agent is: in the package of an installation, or beside its source."""
    package = Path(proctor.__file__).resolve().parent
    for root in (package, package.parents[1]):
        if (root / AGENT).is_file():
            return root / AGENT
    raise ValidationError(f"there is no {AGENT}", expected="an installation with its examples")


def check_exit(process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Raise a ComponentError if a process that has ended by itself has failed."""
    if process.poll():
        raise ComponentError(f"the agent failed with exit code {process.returncode}:\n{_read_last_lines(log)}")


@contextmanager
def _run_process(
    command: Sequence[str], variables: Mapping[str, str], **files: Any
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a process for the block. It is asked to end first, and whoever interrupts that gets it done at once."""
    process = subprocess.Popen(  # noqa: S603  # our own interpreter with our own programs
        command, env=variables, stdin=subprocess.DEVNULL, start_new_session=True, **files
    )
    with ExitStack() as stack:
        if process.stdout is not None:
            stack.callback(process.stdout.close)
        stack.callback(process.wait)
        stack.callback(process.kill)
        try:
            yield process
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(15.0)


def _read_announcement(process: "subprocess.Popen[bytes]", place: DemoFolder) -> dict[str, str]:
    pipe = process.stdout
    if pipe is None:
        raise ComponentError("the server has no output to announce itself on")
    os.set_blocking(pipe.fileno(), False)
    said, deadline = b"", time.monotonic() + START_SECONDS
    while not said.endswith(b"\n"):
        if process.poll() is not None:
            raise ComponentError(f"the server did not start:\n{_read_last_lines(place.server_log)}")
        if time.monotonic() > deadline:
            raise ComponentError(f"the server did not start within {START_SECONDS:g} seconds")
        said += pipe.read() or b""
        time.sleep(0.02)
    document: dict[str, str] = json.loads(said)
    return document


def _read_last_lines(log: Path) -> str:
    return "\n".join(log.read_text("utf-8", "replace").splitlines()[-12:])


GOOD: Final = "bold green"
BAD: Final = "bold yellow"


@dataclass(frozen=True, slots=True)
class EpisodeProof:
    """What was found out about one episode after its end."""

    episode: EpisodeSummary
    head: str
    report: VerificationReport
    replay: ReplayResult


def prove_episode(place: DemoFolder, chain: str, head: str | None) -> EpisodeProof:
    """Return what the ledger proves of an episode; `head` is from the reply to `close`."""
    if head is None:
        raise ComponentError("the reply to close had no head of the record")
    report = verify(place.ledger, heads=[head], public=place.write_public_key())
    if not (report.ok and report.signed and report.headed):
        raise ComponentError(f"the ledger is not as it was written: {[each.what for each in report.findings]}")
    with Ledger.open(place.ledger) as ledger:
        replay = replay_episode(ledger, chain)
        if not replay.identical:
            raise ComponentError(f"the replay differs: {replay.first or replay.why_not}")
        return EpisodeProof(ledger.find(chain), head, report, replay)


def print_summary(console: Console, story: EpisodeStory, proof: EpisodeProof) -> None:
    """Print what happened and what was proved, a line each."""
    table = Table.grid(Column(style="bold", no_wrap=True), Column(), padding=(0, 2, 0, 0))
    for name, verdict, style, facts in _summary_rows(story, proof.report, proof.replay):
        table.add_row(name, Text.assemble((verdict, style), facts))
    console.print("", table)


def _summary_rows(
    story: EpisodeStory, report: VerificationReport, replay: ReplayResult
) -> Iterator[tuple[str, str, str, str]]:
    """Yield rows: what it is about, the verdict with its style, and the facts."""
    if story.terminated:
        yield "search", "found the source", GOOD, f" in {story.step} steps, return {story.total_reward:g}"
    else:
        yield "search", "did not find the source", BAD, f" in {story.step} steps; try another --seed"
    refused = story.refusals
    if story.closed is None:
        yield "episode", "is not closed", BAD, ""
    else:
        outcome = str(story.closed.outcome)
        counts = f"{len(story.packets) - len(refused)} packets were accepted and {len(refused)} refused"
        good = GOOD if outcome == Outcome.CONFORMING else BAD
        yield "episode", outcome, good, f", closed in {story.closed.state}: {counts}"
    if refused:
        yield "cheating", "refused", GOOD, f" by {refused[0].partition(';')[0]}"
    else:
        yield "cheating", "nobody tried", "", ""
    if story.answers:
        yield "operator", "answered", GOOD, f": {'; '.join(story.answers)}"
    else:
        yield "operator", "was not asked", "", ""
    complete = "nothing up to the head in the reply to `close` is missing"
    yield "ledger", "whole and signed", GOOD, f": {report.rows} rows in {report.chains} chains; {complete}"
    times = f", {replay.speed:.0f} times as fast" if replay.speed > 1 else ""
    yield "replay", "bit for bit the same", GOOD, f": {replay.steps} steps in {replay.seconds:.2f} s{times}"


def print_commands(console: Console, place: DemoFolder, proof: EpisodeProof, *, kept: bool) -> None:
    """Print what to try next; without the files of this demo, first how to keep them."""
    ledger, key = (place.ledger, place.public_key) if kept else ("demo/ledger", "demo/ledger-key.pub")
    agent, here = agent_file(), Path.cwd()
    if agent.is_relative_to(here):
        agent = agent.relative_to(here)
    episode, head = proof.episode.episode_id, proof.head if kept else "HEAD"
    rows = [
        (f"proctor view {ledger} {episode}", "look at it in a browser, compare it, fork it"),
        (f"proctor ledger show {ledger} {episode}", "the whole episode, line by line"),
        (f"proctor ledger verify {ledger} --key {key} --head {head}", "prove it again"),
        (f"proctor replay {ledger} {episode} --at {proof.replay.steps // 2}", "any moment of it"),
        ("proctor serve proctor/PlumeSearch-v0 --agent-port 8001 --governed strict --ledger my-ledger", "your own"),
        (f"python {agent} --help", "the agent that you have seen: one file, to copy"),
    ]
    if not kept:
        rows.insert(0, ("proctor demo --keep demo", "keep the ledger and the logs"))
    console.print("\n[bold]next[/]")
    for command, about in rows:
        console.print(Text.assemble(f"  {printable(command)}", (f"   # {about}", "dim")), soft_wrap=True)


TARGET: Final = "proctor/PlumeSearch-v0"
FIELD_SETTINGS: Final = ("grid_size=[96,48]", "source_location=[14,24]", "plume=advected", "max_steps=600")
SEED: Final = 8
"""Of a search in which the agent comes to a point where it asks."""


class PlumeClient(EnvClient[PlumeAction, PlumeObservation, PlumeState]):
    """The orchestrator's side."""


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
    parse_seed(seed)
    console = Console(highlight=False)
    settings = [part for setting in FIELD_SETTINGS for part in ("--set", setting)]
    arguments = [TARGET, *settings, "--governed", governed, "--sandbox", sandbox]
    with _exit_on_signals(), _open_folder(keep) as place:
        console.print("A server, an agent and an operator. What you see is the ledger, as it is written.")
        story, proof = _run_episode(console, place, arguments, seed, live=live, fast=fast)
        print_summary(console, story, proof)
        if page is not None:
            with suppress(OSError):  # what is wrong with the folder is said by whoever writes there
                page.parent.mkdir(parents=True, exist_ok=True)
            Episode(place.ledger, proof.episode.chain).save(page)
            about = f"      {printable(str(page))} shows it in any browser: scrub, charts, every verdict"
            console.print(Text.assemble(("page", "bold"), about))
        print_commands(console, place, proof, kept=keep is not None)


def _run_episode(
    console: Console, place: DemoFolder, arguments: list[str], seed: int, *, live: bool, fast: bool
) -> tuple[EpisodeStory, EpisodeProof]:
    with ExitStack() as stack:
        with console.status("starting a server in the strongest sandbox that works here"):
            url = stack.enter_context(run_server(place, arguments))
        client = stack.enter_context(PlumeClient.blocking(url, token=place.secret(CONTROL)))
        client.reset(seed=seed, episode_id="demo", grant=GrantWish(agent="governed_agent.py"))
        session = client.client.session
        chain = f"{session.name}.{session.position.epoch}"
        ledger = stack.enter_context(Ledger.open(place.ledger))
        operator = DemoOperator(OperatorClient(url, token=place.secret(OPERATOR)), 0.0 if fast else READING_SECONDS)
        follower = RowFollower(ledger, chain, operator, fast=fast)
        rows = stack.enter_context(closing(_run_agent(place, client, follower)))
        story = show_episode(console, rows, live=live)
    return story, prove_episode(place, chain, client.head)


def _run_agent(
    place: DemoFolder, client: SyncEnvClient[Any, Any, Any], rows: RowFollower
) -> Generator[list[Row], None, None]:
    if client.granted is None:
        raise ComponentError("the reset brought no grant")
    wish = ["--cheat", "--ask", "60.0", "--pause", "0.0" if rows.fast else "0.1"]
    with run_agent(place, client.granted, wish) as agent:
        yield from rows.portions(lambda: agent.poll() is None)
    check_exit(agent, place.agent_log)
    client.close()
    yield from rows.portions(lambda: False)


@contextmanager
def _open_folder(keep: Path | None) -> Iterator[DemoFolder]:
    """Yield the folder of everything; one that is not to be kept is removed."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="proctor-demo-") as folder:
            yield DemoFolder(Path(folder))
        return
    try:
        keep.mkdir(mode=0o700, parents=True, exist_ok=True)
        empty = not any(keep.iterdir())
    except OSError as problem:
        raise ValidationError(f"{keep} cannot be used: {problem.strerror}", expected="a new folder") from None
    if not empty:
        raise ValidationError(f"{keep} is not empty", expected="a new folder: nothing is written over")
    yield DemoFolder(keep.resolve())


@contextmanager
def _exit_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block as an interrupt does, so that what was started is ended too."""

    def leave(*_: Any) -> None:
        raise SystemExit(143)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
