"""The verdict on one packet: is there a row, does every rule hold, and what would the episode be then?

Rule 1: nothing here changes anything: a verdict carries the episode after it, and whoever keeps episodes commits it.
Rule 2: all checks come first; the next episode is made at once and as a whole.
Rule 3: a refusal names everything that was broken, the table first.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Final, NamedTuple

from msgspec.structs import replace

from proctor.episode.changes import CHANGES, Changing, next_due
from proctor.episode.conditions import ShapeError
from proctor.episode.events import event_of, event_of_record
from proctor.episode.history import Episode, Task
from proctor.episode.house_rules import after as marked
from proctor.episode.house_rules import broken
from proctor.episode.invariants import MISFITS, is_late
from proctor.episode.kinds import RecordKind, ToolsState
from proctor.episode.packets import AnyPacket, Malformed
from proctor.episode.records import Record
from proctor.episode.rulebook import Finding, Findings, Gravity, Judging
from proctor.episode.rules import EPISODE_CLOSED, FSM, LIMIT_2, asked_of_legal, asked_of_refused, id_1, record_1
from proctor.episode.settings import Clock, Limits, OnOverrun, Settings
from proctor.episode.states import DIRECTIVES, EMERGENCIES, OBSERVATIONS, RECORDS, STATES, Event, Position, State, shown
from proctor.episode.table import Row, starts_of
from proctor.episode.verdicts import Context, Synthetic, Verdict
from proctor.episode.ways import label_of, rows_for

# What makes an episode hold more than packets.
CROWDING: Final = (*DIRECTIVES, Event.TOKEN)
# What later packets may name as evidence.
EVIDENCE: Final = frozenset({*OBSERVATIONS, Event.RESULT})
_OVERRUN: Final = {OnOverrun.SAFEMODE: Event.OVERRUN_HALT, OnOverrun.ESCALATE: Event.OVERRUN_ESCALATE}
_NONE: Final[Findings] = ()
CLOSED: Final[Findings] = (Finding(EPISODE_CLOSED.id, "", "the episode is closed"),)
# Looked up here once: a member of an enum costs more than a rule where it is asked for by every packet.
_RESULT: Final = Event.RESULT
_TOOLS_OK: Final = ToolsState.OK


class Route(NamedTuple):
    """A row, made ready: what is asked, what changes, and the path, unless it depends on the results."""

    row: Row
    path: tuple[State, ...] | None
    asked: tuple[Judging, ...]
    asked_of_remarkable: tuple[Judging, ...]
    change: Changing
    # Whether the episode holds more after it than packets alone.
    crowds: bool


@cache
def routes_for(settings: Settings) -> Mapping[Position, Mapping[Event, Route]]:
    """Return the rows that exist under `settings`, made ready."""
    rows = rows_for(settings)
    return {position: {event: _route(row) for event, row in rows[position].items()} for position in Position}


def _route(row: Row) -> Route:
    settled = len(STATES[row.source]) == len(STATES[row.target]) == 1
    path = (STATES[row.source][0], *row.through, STATES[row.target][0]) if settled else None
    asked, more = (asked_of_legal(row.source, row.event, remarkable=remarkable) for remarkable in (False, True))
    return Route(row, path, asked, more, CHANGES[row.event], row.event in CROWDING)


class Machine:
    """Judges the packets of episodes that share their settings, the user's own rules and the limits."""

    __slots__ = ("_limits", "_routes", "_settings", "context", "timed")

    def __init__(self, context: Context, limits: Limits) -> None:
        self.context: Final = context
        # Whether the caller's clock is asked.
        self.timed: Final = context.settings.clock is Clock.WALL
        self._settings: Final = context.settings
        self._limits: Final = limits
        self._routes: Final = routes_for(context.settings)

    def judge(self, episode: Episode, packet: AnyPacket, wall: datetime | None = None) -> Verdict:
        """Return the verdict on `packet` arriving in `episode`; `wall` is the time if the clock is the caller's."""
        header = packet.header
        event = event_of(packet)
        now = header.created_at if wall is None else wall
        if now < episode.clock:
            now = episode.clock
        route = self._routes[episode.position].get(event)
        if route is None:
            return self._no_route(episode, packet, event, now)
        row, path, asked, more, change, crowds = route
        # Whether a rule about what seldom happens could be broken: ID-1, ID-2, TIME-1, INV-011, INV-012.
        remarkable = (
            header.packet_id in episode.seen
            or (header.previous_packet_id is not None and header.previous_packet_id not in episode.seen)
            or header.created_at < episode.clock
            or now > episode.due
            or (event is _RESULT and is_late(episode, packet, now))
            or packet.compliance.stakes in MISFITS
        )
        found: Findings = _NONE
        for ask in more if remarkable else asked:
            said = ask(episode, packet, now, self._settings)
            if said:
                found += said
        if crowds or episode.packets >= self._limits.packets:
            found += self._limited(episode, event, packet)
        if episode.marks:
            found += self._house(episode, event)
        warnings: Findings = _NONE
        if found:
            errors, warnings = _parted(found, event)
            if errors:
                return self._refused(episode, event, header.packet_id, errors, warnings)
        after = self._after(episode, packet, row, change, now)
        path = path or path_of(row, episode, after)
        synthetic = self._overrun(after, now) if event is _RESULT else ()
        if synthetic:
            after = self._carried(after, synthetic[0])
            path += (after.state,)
        return Verdict(
            True,
            episode.correlation_id,
            header.packet_id,
            event,
            path,
            _NONE,
            warnings,
            episode,
            after,
            self.context,
            synthetic,
        )

    def _no_route(self, episode: Episode, packet: AnyPacket, event: Event, now: datetime) -> Verdict:
        """Return the refusal of a packet that the table has no row for, with all that it breaks besides."""
        if episode.position is Position.CLOSED:
            return self._refused(episode, event, packet.header.packet_id, CLOSED)
        found = self._no_row(episode, event)
        for ask in asked_of_refused(episode.position, event):
            found += ask(episode, packet, now, self._settings)
        found += self._limited(episode, event, packet)
        return self._refused(
            episode, event, packet.header.packet_id, *_parted(found + self._house(episode, event), event)
        )

    def judge_record(self, episode: Episode, record: Record, *, known: bool, wall: datetime | None = None) -> Verdict:
        """Return the verdict on `record`; `known` is whether the episode was there before."""
        if record.record is RecordKind.OPEN:
            return self._opened(episode, record.at if wall is None else wall, known=known)
        event = event_of_record(record)
        if episode.position is Position.CLOSED:
            return self._refused(episode, event, None, CLOSED)
        now = max(episode.clock, record.at if wall is None else wall)
        route = self._routes[episode.position].get(event)
        found = _NONE if route is not None else self._no_row(episode, event)
        for ask in asked_of_refused(episode.position, event):
            found += ask(episode, record, now, self._settings)
        errors, warnings = _parted(found + self._house(episode, event), event)
        if errors or route is None:
            return self._refused(episode, event, None, errors, warnings)
        after = replace(
            episode,
            position=route.row.target,
            clock=now,
            marks=marked(self.context.house_rules, episode.marks, event),
            **route.change(episode, record, now),
        )
        return self._accepted(episode, after, event, path_of(route.row, episode, after), warnings)

    def malformed(self, episode: Episode, line: Malformed) -> Verdict:
        """Return the verdict on a line that says which episode it belongs to, and cannot be read otherwise."""
        return self._refused(episode, None, line.packet_id, findings_of(line.errors))

    def _opened(self, episode: Episode, now: datetime, *, known: bool) -> Verdict:
        if known:
            return self._refused(episode, None, None, (Finding(record_1.id, "/record", "the episode exists already"),))
        after = replace(episode, clock=now)
        return self._accepted(episode, after, None, (State.IDLE,), _NONE)

    def _no_row(self, episode: Episode, event: Event) -> Findings:
        """Return the finding that the table has no row, with the hint where the event would be legal."""
        where = {position: routes[event].row for position, routes in self._routes.items() if event in routes}
        states = dict.fromkeys(state for row in where.values() for state in starts_of(row))
        legal = f"it is legal in {', '.join(states)}" if states else "it is legal nowhere"
        if episode.state in states:
            legal = f"it is legal only where this is pending: {', '.join(where)}"
        reason = f"{label_of(event)} is not legal in {episode.state} ({episode.position}); {legal}"
        return (Finding(FSM.id, "/record" if event in RECORDS else "/header/packet_type", reason),)

    def _limited(self, episode: Episode, event: Event, packet: AnyPacket) -> Findings:
        """Return the refusal of a packet for which there is no room."""
        limits = self._limits
        full = (
            episode.packets >= limits.packets
            or (len(episode.tasks) >= limits.open_tasks and event in DIRECTIVES)
            or (
                len(episode.tokens) >= limits.tokens
                and event is Event.TOKEN
                and packet.payload.token_id not in episode.tokens
            )
        )
        if not full:
            return _NONE
        return (Finding(LIMIT_2.id, "", "the episode holds as many packets, open tasks or tokens as it may"),)

    def _house(self, episode: Episode, event: Event) -> Findings:
        """Return which of the user's own rules `event` breaks."""
        return tuple(
            Finding(rule.id, "", reason, Gravity(rule.level))
            for rule, reason in broken(self.context.house_rules, episode.marks, event)
        )

    def _after(self, episode: Episode, packet: AnyPacket, row: Row, change: Changing, now: datetime) -> Episode:
        """Return the episode after `packet`, which was accepted."""
        changes = change(episode, packet, now)
        if now > episode.due:
            tasks = _told(changes.get("tasks", episode.tasks), now)
            changes = {**changes, "tasks": tasks, "due": next_due(tasks)}
        if episode.marks:
            changes = {**changes, "marks": marked(self.context.house_rules, episode.marks, row.event)}
        return replace(
            episode,
            position=row.target,
            clock=now,
            packets=episode.packets + 1,
            tools_ok=packet.compliance.routing.tools_state is _TOOLS_OK,
            **changes,
        )

    def _overrun(self, after: Episode, now: datetime) -> tuple[Synthetic, ...]:
        """Return the transition that a result asks for, if more was spent than may be."""
        excess = after.spent.beyond(after.allowance)
        if excess is None:
            return ()
        event = _OVERRUN[self._settings.on_overrun]
        target = self._routes[after.position][event].row.target
        path = (after.state, shown(target, succeeded=after.succeeded))
        return (Synthetic(event, path, "INV-005", f"the budget is overrun: {excess}", now),)

    def _carried(self, after: Episode, synthetic: Synthetic) -> Episode:
        """Return the episode after the machine's own transition."""
        route = self._routes[after.position][synthetic.event]
        return replace(after, position=route.row.target, **route.change(after, None, synthetic.at))

    def _accepted(
        self, before: Episode, after: Episode, event: Event | None, path: tuple[State, ...], warnings: Findings
    ) -> Verdict:
        return Verdict(True, before.correlation_id, None, event, path, _NONE, warnings, before, after, self.context)

    def _refused(
        self,
        episode: Episode,
        event: Event | None,
        packet_id: str | None,
        errors: Findings,
        warnings: Findings = _NONE,
    ) -> Verdict:
        path = (episode.state,)
        return Verdict(
            False, episode.correlation_id, packet_id, event, path, errors, warnings, episode, episode, self.context
        )


def path_of(row: Row, before: Episode, after: Episode) -> tuple[State, ...]:
    """Return the states that a row leads through, the first and the last included."""
    start = before.state if row.start is None else row.start
    return (start, *row.through, after.state)


def findings_of(errors: tuple[ShapeError, ...]) -> Findings:
    """Return the findings of a malformed line: one for each error and rule."""
    return tuple(Finding(rule, error.pointer, error.reason) for error in errors for rule in error.rules)


def _parted(found: Findings, event: Event) -> tuple[Findings, Findings]:
    """Return the errors and the warnings; nothing but a name that is taken holds up an emergency."""
    if event in EMERGENCIES:
        found = tuple(one if one.rule == id_1.id else replace(one, gravity=Gravity.WARNING) for one in found)
    errors = tuple(one for one in found if one.gravity is Gravity.ERROR)
    return errors, tuple(one for one in found if one.gravity is Gravity.WARNING)


def _told(tasks: dict[str, Task], now: datetime) -> dict[str, Task]:
    """Return the tasks with the warnings marked that are given at `now`."""
    return {
        name: replace(
            task,
            overdue=task.overdue or now > task.deadline,
            late=task.late or (task.timeout is not None and now > task.timeout),
        )
        for name, task in tasks.items()
    }
