"""What must have come before: the rules E1 to E7 and the required sequences of S4, S5, S6 and S8.

E5, and what S8 asks of an escalation's content, are rules of shape: the reader finds them broken.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from proctor.episode.events import safety_of
from proctor.episode.guards import planned, unbegun, unverified
from proctor.episode.history import Episode, Permit, digest_of
from proctor.episode.kinds import DecisionOutcome, PacketKind
from proctor.episode.packets import AnyPacket, Packet
from proctor.episode.payloads import BeliefUpdate, Decision, Directive, Result, Token
from proctor.episode.records import Record
from proctor.episode.rulebook import KEPT, TYPE, Finding, Findings, Gravity, Rule, broken, rule
from proctor.episode.settings import Profile, Settings
from proctor.episode.states import ALERTS, DECISIONS, DIRECTIVES, PACKETS, Event, Position, State

OUTCOME: Final = "/payload/decision_outcome"
TOKEN_ID: Final = "/payload/authorization_token_id"  # noqa: S105  # a JSON pointer

# Where tasks are open.
_TASKED: Final = (Position.VERIFY, Position.EXECUTE)
# Looked up here once: every packet asks for them.
_VERIFY: Final = Position.VERIFY
_BELIEF: Final = PacketKind.BELIEF_UPDATE
_TOKEN: Final = PacketKind.TOKEN
_RESULT: Final = PacketKind.RESULT
_READ: Final = Event.READ


# ------------------------------------------------------------------------------------------------------------- E1, E2
@rule("E1", "A decision needs at least one belief update before it, or initial beliefs.", DECISIONS, implied=True)
def e1(episode: Episode, packet: Packet[Decision], now: datetime, settings: Settings) -> Findings:
    """No decision without a model."""
    if episode.believed or settings.initial_beliefs:
        return KEPT
    return broken("E1", TYPE, "no BeliefUpdatePacket was accepted in this episode, so there is nothing to decide on")


@rule("E2", "A directive needs a decision to ACT; VERIFY_FIRST allows READ in S4 only.", DIRECTIVES, implied=True)
def e2(episode: Episode, packet: Packet[Directive], now: datetime, settings: Settings) -> Findings:
    """No action without a decision: the latest one governs."""
    governing = episode.governing
    if governing is None:
        return broken("E2", TYPE, "no decision governs, so nothing may be done")
    if governing.outcome is DecisionOutcome.ACT:
        return KEPT
    if governing.outcome is not DecisionOutcome.VERIFY_FIRST:
        return broken("E2", TYPE, f"the latest decision is {governing.outcome}, not ACT")
    if episode.position is _VERIFY and safety_of(packet.payload) is _READ:
        return KEPT
    return broken("E2", TYPE, "the latest decision is VERIFY_FIRST, which allows READ directives in S4_VERIFY only")


# ------------------------------------------------------------------------------------------------------------- E3, S4
@rule(
    "E3",
    "A verification has its plan, a READ directive, a success, a belief update that names its evidence, "
    "and then a decision anew.",
    (*DIRECTIVES, Event.BELIEF, Event.TOKEN),
    (Position.VERIFY,),
)
def e3(episode: Episode, packet: AnyPacket, now: datetime, settings: Settings) -> Findings:
    """The verification loop completes."""
    if packet.header.packet_type is _BELIEF:
        return KEPT if may_leave(episode, packet) else tuple(_leaving("E3", episode, packet, settings))
    if packet.header.packet_type is _TOKEN:
        return _tardy(episode, settings)
    return KEPT if planned(episode) else (_planless("E3", settings),)


def _e3_at_close(episode: Episode, record: Record, now: datetime, settings: Settings) -> Findings:
    """A verification is followed by a decision before the episode ends."""
    if episode.loop is None:
        return KEPT
    return broken("E3", "", "the verification is not closed: a decision anew must follow it")


@rule(
    "S4",
    "S4_VERIFY is left with a plan, a READ directive, a success and observed evidence, by a belief update that names it.",
    (Event.BELIEF,),
    (Position.VERIFY,),
)
def s4(episode: Episode, packet: Packet[BeliefUpdate], now: datetime, settings: Settings) -> Findings:
    """What S4 requires before it is left."""
    return KEPT if may_leave(episode, packet) else tuple(_leaving("S4", episode, packet, settings))


def _tardy(episode: Episode, settings: Settings) -> Findings:
    """Return what a token in S4 breaks: where one is admitted at all, it comes first."""
    if settings.profile is Profile.STRICT or unbegun(episode):
        return KEPT
    return broken("E3", TYPE, "a token may only come first in a verification")


def may_leave(episode: Episode, packet: Packet[BeliefUpdate]) -> bool:
    """Return whether nothing at all speaks against leaving S4 with `packet`."""
    return not unverified(episode, plan=True) and names_evidence(episode, packet)


def _leaving(name: str, episode: Episode, packet: Packet[BeliefUpdate], settings: Settings) -> Iterator[Finding]:
    """Yield what a belief update that leaves S4 breaks of the rule `name`."""
    if not planned(episode):
        yield _planless(name, settings)
    lacking = [what for what in unverified(episode, plan=False) if name == "S4" or "OBSERVED" not in what]
    if lacking:
        yield Finding(name, TYPE, f"the verification lacks {' and '.join(lacking)}")
    if not names_evidence(episode, packet):
        reason = "the belief update names no observation or result accepted since the VERIFY_FIRST"
        yield Finding(name, "/payload/evidence_integration", reason)


def _planless(name: str, settings: Settings) -> Finding:
    gravity = Gravity.WARNING if settings.profile is Profile.LENIENT else Gravity.ERROR
    return Finding(name, TYPE, "no VerificationPlanPacket was stated since the VERIFY_FIRST", gravity)


def names_evidence(episode: Episode, packet: Packet[BeliefUpdate]) -> bool:
    """Return whether `packet` names an observation or a result that was accepted since the VERIFY_FIRST."""
    loop = episode.loop
    if loop is None:
        return False
    seen, began = episode.seen, loop.began
    if any(seen.get(named, 0) > began for named in packet.payload.evidence_integration or ()):
        return True
    return any(seen.get(ref.ref_id, 0) > began for ref in packet.compliance.evidence.evidence_refs)


# ------------------------------------------------------------------------------------------------------------- E4, S5
@rule("E4", "A WRITE directive names a token of this episode that is not expired, revoked or used up.", DIRECTIVES)
def e4(episode: Episode, packet: Packet[Directive], now: datetime, settings: Settings) -> Findings:
    """A write requires a token; so does whoever names one."""
    name = packet.payload.authorization_token_id
    if name is None:
        if safety_of(packet.payload) is _READ:
            return KEPT
        return broken("E4", TOKEN_ID, "a WRITE directive needs a ToolAuthorizationToken")
    token = episode.tokens.get(name)
    if token is None:
        return broken("E4", TOKEN_ID, f"no token {name} was issued in this episode")
    return KEPT if token.live(now) else broken("E4", TOKEN_ID, f"the token {name} {spoilt(token, now)}")


def spoilt(token: Permit, now: datetime) -> str:
    """Return why a token that is not live opens nothing."""
    if token.revoked:
        return "was revoked"
    if now >= token.expiry:
        return f"expired at {token.expiry.isoformat()}"
    return f"was used {token.used} times of {token.limit}"


@rule(
    "S5",
    "A token is issued unexpired and unused up, under an id of its own; only a token that was issued can be revoked.",
    (Event.TOKEN, Event.REVOCATION),
)
def s5(episode: Episode, packet: Packet[Token], now: datetime, settings: Settings) -> Findings:
    """What S5 requires of a token."""
    payload = packet.payload
    known = episode.tokens.get(payload.token_id)
    if payload.revoked:
        if known is not None:
            return KEPT
        return broken("S5", "/payload/token_id", f"there is no token {payload.token_id} to revoke")
    if known is not None:
        return _issued_again(known, payload, now)
    if now >= payload.expiry:
        return broken("S5", "/payload/expiry", "the token has expired before it is issued")
    if payload.usage_count >= payload.max_usage_count:
        return broken("S5", "/payload/usage_count", "the token is used up before it is issued")
    return KEPT


def _issued_again(known: Permit, payload: Token, now: datetime) -> Findings:
    if known.digest != digest_of(payload):
        reason = f"the token {payload.token_id} was issued before with another content"
        return broken("S5", "/payload/token_id", reason)
    return KEPT if known.live(now) else broken("S5", "/payload/token_id", f"the token {spoilt(known, now)}")


# ------------------------------------------------------------------------------------------------------------- E6, S6
@rule(
    "E6",
    "A directive has one result, which names its packet and its task, before its state is left or the episode closed.",
    (Event.RESULT, Event.BELIEF),
)
def e6(episode: Episode, packet: AnyPacket, now: datetime, settings: Settings) -> Findings:
    """Every task is closed."""
    if packet.header.packet_type is _RESULT:
        return _unmatched(episode, packet.payload)
    return _dangling("E6", episode, TYPE) if episode.position in _TASKED else KEPT


def _e6_at_close(episode: Episode, record: Record, now: datetime, settings: Settings) -> Findings:
    """No task is left open at the end."""
    return _dangling("E6", episode, "")


@rule("S6", "S6_EXECUTE is left when every directive has its result.", (Event.BELIEF,), (Position.EXECUTE,))
def s6(episode: Episode, packet: Packet[BeliefUpdate], now: datetime, settings: Settings) -> Findings:
    """What S6 requires before it is left; what it says of tokens is E4."""
    return _dangling("S6", episode, TYPE)


def _dangling(name: str, episode: Episode, pointer: str) -> Findings:
    if not episode.tasks:
        return KEPT
    reason = f"directives without a result: {episode.open_tasks}; a result with CANCELLED also closes one"
    return broken(name, pointer, reason)


def _unmatched(episode: Episode, payload: Result) -> Findings:
    task = episode.tasks.get(payload.directive_packet_id)
    if task is None:
        reason = f"no directive {payload.directive_packet_id} waits for a result"
        return broken("E6", "/payload/directive_packet_id", reason)
    if not task.ended_by(payload):
        reason = f"the directive {task.packet_id} is about {task.task_id}, not {payload.task_id}"
        return broken("E6", "/payload/task_id", reason)
    return KEPT


# ------------------------------------------------------------------------------------------------------------- E7, S8
_LOCKED_OUT: Final = tuple(event for event in PACKETS if event is not Event.BELIEF and event not in ALERTS)


@rule("E7", "In S9_SAFEMODE only alerts and belief updates are taken.", _LOCKED_OUT, (Position.SAFEMODE,), implied=True)
def e7(episode: Episode, packet: AnyPacket, now: datetime, settings: Settings) -> Findings:
    """Safe mode locks everything."""
    return broken("E7", TYPE, f"in {State.SAFEMODE} only IntegrityAlertPacket and BeliefUpdatePacket are taken")


@rule(
    "S8",
    "S8_ESCALATED is left by a human's answer to an escalation that was presented.",
    (*DECISIONS, Event.USER_INPUT, Event.ANSWER),
    (Position.ESCALATE_DUE, Position.ESCALATED),
    implied=True,
)
def s8(episode: Episode, packet: Any, now: datetime, settings: Settings) -> Findings:
    """Nobody decides before a human has answered, and nobody answers what was not asked."""
    if isinstance(packet, Packet) and isinstance(packet.payload, Decision):
        return broken("S8", OUTCOME, "a human's answer must come before the next decision")
    if episode.position is Position.ESCALATE_DUE:
        return broken("S8", "", "an EscalationPacket must be presented before it can be answered")
    return KEPT


E5: Final = Rule("E5", "An escalation presents two or three options, its evidence gaps and a recommended next step.")


SEQUENCES: Final = (e1, e2, e3.at_close(_e3_at_close), e4, E5, e6.at_close(_e6_at_close), e7, s4, s5, s6, s8)
