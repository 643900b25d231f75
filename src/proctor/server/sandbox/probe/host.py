"""What this host has of what the tiers need, and in words what it lacks and what to do about it.

Rule: this is what can be read off; what holds is tried in `probe`.
"""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from proctor.server.sandbox.container.engine import ENGINES
from proctor.server.sandbox.pool import bubblewrap, cgroups
from proctor.server.sandbox.probe.report import HostFacts
from proctor.server.sandbox.tiers import Tier
from proctor.server.sandbox.worker.syscalls import Architecture, here

INSTALL: Final = "bubblewrap is not installed; install it, for instance with `apt install bubblewrap`"
NO_LINUX: Final = "this is no Linux"
PROC_SYS: Final = Path("/proc/sys")
SWITCHES: Final = (
    ("user/max_user_namespaces", "0", "set user.max_user_namespaces to more than 0"),
    ("kernel/unprivileged_userns_clone", "0", "set kernel.unprivileged_userns_clone to 1"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "set kernel.apparmor_restrict_unprivileged_userns to 0"),
)
"""The kernel's settings by which user namespaces are forbidden: a file, what forbids them, and what to do."""
ALLOWED: Final = "allowed"


def collect_facts() -> HostFacts:
    """Return what this host has."""
    return HostFacts(
        kernel=platform.release(),
        architecture=platform.machine(),
        root=os.geteuid() == 0,
        bubblewrap=_read_bubblewrap_version(),
        cgroups=_describe_cgroups(),
        user_namespaces=check_user_namespaces(),
        engines=tuple(name for name in ENGINES if shutil.which(name) is not None),
    )


def explain_lacking(tier: Tier) -> str | None:
    """Return in words what a tier needs that this host plainly does not have, and what to do; None if it can be tried."""
    return None if tier is Tier.NONE else next(_find_missing(tier), None)


def _find_missing(tier: Tier) -> Iterator[str]:
    if not sys.platform.startswith("linux"):
        yield NO_LINUX
    if tier.rank >= Tier.BWRAP.rank and bubblewrap.find_executable() is None:
        yield INSTALL
    if tier.rank >= Tier.STRICT.rank:
        reason = cgroups.explain_missing_cgroups()
        if reason is not None:
            yield f"there are no cgroups: {reason}"
    if tier.rank >= Tier.BWRAP.rank and here() is None:
        yield f"there is no seccomp filter for {platform.machine()}, only for {' and '.join(Architecture)}"


def check_user_namespaces(settings: Path = PROC_SYS) -> str:
    """Return `allowed`, or in words what forbids a user namespace and what to do."""
    for name, forbidding, remedy in SWITCHES:
        with suppress(OSError):
            if (settings / name).read_text(encoding="ascii").strip() == forbidding:
                return f"forbidden by {name.replace('/', '.')}; {remedy}"
    return ALLOWED


def _read_bubblewrap_version() -> str | None:
    path = bubblewrap.find_executable()
    if path is None:
        return None
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=5)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as problem:
        return f"does not run: {problem}"
    return done.stdout.strip().removeprefix("bubblewrap ")


def _describe_cgroups() -> str:
    found = cgroups.find_cgroups()
    if found is None:
        return cgroups.explain_missing_cgroups() or "none"
    return f"version {found.version}, {'tried' if found.proven else 'unproven'}"
