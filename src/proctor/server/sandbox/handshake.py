"""The first words over a socket, before any message: a process says that it is there, and learns that it may go on.

Rule 1: whoever listens learns from the kernel, never from the speaker, which process spoke: by a descriptor of that very
    process (`SCM_PIDFD`), where the kernel has them. An older one gives a number (`SCM_CREDENTIALS`), which may be another
    process's by the time it is opened. So who listens has to check where the process comes from.
Rule 2: a word is one byte, and where something is wrong a short reason after it. A process says one word and waits.
Rule 3: descriptors that come with a word unasked are closed, and the word counts for nothing.
"""

import os
import socket
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from proctor.server.sandbox.tiers import NOBODY, SandboxLimits, Tier

HERE: Final = b"h"
"""I was started, and have not begun yet."""
GO: Final = b"g"
"""Go on: the answer to HERE and to UNMAPPED."""
UNMAPPED: Final = b"u"
"""I have a user namespace of my own, in which no user is known yet."""
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
_DESCRIPTOR: Final = struct.Struct("i")
SO_PASSPIDFD: Final = 76
SCM_PIDFD: Final = 4
"""Since Linux 6.5; Python does not know them yet."""


class StartMessage(msgspec.Struct, frozen=True):
    """What a zygote is told; `alone`: its worker gets no namespaces of its own, it has the sandbox for itself."""

    target: str
    settings: dict[str, Any]
    tier: Tier
    limits: SandboxLimits
    network: bool = False
    alone: bool = False
    user: int = NOBODY
    """Who the zygote becomes, if it can choose."""
    own_users: bool = False
    """Whether the server gives each worker a user of its own; only root can."""


class LoadReport(msgspec.Struct, frozen=True):
    """What a zygote answers: the target's module is imported, or why it is not; `threads` run beside the import."""

    problem: str | None = None
    threads: int = 0
    version: str = ""
    """Of Proctor, where the worker may have another one than the server: in a container."""


@dataclass(frozen=True, slots=True)
class HandshakeMessage:
    """What was said, by whom; an empty `kind`: the other side has gone. A `with` block closes the descriptor."""

    kind: bytes
    speaker: int = -1
    """A descriptor of the process that spoke; -1: it is not known."""
    reason: str = ""

    def __enter__(self) -> "HandshakeMessage":
        return self

    def __exit__(self, *_: object) -> None:
        if self.speaker >= 0:
            os.close(self.speaker)


def enable_peer_identity(channel: socket.socket) -> None:
    """Have the kernel say who speaks on the other end."""
    _set_peer_identity(channel, 1)


def disable_peer_identity(channel: socket.socket) -> None:
    """Have the kernel say it no more: the words are over."""
    _set_peer_identity(channel, 0)


def _set_peer_identity(channel: socket.socket, wanted: int) -> None:
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, wanted)
    with suppress(OSError):  # an older kernel
        channel.setsockopt(socket.SOL_SOCKET, SO_PASSPIDFD, wanted)


def receive_handshake(channel: socket.socket) -> HandshakeMessage:
    """Return the next word; on a socket that does not block only if there is one."""
    room = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(_DESCRIPTOR.size)
    try:
        said, ancillary, _, _ = channel.recvmsg(LONGEST, room, socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:
        return HandshakeMessage(b"")
    speaker = _find_speaker(ancillary)
    if _close_descriptors(ancillary):
        with HandshakeMessage(b"", speaker):
            return HandshakeMessage(b"")
    return HandshakeMessage(said[:1], speaker, printable_line(said[1:].decode("utf-8", "replace")))


def _find_speaker(ancillary: Iterable[tuple[int, int, bytes]]) -> int:
    """Return a descriptor of who spoke, -1 if the kernel does not say or if it has ended."""
    values = {kind: value for level, kind, value in ancillary if level == socket.SOL_SOCKET}
    if SCM_PIDFD in values:
        (descriptor,) = _DESCRIPTOR.unpack(values[SCM_PIDFD])
        return max(-1, int(descriptor))
    pid = _CREDENTIALS.unpack(values[socket.SCM_CREDENTIALS])[0] if socket.SCM_CREDENTIALS in values else 0
    with suppress(OSError):
        return os.pidfd_open(pid) if pid > 0 else -1
    return -1


def _close_descriptors(ancillary: Iterable[tuple[int, int, bytes]]) -> bool:
    """Close descriptors that nobody asked for; return whether there were any."""
    gifts = [value for level, kind, value in ancillary if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)]
    for value in gifts:
        for (descriptor,) in _DESCRIPTOR.iter_unpack(value[: len(value) // _DESCRIPTOR.size * _DESCRIPTOR.size]):
            os.close(descriptor)
    return bool(gifts)


def printable_line(text: str) -> str:
    """Return what somebody said as it may stand in a log: in one line, and without what steers a terminal."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def send_handshake(channel: socket.socket, word: bytes, reason: str = "") -> None:
    """Say a word, with a reason that is cut off if it is long."""
    channel.sendall((word + reason.encode("utf-8", "replace"))[:LONGEST])


def python_command(entry: str, descriptor: int) -> list[str]:
    """Return the command line of a Python that runs `entry`, and is told a descriptor and where this one finds its modules."""
    # Isolated: no variable and no file of the working directory has a say in what is imported. "" is the working directory.
    return [
        sys.executable,
        "-I",
        "-B",
        "-c",
        entry,
        str(descriptor),
        *(str(Path(each).absolute()) for each in sys.path),
    ]


def silence_output() -> None:
    """Let nothing that this process writes go anywhere: it cannot fill a log."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    if nowhere > 2:
        os.close(nowhere)


def printable_text(text: str) -> str:
    """Return a text that steers no terminal; it keeps its lines."""
    return text if text.isprintable() else "".join(sign if sign.isprintable() or sign == "\n" else "?" for sign in text)
