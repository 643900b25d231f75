"""The rules of the contract: what must have come before (E1 to E7, S4, S5, S6, S8), and what holds across policies (INV-001 to INV-012).

E5, INV-001, INV-009, and what S8 asks of an escalation's content, are rules of shape: the reader finds them broken.
"""

from collections.abc import Iterator
from datetime import datetime
from itertools import product, starmap
from typing import Any, Final

from proctor.episode.episode_state import EpisodeState, IssuedToken, classify_directive, packet_budget, token_digest
from proctor.episode.packets.enums import (
    Adversariality,
    DecisionOutcome,
    EpistemicStatus,
    EvidenceKind,
    Freshness,
    Irreversibility,
    Level,
    MethodKind,
    OperationType,
    PacketKind,
    QualityTier,
    ToolsState,
    Uncertainty,
)
from proctor.episode.packets.fields import BeliefUpdate, Decision, Directive, Record, Stakes, TaskResult, Token
from proctor.episode.packets.reader import AnyPacket, Packet
from proctor.episode.rules import (
    NO_FINDINGS,
    TYPE_POINTER,
    Findings,
    Gravity,
    Rule,
    RuleFinding,
    rule,
    violation,
    warning,
)
from proctor.episode.settings import Profile, Settings
from proctor.episode.transition_table import (
    ALERTS,
    CLOSES,
    DECISIONS,
    DIRECTIVES,
    PACKETS,
    Event,
    Position,
    ProtocolState,
)

GRAVE: Final = frozenset({Level.HIGH, Level.CRITICAL})
UNSURE: Final = frozenset({EpistemicStatus.INFERRED, EpistemicStatus.HYPOTHESIZED, EpistemicStatus.UNKNOWN})
CURRENT: Final = frozenset({Freshness.REALTIME, Freshness.OPERATIONAL})
SEEN: Final = frozenset({EvidenceKind.TOOL_OUTPUT, EvidenceKind.USER_OBSERVATION})
# What a token must allow for a directive of each class.
ALLOWED_OPERATIONS: Final = {
    Event.READ: frozenset({OperationType.READ}),
    Event.WRITE: frozenset({OperationType.WRITE, OperationType.MODIFY, OperationType.DELETE}),
}

INV_001: Final = Rule(
    "INV-001", "The envelope is complete on decisions, directives, tokens and escalations; no evidence needs a reason."
)
INV_009: Final = Rule("INV-009", "An escalation is complete.")
_SUBPAR: Final = QualityTier.SUBPAR
_DECISION: Final = PacketKind.DECISION
_TOOL: Final = MethodKind.TOOL
_DOWN: Final = ToolsState.DOWN
_PARTIAL: Final = ToolsState.PARTIAL
OUTCOME: Final = "/payload/decision_outcome"
TOKEN_ID: Final = "/payload/authorization_token_id"  # noqa: S105  # a JSON pointer

# Where tasks are open.
_TASK_POSITIONS: Final = (Position.VERIFY, Position.EXECUTE)
# Looked up here once: every packet asks for them.
_VERIFY: Final = Position.VERIFY
_BELIEF: Final = PacketKind.BELIEF_UPDATE
_TOKEN: Final = PacketKind.TOKEN
_RESULT: Final = PacketKind.RESULT
_READ: Final = Event.READ


@rule("E1", DECISIONS, implied=True)
def e1(episode: EpisodeState, packet: Packet[Decision], now: datetime, settings: Settings) -> Findings:
    """A decision needs at least one belief update before it, or initial beliefs."""
    if episode.believed or settings.initial_beliefs:
        return NO_FINDINGS
    return violation(
        "E1", TYPE_POINTER, "no BeliefUpdatePacket was accepted in this episode, so there is nothing to decide on"
    )


@rule("E2", DIRECTIVES, implied=True)
def e2(episode: EpisodeState, packet: Packet[Directive], now: datetime, settings: Settings) -> Findings:
    """A directive needs a decision to ACT; VERIFY_FIRST allows READ in S4 only."""
    governing = episode.governing
    if governing is None:
        return violation("E2", TYPE_POINTER, "no decision governs, so nothing may be done")
    if governing.outcome is DecisionOutcome.ACT:
        return NO_FINDINGS
    if governing.outcome is not DecisionOutcome.VERIFY_FIRST:
        return violation("E2", TYPE_POINTER, f"the latest decision is {governing.outcome}, not ACT")
    if episode.position is _VERIFY and classify_directive(packet.payload) is _READ:
        return NO_FINDINGS
    return violation(
        "E2", TYPE_POINTER, "the latest decision is VERIFY_FIRST, which allows READ directives in S4_VERIFY only"
    )


@rule("E3", (*DIRECTIVES, Event.BELIEF, Event.TOKEN, *CLOSES), (Position.VERIFY,))
def e3(episode: EpisodeState, packet: AnyPacket | Record, now: datetime, settings: Settings) -> Findings:
    """A verification has its plan, a READ directive, a success, a belief update that names its evidence, and then a decision anew."""
    if isinstance(packet, Record):
        if episode.loop is None:
            return NO_FINDINGS
        return violation("E3", "", "the verification is not closed: a decision anew must follow it")
    if packet.header.packet_type is _BELIEF:
        return _check_verification_end("E3", episode, packet, settings)
    if packet.header.packet_type is _TOKEN:
        # Where a token is admitted in S4 at all, it comes first.
        if settings.profile is Profile.STRICT or episode.is_verification_unbegun:
            return NO_FINDINGS
        return violation("E3", TYPE_POINTER, "a token may only come first in a verification")
    return NO_FINDINGS if episode.has_plan else (_missing_plan("E3", settings),)


@rule("S4", (Event.BELIEF,), (Position.VERIFY,))
def s4(episode: EpisodeState, packet: Packet[BeliefUpdate], now: datetime, settings: Settings) -> Findings:
    """S4_VERIFY is left with a plan, a READ directive, a success and observed evidence, by a belief update that names it."""
    return _check_verification_end("S4", episode, packet, settings)


def _check_verification_end(
    name: str, episode: EpisodeState, packet: Packet[BeliefUpdate], settings: Settings
) -> Findings:
    """Return what a belief update that leaves S4 breaks of the rule `name`."""
    found = NO_FINDINGS if episode.has_plan else (_missing_plan(name, settings),)
    missing = episode.missing_verification_steps(plan=False)
    lacking = [what for what in missing if name == "S4" or "OBSERVED" not in what]
    if lacking:
        found += violation(name, TYPE_POINTER, f"the verification lacks {' and '.join(lacking)}")
    if not names_evidence(episode, packet):
        reason = "the belief update names no observation or result accepted since the VERIFY_FIRST"
        found += violation(name, "/payload/evidence_integration", reason)
    return found


def _missing_plan(name: str, settings: Settings) -> RuleFinding:
    gravity = Gravity.WARNING if settings.profile is Profile.LENIENT else Gravity.ERROR
    return RuleFinding(name, TYPE_POINTER, "no VerificationPlanPacket was stated since the VERIFY_FIRST", gravity)


def names_evidence(episode: EpisodeState, packet: Packet[BeliefUpdate]) -> bool:
    """Return whether `packet` names an observation or a result that was accepted since the VERIFY_FIRST."""
    loop = episode.loop
    if loop is None:
        return False
    seen, began = episode.seen, loop.began
    if any(seen.get(named, 0) > began for named in packet.payload.evidence_integration or ()):
        return True
    return any(seen.get(ref.ref_id, 0) > began for ref in packet.compliance.evidence.evidence_refs)


@rule("E4", DIRECTIVES)
def e4(episode: EpisodeState, packet: Packet[Directive], now: datetime, settings: Settings) -> Findings:
    """A WRITE directive names a token of this episode that is not expired, revoked or used up."""
    name = packet.payload.authorization_token_id
    if name is None:
        if classify_directive(packet.payload) is _READ:
            return NO_FINDINGS
        return violation("E4", TOKEN_ID, "a WRITE directive needs a ToolAuthorizationToken")
    token = episode.tokens.get(name)
    if token is None:
        return violation("E4", TOKEN_ID, f"no token {name} was issued in this episode")
    if token.live(now):
        return NO_FINDINGS
    return violation("E4", TOKEN_ID, f"the token {name} {describe_unusable_token(token, now)}")


def describe_unusable_token(token: IssuedToken, now: datetime) -> str:
    """Return why a token that is not live opens nothing."""
    if token.revoked:
        return "was revoked"
    if now >= token.expiry:
        return f"expired at {token.expiry.isoformat()}"
    return f"was used {token.used} times of {token.limit}"


@rule("S5", (Event.TOKEN, Event.REVOCATION))
def s5(episode: EpisodeState, packet: Packet[Token], now: datetime, settings: Settings) -> Findings:
    """A token is issued unexpired and unused up, under an id of its own; only a token that was issued can be revoked."""
    payload = packet.payload
    known = episode.tokens.get(payload.token_id)
    if payload.revoked:
        if known is not None:
            return NO_FINDINGS
        return violation("S5", "/payload/token_id", f"there is no token {payload.token_id} to revoke")
    if known is not None and known.digest != token_digest(payload):
        reason = f"the token {payload.token_id} was issued before with another content"
        return violation("S5", "/payload/token_id", reason)
    if known is not None:
        if known.live(now):
            return NO_FINDINGS
        reason = f"the token {payload.token_id} {describe_unusable_token(known, now)}"
        return violation("S5", "/payload/token_id", reason)
    if now >= payload.expiry:
        return violation("S5", "/payload/expiry", "the token has expired before it is issued")
    if payload.usage_count >= payload.max_usage_count:
        return violation("S5", "/payload/usage_count", "the token is used up before it is issued")
    return NO_FINDINGS


@rule("E6", (Event.RESULT, Event.BELIEF, *CLOSES))
def e6(episode: EpisodeState, packet: AnyPacket | Record, now: datetime, settings: Settings) -> Findings:
    """A directive has one result, which names its packet and its task, before its state is left or the episode closed."""
    if isinstance(packet, Record):
        return _check_open_tasks("E6", episode, "")
    if packet.header.packet_type is _RESULT:
        payload: TaskResult = packet.payload
        task = episode.tasks.get(payload.directive_packet_id)
        if task is None:
            reason = f"no directive {payload.directive_packet_id} waits for a result"
            return violation("E6", "/payload/directive_packet_id", reason)
        if task.is_ended_by(payload):
            return NO_FINDINGS
        reason = f"the directive {task.packet_id} is about {task.task_id}, not {payload.task_id}"
        return violation("E6", "/payload/task_id", reason)
    return _check_open_tasks("E6", episode, TYPE_POINTER) if episode.position in _TASK_POSITIONS else NO_FINDINGS


@rule("S6", (Event.BELIEF,), (Position.EXECUTE,))
def s6(episode: EpisodeState, packet: Packet[BeliefUpdate], now: datetime, settings: Settings) -> Findings:
    """S6_EXECUTE is left when every directive has its result."""
    return _check_open_tasks("S6", episode, TYPE_POINTER)


def _check_open_tasks(name: str, episode: EpisodeState, pointer: str) -> Findings:
    if not episode.tasks:
        return NO_FINDINGS
    reason = f"directives without a result: {episode.open_tasks}; a result with CANCELLED also closes one"
    return violation(name, pointer, reason)


_LOCKED_OUT: Final = tuple(event for event in PACKETS if event is not Event.BELIEF and event not in ALERTS)


@rule("E7", _LOCKED_OUT, (Position.SAFEMODE,), implied=True)
def e7(episode: EpisodeState, packet: AnyPacket, now: datetime, settings: Settings) -> Findings:
    """In S9_SAFEMODE only alerts and belief updates are taken."""
    return violation(
        "E7", TYPE_POINTER, f"in {ProtocolState.SAFEMODE} only IntegrityAlertPacket and BeliefUpdatePacket are taken"
    )


@rule("S8", (*DECISIONS, Event.USER_INPUT, Event.ANSWER), (Position.ESCALATE_DUE, Position.ESCALATED), implied=True)
def s8(episode: EpisodeState, packet: Any, now: datetime, settings: Settings) -> Findings:
    """S8_ESCALATED is left by a human's answer to an escalation that was presented."""
    if isinstance(packet, Packet) and isinstance(packet.payload, Decision):
        return violation("S8", OUTCOME, "a human's answer must come before the next decision")
    if episode.position is Position.ESCALATE_DUE:
        return violation("S8", "", "an EscalationPacket must be presented before it can be answered")
    return NO_FINDINGS


E5: Final = Rule("E5", "An escalation presents two or three options, its evidence gaps and a recommended next step.")


@rule("INV-002", (Event.ACT,))
def inv_002(episode: EpisodeState, packet: Packet[Decision], now: datetime, settings: Settings) -> Findings:
    """SUBPAR quality never acts."""
    if packet.compliance.quality.quality_tier is not _SUBPAR:
        return NO_FINDINGS
    return violation("INV-002", "/mcp/quality/quality_tier", "a decision of SUBPAR quality must not ACT")


@rule("INV-003", (Event.ACT,))
def inv_003(episode: EpisodeState, packet: Packet[Decision], now: datetime, settings: Settings) -> Findings:
    """Acting at HIGH or CRITICAL stakes needs SUPERB quality and verified assumptions."""
    level = packet.compliance.stakes.stakes_level
    if level not in GRAVE:
        return NO_FINDINGS
    if packet.compliance.quality.quality_tier is not QualityTier.SUPERB:
        return violation("INV-003", "/mcp/quality/quality_tier", f"acting at {level} stakes needs SUPERB quality")
    for index, assumption in enumerate(packet.payload.load_bearing_assumptions or ()):
        if not assumption.verified:
            pointer = f"/payload/load_bearing_assumptions/{index}/verified"
            return violation("INV-003", pointer, f"acting at {level} stakes needs every assumption verified")
    return NO_FINDINGS


@rule("INV-004", (Event.BELIEF,))
def inv_004(episode: EpisodeState, packet: Packet[BeliefUpdate], now: datetime, settings: Settings) -> Findings:
    """A belief that is inferred, hypothesized or unknown, about realtime or operational matters, names something seen."""
    epistemics = packet.compliance.epistemics
    if epistemics.status not in UNSURE or epistemics.freshness_class not in CURRENT:
        return NO_FINDINGS
    if any(ref.ref_type in SEEN for ref in packet.compliance.evidence.evidence_refs):
        return NO_FINDINGS
    reason = (
        f"a belief that is {epistemics.status} about {epistemics.freshness_class} matters "
        "needs a tool_output or a user_observation as evidence"
    )
    return violation("INV-004", "/mcp/evidence/evidence_refs", reason)


@rule("INV-005", (Event.ACT, *DIRECTIVES))
def inv_005(episode: EpisodeState, packet: AnyPacket, now: datetime, settings: Settings) -> Findings:
    """What exceeds the budgets needs an answered escalation or an operator's approval first."""
    if packet.header.packet_type is _DECISION:
        allowance = packet_budget(packet).plus(episode.approved)
        excess = episode.spent.beyond(allowance)
        return NO_FINDINGS if excess is None else violation("INV-005", "/mcp/budgets", f"already spent: {excess}")
    if episode.governing is None:
        return NO_FINDINGS
    allowance = episode.allowance
    excess = episode.spent.beyond(allowance)
    if excess is not None:
        return violation("INV-005", "/payload/execution_method", f"already spent: {excess}")
    if packet.payload.execution_method.method is not _TOOL:
        return NO_FINDINGS
    allowed = allowance.calls
    waiting = sum(task.uses_tool for task in episode.tasks.values()) if episode.tasks else 0
    if episode.spent.calls + waiting < allowed:
        return NO_FINDINGS
    reason = f"the budget of {allowed} tool calls leaves none for this directive"
    return violation("INV-005", "/payload/execution_method", reason)


@rule("INV-006", (Event.ACT,))
def inv_006(episode: EpisodeState, packet: Packet[Decision], now: datetime, settings: Settings) -> Findings:
    """Acting needs the constitutional check and the budget check."""
    checks = packet.payload.constraints_satisfied
    if checks.constitutional_check and checks.budget_check:
        return NO_FINDINGS
    name = "budget_check" if checks.constitutional_check else "constitutional_check"
    pointer = f"/payload/constraints_satisfied/{name}"
    return violation("INV-006", pointer, f"a decision to ACT needs its {name} to be true")


@rule("INV-007", DIRECTIVES)
def inv_007(episode: EpisodeState, packet: Packet[Directive], now: datetime, settings: Settings) -> Findings:
    """A directive lies inside its token's scope: its tool, and what is done with it."""
    name = packet.payload.authorization_token_id
    token = None if name is None else episode.tokens.get(name)
    if token is None:
        return NO_FINDINGS
    tool = packet.payload.execution_method.tool_id
    if tool not in token.tool_ids:
        found = "a directive without a tool" if tool is None else "this tool"
        return violation("INV-007", "/payload/execution_method/tool_id", f"the token {name} does not open {found}")
    wanted = ALLOWED_OPERATIONS[classify_directive(packet.payload)]
    if wanted.isdisjoint(token.operations):
        reason = f"the token {name} allows {', '.join(token.operations)}, not {' or '.join(sorted(wanted))}"
        return violation("INV-007", "/payload/authorization_token_id", reason)
    return NO_FINDINGS


@rule("INV-008", (*DECISIONS, *CLOSES), implied=True)
def inv_008(episode: EpisodeState, packet: AnyPacket | Record, now: datetime, settings: Settings) -> Findings:
    """A verification is closed before anything is decided or the episode ends."""
    if episode.loop is None or episode.loop.integrated:
        return NO_FINDINGS
    return violation("INV-008", "", "a verification is still open: a belief update must integrate its evidence first")


@rule("INV-010", (Event.ACT,), level="error, warning")
def inv_010(episode: EpisodeState, packet: Packet[Decision], now: datetime, settings: Settings) -> Findings:
    """Nobody acts at HIGH or CRITICAL stakes while tools are down; partial tools at MEDIUM stakes are a warning."""
    tools, stakes = packet.compliance.routing.tools_state, packet.compliance.stakes
    pointer = "/mcp/routing/tools_state"
    if tools is _DOWN and stakes.stakes_level in GRAVE:
        return violation("INV-010", pointer, f"nobody acts at {stakes.stakes_level} stakes while tools are down")
    if tools is _PARTIAL and stakes.stakes_level is Level.MEDIUM and stakes.uncertainty is Uncertainty.HIGH:
        reason = "acting at MEDIUM stakes and HIGH uncertainty while tools work in part"
        return warning("INV-010", pointer, reason)
    return NO_FINDINGS


@rule("INV-011", (*PACKETS, *CLOSES), level="error, warning", rare=True)
def inv_011(episode: EpisodeState, packet: AnyPacket | Record, now: datetime, settings: Settings) -> Findings:
    """A task is closed in time: a warning at the deadline, an error at the close."""
    if isinstance(packet, Record):
        if not episode.tasks:
            return NO_FINDINGS
        return violation("INV-011", "", f"the episode cannot close with open tasks: {episode.open_tasks}")
    return tuple(_time_warnings(episode, packet, now)) if is_late(episode, packet, now) else NO_FINDINGS


def is_late(episode: EpisodeState, packet: AnyPacket, now: datetime) -> bool:
    """Return whether a warning about a task's time may be due."""
    if now > episode.due:
        return True
    if packet.header.packet_type is not _RESULT:
        return False
    task = episode.tasks.get(packet.payload.directive_packet_id)
    return task is not None and (task.overdue or task.late)


def _time_warnings(episode: EpisodeState, packet: AnyPacket, now: datetime) -> Iterator[RuleFinding]:
    """Yield the warnings that are due: once for each task, and again with the result that ends it."""
    for task in episode.tasks.values():
        again = packet.header.packet_type is _RESULT and task.is_ended_by(packet.payload)
        if now > task.deadline and (again or not task.overdue):
            reason = f"{task.task_id} should have been closed by {task.deadline.isoformat()}"
            yield RuleFinding("INV-011", "", reason, Gravity.WARNING)
        if task.timeout is not None and now > task.timeout and (again or not task.late):
            reason = f"{task.task_id} has taken longer than its timeout, {task.timeout.isoformat()}"
            yield RuleFinding("INV-011", "", reason, Gravity.WARNING)


def stakes_fit(stakes: Stakes) -> bool:
    """Return whether the level lies between the impact, or one below the gravest of the four axes, and the gravest."""
    impact = _rank(stakes.impact)
    gravest = max(impact, _rank(stakes.irreversibility), _rank(stakes.uncertainty), _rank(stakes.adversariality))
    return max(impact, gravest - 1) <= _rank(stakes.stakes_level) <= gravest


def _rank(value: Level | Irreversibility | Uncertainty | Adversariality) -> int:
    return list(type(value)).index(value)  # each is a StrEnum, lowest first


# Every combination of the four axes and the level that does not fit, out of 432.
MISFITS: Final = frozenset(
    stakes
    for stakes in starmap(Stakes, product(Level, Irreversibility, Uncertainty, Adversariality, Level))
    if not stakes_fit(stakes)
)


@rule("INV-012", PACKETS, level="warning", rare=True)
def inv_012(episode: EpisodeState, packet: AnyPacket, now: datetime, settings: Settings) -> Findings:
    """The stakes level fits impact, irreversibility, uncertainty and adversariality."""
    stakes = packet.compliance.stakes
    if stakes not in MISFITS:
        return NO_FINDINGS
    reason = f"a stakes_level of {stakes.stakes_level} does not fit the four axes"
    return warning("INV-012", "/mcp/stakes/stakes_level", reason)


CONTRACT: Final = (
    *(e1, e2, e3, e4, E5, e6, e7, s4, s5, s6, s8),
    *(INV_001, inv_002, inv_003, inv_004, inv_005, inv_006, inv_007, inv_008, INV_009, inv_010, inv_011, inv_012),
)
