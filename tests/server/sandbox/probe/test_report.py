"""What follows from what was found."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.server.sandbox.probe.attacks import SandboxProbe
from proctor.server.sandbox.probe.run import (
    CHOICES,
    ProbeFinding,
    ProbeVerdict,
    SandboxReport,
    TierReport,
    find_next_tier,
    refusal,
    strongest,
)
from proctor.server.sandbox.tiers import SandboxRequest, Tier
from tests.server.sandbox.made_up_reports import HOST, kept, reported

VERDICTS = st.dictionaries(st.sampled_from(list(SandboxProbe)), st.sampled_from(list(ProbeVerdict)), max_size=15)


def found_in(tier: Tier, verdicts: dict[SandboxProbe, ProbeVerdict], lacking: str | None = None) -> TierReport:
    return TierReport(
        tier, tuple(ProbeFinding(probe, verdict, "reason") for probe, verdict in verdicts.items()), lacking
    )


TIERS = st.lists(
    st.builds(found_in, st.sampled_from(CHOICES), VERDICTS, st.none() | st.just("no bubblewrap")),
    max_size=4,
    unique_by=lambda each: each.tier,
)


@given(TIERS)
def test_the_strongest_tier_holds_and_nothing_stronger_does(tiers: list[TierReport]) -> None:
    report = SandboxReport(HOST, tuple(tiers))
    chosen = strongest(report)
    holding = [each.tier for each in tiers if each.holds()]

    assert chosen in holding or chosen is Tier.NONE
    assert all(tier.rank <= chosen.rank for tier in holding)


@given(TIERS, st.sampled_from([None, *Tier]))
def test_a_wish_is_refused_if_and_only_if_it_was_not_seen_to_hold(tiers: list[TierReport], wished: Tier | None) -> None:
    report = SandboxReport(HOST, tuple(tiers))
    said = refusal(SandboxRequest(wished), report)
    tried = None if wished is None else report.of(wished)

    if wished in (None, Tier.NONE, Tier.DOCKER):
        assert said is None
    else:
        assert (said is None) == (tried is not None and tried.holds())


@given(TIERS)
def test_what_is_missing_is_told_of_the_next_tier(tiers: list[TierReport]) -> None:
    report = SandboxReport(HOST, tuple(tiers))
    step = find_next_tier(report)
    stronger = [each.tier.rank for each in tiers if each.tier.rank > strongest(report).rank]

    assert (step is None) == (not stronger)
    if step is not None:
        assert step[0].rank == min(stronger)
        assert step[1]


@given(TIERS)
def test_a_report_survives_being_recorded(tiers: list[TierReport]) -> None:
    report = SandboxReport(HOST, tuple(tiers))

    assert msgspec.json.decode(msgspec.json.encode(report), type=SandboxReport) == report


@pytest.mark.parametrize("probe", SandboxProbe)
def test_every_probe_is_promised_by_a_tier_that_it_can_break(probe: SandboxProbe) -> None:
    broken = reported([kept(Tier.STRICT, {probe: ProbeVerdict.OPEN})])
    unproven = reported([kept(Tier.STRICT, {probe: ProbeVerdict.UNPROVEN})])

    assert strongest(reported()) is Tier.STRICT
    assert strongest(broken) is strongest(unproven) is Tier.BWRAP
    assert probe.about


def test_a_tier_is_not_held_to_what_only_a_stronger_one_promises() -> None:
    assert kept(Tier.PROCESS, {SandboxProbe.NETWORK: ProbeVerdict.OPEN}).holds()
    assert not kept(Tier.PROCESS, {SandboxProbe.ENVIRONMENT: ProbeVerdict.OPEN}).holds()


def test_a_network_is_always_a_broken_promise() -> None:
    assert strongest(reported([kept(Tier.STRICT, {SandboxProbe.NETWORK: ProbeVerdict.OPEN})])) is Tier.BWRAP


def test_a_refusal_says_what_is_open_or_what_to_do() -> None:
    leaking = reported([kept(Tier.BWRAP, {SandboxProbe.HOST_FILES: ProbeVerdict.OPEN})])
    missing = reported([TierReport(Tier.BWRAP, lacking="bubblewrap is not installed; install it")])
    wish = SandboxRequest(Tier.BWRAP)

    assert refusal(wish, leaking) == ("this host does not enforce the sandbox bwrap: host files is open (so it is)")
    assert "install it" in str(refusal(wish, missing))
    assert "was not tried" in str(refusal(wish, SandboxReport(HOST, ())))


def test_a_probe_that_was_not_run_proves_nothing() -> None:
    lacking = TierReport(Tier.STRICT, lacking="no cgroups").of(SandboxProbe.NETWORK)
    untried = TierReport(Tier.STRICT).of(SandboxProbe.NETWORK)

    assert (lacking.verdict, lacking.reason) == (ProbeVerdict.UNPROVEN, "no cgroups")
    assert untried.verdict is ProbeVerdict.UNPROVEN
