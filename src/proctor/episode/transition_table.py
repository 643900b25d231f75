"""Where an episode can stand, what can happen to it, and which packet may follow which: the whole machine, as data.

Rule 1: a transition that is not in `TABLE` does not exist. A row's guards name what the history must say besides; what
    they mean stands in `legal_moves.py`, and what a packet's content must say stands in `rules`.
Rule 2: this file knows positions and events, never packets, agents, sockets or time.
Rule 3: a *state* is one of the contract's ten. A *position* is what the machine keeps: a state with what is pending in
    it, so that the next legal packet depends on nothing else that the table must know.
Rule 4: an *event* is a packet or a record as the table sees it, told from its own content alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from proctor.episode.packets.enums import PacketKind


class ProtocolState(StrEnum):
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
STATES: Final[dict[Position, tuple[ProtocolState, ...]]] = {
    Position.IDLE: (ProtocolState.IDLE,),
    Position.SENSE: (ProtocolState.SENSE,),
    Position.MODEL: (ProtocolState.MODEL,),
    Position.DECIDE_ACT: (ProtocolState.DECIDE,),
    Position.DECIDE_ESCALATE: (ProtocolState.DECIDE,),
    Position.DECIDE_DEFER: (ProtocolState.DECIDE,),
    Position.DECIDE_CANCEL: (ProtocolState.DECIDE,),
    Position.DECIDE_AFRESH: (ProtocolState.DECIDE,),
    Position.VERIFY: (ProtocolState.VERIFY,),
    Position.AUTHORIZE: (ProtocolState.AUTHORIZE,),
    Position.EXECUTE: (ProtocolState.EXECUTE,),
    Position.SETTLE: (ProtocolState.REVIEW, ProtocolState.MODEL),
    Position.REVIEW: (ProtocolState.REVIEW,),
    Position.ESCALATE_DUE: (ProtocolState.ESCALATED,),
    Position.ESCALATED: (ProtocolState.ESCALATED,),
    Position.SAFEMODE: (ProtocolState.SAFEMODE,),
    Position.CLOSED: (ProtocolState.IDLE,),
}


def visible_state(position: Position, *, succeeded: bool) -> ProtocolState:
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


class Guard(StrEnum):
    """What the history of the episode must say for a row to be open; the value is the sentence."""

    PLANNED = "a verification plan was stated since the VERIFY_FIRST"
    VERIFIED = "the verification has its plan, its READ directive, its success and its observed evidence"
    UNBEGUN = "nothing was stated since the VERIFY_FIRST"
    TASK_OPEN = "a directive waits for its result"
    TASKS_CLOSED = "no directive waits for its result"
    TOKEN_KNOWN = "a token was issued in this episode"  # noqa: S105  # a sentence
    TOKEN_LIVE = "a token of this episode is neither expired, revoked nor used up"  # noqa: S105  # a sentence
    LOOP_CLOSED = "no verification waits for its decision"


class TableOption(StrEnum):
    """What must be switched on for a row to exist."""

    STRICT = "profile strict"
    LENIENT = "profile lenient"
    INITIAL_BELIEFS = "initial_beliefs"


class TransitionRow(NamedTuple):
    """One transition; `through` are the states of its micro-steps, `start` the state that a declared set turns out as."""

    source: Position
    event: Event
    target: Position
    guards: tuple[Guard, ...] = ()
    through: tuple[ProtocolState, ...] = ()
    start: ProtocolState | None = None
    option: TableOption | None = None


def starting_states(row: TransitionRow) -> tuple[ProtocolState, ...]:
    """Return the states that a row can start from."""
    return STATES[row.source] if row.start is None else (row.start,)


_DECIDED: Final = {
    Event.ACT: Position.DECIDE_ACT,
    Event.ESCALATE: Position.DECIDE_ESCALATE,
    Event.DEFER: Position.DECIDE_DEFER,
    Event.CANCEL: Position.DECIDE_CANCEL,
}
# Closing an episode is the same act by either hand, except in safe mode.
_CLOSING: Final = (Guard.TASKS_CLOSED, Guard.LOOP_CLOSED)


def _observation_rows(
    source: Position, target: Position, start: ProtocolState | None = None
) -> Iterator[TransitionRow]:
    for event in OBSERVATIONS:
        yield TransitionRow(source, event, target, start=start)


def _decision_rows(
    source: Position, *, start: ProtocolState | None = None, option: TableOption | None = None, inside: bool = False
) -> Iterator[TransitionRow]:
    """Yield the rows of all decisions in `source`; VERIFY_FIRST goes on to S4 by itself, through S3 if not in it."""
    through = () if inside else (ProtocolState.DECIDE,)
    yield TransitionRow(source, Event.VERIFY_FIRST, Position.VERIFY, through=through, start=start, option=option)
    for event, target in _DECIDED.items():
        yield TransitionRow(source, event, target, start=start, option=option)


def _rows_everywhere() -> Iterator[TransitionRow]:
    for source in Position:
        if source is Position.CLOSED:
            continue
        yield TransitionRow(source, Event.CRITICAL, Position.SAFEMODE)
        yield TransitionRow(source, Event.HALT, Position.SAFEMODE)
        yield TransitionRow(source, Event.ALERT, source)
        yield TransitionRow(source, Event.APPROVAL, source)
        if source is not Position.SAFEMODE:
            yield TransitionRow(source, Event.CLEAR, source)
            yield TransitionRow(source, Event.QUEUE, source)
            yield TransitionRow(source, Event.REVOCATION, source, (Guard.TOKEN_KNOWN,))


TABLE: Final[tuple[TransitionRow, ...]] = (
    # S0: the first observation begins the episode.
    *_observation_rows(Position.IDLE, Position.SENSE),
    TransitionRow(Position.IDLE, Event.TOKEN, Position.IDLE, option=TableOption.LENIENT),
    # S1
    *_observation_rows(Position.SENSE, Position.SENSE),
    TransitionRow(Position.SENSE, Event.BELIEF, Position.MODEL),
    *_decision_rows(Position.SENSE, option=TableOption.INITIAL_BELIEFS),
    # S2
    TransitionRow(Position.MODEL, Event.BELIEF, Position.MODEL),
    *_decision_rows(Position.MODEL),
    # S3: what is pending says what may come.
    TransitionRow(Position.DECIDE_ACT, Event.VERIFY_FIRST, Position.VERIFY),
    TransitionRow(Position.DECIDE_ACT, Event.TOKEN, Position.AUTHORIZE),
    TransitionRow(Position.DECIDE_ACT, Event.READ, Position.EXECUTE),
    TransitionRow(Position.DECIDE_ESCALATE, Event.ESCALATION, Position.ESCALATED),
    TransitionRow(Position.DECIDE_DEFER, Event.BELIEF, Position.REVIEW),
    TransitionRow(Position.DECIDE_CANCEL, Event.BELIEF, Position.REVIEW),
    *_decision_rows(Position.DECIDE_AFRESH, inside=True),
    # S4
    TransitionRow(Position.VERIFY, Event.PLAN, Position.VERIFY),
    TransitionRow(Position.VERIFY, Event.TOKEN, Position.VERIFY, (Guard.UNBEGUN,), option=TableOption.LENIENT),
    TransitionRow(Position.VERIFY, Event.READ, Position.VERIFY, (Guard.PLANNED,), option=TableOption.STRICT),
    TransitionRow(Position.VERIFY, Event.READ, Position.VERIFY, option=TableOption.LENIENT),
    TransitionRow(Position.VERIFY, Event.RESULT, Position.VERIFY, (Guard.TASK_OPEN,)),
    *_observation_rows(Position.VERIFY, Position.VERIFY),
    TransitionRow(Position.VERIFY, Event.BELIEF, Position.MODEL, (Guard.VERIFIED, Guard.TASKS_CLOSED)),
    # S5
    TransitionRow(Position.AUTHORIZE, Event.TOKEN, Position.AUTHORIZE),
    TransitionRow(Position.AUTHORIZE, Event.WRITE, Position.EXECUTE, (Guard.TOKEN_LIVE,)),
    # S6
    TransitionRow(Position.EXECUTE, Event.READ, Position.EXECUTE),
    TransitionRow(Position.EXECUTE, Event.WRITE, Position.EXECUTE, (Guard.TOKEN_LIVE,)),
    TransitionRow(Position.EXECUTE, Event.RESULT, Position.EXECUTE, (Guard.TASK_OPEN,)),
    *_observation_rows(Position.EXECUTE, Position.EXECUTE),
    TransitionRow(Position.EXECUTE, Event.BELIEF, Position.SETTLE, (Guard.TASKS_CLOSED,)),
    # {S7, S2}: the next packet tells which it was.
    TransitionRow(Position.SETTLE, Event.BELIEF, Position.SETTLE),
    *_decision_rows(Position.SETTLE, start=ProtocolState.MODEL),
    *_observation_rows(Position.SETTLE, Position.SENSE, start=ProtocolState.REVIEW),
    *(TransitionRow(Position.SETTLE, event, Position.CLOSED, _CLOSING, start=ProtocolState.REVIEW) for event in CLOSES),
    # S7
    TransitionRow(Position.REVIEW, Event.BELIEF, Position.REVIEW),
    *_observation_rows(Position.REVIEW, Position.SENSE),
    *(TransitionRow(Position.REVIEW, event, Position.CLOSED, _CLOSING) for event in CLOSES),
    # S8
    TransitionRow(Position.ESCALATE_DUE, Event.ESCALATION, Position.ESCALATED),
    TransitionRow(Position.ESCALATED, Event.ESCALATION, Position.ESCALATED),
    TransitionRow(Position.ESCALATED, Event.USER_INPUT, Position.DECIDE_AFRESH),
    TransitionRow(Position.ESCALATED, Event.ANSWER, Position.DECIDE_AFRESH),
    # S9
    TransitionRow(Position.SAFEMODE, Event.CLEAR, Position.REVIEW),
    TransitionRow(Position.SAFEMODE, Event.BELIEF, Position.SAFEMODE),
    TransitionRow(Position.SAFEMODE, Event.OPERATOR_CLOSE, Position.CLOSED, _CLOSING),
    # Everywhere
    *_rows_everywhere(),
    # Made by the machine after a result that shows an overrun: results come in S4 and S6 only.
    *(
        TransitionRow(source, event, target)
        for source in (Position.VERIFY, Position.EXECUTE)
        for event, target in ((Event.OVERRUN_HALT, Position.SAFEMODE), (Event.OVERRUN_ESCALATE, Position.ESCALATE_DUE))
    ),
)

TransitionsByPosition = Mapping[Position, Mapping[Event, TransitionRow]]


def rows_for_options(options: Iterable[TableOption], rows: Iterable[TransitionRow] = TABLE) -> TransitionsByPosition:
    """Return the rows that exist under `options`, by position and event."""
    on = frozenset(options)
    found: dict[Position, dict[Event, TransitionRow]] = {position: {} for position in Position}
    for row in rows:
        if row.option is None or row.option in on:
            found[row.source][row.event] = row
    return found
