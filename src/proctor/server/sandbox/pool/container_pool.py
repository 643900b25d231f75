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
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec

from proctor import __version__
from proctor.envs.targets import Target
from proctor.errors import ComponentError, ProctorError, ValidationError
from proctor.server.sandbox.handshake import StartMessage, printable_text
from proctor.server.sandbox.pool.engine import (
    BOOT_LABEL,
    SERVER_LABEL,
    Engine,
    ImageFacts,
    explain_failure,
    run_arguments,
)
from proctor.server.sandbox.pool.worker_executor import MOST_STARTS, SandboxPool
from proctor.server.sandbox.pool.worker_process import generate_users, load_target_in, read_complaint
from proctor.server.sandbox.tiers import START_SECONDS, SandboxRequest, Tier
from proctor.server.sandbox.worker.worker import MODULE

LOG: Final = logging.getLogger("proctor.sandbox")
KILLED: Final = 128 + 9
"""How a container ends whose first process was killed by the kernel: we kill its client before we kill it."""
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
            loaded = load_target_in(channel, start, time.monotonic() + seconds)
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
            return explain_failure(self._engine.name, read_complaint(self._client.stderr))

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


INSIDE: Final = ("-P", "-B", "-m", MODULE)
"""What the Python of a container is told; no file of the working directory has a say in what is imported."""
COST: Final = "each session starts a container, which takes the time and the memory of a whole Python and a client"


def server_mark() -> str:
    """Return what names this process and no other: machine, pid namespace, number, and when it began (a number is used again)."""
    machine = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    space = Path("/proc/self/ns/pid").stat().st_ino
    return f"{machine}/{space}/{os.getpid()}/{find_start_ticks(os.getpid())}"


def find_start_ticks(pid: int) -> int | None:
    """Return when a process began, in ticks since the machine did; None if there is no such process."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return int(told.rpartition(")")[2].split()[19])


def find_orphans(
    found: Mapping[str, str], own: str, began_at: Callable[[int], int | None] = find_start_ticks
) -> list[str]:
    """Return the containers (each with its server's mark) whose server is no more, as far as this process can know that."""
    return [name for name, mark in found.items() if _is_gone(mark, own, began_at)]


def _is_gone(mark: str, own: str, began_at: Callable[[int], int | None]) -> bool:
    # Of another machine, or another pid namespace, nothing is known here.
    place, *numbers = mark.rsplit("/", 2)
    if place != own.rsplit("/", 2)[0] or not all(number.isdecimal() for number in numbers):
        return False
    pid, began = map(int, numbers)
    return began_at(pid) != began


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
        self._labels = {BOOT_LABEL: self._boot, SERVER_LABEL: server_mark()}
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
        engine.remove(find_orphans(engine.containers(SERVER_LABEL), server_mark()))
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
            self._engine.remove(self._engine.containers(f"{BOOT_LABEL}={self._boot}"))
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
