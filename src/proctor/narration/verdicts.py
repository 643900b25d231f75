"""Verdicts in words: why a line was refused, what would have been legal, what is open, and what an accepted line did. Pure.

Rule: nothing is guessed: every sentence comes from a catalogue of rules, the table, or the verdict itself.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from proctor.episode.legal_moves import shortest_way
from proctor.episode.packets.enums import PacketKind, RecordKind
from proctor.episode.rules import RuleFinding
from proctor.episode.rules.catalogue import SENTENCES
from proctor.episode.rules.governance import SENTENCES as GOVERNING
from proctor.episode.settings import Settings
from proctor.episode.transition_table import Event, Position, ProtocolState, rows_for_options, starting_states
from proctor.episode.verdicts import JudgingContext, Obligation, Verdict, list_obligations

ACCEPTED: Final = "accepted"
REFUSED: Final = "refused"
MOST_SHORT: Final = 2
"""How many rules a few words tell of."""
TOKEN_RULES: Final = frozenset({"E4", "INV-007"})
"""The rules that a token breaks which is there and opens nothing."""

EVENT_WORDS: Final[Mapping[Event, str]] = {
    Event.OBSERVATION: "an observation",
    Event.USER_INPUT: "an observation of a human's answer",
    Event.BELIEF: "a belief update",
    Event.VERIFY_FIRST: "a decision to verify first",
    Event.ACT: "a decision to act",
    Event.ESCALATE: "a decision to ask a human",
    Event.DEFER: "a decision to defer",
    Event.CANCEL: "a decision to cancel",
    Event.PLAN: "a verification plan",
    Event.TOKEN: "a token",
    Event.REVOCATION: "the revocation of a token",
    Event.READ: "a READ directive",
    Event.WRITE: "a WRITE directive",
    Event.RESULT: "a task's result",
    Event.ESCALATION: "an escalation to a human",
    Event.ALERT: "an alert",
    Event.CRITICAL: "a CRITICAL alert",
    Event.CLEAR: "an alert that clears",
    Event.QUEUE: "a queue update",
    Event.CLOSE: "the close of the episode",
    Event.OPERATOR_CLOSE: "the close of the episode by the operator",
    Event.ANSWER: "a human's answer",
    Event.APPROVAL: "an approval by the operator",
    Event.HALT: "an order to stop",
    Event.OVERRUN_HALT: "a stop for an overrun budget",
    Event.OVERRUN_ESCALATE: "an escalation of an overrun budget",
}
"""What a packet or a record is, for people."""

KIND_WORDS: Final[Mapping[str, str]] = {
    PacketKind.OBSERVATION: "an observation",
    PacketKind.DECISION: "a decision",
    PacketKind.DIRECTIVE: "a directive",
    PacketKind.TOKEN: "a token",
    PacketKind.ALERT: "an alert",
    PacketKind.BELIEF_UPDATE: EVENT_WORDS[Event.BELIEF],
    PacketKind.VERIFICATION_PLAN: EVENT_WORDS[Event.PLAN],
    PacketKind.RESULT: EVENT_WORDS[Event.RESULT],
    PacketKind.ESCALATION: EVENT_WORDS[Event.ESCALATION],
    PacketKind.QUEUE_UPDATE: EVENT_WORDS[Event.QUEUE],
    RecordKind.OPEN: "the opening of the episode",
    RecordKind.CLOSE: EVENT_WORDS[Event.CLOSE],
    RecordKind.USER_INPUT: EVENT_WORDS[Event.ANSWER],
    RecordKind.APPROVAL: EVENT_WORDS[Event.APPROVAL],
    RecordKind.SAFEMODE: EVENT_WORDS[Event.HALT],
}
"""What a line is, where nothing more of it can be read than its kind."""

STATE_WORDS: Final[Mapping[ProtocolState, str]] = {
    ProtocolState.IDLE: "Nothing has been observed yet, or the episode is closed.",
    ProtocolState.SENSE: "Something was observed; beliefs about it come next.",
    ProtocolState.MODEL: "There are beliefs; a decision comes next.",
    ProtocolState.DECIDE: "A decision was made; what it asks for comes next.",
    ProtocolState.VERIFY: "Assumptions are checked with tools that only read, before anything is decided.",
    ProtocolState.AUTHORIZE: "A token was issued; the tools that it covers may be used.",
    ProtocolState.EXECUTE: "Tools are used, and their results and observations come in.",
    ProtocolState.REVIEW: "The matter is settled; the episode can close, or begin again with an observation.",
    ProtocolState.ESCALATED: "A human operator is asked, and everything waits for the answer.",
    ProtocolState.SAFEMODE: "Everything is stopped until an operator lifts safe mode or closes the episode.",
}
"""What a state means, in one sentence."""

SHORT: Final[Mapping[str, str]] = {
    "JSON": "it is not one JSON value",
    "SCHEMA": "its fields are not as they must be",
    "EPISODE_CLOSED": "the episode is closed",
    "LIMIT-1": "too many episodes are open",
    "LIMIT-2": "the episode has no room for it",
    "ID-1": "its packet id was used before",
    "SAFETY-1": "its safety class contradicts its task type",
    "LAYER-1": "it comes from the wrong layer",
    "LAYER-2": "it comes from the wrong layer",
    "E1": "there are no beliefs yet that it could rest on",
    "E2": "no decision to act stands behind it",
    "E3": "the verification is not complete",
    "E4": "no live token covers it",
    "E5": "it does not give a human enough to choose from",
    "E7": "the episode is in safe mode",
    "S4": "the verification is not complete",
    "S6": "a directive still waits for its result",
    "INV-001": "its envelope is not complete",
    "INV-002": "SUBPAR quality never acts",
    "INV-004": "it names nothing that was seen",
    "INV-005": "the budget does not cover it",
    "INV-007": "its token does not cover it",
    "INV-008": "a verification is still open",
    "INV-009": "it does not give a human enough to choose from",
}
"""Why something was refused by a rule, in a few words; of the others the reason is short enough."""


def describe_kind(kind: str) -> str:
    """Return what a line of this kind is, for people; a kind that is none of ours is told by its name."""
    return KIND_WORDS.get(kind) or (f"a line of the kind {kind}" if kind else "a line that nobody can read")


def rule_sentence(rule: str, context: JudgingContext) -> str:
    """Return what a rule says: from the catalogues, or as its user wrote it; empty if nobody knows it."""
    own = {each.id: each.text for each in context.house_rules}
    return SENTENCES.get(rule) or own.get(rule) or GOVERNING.get(rule, "")


def short_reason(rules: Sequence[str], reason: str) -> str:
    """Return why something was refused, in a few words.

    What the table has no row for is told by what else is broken: people ask for the decision or the token that is missing.
    """
    told = [SHORT[rule] for rule in (rules if rules[:1] == ["FSM"] else rules[:1]) if rule in SHORT]
    return " and ".join(dict.fromkeys(told[:MOST_SHORT])) or reason.partition("; ")[0].rstrip(".")


def describe_obligation(owed: Obligation) -> str:
    """Return an obligation as one sentence without its full stop."""
    due = "" if owed.due is None else f", until {owed.due.isoformat()}"
    return f"{f'{owed.kind} {owed.id}'.strip()}: {owed.what}{due}"


def describe_finding(finding: RuleFinding) -> str:
    """Return why a rule is broken and where, without a full stop."""
    reason = finding.reason.rstrip(".")
    return f"{reason} (at {finding.pointer})" if finding.pointer else reason


def states_where_legal(event: Event, settings: Settings) -> tuple[ProtocolState, ...]:
    """Return the states in which the table has a row for `event` under these settings."""
    rows = (by_event[event] for by_event in rows_for_options(settings.options).values() if event in by_event)
    found = {state for row in rows for state in starting_states(row)}
    return tuple(state for state in ProtocolState if state in found)


def find_way_on(verdict: Verdict) -> tuple[str, ...]:
    """Return the shortest legal way to what was refused; a token that opens nothing counts as none."""
    way = verdict.way
    if way or verdict.after is None or not TOKEN_RULES & set(verdict.rules):
        return way
    return shortest_way(replace(verdict.after, tokens={}), verdict.context.settings, Event.WRITE)


def join_words(words: Iterable[str], *, otherwise: str = "nothing") -> str:
    """Return words with commas, or `otherwise` if there are none."""
    return ", ".join(words) or otherwise


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
        yield Remark(finding.rule, ". ".join(filter(None, (describe_finding(finding), sentence))))
    if verdict.after is None:
        return
    yield Remark("legal now", join_words(verdict.legal_next))
    if verdict.event is not None:
        places = states_where_legal(verdict.event, verdict.context.settings)
        closed = verdict.after.position is Position.CLOSED
        yield Remark("legal in", "the episode is closed" if closed else join_words(places, otherwise="no state"))
    if verdict.way:
        yield Remark("shortest way", ", then ".join(verdict.way))
    for each in verdict.obligations:
        yield Remark("open", describe_obligation(each))


def _explain_acceptance(verdict: Verdict) -> Iterator[Remark]:
    path = list(dict.fromkeys(verdict.path))
    yield Remark("moved", " to ".join(path)) if len(path) > 1 else Remark("stayed", f"in {join_words(path)}")
    for made in verdict.synthetic:
        yield Remark(made.rule, f"{made.event}: {made.reason}")
    before = () if verdict.before is None else list_obligations(verdict.before, verdict.context)
    known = set(before)
    for each in verdict.obligations:
        if each not in known:
            yield Remark("now open", describe_obligation(each))
    still = {(each.kind, each.id or each.what) for each in verdict.obligations}
    for each in before:
        if (each.kind, each.id or each.what) not in still:
            yield Remark("settled", f"{each.kind} {each.id}" if each.id else f"{each.kind}: {each.what}")
