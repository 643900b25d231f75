"""Reports as a host could give them, without anything being tried."""

from collections.abc import Iterable, Mapping

from proctor.server.sandbox.attacks import SandboxProbe
from proctor.server.sandbox.probe import CHOICES, HostFacts, ProbeFinding, ProbeVerdict, SandboxReport, TierReport
from proctor.server.sandbox.tiers import Tier

HOST = HostFacts("6.1", "x86_64", True, "0.8.0", "version 2, tried", "allowed", ("podman",))


def kept(tier: Tier, others: Mapping[SandboxProbe, ProbeVerdict] | None = None) -> TierReport:
    """Return a tier that blocks exactly what it promises, but for some others."""
    expected = {
        probe: ProbeVerdict.BLOCKED if probe.promised.rank <= tier.rank else ProbeVerdict.OPEN for probe in SandboxProbe
    } | dict(others or {})
    return TierReport(tier, tuple(ProbeFinding(probe, verdict, "so it is") for probe, verdict in expected.items()))


def reported(tiers: Iterable[TierReport] = ()) -> SandboxReport:
    """Return a report where every tier keeps its promises, but for those that are given."""
    given = {each.tier: each for each in tiers}
    return SandboxReport(HOST, tuple(given.get(tier, kept(tier)) for tier in reversed(CHOICES)))
