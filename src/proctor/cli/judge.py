"""`proctor judge`: was every packet of a stream legal, by which rule was it not, and what would have been?

Rule 1: exit code 0 if nothing was refused, 1 if something was, 2 if the command line or a file is wrong, which is told
    before anything is judged.
Rule 2: a line that cannot be read is a finding with its number, never the end.
Rule 3: a file is read in one go and its verdicts go out in blocks; a stream is answered line by line, as it comes.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from proctor.cli.episode_table import Tally
from proctor.cli.lines import LONGEST, Line, Source, lines, sources
from proctor.cli.output import standard_output
from proctor.cli.pages import JsonPage, Page, TextPage
from proctor.episode.house_rules import HouseRule, load_rules
from proctor.episode.judge import Judge
from proctor.episode.rulebook import Finding
from proctor.episode.settings import Clock, LayerRules, Limits, OnOverrun, Profile, Settings
from proctor.episode.verdicts import Verdict
from proctor.errors import ValidationError

# How many lines are judged between two looks at the progress bar.
OFTEN: Final = 200
_TOO_LONG: Final = Finding("JSON", "", f"the line is longer than {LONGEST // 2**20} MiB, so it was not read")
TOO_LONG: Final = Verdict(False, None, None, None, (), (_TOO_LONG,), (), None, None)

Tick = Callable[[int], None]


def judge(
    files: Annotated[list[str], typer.Argument(metavar="FILE...|-", help="JSON lines; - is standard input.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for each line.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Say why, and what would have been legal.")] = False,
    summary: Annotated[bool, typer.Option("--summary", help="Print the episodes instead of the lines.")] = False,
    refused_only: Annotated[bool, typer.Option("--refused-only", help="Print refused lines only.")] = False,
    profile: Annotated[Profile, typer.Option(help="Whether a verification needs its plan.")] = Profile.STRICT,
    layer_rules: Annotated[LayerRules, typer.Option(help="What a wrong layer gets.")] = LayerRules.WARN,
    clock: Annotated[Clock, typer.Option(help="The packets' own time, or this machine's.")] = Clock.EVENT,
    on_overrun: Annotated[OnOverrun, typer.Option(help="Where an overrun leads.")] = OnOverrun.SAFEMODE,
    initial_beliefs: Annotated[bool, typer.Option("--initial-beliefs", help="Episodes begin with beliefs.")] = False,
    rules: Annotated[Path | None, typer.Option(metavar="FILE", help="Rules of your own, one a line.")] = None,
    max_open: Annotated[int | None, typer.Option(metavar="N", min=1, help="Episodes open at once.")] = None,
) -> None:
    """Judge streams of packets: which were legal, which were not and why, and what became of each episode."""
    given = sources(files)
    judging = Judge(
        Settings(profile, layer_rules, clock, on_overrun, initial_beliefs),
        limits=Limits() if max_open is None else Limits(open_episodes=max_open),
        rules=() if rules is None else _house_rules(rules),
        now=lambda: datetime.now(UTC),
    )
    page: Page = JsonPage(explain=explain) if as_json else TextPage(explain=explain)
    tally = Tally(broken={})
    silent = summary and not explain
    with standard_output() as output:
        page.begin(output, several=len(given) > 1, silent=silent)
        with _progress(given, shown=silent or not sys.stdout.isatty()) as tick:
            for line, verdict in _judged(judging, given, page, tick):
                tally.add(verdict)
                if not (silent or (refused_only and verdict.accepted)):
                    page.add(line, verdict)
        page.end(judging, tally, summary=summary)
    raise typer.Exit(1 if tally.refused else 0)


def _house_rules(path: Path) -> tuple[HouseRule, ...]:
    try:
        return load_rules(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as problem:
        words = problem.strerror if isinstance(problem, OSError) else "it is not text in UTF-8"
        raise ValidationError(
            f"cannot read the rules in {str(path)!r}: {words}", expected="a file of rules"
        ) from problem


def _judged(judging: Judge, given: Sequence[Source], page: Page, tick: Tick) -> Iterator[tuple[Line, Verdict]]:
    """Yield every line with its verdict."""
    before = 0
    for source in given:
        page.turn(source)
        for line in lines(source):
            yield line, TOO_LONG if line.text is None else judging.apply(line.text)
            if not line.number % OFTEN:
                tick(before + line.end)
        before += source.size or 0


@contextmanager
def _progress(given: Sequence[Source], *, shown: bool) -> Iterator[Tick]:
    """Yield what moves a bar on standard error, if that is a terminal, the end is known and no rows come in between."""
    console = Console(stderr=True)
    sizes = [source.size for source in given]
    if not (shown and console.is_terminal) or None in sizes:
        yield lambda done: None
        return
    columns = (TextColumn("judging"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("judging", total=sum(size or 0 for size in sizes))
        yield lambda done: progress.update(task, completed=done)
