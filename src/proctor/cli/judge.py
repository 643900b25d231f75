"""`proctor judge`: was every packet of a stream legal, by which rule was it not, and what would have been?

Rule 1: exit code 0 if nothing was refused, 1 if something was, 2 if the command line or a file is wrong, which is told
    before anything is judged.
Rule 2: a line that cannot be read is a finding with its number, never the end.
Rule 3: lines are read, judged and printed one by one; nothing is collected but the counts. The verdicts on a file go out in
    blocks, those on a stream and rows on a terminal at once.
Rule 4: what is printed: the lines, or with `--summary` the episodes instead. `--explain` and `--refused-only` are about
    lines, so with `--summary` they ask for those too: the lines come first, then the episodes.
Rule 5: the options that `proctor diagram` shares stand here once, so that the same options mean the same verdicts in both.
"""

import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Protocol, TypeAlias

import typer
from msgspec import UNSET, UnsetType
from rich.console import Console

from proctor.cli.output import Output, printable, standard_output
from proctor.cli.terminal import ProgressBar, progress_bar
from proctor.cli.verdicts import summary_table, verdict_table
from proctor.cli.verdicts.json_lines import MOST_LINE_BYTES, InputLine, LineSource, check_sources, read_lines
from proctor.cli.verdicts.summary_table import VerdictTally
from proctor.cli.verdicts.verdict_json import encode_line, verdict_as_json
from proctor.cli.verdicts.verdict_table import TableLayout, fit_layout, style_text
from proctor.episode.judge import Judge
from proctor.episode.rules.house_rules import load_rules
from proctor.episode.rules.rule import RuleFinding
from proctor.episode.settings import Clock, LayerRules, Limits, OnOverrun, Profile, Settings
from proctor.episode.verdicts import Verdict
from proctor.small_files import read_small_text

# How wide a table is where nobody says.
PAGE_WIDTH: Final = 140


class VerdictPrinter(Protocol):
    """How verdicts are printed."""

    def begin(self, output: Output, *, several: bool, silent: bool) -> None:
        """Print what stands first; `silent` says that no line will come."""

    def begin_source(self, source: LineSource) -> None:
        """Go on with the lines of `source`."""

    def add(self, line: InputLine, verdict: Verdict) -> None:
        """Print one line's verdict."""

    def end(self, judging: Judge, tally: VerdictTally, *, summary: bool) -> None:
        """Print what stands last."""


class JsonVerdictPrinter:
    """One object a line."""

    _output: Output

    def __init__(self, *, explain: bool) -> None:
        self._explain = explain
        self._several = False
        self._file: str | UnsetType = UNSET

    def begin(self, output: Output, *, several: bool, silent: bool) -> None:
        """Print nothing yet."""
        self._output = output
        self._several = several

    def begin_source(self, source: LineSource) -> None:
        """Name the file on every line, if there are several."""
        self._output.write_at_once(source.size is None)
        if self._several:
            self._file = _source_name(source)

    def add(self, line: InputLine, verdict: Verdict) -> None:
        """Print the object of one line."""
        self._output.write(encode_line(verdict_as_json(line, verdict, file=self._file, explain=self._explain)))

    def end(self, judging: Judge, tally: VerdictTally, *, summary: bool) -> None:
        """Print the summary, if it was asked for."""
        if summary:
            for text in summary_table.summary_as_json(judging.summaries(), tally):
                self._output.write(text)


class TextVerdictPrinter:
    """One row a line, with remarks beneath it."""

    _output: Output
    _form: TableLayout
    _encoding: str

    def __init__(self, *, explain: bool) -> None:
        self._explain = explain
        self._several = False
        self._silent = False

    def begin(self, output: Output, *, several: bool, silent: bool) -> None:
        """Print the heading."""
        console = Console()
        terminal = console.is_terminal
        width = shutil.get_terminal_size((PAGE_WIDTH, 24)).columns
        self._form = fit_layout(width, terminal=terminal, coloured=terminal and not console.no_color)
        self._output = output
        self._several = several
        self._silent = silent
        self._encoding = sys.stdout.encoding or "utf-8"
        if not silent:
            self._print(verdict_table.format_heading(self._form))

    def begin_source(self, source: LineSource) -> None:
        """Print the name of the file, if there are several."""
        self._output.write_at_once(source.size is None or sys.stdout.isatty())
        if self._several and not self._silent:
            self._print(style_text(f"{printable(_source_name(source))}\n", self._form, bold=True))

    def add(self, line: InputLine, verdict: Verdict) -> None:
        """Print the row of one line."""
        self._print(verdict_table.format_verdict(self._form, line, verdict, explain=self._explain))

    def end(self, judging: Judge, tally: VerdictTally, *, summary: bool) -> None:
        """Print the summary, or the totals alone."""
        self._output.write_at_once(False)
        if summary:
            parts = summary_table.summary_as_text(self._form, judging.summaries(), tally)
        else:
            outcomes = Counter[str](each.outcome for each in judging.summaries())
            parts = summary_table.format_totals(self._form, tally, outcomes)
        for text in parts:
            self._print(text)

    def _print(self, text: str) -> None:
        self._output.write(text.encode(self._encoding, "replace"))


def _source_name(source: LineSource) -> str:
    """Return the name of a source as text, whatever its bytes are."""
    return source.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


ProfileOption: TypeAlias = Annotated[Profile, typer.Option("--profile", help="Whether a verification needs its plan.")]
LayerRulesOption: TypeAlias = Annotated[LayerRules, typer.Option("--layer-rules", help="What a wrong layer gets.")]
OnOverrunOption: TypeAlias = Annotated[OnOverrun, typer.Option("--on-overrun", help="Where an overrun leads.")]
InitialBeliefsOption: TypeAlias = Annotated[
    bool, typer.Option("--initial-beliefs", help="Episodes begin with beliefs.")
]
RulesOption: TypeAlias = Annotated[
    Path | None, typer.Option("--rules", metavar="FILE", help="Rules of your own, one a line.")
]


def make_judge(settings: Settings, *, rules: Path | None = None, max_open: int | None = None) -> Judge:
    """Return a new judge with these settings, the rules in a file, and this machine's clock where one is asked for."""
    return Judge(
        settings,
        limits=Limits() if max_open is None else Limits(open_episodes=max_open),
        rules=() if rules is None else load_rules(read_small_text(rules, expected="a file of rules for --rules")),
        now=lambda: datetime.now(UTC),
    )


# How many lines are judged between two looks at the progress bar.
LINES_PER_TICK: Final = 200
_TOO_LONG: Final = RuleFinding(
    "JSON", "", f"the line is longer than {MOST_LINE_BYTES // 2**20} MiB, so it was not read"
)
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
    given = check_sources(files)
    settings = Settings(profile, layer_rules, clock, on_overrun, initial_beliefs)
    judging = make_judge(settings, rules=rules, max_open=max_open)
    page: VerdictPrinter = JsonVerdictPrinter(explain=explain) if as_json else TextVerdictPrinter(explain=explain)
    tally = VerdictTally()
    silent = summary and not (explain or refused_only)
    with standard_output() as output:
        page.begin(output, several=len(given) > 1, silent=silent)
        # A bar between rows that are printed would be in their way.
        with _make_bar(given, quiet=not silent and sys.stdout.isatty()) as shown:
            for line, verdict in _judge_lines(judging, given, page, shown.update):
                tally.add(verdict)
                if not (silent or (refused_only and verdict.accepted)):
                    page.add(line, verdict)
        page.end(judging, tally, summary=summary)
    raise typer.Exit(1 if tally.refused else 0)


def _judge_lines(
    judging: Judge, given: Sequence[LineSource], page: VerdictPrinter, tick: Tick
) -> Iterator[tuple[InputLine, Verdict]]:
    """Yield every line with its verdict."""
    before = 0
    for source in given:
        page.begin_source(source)
        for line in read_lines(source):
            yield line, TOO_LONG if line.text is None else judging.apply(line.text)
            if not line.number % LINES_PER_TICK:
                tick(before + line.end)
        before += source.size or 0


def _make_bar(given: Sequence[LineSource], *, quiet: bool) -> AbstractContextManager[ProgressBar]:
    """Return a bar, hidden where the end is not known."""
    sizes = [source.size for source in given]
    known = sum(size or 0 for size in sizes)
    return progress_bar("judging", known, in_bytes=True, quiet=quiet or None in sizes)
