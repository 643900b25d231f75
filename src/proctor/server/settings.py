"""How a server is to behave: every setting of `proctor serve`, from a TOML file, the command line or a program.

Rule 1: a value that makes no sense is refused when the settings are made, with the place and what was expected.
Rule 2: no secret is a setting; `token_file` names where one is.
"""

import tomllib
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue
from pydantic import ValidationError as ModelError

from proctor.access.limits import RequestLimits
from proctor.access.request_policy import is_loopback
from proctor.errors import ValidationError
from proctor.ledger.storage_limits import StorageLimits
from proctor.server.sandbox.tiers import MIB, Mount, SandboxLimits, SandboxRequest, Tier
from proctor.small_files import read_small_text

LONGEST: Final = 10**9
Seconds = Annotated[float, Field(gt=0, le=LONGEST)]
SecondsOrZero = Annotated[float, Field(ge=0, le=LONGEST)]
OptionalSeconds = Annotated[Seconds | None, BeforeValidator(lambda value: value or None)]
"""Seconds; 0, as in a file that has no word for nothing, is no limit."""
PositiveInt = Annotated[int, Field(ge=1)]
OptionalBytes = Annotated[PositiveInt | None, BeforeValidator(lambda value: value or None)]
"""Bytes; 0 is no limit."""
ALL_INTERFACES: Final = ("0.0.0.0", "::")  # noqa: S104  # the names are compared with, never bound to by default


class SettingsSection(BaseModel):
    """Any part of the settings: a value that refuses what it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class LimitSettings(SettingsSection):
    """What one peer may send; see `proctor.access.limits`."""

    max_message_bytes: PositiveInt = 16 * 2**20
    max_body_bytes: PositiveInt = 2**20
    max_arguments_bytes: PositiveInt = 64 * 2**10
    """Of one tool call; a tool can ask for more, up to `max_body_bytes`."""
    agent_bytes_per_second: PositiveInt = 4 * 2**20
    """Everything that one agent sends."""
    max_depth: PositiveInt = 64
    requests_per_second: Annotated[float, Field(gt=0, le=10**9)] | None = None
    burst: PositiveInt = 100

    def model_post_init(self, context: Any) -> None:
        """Refuse what the access checks refuse."""
        self.limits()

    def limits(self) -> RequestLimits:
        """Return them as the access checks read them."""
        return RequestLimits(**self.model_dump())


class WorkerSettings(SettingsSection):
    """What the process of one environment in a sandbox may use."""

    memory_mb: Annotated[int, Field(ge=16, le=2**20)] = 1024
    processes: Annotated[int, Field(ge=1, le=65536)] = 64
    """Threads count, too."""
    cpus: Annotated[float, Field(gt=0, le=1024)] = 1.0
    file_mb: PositiveInt = 64
    """The largest file that it can write."""
    tmp_mb: PositiveInt = 64
    """All that it can write."""
    open_files: Annotated[int, Field(ge=16, le=2**20)] = 256
    answer_mb: Annotated[int, Field(ge=1, le=32)] = 8
    """The largest answer to a reset, a step, a tool or a state."""

    def limits(self) -> SandboxLimits:
        """Return them as a sandbox reads them."""
        return SandboxLimits(
            memory_bytes=self.memory_mb * MIB,
            processes=self.processes,
            cpus=self.cpus,
            file_bytes=self.file_mb * MIB,
            tmp_bytes=self.tmp_mb * MIB,
            open_files=self.open_files,
            answer_bytes=self.answer_mb * MIB,
        )


class StorageSettings(SettingsSection):
    """How much sessions put on record, in the ledger or in the file of `record`."""

    max_step_bytes: OptionalBytes = 16 * MIB
    """One step or reset: the observation with everything beside it. More loses the episode. 0: no limit."""
    max_episode_bytes: OptionalBytes = 1024 * MIB
    """One episode, as it is stored; a batch may store so much for each of its environments. More loses the episode. 0: no
    limit."""
    max_packet_bytes: Annotated[int, Field(ge=4096)] = 64 * 1024
    """One packet of a governed agent, or the arguments of one call. A longer one is refused."""
    max_refused_bytes: Annotated[int, Field(ge=4096)] = 16 * MIB
    """All refused calls of a governed episode. More loses the episode."""
    min_free_bytes: Annotated[int, Field(ge=0)] | None = None
    """What stays free on the disk: below it no session is opened and no episode goes on. None: 5 % of the disk, at most 512
    MiB."""

    def storage_limits(self) -> StorageLimits:
        """Return what a recorder needs of them."""
        return StorageLimits(self.max_step_bytes, self.max_episode_bytes)


class ServerSettings(SettingsSection):
    """Everything that `proctor serve` can be told."""

    target: str
    """What to serve: a Gymnasium id, a class or module:factory."""
    settings: dict[str, JsonValue] = {}
    """Keywords of the environment's constructor."""
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    unix_socket: Path | None = None
    insecure: bool = False
    """No credential; for loopback and Unix sockets only."""
    token_file: Path | None = None
    allow_hosts: list[str] = []
    allow_origins: list[str] = []
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    max_sessions: PositiveInt = 1024
    """At once, in each worker."""
    max_waiting: Annotated[int, Field(ge=0)] = 256
    """Clients that may wait for a session when all are taken."""
    wait_seconds: SecondsOrZero = 30.0
    max_connections: PositiveInt = 4096
    max_pending: Annotated[int, Field(ge=1, le=1024)] = 32
    """Requests that may wait in one session; so many replies are kept, too."""
    grace_seconds: SecondsOrZero = 60.0
    """How long a session waits for its client to come back."""
    idle_seconds: OptionalSeconds = 3600.0
    """A session that is not used for so long is closed; its client is warned before. 0: never."""
    warn_seconds: Seconds = 60.0
    """How long before."""
    step_timeout_seconds: OptionalSeconds = 60.0
    """How long a step or a reset may take; then the episode is lost. 0: as long as it likes."""
    drain_seconds: SecondsOrZero = 10.0
    """How long a server that is told to stop waits for requests that run."""
    place: Literal["auto", "inline", "thread"] = "auto"
    """Where environments run in tier none; auto: on the event loop if they are quick, else each on a thread of its own."""
    agent_port: Annotated[int, Field(ge=0, le=65535)] | None = None
    """Where agents are served, on the same host; 0 takes any port that is free, None: nowhere."""
    agent_url: str | None = None
    """What agents are told to connect to, where that is another address: behind a proxy, or on every address of a machine."""
    watch_mb: Annotated[float, Field(gt=0, le=1024)] = 8.0
    """How much of what agents did is kept in each session for whoever watches."""
    agent_calls_per_second: Annotated[float, Field(gt=0, le=10**6)] | None = None
    """How often one agent may call."""
    sandbox: Literal["auto", "none", "process", "bwrap", "strict", "docker"] = "auto"
    """How environments are kept apart; auto: the strongest of process to strict that this host really enforces."""
    mounts: list[str] = []
    """What a sandbox sees of this host besides Python and the environment: PATH, read-only, or PATH:rw."""
    network: bool = False
    """Whether environments have a network: one of their own in the tier docker, which alone can give them one."""
    image: str | None = None
    """For the tier docker: an image with Proctor and the environment."""
    worker: WorkerSettings = WorkerSettings()
    record: Path | None = None
    """Write every event to this file, a line each."""
    record_sync: bool = False
    """Wait for the disk with every event."""
    ledger: Path | None = None
    """Keep the ledger in this folder: hash-chained, signed, and what sessions are rebuilt from after a restart."""
    durability: Literal["full", "normal", "off"] = "full"
    """What a reply waits for: the disk, the operating system, or nothing."""
    observations: Literal["all", "digest"] = "all"
    """Whether the ledger has the observations' values or their digests only."""
    storage: StorageSettings = StorageSettings()
    governed: str | None = None
    """The policy that governs agents' episodes: open, standard, strict, or a TOML file; None: they are free."""
    operator_token_file: Path | None = None
    transforms: list[dict[str, JsonValue]] = []
    """The pipeline of reward transforms, in order."""
    limits: LimitSettings = LimitSettings()
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_json: bool = False

    def model_post_init(self, context: Any) -> None:
        """Refuse what only together makes no sense."""
        if self.insecure and self.unix_socket is None and not is_loopback(self.host):
            raise ValidationError(
                "a server without a credential on an address that others can reach",
                found=self.host,
                expected="--insecure with a loopback address only",
            )
        self._check_network()
        self._check_agent_address()
        if self.record is not None and self.ledger is not None:
            raise ValidationError("two records of the same events", expected="either --record or --ledger")
        if self.governed is not None and self.agent_port is None:
            raise ValidationError("a policy, and no agents that it could govern", expected="--agent-port with it")
        if self.governed is not None and self.workers > 1:
            raise ValidationError(
                "an operator would reach one worker of several", expected="one worker, to be governed"
            )

    def _check_agent_address(self) -> None:
        if self.agent_url is not None and self.workers > 1:
            raise ValidationError(
                "one agent_url for several workers, each of which serves only the agents that it gave a grant to",
                found=f"workers = {self.workers}",
                expected="one worker with agent_url; or no agent_url, so that each grant names its worker's own port",
            )
        if self.agent_port is not None and self.agent_url is None and self.host in ALL_INTERFACES:
            expected = "agent_url: the address by which agents reach this machine, as http://name:port/mcp"
            if self.workers > 1:
                expected = "a host that agents can reach, such as 192.168.1.2: each worker has a port of its own there"
            raise ValidationError("a grant could not say where agents are served", found=self.host, expected=expected)
        if self.agent_url is not None and not self.agent_url.startswith(("http://", "https://")):
            raise ValidationError("agent_url is no address", found=self.agent_url, expected="http://name:port/mcp")

    def _check_network(self) -> None:
        if self.network and self.insecure:
            raise ValidationError(
                "environments with a network, and a server without a credential that they might reach",
                found="--network with --insecure",
                expected="a credential, with --network and --sandbox docker; or no --network",
            )
        if self.network and self.sandbox != "docker":
            raise ValidationError(
                "only a container has a network that does not lead to this machine's loopback addresses",
                found=f"--network with --sandbox {self.sandbox}",
                expected="--sandbox docker, or no --network",
            )

    def sandbox_wish(self) -> SandboxRequest:
        """Return how environments are to be kept apart."""
        return SandboxRequest(
            tier=None if self.sandbox == "auto" else Tier(self.sandbox),
            mounts=tuple(Mount.parse(each) for each in self.mounts),
            network=self.network,
            limits=self.worker.limits(),
        )

    @property
    def has_viewer(self) -> bool:
        """Whether there are pages: of a ledger, in the one worker that all sessions are in, where a browser can connect."""
        return self.ledger is not None and self.workers == 1 and self.unix_socket is None

    @property
    def warn_after(self) -> float | None:
        """After how many idle seconds a client is warned; None: never."""
        return None if self.idle_seconds is None else max(self.idle_seconds - self.warn_seconds, self.idle_seconds / 2)


def parse_settings(values: dict[str, Any]) -> ServerSettings:
    """Return the settings, or raise a ValidationError that names the first wrong one."""
    try:
        return ServerSettings.model_validate(values)
    except ModelError as problem:
        first = problem.errors(include_url=False)[0]
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, ValidationError):
            raise cause from None
        place = ".".join(str(part) for part in first["loc"])
        raise ValidationError(
            f"the setting {place!r} is not acceptable: {first['msg']}", found=first["input"]
        ) from None


def read_settings_file(path: Path) -> dict[str, Any]:
    """Return what a TOML file says, unchecked; a file that cannot be read is a ValidationError."""
    expected = "a TOML file with settings"
    try:
        return tomllib.loads(read_small_text(path, expected=expected))
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise ValidationError(f"cannot read {path}: {problem}", expected=expected) from None
