"""Containers as sandboxes, by docker or podman: one for each session.

Rule 1: an engine passes no descriptors, so there is no zygote: each session costs the start of a container and the memory
    of a whole Python. The conversation is the one that every worker has.
Rule 2: nothing is pulled. The image has a `python3` with this version of Proctor and the environment's package.
Rule 3: nothing is left behind: a pool removes all its containers when it closes, and when it starts those of servers
    that are no more, which their labels name.
Rule 4: a container is ended by its name, its client by its process; `kill` never waits, a thread does the rest.
Rule 5: what comes out of a container is somebody else's word: bounded, and only ever shown.
"""

import asyncio
import logging
import os
import secrets
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from proctor import __version__
from proctor.envs.targets import Target
from proctor.errors import ComponentError, ProctorError, ValidationError
from proctor.server.sandbox.handshake import LoadReport, StartMessage, printable_text
from proctor.server.sandbox.messages import decode_message, encode_frame, read_message
from proctor.server.sandbox.pool.engine import (
    BOOT_LABEL,
    SERVER_LABEL,
    Engine,
    FoundContainer,
    ImageFacts,
    explain_failure,
    run_arguments,
)
from proctor.server.sandbox.pool.worker_executor import MOST_STARTS, SandboxPool
from proctor.server.sandbox.pool.worker_process import generate_users
from proctor.server.sandbox.tiers import START_SECONDS, SandboxRequest, Tier
from proctor.server.sandbox.worker.worker import MODULE

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

    def start(self, words: Sequence[str], start: StartMessage, seconds: float) -> socket.socket:
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
        if loaded.version != __version__:
            raise ComponentError(
                "the image has another version of Proctor",
                found=printable_text(loaded.version) or "an older one",
                expected=f"{__version__}, as on this machine",
            )
        if loaded.problem is not None:
            raise ValidationError(printable_text(loaded.problem))
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
        self._undertaker.submit(self._clean_up)

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
            said = _read_available(self._client.stderr)
        text = said[-LONGEST_COMPLAINT:].decode("utf-8", "replace")
        return explain_failure(self._engine.name, printable_text(text))

    def _clean_up(self) -> None:
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


def _greet(channel: socket.socket, start: StartMessage, deadline: float) -> LoadReport:
    """Tell the worker what it is for, and return what it says then."""
    channel.sendall(encode_frame(start))
    body = read_message(channel, LONGEST_ANSWER, deadline)
    if body is None:
        raise ConnectionResetError("it ended at once")
    return decode_message(body, LoadReport)


def _read_available(pipe: IO[bytes]) -> bytes:
    """Return what is in a pipe now; nobody waits for more."""
    os.set_blocking(pipe.fileno(), False)
    with suppress(BlockingIOError):
        return os.read(pipe.fileno(), MOST_COMPLAINTS)
    return b""


INSIDE: Final = ("-P", "-B", "-m", MODULE)
"""What the Python of a container is told; no file of the working directory has a say in what is imported."""
COST: Final = "each session starts a container, which takes the time and the memory of a whole Python and a client"


@dataclass(frozen=True, slots=True)
class ServerMark:
    """Which server a container belongs to, so that nobody else takes it for a dead one's: a process of one machine."""

    machine: str
    space: int
    """The pid namespace: a server in a container has a number that means another process elsewhere."""
    pid: int
    began: int
    """When the process began, in ticks: its number may be another's by now."""

    @classmethod
    def own(cls) -> "ServerMark":
        """Return this process's mark."""
        machine = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return cls(machine, _find_pid_namespace(), os.getpid(), find_start_ticks(os.getpid()) or 0)

    @classmethod
    def parse(cls, text: str) -> "ServerMark | None":
        """Return the mark that a label holds; None if it is none of ours."""
        machine, *numbers = text.split("/")
        if len(numbers) != 3 or not all(number.isdecimal() for number in numbers):
            return None
        return cls(machine, *map(int, numbers))

    def __str__(self) -> str:
        return f"{self.machine}/{self.space}/{self.pid}/{self.began}"


def find_start_ticks(pid: int) -> int | None:
    """Return when a process began, in ticks since the machine did; None if there is no such process."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return int(told.rpartition(")")[2].split()[19])


def find_orphans(
    found: Iterable[FoundContainer], own: ServerMark, began_at: Callable[[int], int | None] = find_start_ticks
) -> list[str]:
    """Return the containers whose server is no more, as far as this process can know that."""
    return [each.name for each in found if _is_gone(ServerMark.parse(each.server), own, began_at)]


def _is_gone(mark: ServerMark | None, own: ServerMark, began_at: Callable[[int], int | None]) -> bool:
    if mark is None or (mark.machine, mark.space) != (own.machine, own.space):
        return False
    return began_at(mark.pid) != mark.began


def _find_pid_namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


@dataclass(frozen=True, slots=True)
class ContainerPoolReport:
    """How sessions are kept apart by an engine."""

    tier: Tier
    engine: str
    image: str
    digest: str
    seccomp: str
    """The engine's own profile; a worker loads the filter of `strict` on top of it."""
    costs: str = COST


class ContainerPool(SandboxPool):
    """The containers of one target; made by `start`, and left by `close` or `end`."""

    tier: Final = Tier.DOCKER
    what = "container"

    def __init__(
        self,
        target: Target,
        wish: SandboxRequest,
        image: ImageFacts,
        engine: Engine,
        report: ContainerPoolReport,
        *,
        users: Iterator[int] | None = None,
        start_seconds: float = START_SECONDS,
    ) -> None:
        super().__init__(target, wish, start_seconds)
        self._users = generate_users() if users is None else users
        self.report: Final = report
        self._image = image
        self._engine = engine
        self._boot = secrets.token_hex(6)
        self._labels = {BOOT_LABEL: self._boot, SERVER_LABEL: str(ServerMark.own())}
        self._numbers = count(1)
        self._containers: set[Container] = set()
        self._guard = threading.Lock()
        self._ended = False
        self._starters = ThreadPoolExecutor(MOST_STARTS, thread_name_prefix="proctor-starter")

    @classmethod
    def start(
        cls, target: Target, wish: SandboxRequest, image: str | None, engine: Engine | None = None, **options: Any
    ) -> "ContainerPool":
        """Return a pool for containers of this image; what a dead server left is removed. Nothing is started yet.

        An engine or an image that is not there, or does not enforce what is asked for, is a ComponentError.
        """
        if image is None:
            raise ValidationError(
                "the tier docker needs an image", expected="--image NAME; docs/containers.md shows how to build one"
            )
        engine = Engine.find() if engine is None else engine
        facts = engine.facts()
        if facts.lacking:
            raise ComponentError(
                f"{engine.name} enforces no limits on this host", found=", ".join(facts.lacking), expected="all of them"
            )
        found = engine.image(image)
        _check_volumes(found)
        engine.remove(find_orphans(engine.containers(SERVER_LABEL), ServerMark.own()))
        report = ContainerPoolReport(Tier.DOCKER, f"{engine.name} {facts.version}", image, found.digest, facts.seccomp)
        return cls(target, wish, found, engine, report, users=generate_users(mapped=facts.maps_users), **options)

    def end(self) -> None:
        """Do what `close` does, and wait for it; calling it again does nothing."""
        with self._guard:
            self._ended = True
            containers = list(self._containers)
        self._checker.close()
        for container in containers:
            container.kill()
        self._starters.shutdown()
        self._undertaker.shutdown()
        try:
            # An engine may still have made a container whose client was gone by then.
            self._engine.remove([each.name for each in self._engine.containers(f"{BOOT_LABEL}={self._boot}")])
        except ComponentError as problem:
            # The next server sweeps them.
            LOG.error("containers may be left: %s", problem, extra={"label": f"{BOOT_LABEL}={self._boot}"})

    async def _start_worker(self) -> tuple[socket.socket, Container]:
        container, starting = self._begin_start()
        try:
            return await asyncio.wrap_future(starting), container
        except BaseException:
            container.kill()
            raise

    def _begin_start(self) -> tuple[Container, "Future[socket.socket]"]:
        """Have a container started, on a thread."""
        target, wish = self._target, self._wish
        start = StartMessage(target.text, target.settings, self.tier, wish.limits, wish.network)
        with self._guard:
            if self._ended:
                raise ComponentError("the sandbox is closed")
            name = f"proctor-{self._boot}-{next(self._numbers)}"
            container = Container(self._engine, name, self._undertaker, self._containers.discard)
            words = run_arguments(
                self._engine.name, self._image, name, self._labels, wish, INSIDE, user=next(self._users)
            )
            self._containers.add(container)
            return container, self._starters.submit(container.start, words, start, self._seconds)


def _check_volumes(image: ImageFacts) -> None:
    if image.volumes:
        raise ComponentError(
            "the image has volumes, which containers could fill this machine's disk with",
            found=", ".join(image.volumes),
            expected="an image without VOLUME",
        )
