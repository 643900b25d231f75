"""What an accepted packet changes: for every event the fields of the episode that become others.

Rule 1: nothing here refuses; whoever comes here was accepted.
Rule 2: position, clock and the packet's number change with every packet (`machine.py`); here is the rest.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TypeAlias

from msgspec.structs import replace

from proctor.episode.history import (
    END,
    NOTHING,
    Amounts,
    Episode,
    Governing,
    Loop,
    Permit,
    Task,
    budget_of,
    digest_of,
    later,
)
from proctor.episode.kinds import EpistemicStatus, Method, ResultStatus
from proctor.episode.packets import AnyPacket, Packet
from proctor.episode.payloads import Alert, BeliefUpdate, Decision, Directive, Observation, Result, Token
from proctor.episode.records import Approval, Record
from proctor.episode.states import DECISIONS, Event, Position

Changes: TypeAlias = dict[str, Any]
Changing: TypeAlias = Callable[[Episode, Any, datetime], Changes]

UNCHANGED: Final[Changes] = {}
# Looked up here once: every packet asks for them.
_VERIFY: Final = Position.VERIFY
_EXECUTE: Final = Position.EXECUTE
_ESCALATED: Final = Position.ESCALATED
_OBSERVED: Final = EpistemicStatus.OBSERVED
_SUCCESS: Final = ResultStatus.SUCCESS
_TOOL: Final = Method.TOOL


def _nothing(episode: Episode, packet: AnyPacket, now: datetime) -> Changes:
    return UNCHANGED


def _observed(episode: Episode, packet: Packet[Observation], now: datetime) -> Changes:
    if episode.position is not _VERIFY or episode.loop is None:
        return UNCHANGED
    seen = packet.compliance.epistemics.status is _OBSERVED
    return {"loop": replace(episode.loop, begun=True, observed=episode.loop.observed or seen)}


def _answered(episode: Episode, packet: AnyPacket | Record, now: datetime) -> Changes:
    """A human's answer forgives what was spent; elsewhere user input is an observation like others."""
    if episode.position is _ESCALATED:
        return {"spent": NOTHING}
    return UNCHANGED if isinstance(packet, Record) else _observed(episode, packet, now)


def _believed(episode: Episode, packet: Packet[BeliefUpdate], now: datetime) -> Changes:
    if episode.position is _VERIFY and episode.loop is not None:
        return {"believed": True, "loop": replace(episode.loop, integrated=True)}
    return UNCHANGED if episode.believed else {"believed": True}


def _decided(episode: Episode, packet: Packet[Decision], now: datetime) -> Changes:
    return {"governing": Governing(packet.payload.decision_outcome, budget_of(packet)), "loop": None}


def _verifying(episode: Episode, packet: Packet[Decision], now: datetime) -> Changes:
    return {**_decided(episode, packet, now), "loop": Loop(began=episode.packets + 1)}


def _planned(episode: Episode, packet: AnyPacket, now: datetime) -> Changes:
    return UNCHANGED if episode.loop is None else {"loop": replace(episode.loop, begun=True, planned=True)}


def _issued(episode: Episode, packet: Packet[Token], now: datetime) -> Changes:
    payload = packet.payload
    begun = UNCHANGED if episode.loop is None else {"loop": replace(episode.loop, begun=True)}
    if payload.token_id in episode.tokens:
        return begun
    permit = Permit(
        payload.token_id,
        tuple(payload.authorized_scope.tool_ids),
        tuple(payload.authorized_scope.operation_types),
        payload.expiry,
        payload.max_usage_count,
        payload.usage_count,
        False,
        digest_of(payload),
    )
    return {**begun, "tokens": {**episode.tokens, payload.token_id: permit}}


def _revoked(episode: Episode, packet: Packet[Token], now: datetime) -> Changes:
    return {"tokens": _revoking(episode, (packet.payload.token_id,))}


def _alerted(episode: Episode, packet: Packet[Alert], now: datetime) -> Changes:
    named = packet.payload.revoked_token_ids
    return {"tokens": _revoking(episode, named)} if named else UNCHANGED


def _revoking(episode: Episode, named: Any) -> dict[str, Permit]:
    """Return the tokens with those that are named revoked; a name that nobody has is passed over."""
    revoked = {name: replace(episode.tokens[name], revoked=True) for name in named if name in episode.tokens}
    return {**episode.tokens, **revoked}


def _directed(episode: Episode, packet: Packet[Directive], now: datetime) -> Changes:
    payload = packet.payload
    wait = payload.timeout_seconds
    task = Task(
        packet.header.packet_id,
        payload.task_id,
        payload.execution_method.method is _TOOL,
        later(now, packet.compliance.budgets.time_budget_seconds),
        None if wait is None else later(now, wait),
    )
    changes: Changes = {"tasks": {**episode.tasks, task.packet_id: task}, "due": min(episode.due, task.due)}
    if payload.authorization_token_id is not None:
        token = episode.tokens[payload.authorization_token_id]
        changes["tokens"] = {**episode.tokens, token.token_id: replace(token, used=token.used + 1)}
    if episode.position is _VERIFY and episode.loop is not None:
        changes["loop"] = replace(episode.loop, begun=True, read=True)
    elif episode.position is not _EXECUTE:
        changes["succeeded"] = True
    return changes


def _closed_task(episode: Episode, packet: Packet[Result], now: datetime) -> Changes:
    payload = packet.payload
    tasks = dict(episode.tasks)
    task = tasks.pop(payload.directive_packet_id)
    success = payload.result_status is _SUCCESS
    spent = episode.spent.plus(cost_of(payload, task))
    changes: Changes = {"tasks": tasks, "due": next_due(tasks), "spent": spent}
    if episode.position is _VERIFY and episode.loop is not None:
        changes["loop"] = replace(episode.loop, begun=True, succeeded=episode.loop.succeeded or success)
    elif not success:
        changes["succeeded"] = False
    return changes


def next_due(tasks: dict[str, Task]) -> datetime:
    """Return the first moment after which one of the tasks is owed a warning."""
    return min(task.due for task in tasks.values()) if tasks else END


def cost_of(payload: Result, task: Task) -> Amounts:
    """Return what a result says it cost; a tool's directive that says nothing cost one call."""
    stated = payload.execution_metadata
    calls = int(task.uses_tool)
    if stated is None:
        return Amounts(calls=calls)
    return Amounts(
        stated.tokens_used or 0,
        calls if stated.tool_calls_used is None else stated.tool_calls_used,
        stated.execution_time_ms or 0.0,
    )


def _approved(episode: Episode, record: Record, now: datetime) -> Changes:
    given = record.data
    if not isinstance(given, Approval):
        return UNCHANGED
    added = Amounts(given.token_budget, given.tool_call_budget, given.time_budget_seconds * 1000.0)
    return {"approved": episode.approved.plus(added)}


def _voided(episode: Episode, packet: object, now: datetime) -> Changes:
    """Everything that was under way is void; tokens stay."""
    return {"tasks": {}, "due": END, "loop": None, "governing": None}


def _halted(episode: Episode, packet: object, now: datetime) -> Changes:
    """Everything that was under way is void, and no token opens anything any more."""
    return {**_voided(episode, packet, now), "tokens": _revoking(episode, episode.tokens)}


CHANGES: Final[dict[Event, Changing]] = {
    **dict.fromkeys(Event, _nothing),
    **dict.fromkeys(DECISIONS, _decided),
    Event.OBSERVATION: _observed,
    Event.USER_INPUT: _answered,
    Event.ANSWER: _answered,
    Event.BELIEF: _believed,
    Event.VERIFY_FIRST: _verifying,
    Event.PLAN: _planned,
    Event.TOKEN: _issued,
    Event.REVOCATION: _revoked,
    Event.READ: _directed,
    Event.WRITE: _directed,
    Event.RESULT: _closed_task,
    Event.ALERT: _alerted,
    Event.CLEAR: _alerted,
    Event.APPROVAL: _approved,
    Event.CRITICAL: _halted,
    Event.HALT: _halted,
    Event.OVERRUN_HALT: _halted,
    Event.OVERRUN_ESCALATE: _voided,
}
