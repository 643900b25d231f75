"""What an episode remembers: values, replaced as a whole by each accepted packet.

Rule 1: an `EpisodeState` never changes; a verdict holds the one before and the one after, and both stay true. The only thing
    they share is `seen`, which grows by one id with every packet that is committed.
Rule 2: nothing here decides; it says what is the case.
"""

from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final

import msgspec
from msgspec import Struct

from proctor.episode.packets.enums import DecisionOutcome, OperationType
from proctor.episode.packets.fields import TaskResult, Token
from proctor.episode.packets.reader import AnyPacket
from proctor.episode.transition_table import Position, ProtocolState, visible_state

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
