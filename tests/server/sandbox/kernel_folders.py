"""Folders that get their files from us, as they get them from the kernel, and that stay while one holds a process."""

from __future__ import annotations

import shutil
from pathlib import Path, PosixPath
from typing import Any, ClassVar

FILES = {
    "memory": ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "memory.oom_control"),
    "pids": ("pids.max",),
    "cpu": ("cpu.cfs_period_us", "cpu.cfs_quota_us"),
    "cpu,cpuacct": ("cpu.cfs_period_us", "cpu.cfs_quota_us"),
}
UNIFIED = (
    *("cgroup.controllers", "cgroup.subtree_control", "cgroup.type", "cgroup.kill", "memory.max", "memory.swap.max"),
    *("memory.oom.group", "memory.events", "pids.max", "cpu.max"),
)


class KernelFolder(PosixPath):
    """A path below which folders are made and removed as the kernel does it."""

    lacking: ClassVar[frozenset[str]] = frozenset()
    """Files that this kernel does not have."""
    refusals: ClassVar[int] = 0
    """How often it says that a folder is busy."""

    def mkdir(self, *_: Any, exist_ok: bool = False, **__: Any) -> None:
        Path(self).mkdir(exist_ok=exist_ok)
        files = next((FILES[part] for part in self.parts if part in FILES), UNIFIED)
        for file in {"cgroup.procs", *files} - self.lacking:
            Path(self / file).touch()

    def rmdir(self) -> None:
        if not self.is_dir():
            raise FileNotFoundError(self)
        busy = (self / "cgroup.procs").exists() and (self / "cgroup.procs").read_text()
        if self.refusals or busy or any(each.is_dir() for each in self.iterdir()):
            type(self).refusals = max(0, self.refusals - 1)
            raise OSError(16, "busy")
        shutil.rmtree(self)
