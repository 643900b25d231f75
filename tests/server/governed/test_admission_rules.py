"""What an agent may submit, as a pure function: GOV-1 to GOV-3 kept and broken."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.episode.packets.enums import Level, PacketKind, QualityTier, ToolsState
from proctor.episode.packets.reader import Packet, read
from proctor.episode.rules.governance import GOV_1, GOV_2, GOV_3
from proctor.server.governed.packet_checks import AGENT_KINDS, PacketTerms, complete_packet, find_refusals
from tests.server.governed.governed_sessions import BELIEF, packet, policy_with

POLICY = policy_with("standard")
TERMS = PacketTerms("corr_s_1", "pkt_s_1_9", datetime(2030, 1, 1, tzinfo=UTC), ToolsState.OK)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
objects = st.fixed_dictionaries(
    {},
    optional={
        "header": st.fixed_dictionaries(
            {}, optional={"packet_type": st.sampled_from(list(PacketKind)) | values, "layer_source": values}
        )
        | values,
        "mcp": st.dictionaries(st.sampled_from(["stakes", "quality", "budgets", "routing"]), values, max_size=4)
        | values,
        "payload": values,
        "record": values,
        "_stated_at": values,
    },
)


def rules(submitted: dict[str, Any]) -> list[str]:
    return [bar.rule for bar in find_refusals(submitted, TERMS, POLICY)]


@given(submitted=objects)
@settings(max_examples=50)
def test_whatever_is_submitted_is_looked_at_without_an_exception(submitted: dict[str, Any]) -> None:
    found = find_refusals(submitted, TERMS, POLICY)
    line = json.loads(complete_packet(submitted, TERMS))

    assert all(bar.rule in (GOV_1, GOV_2, GOV_3) for bar in found)
    header = line.get("header")
    if isinstance(header, dict):
        assert header["correlation_id"] == TERMS.correlation_id
        assert header["created_at"] == "2030-01-01T00:00:00Z"


@given(kind=st.sampled_from(list(PacketKind)), layer=st.sampled_from([1, 2, 3, 4, 5, 6, "Integrity"]))
def test_gov_1_lets_five_kinds_from_four_layers_pass(kind: PacketKind, layer: int | str) -> None:
    found = rules(packet(POLICY, kind, {}, layer))

    assert (found == []) == (kind in AGENT_KINDS and layer in (2, 3, 4, 5))
    assert set(found) <= {"GOV-1"}


@given(level=st.sampled_from(list(Level)), tier=st.sampled_from(list(QualityTier)), calls=st.integers(0, 4000))
def test_gov_3_lets_pass_what_is_as_strict_as_the_policy_or_stricter(
    level: Level, tier: QualityTier, calls: int
) -> None:
    submitted = packet(
        POLICY,
        "BeliefUpdatePacket",
        BELIEF,
        3,
        stakes={"stakes_level": level},
        quality={"quality_tier": tier},
        budgets={"tool_call_budget": calls},
    )

    lower = [level == "LOW", tier == "SUBPAR", calls > POLICY.budgets.tool_call_budget]
    assert rules(submitted) == ["GOV-3"] * sum(lower)


def test_gov_2_fills_in_what_is_left_out_and_keeps_the_agents_own_time() -> None:
    submitted = packet(POLICY, "BeliefUpdatePacket", BELIEF, 3, header={"created_at": "yesterday"})

    found = read(complete_packet(submitted, TERMS))

    assert isinstance(found, Packet)
    assert (found.header.packet_id, found.header.correlation_id) == ("pkt_s_1_9", "corr_s_1")
    assert found.header.created_at == TERMS.now
    assert found.compliance.routing.tools_state is ToolsState.OK
    assert bytes(found.notes["_stated_at"]) == b'"yesterday"'


def test_a_section_that_cannot_be_read_is_left_to_the_judge() -> None:
    submitted = packet(POLICY, "BeliefUpdatePacket", BELIEF, 3, stakes={"impact": "TINY"})

    assert rules(submitted) == []
    assert not isinstance(read(complete_packet(submitted, TERMS)), Packet)


def test_satisficing_is_below_a_policy_that_does_not_allow_it() -> None:
    strict = policy_with("strict")
    submitted = packet(strict, "BeliefUpdatePacket", BELIEF, 3, quality={"satisficing_mode": True})

    assert [bar.pointer for bar in find_refusals(submitted, TERMS, strict)] == ["/mcp/quality/satisficing_mode"]
