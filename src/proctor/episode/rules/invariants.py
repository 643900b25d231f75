"""What must hold across policies: INV-001 to INV-012.

INV-001 and INV-009 are rules of shape: the reader finds them broken.
"""

from collections.abc import Iterator
from datetime import datetime
from itertools import product, starmap
from typing import Final

from proctor.episode.episode_state import EpisodeState, packet_budget
from proctor.episode.events import classify_directive
from proctor.episode.packets.enums import (
    Adversariality,
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
from proctor.episode.packets.fields import BeliefUpdate, Decision, Directive, Record, Stakes
from proctor.episode.packets.reader import AnyPacket, Packet
from proctor.episode.rules import NO_FINDINGS, Findings, Gravity, Rule, RuleFinding, rule, violation, warning
from proctor.episode.settings import Settings
from proctor.episode.transition_table import CLOSES, DECISIONS, DIRECTIVES, PACKETS, Event

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
# Looked up here once: every packet asks for them.
_SUBPAR: Final = QualityTier.SUBPAR
_DECISION: Final = PacketKind.DECISION
_RESULT: Final = PacketKind.RESULT
_TOOL: Final = MethodKind.TOOL
_DOWN: Final = ToolsState.DOWN
_PARTIAL: Final = ToolsState.PARTIAL


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


INVARIANTS: Final = (
    INV_001,
    inv_002,
    inv_003,
    inv_004,
    inv_005,
    inv_006,
    inv_007,
    inv_008,
    INV_009,
    inv_010,
    inv_011,
    inv_012,
)
