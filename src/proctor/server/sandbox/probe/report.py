"""What was found out about the tiers on this host, as a value that can be recorded, and what follows from it.

Rule 1: a probe is `blocked`, `open` or `unproven`; nothing is called blocked that was not tried.
Rule 2: a tier holds if everything that it promises was tried and blocked. A tier that does not hold is not used.
"""

from enum import StrEnum
from typing import Final, Self

import msgspec

from proctor.server.sandbox.tiers import SandboxRequest, Tier

CHOICES: Final = (Tier.STRICT, Tier.BWRAP, Tier.PROCESS, Tier.NONE)
"""What `auto` chooses from, strongest first."""


class ProbeVerdict(StrEnum):
    """What came of a probe."""

    BLOCKED = "blocked"
    OPEN = "open"
    UNPROVEN = "unproven"


class SandboxProbe(StrEnum):
    """What environment code could try, by the words in which it is told; what is tried; the weakest tier that promises to block it."""

    about: str
    promised: Tier

    def __new__(cls, words: str, about: str, promised: Tier) -> Self:
        """Return a member that is its words."""
        member = str.__new__(cls, words)
        member._value_ = words
        member.about, member.promised = about, promised
        return member

    NETWORK = "network", "reach a host port", Tier.BWRAP
    ABSTRACT_SOCKETS = "abstract sockets", "reach the host's", Tier.BWRAP
    HOST_FILES = "host files", "read one", Tier.BWRAP
    HOST_WRITES = "host writes", "make a file", Tier.BWRAP
    PYTHON_FILES = "Python's files", "change them", Tier.BWRAP
    ENVIRONMENT = "environment variables", "read the server's own", Tier.PROCESS
    PROC = "/proc", "see a host process", Tier.BWRAP
    PTRACE = "ptrace", "trace a host process", Tier.BWRAP
    SIGNALS = "signals", "kill a host process", Tier.BWRAP
    DISK = "disk filling", "go over the limit", Tier.BWRAP
    MEMORY_BOMB = "memory bomb", "one over the limit", Tier.PROCESS
    MEMORY_OF_MANY = "memory of many", "go over the limit", Tier.STRICT
    FORK_BOMB = "fork bomb", "go over the limit", Tier.STRICT
    USER_NAMESPACES = "user namespaces", "make one", Tier.BWRAP
    KERNEL_CALLS = "kernel calls", "make one that is not needed", Tier.BWRAP
    NEIGHBOURS = "neighbours", "hurt another session", Tier.STRICT


class ProbeFinding(msgspec.Struct, frozen=True):
    """What came of one probe in one tier, with a sentence."""

    probe: SandboxProbe
    verdict: ProbeVerdict
    reason: str


class TierReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was found in one tier; `lacking` says why it could not be tried, `note` what it costs here."""

    tier: Tier
    findings: tuple[ProbeFinding, ...] = ()
    lacking: str | None = None
    note: str | None = None

    def of(self, probe: SandboxProbe) -> ProbeFinding:
        """Return what came of a probe; one that was not run proves nothing."""
        reason = "it was not tried" if self.lacking is None else self.lacking
        untried = ProbeFinding(probe, ProbeVerdict.UNPROVEN, reason)
        return next((each for each in self.findings if each.probe is probe), untried)

    def find_faults(self) -> tuple[ProbeFinding, ...]:
        """Return what this tier promises and does not keep."""
        promised = (each for each in self.findings if each.probe.promised.rank <= self.tier.rank)
        return tuple(each for each in promised if each.verdict is not ProbeVerdict.BLOCKED)

    def holds(self) -> bool:
        """Return whether it can be used: it was tried, and keeps what it promises."""
        return self.lacking is None and not self.find_faults()


class HostFacts(msgspec.Struct, frozen=True):
    """What this host has; words where something is missing."""

    kernel: str
    architecture: str
    root: bool
    bubblewrap: str | None
    cgroups: str
    user_namespaces: str
    engines: tuple[str, ...]


class SandboxReport(msgspec.Struct, frozen=True):
    """What each tier that was tried really blocks on this host."""

    host: HostFacts
    tiers: tuple[TierReport, ...]

    def of(self, tier: Tier) -> TierReport | None:
        """Return what was found in a tier, None if it was not tried."""
        return next((each for each in self.tiers if each.tier is tier), None)


def strongest(report: SandboxReport) -> Tier:
    """Return the strongest of none..strict that holds."""
    holding = {each.tier for each in report.tiers if each.holds()}
    return next((tier for tier in CHOICES if tier in holding), Tier.NONE)


def find_next_tier(report: SandboxReport) -> tuple[Tier, str] | None:
    """Return the next stronger tier than the strongest that holds, and what is missing for it; None if there is none."""
    holding = strongest(report)
    stronger = [each for each in report.tiers if each.tier in CHOICES and each.tier.rank > holding.rank]
    if not stronger:
        return None
    found = min(stronger, key=lambda each: each.tier.rank)
    return found.tier, explain_shortcoming(found)


def refusal(wish: SandboxRequest, report: SandboxReport) -> str | None:
    """Return in words why the tier that was asked for is not enforced here, None if it is or if any will do."""
    if wish.tier is None or wish.tier in (Tier.NONE, Tier.DOCKER):
        return None
    found = report.of(wish.tier)
    if found is None:
        return f"the sandbox {wish.tier} was not tried on this host; `proctor doctor` tries it"
    if found.holds():
        return None
    return f"this host does not enforce the sandbox {wish.tier}: {explain_shortcoming(found)}"


def explain_shortcoming(found: TierReport) -> str:
    """Return in words what keeps a tier from holding."""
    if found.lacking is not None:
        return found.lacking
    return "; ".join(f"{each.probe} is {each.verdict} ({each.reason})" for each in found.find_faults())
