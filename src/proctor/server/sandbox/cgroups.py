"""Where control groups can be made on this host, in versions 1 and 2, or in words why they cannot.

Rule 1: a group is made below the server's own, so that limits of the server hold for its workers too.
Rule 2: a server's groups are `proctor-<pid>-<boot>-<number>/<name>`; what a dead server left is swept by the next.
Rule 3: what is found was tried: a group was made, limited and removed.
"""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from proctor.server.sandbox.control_group import (
    CONTROLLERS,
    KERNEL,
    LEAF,
    PREFIX,
    Folders,
    Group,
    all_removed,
    orders,
    read,
    removed,
    write,
)
from proctor.server.sandbox.tiers import SandboxLimits

__all__ = ["Cgroups", "Group", "found", "missing"]

ROOT: Final = Path("/sys/fs/cgroup")
DELEGATE: Final = "start the server with `systemd-run --user --scope -p Delegate=yes`"
AS_ROOT: Final = "start the server as root, or give this user a group in each hierarchy"
_NUMBERS: Final = count(1)


@dataclass(frozen=True, slots=True)
class Cgroups:
    """Where this server may make groups; `proven` says that a group was made and limited here, by a real kernel."""

    version: int
    homes: tuple[Path, ...]
    family: str
    proven: bool = False
    kernel: Folders = KERNEL

    def make(self, name: str, limits: SandboxLimits) -> Group:
        """Make a group with these limits, or raise an OSError."""
        for home in self.homes:
            _family(home / self.family, self.version, self.kernel)
        group = Group(tuple(home / self.family / name for home in self.homes), self.version, self.kernel)
        try:
            for folder in group.folders:
                self.kernel.make(folder)
            for order in orders(self.version, limits):
                group.obey(order)
        except FileExistsError:
            raise  # it is another's, and stays
        except OSError:
            group.remove()
            raise
        return group

    def close(self) -> bool:
        """Remove this server's own folder, and return whether it is gone; groups in it have to be gone before."""
        return all_removed((home / self.family for home in self.homes), self.kernel)

    def sweep(self, prefix: str = PREFIX) -> int:
        """Remove the empty groups that dead servers left, and return how many folders went."""
        return sum(_swept(folder, self.kernel) for home in self.homes for folder in _dead(home, prefix, self.family))


def found(root: Path = ROOT, membership: str | None = None, *, kernel: Folders = KERNEL) -> Cgroups | None:
    """Return where groups can be made, None if nowhere; `missing` then says why."""
    looked = _looked(root, membership, kernel)
    return looked if isinstance(looked, Cgroups) else None


def missing(root: Path = ROOT, membership: str | None = None, *, kernel: Folders = KERNEL) -> str | None:
    """Return in words why no group can be made here, None if one can."""
    looked = _looked(root, membership, kernel)
    return None if isinstance(looked, Cgroups) else looked


def _looked(root: Path, membership: str | None, kernel: Folders) -> Cgroups | str:
    try:
        own = _memberships(membership)
        if (root / "cgroup.controllers").exists():
            cgroups = _unified(root, own, kernel)
        else:
            cgroups = _separate(root, own, kernel)
        return cgroups if isinstance(cgroups, str) else _tried(cgroups, root)
    except OSError as problem:
        return f"{problem.filename or root} cannot be used: {problem.strerror}"


def _tried(cgroups: Cgroups, root: Path) -> Cgroups:
    """Return the same after a group was really made."""
    try:
        gone = cgroups.make(f"trial-{time.monotonic_ns()}", SandboxLimits()).remove()
    finally:
        cgroups.close()
    return Cgroups(cgroups.version, cgroups.homes, cgroups.family, gone and root.is_mount(), cgroups.kernel)


def _memberships(text: str | None) -> dict[str, str]:
    """Return this process's group for each controller; version 2 has the name ""."""
    lines = (text if text is not None else read(Path("/proc/self/cgroup"))).splitlines()
    rows = (line.split(":", 2) for line in lines)
    return {name: path for _, names, path in rows for name in names.split(",")}


def _separate(root: Path, own: dict[str, str], kernel: Folders) -> Cgroups | str:
    homes = []
    for controller in CONTROLLERS:
        hierarchy = next((root / name for name in _hierarchies(root, controller)), None)
        if hierarchy is None:
            return f"the kernel offers no {controller} controller below {root}"
        inner = hierarchy / own.get(controller, "/").lstrip("/")
        homes.append(inner if inner.is_dir() else hierarchy)
    return _writable(Cgroups(1, tuple(homes), _family_name(), kernel=kernel))


def _hierarchies(root: Path, controller: str) -> Iterator[str]:
    with suppress(OSError):
        for folder in sorted(root.iterdir()):
            if controller in folder.name.split(",") and (folder / "cgroup.procs").exists():
                yield folder.name


def _unified(root: Path, own: dict[str, str], kernel: Folders) -> Cgroups | str:
    inner = root / own.get("", "/").lstrip("/")
    home = inner if inner.is_dir() else root
    if home.name.startswith(PREFIX) and home.name.endswith(LEAF):
        # A server went down into this leaf before it started this process.
        home = home.parent
    offered = read(home / "cgroup.controllers").split()
    lacking = [controller for controller in CONTROLLERS if controller not in offered]
    if lacking:
        return f"the controllers {', '.join(lacking)} are not delegated to {home}; {DELEGATE}"
    cgroups = _writable(Cgroups(2, (home,), _family_name(), kernel=kernel))
    return cgroups if isinstance(cgroups, str) else _handing_down(cgroups)


def _handing_down(cgroups: Cgroups) -> Cgroups | str:
    """Return the same after the controllers were handed down from its home, or why that cannot be."""
    home = cgroups.homes[0]
    if set(CONTROLLERS) <= set(read(home / "cgroup.subtree_control").split()):
        return cgroups
    # Only the root of all groups may have processes of its own and hand controllers down, and it alone has no type.
    pids = [int(pid) for pid in read(home / "cgroup.procs").split()] if (home / "cgroup.type").exists() else []
    if set(pids) - {os.getpid()}:
        return f"{home} holds other processes than this server; {DELEGATE}"
    if pids:
        _go_down(home / f"{cgroups.family}{LEAF}", cgroups.kernel)
    _hand_down(home)
    return cgroups


def _go_down(leaf: Path, kernel: Folders) -> None:
    with suppress(FileExistsError):
        kernel.make(leaf)
    write(leaf / "cgroup.procs", str(os.getpid()))


def _writable(cgroups: Cgroups) -> Cgroups | str:
    for home in cgroups.homes:
        if not os.access(home, os.W_OK):
            return f"{home} is not writable for this user; {DELEGATE if cgroups.version == 2 else AS_ROOT}"
    return cgroups


def _family_name() -> str:
    """Return a name that no other `Cgroups` has, in this process or another."""
    return f"{PREFIX}{os.getpid()}-{_boot()}-{next(_NUMBERS)}"


def _boot() -> str:
    """Return a word for this start of the machine, since numbers of processes begin anew with it."""
    with suppress(OSError):
        return read(Path("/proc/sys/kernel/random/boot_id"))[:8]
    return "unknown"


def _family(folder: Path, version: int, kernel: Folders) -> None:
    try:
        kernel.make(folder)
    except FileExistsError:
        return
    if version == 2:
        _hand_down(folder)


def _hand_down(folder: Path) -> None:
    write(folder / "cgroup.subtree_control", " ".join(f"+{controller}" for controller in CONTROLLERS))


def _dead(home: Path, prefix: str, own: str) -> Iterator[Path]:
    with suppress(OSError):
        for folder in home.glob(f"{prefix}*"):
            if folder.is_dir() and folder.name != own and not _is_alive(folder.name.removeprefix(PREFIX)):
                yield folder


def _is_alive(name: str) -> bool:
    """Whether the server of `<pid>-<boot>` may still run."""
    pid, _, boot = name.partition("-")
    if not pid.isdigit():
        return True
    if boot.split("-")[0] != _boot():
        return False
    return Path(f"/proc/{pid}").exists()


def _swept(folder: Path, kernel: Folders) -> int:
    with suppress(FileNotFoundError):  # another server swept it meanwhile
        return sum(removed(child, kernel) for child in (*filter(Path.is_dir, folder.iterdir()), folder))
    return 0
