"""`proctor judge`: was every packet of a stream legal, by which rule was it not, and what would have been? `proctor diagram`: a picture.

Rule 1: exit code 0 if nothing was refused, 1 if something was, 2 if the command line or a file is wrong, which is told
    before anything is judged.
Rule 2: a line that cannot be read is a finding with its number, never the end.
Rule 3: lines are read, judged and printed one by one; nothing is collected but the counts. The verdicts on a file go out in
    blocks, those on a stream and rows on a terminal at once.
Rule 4: what is printed: the lines, or with `--summary` the episodes instead. `--explain` and `--refused-only` are about
    lines, so with `--summary` they ask for those too: the lines come first, then the episodes.
Rule 5: what cannot be read is told before the first line is; a pipe is never opened to try it. No more than MOST_LINE_BYTES of a
    line are ever held: the rest of a longer one is passed over. Lines of a stream come as they arrive.
Rule 6: both commands have the same options for the judge, which mean the same verdicts in both.
"""

import os
import sys
from codecs import BOM_UTF8
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Annotated, Any, Final, NamedTuple, TypeAlias

import msgspec
import typer
from msgspec import UNSET, Struct, UnsetType

from proctor.cli.output import Output, encode_line, printable, standard_output
from proctor.cli.terminal import OutputFormat, format_cells, progress_bar, stdout_format
from proctor.episode.diagram import Notation, draw_machine, draw_walk
from proctor.episode.judge import Judge, JudgeSummary
from proctor.episode.legal_moves import event_label
from proctor.episode.packets.enums import RecordKind
from proctor.episode.rules import RuleFinding
from proctor.episode.rules.house_rules import load_rules
from proctor.episode.settings import Clock, LayerRules, Limits, OnOverrun, Profile, Settings
from proctor.episode.transition_table import ProtocolState
from proctor.episode.verdicts import Obligation, Outcome, SyntheticTransition, Verdict
from proctor.errors import ValidationError
from proctor.models.descriptions import format_count
from proctor.narration import verdicts as words
from proctor.narration.verdicts import ACCEPTED, REFUSED, Remark, describe_finding
from proctor.small_files import read_small_text

MOST_LINE_BYTES: Final = 8 * 1024 * 1024
STANDARD_INPUT: Final = "-"
MOST_NAMED: Final = 20
"""How many episodes a message names."""


class LineSource(NamedTuple):
    """Where lines come from; `size` is that of a file, in bytes, and None for what may still grow."""

    name: str
    size: int | None

    @property
    def shown_name(self) -> str:
        """The name as text, whatever its bytes are."""
        return self.name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class InputLine(NamedTuple):
    """A line that is not blank; `text` is None if it is too long to be held, `end` is how far the source was read."""

    number: int
    text: bytes | None
    end: int


def check_sources(names: Sequence[str]) -> tuple[LineSource, ...]:
    """Return what is named, once it is clear that each can be read; anything else is a ValidationError."""
    if names.count(STANDARD_INPUT) > 1:
        raise ValidationError("standard input can be read once only", found=" ".join(names), expected="one -")
    if STANDARD_INPUT in names and sys.stdin is None:
        raise ValidationError("standard input is closed", expected="a file, or something that writes to this command")
    return tuple(LineSource(name, None) if name == STANDARD_INPUT else _check_file(name) for name in names)


def _check_file(name: str) -> LineSource:
    path = Path(name)
    try:
        size = path.stat().st_size
    except (OSError, ValueError) as problem:
        raise _unreadable(name, problem) from problem
    if path.is_dir() or not os.access(path, os.R_OK):
        raise _unreadable(name, ValueError("it is a folder" if path.is_dir() else "permission denied"))
    return LineSource(name, size if path.is_file() else None)


def _unreadable(name: str, problem: Exception) -> ValidationError:
    why = problem.strerror if isinstance(problem, OSError) else str(problem)
    return ValidationError(f"cannot read {name!r}: {why}", expected="a file of JSON lines that you may read, or -")


def read_lines(source: LineSource) -> Iterator[InputLine]:
    """Yield the lines of `source` that are not blank, with their numbers, from 1."""
    try:
        if source.name == STANDARD_INPUT:
            yield from _read_lines(sys.stdin.buffer)
            return
        with Path(source.name).open("rb") as file:
            yield from _read_lines(file)
    except OSError as problem:
        raise _unreadable(source.name, problem) from problem


def _read_lines(file: IO[bytes]) -> Iterator[InputLine]:
    read, number, end = file.readline, 0, 0
    while text := read(MOST_LINE_BYTES + 1):
        number += 1
        end += len(text)
        if number == 1:
            text = text.removeprefix(BOM_UTF8)
        if len(text) > MOST_LINE_BYTES and not text.endswith(b"\n"):
            while rest := read(MOST_LINE_BYTES):
                end += len(rest)
                if rest.endswith(b"\n"):
                    break
            yield InputLine(number, None, end)
        elif text and not text.isspace():
            yield InputLine(number, text, end)


# --------------------------------------------------------------------------------------------------------- the commands
ProfileOption: TypeAlias = Annotated[Profile, typer.Option("--profile", help="Whether a verification needs its plan.")]
LayerRulesOption: TypeAlias = Annotated[LayerRules, typer.Option("--layer-rules", help="What a wrong layer gets.")]
OnOverrunOption: TypeAlias = Annotated[OnOverrun, typer.Option("--on-overrun", help="Where an overrun leads.")]
InitialBeliefsOption: TypeAlias = Annotated[
    bool, typer.Option("--initial-beliefs", help="Episodes begin with beliefs.")
]
RulesOption: TypeAlias = Annotated[
    Path | None, typer.Option("--rules", metavar="FILE", help="Rules of your own, one a line.")
]
_TOO_LONG: Final = f"the line is longer than {MOST_LINE_BYTES // 2**20} MiB, so it was not read"
TOO_LONG: Final = Verdict(False, None, None, None, (), (RuleFinding("JSON", "", _TOO_LONG),), (), None, None)


def make_judge(settings: Settings, *, rules: Path | None = None, max_open: int | None = None) -> Judge:
    """Return a new judge with these settings, the rules in a file, and this machine's clock where one is asked for."""
    return Judge(
        settings,
        limits=Limits() if max_open is None else Limits(open_episodes=max_open),
        rules=() if rules is None else load_rules(read_small_text(rules, expected="a file of rules for --rules")),
        now=lambda: datetime.now(UTC),
    )


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
    sources = check_sources(files)
    settings = Settings(profile, layer_rules, clock, on_overrun, initial_beliefs)
    judging = make_judge(settings, rules=rules, max_open=max_open)
    tally = VerdictTally()
    silent = summary and not (explain or refused_only)
    sizes = [source.size for source in sources]
    # A bar between rows that are printed would be in their way, and on a stream the end is not known.
    quiet = (not silent and sys.stdout is not None and sys.stdout.isatty()) or None in sizes
    with standard_output() as output:
        kind = JsonPrinter if as_json else TextPrinter
        page = kind(output, explain=explain, several=len(sources) > 1, silent=silent)
        with progress_bar("judging", sum(size or 0 for size in sizes), in_bytes=True, quiet=quiet) as shown:
            before = 0
            for source in sources:
                page.begin_source(source)
                for line in read_lines(source):
                    verdict = TOO_LONG if line.text is None else judging.apply(line.text)
                    tally.add(verdict)
                    if not (silent or (refused_only and verdict.accepted)):
                        page.add(line, verdict)
                    if not line.number % 200:
                        shown.update(before + line.end)
                before += source.size or 0
        page.end(judging.summaries(), tally, summary=summary)
    raise typer.Exit(1 if tally.refused else 0)


def diagram(
    file: Annotated[str | None, typer.Argument(metavar="FILE|-", help="JSON lines with an episode.")] = None,
    notation: Annotated[Notation, typer.Option("--format", help="The language of the picture.")] = Notation.MERMAID,
    episode: Annotated[str | None, typer.Option(metavar="CORR", help="The episode, if there are several.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write to this file.")] = None,
    profile: ProfileOption = Profile.STRICT,
    layer_rules: LayerRulesOption = LayerRules.WARN,
    on_overrun: OnOverrunOption = OnOverrun.SAFEMODE,
    initial_beliefs: InitialBeliefsOption = False,
    rules: RulesOption = None,
) -> None:
    """Draw the machine that judges packets, or with a file the walk of one of its episodes.

    A walk is judged anew, under the options from --profile to --rules, which `proctor judge` has too.
    """
    if file is None and episode is not None:
        raise ValidationError("an episode is drawn from a file", found=episode, expected="the file that holds it")
    judging = make_judge(Settings(profile, layer_rules, Clock.EVENT, on_overrun, initial_beliefs), rules=rules)
    text = draw_machine(notation) if file is None else draw_walk(_find_walk(judging, file, episode), notation)
    if out is None:
        with standard_output() as output:
            output.write(text.encode())
        return
    try:
        out.write_text(text, "utf-8")
    except OSError as problem:
        raise ValidationError(f"cannot write {str(out)!r}: {problem.strerror}", expected="a file to write") from problem


def _find_walk(judging: Judge, file: str, wanted: str | None) -> list[Verdict]:
    """Return the verdicts of the episode that is wanted, or of the only one."""
    (source,) = check_sources([file])
    walks: dict[str, list[Verdict]] = {}
    for line in read_lines(source):
        verdict = None if line.text is None else judging.apply(line.text)
        if verdict is not None and verdict.correlation_id is not None:
            walk = walks.setdefault(verdict.correlation_id, [])
            if verdict.correlation_id == (next(iter(walks)) if wanted is None else wanted):
                walk.append(verdict)
    names = " or ".join(list(walks)[:MOST_NAMED])
    if len(walks) > MOST_NAMED:
        names += f" or one of {len(walks) - MOST_NAMED} more"
    if wanted is None and len(walks) > 1:
        raise ValidationError(f"there are {len(walks)} episodes in {file!r}", expected=f"--episode {names}")
    found = walks.get(next(iter(walks), "") if wanted is None else wanted)
    if found is None:
        which = "no episode" if wanted is None else f"no episode {wanted!r}"
        raise ValidationError(f"there is {which} in {file!r}", expected=names or "at least one packet")
    return found


# ------------------------------------------------------------------------------------------------------------ the lines
class VerdictTally(Struct):
    """What is counted over all lines; `stray` lines belong to no episode that anybody could name."""

    lines: int = 0
    accepted: int = 0
    refused: int = 0
    warnings: int = 0
    stray: int = 0
    broken: dict[str, int] = {}

    def add(self, verdict: Verdict) -> None:
        """Count one verdict."""
        self.lines += 1
        self.warnings += len(verdict.warnings)
        if verdict.accepted:
            self.accepted += 1
            return
        self.refused += 1
        self.stray += verdict.correlation_id is None
        for rule in verdict.rules:
            self.broken[rule] = self.broken.get(rule, 0) + 1


def _group_by_campaign(summaries: Iterable[JudgeSummary]) -> Iterator[tuple[str | None, list[JudgeSummary]]]:
    """Yield campaigns with their episodes; first the episodes that have no campaign."""
    grouped: dict[str | None, list[JudgeSummary]] = defaultdict(list)
    for each in summaries:
        grouped[each.campaign_id].append(each)
    yield from sorted(grouped.items(), key=lambda item: item[0] or "")


class _RecordHead(Struct, frozen=True):
    """The part of a record that says which it is."""

    record: RecordKind


_RECORD: Final = msgspec.json.Decoder(_RecordHead)


def find_record_kind(line: InputLine) -> str | None:
    """Return which record a line is, or tries to be; None if it is none."""
    try:
        return None if line.text is None else _RECORD.decode(line.text).record.value
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class FindingJson(Struct, frozen=True, gc=False):
    """A finding; `sentence` is what its rule says, where an explanation was asked for."""

    rule: str
    pointer: str
    reason: str
    sentence: str | UnsetType = UNSET


class VerdictJson(Struct, frozen=True, gc=False):
    """A verdict as it is printed; what may be unset is there only where it says something."""

    line: int
    packet_id: str | None
    correlation_id: str | None
    verdict: str
    path: tuple[ProtocolState, ...]
    rules: tuple[str, ...]
    pointers: tuple[str, ...]
    reason: str
    warnings: tuple[FindingJson, ...]
    legal_next: tuple[str, ...]
    obligations: tuple[Obligation, ...]
    file: str | UnsetType = UNSET
    record: str | UnsetType = UNSET
    synthetic: tuple[SyntheticTransition, ...] | UnsetType = UNSET
    findings: tuple[FindingJson, ...] | UnsetType = UNSET
    legal_in: tuple[ProtocolState, ...] | UnsetType = UNSET
    way: tuple[str, ...] | UnsetType = UNSET


class JsonPrinter:
    """One object a line."""

    def __init__(self, output: Output, *, explain: bool, several: bool, silent: bool) -> None:
        self._output = output
        self._explain = explain
        self._several = several
        self._file: str | UnsetType = UNSET

    def begin_source(self, source: LineSource) -> None:
        """Name the file on every line, if there are several."""
        self._output.write_at_once(source.size is None)
        if self._several:
            self._file = source.shown_name

    def add(self, line: InputLine, verdict: Verdict) -> None:
        """Print the object of one line."""
        refused = not verdict.accepted
        more: dict[str, Any] = {}
        if refused and self._explain:
            said = [(each, words.rule_sentence(each.rule, verdict.context)) for each in verdict.findings]
            more["findings"] = tuple(FindingJson(each.rule, each.pointer, each.reason, text) for each, text in said)
            more["way"] = verdict.way
            if verdict.event is not None:
                more["legal_in"] = words.states_where_legal(verdict.event, verdict.context.settings)
        document = VerdictJson(
            line=line.number,
            packet_id=verdict.packet_id,
            correlation_id=verdict.correlation_id,
            verdict=REFUSED if refused else ACCEPTED,
            path=verdict.path,
            rules=verdict.rules if refused else (),
            pointers=verdict.pointers if refused else (),
            reason=verdict.reason,
            warnings=tuple(FindingJson(each.rule, each.pointer, each.reason) for each in verdict.warnings),
            legal_next=verdict.legal_next,
            obligations=verdict.obligations,
            file=self._file,
            record=(find_record_kind(line) or UNSET) if verdict.packet_id is None else UNSET,
            synthetic=verdict.synthetic or UNSET,
            **more,
        )
        self._output.write(encode_line(document))

    def end(self, summaries: Iterable[JudgeSummary], tally: VerdictTally, *, summary: bool) -> None:
        """Print one object for each episode and the totals, if they were asked for."""
        if not summary:
            return
        outcomes: Counter[str] = Counter()
        for _, episodes in _group_by_campaign(summaries):
            outcomes.update(episode.outcome for episode in episodes)
            for episode in episodes:
                self._output.write(encode_line(episode))
        counts = {outcome: outcomes[outcome] for outcome in Outcome}
        self._output.write(encode_line({"totals": tally, "episodes": counts}))


NUMBER: Final = 6
VERDICT: Final = 8
PATH: Final = 8
# How wide the other columns can be.
KIND: Final = (10, 31)
ID: Final = (8, 48)
INDENT: Final = " " * (NUMBER + 1)
COLOURS: Final = {
    ACCEPTED: "green",
    REFUSED: "red",
    Outcome.CONFORMING: "green",
    Outcome.VIOLATED: "red",
    Outcome.OPEN: "yellow",
}


class TextPrinter:
    """One row a line, with remarks beneath it; the widths are chosen once, so that a million rows need no memory."""

    def __init__(
        self, output: Output, *, explain: bool, several: bool, silent: bool, form: OutputFormat | None = None
    ) -> None:
        self._output = output
        self._explain = explain
        self._several = several and not silent
        self._form = stdout_format() if form is None else form
        rest = self._form.width - NUMBER - VERDICT - PATH - 3
        kind = min(max(rest * 2 // 5, KIND[0]), KIND[1])
        self._id = min(max((rest - kind - 2) // 2, ID[0]), ID[1])
        self._widths = (-NUMBER, VERDICT, PATH, kind, self._id, self._id)
        if not silent:
            headings = ("line", "verdict", "path", "what", "packet", "episode")
            self._print_bold(" ".join(format_cells(headings, self._widths)).rstrip())

    def _print_bold(self, text: str) -> None:
        self._output.print(self._form.style(text, bold=True) + "\n")

    def begin_source(self, source: LineSource) -> None:
        """Print the name of the file, if there are several."""
        self._output.write_at_once(source.size is None or sys.stdout.isatty())
        if self._several:
            self._print_bold(printable(source.shown_name))

    def add(self, line: InputLine, verdict: Verdict) -> None:
        """Print the row of one line, and what is remarked beneath it."""
        word = ACCEPTED if verdict.accepted else REFUSED
        what = (describe_kind(line, verdict), verdict.packet_id or "-", verdict.correlation_id or "-")
        path = ">".join(state.partition("_")[0] for state in verdict.path) or "-"
        cells = format_cells((str(line.number), word, path, *what), self._widths)
        cells[1] = self._form.style(word, fg=COLOURS[word]) + cells[1][len(word) :]
        self._output.print(" ".join(cells).rstrip() + "\n")
        for remark in words.explain_verdict(verdict) if self._explain else _brief_remarks(verdict):
            self._print_remark(remark)

    def _print_remark(self, remark: Remark, indent: str = INDENT) -> None:
        for line in self._form.wrap(f"{remark.heading}: {remark.text}", indent):
            self._output.print(self._form.style(line, dim=True) + "\n")

    def end(self, summaries: Iterable[JudgeSummary], tally: VerdictTally, *, summary: bool) -> None:
        """Print the episodes by campaign, if they were asked for, and the totals."""
        self._output.write_at_once(False)
        outcomes: Counter[str] = Counter()
        if summary:
            headings = ("episode", "outcome", "state", "packets", "refused", "warnings")
            self._print_bold(self._summary_row(*headings))
        for campaign, episodes in _group_by_campaign(summaries):
            own = Counter[str](episode.outcome for episode in episodes)
            outcomes += own
            if summary and campaign is not None:
                self._print_bold(f"{printable(campaign)}: {_format_outcomes(own)}")
            for episode in episodes if summary else ():
                self._print_episode(episode)
        counts = f"{tally.accepted:,} accepted, {tally.refused:,} refused, {format_count(tally.warnings, 'warning')}"
        self._print_bold(f"{format_count(tally.lines, 'line')}: {counts}")
        self._print_bold(f"{format_count(outcomes.total(), 'episode')}: {_format_outcomes(outcomes)}")
        if tally.stray:
            self._print_bold(f"{format_count(tally.stray, 'line')} of no known episode")
        if tally.broken:
            self._print_remark(Remark("rules broken", _format_broken_rules(tally.broken)), indent="")

    def _print_episode(self, episode: JudgeSummary) -> None:
        numbers = (f"{number:,}" for number in (episode.packets, episode.refusals, episode.warnings))
        row = self._summary_row(episode.correlation_id, episode.outcome, episode.state, *numbers)
        self._output.print(self._form.style(row, fg=COLOURS[episode.outcome]) + "\n")
        if episode.broken:
            self._print_remark(Remark("rules broken", _format_broken_rules(episode.broken)))
        for owed in episode.obligations:
            self._print_remark(Remark("open", words.describe_obligation(owed)))

    def _summary_row(self, *cells: str) -> str:
        return " ".join(format_cells(cells, (self._id, 10, 13, -8, -8, -8)))


def describe_kind(line: InputLine, verdict: Verdict) -> str:
    """Return what a line is, in a few letters."""
    if verdict.event is not None:
        return event_label(verdict.event).replace("Packet", "", 1)
    record = find_record_kind(line) if verdict.packet_id is None else None
    if record is not None:
        return f"{record} record"
    return "not JSON" if verdict.rules[:1] == ("JSON",) else "malformed"


def _brief_remarks(verdict: Verdict) -> Iterator[Remark]:
    """Yield what is said of a verdict when nobody asked for an explanation."""
    if not verdict.accepted:
        yield Remark(", ".join(verdict.rules), describe_finding(verdict.findings[0]))
    for made in verdict.synthetic:
        yield Remark(made.rule, f"{made.event}: {made.reason}")
    for warning in verdict.warnings:
        yield Remark(f"warning {warning.rule}", describe_finding(warning))


def _format_outcomes(outcomes: Counter[str]) -> str:
    return ", ".join(f"{outcomes[outcome]:,} {outcome}" for outcome in Outcome)


def _format_broken_rules(broken: dict[str, int]) -> str:
    return words.join_words(
        rule if count == 1 else f"{rule} ({count:,} times)" for rule, count in sorted(broken.items())
    )
