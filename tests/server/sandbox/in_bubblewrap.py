"""Runs a piece of Python as a worker of a tier runs, and returns what it says of itself."""

import json
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

from proctor.server.sandbox.pool.bubblewrap import command, find_binds
from proctor.server.sandbox.tiers import Mount, SandboxLimits, SandboxRequest, Tier

PREFACE = """
import json, os, sys
from proctor.server.sandbox.worker import confine
from proctor.server.sandbox.tiers import SandboxLimits, Tier

limits = SandboxLimits(tmp_bytes=2**20)

def tried(call, *arguments):
    try:
        call(*arguments)
    except OSError as problem:
        return problem.errno
    return 0

def say(value):
    print(json.dumps(value), flush=True)

confine.become_nobody()
"""
WORKER = """
confine.adopt_orphans()
if os.fork() != 0:
    os.wait()
    _, status = os.wait()
    sys.exit(os.waitstatus_to_exitcode(status))
confine.own_namespaces(limits)
confine.settle(Tier.STRICT, limits)
"""


def told(program: str, *, worker: bool = True, target: str = "proctor", mounts: Iterable[Mount] = ()) -> Any:
    """Return what `program` says with `say` in bubblewrap: as a strict worker, or else as a zygote."""
    wish = SandboxRequest(Tier.STRICT, limits=SandboxLimits(tmp_bytes=2**20))
    text = f"{PREFACE}{WORKER if worker else ''}{program}"
    line = command(wish, find_binds(target, mounts), [sys.executable, "-c", text])
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
