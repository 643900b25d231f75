"""What an episode remembers, what the table sees of a packet or a record, and what of the episode an accepted one changes.

Rule 1: an `EpisodeState` never changes; a verdict holds the one before and the one after, and both stay true. The only thing
    they share is `seen`, which grows by one id with every packet that is committed.
Rule 2: nothing here decides or refuses: an event is told from a packet's content alone, and what changes an episode was accepted.
Rule 3: position, clock and the packet's number change with every packet (`machine.py`); here is the rest.
"""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from proctor.episode.packets.enums import (
    CLEAR,
    DecisionOutcome,
    EpistemicStatus,
    MethodKind,
    ObservationType,
    OperationType,
    PacketKind,
    RecordKind,
    RecordSource,
    ResultStatus,
    SafetyClass,
    Severity,
    TaskType,
)
from proctor.episode.packets.fields import (
    Alert,
    Approval,
    BeliefUpdate,
    Decision,
    Directive,
    Layer,
    ObservationPayload,
    Record,
    TaskResult,
    Token,
)
from proctor.episode.packets.reader import AnyPacket, Packet, ParsedLine
from proctor.episode.transition_table import DECISIONS, EVENTS, Event, Position, ProtocolState, visible_state

BEGINNING: Final = datetime.min.replace(tzinfo=UTC)
END: Final = datetime.max.replace(tzinfo=UTC)


def add_seconds(moment: datetime, seconds: int) -> datetime:
    """Return `moment` plus `seconds`, or the end of time."""
    try:
        return moment + timedelta(seconds=seconds)
    except OverflowError:
        return END


class OpenTask(Struct, frozen=True, gc=False):
    """A directive that waits for its result; `overdue` and `late` say which warnings were given."""

    packet_id: str
    task_id: str
    uses_tool: bool
    deadline: datetime
    timeout: datetime | None = None
    late: bool = False
    overdue: bool = False

    @property
    def due(self) -> datetime:
        """The first moment after which a warning is owed that was not given."""
        deadline = END if self.overdue else self.deadline
        return deadline if self.timeout is None or self.late else min(deadline, self.timeout)

    def is_ended_by(self, payload: TaskResult) -> bool:
        """Return whether a result names this directive and this task."""
        return payload.directive_packet_id == self.packet_id and payload.task_id == self.task_id


class IssuedToken(Struct, frozen=True, gc=False):
    """A token that was issued, and how often it was used; `digest` is that of its payload, to know an equal one by."""

    token_id: str
    tool_ids: tuple[str, ...]
    operations: tuple[OperationType, ...]
    expiry: datetime
    limit: int
    used: int
    revoked: bool
    digest: str

    def live(self, now: datetime) -> bool:
        """Return whether the token opens anything at `now`."""
        return not self.revoked and now < self.expiry and self.used < self.limit


class Verification(Struct, frozen=True, gc=False):
    """A verification: what came since its VERIFY_FIRST, which was packet number `began`."""

    began: int
    planned: bool = False
    read: bool = False
    succeeded: bool = False
    observed: bool = False
    begun: bool = False
    integrated: bool = False


class Amounts(Struct, frozen=True, gc=False):
    """Tokens, tool calls and milliseconds: a budget, or what was spent of one."""

    tokens: int = 0
    calls: int = 0
    milliseconds: float = 0.0

    def plus(self, other: "Amounts") -> "Amounts":
        """Return the sum."""
        return Amounts(self.tokens + other.tokens, self.calls + other.calls, self.milliseconds + other.milliseconds)

    def beyond(self, allowance: "Amounts") -> str | None:
        """Return which of the three exceeds `allowance`, in words, or None."""
        if self.tokens > allowance.tokens:
            return f"{self.tokens} tokens of {allowance.tokens}"
        if self.calls > allowance.calls:
            return f"{self.calls} tool calls of {allowance.calls}"
        if self.milliseconds > allowance.milliseconds:
            return f"{self.milliseconds / 1000:g} seconds of {allowance.milliseconds / 1000:g}"
        return None


NOTHING: Final = Amounts()


def packet_budget(packet: AnyPacket) -> Amounts:
    """Return the three budgets of a packet."""
    budgets = packet.compliance.budgets
    return Amounts(budgets.token_budget, budgets.tool_call_budget, budgets.time_budget_seconds * 1000.0)


def token_digest(payload: Token) -> str:
    """Return the digest of a token's content, equal for tokens that say the same in the same way."""
    return sha256(msgspec.json.encode(payload, order="deterministic")).hexdigest()


class GoverningDecision(Struct, frozen=True, gc=False):
    """The latest decision, which governs what may be done."""

    outcome: DecisionOutcome
    budget: Amounts


class EpisodeState(Struct, frozen=True, gc=False):
    """All that is remembered of an episode."""

    correlation_id: str
    position: Position = Position.IDLE
    clock: datetime = BEGINNING
    packets: int = 0
    believed: bool = False
    tools_ok: bool = True
    # Whether every result since S6 was entered was a success.
    succeeded: bool = True
    governing: GoverningDecision | None = None
    loop: Verification | None = None
    tasks: dict[str, OpenTask] = {}
    tokens: dict[str, IssuedToken] = {}
    # The first moment after which an open task is owed a warning.
    due: datetime = END
    spent: Amounts = NOTHING
    approved: Amounts = NOTHING
    # One number for each of the user's own rules.
    marks: tuple[int, ...] = ()
    # Accepted packet ids: the packet's number if it is evidence (an observation or a result), else 0.
    seen: dict[str, int] = {}

    @property
    def state(self) -> ProtocolState:
        """The state that is shown."""
        return visible_state(self.position, succeeded=self.succeeded)

    @property
    def open_tasks(self) -> str:
        """The ids of the open tasks, as words."""
        return ", ".join(task.task_id for task in self.tasks.values())

    @property
    def has_plan(self) -> bool:
        """Whether the verification has a plan."""
        return self.loop is not None and self.loop.planned

    @property
    def is_verification_unbegun(self) -> bool:
        """Whether nothing of the verification has come yet."""
        return self.loop is not None and not self.loop.begun

    @property
    def has_live_token(self) -> bool:
        """Whether a token can be used."""
        return any(token.live(self.clock) for token in self.tokens.values())

    def missing_verification_steps(self, *, plan: bool) -> tuple[str, ...]:
        """Return what the verification still lacks, as words; the plan only where `plan` is required.

        While tools are not all right, neither success nor observed evidence is asked for.
        """
        loop = self.loop
        if loop is None:
            return ("a verification",)
        if loop.planned and loop.read and loop.succeeded and loop.observed:
            return ()
        steps = {
            "a VerificationPlanPacket": loop.planned or not plan,
            "a READ directive": loop.read,
            "a result with SUCCESS": loop.succeeded or not self.tools_ok,
            "an observation with status OBSERVED": loop.observed or not self.tools_ok,
        }
        return tuple(step for step, done in steps.items() if not done)

    @property
    def allowance(self) -> Amounts:
        """What may be spent: the governing decision's budgets and what was approved besides."""
        budget = NOTHING if self.governing is None else self.governing.budget
        return budget if self.approved is NOTHING else budget.plus(self.approved)


def new_episode(correlation_id: str, marks: tuple[int, ...] = ()) -> EpisodeState:
    """Return an episode in which nothing has happened."""
    return EpisodeState(correlation_id, marks=marks, tasks={}, tokens={}, seen={})


Changes: TypeAlias = dict[str, Any]
ChangeFunction: TypeAlias = Callable[[EpisodeState, Any, datetime], Changes]

UNCHANGED: Final[Changes] = {}
# Looked up here once: every packet asks for them.
_VERIFY: Final = Position.VERIFY
_EXECUTE: Final = Position.EXECUTE
_ESCALATED: Final = Position.ESCALATED
_OBSERVED: Final = EpistemicStatus.OBSERVED
_SUCCESS: Final = ResultStatus.SUCCESS
_TOOL: Final = MethodKind.TOOL


def _apply_observation(episode: EpisodeState, packet: Packet[ObservationPayload], now: datetime) -> Changes:
    if episode.position is not _VERIFY or episode.loop is None:
        return UNCHANGED
    seen = packet.compliance.epistemics.status is _OBSERVED
    return {"loop": replace(episode.loop, begun=True, observed=episode.loop.observed or seen)}


def _apply_answer(episode: EpisodeState, packet: AnyPacket | Record, now: datetime) -> Changes:
    """A human's answer forgives what was spent; elsewhere user input is an observation like others."""
    if episode.position is _ESCALATED:
        return {"spent": NOTHING}
    return UNCHANGED if isinstance(packet, Record) else _apply_observation(episode, packet, now)


def _apply_belief(episode: EpisodeState, packet: Packet[BeliefUpdate], now: datetime) -> Changes:
    if episode.position is _VERIFY and episode.loop is not None:
        return {"believed": True, "loop": replace(episode.loop, integrated=True)}
    return UNCHANGED if episode.believed else {"believed": True}


def _apply_decision(episode: EpisodeState, packet: Packet[Decision], now: datetime) -> Changes:
    outcome = packet.payload.decision_outcome
    loop = Verification(began=episode.packets + 1) if outcome is DecisionOutcome.VERIFY_FIRST else None
    return {"governing": GoverningDecision(outcome, packet_budget(packet)), "loop": loop}


def _apply_plan(episode: EpisodeState, packet: AnyPacket, now: datetime) -> Changes:
    return UNCHANGED if episode.loop is None else {"loop": replace(episode.loop, begun=True, planned=True)}


def _apply_token(episode: EpisodeState, packet: Packet[Token], now: datetime) -> Changes:
    payload = packet.payload
    begun = UNCHANGED if episode.loop is None else {"loop": replace(episode.loop, begun=True)}
    if payload.token_id in episode.tokens:
        return begun
    permit = IssuedToken(
        payload.token_id,
        tuple(payload.authorized_scope.tool_ids),
        tuple(payload.authorized_scope.operation_types),
        payload.expiry,
        payload.max_usage_count,
        payload.usage_count,
        False,
        token_digest(payload),
    )
    return {**begun, "tokens": {**episode.tokens, payload.token_id: permit}}


def _apply_revocation(episode: EpisodeState, packet: Packet[Token], now: datetime) -> Changes:
    return {"tokens": _revoke_tokens(episode, (packet.payload.token_id,))}


def _apply_alert(episode: EpisodeState, packet: Packet[Alert], now: datetime) -> Changes:
    named = packet.payload.revoked_token_ids
    return {"tokens": _revoke_tokens(episode, named)} if named else UNCHANGED


def _revoke_tokens(episode: EpisodeState, named: Any) -> dict[str, IssuedToken]:
    """Return the tokens with those that are named revoked; a name that nobody has is passed over."""
    revoked = {name: replace(episode.tokens[name], revoked=True) for name in named if name in episode.tokens}
    return {**episode.tokens, **revoked}


def _apply_directive(episode: EpisodeState, packet: Packet[Directive], now: datetime) -> Changes:
    payload = packet.payload
    wait = payload.timeout_seconds
    task = OpenTask(
        packet.header.packet_id,
        payload.task_id,
        payload.execution_method.method is _TOOL,
        add_seconds(now, packet.compliance.budgets.time_budget_seconds),
        None if wait is None else add_seconds(now, wait),
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


def _apply_result(episode: EpisodeState, packet: Packet[TaskResult], now: datetime) -> Changes:
    payload = packet.payload
    tasks = dict(episode.tasks)
    task = tasks.pop(payload.directive_packet_id)
    success = payload.result_status is _SUCCESS
    spent = episode.spent.plus(result_cost(payload, task))
    changes: Changes = {"tasks": tasks, "due": next_due(tasks), "spent": spent}
    if episode.position is _VERIFY and episode.loop is not None:
        changes["loop"] = replace(episode.loop, begun=True, succeeded=episode.loop.succeeded or success)
    elif not success:
        changes["succeeded"] = False
    return changes


def next_due(tasks: dict[str, OpenTask]) -> datetime:
    """Return the first moment after which one of the tasks is owed a warning."""
    return min(task.due for task in tasks.values()) if tasks else END


def result_cost(payload: TaskResult, task: OpenTask) -> Amounts:
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


def _apply_approval(episode: EpisodeState, record: Record, now: datetime) -> Changes:
    given = record.data
    if not isinstance(given, Approval):
        return UNCHANGED
    added = Amounts(given.token_budget, given.tool_call_budget, given.time_budget_seconds * 1000.0)
    return {"approved": episode.approved.plus(added)}


def _void_open_work(episode: EpisodeState, packet: object, now: datetime) -> Changes:
    """Everything that was under way is void; tokens stay."""
    return {"tasks": {}, "due": END, "loop": None, "governing": None}


def _apply_halt(episode: EpisodeState, packet: object, now: datetime) -> Changes:
    """Everything that was under way is void, and no token opens anything any more."""
    return {**_void_open_work(episode, packet, now), "tokens": _revoke_tokens(episode, episode.tokens)}


CHANGES: Final[dict[Event, ChangeFunction]] = {
    **dict.fromkeys(Event, lambda _episode, _packet, _now: UNCHANGED),
    **dict.fromkeys(DECISIONS, _apply_decision),
    Event.OBSERVATION: _apply_observation,
    Event.USER_INPUT: _apply_answer,
    Event.ANSWER: _apply_answer,
    Event.BELIEF: _apply_belief,
    Event.PLAN: _apply_plan,
    Event.TOKEN: _apply_token,
    Event.REVOCATION: _apply_revocation,
    Event.READ: _apply_directive,
    Event.WRITE: _apply_directive,
    Event.RESULT: _apply_result,
    Event.ALERT: _apply_alert,
    Event.CLEAR: _apply_alert,
    Event.APPROVAL: _apply_approval,
    Event.CRITICAL: _apply_halt,
    Event.HALT: _apply_halt,
    Event.OVERRUN_HALT: _apply_halt,
    Event.OVERRUN_ESCALATE: _void_open_work,
}

# Who may lift safe mode.
CLEARING: Final[tuple[Layer, ...]] = ("Integrity", 1)

# Whether a task writes, by what it asks for, where its directive does not say.
INFERRED: Final = {
    TaskType.TOOL_READ: Event.READ,
    TaskType.TOOL_WRITE: Event.WRITE,
    TaskType.COMPUTATION: Event.READ,
    TaskType.VERIFICATION: Event.READ,
    TaskType.MEMORY_LOOKUP: Event.READ,
}
STATED: Final = {SafetyClass.READ: Event.READ, SafetyClass.WRITE: Event.WRITE, SafetyClass.MIXED: Event.WRITE}
_DECIDED: Final = {outcome: Event(f"{PacketKind.DECISION}({outcome})") for outcome in DecisionOutcome}
# Looked up here once: every packet asks for them.
_INPUT: Final = ObservationType.USER_INPUT
_USER_INPUT: Final = Event.USER_INPUT
_OBSERVATION: Final = Event.OBSERVATION
_WRITE: Final = Event.WRITE
_TOKEN: Final = Event.TOKEN
_REVOCATION: Final = Event.REVOCATION


def contradicts_itself(payload: Directive) -> bool:
    """Return whether a directive's class says the opposite of its task type."""
    stated = payload.tool_safety_class
    return stated is not None and STATED[stated] is not INFERRED[payload.task_type]


def classify_directive(payload: Directive) -> Event:
    """Return READ or WRITE; a directive that contradicts itself counts as a WRITE."""
    inferred = INFERRED[payload.task_type]
    if payload.tool_safety_class is None or STATED[payload.tool_safety_class] is inferred:
        return inferred
    return _WRITE


def _classify_alert(packet: Packet[Alert]) -> Event:
    if packet.payload.severity is Severity.CRITICAL:
        return Event.CRITICAL
    lifts = packet.payload.alert_type == CLEAR and packet.header.layer_source in CLEARING
    return Event.CLEAR if lifts else Event.ALERT


# How it is told which of its events a packet is; the other kinds have only one.
_CLASSIFIERS: Final[dict[PacketKind, Callable[[AnyPacket], Event]]] = {
    PacketKind.OBSERVATION: lambda packet: _USER_INPUT if packet.payload.observation_type is _INPUT else _OBSERVATION,
    PacketKind.DECISION: lambda packet: _DECIDED[packet.payload.decision_outcome],
    PacketKind.TOKEN: lambda packet: _REVOCATION if packet.payload.revoked else _TOKEN,
    PacketKind.DIRECTIVE: lambda packet: classify_directive(packet.payload),
    PacketKind.ALERT: _classify_alert,
}
_ONLY: Final = {kind: events[0] for kind, events in EVENTS.items() if len(events) == 1}
_RECORDED: Final = {
    RecordKind.USER_INPUT: Event.ANSWER,
    RecordKind.APPROVAL: Event.APPROVAL,
    RecordKind.SAFEMODE: Event.HALT,
}


def classify_packet(packet: AnyPacket) -> Event:
    """Return what the table sees of `packet`."""
    kind = packet.header.packet_type
    only = _ONLY.get(kind)
    return _CLASSIFIERS[kind](packet) if only is None else only


def classify_record(record: Record) -> Event:
    """Return what the table sees of `record`, which is no `open`."""
    if record.record is RecordKind.CLOSE:
        return Event.OPERATOR_CLOSE if record.by is RecordSource.OPERATOR else Event.CLOSE
    return _RECORDED[record.record]


def classify_line(said: ParsedLine) -> Event | None:
    """Return what the table would see of a line, if anything."""
    if isinstance(said, Packet):
        return classify_packet(said)
    return classify_record(said) if isinstance(said, Record) and said.record is not RecordKind.OPEN else None
