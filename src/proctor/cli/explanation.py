"""A verdict in words: why a line was refused and what would have been legal, or what an accepted one did.

Rule 1: pure functions over verdicts; how words are set on a page is not their concern.
Rule 2: nothing is guessed: every sentence comes from the catalogue of rules, the table, or the verdict itself.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from proctor.episode.rulebook import Finding
from proctor.episode.rules import SENTENCES
from proctor.episode.settings import Settings
from proctor.episode.states import Event, Position, State
from proctor.episode.table import rows_under, starts_of
from proctor.episode.verdicts import Obligation, Verdict, obligations_of


class Remark(NamedTuple):
    """One thing to say, under a short heading."""

    heading: str
    text: str


_NOTHING: Final = "nothing"


def explained(verdict: Verdict) -> Iterator[Remark]:
    """Yield all that there is to say about `verdict`."""
    yield from _accepted(verdict) if verdict.accepted else _refused(verdict)
    for warning in verdict.warnings:
        yield Remark(f"warning {warning.rule}", located(warning))


def _refused(verdict: Verdict) -> Iterator[Remark]:
    told: set[str] = set()
    for finding in verdict.findings:
        # What the rule says is told once, with the first thing that breaks it.
        sentence = "" if finding.rule in told else sentence_of(finding.rule, verdict)
        told.add(finding.rule)
        yield Remark(finding.rule, f"{located(finding)}. {sentence}" if sentence else located(finding))
    if verdict.after is None:
        return
    yield Remark("legal now", listed(verdict.legal_next))
    if verdict.event is not None:
        places = legal_in(verdict.event, verdict.context.settings)
        closed = verdict.after.position is Position.CLOSED
        yield Remark("legal in", "the episode is closed" if closed else listed(places, otherwise="no state"))
    if verdict.way:
        yield Remark("shortest way", ", then ".join(verdict.way))
    yield from _open("open", verdict.obligations)


def _accepted(verdict: Verdict) -> Iterator[Remark]:
    path = list(dict.fromkeys(verdict.path))
    yield Remark("moved", " to ".join(path)) if len(path) > 1 else Remark("stayed", f"in {listed(path)}")
    for made in verdict.synthetic:
        yield Remark(made.rule, f"{made.event}: {made.reason}")
    before = () if verdict.before is None else obligations_of(verdict.before, verdict.context)
    after = verdict.obligations
    known = set(before)
    yield from _open("now open", (each for each in after if each not in known))
    still = {_key(each) for each in after}
    for each in before:
        if _key(each) not in still:
            yield Remark("settled", f"{each.kind} {each.id}" if each.id else f"{each.kind}: {each.what}")


def _key(owed: Obligation) -> tuple[str, str]:
    return owed.kind, owed.id or owed.what


def _open(heading: str, owed: Iterable[Obligation]) -> Iterator[Remark]:
    for each in owed:
        yield Remark(heading, obligation_words(each))


def obligation_words(owed: Obligation) -> str:
    """Return an obligation as one sentence without its full stop."""
    name = f"{owed.kind} {owed.id}".strip()
    due = "" if owed.due is None else f", until {owed.due.isoformat()}"
    return f"{name}: {owed.what}{due}"


def located(finding: Finding) -> str:
    """Return why a rule is broken and where, without a full stop."""
    reason = finding.reason.rstrip(".")
    return f"{reason} (at {finding.pointer})" if finding.pointer else reason


def sentence_of(rule: str, verdict: Verdict) -> str:
    """Return what a rule says: from the catalogue, or as its user wrote it; empty if neither knows it."""
    own = {each.id: each.text for each in verdict.context.house_rules}
    return SENTENCES.get(rule, own.get(rule, ""))


def legal_in(event: Event, settings: Settings) -> tuple[State, ...]:
    """Return the states in which the table has a row for `event` under these settings."""
    found: set[State] = set()
    for by_event in rows_under(settings.options).values():
        row = by_event.get(event)
        if row is not None:
            found.update(starts_of(row))
    return tuple(state for state in State if state in found)


def listed(words: Iterable[str], *, otherwise: str = _NOTHING) -> str:
    """Return words with commas, or `otherwise` if there are none."""
    return ", ".join(words) or otherwise
