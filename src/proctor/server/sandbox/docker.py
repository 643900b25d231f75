"""Containers as sandboxes, by docker or podman: one for each session.

Rule 1: an engine passes no descriptors, so there is no zygote: each session costs the start of a container and the memory
    of a whole Python. The conversation is the one that every worker has.
Rule 2: nothing is pulled. The image is one that `proctor image` built, or one with `python3` and this Proctor in it.
Rule 3: nothing is left behind: a nest removes all its containers when it closes, and when it starts those of servers
    that are no more, which their labels name.
"""

import asyncio
import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final, TypeVar

from proctor import __version__
from proctor.envs.targets import Target
from proctor.errors import ComponentError, ProctorError, ValidationError
from proctor.models.control import Code
from proctor.server.answers import refused
from proctor.server.incidents import new_incident
from proctor.server.sandbox.checker import AnswerChecker
from proctor.server.sandbox.container import Container
from proctor.server.sandbox.engine import BOOT_LABEL, SERVER_LABEL, VERSION_LABEL, Engine, Found, ImageFacts, run_words
from proctor.server.sandbox.hold import new_users
from proctor.server.sandbox.pipe import Describe, Work
from proctor.server.sandbox.place import InWorker
from proctor.server.sandbox.stdio_worker import MODULE
from proctor.server.sandbox.tiers import SandboxWish, Tier
from proctor.server.sandbox.words import Start, one_line

LOG: Final = logging.getLogger("proctor.sandbox")
START_SECONDS: Final = 60.0
MOST_STARTS: Final = 8
"""Containers that are started at the same time."""
INSIDE: Final = ("-P", "-B", "-m", MODULE)
"""What the Python of a container is told; no file of the working directory has a say in what is imported."""
COST: Final = "each session starts a container, which takes the time and the memory of a whole Python and a client"
Result = TypeVar("Result")


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
        return cls(machine, _space(), os.getpid(), began(os.getpid()) or 0)

    @classmethod
    def read(cls, text: str) -> "ServerMark | None":
        """Return the mark that a label holds; None if it is none of ours."""
        machine, *numbers = text.split("/")
        if len(numbers) != 3 or not all(number.isdecimal() for number in numbers):
            return None
        return cls(machine, *map(int, numbers))

    def __str__(self) -> str:
        return f"{self.machine}/{self.space}/{self.pid}/{self.began}"


def began(pid: int) -> int | None:
    """Return when a process began, in ticks since the machine did; None if there is no such process."""
    try:
        told = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    return int(told.rpartition(")")[2].split()[19])


def orphans(found: Iterable[Found], own: ServerMark, began_at: Callable[[int], int | None] = began) -> list[str]:
    """Return the containers whose server is no more, as far as this process can know that."""
    return [each.name for each in found if _is_gone(ServerMark.read(each.server), own, began_at)]


def _is_gone(mark: ServerMark | None, own: ServerMark, began_at: Callable[[int], int | None]) -> bool:
    if mark is None or (mark.machine, mark.space) != (own.machine, own.space):
        return False
    return began_at(mark.pid) != mark.began


def _space() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


@dataclass(frozen=True, slots=True)
class DockerReport:
    """How sessions are kept apart by an engine."""

    tier: Tier
    engine: str
    image: str
    digest: str
    seccomp: str
    """The engine's own profile; a worker loads the filter of `strict` on top of it."""
    costs: str = COST


class DockerNest:
    """The containers of one target; made by `started`, and left by `close` or `end`."""

    tier: Final = Tier.DOCKER

    def __init__(
        self,
        target: Target,
        wish: SandboxWish,
        image: ImageFacts,
        engine: Engine,
        report: DockerReport,
        *,
        users: Iterator[int] | None = None,
        start_seconds: float = START_SECONDS,
    ) -> None:
        self._users = new_users() if users is None else users
        self.report: Final = report
        self._target = target
        self._wish = wish
        self._image = image
        self._engine = engine
        self._seconds = start_seconds
        self._boot = secrets.token_hex(6)
        self._labels = {BOOT_LABEL: self._boot, SERVER_LABEL: str(ServerMark.own())}
        self._numbers = count(1)
        self._containers: set[Container] = set()
        self._guard = threading.Lock()
        self._ended = False
        self._checker = AnswerChecker()
        self._starters = ThreadPoolExecutor(MOST_STARTS, thread_name_prefix="proctor-starter")
        self._undertaker = ThreadPoolExecutor(MOST_STARTS, thread_name_prefix="proctor-undertaker")

    @classmethod
    def started(
        cls, target: Target, wish: SandboxWish, image: str | None, engine: Engine | None = None, **options: Any
    ) -> "DockerNest":
        """Return a nest for containers of this image; what a dead server left is removed. Nothing is started yet.

        An engine or an image that is not there, or does not enforce what is asked for, is a ComponentError.
        """
        if image is None:
            raise ValidationError(
                "the tier docker needs an image", expected=f"--image NAME, as `proctor image {target.text}` prints it"
            )
        engine = Engine.found() if engine is None else engine
        facts = engine.facts()
        if facts.lacking:
            raise ComponentError(
                f"{engine.name} enforces no limits on this host", found=", ".join(facts.lacking), expected="all of them"
            )
        found = engine.image(image)
        _check_version(found, target)
        _check_volumes(found)
        engine.remove(orphans(engine.containers(SERVER_LABEL), ServerMark.own()))
        report = DockerReport(Tier.DOCKER, f"{engine.name} {facts.version}", image, found.digest, facts.seccomp)
        return cls(target, wish, found, engine, report, users=new_users(mapped=facts.maps_users), **options)

    def card(self) -> bytes:
        """Return what the environment says of itself (`cards.Card` in msgpack), from a container that is gone then."""
        return _blocking(self._described())

    async def place(self, work: Work, name: str = "") -> InWorker:
        """Return a place with a new environment at work in it, or raise a refusal; `name` is for the log."""
        try:
            place = await self._empty(name)
        except (ProctorError, OSError) as problem:
            number = new_incident()
            LOG.error(
                "a container could not be started, incident %s: %s",
                number,
                one_line(str(problem)),
                extra={"session": name},
            )
            message = "the environment's container could not be started"
            raise refused(Code.FACTORY_ERROR, message, incident=number) from None
        # Where this machine has its modules is nobody's business in a container.
        await place.make(work)
        return place

    async def close(self) -> None:
        """End all containers; nothing is left."""
        await asyncio.to_thread(self.end)

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

    async def _described(self) -> bytes:
        place = await self._empty("")
        return await place.described(Describe(self._target.text, self._target.settings), self._seconds)

    async def _empty(self, name: str) -> InWorker:
        """Return a place without an environment, or raise why there is none."""
        container, starting = self._begun()
        try:
            channel = await asyncio.wrap_future(starting)
        except BaseException:
            container.kill()
            raise
        # A container is held like any other worker: it can be killed, and asked whether its memory was the end of it.
        return InWorker(channel, container, name, checker=self._checker, most=self._wish.limits.answer_bytes)

    def _begun(self) -> tuple[Container, "Future[socket.socket]"]:
        """Have a container started, on a thread."""
        target, wish = self._target, self._wish
        start = Start(target.text, target.settings, self.tier, wish.limits, wish.network)
        with self._guard:
            if self._ended:
                raise ComponentError("the sandbox is closed")
            name = f"proctor-{self._boot}-{next(self._numbers)}"
            container = Container(self._engine, name, self._undertaker, self._containers.discard)
            words = run_words(self._engine.name, self._image, name, self._labels, wish, INSIDE, user=next(self._users))
            self._containers.add(container)
            return container, self._starters.submit(container.start, words, start, self._seconds)


def _check_version(image: ImageFacts, target: Target) -> None:
    version = image.labels.get(VERSION_LABEL, __version__)
    if version != __version__:
        raise ComponentError(
            "the image was built by another version of Proctor",
            found=version,
            expected=f"{__version__}: `proctor image {target.text}` builds it anew",
        )


def _check_volumes(image: ImageFacts) -> None:
    if image.volumes:
        raise ComponentError(
            "the image has volumes, which containers could fill this machine's disk with",
            found=", ".join(image.volumes),
            expected="an image without VOLUME",
        )


def _blocking(work: Coroutine[Any, Any, Result]) -> Result:
    """Return what a coroutine returns; on a thread, because whoever asks may be inside an event loop of its own."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
