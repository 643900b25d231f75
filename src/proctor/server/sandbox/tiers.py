"""How strongly an environment is kept apart: the tiers, what a server wishes for, and the limits of one worker.

Rule 1: values only. What is enforced on this host is measured in `probe`, never read off a name.
Rule 2: nothing of the host is visible in a sandbox but what is mounted by name.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from proctor.errors import ValidationError

MIB: Final = 2**20
NOBODY: Final = 65534
"""The user and the group that environments are, as they see it."""
START_SECONDS: Final = 60.0
HOME: Final = "/tmp"  # noqa: S108 - a tmpfs of the sandbox's own


class Tier(StrEnum):
    """The tiers, weakest first; `docker` is never chosen, only named."""

    NONE = "none"
    PROCESS = "process"
    BWRAP = "bwrap"
    STRICT = "strict"
    DOCKER = "docker"

    @property
    def rank(self) -> int:
        """Its place in the order: a higher rank keeps more apart."""
        return list(Tier).index(self)

    @property
    def about(self) -> str:
        """What it is, in a sentence."""
        return ABOUT[self]


ABOUT: Final = {
    Tier.NONE: "The environment runs in the server's own process.",
    Tier.PROCESS: "A process of its own, without the server's environment variables, with limits that a process has.",
    Tier.BWRAP: "A process in bubblewrap: no network, no host files but those mounted by name, nothing writable but a "
    "sized tmpfs.",
    Tier.STRICT: "As bwrap, as nobody without capabilities; each session has a cgroup, namespaces and a seccomp filter "
    "of its own.",
    Tier.DOCKER: "A container without network, read-only, without capabilities, with the limits of strict by flags.",
}


@dataclass(frozen=True, slots=True)
class SandboxLimits:
    """What one worker may use; `cpus` in cores, `processes` counts threads too."""

    memory_bytes: int = 1024 * MIB
    processes: int = 64
    cpus: float = 1.0
    file_bytes: int = 64 * MIB
    tmp_bytes: int = 64 * MIB
    open_files: int = 256
    answer_bytes: int = 8 * MIB
    """Of one answer to the server."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A path of the host that a sandbox sees, at the same place unless `inside` says another."""

    path: Path
    inside: Path | None = None
    writable: bool = False

    @classmethod
    def parse(cls, text: str) -> "Mount":
        """Return the mount that a setting names: `PATH`, or `PATH:rw` for a writable one."""
        name, writable = (text[:-3], True) if text.endswith(":rw") else (text, False)
        path = Path(name)
        if not path.is_absolute() or "\0" in name or path.resolve() == Path("/"):
            raise ValidationError("this is no path to mount", found=text, expected="an absolute path other than /")
        try:
            path.stat()
        except OSError as problem:
            reason = f"this path cannot be mounted: {problem.strerror}"
            raise ValidationError(reason, found=text, expected="a file or a folder") from None
        return cls(path, writable=writable)

    @property
    def place(self) -> Path:
        """Where it is seen inside."""
        return self.path if self.inside is None else self.inside


@dataclass(frozen=True, slots=True)
class SandboxRequest:
    """What was asked for; `tier` None is auto: the strongest of none..strict that this host enforces."""

    tier: Tier | None = None
    mounts: tuple[Mount, ...] = ()
    network: bool = False
    limits: SandboxLimits = field(default_factory=SandboxLimits)
