"""The judge's answer to a line: accepted or refused, by which rules, and what would be legal now.

Rule 1: a verdict is a value that stays true: it holds the episode as it was before the line and as it is after it.
Rule 2: what few people read (what is legal next, the shortest way, what is still owed) is worked out when it is read.
"""

from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from proctor.episode.guards import unverified
from proctor.episode.history import Episode
from proctor.episode.house_rules import HouseRule, pending
from proctor.episode.rulebook import Findings
from proctor.episode.settings import Profile, Settings
from proctor.episode.states import Event, Position, State
from proctor.episode.ways import legal_next, shortest_way


class Outcome(StrEnum):
    """What became of an episode."""

    CONFORMING = "conforming"
    VIOLATED = "violated"
    OPEN = "open"


class Owed(StrEnum):
    """What sort of thing is still to come, or still to be used."""

    TASK = "task"
    VERIFICATION = "verification"
    DECISION = "decision"
    ESCALATION = "escalation"
    TOKEN = "token"  # noqa: S105  # a kind of obligation
    PROMISE = "promise"


class Obligation(Struct, frozen=True):
    """One open thing of an episode."""

    kind: Owed
    id: str
    what: str
    due: datetime | None = None


class Synthetic(Struct, frozen=True):
    """A transition that the machine makes itself after the packet that shows the need of it."""

    event: Event
    path: tuple[State, ...]
    rule: str
    reason: str
    at: datetime


class Context(Struct, frozen=True):
    """Under what an episode is judged."""

    settings: Settings = Settings()
    house_rules: tuple[HouseRule, ...] = ()


NO_CONTEXT: Final = Context()


class Verdict(Struct, frozen=True, gc=False):
    """The answer to one line of a stream."""

    accepted: bool
    correlation_id: str | None
    packet_id: str | None
    event: Event | None
    path: tuple[State, ...]
    findings: Findings
    warnings: Findings
    before: Episode | None
    after: Episode | None
    context: Context = NO_CONTEXT
    synthetic: tuple[Synthetic, ...] = ()
    # The line that states what the API did; empty for lines that came from outside.
    line: bytes = b""

    @property
    def rules(self) -> tuple[str, ...]:
        """The ids of the broken rules, each once."""
        return tuple(dict.fromkeys(finding.rule for finding in self.findings))

    @property
    def pointers(self) -> tuple[str, ...]:
        """Where the packet breaks them, as JSON pointers, each once."""
        return tuple(dict.fromkeys(finding.pointer for finding in self.findings if finding.pointer))

    @property
    def reason(self) -> str:
        """Why it was refused, in one sentence; empty if it was not."""
        return self.findings[0].reason if self.findings else ""

    @property
    def state(self) -> State | None:
        """The state of the episode after the line."""
        return None if self.after is None else self.after.state

    @property
    def legal_next(self) -> tuple[str, ...]:
        """The packets that are legal now."""
        return () if self.after is None else legal_next(self.after, self.context.settings)

    @property
    def way(self) -> tuple[str, ...]:
        """The shortest legal way to what was attempted, the attempted packet last.

        Empty if nothing leads there, or if nothing has to: then it is the packet's content that was refused.
        """
        if self.accepted or self.before is None or self.event is None:
            return ()
        way = shortest_way(self.before, self.context.settings, self.event)
        return way if len(way) > 1 else ()

    @property
    def obligations(self) -> tuple[Obligation, ...]:
        """What is open after the line."""
        return () if self.after is None else obligations_of(self.after, self.context)


def obligations_of(episode: Episode, context: Context) -> tuple[Obligation, ...]:
    """Return what is open in `episode`: tasks, the verification, a decision or an answer, tokens, promises."""
    if not (episode.tasks or episode.loop or episode.tokens or episode.marks):
        return _answers(episode)
    return (
        *_tasks(episode),
        *_verification(episode, context.settings),
        *_answers(episode),
        *_tokens(episode),
        *(Obligation(Owed.PROMISE, rule.id, what) for rule, what in pending(context.house_rules, episode.marks)),
    )


def _tasks(episode: Episode) -> tuple[Obligation, ...]:
    return tuple(
        Obligation(Owed.TASK, task.task_id, f"a TaskResultPacket for {task.packet_id}", task.deadline)
        for task in episode.tasks.values()
    )


def _verification(episode: Episode, settings: Settings) -> tuple[Obligation, ...]:
    if episode.loop is None:
        return ()
    if episode.loop.integrated:
        return (Obligation(Owed.DECISION, "", "a DecisionPacket anew, after the verification"),)
    lacking = unverified(episode, plan=settings.profile is Profile.STRICT)
    wanted = [*lacking, "a BeliefUpdatePacket that names the evidence"]
    return tuple(Obligation(Owed.VERIFICATION, "", what) for what in wanted)


_OWED_IN: Final = {
    Position.DECIDE_ACT: Obligation(Owed.DECISION, "", "the ACT: a token, or a READ directive"),
    Position.DECIDE_ESCALATE: Obligation(Owed.ESCALATION, "", "the EscalationPacket that was decided"),
    Position.ESCALATE_DUE: Obligation(Owed.ESCALATION, "", "an EscalationPacket about the overrun"),
    Position.ESCALATED: Obligation(Owed.ESCALATION, "", "a human's answer"),
    Position.DECIDE_DEFER: Obligation(Owed.DECISION, "", "a BeliefUpdatePacket that notes the deferral"),
    Position.DECIDE_CANCEL: Obligation(Owed.DECISION, "", "a BeliefUpdatePacket that notes the cancellation"),
    Position.DECIDE_AFRESH: Obligation(Owed.DECISION, "", "a DecisionPacket after the human's answer"),
    Position.SAFEMODE: Obligation(Owed.ESCALATION, "", "an IntegrityAlertPacket that clears, or the operator's close"),
}


def _answers(episode: Episode) -> tuple[Obligation, ...]:
    owed = _OWED_IN.get(episode.position)
    return () if owed is None else (owed,)


def _tokens(episode: Episode) -> tuple[Obligation, ...]:
    return tuple(
        Obligation(Owed.TOKEN, token.token_id, f"{token.limit - token.used} of {token.limit} uses left", token.expiry)
        for token in episode.tokens.values()
        if token.live(episode.clock)
    )
