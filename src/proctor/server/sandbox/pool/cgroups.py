"""Control groups, versions 1 and 2: where they can be made on this host, what limits a worker, how all of it is ended.

Rule 1: a group is made below the server's own, so that limits of the server hold for its workers too.
Rule 2: a server's groups are `proctor-<pid>-<boot>-<number>/<name>`; what a dead server left is swept by the next.
Rule 3: what is found was tried: a group was made, limited and removed.
Rule 4: a limit is one line for one file; which there are is data.
Rule 5: nothing waits long: `kill` and `remove` try for some milliseconds, and `remove` says whether the group is gone.
"""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Final

from proctor.errors import ComponentError
from proctor.server.sandbox.tiers import SandboxLimits

PREFIX: Final = "proctor-"
LEAF: Final = "-server"
PERIOD: Final = 100_000
"""Microseconds: the time over which a share of the processors is counted."""
OPTIONAL: Final = frozenset(("memory.swap.max", "memory.oom.group", "memory.memsw.limit_in_bytes"))
"""Limits that are left out where the kernel has no such file."""
CONTROLLERS: Final = ("memory", "pids", "cpu")
REMOVE_ROUNDS: Final = 20
PAUSE_SECONDS: Final = 0.002


class CgroupsMissing(ComponentError):
    """No group can be made here; the message says why, and what to do."""


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """One worker's group: one folder in version 2, one per controller in version 1."""

    folders: tuple[Path, ...]
    version: int

    def add(self, pid: int) -> None:
        """Move a process into the group; what it forks from now on is in it too."""
        for folder in self.folders:
            write_kernel_file(folder / "cgroup.procs", str(pid))

    def release(self) -> None:
        """Move whoever is in the group to where this process is, as far as that can be done; nobody is hurt."""
        for folder in self.folders:
            # This process's own group in the same hierarchy: two above, or the leaf that it went into.
            home = folder.parent.parent
            own = next(home.glob(f"{PREFIX}{os.getpid()}-*{LEAF}"), home)
            with suppress(OSError):
                for pid in read_kernel_file(folder / "cgroup.procs").split():
                    write_kernel_file(own / "cgroup.procs", pid)

    def pids(self) -> tuple[int, ...]:
        """Return the processes in it, as far as this pid namespace sees them."""
        with suppress(OSError):
            # 0 is a process that this namespace does not see, and 1 is never in a group of ours.
            numbers = map(int, read_kernel_file(self.find_folder("pids") / "cgroup.procs").split())
            return tuple(pid for pid in numbers if pid > 1)
        return ()

    def kill(self) -> None:
        """Kill every process in it."""
        if self.version == 2 and (self.folders[0] / "cgroup.kill").exists():
            write_kernel_file(self.folders[0] / "cgroup.kill", "1")
            return
        # Nothing is forked any more, so that a finite number of rounds is enough.
        with suppress(OSError):
            write_kernel_file(self.find_folder("pids") / "pids.max", "0")
        for _ in range(50):
            pids = self.pids()
            if not pids:
                return
            with ExitStack() as stack:
                held: dict[int, int] = {}
                for pid in pids:
                    with suppress(ProcessLookupError):
                        held[pid] = os.pidfd_open(pid)
                        stack.callback(os.close, held[pid])
                # A number may be another's by now, a descriptor may not.
                for pid in held.keys() & set(self.pids()):
                    with suppress(ProcessLookupError):
                        signal.pidfd_send_signal(held[pid], signal.SIGKILL)
            time.sleep(PAUSE_SECONDS)

    def was_out_of_memory(self) -> bool:
        """Return whether the kernel ended a process of it for want of memory."""
        name = "memory.events" if self.version == 2 else "memory.oom_control"
        with suppress(OSError):
            lines = read_kernel_file(self.find_folder("memory") / name).splitlines()
            return int(dict(line.split()[:2] for line in lines).get("oom_kill", 0)) > 0
        return False

    def remove(self) -> bool:
        """Remove the group, and return whether it is gone; one with processes in it stays."""
        for attempt in range(REMOVE_ROUNDS):
            if attempt:
                time.sleep(PAUSE_SECONDS)
            if remove_folders(self.folders):
                return True
        return False

    def end(self) -> bool:
        """Remove the group, of which processes may still be ending; return whether it is gone."""
        for _ in range(REMOVE_ROUNDS):
            with suppress(OSError):
                self.kill()
            if self.remove():
                return True
        return False

    def find_folder(self, controller: str) -> Path:
        """Return the folder with a controller's files."""
        return self.folders[0] if self.version == 2 else self.folders[CONTROLLERS.index(controller)]


def limit_settings(version: int, limits: SandboxLimits) -> dict[str, str]:
    """Return what is written into the files of a new group, in this order; each is named after its controller."""
    memory, processes = str(limits.memory_bytes), str(limits.processes)
    quota = max(1000, int(limits.cpus * PERIOD))  # the kernel takes no smaller one
    if version == 2:
        no_swap = {"memory.swap.max": "0", "memory.oom.group": "1"}
        return {"memory.max": memory, **no_swap, "pids.max": processes, "cpu.max": f"{quota} {PERIOD}"}
    # Memory and swap together: otherwise what is over the limit would be written to the disk.
    together = {"memory.limit_in_bytes": memory, "memory.memsw.limit_in_bytes": memory}
    return together | {"pids.max": processes, "cpu.cfs_period_us": str(PERIOD), "cpu.cfs_quota_us": str(quota)}


def remove_folders(folders: Iterable[Path]) -> bool:
    """Remove what can be removed; return whether nothing is left."""
    return not [folder for folder in folders if not _remove_folder(folder)]


def _remove_folder(folder: Path) -> bool:
    """Remove a folder once; return whether it is not there any more."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def read_kernel_file(path: Path) -> str:
    """Return what the kernel says in a file."""
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def write_kernel_file(path: Path, text: str, folder: int | None = None) -> None:
    """Say something to the kernel, in a file or in one below the descriptor of a folder; an OSError names the file."""
    # One write and no truncation: the kernel takes each write as one order.
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        os.write(descriptor, text.encode("ascii"))
    except OSError as problem:
        problem.filename = str(path)
        raise
    finally:
        os.close(descriptor)


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

    def make(self, name: str, limits: SandboxLimits) -> ControlGroup:
        """Make a group with these limits, or raise an OSError."""
        for home in self.homes:
            family = home / self.family
            with suppress(FileExistsError):
                family.mkdir()
                if self.version == 2:
                    _enable_controllers(family)
        group = ControlGroup(tuple(home / self.family / name for home in self.homes), self.version)
        try:
            for folder in group.folders:
                folder.mkdir()
            for name, text in limit_settings(self.version, limits).items():
                path = group.find_folder(name.partition(".")[0]) / name
                if name not in OPTIONAL or path.exists():
                    write_kernel_file(path, text)
        except FileExistsError:
            raise  # it is another's, and stays
        except OSError:
            group.remove()
            raise
        return group

    def close(self) -> bool:
        """Remove this server's own folder, and return whether it is gone; groups in it have to be gone before."""
        return remove_folders(home / self.family for home in self.homes)

    def sweep(self) -> int:
        """Remove the empty groups that dead servers left, and return how many folders went."""
        removed = 0
        for home in self.homes:
            for folder in home.glob(f"{PREFIX}*"):
                with suppress(OSError):  # another server swept it meanwhile
                    if folder.is_dir() and folder.name != self.family and _is_dead(folder.name.removeprefix(PREFIX)):
                        removed += sum(map(_remove_folder, (*filter(Path.is_dir, folder.iterdir()), folder)))
        return removed


def find_cgroups(root: Path = ROOT, membership: str | None = None) -> Cgroups:
    """Return where groups can be made, after one was made; raises `CgroupsMissing`."""
    try:
        own = _read_memberships(membership)
        unified = (root / "cgroup.controllers").exists()
        cgroups = _find_in_version_2(root, own) if unified else _find_in_version_1(root, own)
        try:
            gone = cgroups.make(f"trial-{time.monotonic_ns()}", SandboxLimits()).remove()
        finally:
            cgroups.close()
    except OSError as problem:
        raise CgroupsMissing(f"{problem.filename or root} cannot be used: {problem.strerror}") from None
    return replace(cgroups, proven=gone and root.is_mount())


def _read_memberships(text: str | None) -> dict[str, str]:
    """Return this process's group for each controller; version 2 has the name ""."""
    lines = (text if text is not None else read_kernel_file(Path("/proc/self/cgroup"))).splitlines()
    rows = (line.split(":", 2) for line in lines)
    return {name: path for _, names, path in rows for name in names.split(",")}


def _find_in_version_1(root: Path, own: dict[str, str]) -> Cgroups:
    homes = []
    mounted = sorted(root.iterdir()) if root.is_dir() else []
    for controller in CONTROLLERS:
        holding = (each for each in mounted if controller in each.name.split(",") and (each / "cgroup.procs").exists())
        hierarchy = next(holding, None)
        if hierarchy is None:
            raise CgroupsMissing(f"the kernel offers no {controller} controller below {root}")
        inner = hierarchy / own.get(controller, "/").lstrip("/")
        homes.append(inner if inner.is_dir() else hierarchy)
    return _check_writable(Cgroups(1, tuple(homes), _family_name()))


def _find_in_version_2(root: Path, own: dict[str, str]) -> Cgroups:
    inner = root / own.get("", "/").lstrip("/")
    home = inner if inner.is_dir() else root
    if home.name.startswith(PREFIX) and home.name.endswith(LEAF):
        # A server went down into this leaf before it started this process.
        home = home.parent
    offered = read_kernel_file(home / "cgroup.controllers").split()
    lacking = [controller for controller in CONTROLLERS if controller not in offered]
    if lacking:
        raise CgroupsMissing(f"the controllers {', '.join(lacking)} are not delegated to {home}; {DELEGATE}")
    cgroups = _check_writable(Cgroups(2, (home,), _family_name()))
    _delegate_controllers(home, home / f"{cgroups.family}{LEAF}")
    return cgroups


def _delegate_controllers(home: Path, leaf: Path) -> None:
    """Hand the controllers down from a group; this process goes into a leaf if it is in that group."""
    if set(CONTROLLERS) <= set(read_kernel_file(home / "cgroup.subtree_control").split()):
        return
    # Only the root of all groups may have processes of its own and hand controllers down, and it alone has no type.
    if (home / "cgroup.type").exists() and (pids := read_kernel_file(home / "cgroup.procs").split()):
        if set(pids) != {str(os.getpid())}:
            raise CgroupsMissing(f"{home} holds other processes than this server; {DELEGATE}")
        leaf.mkdir(exist_ok=True)
        write_kernel_file(leaf / "cgroup.procs", str(os.getpid()))
    _enable_controllers(home)


def _check_writable(cgroups: Cgroups) -> Cgroups:
    for home in cgroups.homes:
        if not os.access(home, os.W_OK):
            remedy = DELEGATE if cgroups.version == 2 else AS_ROOT
            raise CgroupsMissing(f"{home} is not writable for this user; {remedy}")
    return cgroups


def _family_name() -> str:
    """Return a name that no other `Cgroups` has, in this process or another."""
    return f"{PREFIX}{os.getpid()}-{_read_boot_id()}-{next(_NUMBERS)}"


def _read_boot_id() -> str:
    """Return a word for this start of the machine, since numbers of processes begin anew with it."""
    with suppress(OSError):
        return read_kernel_file(Path("/proc/sys/kernel/random/boot_id"))[:8]
    return "unknown"


def _is_dead(name: str) -> bool:
    """Return whether the server of `<pid>-<boot>` runs no more."""
    pid, _, boot = name.partition("-")
    return pid.isdigit() and (boot.split("-")[0] != _read_boot_id() or not Path(f"/proc/{pid}").exists())


def _enable_controllers(folder: Path) -> None:
    write_kernel_file(folder / "cgroup.subtree_control", " ".join(f"+{controller}" for controller in CONTROLLERS))
