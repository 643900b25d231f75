"""What is legal now, and the shortest legal way to what is not: read off the table and its guards.

Rule 1: a way is searched over imagined episodes, in which every packet says just what it must. What a packet's content
    can get wrong besides is not the table's business.
Rule 2: a guard of the table is a question to the history of an episode; `GUARD_CHECKS` answers for every guard. What is legal next
    is read off the guards; a packet is judged by the rules, which also see its content. That both say the same is shown by a
    walk through every state, event and value of the guards.
"""

from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Final

from msgspec.structs import replace

from proctor.episode.episode_state import END, EpisodeState, IssuedToken, OpenTask, Verification
from proctor.episode.settings import Profile, Settings
from proctor.episode.transition_table import (
    CLOSES,
    DECISIONS,
    EVENTS,
    Event,
    Guard,
    Position,
    TransitionRow,
    TransitionsByPosition,
    rows_for_options,
)

# Under a profile that does not require the plan, VERIFIED is asked with `plan=False`.
GUARD_CHECKS: Final[dict[Guard, Callable[[EpisodeState, bool], bool]]] = {
    Guard.PLANNED: lambda episode, plan: episode.has_plan,
    Guard.VERIFIED: lambda episode, plan: not episode.missing_verification_steps(plan=plan),
    Guard.UNBEGUN: lambda episode, plan: episode.is_verification_unbegun,
    Guard.TASK_OPEN: lambda episode, plan: bool(episode.tasks),
    Guard.TASKS_CLOSED: lambda episode, plan: not episode.tasks,
    Guard.TOKEN_KNOWN: lambda episode, plan: bool(episode.tokens),
    Guard.TOKEN_LIVE: lambda episode, plan: episode.has_live_token,
    Guard.LOOP_CLOSED: lambda episode, plan: episode.loop is None,
}
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

_SHORT: Final = {Event.OBSERVATION: "ObservationPacket", Event.ALERT: "IntegrityAlertPacket", Event.CLOSE: "close"}


@cache
def rows_for_settings(settings: Settings) -> TransitionsByPosition:
    """Return the rows that exist under `settings`."""
    return rows_for_options(settings.options)


def event_label(event: Event) -> str:
    """Return the name of `event` as people read it."""
    return _SHORT.get(event, event.value)


def is_open(row: TransitionRow, episode: EpisodeState, settings: Settings) -> bool:
    """Return whether every guard of `row` holds in `episode`."""
    plan = settings.profile is Profile.STRICT
    return all(GUARD_CHECKS[guard](episode, plan) for guard in row.guards)


def legal_next(episode: EpisodeState, settings: Settings) -> tuple[str, ...]:
    """Return what is legal now; a kind whose every variant is legal goes by its bare name."""
    plan = settings.profile is Profile.STRICT
    held = tuple(guard for guard in _guards_at(settings, episode.position) if GUARD_CHECKS[guard](episode, plan))
    return _legal_labels(settings, episode.position, held)


@cache
def _guards_at(settings: Settings, position: Position) -> tuple[Guard, ...]:
    return tuple(dict.fromkeys(guard for row in rows_for_settings(settings)[position].values() for guard in row.guards))


@cache
def _legal_labels(settings: Settings, position: Position, held: tuple[Guard, ...]) -> tuple[str, ...]:
    """Return the labels of the rows of `position` that are open while only the guards in `held` hold."""
    rows = rows_for_settings(settings)[position]
    legal = {event for event, row in rows.items() if set(row.guards) <= set(held)}
    labels: list[str] = []
    for kind, events in EVENTS.items():
        found = [event for event in events if event in legal]
        # The bare name of a token means that it is issued, so its revocation has its own.
        if len(found) == len(events) > 1 and Event.TOKEN not in found:
            labels.append(kind.value)
        else:
            labels += map(event_label, found)
    closes = [event for event in CLOSES if event in legal]
    return (*labels, *map(event_label, closes[:1]), *([event_label(Event.ANSWER)] if Event.ANSWER in legal else ()))


def shortest_way(episode: EpisodeState, settings: Settings, wanted: Event) -> tuple[str, ...]:
    """Return the fewest packets by which `wanted` becomes legal, itself last; empty if nothing leads there."""
    rows = rows_for_settings(settings)
    waiting: deque[tuple[EpisodeState, tuple[Event, ...]]] = deque([(episode, ())])
    met = {_search_key(episode)}
    while waiting:
        here, way = waiting.popleft()
        row = rows[here.position].get(wanted)
        if row is not None and is_open(row, here, settings):
            return tuple(map(event_label, (*way, wanted)))
        also = ALSO_PROPOSED.get(here.position)
        for event in PROPOSED if also is None else (also, *PROPOSED):
            row = rows[here.position].get(event)
            if row is None or not is_open(row, here, settings):
                continue
            there = _simulate_step(here, row)
            outline = _search_key(there)
            if outline not in met:
                met.add(outline)
                waiting.append((there, (*way, event)))
    return ()


def _search_key(episode: EpisodeState) -> tuple[object, ...]:
    """Return what steps on a way can change of all that guards ask about."""
    return episode.position, episode.loop, bool(episode.tasks), episode.has_live_token


def _simulate_step(episode: EpisodeState, row: TransitionRow) -> EpisodeState:
    event = row.event
    tasks, tokens = episode.tasks, episode.tokens
    if event is Event.READ or event is Event.WRITE:
        tasks = {"": OpenTask("", "", False, END)}
    elif event is Event.RESULT:
        tasks = {}
    elif event is Event.TOKEN:
        tokens = {"": IssuedToken("", (), (), END, 1, 0, False, "")}
    return replace(
        episode, position=row.target, tasks=tasks, tokens=tokens, loop=_simulate_verification(episode, event)
    )


def _simulate_verification(episode: EpisodeState, event: Event) -> Verification | None:
    loop = episode.loop
    if event is Event.VERIFY_FIRST:
        return Verification(0)
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
