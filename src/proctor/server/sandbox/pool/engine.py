"""Docker or podman, as a command: what is asked of it, and what its refusals mean to a user.

Rule 1: command lines are made by pure functions; only `Engine.run` runs them, bounded in time.
Rule 2: whatever the engine says is an error of ours that says what to do.
"""

import json
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from proctor.errors import ComponentError, ValidationError
from proctor.server.sandbox.pool.bubblewrap import VARIABLES
from proctor.server.sandbox.tiers import NOBODY, Mount, SandboxLimits, SandboxRequest
from proctor.server.sandbox.worker.confine import SIGNALS

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
    def find(cls, wanted: str | None = None) -> "Engine":
        """Return the engine that is wanted, else the first that answers; none is a ComponentError that says what to do."""
        if wanted is not None and wanted not in ENGINES:
            raise ValidationError("unknown container engine", found=wanted, expected=" or ".join(ENGINES))
        installed = [cls(name, (name,)) for name in ([wanted] if wanted else ENGINES) if shutil.which(name)]
        if not installed:
            raise ComponentError(
                "there is no container engine", expected=f"{wanted or 'docker or podman'} installed and on the PATH"
            )
        for engine in installed[:-1]:
            if engine.answers():
                return engine
        installed[-1].check()
        return installed[-1]

    def answers(self) -> bool:
        """Return whether it can be asked."""
        try:
            self.check()
        except ComponentError:
            return False
        return True

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
        return EngineFacts(str(told.get("ServerVersion", "")), _parse_profile(options), tuple(lacking), maps_users)
    host = told["host"]
    have = host.get("cgroupControllers") or []
    lacking = [words for controller, words in CONTROLLERS.items() if controller not in have]
    security = host.get("security", {})
    enabled = security.get("seccompEnabled")
    version = str(told.get("version", {}).get("Version", ""))
    profile = "podman's own profile" if enabled else "none"
    return EngineFacts(version, profile, tuple(lacking), bool(security.get("rootless")))


def _parse_profile(options: Sequence[str]) -> str:
    profiles = [option.partition("profile=")[2] for option in options if option.startswith("name=seccomp")]
    return f"docker's profile {profiles[0] or 'default'}" if profiles else "none"


def explain_failure(engine: str, said: str) -> ComponentError:
    """Return what a user learns when the engine says no."""
    words = " ".join(said.split())
    low = words.lower()
    if any(sign in low for sign in UNREACHABLE):
        return ComponentError(
            f"the {engine} daemon does not answer: {words[:MOST_WORDS]}",
            expected="a daemon that runs and that you may use (sudo systemctl start docker, or DOCKER_HOST)",
        )
    if any(sign in low for sign in ABSENT):
        return ComponentError(
            f"{engine} has no such image: {words[:MOST_WORDS]}",
            expected="one that is there: docs/containers.md shows how to build one",
        )
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
    words += [*_isolation_arguments(wish.network), "--user", f"{user}:{NOBODY}"]
    words += _limit_arguments(wish.limits)
    words += [word for mount in wish.mounts for word in ("--mount", _mount_argument(mount))]
    words += [word for variable, value in _environment_variables().items() for word in ("--env", f"{variable}={value}")]
    if engine == "podman":
        words += PODMANS_OWN
    # What the image would start by itself is of no interest.
    words += ["--entrypoint", "python3"]
    # Not by its name, which may mean another image by now: what was checked, and is on record, is what runs.
    return [*words, f"sha256:{image.digest}", *inside]


def _isolation_arguments(network: bool) -> list[str]:
    # By name: an engine can be configured to give containers the network of the host when it is not told.
    words = ["--network", "bridge" if network else "none"]
    words += ["--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--ipc", "private"]
    # What an image would have run in the container now and then is not ours, and nobody waits for it.
    return [*words, "--workdir", "/", "--log-driver", "none", "--no-healthcheck"]


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


def _mount_argument(mount: Mount) -> str:
    for path in (mount.path, mount.place):
        if any(sign in str(path) for sign in ',"\n'):
            raise ValidationError("this path cannot be mounted in a container", found=str(path), expected="no commas")
    words = f"type=bind,source={mount.path},target={mount.place}"
    return words if mount.writable else f"{words},readonly"


def _environment_variables() -> dict[str, str]:
    """Return the environment that all sandboxes have; where programs are is the image's own matter."""
    return {name: value for name, value in VARIABLES.items() if name != "PATH"}
