"""Tries on this host what each tier really blocks, in workers that are started as sessions' workers are.

Rule 1: what runs is the real thing: the worker pool of a server's sessions, with an environment that attacks (`attacks`).
Rule 2: a probe that ends its worker has a worker of its own; nothing of a trial is left behind.
Rule 3: a tier that cannot be started is `lacking`, with the reason and what to do.
Rule 4: decoys are laid out on the host for the probes to reach. A probe's own word that it was stopped is not enough
    where the host can see for itself.
Rule 5: a probe is `blocked`, `open` or `unproven`; nothing is called blocked that was not tried. A tier holds if everything
    that it promises was tried and blocked. A tier that does not hold is not used.
"""

import asyncio
import logging
import os
import platform
import secrets
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import msgspec

from proctor.envs.targets import Target
from proctor.errors import ProctorError
from proctor.models.control import Code
from proctor.server.runtime.env_adapter import ResetRequest
from proctor.server.runtime.results import EnvOutcome, RequestError
from proctor.server.sandbox.attacks import AttackResult, AttackTargets, SandboxProbe, find_left_file
from proctor.server.sandbox.messages import Work
from proctor.server.sandbox.pool import bubblewrap, cgroups
from proctor.server.sandbox.pool.container_pool import ENGINES
from proctor.server.sandbox.pool.worker_executor import WorkerExecutor, run_blocking
from proctor.server.sandbox.pool.worker_pool import COST, WorkerPool
from proctor.server.sandbox.tiers import MIB, SandboxLimits, SandboxRequest, Tier
from proctor.server.sandbox.worker.seccomp import Architecture, here

CHOICES: Final = (Tier.STRICT, Tier.BWRAP, Tier.PROCESS, Tier.NONE)
"""What `auto` chooses from, strongest first."""


class ProbeVerdict(StrEnum):
    """What came of a probe."""

    BLOCKED = "blocked"
    OPEN = "open"
    UNPROVEN = "unproven"


class ProbeFinding(msgspec.Struct, frozen=True):
    """What came of one probe in one tier, with a sentence."""

    probe: SandboxProbe
    verdict: ProbeVerdict
    reason: str


class TierReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was found in one tier; `lacking` says why it could not be tried, `note` what it costs here."""

    tier: Tier
    findings: tuple[ProbeFinding, ...] = ()
    lacking: str | None = None
    note: str | None = None

    def of(self, probe: SandboxProbe) -> ProbeFinding:
        """Return what came of a probe; one that was not run proves nothing."""
        reason = "it was not tried" if self.lacking is None else self.lacking
        untried = ProbeFinding(probe, ProbeVerdict.UNPROVEN, reason)
        return next((each for each in self.findings if each.probe is probe), untried)

    def find_faults(self) -> tuple[ProbeFinding, ...]:
        """Return what this tier promises and does not keep."""
        promised = (each for each in self.findings if each.probe.promised.rank <= self.tier.rank)
        return tuple(each for each in promised if each.verdict is not ProbeVerdict.BLOCKED)

    def holds(self) -> bool:
        """Return whether it can be used: it was tried, and keeps what it promises."""
        return self.lacking is None and not self.find_faults()


class HostFacts(msgspec.Struct, frozen=True):
    """What this host has; words where something is missing."""

    kernel: str
    architecture: str
    root: bool
    bubblewrap: str | None
    cgroups: str
    user_namespaces: str
    engines: tuple[str, ...]


class SandboxReport(msgspec.Struct, frozen=True):
    """What each tier that was tried really blocks on this host."""

    host: HostFacts
    tiers: tuple[TierReport, ...]

    def of(self, tier: Tier) -> TierReport | None:
        """Return what was found in a tier, None if it was not tried."""
        return next((each for each in self.tiers if each.tier is tier), None)


def strongest(report: SandboxReport) -> Tier:
    """Return the strongest of none..strict that holds."""
    holding = {each.tier for each in report.tiers if each.holds()}
    return next((tier for tier in CHOICES if tier in holding), Tier.NONE)


def find_next_tier(report: SandboxReport) -> tuple[Tier, str] | None:
    """Return the next stronger tier than the strongest that holds, and what is missing for it; None if there is none."""
    holding = strongest(report)
    stronger = [each for each in report.tiers if each.tier in CHOICES and each.tier.rank > holding.rank]
    if not stronger:
        return None
    found = min(stronger, key=lambda each: each.tier.rank)
    return found.tier, explain_shortcoming(found)


def refusal(wish: SandboxRequest, report: SandboxReport) -> str | None:
    """Return in words why the tier that was asked for is not enforced here, None if it is or if any will do."""
    if wish.tier is None or wish.tier in (Tier.NONE, Tier.DOCKER):
        return None
    found = report.of(wish.tier)
    if found is None:
        return f"the sandbox {wish.tier} was not tried on this host; `proctor doctor` tries it"
    if found.holds():
        return None
    return f"this host does not enforce the sandbox {wish.tier}: {explain_shortcoming(found)}"


def explain_shortcoming(found: TierReport) -> str:
    """Return in words what keeps a tier from holding."""
    if found.lacking is not None:
        return found.lacking
    return "; ".join(f"{each.probe} is {each.verdict} ({each.reason})" for each in found.find_faults())


INSTALL: Final = "bubblewrap is not installed; install it, for instance with `apt install bubblewrap`"
NO_LINUX: Final = "this is no Linux"
SWITCHES: Final = (
    ("user/max_user_namespaces", "0", "set user.max_user_namespaces to more than 0"),
    ("kernel/unprivileged_userns_clone", "0", "set kernel.unprivileged_userns_clone to 1"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "set kernel.apparmor_restrict_unprivileged_userns to 0"),
)
"""The kernel's settings by which user namespaces are forbidden: a file, what forbids them, and what to do."""
ALLOWED: Final = "allowed"


def collect_facts() -> HostFacts:
    """Return what this host has."""
    version: str | None = None
    if (path := bubblewrap.find_executable()) is not None:
        try:
            done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=5)  # noqa: S603
            version = done.stdout.strip().removeprefix("bubblewrap ")
        except (OSError, subprocess.TimeoutExpired) as problem:
            version = f"does not run: {problem}"
    try:
        found = cgroups.find_cgroups()
        groups = f"version {found.version}, {'tried' if found.proven else 'unproven'}"
    except cgroups.CgroupsMissing as problem:
        groups = str(problem)
    return HostFacts(
        kernel=platform.release(),
        architecture=platform.machine(),
        root=os.geteuid() == 0,
        bubblewrap=version,
        cgroups=groups,
        user_namespaces=check_user_namespaces(),
        engines=tuple(name for name in ENGINES if shutil.which(name) is not None),
    )


def explain_lacking(tier: Tier) -> str | None:
    """Return in words what a tier needs that this host plainly does not have, and what to do; None if it can be tried."""
    if tier is Tier.NONE:
        return None
    if not sys.platform.startswith("linux"):
        return NO_LINUX
    if tier.rank >= Tier.BWRAP.rank and bubblewrap.find_executable() is None:
        return INSTALL
    if tier.rank >= Tier.STRICT.rank:
        try:
            cgroups.find_cgroups()
        except cgroups.CgroupsMissing as problem:
            return f"there are no cgroups: {problem}"
    if tier.rank >= Tier.BWRAP.rank and here() is None:
        return f"there is no seccomp filter for {platform.machine()}, only for {' and '.join(Architecture)}"
    return None


def check_user_namespaces(settings: Path = Path("/proc/sys")) -> str:
    """Return `allowed`, or in words what forbids a user namespace and what to do."""
    for name, forbidding, remedy in SWITCHES:
        with suppress(OSError):
            if (settings / name).read_text(encoding="ascii").strip() == forbidding:
                return f"forbidden by {name.replace('/', '.')}; {remedy}"
    return ALLOWED


LIMITS: Final = SandboxLimits(memory_bytes=256 * MIB, processes=24, file_bytes=MIB, tmp_bytes=2 * MIB)
"""Small ones: that they hold is what is tried, and trying must not hurt where they do not."""
VARIABLE: Final = "PROCTOR_CANARY"
ECHO: Final = "import os\nwhile said := os.read(0, 1): os.write(1, said)"
"""What the process does that a probe may find or kill: answer what it is told."""
ANSWER_SECONDS: Final = 60.0


class Decoys:
    """Listeners, a folder and a process, all marked with one random word; made by `lay_out_decoys`."""

    def __init__(self, stack: ExitStack) -> None:
        self.token = f"canary-{secrets.token_hex(8)}"
        self._stack = stack
        self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (self._folder / "canary").write_text(self.token, encoding="ascii")
        # Open to all: what keeps a worker out is then that it does not see it, not that it is somebody else.
        self._folder.chmod(0o777)
        self._listeners = {
            SandboxProbe.NETWORK: self._start_listener(socket.AF_INET, ("127.0.0.1", 0)),
            SandboxProbe.ABSTRACT_SOCKETS: self._start_listener(socket.AF_UNIX, f"\0{self.token}"),
        }
        self._decoy = self._start_decoy()

    def targets_for(self, probe: SandboxProbe, neighbour: int = 0) -> AttackTargets:
        """Return what a probe is told."""
        if self._decoy.poll() is not None:
            self._decoy = self._start_decoy()
        if probe is SandboxProbe.PROC:
            self._decoy_answers()  # only then is its command line there: a new program gets it a moment after it has begun
        return AttackTargets(
            probe=probe,
            token=self.token,
            folder=str(self._folder),
            port=self._listeners[SandboxProbe.NETWORK].getsockname()[1],
            decoy=self._decoy.pid,
            neighbour=neighbour,
            memory_bytes=LIMITS.memory_bytes,
            processes=LIMITS.processes,
            tmp_bytes=LIMITS.tmp_bytes,
        )

    def was_taken(self, probe: SandboxProbe) -> bool | None:
        """Return whether the host saw that the probe succeeded, None where only the probe can know."""
        if probe in self._listeners:
            try:
                connection, _ = self._listeners[probe].accept()
            except BlockingIOError:
                return False
            connection.close()
            return True
        if probe is not SandboxProbe.SIGNALS:
            return None
        if self._decoy_answers():
            return False
        self._decoy.kill()  # one that was only stopped
        self._decoy.wait()
        return True

    def _start_listener(self, family: int, address: str | tuple[str, int]) -> socket.socket:
        listener = self._stack.enter_context(socket.socket(family))
        listener.bind(address)
        listener.listen()
        listener.setblocking(False)
        return listener

    def _start_decoy(self) -> "subprocess.Popen[bytes]":
        """Start a process that answers, with the word in its command line."""
        line = [sys.executable, "-I", "-S", "-c", ECHO, self.token]
        process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603 - this Python
        self._stack.callback(process.communicate)
        self._stack.callback(process.kill)
        return process

    def _decoy_answers(self) -> bool:
        """Return whether the process still does what it is for; one that was killed answers nothing, however late it ends."""
        said, heard = self._decoy.stdin, self._decoy.stdout
        if said is None or heard is None:
            return False
        with suppress(BrokenPipeError):
            os.write(said.fileno(), b"?")
            ready, _, _ = select.select([heard], [], [], ANSWER_SECONDS)
            return bool(ready and os.read(heard.fileno(), 1))
        return False


@contextmanager
def lay_out_decoys() -> Iterator[Decoys]:
    """Yield decoys, and clear them away."""
    with ExitStack() as stack:
        decoys = Decoys(stack)
        os.environ[VARIABLE] = decoys.token
        stack.callback(os.environ.pop, VARIABLE, None)
        # Where workers have no temporary folder of their own, it is ours that the neighbour's file is in.
        stack.callback(find_left_file(decoys.token).unlink, missing_ok=True)
        yield decoys


TARGET: Final = Target("proctor.server.sandbox.attacks:Probing")
WORK: Final = Work(TARGET.text, {}, False, False, None, None, False)
PATIENCE_SECONDS: Final = 10.0
START_SECONDS: Final = 30.0
ENDING: Final = frozenset((SandboxProbe.MEMORY_BOMB, SandboxProbe.MEMORY_OF_MANY, SandboxProbe.PTRACE))
"""What the kernel may answer by ending the process."""
QUICK: Final = tuple(probe for probe in SandboxProbe if probe is not SandboxProbe.MEMORY_OF_MANY)
"""What is tried whenever a server starts: all but the one that takes the memory of a whole limit several times."""
PLAIN: Final = "import sys; sys.path[:] = sys.argv[1:]; from proctor.server.sandbox.attacks import main; main()"
SHARED: Final = "all sessions are in the server's own process"


def full_report() -> SandboxReport:
    """Return what each of none..strict blocks on this host, by all probes; takes some seconds."""
    return SandboxReport(collect_facts(), tuple(_run_probes(tier, tuple(SandboxProbe)) for tier in reversed(CHOICES)))


def quick_report(wish: SandboxRequest) -> SandboxReport:
    """Return what the tier that is wished for blocks; for auto, what the strongest one blocks that holds."""
    wanted = CHOICES if wish.tier is None else (wish.tier,)
    tiers: list[TierReport] = []
    for tier in wanted:
        # In the server's own process there is nothing to be tried.
        tiers.append(TierReport(tier) if tier in (Tier.NONE, Tier.DOCKER) else _run_probes(tier, QUICK))
        if tiers[-1].holds():
            break
    return SandboxReport(collect_facts(), tuple(tiers))


def _run_probes(tier: Tier, probes: Iterable[SandboxProbe]) -> TierReport:
    """Return what comes of some probes in a tier; one that cannot be started is lacking."""
    lacking = explain_lacking(tier)
    if lacking is not None:
        return TierReport(tier, lacking=lacking)
    with lay_out_decoys() as decoys, _silence_logs():
        if tier is Tier.NONE:
            return TierReport(tier, tuple(_run_without_sandbox(probes, decoys)))
        try:
            return run_blocking(_run_in_workers(tier, probes, decoys))
        except ProctorError as problem:
            # With the setting of the kernel that is likely to be the cause.
            switch = check_user_namespaces()
            known = switch == ALLOWED or os.geteuid() == 0
            return TierReport(tier, lacking=str(problem) if known else f"{problem}; user namespaces are {switch}")


def _run_without_sandbox(probes: Iterable[SandboxProbe], decoys: Decoys) -> Iterator[ProbeFinding]:
    """Try what can be done without any sandbox, in a process of this user."""
    wanted = [probe for probe in probes if probe is not SandboxProbe.NEIGHBOURS]
    given = "\n".join(decoys.targets_for(probe).model_dump_json() for probe in wanted)
    line = [sys.executable, "-I", "-c", PLAIN, *sys.path]
    done = subprocess.run(line, input=given.encode(), capture_output=True, check=False, timeout=60)  # noqa: S603
    for probe, said in zip(wanted, done.stdout.splitlines(), strict=False):
        yield _judge(probe, AttackResult.model_validate_json(said), decoys)
    for probe in wanted[len(done.stdout.splitlines()) :]:
        yield ProbeFinding(probe, ProbeVerdict.UNPROVEN, "the process ended")
    if SandboxProbe.NEIGHBOURS in probes:
        yield ProbeFinding(SandboxProbe.NEIGHBOURS, ProbeVerdict.OPEN, SHARED)


async def _run_in_workers(tier: Tier, probes: Iterable[SandboxProbe], decoys: Decoys) -> TierReport:
    wish = SandboxRequest(tier, limits=LIMITS)
    pool = await asyncio.to_thread(WorkerPool.start, TARGET, wish, tier, start_seconds=START_SECONDS)
    try:
        findings = [await _attack(pool, probe, decoys) for probe in probes]
        return TierReport(tier, tuple(findings), note=None if pool.alone is None else COST)
    finally:
        await pool.close()


async def _attack(pool: WorkerPool, probe: SandboxProbe, decoys: Decoys) -> ProbeFinding:
    try:
        executor, _ = await _start_attacker(pool, "")
    except RequestError as problem:
        return ProbeFinding(probe, ProbeVerdict.UNPROVEN, problem.problem.message)
    try:
        if probe is SandboxProbe.NEIGHBOURS:
            return await _attack_neighbour(pool, executor, decoys)
        found = _judge(probe, await _attempt(executor, probe, decoys), decoys)
    except RequestError as problem:
        return _judge_end(probe, problem)
    else:
        if probe is SandboxProbe.KERNEL_CALLS and found.verdict is ProbeVerdict.BLOCKED and not pool.filters_imports():
            return ProbeFinding(probe, ProbeVerdict.OPEN, "the process that imports the environment has no filter")
        return found
    finally:
        executor.abandon()


async def _attack_neighbour(pool: WorkerPool, attacker: WorkerExecutor, decoys: Decoys) -> ProbeFinding:
    """Return what comes of an attack on another session's worker, which is asked afterwards whether it is still there."""
    neighbour, number = await _start_attacker(pool, decoys.token)
    try:
        said = await _attempt(attacker, SandboxProbe.NEIGHBOURS, decoys, number)
        await neighbour.state()
    except RequestError:
        return ProbeFinding(SandboxProbe.NEIGHBOURS, ProbeVerdict.OPEN, "the worker of another session was ended")
    finally:
        neighbour.abandon()
    return _judge(SandboxProbe.NEIGHBOURS, said, decoys)


async def _start_attacker(pool: WorkerPool, episode: str) -> tuple[WorkerExecutor, int]:
    """Return an executor with an environment that attacks, and the number by which its process knows itself."""
    executor = await pool.start_worker(WORK)
    executor.timeout = PATIENCE_SECONDS
    outcome = await executor.reset(ResetRequest(None, episode, None))
    return executor, _parse_result(outcome).pid


async def _attempt(executor: WorkerExecutor, probe: SandboxProbe, decoys: Decoys, neighbour: int = 0) -> AttackResult:
    targets = decoys.targets_for(probe, neighbour)
    return _parse_result(await executor.step(targets.model_dump_json().encode()))


def _parse_result(outcome: Any) -> AttackResult:
    return AttackResult.model_validate_json(outcome.observation if isinstance(outcome, EnvOutcome) else b"")


def _judge(probe: SandboxProbe, tried: AttackResult, decoys: Decoys) -> ProbeFinding:
    """Return the verdict; where the host can see for itself, that counts."""
    seen = decoys.was_taken(probe)
    succeeded = tried.succeeded if seen is None else seen
    if succeeded == tried.succeeded:
        return ProbeFinding(probe, ProbeVerdict.OPEN if succeeded else ProbeVerdict.BLOCKED, tried.said)
    if succeeded:
        return ProbeFinding(probe, ProbeVerdict.OPEN, "this machine saw that it was reached")
    return ProbeFinding(probe, ProbeVerdict.BLOCKED, "this machine saw nothing of it")


def _judge_end(probe: SandboxProbe, problem: RequestError) -> ProbeFinding:
    """Return the verdict on a probe after which the worker did not answer."""
    if problem.problem.code != Code.STEP_TIMEOUT and probe in ENDING:
        return ProbeFinding(probe, ProbeVerdict.BLOCKED, "the kernel ended the process")
    return ProbeFinding(probe, ProbeVerdict.UNPROVEN, problem.problem.message)


@contextmanager
def _silence_logs() -> Iterator[None]:
    """Keep out of the log what workers and zygotes say that are meant to end."""

    def drop(_record: logging.LogRecord) -> bool:
        return False

    with ExitStack() as stack:
        for log in map(logging.getLogger, ("proctor.sandbox", "proctor.environment")):
            log.addFilter(drop)
            stack.callback(log.removeFilter, drop)
        yield
