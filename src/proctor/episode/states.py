"""Where an episode can stand, and what can happen to it.

Rule 1: a *state* is one of the contract's ten. A *position* is what the machine keeps: a state with what is pending in
    it, so that the next legal packet depends on nothing else that the table must know.
Rule 2: an *event* is a packet or a record as the table sees it, told from its own content alone.
"""

from enum import StrEnum
from typing import Final

from proctor.episode.kinds import PacketKind


class State(StrEnum):
    """The ten states of the contract."""

    IDLE = "S0_IDLE"
    SENSE = "S1_SENSE"
    MODEL = "S2_MODEL"
    DECIDE = "S3_DECIDE"
    VERIFY = "S4_VERIFY"
    AUTHORIZE = "S5_AUTHORIZE"
    EXECUTE = "S6_EXECUTE"
    REVIEW = "S7_REVIEW"
    ESCALATED = "S8_ESCALATED"
    SAFEMODE = "S9_SAFEMODE"


class Position(StrEnum):
    """A state with what is pending in it."""

    IDLE = "idle"
    SENSE = "sense"
    MODEL = "model"
    DECIDE_ACT = "decide: act"
    DECIDE_ESCALATE = "decide: escalate"
    DECIDE_DEFER = "decide: defer"
    DECIDE_CANCEL = "decide: cancel"
    DECIDE_AFRESH = "decide: after a human's answer"
    VERIFY = "verify"
    AUTHORIZE = "authorize"
    EXECUTE = "execute"
    SETTLE = "settle: review or model"
    REVIEW = "review"
    ESCALATE_DUE = "escalated: to be presented"
    ESCALATED = "escalated: waiting for a human"
    SAFEMODE = "safemode"
    CLOSED = "closed"


# The states that a position can stand for. SETTLE is the one declared set: what comes next tells which it was.
STATES: Final[dict[Position, tuple[State, ...]]] = {
    Position.IDLE: (State.IDLE,),
    Position.SENSE: (State.SENSE,),
    Position.MODEL: (State.MODEL,),
    Position.DECIDE_ACT: (State.DECIDE,),
    Position.DECIDE_ESCALATE: (State.DECIDE,),
    Position.DECIDE_DEFER: (State.DECIDE,),
    Position.DECIDE_CANCEL: (State.DECIDE,),
    Position.DECIDE_AFRESH: (State.DECIDE,),
    Position.VERIFY: (State.VERIFY,),
    Position.AUTHORIZE: (State.AUTHORIZE,),
    Position.EXECUTE: (State.EXECUTE,),
    Position.SETTLE: (State.REVIEW, State.MODEL),
    Position.REVIEW: (State.REVIEW,),
    Position.ESCALATE_DUE: (State.ESCALATED,),
    Position.ESCALATED: (State.ESCALATED,),
    Position.SAFEMODE: (State.SAFEMODE,),
    Position.CLOSED: (State.IDLE,),
}


def shown(position: Position, *, succeeded: bool) -> State:
    """Return the state shown for `position`; the declared set shows S7 if every result was a success, else S2."""
    states = STATES[position]
    return states[0] if succeeded or len(states) == 1 else states[1]


class Event(StrEnum):
    """What the table sees of a packet or a record; the value is what people read."""

    OBSERVATION = "ObservationPacket(other)"
    USER_INPUT = "ObservationPacket(user_input)"
    BELIEF = "BeliefUpdatePacket"
    VERIFY_FIRST = "DecisionPacket(VERIFY_FIRST)"
    ACT = "DecisionPacket(ACT)"
    ESCALATE = "DecisionPacket(ESCALATE)"
    DEFER = "DecisionPacket(DEFER)"
    CANCEL = "DecisionPacket(CANCEL)"
    PLAN = "VerificationPlanPacket"
    TOKEN = "ToolAuthorizationToken"  # noqa: S105  # the protocol's name of a packet, not a secret
    REVOCATION = "ToolAuthorizationToken(revoked)"
    READ = "TaskDirectivePacket(READ)"
    WRITE = "TaskDirectivePacket(WRITE)"
    RESULT = "TaskResultPacket"
    ESCALATION = "EscalationPacket"
    ALERT = "IntegrityAlertPacket(notice)"
    CRITICAL = "IntegrityAlertPacket(CRITICAL)"
    CLEAR = "IntegrityAlertPacket(clear)"
    QUEUE = "QueueUpdatePacket"
    # Records.
    CLOSE = "close by the system"
    OPERATOR_CLOSE = "close by the operator"
    ANSWER = "user_input record"
    APPROVAL = "approval record"
    HALT = "safemode record"
    # Made by the machine itself, after the result that shows an overrun.
    OVERRUN_HALT = "budget overrun: safe mode"
    OVERRUN_ESCALATE = "budget overrun: escalation"


DECISIONS: Final = (Event.VERIFY_FIRST, Event.ACT, Event.ESCALATE, Event.DEFER, Event.CANCEL)
OBSERVATIONS: Final = (Event.OBSERVATION, Event.USER_INPUT)
DIRECTIVES: Final = (Event.READ, Event.WRITE)
ALERTS: Final = (Event.ALERT, Event.CRITICAL, Event.CLEAR)
CLOSES: Final = (Event.CLOSE, Event.OPERATOR_CLOSE)

# The events that a packet of each kind can be.
EVENTS: Final[dict[PacketKind, tuple[Event, ...]]] = {
    PacketKind.OBSERVATION: OBSERVATIONS,
    PacketKind.BELIEF_UPDATE: (Event.BELIEF,),
    PacketKind.DECISION: DECISIONS,
    PacketKind.VERIFICATION_PLAN: (Event.PLAN,),
    PacketKind.TOKEN: (Event.TOKEN, Event.REVOCATION),
    PacketKind.DIRECTIVE: DIRECTIVES,
    PacketKind.RESULT: (Event.RESULT,),
    PacketKind.ESCALATION: (Event.ESCALATION,),
    PacketKind.ALERT: ALERTS,
    PacketKind.QUEUE_UPDATE: (Event.QUEUE,),
}
PACKETS: Final = tuple(event for events in EVENTS.values() for event in events)
RECORDS: Final = (*CLOSES, Event.ANSWER, Event.APPROVAL, Event.HALT)
# What stops an episode at once.
EMERGENCIES: Final = (Event.CRITICAL, Event.HALT)
SYNTHETIC: Final = (Event.OVERRUN_HALT, Event.OVERRUN_ESCALATE)
