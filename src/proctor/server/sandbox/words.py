"""The first words over a socket, before any message: a process says that it is there, and learns that it may go on.

Rule 1: whoever listens learns from the kernel, never from the speaker, which process spoke (`SCM_CREDENTIALS`), and by
    the number that it has for the listener.
Rule 2: a word is one byte, and where something is wrong a short reason after it. A process says one word and waits.
"""

import os
import socket
import struct
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from proctor.server.sandbox.tiers import SandboxLimits, Tier

HERE: Final = b"h"
"""I was started, and have not begun yet."""
GO: Final = b"g"
"""Go on: the answer to HERE."""
READY: Final = b"r"
"""I have taken from myself what had to be taken; what comes now are messages."""
NO_NAMESPACES: Final = b"n"
"""The kernel gives me no namespaces of my own; the reason follows."""
UNFIT: Final = b"x"
"""I could not take from myself what had to be taken; the reason follows."""
FORK: Final = b"f"
"""To a zygote, with a descriptor: a worker for this socket."""
COMPILE: Final = b"c"
"""To a zygote, with a descriptor and a mode: a process that compiles what steps batches, and says READY or ends."""
LOAD: Final = b"l"
"""To a zygote, with a mode: load what was compiled, so that workers to come share it."""

LONGEST: Final = 1024
_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid


class Start(msgspec.Struct, frozen=True):
    """What a zygote is told; `alone`: its worker gets no namespaces of its own, it has the sandbox for itself."""

    target: str
    settings: dict[str, Any]
    tier: Tier
    limits: SandboxLimits
    network: bool = False
    alone: bool = False


class Loaded(msgspec.Struct, frozen=True):
    """What a zygote answers: the target's module is imported, or why it is not; `threads` run beside the import."""

    problem: str | None = None
    threads: int = 0


@dataclass(frozen=True, slots=True)
class Word:
    """What was said, by whom; an empty `kind`: the other side has gone."""

    kind: bytes
    pid: int
    reason: str = ""


def listen_for_words(channel: socket.socket) -> None:
    """Have the kernel say who speaks on the other end."""
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)


def listen_for_messages(channel: socket.socket) -> None:
    """Have the kernel say it no more: the words are over."""
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)


def heard(channel: socket.socket) -> Word:
    """Return the next word; on a socket that does not block only if there is one."""
    try:
        said, ancillary, _, _ = channel.recvmsg(LONGEST, socket.CMSG_SPACE(_CREDENTIALS.size))
    except ConnectionError:
        return Word(b"", 0)
    return Word(said[:1], _speaker(ancillary), said[1:].decode("utf-8", "replace"))


def _speaker(ancillary: list[tuple[int, int, bytes]]) -> int:
    for level, kind, value in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            pid: int = _CREDENTIALS.unpack(value)[0]
            return pid
    return 0


def say(channel: socket.socket, word: bytes, reason: str = "") -> None:
    """Say a word, with a reason that is cut off if it is long."""
    channel.sendall((word + reason.encode("utf-8", "replace"))[:LONGEST])


def silenced() -> None:
    """Let nothing that this process writes go anywhere: it cannot fill a log."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    if nowhere > 2:
        os.close(nowhere)
