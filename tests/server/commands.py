"""`proctor` as a process, with a home of its own, and what it wrote."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from proctor.server.logs import QUIET
from tests.server.live_server import until

Result = TypeVar("Result")
ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 300.0


@dataclass
class Command:
    """A running command; standard output and standard error go to files."""

    process: subprocess.Popen[bytes]
    home: Path

    @property
    def out(self) -> str:
        return (self.home / "out").read_text()

    @property
    def log(self) -> str:
        return (self.home / "err").read_text()

    @property
    def document(self) -> dict[str, Any]:
        """What `--json` said, as soon as it is there."""
        until(lambda: self.out.endswith("\n") or self.process.poll() is not None, START_SECONDS)
        assert self.out, self.log
        found: dict[str, Any] = json.loads(self.out)
        return found

    def said(self, text: str) -> str:
        """Return standard output as soon as it has this text."""
        until(lambda: text in self.out or self.process.poll() is not None, START_SECONDS)
        assert text in self.out, self.log
        return self.out

    def stopped(self, number: int = signal.SIGTERM) -> int:
        """Send a signal; return the exit code."""
        self.process.send_signal(number)
        return self.process.wait(START_SECONDS)

    def children(self) -> list[int]:
        """Return the processes that it has started and that still run."""
        task = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in task.read_text().split()]


def variables(home: Path, **more: str) -> dict[str, str]:
    """Return an environment in which nothing of the user's is found."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL") if name in os.environ}
    return {**kept, "HOME": str(home), "XDG_STATE_HOME": str(home / "state"), "COLUMNS": "200", **more}


@contextmanager
def serve(home: Path, *arguments: str, more: Mapping[str, str] | None = None) -> Iterator[Command]:
    """Run `proctor serve` with these arguments; it is ended afterwards, whatever happens.

    Without a sandbox, unless they name one: most tests are about something else.
    """
    home.mkdir(exist_ok=True)
    sandbox = () if "--sandbox" in arguments or "--config" in arguments else ("--sandbox", "none")
    with (home / "out").open("wb") as out, (home / "err").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "proctor", "serve", *arguments, *sandbox],
            cwd=ROOT,
            env=variables(home, **(more or {})),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
    with process:
        try:
            yield Command(process, home)
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(START_SECONDS)
                finally:
                    process.kill()


def finished(home: Path, *arguments: str, more: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """Return exit code, output and error of a `proctor serve` that ends by itself."""
    with serve(home, *arguments, more=more) as command:
        code = command.process.wait(START_SECONDS)
        return code, command.out, command.log


@contextmanager
def harmless() -> Iterator[None]:
    """Let a command run in this very process: signals end nothing here, and what it sets up is taken back."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    handlers = {number: signal.signal(number, ignored) for number in numbers}
    root = logging.getLogger()
    kept, level = list(root.handlers), root.level
    levels = {name: logging.getLogger(name).level for name in QUIET}
    environment = dict(os.environ)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        root.handlers[:] = kept
        root.setLevel(level)
        for name, each in levels.items():
            logging.getLogger(name).setLevel(each)
        os.environ.clear()
        os.environ.update(environment)


def ignored(number: int, frame: object) -> None:
    """Stand in for what a signal would do, until a command listens to it itself."""


def told_to_stop_after(visit: Callable[[], Result]) -> Future[Result]:
    """Pay a visit on another thread, and then tell this process to stop, whatever came of it.

    Not before somebody listens: a signal that is ignored is lost, and who serves would do so for ever.
    """

    def is_heard() -> bool:
        handler = signal.getsignal(signal.SIGTERM)
        return callable(handler) and handler is not ignored

    def go() -> Result:
        try:
            return visit()
        finally:
            until(is_heard)
            os.kill(os.getpid(), signal.SIGTERM)

    pool = ThreadPoolExecutor(1)
    visiting = pool.submit(go)
    pool.shutdown(wait=False)
    return visiting


def alive(pid: int) -> bool:
    """Return whether a process runs; one that has ended and waits to be looked at does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
