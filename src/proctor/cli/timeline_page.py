"""A timeline as it is printed: the episode's facts, a line for every entry, and what it came to with its head.

Rule 1: on a terminal no line is wider than it. A result that must be read whole, such as the reason of a refusal, goes on
    beneath itself; everything else is cut with an ellipsis. Where there is no terminal, nothing is cut.
Rule 2: lines are printed as they come; an episode of a million steps needs no memory.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from rich.cells import cell_len

from proctor.cli.columns import Sheet, clipped, elapsed, instant, many, padded, wrapped
from proctor.cli.narrator import Count
from proctor.cli.tellers import Entry, Tone
from proctor.ledger.reader import EpisodeSummary
from proctor.models.events import SessionOpened
from proctor.models.value_words import told_number, told_value

TIME: Final = 10
STEP: Final = 9
WHO: Final = (7, 24)
WHAT: Final = (8, 44)
GAP: Final = "  "
LABEL: Final = 11
NARROWEST: Final = 60

PEOPLE: Final[Mapping[str, str]] = {"control": "cyan", "agent": "magenta", "operator": "yellow", "system": "blue"}
TONES: Final[Mapping[Tone, dict[str, Any]]] = {
    Tone.PLAIN: {},
    Tone.GOOD: {"fg": "green"},
    Tone.BAD: {"fg": "red", "bold": True},
    Tone.ENDED: {"fg": "green", "bold": True},
    Tone.NOTED: {"fg": "yellow"},
}
ENDS: Final[Mapping[str, dict[str, Any]]] = {"lost": TONES[Tone.BAD], "open": TONES[Tone.NOTED]}


def ending(episode: EpisodeSummary) -> str:
    """Return how an episode ended, in one word."""
    if episode.reason == "lost":
        return "lost"
    if episode.terminated or episode.truncated:
        return "terminated" if episode.terminated else "truncated"
    return episode.reason or ("open" if episode.reason == "" else "left")


class Page:
    """Sets lines on a sheet."""

    def __init__(self, sheet: Sheet, who: int) -> None:
        self._sheet = sheet
        width = max(sheet.width, NARROWEST)
        self._who = min(max(who, WHO[0]), WHO[1], width // 5)
        rest = width - TIME - STEP - self._who - 4 * len(GAP)
        self._what = min(max(rest * 2 // 5, WHAT[0]), WHAT[1])
        self._result = rest - self._what

    def header(self, episode: EpisodeSummary, opened: SessionOpened | None, seed: str) -> Iterator[str]:
        """Yield the facts of the episode, and the headings of the columns."""
        title = _visible(f"Episode {episode.chain}")
        name = "" if opened is None else f"{GAP}{opened.environment}"
        yield self._sheet.styled(title, bold=True) + clipped(name, self._sheet.width - len(title)) + "\n"
        for label, text in _facts(episode, opened, seed):
            yield self._fact(label, text)
        yield "\n"
        cells = ("time".rjust(TIME), "step".rjust(STEP), "who".ljust(self._who), "what".ljust(self._what), "result")
        yield self._sheet.styled(GAP.join(cells), bold=True) + "\n"

    def entry(self, entry: Entry) -> str:
        """Return the lines of one entry."""
        first, *more = self._results(entry)
        who = padded(entry.who, self._who)
        what = padded(entry.what, self._what) if self._sheet.terminal else padded_only(entry.what, self._what)
        cells = (
            self._sheet.styled(f"+{elapsed(entry.at)}".rjust(TIME), dim=True),
            clipped(entry.step, STEP).rjust(STEP),
            self._sheet.styled(who, fg=PEOPLE.get(entry.who.partition(" ")[0])),
            what,
            first,
        )
        indent = " " * (TIME + STEP + self._who + self._what + 4 * len(GAP))
        return "".join(f"{line.rstrip()}\n" for line in (GAP.join(cells), *(indent + each for each in more)))

    def _results(self, entry: Entry) -> list[str]:
        """Return the last column, with its colours, in one line or in several."""
        style = TONES[entry.tone]
        if not self._sheet.terminal:
            return [GAP.join(filter(None, map(_visible, (entry.result, entry.remark))))]
        if entry.whole:
            return [self._sheet.styled(line, **style) for line in wrapped(entry.result, self._result)]
        result = clipped(entry.result, self._result)
        room = self._result - cell_len(result) - len(GAP)
        remark = clipped(entry.remark, room) if room > 3 else ""
        gap = GAP if result and remark else ""
        return [self._sheet.styled(result, **style) + gap + self._sheet.styled(remark, dim=True)]

    def footer(self, episode: EpisodeSummary, count: Count, command: str) -> Iterator[str]:
        """Yield what the episode came to, its head, and what to do with it."""
        yield "\n"
        end = ending(episode)
        words = self._sheet.styled(_visible(end), **ENDS.get(end, {"bold": True}))
        yield f"{words}: {_visible(_totals(episode, count))}\n"
        if count.rules:
            broken = ", ".join(f"{rule} x{times}" if times > 1 else rule for rule, times in sorted(count.rules.items()))
            yield self._fact("refused by", broken)
        yield f"{'head'.ljust(LABEL)}{self._sheet.styled(_visible(episode.head), bold=True)}\n"
        yield self._fact("verify", command)

    def _fact(self, label: str, text: str) -> str:
        room = self._sheet.width - LABEL
        shown = clipped(text, room) if self._sheet.terminal else _visible(text)
        return self._sheet.styled(label.ljust(LABEL), dim=True) + shown + "\n"


def padded_only(text: str, width: int) -> str:
    """Return `text` in at least `width` cells, and never cut."""
    return _visible(text).ljust(width)


def _visible(text: str) -> str:
    # Wide enough for any text: only what cannot be printed is changed.
    return clipped(text, 1 << 30)


def _facts(episode: EpisodeSummary, opened: SessionOpened | None, seed: str) -> Iterator[tuple[str, str]]:
    end = "still open" if episode.closed_at is None else f"{elapsed(episode.closed_at - episode.opened_at)} long"
    yield "began", f"{instant(episode.opened_at)}, {end}"
    yield "seed", f"{seed or 'unknown'}{GAP}episode_id {episode.episode_id}"
    if opened is None:
        return
    batch = "" if opened.num_envs is None else f"{GAP}{opened.num_envs} environments, autoreset {opened.autoreset_mode}"
    yield "served", f"{opened.target} (version {opened.environment_version}){batch}"
    if opened.settings:
        yield "settings", told_value(opened.settings)
    if opened.transforms:
        yield "transforms", told_value(opened.transforms)
    yield "governed", "no: agents are free" if opened.policy is None else f"by {_policy(opened.policy)}"
    yield "sandbox", f"{opened.tier}, in {_PLACES[opened.place]}"
    yield "with", f"Proctor {opened.server}, Python {opened.python}, Gymnasium {opened.gymnasium}, NumPy {opened.numpy}"
    yield "file", f"{episode.file.name}{GAP}run {episode.boot}"


_PLACES: Final = {"inline": "the server's loop", "thread": "a thread", "process": "a process of its own"}


def _policy(policy: Mapping[str, Any]) -> str:
    name = policy.get("name")
    return str(name) if isinstance(name, str) and name else told_value(dict(policy))


def _totals(episode: EpisodeSummary, count: Count) -> str:
    words = [many(episode.steps, "step"), many(episode.rows, "row")]
    if episode.total_reward is not None:
        words.insert(1, f"reward {told_number(episode.total_reward)}")
    if count.packets:
        words.append(f"{many(count.packets, 'packet')} ({count.refused} refused, {many(count.warnings, 'warning')})")
    if count.failures:
        words.append(f"{many(count.failures, 'request')} refused or failed")
    if episode.outcome is not None:
        words.append(f"judged {episode.outcome}")
    return ", ".join(words)
