"""How an agent's packet is judged: first as what an agent may submit, then by the machine, then by the policy; only then it counts.

Rule 1: GOV-1 to GOV-3 come before the judge. Their sentences, and those of POLICY-1 and POLICY-2, stand in
    `proctor.episode.rules.governance`. What is not a packet at all passes them: the judge says what is wrong with it, field by field.
Rule 2: what the proctor sets itself are `packet_id`, `created_at`, `correlation_id` and `routing.tools_state`; an agent's own id and
    time are kept as the notes `_stated_id` and `_stated_at`.
Rule 3: what the machine refuses is its own refusal, on record as such. The policy speaks only where the machine would accept.
Rule 4: a directive is refused as well if its result or its observation could not be stated after it: by a rule of the house,
    which is named, or because the episode is full (LIMIT-2).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec
from msgspec import Struct

from proctor.contracts.tools import ToolSafety
from proctor.episode.episode_state import classify_directive, classify_packet
from proctor.episode.packets import fields
from proctor.episode.packets.enums import MethodKind, PacketKind, ToolsState
from proctor.episode.packets.reader import AnyPacket
from proctor.episode.rules.governance import GOV_1, GOV_2, GOV_3, POLICY_1, POLICY_2, POLICY_3, SIZE_1
from proctor.episode.transition_table import DIRECTIVES, Event
from proctor.server.governed.episode_memory import STATED_ID, name_by_digest
from proctor.server.governed.packet_stream import PacketStream, PreJudgeRefusal
from proctor.server.governed.policy import (
    LEVELS,
    STRICTNESS,
    GovernancePolicy,
    GuardedAction,
    TokenIssuer,
    find_result_blockers,
)


def token_refusals(
    tools: Sequence[str], operations: Sequence[str], uses: int, known: Sequence[str], policy: GovernancePolicy
) -> tuple[PreJudgeRefusal, ...]:
    """Return why the policy does not let a token be issued; nothing if it does."""
    limits = policy.tokens
    if limits.issuer is TokenIssuer.NEVER:
        return (PreJudgeRefusal(POLICY_3, "this policy issues no tokens: tools that act cannot be used here"),)
    bars = []
    unknown = [tool for tool in tools if tool not in known]
    if unknown:
        reason = f"there is no such tool: {unknown[0][:64]}; the tools are {', '.join(known)}"
        bars.append(PreJudgeRefusal(POLICY_3, reason, "/tools"))
    if uses > limits.max_uses:
        bars.append(PreJudgeRefusal(POLICY_3, f"a token is good for {limits.max_uses} uses at most", "/uses"))
    surplus = sorted(set(operations) - set(limits.operations))
    if surplus:
        allowed = ", ".join(sorted(limits.operations))
        bars.append(PreJudgeRefusal(POLICY_3, f"a token allows {allowed}, not {', '.join(surplus)}", "/operations"))
    return tuple(bars)


AGENT_KINDS: Final = (
    PacketKind.BELIEF_UPDATE,
    PacketKind.DECISION,
    PacketKind.VERIFICATION_PLAN,
    PacketKind.DIRECTIVE,
    PacketKind.ESCALATION,
)
"""What an agent may state."""
AGENT_LAYERS: Final = (2, 3, 4, 5)
OWN_HEADER_FIELDS: Final = {"_stated_at": "created_at", STATED_ID: "packet_id"}
"""What an agent says of itself in the header and the proctor sets: by the note that keeps it."""
_KINDS: Final = ", ".join(AGENT_KINDS)
encode: Final = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class PacketTerms:
    """What the proctor says of the packet that comes next."""

    correlation_id: str
    packet_id: str
    now: datetime
    tools_state: ToolsState


def find_refusals(
    submitted: Mapping[str, Any], terms: PacketTerms, policy: GovernancePolicy
) -> tuple[PreJudgeRefusal, ...]:
    """Return why a submitted object may not be said by an agent; nothing if it may."""
    return (*_kind_refusals(submitted), *_setting_refusals(submitted, terms), *_measure_refusals(submitted, policy))


def complete_packet(submitted: Mapping[str, Any], terms: PacketTerms) -> bytes:
    """Return the line that is judged: what was submitted, with what the proctor sets."""
    packet = {key: value for key, value in submitted.items() if key not in OWN_HEADER_FIELDS}
    header, envelope = submitted.get("header"), submitted.get("mcp")
    if isinstance(header, dict):
        packet |= {note: header[field] for note, field in OWN_HEADER_FIELDS.items() if field in header}
        ours = {"packet_id": terms.packet_id, "correlation_id": terms.correlation_id, "created_at": terms.now}
        packet["header"] = {**header, **ours}
    if isinstance(envelope, dict) and isinstance(envelope.get("routing"), dict):
        packet["mcp"] = {**envelope, "routing": {**envelope["routing"], "tools_state": terms.tools_state}}
    return encode(packet)


def content_refusals(packet: AnyPacket, tools: Mapping[str, ToolSafety]) -> tuple[PreJudgeRefusal, ...]:
    """Return why the proctor does not do what a submitted packet asks for; `tools` are those of its agent."""
    if isinstance(packet.payload, fields.Directive):
        return _directive_refusals(packet.payload, tools)
    if isinstance(packet.payload, fields.Escalation):
        ids = [option.option_id for option in packet.payload.top_options]
        if len(set(ids)) < len(ids):
            reason = "two options have one id: nobody could choose between them"
            return (PreJudgeRefusal("SCHEMA", reason, "/payload/top_options"),)
    return ()


def reference_refusals(packet: AnyPacket, stated: Mapping[str, str]) -> Iterator[PreJudgeRefusal]:
    """Yield why a packet may not name others as it does; `stated` are its agent's own ids, each with what the packet is called."""
    for pointer, name in _references(packet):
        if name is not None and name in stated:
            reason = f"packets have the ids that the answers tell: what you call {name} is {stated[name]}"
            yield PreJudgeRefusal(GOV_2, reason, pointer)


def _references(packet: AnyPacket) -> Iterator[tuple[str, str | None]]:
    """Yield the ids of other packets that a packet of an agent names, each with where it stands."""
    payload = packet.payload
    yield "/header/previous_packet_id", packet.header.previous_packet_id
    for i, reference in enumerate(packet.compliance.evidence.evidence_refs):
        yield f"/mcp/evidence/evidence_refs/{i}/ref_id", reference.ref_id
    match payload:
        case fields.BeliefUpdate():
            yield from _each("/payload/evidence_integration", payload.evidence_integration)
            details = payload.contradiction_details
            named = None if details is None else details.conflicting_packet_ids
            yield from _each("/payload/contradiction_details/conflicting_packet_ids", named)
        case fields.Decision():
            for i, assumption in enumerate(payload.load_bearing_assumptions or ()):
                yield f"/payload/load_bearing_assumptions/{i}/verification_packet_id", assumption.verification_packet_id
        case fields.VerificationPlan():
            yield "/payload/triggering_decision_id", payload.triggering_decision_id
        case fields.Escalation():
            yield "/payload/blocking_decision_packet_id", payload.blocking_decision_packet_id


def _each(pointer: str, names: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    return ((f"{pointer}/{i}", name) for i, name in enumerate(names or ()))


def _directive_refusals(payload: fields.Directive, tools: Mapping[str, ToolSafety]) -> tuple[PreJudgeRefusal, ...]:
    method, tool = payload.execution_method.method, payload.execution_method.tool_id
    names = ", ".join(tools)
    if method is not MethodKind.TOOL:
        reason = f"the proctor carries out tools only, not {method}; the tools are {names}"
        return (PreJudgeRefusal(GOV_1, reason, "/payload/execution_method/method"),)
    if tool is None or tool not in tools:
        reason = f"there is no such tool here; the tools are {names}"
        return (PreJudgeRefusal(GOV_1, reason, "/payload/execution_method/tool_id"),)
    if classify_directive(payload) is Event.READ and STRICTNESS[tools[tool]]:
        reason = f"the tool {tool} is {tools[tool]} under the policy, so its directive is no READ"
        return (PreJudgeRefusal(GOV_3, reason, "/payload/tool_safety_class"),)
    return ()


def _kind_refusals(submitted: Mapping[str, Any]) -> Iterator[PreJudgeRefusal]:
    if "record" in submitted:
        yield PreJudgeRefusal(
            GOV_1, f"records are stated by the proctor or an operator; an agent states {_KINDS}", "/record"
        )
        return
    header = submitted.get("header")
    if not isinstance(header, dict):
        return
    kind, layer = header.get("packet_type"), header.get("layer_source")
    if kind is not None and kind not in AGENT_KINDS:
        reason = f"an agent may not state this; it states {_KINDS}. The rest comes from the proctor or an operator"
        yield PreJudgeRefusal(GOV_1, reason, "/header/packet_type")
    if layer is not None and (isinstance(layer, bool) or layer not in AGENT_LAYERS):
        yield PreJudgeRefusal(GOV_1, "an agent speaks from the layers 2, 3, 4 and 5", "/header/layer_source")


def _setting_refusals(submitted: Mapping[str, Any], terms: PacketTerms) -> Iterator[PreJudgeRefusal]:
    header, envelope = submitted.get("header"), submitted.get("mcp")
    if isinstance(header, dict) and header.get("correlation_id", terms.correlation_id) != terms.correlation_id:
        reason = "a packet belongs to this episode and no other: leave correlation_id out, the proctor sets it"
        yield PreJudgeRefusal(GOV_2, reason, "/header/correlation_id")
    routing = envelope.get("routing") if isinstance(envelope, dict) else None
    if isinstance(routing, dict) and routing.get("tools_state", ToolsState.OK) not in (
        ToolsState.OK,
        terms.tools_state,
    ):
        reason = f"the tools are {terms.tools_state}: leave tools_state out, the proctor sets it"
        yield PreJudgeRefusal(GOV_2, reason, "/mcp/routing/tools_state")


def _measure_refusals(submitted: Mapping[str, Any], policy: GovernancePolicy) -> Iterator[PreJudgeRefusal]:
    envelope = submitted.get("mcp")
    if not isinstance(envelope, dict):
        return
    defaults = policy.defaults
    stakes, quality = (
        _parse_section(envelope.get("stakes"), fields.Stakes),
        _parse_section(envelope.get("quality"), fields.Quality),
    )
    budgets = _parse_section(envelope.get("budgets"), fields.Budgets)
    if stakes is not None:
        yield from _check_least("/mcp/stakes", stakes, defaults.stakes, fields.Stakes.__struct_fields__)
    if quality is not None:
        graded = ("quality_tier", "verification_requirement")
        yield from _check_least("/mcp/quality", quality, defaults.quality, graded)
        if quality.satisficing_mode and not defaults.quality.satisficing_mode:
            reason = "the policy does not let good enough be enough"
            yield PreJudgeRefusal(GOV_3, reason, "/mcp/quality/satisficing_mode")
    if budgets is not None:
        yield from _check_budgets(budgets, defaults.budgets)


def _parse_section(section: Any, kind: type[Any]) -> Any:
    """Return a section of the envelope, or None if it is none: then the judge says what is wrong with it."""
    try:
        return msgspec.json.decode(msgspec.json.encode(section), type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _check_least(pointer: str, stated: Struct, least: Struct, names: Iterable[str]) -> Iterator[PreJudgeRefusal]:
    for name in names:
        said: StrEnum = getattr(stated, name)
        wanted: StrEnum = getattr(least, name)
        order = list(type(wanted))
        if order.index(said) < order.index(wanted):
            yield PreJudgeRefusal(GOV_3, f"{said} is below what the policy says, {wanted}", f"{pointer}/{name}")


def _check_budgets(stated: fields.Budgets, most: fields.Budgets) -> Iterator[PreJudgeRefusal]:
    for name in ("token_budget", "tool_call_budget", "time_budget_seconds"):
        if getattr(stated, name) > getattr(most, name):
            reason = f"{getattr(stated, name)} is more than the policy allows, {getattr(most, name)}"
            yield PreJudgeRefusal(GOV_3, reason, f"/mcp/budgets/{name}")
    risk = most.risk_budget
    if not _is_within_risk(stated.risk_budget, risk):
        reason = f"the policy's risk budget is {risk.envelope!r} with a loss of {risk.max_loss!r}"
        yield PreJudgeRefusal(GOV_3, reason, "/mcp/budgets/risk_budget")


def _is_within_risk(stated: fields.RiskBudget, most: fields.RiskBudget) -> bool:
    """Return whether no more risk is stated: of two texts nobody knows which is more, so they must be the same."""
    if stated.envelope != most.envelope:
        return False
    if isinstance(stated.max_loss, str) or isinstance(most.max_loss, str):
        return stated.max_loss == most.max_loss
    return stated.max_loss <= most.max_loss


MOST_KEPT: Final = 4 * 1024
"""Bytes of a call's arguments that are put on record where it is refused before it is a packet."""
GUARDED_ACTIONS: Final = {
    Event.ACT: GuardedAction.ACT,
    Event.WRITE: GuardedAction.WRITE,
    Event.TOKEN: GuardedAction.WRITE,
}


def policy_refusals(packet: AnyPacket, grant: str | None, stream: PacketStream) -> tuple[PreJudgeRefusal, ...]:
    """Return why the policy does not let an agent's packet count that the machine would accept."""
    event = classify_packet(packet)
    if event in DIRECTIVES:
        blockers = find_result_blockers(stream.standing, stream.context.house_rules, event, stream.limits)
        if blockers:
            return tuple(PreJudgeRefusal(rule, reason) for rule, reason in blockers)
    policy, memory = stream.policy, stream.memory
    if event is Event.ACT and not stream.verified:
        required = policy.quality.verification_requirement
        return (PreJudgeRefusal(POLICY_1, f"the policy asks for {required}: nothing is done before it was verified"),)
    deed = GUARDED_ACTIONS.get(event)
    if deed is None or memory.allows(grant, deed):
        return ()
    level = packet.compliance.stakes.stakes_level
    if deed is not GuardedAction.ACT and memory.stakes is not None:
        # What is done is at least as grave as the decision that it comes from.
        level = max(level, memory.stakes, key=LEVELS.index)
    return tuple(
        PreJudgeRefusal(POLICY_2, f"the policy says that an operator is asked first: {condition}")
        for condition in policy.escalation.conditions()
        if condition.holds(deed, level)
    )


def size_refusals(said: bytes, stream: PacketStream) -> tuple[PreJudgeRefusal, ...]:
    """Return why a packet, or a call's arguments, are refused that have more bytes than a packet may have."""
    most = stream.packet_limits.packet_bytes
    return (PreJudgeRefusal(SIZE_1, f"it has {len(said)} bytes, and a packet has at most {most}"),)


def encode_attempt(tool: str, arguments: bytes) -> bytes:
    """Return what is on record of a call that is no packet: the arguments, as far as they can be said as JSON.

    Of what is too long it is the size and the digest.
    """
    said: dict[str, object] = {"tool": tool}
    try:
        if len(arguments) <= MOST_KEPT:
            said["arguments"] = msgspec.json.decode(arguments)
        else:
            said |= name_by_digest(arguments)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        said["unreadable"] = len(arguments)
    return msgspec.json.encode(said)
