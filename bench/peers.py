"""Peers: other people's packages, each measured by a process of its own virtual environment over a pipe.

The parent writes `go SECONDS`, the child answers one line of JSON, `{"rate": steps a second}`; its first line is
`{"ready": true}`. So the child stays alive, idle while it is not its turn, and interleaves with what runs here.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Final

from bench.measure import Gap, Probe
from bench.row import Opener

ROOT: Final = Path(__file__).resolve().parent.parent
PATIENCE: Final = 60.0


def peers_python() -> Path:
    """Return the interpreter of the peers' environment (`PROCTOR_PEERS`, or .venv-peers), or raise a Gap."""
    return _python("PROCTOR_PEERS", ".venv-peers")


def openenv_python() -> Path:
    """Return the interpreter of OpenEnv's own environment (`PROCTOR_OPENENV`, or .venv-openenv), or raise a Gap."""
    return _python("PROCTOR_OPENENV", ".venv-openenv")


def _python(variable: str, folder: str) -> Path:
    place = Path(os.environ.get(variable) or ROOT / folder).absolute()
    python = place / "bin" / "python" if place.is_dir() else place
    if not python.exists():
        raise Gap("the peers are not installed: `make bench` makes their virtual environment")
    return python


def version_of(package: str, python: Callable[[], Path] = peers_python) -> str | None:
    """Return the version of a package in a peers' environment, or None if it is not there."""
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    try:
        answer = subprocess.run([python(), "-c", code], capture_output=True, text=True, check=True, timeout=60)
    except (Gap, OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()


def peer(module: str, name: str) -> Opener:
    """Whatever the child script `module` measures; `name` is the package that a Gap names."""

    def opened(stack: ExitStack) -> Probe:
        return stack.enter_context(Peer(peers_python(), module, name)).measure

    return opened


class Peer:
    """A running child script with its arguments; one that does not come up is a Gap, one that dies later is an error."""

    def __init__(self, python: Path, module: str, name: str, *arguments: str) -> None:
        self._name = name
        self._buffer = b""
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # closed in __exit__
        self._process = subprocess.Popen(
            [python, "-m", module, *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        try:
            self._answer(PATIENCE)
        except ChildProcessError as problem:
            self._end()
            raise Gap(str(problem)) from None

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def measure(self, seconds: float) -> float:
        """Return the rate that the child measures in about so many seconds."""
        pipe: IO[bytes] = self._process.stdin  # type: ignore[assignment]  # it was opened as a pipe
        pipe.write(f"go {seconds}\n".encode())
        pipe.flush()
        return float(self._answer(seconds + PATIENCE)["rate"])

    def _answer(self, seconds: float) -> dict[str, float]:
        pipe: IO[bytes] = self._process.stdout  # type: ignore[assignment]  # it was opened as a pipe
        while b"\n" not in self._buffer:
            if not select.select([pipe], [], [], seconds)[0]:
                raise ChildProcessError(f"{self._name} does not answer")
            more = os.read(pipe.fileno(), 65536)
            if not more:
                raise ChildProcessError(f"{self._name} cannot be run: {self._last_words()}")
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, float] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        self._process.wait(PATIENCE)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"it ended with code {self._process.returncode}"

    def _end(self) -> None:
        """Close the pipes, which ends the child; one that lingers is killed."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(5.0)
        self._errors.close()
