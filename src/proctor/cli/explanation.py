"""A verdict in words: why a line was refused and what would have been legal, or what an accepted one did.

Rule 1: pure functions over verdicts; how words are set on a page is not their concern.
Rule 2: nothing is guessed: every sentence comes from the catalogue of rules, the table, or the verdict itself.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from proctor.episode.states import Position
from proctor.episode.verdict_words import legal_in, listed, located, obligation_words, sentence_of
from proctor.episode.verdicts import Obligation, Verdict, obligations_of


class Remark(NamedTuple):
    """One thing to say, under a short heading."""

    heading: str
    text: str


def explained(verdict: Verdict) -> Iterator[Remark]:
    """Yield all that there is to say about `verdict`."""
    yield from _accepted(verdict) if verdict.accepted else _refused(verdict)
    for warning in verdict.warnings:
        yield Remark(f"warning {warning.rule}", located(warning))


def _refused(verdict: Verdict) -> Iterator[Remark]:
    told: set[str] = set()
    for finding in verdict.findings:
        # What the rule says is told once, with the first thing that breaks it.
        sentence = "" if finding.rule in told else sentence_of(finding.rule, verdict.context)
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
