"""A worker that has a container for itself: it talks over standard input and output, since no socket reaches it there.

Rule 1: before anything of the environment is imported, the two streams are moved where no `print` finds them, and what is
    written to standard output and error leads nowhere.
Rule 2: it takes from itself what a strict worker takes, on top of what the engine took from the container.
"""

import os
import socket
from typing import Final, cast

from proctor.envs.targets import Target
from proctor.server.sandbox.handshake import LoadReport, StartMessage, silence_output
from proctor.server.sandbox.messages import decode_message, encode_frame, read_message
from proctor.server.sandbox.pool.bubblewrap import HOME
from proctor.server.sandbox.tiers import Tier
from proctor.server.sandbox.worker import confine, worker
from proctor.server.sandbox.worker.zygote import load_target

MODULE: Final = "proctor.server.sandbox.worker.stdio_worker"


class StreamSocket:
    """Two streams that are read and written like one socket."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self._incoming = incoming
        self._outgoing = outgoing

    def recv(self, most: int) -> bytes:
        """Return what has come, at least one byte; nothing when the other side has closed."""
        return os.read(self._incoming, most)

    def sendall(self, message: bytes | bytearray) -> None:
        """Send a whole message; a ConnectionError if nobody reads it any more."""
        rest = memoryview(message)
        while rest:
            rest = rest[os.write(self._outgoing, rest) :]


def main() -> None:
    """Serve standard input and output until the other side closes them."""
    # Not inherited by what the environment starts, and read like a socket is: `recv` and `sendall` are all that is used.
    channel = cast("socket.socket", StreamSocket(os.dup(0), os.dup(1)))
    # Not by the engine: it would make a folder that is not in the image, with rights that nobody has there.
    os.chdir(HOME)
    silence_output()
    body = read_message(channel)
    if body is None:
        return
    start = decode_message(body, StartMessage)
    answer = confine_and_load(start)
    channel.sendall(encode_frame(answer))
    if answer.problem is None:
        worker.serve(channel, start.limits.answer_bytes)


def confine_and_load(start: StartMessage) -> LoadReport:
    """Take the last rights away and import the target's module; return how that went."""
    try:
        confine.settle(Tier.STRICT, start.limits, network=start.network)
    except OSError as problem:
        return LoadReport(f"the worker could not be confined: {problem}")
    return load_target(Target(start.target, start.settings))


if __name__ == "__main__":
    main()
