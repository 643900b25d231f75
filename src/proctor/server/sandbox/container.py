"""One container and the engine's client that runs it; the client's standard streams are a socket of ours.

Rule 1: a container is ended by its name, its client by its process; `kill` never waits, a thread does the rest.
Rule 2: what comes out of a container is somebody else's word: bounded, and only ever shown.
"""

import logging
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import IO, Final

import msgspec

from proctor.errors import ComponentError, ProctorError, ValidationError
from proctor.server.sandbox.engine import Engine, refusal
from proctor.server.sandbox.pipe import framed, read, spoken
from proctor.server.sandbox.words import Loaded, Start, plain

LOG: Final = logging.getLogger("proctor.sandbox")
KILLED: Final = 128 + 9
"""How a container ends whose first process was killed by the kernel: we kill its client before we kill it."""
LONGEST_ANSWER: Final = 2**16
MOST_COMPLAINTS: Final = 2**16
LONGEST_COMPLAINT: Final = 2000
BURIAL_SECONDS: Final = 10.0
REASON_SECONDS: Final = 0.2


class Container:
    """One container, from its start to its end; `over` is called when nothing is left of it."""

    def __init__(self, engine: Engine, name: str, undertaker: Executor, over: Callable[["Container"], object]) -> None:
        self.name: Final = name
        self._engine = engine
        self._undertaker = undertaker
        self._over = over
        self._guard = threading.Lock()
        self._ended = False
        self._client: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None

    def start(self, words: Sequence[str], start: Start, seconds: float) -> socket.socket:
        """Return the socket of a worker that is confined and has imported the target, or raise why there is none.

        A module that cannot be imported is a ValidationError, a container that cannot be had a ComponentError.
        """
        channel = self._run(words)
        channel.settimeout(seconds)
        try:
            loaded = _greet(channel, start, time.monotonic() + seconds)
        except TimeoutError:
            raise ComponentError(f"the container was not ready within {seconds:g} seconds") from None
        except msgspec.DecodeError:
            raise ComponentError("what the container said is nothing that a worker says") from None
        except OSError:
            raise self._complaint() from None
        if loaded.problem is not None:
            raise ValidationError(plain(loaded.problem))
        return channel

    def out_of_memory(self) -> bool:
        """Return whether the kernel ended the container: what it ends, it ends for want of memory."""
        with suppress(subprocess.TimeoutExpired):
            # It has closed its end of the socket, so it is about to end.
            return self._client is not None and self._client.wait(REASON_SECONDS) == KILLED
        return False

    def kill(self) -> None:
        """End the container and its client; calling it again does nothing."""
        with self._guard:
            if self._ended:
                return
            self._ended = True
            if self._client is not None:
                # Of one that has ended on its own this does not change how.
                self._client.kill()
        self._undertaker.submit(self._bury)

    def _run(self, words: Sequence[str]) -> socket.socket:
        with self._guard:
            if self._ended:
                raise ComponentError("the container was given up before it was started")
            ours, theirs = socket.socketpair()
            self._channel = ours
            try:
                self._client = subprocess.Popen(  # noqa: S603  # our own command line
                    [*self._engine.command, *words],
                    stdin=theirs.fileno(),
                    stdout=theirs.fileno(),
                    # A pipe, which holds little: whoever floods it stands still, and fills no disk of ours.
                    stderr=subprocess.PIPE,
                    # A signal that a terminal sends to the server is not for its containers.
                    start_new_session=True,
                )
            except OSError as problem:
                raise ComponentError(f"{self._engine.name} cannot be run: {problem.strerror}") from None
            finally:
                theirs.close()
        return ours

    def _complaint(self) -> ProctorError:
        """Return what the engine, or Python in the container, wrote before it ended."""
        with suppress(subprocess.TimeoutExpired):
            if self._client is not None:
                self._client.wait(BURIAL_SECONDS)
        with self._guard:
            if self._client is None or self._client.stderr is None or self._client.stderr.closed:
                return ComponentError("the container ended at once")
            said = _at_hand(self._client.stderr)
        text = said[-LONGEST_COMPLAINT:].decode("utf-8", "replace")
        return refusal(self._engine.name, plain(text))

    def _bury(self) -> None:
        try:
            if self._client is not None:
                self._client.wait(BURIAL_SECONDS)
            self._engine.remove([self.name])
        except (ProctorError, subprocess.TimeoutExpired) as problem:
            LOG.error("a container could not be removed: %s", problem, extra={"container": self.name})
        finally:
            with self._guard:
                for each in (self._channel, None if self._client is None else self._client.stderr):
                    if each is not None:
                        each.close()
            self._over(self)


def _greet(channel: socket.socket, start: Start, deadline: float) -> Loaded:
    """Tell the worker what it is for, and return what it says then."""
    channel.sendall(framed(start))
    body = read(channel, LONGEST_ANSWER, deadline)
    if body is None:
        raise ConnectionResetError("it ended at once")
    return spoken(body, Loaded)


def _at_hand(pipe: IO[bytes]) -> bytes:
    """Return what is in a pipe now; nobody waits for more."""
    os.set_blocking(pipe.fileno(), False)
    with suppress(BlockingIOError):
        return os.read(pipe.fileno(), MOST_COMPLAINTS)
    return b""
