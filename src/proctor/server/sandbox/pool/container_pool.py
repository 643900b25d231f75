"""Containers as sandboxes, by docker or podman: one for each session.

Rule 1: an engine passes no descriptors, so there is no zygote: each session costs the start of a container and the memory
    of a whole Python. The conversation is the one that every worker has.
Rule 2: nothing is pulled. The image has a `python3` with this version of Proctor and the environment's package.
Rule 3: nothing is left behind: a pool removes all its containers when it closes, and when it starts those of servers
    that are no more, which their labels name.
Rule 4: a container is ended by its name, its client by its process; `kill` never waits, a thread does the rest.
Rule 5: what comes out of a container is somebody else's word: bounded, and only ever shown.
Rule 6: an engine's command lines are made by pure functions; only `Engine.run` runs them, bounded in time. Whatever the engine says
    is an error of ours that says what to do.
"""

import asyncio
import json
import logging
import os
import secrets
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec

from proctor import __version__
from proctor.envs.targets import Target
from proctor.errors import ComponentError, ProctorError, ValidationError
from proctor.server.sandbox.messages import StartMessage, printable_text
from proctor.server.sandbox.pool.bubblewrap import VARIABLES
from proctor.server.sandbox.pool.worker_executor import MOST_STARTS, SandboxPool
from proctor.server.sandbox.pool.worker_process import generate_users, load_target_in, read_complaint
from proctor.server.sandbox.tiers import NOBODY, START_SECONDS, SandboxLimits, SandboxRequest, Tier
from proctor.server.sandbox.worker.confine import SIGNALS
from proctor.server.sandbox.worker.worker import MODULE

LOG: Final = logging.getLogger("proctor.sandbox")
KILLED: Final = 128 + 9
"""How a container ends whose first process was killed by the kernel: we kill its client before we kill it."""
BURIAL_SECONDS: Final = 10.0
ENGINES: Final = ("docker", "podman")
PATIENCE_SECONDS: Final = 60.0
MOST_WORDS: Final = 500
BOOT_LABEL, SERVER_LABEL = "proctor", "proctor.server"
PODMANS_OWN: Final = (
    "--read-only-tmpfs=false",  # else /run and /var/tmp are writable in a container that is to be read-only
    *("--ulimit", "nproc=16384:16384"),  # else it asks for as many as the kernel has, which not every root may
)
ABSENT: Final = ("no such image", "no such object", "image not known", "unable to find image", "failed to find image")
GONE: Final = ("no such container", "already in progress", "no container with name or id")
DOCKER_FLAGS: Final = {"MemoryLimit": "memory", "PidsLimit": "processes", "CpuCfsQuota": "cpus"}
CONTROLLERS: Final = {"memory": "memory", "pids": "processes", "cpu": "cpus"}
UNREACHABLE: Final = ("cannot connect to the docker daemon", "error during connect", "permission denied while trying")


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What an engine says of an image."""

    digest: str
    volumes: tuple[str, ...] = ()
    """Folders that an engine would make writable on the host's disk, without any limit."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine says of itself; `lacking` are the limits that it cannot set on this host."""

    version: str
    seccomp: str
    lacking: tuple[str, ...] = ()
    maps_users: bool = False
    """Whether a container's users have other numbers on the host, of a range that is not large."""


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine: its name, and the command with the options that go before every verb."""

    name: str
    command: tuple[str, ...]

    @classmethod
    def find(cls) -> "Engine":
        """Return the first engine that answers; none is a ComponentError that says what to do."""
        installed = [cls(name, (name,)) for name in ENGINES if shutil.which(name)]
        if not installed:
            expected = f"{' or '.join(ENGINES)} installed and on the PATH"
            raise ComponentError("there is no container engine", expected=expected)
        for engine in installed[:-1]:
            with suppress(ComponentError):
                engine.check()
                return engine
        installed[-1].check()
        return installed[-1]

    def check(self) -> None:
        """Raise a ComponentError with the reason if it cannot be asked."""
        self.run("version", "--format", "{{.Server.Version}}" if self.name == "docker" else "{{.Client.Version}}")

    def run(self, *words: str, seconds: float = PATIENCE_SECONDS) -> str:
        """Return what the engine answers, or raise a ComponentError with what it said and what to do."""
        try:
            done = subprocess.run(  # noqa: S603  # no shell, and the words are ours
                [*self.command, *words], stdin=subprocess.DEVNULL, capture_output=True, timeout=seconds, check=False
            )
        except subprocess.TimeoutExpired:
            raise ComponentError(f"{self.name} did not answer in {seconds:g} s", found=words[0]) from None
        except OSError as problem:
            raise ComponentError(f"{self.name} cannot be run: {problem.strerror}", found=self.command[0]) from None
        if done.returncode:
            raise explain_failure(self.name, done.stderr.decode(errors="replace"))
        return done.stdout.decode(errors="replace")

    def image(self, name: str) -> ImageFacts:
        """Return what is known of an image; one that is not there is a ComponentError."""
        (told,) = json.loads(self.run("image", "inspect", name))
        volumes = (told.get("Config") or {}).get("Volumes") or {}
        return ImageFacts(told["Id"].removeprefix("sha256:"), tuple(sorted(volumes)))

    def containers(self, label: str) -> dict[str, str]:
        """Return the names of containers with a label, running or not, each with the mark of its server."""
        label_of = ".Label" if self.name == "docker" else "index .Labels"
        form = f'{{{{.Names}}}}\t{{{{{label_of} "{SERVER_LABEL}"}}}}'
        lines = self.run("ps", "--all", "--filter", f"label={label}", "--format", form).splitlines()
        return {name: server for name, _, server in (line.partition("\t") for line in lines) if name}

    def remove(self, names: Iterable[str]) -> None:
        """Kill and remove containers; one that is gone already, or is going, is no mistake."""
        for name in names:
            try:
                self.run("rm", "--force", "--volumes", name)
            except ComponentError as problem:
                if not any(sign in problem.message.lower() for sign in GONE):
                    raise

    def facts(self) -> EngineFacts:
        """Return what the engine says of itself and of this host."""
        return parse_facts(json.loads(self.run("info", "--format", "{{json .}}")))


def parse_facts(told: Any) -> EngineFacts:
    """Return what `info` says; docker and podman say it at different places."""
    if "host" not in told:
        lacking = [words for flag, words in DOCKER_FLAGS.items() if not told.get(flag)]
        options = told.get("SecurityOptions") or []
        maps_users = any(option.startswith(("name=rootless", "name=userns")) for option in options)
        profiles = [option.partition("profile=")[2] for option in options if option.startswith("name=seccomp")]
        profile = f"docker's profile {profiles[0] or 'default'}" if profiles else "none"
        return EngineFacts(str(told.get("ServerVersion", "")), profile, tuple(lacking), maps_users)
    host = told["host"]
    have = host.get("cgroupControllers") or []
    lacking = [words for controller, words in CONTROLLERS.items() if controller not in have]
    security = host.get("security", {})
    version = str(told.get("version", {}).get("Version", ""))
    profile = "podman's own profile" if security.get("seccompEnabled") else "none"
    return EngineFacts(version, profile, tuple(lacking), bool(security.get("rootless")))


def explain_failure(engine: str, said: str) -> ComponentError:
    """Return what a user learns when the engine says no."""
    words = " ".join(said.split())
    low = words.lower()
    if any(sign in low for sign in UNREACHABLE):
        expected = "a daemon that runs and that you may use (sudo systemctl start docker, or DOCKER_HOST)"
        return ComponentError(f"the {engine} daemon does not answer: {words[:MOST_WORDS]}", expected=expected)
    if any(sign in low for sign in ABSENT):
        expected = "one that is there: docs/containers.md shows how to build one"
        return ComponentError(f"{engine} has no such image: {words[:MOST_WORDS]}", expected=expected)
    return ComponentError(f"{engine} says no: {words[-MOST_WORDS:] or 'it gave no reason'}")


def run_arguments(
    engine: str,
    image: ImageFacts,
    name: str,
    labels: Mapping[str, str],
    wish: SandboxRequest,
    inside: Sequence[str],
    *,
    user: int = NOBODY,
) -> list[str]:
    """Return the words that start one container with `inside` as arguments of its Python."""
    words = ["run", "--rm", "--interactive", "--pull", "never", "--name", name, "--hostname", "sandbox"]
    words += [word for label, value in labels.items() for word in ("--label", f"{label}={value}")]
    # By name: an engine can be configured to give containers the network of the host when it is not told.
    words += ["--network", "bridge" if wish.network else "none"]
    words += ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--ipc", "private"]
    # What an image would have run in the container now and then is not ours, and nobody waits for it.
    words += ["--workdir", "/", "--log-driver", "none", "--no-healthcheck", "--user", f"{user}:{NOBODY}"]
    words += _limit_arguments(wish.limits)
    for mount in wish.mounts:
        for path in (mount.path, mount.place):
            if any(sign in str(path) for sign in ',"\n'):
                reason = "this path cannot be mounted in a container"
                raise ValidationError(reason, found=str(path), expected="no commas")
        bind = f"type=bind,source={mount.path},target={mount.place}"
        words += ["--mount", bind if mount.writable else f"{bind},readonly"]
    # Where programs are is the image's own matter.
    shown = (f"{variable}={value}" for variable, value in VARIABLES.items() if variable != "PATH")
    words += [word for each in shown for word in ("--env", each)]
    if engine == "podman":
        words += PODMANS_OWN
    # What the image would start by itself is of no interest.
    words += ["--entrypoint", "python3"]
    # Not by its name, which may mean another image by now: what was checked, and is on record, is what runs.
    return [*words, f"sha256:{image.digest}", *inside]


def _limit_arguments(limits: SandboxLimits) -> list[str]:
    return [
        *("--pids-limit", str(limits.processes), "--cpus", f"{limits.cpus:g}"),
        *("--memory", str(limits.memory_bytes), "--memory-swap", str(limits.memory_bytes)),
        *("--tmpfs", f"/tmp:rw,noexec,nosuid,nodev,mode=1777,size={limits.tmp_bytes}"),  # noqa: S108
        *("--shm-size", str(limits.tmp_bytes)),
        *("--ulimit", f"fsize={limits.file_bytes}:{limits.file_bytes}", "--ulimit", "core=0:0"),
        *("--ulimit", f"nofile={limits.open_files}:{limits.open_files}"),
        *("--ulimit", "memlock=0:0", "--ulimit", "msgqueue=0:0", "--ulimit", f"sigpending={SIGNALS}:{SIGNALS}"),
    ]


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
            found = printable_text(loaded.version) or "an older one"
            expected = f"{__version__}, as on this machine"
            raise ComponentError("the image has another version of Proctor", found=found, expected=expected)
        if loaded.problem is not None:
            raise ValidationError(printable_text(loaded.problem))
        return channel

    def out_of_memory(self) -> bool:
        """Return whether the kernel ended the container: what it ends, it ends for want of memory."""
        with suppress(subprocess.TimeoutExpired):
            # It has closed its end of the socket, so it is about to end.
            return self._client is not None and self._client.wait(0.2) == KILLED
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
    orphans = []
    for name, mark in found.items():
        place, *numbers = mark.rsplit("/", 2)
        # Of another machine, or another pid namespace, nothing is known here.
        if place == own.rsplit("/", 2)[0] and all(number.isdecimal() for number in numbers):
            pid, began = map(int, numbers)
            if began_at(pid) != began:
                orphans.append(name)
    return orphans


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
            expected = "--image NAME; docs/containers.md shows how to build one"
            raise ValidationError("the tier docker needs an image", expected=expected)
        engine = Engine.find() if engine is None else engine
        facts = engine.facts()
        if facts.lacking:
            reason = f"{engine.name} enforces no limits on this host"
            raise ComponentError(reason, found=", ".join(facts.lacking), expected="all of them")
        found = engine.image(image)
        if found.volumes:
            reason = "the image has volumes, which containers could fill this machine's disk with"
            raise ComponentError(reason, found=", ".join(found.volumes), expected="an image without VOLUME")
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
        target, wish, name = self._target, self._wish, f"proctor-{self._boot}-{next(self._numbers)}"
        start = StartMessage(target.text, target.settings, self.tier, wish.limits, wish.network)
        user = next(self._users)
        with self._guard:
            if self._ended:
                raise ComponentError("the sandbox is closed")
            container = Container(self._engine, name, self._undertaker, self._containers.discard)
            words = run_arguments(self._engine.name, self._image, name, self._labels, wish, INSIDE, user=user)
            self._containers.add(container)
            starting = self._starters.submit(container.start, words, start, self._seconds)
        try:
            return await asyncio.wrap_future(starting), container
        except BaseException:
            container.kill()
            raise
