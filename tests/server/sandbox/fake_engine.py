"""A stand-in for docker: a script that notes what it is asked and answers from files; its containers are processes."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proctor.server.sandbox.messages import encode_frame
from proctor.server.sandbox.pool.container_pool import Engine
from proctor.server.sandbox.worker.worker import MODULE

SCRIPT = """#!/bin/sh
here={here}
printf '%s\\n' "$*" >> "$here/asked"
test -f "$here/refuses" && {{ cat "$here/refuses" >&2; exit 1; }}
case "$1" in
  run) exec sh "$here/run" "$@" ;;
  info|ps) cat "$here/$1" ;;
  image) cat "$here/image" ;;
  rm) test -f "$here/rm" && {{ cat "$here/rm" >&2; exit 1; }} ;;
esac
exit 0
"""
WORKER = f'exec "{sys.executable}" -P -m {MODULE}\n'
"""What a container does by default: it is a worker, as in an image."""
CANNED = """
import os, sys

def exactly(count):
    body = b""
    while len(body) < count:
        piece = os.read(0, count - len(body))
        if not piece:
            sys.exit(0)
        body += piece
    return body

for answer in sys.argv[2:]:
    exactly(int.from_bytes(exactly(4), "big"))
    os.write(1, bytes.fromhex(answer))
exactly(int.from_bytes(exactly(4), "big"))
sys.exit(int(sys.argv[1]))
"""
DOCKER_INFO = {
    "ServerVersion": "1.2.3",
    "SecurityOptions": ["name=seccomp,profile=default"],
    "MemoryLimit": True,
    "PidsLimit": True,
    "CpuCfsQuota": True,
}


@dataclass(frozen=True)
class StandIn:
    """The files of a stand-in, and the engine that it is."""

    folder: Path
    engine: Engine

    def asked(self) -> list[str]:
        """Return what it was asked, in order."""
        path = self.folder / "asked"
        return path.read_text().splitlines() if path.exists() else []

    def verbs(self) -> list[str]:
        return [line.split()[0] for line in self.asked()]

    def runs(self, script: str) -> None:
        """Have its containers do what a shell script says."""
        (self.folder / "run").write_text(script)

    def answers(self, name: str, told: Any) -> None:
        (self.folder / name).write_text(told if isinstance(told, str) else json.dumps(told))


def canned(*answers: Any, code: int = 0) -> str:
    """Return a container that gives these answers, one to each message, and ends with the message after the last."""
    texts = " ".join(encode_frame(answer).hex() for answer in answers)
    return f"exec \"{sys.executable}\" -I -S -c '{CANNED.replace(chr(39), chr(34))}' {code} {texts}\n"


def stand_in(folder: Path, name: str = "docker") -> StandIn:
    """Return a stand-in that has one image, and no containers."""
    program = folder / name
    program.write_text(SCRIPT.format(here=folder))
    program.chmod(0o755)
    made = StandIn(folder, Engine(name, (str(program),)))
    made.runs(WORKER)
    made.answers("info", DOCKER_INFO)
    made.answers("image", [{"Id": "sha256:abc"}])
    made.answers("ps", "")
    return made
