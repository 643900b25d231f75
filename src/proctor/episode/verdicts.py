"""The judge's answer to a line: accepted or refused, by which rules, and what would be legal now.

Rule 1: a verdict is a value that stays true: it holds the episode as it was before the line and as it is after it.
Rule 2: what few people read (what is legal next, the shortest way, what is still owed) is worked out when it is read.
"""

from datetime import datetime
from enum import StrEnum
from typing import Final

from msgspec import Struct

from proctor.episode.episode_state import EpisodeState
from proctor.episode.legal_moves import legal_next, shortest_way
from proctor.episode.rules import Findings
from proctor.episode.rules.house_rules import HouseRule, open_promises
from proctor.episode.settings import Profile, Settings
from proctor.episode.transition_table import Event, Position, ProtocolState


class Outcome(StrEnum):
    """What became of an episode."""

    CONFORMING = "conforming"
    VIOLATED = "violated"
    OPEN = "open"


class ObligationKind(StrEnum):
    """What sort of thing is still to come, or still to be used."""

    TASK = "task"
    VERIFICATION = "verification"
    DECISION = "decision"
    ESCALATION = "escalation"
    TOKEN = "token"  # noqa: S105  # a kind of obligation
    PROMISE = "promise"


class Obligation(Struct, frozen=True):
    """One open thing of an episode."""

    kind: ObligationKind
    id: str
    what: str
    due: datetime | None = None


class SyntheticTransition(Struct, frozen=True):
    """A transition that the machine makes itself after the packet that shows the need of it."""

    event: Event
    path: tuple[ProtocolState, ...]
    rule: str
    reason: str
    at: datetime


class JudgingContext(Struct, frozen=True):
    """Under what an episode is judged."""

    settings: Settings = Settings()
    house_rules: tuple[HouseRule, ...] = ()


NO_CONTEXT: Final = JudgingContext()


class Verdict(Struct, frozen=True, gc=False):
    """The answer to one line of a stream."""

    accepted: bool
    correlation_id: str | None
    packet_id: str | None
    event: Event | None
    path: tuple[ProtocolState, ...]
    findings: Findings
    warnings: Findings
    before: EpisodeState | None
    after: EpisodeState | None
    context: JudgingContext = NO_CONTEXT
    synthetic: tuple[SyntheticTransition, ...] = ()
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
    def state(self) -> ProtocolState | None:
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
        return () if self.after is None else list_obligations(self.after, self.context)


def list_obligations(episode: EpisodeState, context: JudgingContext) -> tuple[Obligation, ...]:
    """Return what is open in `episode`: tasks, the verification, a decision or an answer, tokens, promises."""
    pending = _OWED_IN.get(episode.position)
    return (
        *(
            Obligation(ObligationKind.TASK, task.task_id, f"a TaskResultPacket for {task.packet_id}", task.deadline)
            for task in episode.tasks.values()
        ),
        *_verification_obligations(episode, context.settings),
        *(() if pending is None else (pending,)),
        *(
            Obligation(
                ObligationKind.TOKEN, each.token_id, f"{each.limit - each.used} of {each.limit} uses left", each.expiry
            )
            for each in episode.tokens.values()
            if each.live(episode.clock)
        ),
        *(
            Obligation(ObligationKind.PROMISE, rule.id, what)
            # An episode that was closed before has no marks, whatever rules there are.
            for rule, what in (open_promises(context.house_rules, episode.marks) if episode.marks else ())
        ),
    )


def _verification_obligations(episode: EpisodeState, settings: Settings) -> tuple[Obligation, ...]:
    if episode.loop is None:
        return ()
    if episode.loop.integrated:
        return (Obligation(ObligationKind.DECISION, "", "a DecisionPacket anew, after the verification"),)
    lacking = episode.missing_verification_steps(plan=settings.profile is Profile.STRICT)
    wanted = [*lacking, "a BeliefUpdatePacket that names the evidence"]
    return tuple(Obligation(ObligationKind.VERIFICATION, "", what) for what in wanted)


_OWED_IN: Final = {
    Position.DECIDE_ACT: Obligation(ObligationKind.DECISION, "", "the ACT: a token, or a READ directive"),
    Position.DECIDE_ESCALATE: Obligation(ObligationKind.ESCALATION, "", "the EscalationPacket that was decided"),
    Position.ESCALATE_DUE: Obligation(ObligationKind.ESCALATION, "", "an EscalationPacket about the overrun"),
    Position.ESCALATED: Obligation(ObligationKind.ESCALATION, "", "a human's answer"),
    Position.DECIDE_DEFER: Obligation(ObligationKind.DECISION, "", "a BeliefUpdatePacket that notes the deferral"),
    Position.DECIDE_CANCEL: Obligation(ObligationKind.DECISION, "", "a BeliefUpdatePacket that notes the cancellation"),
    Position.DECIDE_AFRESH: Obligation(ObligationKind.DECISION, "", "a DecisionPacket after the human's answer"),
    Position.SAFEMODE: Obligation(
        ObligationKind.ESCALATION, "", "an IntegrityAlertPacket that clears, or the operator's close"
    ),
}
