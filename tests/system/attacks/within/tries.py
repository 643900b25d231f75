"""What hostile code in a worker tries, and how each try ended.

Rule 1: a try that works is `reached`; one that the kernel or the sandbox refuses is `denied`, with the reason. A mistake in
    the attack itself is neither: it is raised.
Rule 2: nothing here knows a canary. What looks like one is found by its form, so that finding it means that it was there.
Rule 3: what may end the process is tried in a child.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from proctor.server.sandbox.worker.seccomp import NUMBERS, here

CANARY: Final = re.compile(r"canary-[a-z]+-[0-9A-Za-z]{8,}|neighbour-[0-9]+-[0-9a-f]{12}")
LIBC: Final = ctypes.CDLL(None, use_errno=True)
LONGEST: Final = 60
"""Lines of one report."""


@dataclass
class Clue:
    """What somebody outside tells the attack, to make it as easy as can be."""

    control_port: int = 0
    agent_port: int = 0
    server_pid: int = 0
    sandbox_pids: list[int] = field(default_factory=list)
    """The host's numbers of the zygote, and of all workers."""
    abstract: str = ""
    """An abstract socket on which the host listens."""
    addresses: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    """Files of the host with something in them."""
    folder: str = ""
    """A folder of the host in which everybody may write."""
    meeting: str = ""
    """A name on which two hostile sessions have agreed."""


@dataclass
class Tries:
    """What was tried."""

    clue: Clue
    reached: list[str] = field(default_factory=list)
    denied: list[str] = field(default_factory=list)

    def here(self, what: str, do: Callable[[], Any]) -> Any:
        """Try something that raises an OSError if it is refused; return what it gave."""
        try:
            given = do()
        except OSError as problem:
            self._note(self.denied, what, _why(problem))
            return None
        self._note(self.reached, what, "it worked")
        return given

    def in_child(self, what: str, do: Callable[[], Any]) -> None:
        """Try something in a child, because it may be the end of it."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writer, _said(do))
            os._exit(0)
        os.close(writer)
        said = os.read(reader, 1000).decode()
        os.close(reader)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if said.startswith("!"):
            raise RuntimeError(f"{what}: {said}")
        if said == "+":
            self._note(self.reached, what, "it worked")
        else:
            self._note(self.denied, what, said or f"ended by {signal.Signals(-status).name}")

    def found(self, what: str, values: Iterable[str]) -> None:
        """Note what looks like somebody's secret among some texts."""
        secrets = {match for value in values for match in CANARY.findall(value)}
        if secrets:
            self._note(self.reached, what, f"found {sorted(secrets)[:3]}")
        else:
            self._note(self.denied, what, "nothing was found")

    def held(self, what: str, holds: bool, why: str = "it holds") -> None:
        """Note whether a limit held."""
        self._note(self.denied if holds else self.reached, what, why)

    @staticmethod
    def _note(notes: list[str], what: str, how: str) -> None:
        if len(notes) < LONGEST:
            notes.append(f"{what}: {how}"[:300])


def _said(do: Callable[[], Any]) -> bytes:
    try:
        do()
    except OSError as problem:
        return _why(problem).encode()
    except BaseException as problem:  # noqa: BLE001  # a child: whoever reads raises it
        return f"!{problem!r}"[:900].encode()
    return b"+"


def _why(problem: OSError) -> str:
    return errno.errorcode.get(problem.errno or 0, type(problem).__name__)


def syscall(name: str, *arguments: int | ctypes.Array[ctypes.c_char] | None) -> int:
    """Make a system call, or raise an OSError."""
    machine = here()
    if machine is None:
        raise LookupError("no table for this machine")
    return checked(LIBC.syscall(ctypes.c_long(NUMBERS[machine][name]), *map(_passed, arguments)))


def _passed(argument: Any) -> Any:
    return ctypes.c_long(argument) if isinstance(argument, int) else argument


def checked(result: int) -> int:
    """Return what a call of libc returned, or raise the OSError of it."""
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def called(name: str, *arguments: Any) -> int:
    """Call a function of libc, or raise the OSError of it."""
    return checked(getattr(LIBC, name)(*arguments))


Inside = Callable[[Tries], None]
INSIDE: Final[dict[str, Inside]] = {}
"""What hostile code does, by name."""


def inside(run: Inside) -> Inside:
    """Take a function down."""
    if not run.__doc__ or run.__name__ in INSIDE:
        raise LookupError(f"without a docstring, or there already: {run.__name__}")
    INSIDE[run.__name__] = run
    return run
