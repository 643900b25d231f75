"""`proctor judge`: was every packet of a stream legal, by which rule was it not, and what would have been?

Rule 1: exit code 0 if nothing was refused, 1 if something was, 2 if the command line or a file is wrong, which is told
    before anything is judged.
Rule 2: a line that cannot be read is a finding with its number, never the end.
Rule 3: lines are read and judged one by one; the verdicts on a file go out in blocks, those on a stream as they come.
Rule 4: what is printed: the lines, or with `--summary` the episodes instead. `--explain` and `--refused-only` are about
    lines, so with `--summary` they ask for those too: the lines come first, then the episodes.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Annotated, Final

import typer

from proctor.cli.episode_table import Tally
from proctor.cli.judging import (
    InitialBeliefsOption,
    LayerRulesOption,
    OnOverrunOption,
    ProfileOption,
    RulesOption,
    judge_under,
)
from proctor.cli.lines import LONGEST, Line, Source, lines, sources
from proctor.cli.output import standard_output
from proctor.cli.pages import JsonPage, Page, TextPage
from proctor.cli.progress import Bar, bar
from proctor.episode.judge import Judge
from proctor.episode.rulebook import Finding
from proctor.episode.settings import Clock, LayerRules, OnOverrun, Profile, Settings
from proctor.episode.verdicts import Verdict

# How many lines are judged between two looks at the progress bar.
OFTEN: Final = 200
_TOO_LONG: Final = Finding("JSON", "", f"the line is longer than {LONGEST // 2**20} MiB, so it was not read")
TOO_LONG: Final = Verdict(False, None, None, None, (), (_TOO_LONG,), (), None, None)

Tick = Callable[[int], None]


def judge(
    files: Annotated[list[str], typer.Argument(metavar="FILE...|-", help="JSON lines; - is standard input.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, an object for each line or episode.")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Say of each line why, and what was legal.")] = False,
    summary: Annotated[
        bool,
        typer.Option(
            "--summary",
            help="Print the episodes instead of the lines; with --explain or --refused-only, after those lines.",
        ),
    ] = False,
    refused_only: Annotated[bool, typer.Option("--refused-only", help="Of the lines, print the refused ones.")] = False,
    profile: ProfileOption = Profile.STRICT,
    layer_rules: LayerRulesOption = LayerRules.WARN,
    clock: Annotated[Clock, typer.Option(help="The packets' own time, or this machine's.")] = Clock.EVENT,
    on_overrun: OnOverrunOption = OnOverrun.SAFEMODE,
    initial_beliefs: InitialBeliefsOption = False,
    rules: RulesOption = None,
    max_open: Annotated[int | None, typer.Option(metavar="N", min=1, help="Episodes open at once.")] = None,
) -> None:
    """Judge streams of packets: which were legal, which were not and why, and what became of each episode."""
    given = sources(files)
    settings = Settings(profile, layer_rules, clock, on_overrun, initial_beliefs)
    judging = judge_under(settings, rules=rules, max_open=max_open)
    page: Page = JsonPage(explain=explain) if as_json else TextPage(explain=explain)
    tally = Tally()
    silent = summary and not (explain or refused_only)
    with standard_output() as output:
        page.begin(output, several=len(given) > 1, silent=silent)
        # A bar between rows that are printed would be in their way.
        with _bar(given, quiet=not silent and sys.stdout.isatty()) as shown:
            for line, verdict in _judged(judging, given, page, shown.to):
                tally.add(verdict)
                if not (silent or (refused_only and verdict.accepted)):
                    page.add(line, verdict)
        page.end(judging, tally, summary=summary)
    raise typer.Exit(1 if tally.refused else 0)


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


def _bar(given: Sequence[Source], *, quiet: bool) -> AbstractContextManager[Bar]:
    """Return a bar, hidden where the end is not known."""
    sizes = [source.size for source in given]
    known = sum(size or 0 for size in sizes)
    return bar("judging", known, in_bytes=True, quiet=quiet or None in sizes)
