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

from proctor.episode.episode_state import (
    CHANGES,
    ChangeFunction,
    EpisodeState,
    classify_packet,
    classify_record,
    next_due,
)
from proctor.episode.legal_moves import event_label, rows_for_settings
from proctor.episode.packets.enums import RecordKind, ToolsState
from proctor.episode.packets.fields import Record
from proctor.episode.packets.reader import AnyPacket, Malformed
from proctor.episode.packets.validation import ShapeError
from proctor.episode.rules import NO_FINDINGS, TYPE_POINTER, Findings, Gravity, RuleFinding, RuleFunction, violation
from proctor.episode.rules.catalogue import (
    EPISODE_CLOSED,
    FSM,
    LIMIT_2,
    id_1,
    record_1,
    select_for_illegal_event,
    select_for_legal_event,
)
from proctor.episode.rules.contract import MISFITS, is_late
from proctor.episode.rules.house_rules import find_violations
from proctor.episode.rules.house_rules import next_marks as marked
from proctor.episode.settings import Clock, Limits, OnOverrun, Settings
from proctor.episode.transition_table import (
    DIRECTIVES,
    EMERGENCIES,
    OBSERVATIONS,
    RECORDS,
    STATES,
    Event,
    Position,
    ProtocolState,
    TransitionRow,
    starting_states,
    visible_state,
)
from proctor.episode.verdicts import JudgingContext, SyntheticTransition, Verdict

# What makes an episode hold more than packets.
CROWDING: Final = (*DIRECTIVES, Event.TOKEN)
# What later packets may name as evidence.
EVIDENCE: Final = frozenset({*OBSERVATIONS, Event.RESULT})
_OVERRUN: Final = {OnOverrun.SAFEMODE: Event.OVERRUN_HALT, OnOverrun.ESCALATE: Event.OVERRUN_ESCALATE}
CLOSED: Final = violation(EPISODE_CLOSED.id, "", "the episode is closed")
# Looked up here once: a member of an enum costs more than a rule where it is asked for by every packet.
_RESULT: Final = Event.RESULT
_TOOLS_OK: Final = ToolsState.OK


class PreparedRow(NamedTuple):
    """A row, made ready: what is asked, what changes, and the path, unless it depends on the results."""

    row: TransitionRow
    path: tuple[ProtocolState, ...] | None
    asked: tuple[RuleFunction, ...]
    asked_of_remarkable: tuple[RuleFunction, ...]
    change: ChangeFunction
    # Whether the episode holds more after it than packets alone.
    crowds: bool


@cache
def prepare_rows(settings: Settings) -> Mapping[Position, Mapping[Event, PreparedRow]]:
    """Return the rows that exist under `settings`, made ready."""
    prepared: dict[Position, dict[Event, PreparedRow]] = {position: {} for position in Position}
    for position, rows in rows_for_settings(settings).items():
        for event, row in rows.items():
            settled = len(STATES[row.source]) == len(STATES[row.target]) == 1
            path = (STATES[row.source][0], *row.through, STATES[row.target][0]) if settled else None
            asked, more = (select_for_legal_event(position, event, remarkable=each) for each in (False, True))
            prepared[position][event] = PreparedRow(row, path, asked, more, CHANGES[event], event in CROWDING)
    return prepared


class Machine:
    """Judges the packets of episodes that share their settings, the user's own rules and the limits."""

    __slots__ = ("_limits", "_routes", "_settings", "context", "timed")

    def __init__(self, context: JudgingContext, limits: Limits) -> None:
        self.context: Final = context
        # Whether the caller's clock is asked.
        self.timed: Final = context.settings.clock is Clock.WALL
        self._settings: Final = context.settings
        self._limits: Final = limits
        self._routes: Final = prepare_rows(context.settings)

    def judge(self, episode: EpisodeState, packet: AnyPacket, wall: datetime | None = None) -> Verdict:
        """Return the verdict on `packet` arriving in `episode`; `wall` is the time if the clock is the caller's."""
        header = packet.header
        event = classify_packet(packet)
        now = header.created_at if wall is None else wall
        if now < episode.clock:
            now = episode.clock
        route = self._routes[episode.position].get(event)
        if route is None:
            return self._refuse_without_row(episode, packet, event, now)
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
        found: Findings = NO_FINDINGS
        for ask in more if remarkable else asked:
            said = ask(episode, packet, now, self._settings)
            if said:
                found += said
        if crowds or episode.packets >= self._limits.packets:
            found += self._check_limits(episode, event, packet)
        if episode.marks:
            found += self._check_house_rules(episode, event)
        warnings: Findings = NO_FINDINGS
        if found:
            errors, warnings = _split_by_gravity(found, event)
            if errors:
                return self.refuse(episode, event, header.packet_id, errors, warnings)
        after = self._next_state(episode, packet, row, change, now)
        path = path or path_through(row, episode, after)
        synthetic = self._check_overrun(after, now) if event is _RESULT else ()
        if synthetic:
            route = self._routes[after.position][synthetic[0].event]
            after = replace(after, position=route.row.target, **route.change(after, None, now))
            path += (after.state,)
        return Verdict(
            True,
            episode.correlation_id,
            header.packet_id,
            event,
            path,
            NO_FINDINGS,
            warnings,
            episode,
            after,
            self.context,
            synthetic,
        )

    def _refuse_without_row(self, episode: EpisodeState, packet: AnyPacket, event: Event, now: datetime) -> Verdict:
        """Return the refusal of a packet, with all that it breaks besides."""
        if episode.position is Position.CLOSED:
            return self.refuse(episode, event, packet.header.packet_id, CLOSED)
        found = self._explain_missing_row(episode, event)
        for ask in select_for_illegal_event(episode.position, event):
            found += ask(episode, packet, now, self._settings)
        found += self._check_limits(episode, event, packet)
        errors, warnings = _split_by_gravity(found + self._check_house_rules(episode, event), event)
        return self.refuse(episode, event, packet.header.packet_id, errors, warnings)

    def judge_record(
        self, episode: EpisodeState, record: Record, *, known: bool, wall: datetime | None = None
    ) -> Verdict:
        """Return the verdict on `record`; `known` is whether the episode was there before."""
        if record.record is RecordKind.OPEN:
            if known:
                return self.refuse(episode, None, None, violation(record_1.id, "/record", "the episode exists already"))
            after = replace(episode, clock=record.at if wall is None else wall)
            return self._accept(episode, after, None, (ProtocolState.IDLE,), NO_FINDINGS)
        event = classify_record(record)
        if episode.position is Position.CLOSED:
            return self.refuse(episode, event, None, CLOSED)
        now = max(episode.clock, record.at if wall is None else wall)
        route = self._routes[episode.position].get(event)
        found = NO_FINDINGS if route is not None else self._explain_missing_row(episode, event)
        for ask in select_for_illegal_event(episode.position, event):
            found += ask(episode, record, now, self._settings)
        errors, warnings = _split_by_gravity(found + self._check_house_rules(episode, event), event)
        if errors or route is None:
            return self.refuse(episode, event, None, errors, warnings)
        after = replace(
            episode,
            position=route.row.target,
            clock=now,
            marks=marked(self.context.house_rules, episode.marks, event),
            **route.change(episode, record, now),
        )
        return self._accept(episode, after, event, path_through(route.row, episode, after), warnings)

    def judge_unreadable(self, episode: EpisodeState, line: Malformed) -> Verdict:
        """Return the verdict on a line that says which episode it belongs to, and cannot be read otherwise."""
        return self.refuse(episode, None, line.packet_id, findings_from_errors(line.errors))

    def _explain_missing_row(self, episode: EpisodeState, event: Event) -> Findings:
        where = {position: routes[event].row for position, routes in self._routes.items() if event in routes}
        states = dict.fromkeys(state for row in where.values() for state in starting_states(row))
        legal = f"it is legal in {', '.join(states)}" if states else "it is legal nowhere"
        if episode.state in states:
            legal = f"it is legal only where this is pending: {', '.join(where)}"
        reason = f"{event_label(event)} is not legal in {episode.state} ({episode.position}); {legal}"
        return violation(FSM.id, "/record" if event in RECORDS else TYPE_POINTER, reason)

    def _check_limits(self, episode: EpisodeState, event: Event, packet: AnyPacket) -> Findings:
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
            return NO_FINDINGS
        return violation(LIMIT_2.id, "", "the episode holds as many packets, open tasks or tokens as it may")

    def _check_house_rules(self, episode: EpisodeState, event: Event) -> Findings:
        return tuple(
            RuleFinding(rule.id, "", reason, Gravity(rule.level))
            for rule, reason in find_violations(self.context.house_rules, episode.marks, event)
        )

    def _next_state(
        self, episode: EpisodeState, packet: AnyPacket, row: TransitionRow, change: ChangeFunction, now: datetime
    ) -> EpisodeState:
        changes = change(episode, packet, now)
        if now > episode.due:
            tasks = {
                name: replace(
                    task,
                    overdue=task.overdue or now > task.deadline,
                    late=task.late or (task.timeout is not None and now > task.timeout),
                )
                for name, task in changes.get("tasks", episode.tasks).items()
            }
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

    def _check_overrun(self, after: EpisodeState, now: datetime) -> tuple[SyntheticTransition, ...]:
        excess = after.spent.beyond(after.allowance)
        if excess is None:
            return ()
        event = _OVERRUN[self._settings.on_overrun]
        target = self._routes[after.position][event].row.target
        path = (after.state, visible_state(target, succeeded=after.succeeded))
        return (SyntheticTransition(event, path, "INV-005", f"the budget is overrun: {excess}", now),)

    def _accept(
        self,
        before: EpisodeState,
        after: EpisodeState,
        event: Event | None,
        path: tuple[ProtocolState, ...],
        warnings: Findings,
    ) -> Verdict:
        return Verdict(
            True, before.correlation_id, None, event, path, NO_FINDINGS, warnings, before, after, self.context
        )

    def refuse(
        self,
        episode: EpisodeState,
        event: Event | None,
        packet_id: str | None,
        errors: Findings,
        warnings: Findings = NO_FINDINGS,
    ) -> Verdict:
        """Return the refusal of a line; nothing moves."""
        path = (episode.state,)
        return Verdict(
            False, episode.correlation_id, packet_id, event, path, errors, warnings, episode, episode, self.context
        )


def path_through(row: TransitionRow, before: EpisodeState, after: EpisodeState) -> tuple[ProtocolState, ...]:
    """Return the states that a row leads through, the first and the last included."""
    start = before.state if row.start is None else row.start
    return (start, *row.through, after.state)


def findings_from_errors(errors: tuple[ShapeError, ...]) -> Findings:
    """Return the findings of a malformed line: one for each error and rule."""
    return tuple(RuleFinding(rule, error.pointer, error.reason) for error in errors for rule in error.rules)


def _split_by_gravity(found: Findings, event: Event) -> tuple[Findings, Findings]:
    """Return the errors and the warnings; nothing but a name that is taken holds up an emergency."""
    if event in EMERGENCIES:
        found = tuple(one if one.rule == id_1.id else replace(one, gravity=Gravity.WARNING) for one in found)
    errors = tuple(one for one in found if one.gravity is Gravity.ERROR)
    return errors, tuple(one for one in found if one.gravity is Gravity.WARNING)
