"""Which packet may follow which: the whole machine, as data.

Rule 1: a transition that is not in `TABLE` does not exist. A row's guards name what the history must say besides; what
    they mean stands in `guards.py`, and what a packet's content must say stands in `rules.py`.
Rule 2: this file knows positions and events, never packets, agents, sockets or time.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from proctor.episode.states import CLOSES, EMERGENCIES, OBSERVATIONS, STATES, Event, Position, State


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


class Option(StrEnum):
    """What must be switched on for a row to exist."""

    STRICT = "profile strict"
    LENIENT = "profile lenient"
    INITIAL_BELIEFS = "initial_beliefs"


class Row(NamedTuple):
    """One transition; `through` are the states of its micro-steps, `start` the state that a declared set turns out as."""

    source: Position
    event: Event
    target: Position
    guards: tuple[Guard, ...] = ()
    through: tuple[State, ...] = ()
    start: State | None = None
    option: Option | None = None


def starts_of(row: Row) -> tuple[State, ...]:
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


def _observing(source: Position, target: Position, start: State | None = None) -> Iterator[Row]:
    """Yield the rows by which any observation leads from `source` to `target`."""
    for event in OBSERVATIONS:
        yield Row(source, event, target, start=start)


def _deciding(
    source: Position, *, start: State | None = None, option: Option | None = None, inside: bool = False
) -> Iterator[Row]:
    """Yield the rows of all decisions in `source`; VERIFY_FIRST goes on to S4 by itself, through S3 if not in it."""
    through = () if inside else (State.DECIDE,)
    yield Row(source, Event.VERIFY_FIRST, Position.VERIFY, through=through, start=start, option=option)
    for event, target in _DECIDED.items():
        yield Row(source, event, target, start=start, option=option)


def _anywhere() -> Iterator[Row]:
    """Yield the rows that hold in every position of an open episode."""
    for source in Position:
        if source is Position.CLOSED:
            continue
        yield Row(source, Event.CRITICAL, Position.SAFEMODE)
        yield Row(source, Event.HALT, Position.SAFEMODE)
        yield Row(source, Event.ALERT, source)
        yield Row(source, Event.APPROVAL, source)
        if source is not Position.SAFEMODE:
            yield Row(source, Event.CLEAR, source)
            yield Row(source, Event.QUEUE, source)
            yield Row(source, Event.REVOCATION, source, (Guard.TOKEN_KNOWN,))


TABLE: Final[tuple[Row, ...]] = (
    # S0: the first observation begins the episode.
    *_observing(Position.IDLE, Position.SENSE),
    Row(Position.IDLE, Event.TOKEN, Position.IDLE, option=Option.LENIENT),
    # S1
    *_observing(Position.SENSE, Position.SENSE),
    Row(Position.SENSE, Event.BELIEF, Position.MODEL),
    *_deciding(Position.SENSE, option=Option.INITIAL_BELIEFS),
    # S2
    Row(Position.MODEL, Event.BELIEF, Position.MODEL),
    *_deciding(Position.MODEL),
    # S3: what is pending says what may come.
    Row(Position.DECIDE_ACT, Event.VERIFY_FIRST, Position.VERIFY),
    Row(Position.DECIDE_ACT, Event.TOKEN, Position.AUTHORIZE),
    Row(Position.DECIDE_ACT, Event.READ, Position.EXECUTE),
    Row(Position.DECIDE_ESCALATE, Event.ESCALATION, Position.ESCALATED),
    Row(Position.DECIDE_DEFER, Event.BELIEF, Position.REVIEW),
    Row(Position.DECIDE_CANCEL, Event.BELIEF, Position.REVIEW),
    *_deciding(Position.DECIDE_AFRESH, inside=True),
    # S4
    Row(Position.VERIFY, Event.PLAN, Position.VERIFY),
    Row(Position.VERIFY, Event.TOKEN, Position.VERIFY, (Guard.UNBEGUN,), option=Option.LENIENT),
    Row(Position.VERIFY, Event.READ, Position.VERIFY, (Guard.PLANNED,), option=Option.STRICT),
    Row(Position.VERIFY, Event.READ, Position.VERIFY, option=Option.LENIENT),
    Row(Position.VERIFY, Event.RESULT, Position.VERIFY, (Guard.TASK_OPEN,)),
    *_observing(Position.VERIFY, Position.VERIFY),
    Row(Position.VERIFY, Event.BELIEF, Position.MODEL, (Guard.VERIFIED, Guard.TASKS_CLOSED)),
    # S5
    Row(Position.AUTHORIZE, Event.TOKEN, Position.AUTHORIZE),
    Row(Position.AUTHORIZE, Event.WRITE, Position.EXECUTE, (Guard.TOKEN_LIVE,)),
    # S6
    Row(Position.EXECUTE, Event.READ, Position.EXECUTE),
    Row(Position.EXECUTE, Event.WRITE, Position.EXECUTE, (Guard.TOKEN_LIVE,)),
    Row(Position.EXECUTE, Event.RESULT, Position.EXECUTE, (Guard.TASK_OPEN,)),
    *_observing(Position.EXECUTE, Position.EXECUTE),
    Row(Position.EXECUTE, Event.BELIEF, Position.SETTLE, (Guard.TASKS_CLOSED,)),
    # {S7, S2}: the next packet tells which it was.
    Row(Position.SETTLE, Event.BELIEF, Position.SETTLE),
    *_deciding(Position.SETTLE, start=State.MODEL),
    *_observing(Position.SETTLE, Position.SENSE, start=State.REVIEW),
    *(Row(Position.SETTLE, event, Position.CLOSED, _CLOSING, start=State.REVIEW) for event in CLOSES),
    # S7
    Row(Position.REVIEW, Event.BELIEF, Position.REVIEW),
    *_observing(Position.REVIEW, Position.SENSE),
    *(Row(Position.REVIEW, event, Position.CLOSED, _CLOSING) for event in CLOSES),
    # S8
    Row(Position.ESCALATE_DUE, Event.ESCALATION, Position.ESCALATED),
    Row(Position.ESCALATED, Event.ESCALATION, Position.ESCALATED),
    Row(Position.ESCALATED, Event.USER_INPUT, Position.DECIDE_AFRESH),
    Row(Position.ESCALATED, Event.ANSWER, Position.DECIDE_AFRESH),
    # S9
    Row(Position.SAFEMODE, Event.CLEAR, Position.REVIEW),
    Row(Position.SAFEMODE, Event.BELIEF, Position.SAFEMODE),
    Row(Position.SAFEMODE, Event.OPERATOR_CLOSE, Position.CLOSED, _CLOSING),
    # Everywhere
    *_anywhere(),
    # Made by the machine after a result that shows an overrun: results come in S4 and S6 only.
    *(
        Row(source, event, target)
        for source in (Position.VERIFY, Position.EXECUTE)
        for event, target in (
            (Event.OVERRUN_HALT, Position.SAFEMODE),
            (Event.OVERRUN_ESCALATE, Position.ESCALATE_DUE),
        )
    ),
)

Rows = Mapping[Position, Mapping[Event, Row]]


def rows_under(options: Iterable[Option], rows: Iterable[Row] = TABLE) -> Rows:
    """Return the rows that exist under `options`, by position and event."""
    on = frozenset(options)
    found: dict[Position, dict[Event, Row]] = {position: {} for position in Position}
    for row in rows:
        if row.option is None or row.option in on:
            found[row.source][row.event] = row
    return found


# ------------------------------------------------------------------------------------------------- the table, checked
# Every set of options that an episode can have.
OPTIONS: Final = tuple(
    (profile, *beliefs) for profile in (Option.STRICT, Option.LENIENT) for beliefs in ((), (Option.INITIAL_BELIEFS,))
)


def flaws(rows: Iterable[Row] = TABLE) -> tuple[str, ...]:
    """Return what is wrong with a table, as sentences; none if it is sound under all options."""
    rows = tuple(rows)
    found: dict[str, None] = {}
    for options in OPTIONS:
        known = [row for row in rows if row.option is None or row.option in options]
        for check in (_forks, _vague, _unreachable, _dead_ends, _unstoppable, _escapes):
            found.update(dict.fromkeys(check(known)))
    return tuple(found)


def _forks(rows: list[Row]) -> Iterator[str]:
    """Yield the pairs of a position and an event that have more than one row."""
    pairs = [(row.source, row.event) for row in rows]
    for source, event in sorted({pair for pair in pairs if pairs.count(pair) > 1}):
        yield f"{source}: {event} has more than one row"


def _vague(rows: list[Row]) -> Iterator[str]:
    """Yield where one state and one event lead to several states, other than by the declared set."""
    leads: dict[tuple[State, Event], set[tuple[State, ...]]] = {}
    for row in rows:
        for start in starts_of(row):
            if row.source is not row.target:
                leads.setdefault((start, row.event), set()).add(STATES[row.target])
    for (start, event), targets in sorted(leads.items()):
        if len(targets) > 1:
            yield f"{start}: {event} leads to {len(targets)} states"


def _reached(rows: list[Row], start: Position) -> set[Position]:
    """Return every position that can be reached from `start`, itself included."""
    reached, waiting = {start}, [start]
    while waiting:
        here = waiting.pop()
        new = {row.target for row in rows if row.source is here} - reached
        reached |= new
        waiting.extend(new)
    return reached


def _unreachable(rows: list[Row]) -> Iterator[str]:
    for position in Position:
        if position not in _reached(rows, Position.IDLE):
            yield f"{position}: cannot be reached"


def _dead_ends(rows: list[Row]) -> Iterator[str]:
    for position in Position:
        if Position.CLOSED not in _reached(rows, position):
            yield f"{position}: never leads to the close"


def _unstoppable(rows: list[Row]) -> Iterator[str]:
    """Yield the positions from which an emergency does not lead to S9 at once."""
    for event in EMERGENCIES:
        stopped = {row.source for row in rows if row.event is event and row.target is Position.SAFEMODE}
        for position in Position:
            if position not in stopped and position is not Position.CLOSED:
                yield f"{position}: {event} does not lead to {State.SAFEMODE}"


# What may leave safe mode, and where to.
LEAVING: Final = {Event.CLEAR: Position.REVIEW, Event.OPERATOR_CLOSE: Position.CLOSED}


def _escapes(rows: list[Row]) -> Iterator[str]:
    """Yield what leaves S9 or a closed episode and may not."""
    for row in rows:
        if row.source is Position.SAFEMODE is not row.target and LEAVING.get(row.event) is not row.target:
            yield f"{row.source}: {row.event} must not leave it"
        if row.source is Position.CLOSED:
            yield f"{row.source}: {row.event} must not leave it"
