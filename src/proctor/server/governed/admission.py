"""What an agent may submit as a packet: GOV-1 to GOV-3, checked before the judge sees it. Pure.

Rule 1: the three sentences stand in `proctor.episode.governing`. What the proctor sets itself are `packet_id`, `created_at`,
    `correlation_id` and `routing.tools_state`; an agent's own id and time are kept as the notes `_stated_id` and `_stated_at`.
Rule 2: what is not a packet at all passes here: the judge says what is wrong with it, field by field.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from proctor.contracts.tools import ToolSafety
from proctor.episode.envelope import Budgets, Quality, RiskBudget, Stakes
from proctor.episode.events import safety_of
from proctor.episode.governing import GOV_1, GOV_2, GOV_3
from proctor.episode.kinds import Method, PacketKind, ToolsState
from proctor.episode.packets import AnyPacket
from proctor.episode.payloads import BeliefUpdate, Decision, Directive, Escalation, VerificationPlan
from proctor.episode.states import Event
from proctor.server.governed.memory import STATED_ID
from proctor.server.governed.policy import STRICTNESS, GovernancePolicy
from proctor.server.governed.stream import Bar

KINDS: Final = (
    PacketKind.BELIEF_UPDATE,
    PacketKind.DECISION,
    PacketKind.VERIFICATION_PLAN,
    PacketKind.DIRECTIVE,
    PacketKind.ESCALATION,
)
"""What an agent may state."""
LAYERS: Final = (2, 3, 4, 5)
STATED: Final = {"_stated_at": "created_at", STATED_ID: "packet_id"}
"""What an agent says of itself in the header and the proctor sets: by the note that keeps it."""
_KINDS: Final = ", ".join(KINDS)
encode: Final = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True, slots=True)
class Terms:
    """What the proctor says of the packet that comes next."""

    correlation_id: str
    packet_id: str
    now: datetime
    tools_state: ToolsState


def barred(submitted: Mapping[str, Any], terms: Terms, policy: GovernancePolicy) -> tuple[Bar, ...]:
    """Return why a submitted object may not be said by an agent; nothing if it may."""
    return (*_kind_bars(submitted), *_setting_bars(submitted, terms), *_measure_bars(submitted, policy))


def completed(submitted: Mapping[str, Any], terms: Terms) -> bytes:
    """Return the line that is judged: what was submitted, with what the proctor sets."""
    packet = {key: value for key, value in submitted.items() if key not in STATED}
    header, envelope = submitted.get("header"), submitted.get("mcp")
    if isinstance(header, dict):
        packet |= {note: header[field] for note, field in STATED.items() if field in header}
        ours = {"packet_id": terms.packet_id, "correlation_id": terms.correlation_id, "created_at": terms.now}
        packet["header"] = {**header, **ours}
    if isinstance(envelope, dict) and isinstance(envelope.get("routing"), dict):
        packet["mcp"] = {**envelope, "routing": {**envelope["routing"], "tools_state": terms.tools_state}}
    return encode(packet)


def content_bars(packet: AnyPacket, tools: Mapping[str, ToolSafety]) -> tuple[Bar, ...]:
    """Return why the proctor does not do what a submitted packet asks for; `tools` are those of its agent."""
    if isinstance(packet.payload, Directive):
        return _directive_bars(packet.payload, tools)
    return _option_bars(packet.payload) if isinstance(packet.payload, Escalation) else ()


def reference_bars(packet: AnyPacket, stated: Mapping[str, str]) -> Iterator[Bar]:
    """Yield why a packet may not name others as it does; `stated` are its agent's own ids, each with what the packet is called."""
    for pointer, name in _references(packet):
        if name is not None and name in stated:
            reason = f"packets have the ids that the answers tell: what you call {name} is {stated[name]}"
            yield Bar(GOV_2, reason, pointer)


def _references(packet: AnyPacket) -> Iterator[tuple[str, str | None]]:
    """Yield the ids of other packets that a packet of an agent names, each with where it stands."""
    payload = packet.payload
    yield "/header/previous_packet_id", packet.header.previous_packet_id
    for i, reference in enumerate(packet.compliance.evidence.evidence_refs):
        yield f"/mcp/evidence/evidence_refs/{i}/ref_id", reference.ref_id
    match payload:
        case BeliefUpdate():
            yield from _each("/payload/evidence_integration", payload.evidence_integration)
            details = payload.contradiction_details
            named = None if details is None else details.conflicting_packet_ids
            yield from _each("/payload/contradiction_details/conflicting_packet_ids", named)
        case Decision():
            for i, assumption in enumerate(payload.load_bearing_assumptions or ()):
                yield f"/payload/load_bearing_assumptions/{i}/verification_packet_id", assumption.verification_packet_id
        case VerificationPlan():
            yield "/payload/triggering_decision_id", payload.triggering_decision_id
        case Escalation():
            yield "/payload/blocking_decision_packet_id", payload.blocking_decision_packet_id


def _each(pointer: str, names: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    return ((f"{pointer}/{i}", name) for i, name in enumerate(names or ()))


def _option_bars(payload: Escalation) -> tuple[Bar, ...]:
    ids = [option.option_id for option in payload.top_options]
    if len(set(ids)) == len(ids):
        return ()
    return (Bar("SCHEMA", "two options have one id: nobody could choose between them", "/payload/top_options"),)


def _directive_bars(payload: Directive, tools: Mapping[str, ToolSafety]) -> tuple[Bar, ...]:
    method, tool = payload.execution_method.method, payload.execution_method.tool_id
    names = ", ".join(tools)
    if method is not Method.TOOL:
        reason = f"the proctor carries out tools only, not {method}; the tools are {names}"
        return (Bar(GOV_1, reason, "/payload/execution_method/method"),)
    if tool is None or tool not in tools:
        return (Bar(GOV_1, f"there is no such tool here; the tools are {names}", "/payload/execution_method/tool_id"),)
    if safety_of(payload) is Event.READ and STRICTNESS[tools[tool]]:
        reason = f"the tool {tool} is {tools[tool]} under the policy, so its directive is no READ"
        return (Bar(GOV_3, reason, "/payload/tool_safety_class"),)
    return ()


# ------------------------------------------------------------------------------------------------------------- GOV-1
def _kind_bars(submitted: Mapping[str, Any]) -> Iterator[Bar]:
    if "record" in submitted:
        yield Bar(GOV_1, f"records are stated by the proctor or an operator; an agent states {_KINDS}", "/record")
        return
    header = submitted.get("header")
    if not isinstance(header, dict):
        return
    kind, layer = header.get("packet_type"), header.get("layer_source")
    if kind is not None and kind not in KINDS:
        reason = f"an agent may not state this; it states {_KINDS}. The rest comes from the proctor or an operator"
        yield Bar(GOV_1, reason, "/header/packet_type")
    if layer is not None and (isinstance(layer, bool) or layer not in LAYERS):
        yield Bar(GOV_1, "an agent speaks from the layers 2, 3, 4 and 5", "/header/layer_source")


# ------------------------------------------------------------------------------------------------------------- GOV-2
def _setting_bars(submitted: Mapping[str, Any], terms: Terms) -> Iterator[Bar]:
    header, envelope = submitted.get("header"), submitted.get("mcp")
    if isinstance(header, dict) and header.get("correlation_id", terms.correlation_id) != terms.correlation_id:
        reason = "a packet belongs to this episode and no other: leave correlation_id out, the proctor sets it"
        yield Bar(GOV_2, reason, "/header/correlation_id")
    routing = envelope.get("routing") if isinstance(envelope, dict) else None
    if isinstance(routing, dict) and routing.get("tools_state", ToolsState.OK) not in (
        ToolsState.OK,
        terms.tools_state,
    ):
        reason = f"the tools are {terms.tools_state}: leave tools_state out, the proctor sets it"
        yield Bar(GOV_2, reason, "/mcp/routing/tools_state")


# ------------------------------------------------------------------------------------------------------------- GOV-3
def _measure_bars(submitted: Mapping[str, Any], policy: GovernancePolicy) -> Iterator[Bar]:
    envelope = submitted.get("mcp")
    if not isinstance(envelope, dict):
        return
    defaults = policy.defaults
    stakes, quality = _read(envelope.get("stakes"), Stakes), _read(envelope.get("quality"), Quality)
    budgets = _read(envelope.get("budgets"), Budgets)
    if stakes is not None:
        for name in Stakes.__struct_fields__:
            yield from _below(f"/mcp/stakes/{name}", getattr(stakes, name), getattr(defaults.stakes, name))
    if quality is not None:
        yield from _poorer(quality, defaults.quality)
    if budgets is not None:
        yield from _dearer(budgets, defaults.budgets)


def _read(section: Any, kind: type[Any]) -> Any:
    """Return a section of the envelope, or None if it is none: then the judge says what is wrong with it."""
    try:
        return msgspec.json.decode(msgspec.json.encode(section), type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _below(pointer: str, stated: StrEnum, least: StrEnum) -> Iterator[Bar]:
    order = list(type(least))
    if order.index(stated) < order.index(least):
        yield Bar(GOV_3, f"{stated} is below what the policy says, {least}", pointer)


def _poorer(stated: Quality, least: Quality) -> Iterator[Bar]:
    yield from _below("/mcp/quality/quality_tier", stated.quality_tier, least.quality_tier)
    requirement = "/mcp/quality/verification_requirement"
    yield from _below(requirement, stated.verification_requirement, least.verification_requirement)
    if stated.satisficing_mode and not least.satisficing_mode:
        yield Bar(GOV_3, "the policy does not let good enough be enough", "/mcp/quality/satisficing_mode")


_BUDGETS: Final = ("token_budget", "tool_call_budget", "time_budget_seconds")


def _dearer(stated: Budgets, most: Budgets) -> Iterator[Bar]:
    for name in _BUDGETS:
        if getattr(stated, name) > getattr(most, name):
            reason = f"{getattr(stated, name)} is more than the policy allows, {getattr(most, name)}"
            yield Bar(GOV_3, reason, f"/mcp/budgets/{name}")
    if not _within(stated.risk_budget, most.risk_budget):
        reason = (
            f"the policy's risk budget is {most.risk_budget.envelope!r} with a loss of {most.risk_budget.max_loss!r}"
        )
        yield Bar(GOV_3, reason, "/mcp/budgets/risk_budget")


def _within(stated: RiskBudget, most: RiskBudget) -> bool:
    """Return whether no more risk is stated: of two texts nobody knows which is more, so they must be the same."""
    if stated.envelope != most.envelope:
        return False
    numbers = isinstance(stated.max_loss, int | float) and isinstance(most.max_loss, int | float)
    return stated.max_loss <= most.max_loss if numbers else stated.max_loss == most.max_loss  # type: ignore[operator]  # two numbers
