"""A verdict in words: why a line was refused and what would have been legal, or what an accepted one did.

Rule 1: pure functions over verdicts; how words are set on a page is not their concern.
Rule 2: nothing is guessed: every sentence comes from the catalogue of rules, the table, or the verdict itself.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from proctor.episode.explanations import (
    describe_finding,
    describe_obligation,
    join_words,
    rule_sentence,
    states_where_legal,
)
from proctor.episode.transition_table import Position
from proctor.episode.verdicts import Obligation, Verdict, list_obligations


class Remark(NamedTuple):
    """One thing to say, under a short heading."""

    heading: str
    text: str


def explain_verdict(verdict: Verdict) -> Iterator[Remark]:
    """Yield all that there is to say about `verdict`."""
    yield from _explain_acceptance(verdict) if verdict.accepted else _explain_refusal(verdict)
    for warning in verdict.warnings:
        yield Remark(f"warning {warning.rule}", describe_finding(warning))


def _explain_refusal(verdict: Verdict) -> Iterator[Remark]:
    told: set[str] = set()
    for finding in verdict.findings:
        # What the rule says is told once, with the first thing that breaks it.
        sentence = "" if finding.rule in told else rule_sentence(finding.rule, verdict.context)
        told.add(finding.rule)
        yield Remark(
            finding.rule, f"{describe_finding(finding)}. {sentence}" if sentence else describe_finding(finding)
        )
    if verdict.after is None:
        return
    yield Remark("legal now", join_words(verdict.legal_next))
    if verdict.event is not None:
        places = states_where_legal(verdict.event, verdict.context.settings)
        closed = verdict.after.position is Position.CLOSED
        yield Remark("legal in", "the episode is closed" if closed else join_words(places, otherwise="no state"))
    if verdict.way:
        yield Remark("shortest way", ", then ".join(verdict.way))
    yield from _open_obligations("open", verdict.obligations)


def _explain_acceptance(verdict: Verdict) -> Iterator[Remark]:
    path = list(dict.fromkeys(verdict.path))
    yield Remark("moved", " to ".join(path)) if len(path) > 1 else Remark("stayed", f"in {join_words(path)}")
    for made in verdict.synthetic:
        yield Remark(made.rule, f"{made.event}: {made.reason}")
    before = () if verdict.before is None else list_obligations(verdict.before, verdict.context)
    after = verdict.obligations
    known = set(before)
    yield from _open_obligations("now open", (each for each in after if each not in known))
    still = {_obligation_key(each) for each in after}
    for each in before:
        if _obligation_key(each) not in still:
            yield Remark("settled", f"{each.kind} {each.id}" if each.id else f"{each.kind}: {each.what}")


def _obligation_key(owed: Obligation) -> tuple[str, str]:
    return owed.kind, owed.id or owed.what


def _open_obligations(heading: str, owed: Iterable[Obligation]) -> Iterator[Remark]:
    for each in owed:
        yield Remark(heading, describe_obligation(each))
