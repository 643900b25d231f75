"""What is legal now, and the shortest legal way to what is not: read off the table.

Rule 1: a way is searched over imagined episodes, in which every packet says just what it must. What a packet's content
    can get wrong besides is not the table's business.
"""

from collections import deque
from collections.abc import Iterator
from functools import cache
from typing import Final

from msgspec.structs import replace

from proctor.episode.guards import HOLDS, any_live
from proctor.episode.history import END, Episode, Loop, Permit, Task
from proctor.episode.settings import Profile, Settings
from proctor.episode.states import CLOSES, DECISIONS, EVENTS, Event, Position
from proctor.episode.table import Guard, Row, Rows, rows_under

# What is proposed as a step on the way: the plain course of an episode, without alerts and without closing it.
PROPOSED: Final = (
    Event.OBSERVATION,
    Event.BELIEF,
    *DECISIONS,
    Event.PLAN,
    Event.TOKEN,
    Event.READ,
    Event.WRITE,
    Event.RESULT,
    Event.ESCALATION,
)
# Where only something else leads on.
ALSO_PROPOSED: Final = {Position.ESCALATED: Event.USER_INPUT, Position.SAFEMODE: Event.CLEAR}

_TASK: Final = Task("", "", False, END)
_TOKEN: Final = Permit("", (), (), END, 1, 0, False, "")
_SHORT: Final = {
    Event.OBSERVATION: "ObservationPacket",
    Event.ALERT: "IntegrityAlertPacket",
    Event.CLOSE: "close",
}


@cache
def rows_for(settings: Settings) -> Rows:
    """Return the rows that exist under `settings`."""
    return rows_under(settings.options)


def label_of(event: Event) -> str:
    """Return the name of `event` as people read it."""
    return _SHORT.get(event, event.value)


def is_open(row: Row, episode: Episode, settings: Settings) -> bool:
    """Return whether every guard of `row` holds in `episode`."""
    plan = settings.profile is Profile.STRICT
    return all(HOLDS[guard](episode, plan) for guard in row.guards)


def legal_next(episode: Episode, settings: Settings) -> tuple[str, ...]:
    """Return what is legal now; a kind whose every variant is legal goes by its bare name."""
    plan = settings.profile is Profile.STRICT
    asked = _guards_at(settings, episode.position)
    return _legal(settings, episode.position, tuple(guard for guard in asked if HOLDS[guard](episode, plan)))


@cache
def _guards_at(settings: Settings, position: Position) -> tuple[Guard, ...]:
    """Return every guard that a row of `position` has."""
    return tuple(dict.fromkeys(guard for row in rows_for(settings)[position].values() for guard in row.guards))


@cache
def _legal(settings: Settings, position: Position, held: tuple[Guard, ...]) -> tuple[str, ...]:
    """Return the labels of the rows of `position` that are open while only the guards in `held` hold."""
    rows = rows_for(settings)[position]
    return tuple(_labels({event for event, row in rows.items() if set(row.guards) <= set(held)}))


def _labels(legal: set[Event]) -> Iterator[str]:
    """Yield the labels of events; the bare name of a token means that it is issued, so its revocation has its own."""
    for kind, events in EVENTS.items():
        found = [event for event in events if event in legal]
        if len(found) == len(events) > 1 and Event.TOKEN not in found:
            yield kind.value
        else:
            yield from map(label_of, found)
    closes = [event for event in CLOSES if event in legal]
    if closes:
        yield label_of(closes[0])
    if Event.ANSWER in legal:
        yield label_of(Event.ANSWER)


def shortest_way(episode: Episode, settings: Settings, wanted: Event) -> tuple[str, ...]:
    """Return the fewest packets by which `wanted` becomes legal, itself last; empty if nothing leads there."""
    rows = rows_for(settings)
    waiting: deque[tuple[Episode, tuple[Event, ...]]] = deque([(episode, ())])
    met = {_outline(episode)}
    while waiting:
        here, way = waiting.popleft()
        row = rows[here.position].get(wanted)
        if row is not None and is_open(row, here, settings):
            return tuple(map(label_of, (*way, wanted)))
        for event, there in _steps(here, rows, settings):
            outline = _outline(there)
            if outline not in met:
                met.add(outline)
                waiting.append((there, (*way, event)))
    return ()


def _steps(episode: Episode, rows: Rows, settings: Settings) -> Iterator[tuple[Event, Episode]]:
    """Yield every proposed step from `episode`, with the episode that it would lead to."""
    also = ALSO_PROPOSED.get(episode.position)
    for event in PROPOSED if also is None else (also, *PROPOSED):
        row = rows[episode.position].get(event)
        if row is not None and is_open(row, episode, settings):
            yield event, _imagined(episode, row)


def _outline(episode: Episode) -> tuple[object, ...]:
    """Return what steps on a way can change of all that guards ask about."""
    return episode.position, episode.loop, bool(episode.tasks), any_live(episode, episode.clock)


def _imagined(episode: Episode, row: Row) -> Episode:
    """Return the episode after the best packet of the row's event."""
    event = row.event
    tasks, tokens = episode.tasks, episode.tokens
    if event is Event.READ or event is Event.WRITE:
        tasks = {"": _TASK}
    elif event is Event.RESULT:
        tasks = {}
    elif event is Event.TOKEN:
        tokens = {"": _TOKEN}
    return replace(episode, position=row.target, tasks=tasks, tokens=tokens, loop=_loop(episode, event))


def _loop(episode: Episode, event: Event) -> Loop | None:
    """Return the verification after the best packet of `event`."""
    loop = episode.loop
    if event is Event.VERIFY_FIRST:
        return Loop(0)
    if loop is None or event in DECISIONS:
        return None
    if episode.position is not Position.VERIFY:
        return loop
    marked = {
        Event.PLAN: {"planned": True},
        Event.READ: {"read": True},
        Event.RESULT: {"succeeded": True},
        Event.OBSERVATION: {"observed": True},
        Event.BELIEF: {"integrated": True},
    }
    return replace(loop, begun=True, **marked.get(event, {}))
