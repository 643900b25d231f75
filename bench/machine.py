"""What the numbers were measured on: the machine without its name, and the versions that took part."""

from __future__ import annotations

import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import Final

from bench.c_plume import compiler_version
from bench.peers import openenv_python, version_of

PACKAGES: Final = (
    "proctor",
    "gymnasium",
    "numpy",
    "numba",
    "msgspec",
    "pydantic",
    "starlette",
    "uvicorn",
    "uvloop",
    "websockets",
)
PEERS: Final = ("plume-nav-sim",)


def cpu_model(cpuinfo: str) -> str | None:
    """Return the processor's name from the text of /proc/cpuinfo."""
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return found.group(1).strip() if found else None


def machine() -> dict[str, str | int]:
    """Return the processor, the cores that this process may use, and the system."""
    try:
        cpuinfo = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        cpuinfo = ""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {
        "cpu": cpu_model(cpuinfo) or platform.processor() or "unknown",
        "cores": cores,
        "system": f"{platform.system()} {platform.machine()}",
    }


def versions() -> dict[str, str | None]:
    """Return what took part, by name; None is not installed."""
    return {
        "python": platform.python_version(),
        **{name: _version(name) for name in PACKAGES},
        **{name: version_of(name) for name in PEERS},
        "openenv": version_of("openenv", openenv_python),
        "cc": compiler_version(),
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
