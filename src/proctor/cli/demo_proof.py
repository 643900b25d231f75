"""What is proved at the end of the demo: the record is whole and signed, and replays bit for bit.

Rule: a proof that fails is a ComponentError. The demo does not end as if nothing had happened.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from proctor.cli.demo_server import Place, agent_file
from proctor.cli.demo_story import Story
from proctor.cli.output import plain
from proctor.errors import ComponentError
from proctor.ledger.reader import EpisodeSummary, Ledger
from proctor.ledger.verify import Report, verify
from proctor.replay.report import Replayed, replayed

CONFORMING: Final = "conforming"
GOOD: Final = "bold green"
BAD: Final = "bold yellow"


@dataclass(frozen=True, slots=True)
class Proof:
    """What was found out about one episode after its end."""

    episode: EpisodeSummary
    head: str
    report: Report
    replay: Replayed


def proved(place: Place, chain: str, head: str | None) -> Proof:
    """Return what the ledger proves of an episode; `head` is from the reply to `close`."""
    if head is None:
        raise ComponentError("the reply to close had no head of the record")
    report = verify(place.ledger, heads=[head], public=place.write_public_key())
    if not (report.ok and report.signed and report.headed):
        raise ComponentError(f"the ledger is not as it was written: {[each.what for each in report.findings]}")
    with Ledger.open(place.ledger) as ledger:
        replay = replayed(ledger, chain)
        if not replay.identical:
            raise ComponentError(f"the replay differs: {replay.first or replay.why_not}")
        return Proof(ledger.find(chain), head, report, replay)


def print_summary(console: Console, story: Story, proof: Proof) -> None:
    """Print what happened and what was proved, a line each."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, text in (
        ("search", _search(story)),
        ("episode", _episode(story)),
        ("cheating", _cheating(story)),
        ("operator", _operator(story)),
        ("ledger", _ledger(proof.report)),
        ("replay", _replay(proof.replay)),
    ):
        table.add_row(name, text)
    console.print()
    console.print(table)


def _search(story: Story) -> Text:
    if story.terminated:
        return Text.assemble(("found the source", GOOD), f" in {story.step} steps, return {story.total_reward:g}")
    return Text.assemble(("did not find the source", BAD), f" in {story.step} steps; try another --seed")


def _episode(story: Story) -> Text:
    if story.closed is None:
        return Text("is not closed", style=BAD)
    outcome = str(story.closed.outcome)
    accepted, refused = len(story.said) - len(story.refusals), len(story.refusals)
    counts = f", closed in {story.closed.state}: {accepted} lines were accepted and {refused} refused"
    return Text.assemble((outcome, GOOD if outcome == CONFORMING else BAD), counts)


def _cheating(story: Story) -> Text:
    if not story.refusals:
        return Text("nobody tried")
    return Text.assemble(("refused", GOOD), f" by {story.refusals[0].why.partition(';')[0]}")


def _operator(story: Story) -> Text:
    if not story.answers:
        return Text("was not asked")
    return Text.assemble(("answered", GOOD), f": {'; '.join(said.words for said in story.answers)}")


def _ledger(report: Report) -> Text:
    counts = (
        f": {report.rows} rows in {report.chains} chains; nothing up to the head in the reply to `close` is missing"
    )
    return Text.assemble(("whole and signed", GOOD), counts)


def _replay(replay: Replayed) -> Text:
    times = f", {replay.speed:.0f} times as fast" if replay.speed > 1 else ""
    return Text.assemble(("bit for bit the same", GOOD), f": {replay.steps} steps in {replay.seconds:.2f} s{times}")


def print_commands(console: Console, place: Place, proof: Proof, *, kept: bool) -> None:
    """Print what to try next; without the files of this demo, first how to keep them."""
    ledger, key = (str(place.ledger), str(place.public_key)) if kept else ("demo/ledger", "demo/ledger-key.pub")
    episode, head = proof.episode.episode_id, proof.head if kept else "HEAD"
    rows = [
        (f"proctor view {ledger} {episode}", "look at it in a browser, compare it, fork it"),
        (f"proctor ledger show {ledger} {episode}", "the whole episode, line by line"),
        (f"proctor ledger verify {ledger} --key {key} --head {head}", "prove it again"),
        (f"proctor replay {ledger} {episode} --at {proof.replay.steps // 2}", "any moment of it"),
        ("proctor serve proctor/PlumeSearch-v0 --agent-port 8001 --governed strict --ledger my-ledger", "your own"),
        (f"python {_near(agent_file())} --help", "the agent that you have seen: one file, to copy"),
    ]
    if not kept:
        rows.insert(0, ("proctor demo --keep demo", "keep the ledger and the logs"))
    console.print("\n[bold]next[/]")
    for command, about in rows:
        console.print(Text.assemble(f"  {plain(command)}", (f"   # {about}", "dim")), soft_wrap=True)


def _near(path: Path) -> Path:
    """Return a path as people would type it from where they are."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path
