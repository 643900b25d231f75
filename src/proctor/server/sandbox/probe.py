"""Tries on this host what each tier really blocks, in workers that are started as sessions' workers are.

Rule 1: what runs is the real thing: the nest of `server`'s sessions, with an environment that attacks.
Rule 2: a probe that ends its worker has a worker of its own; nothing of a trial is left behind.
Rule 3: a tier that cannot be started is `lacking`, with the reason and what to do.
"""

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any, Final, TypeVar

from proctor.envs.targets import Target
from proctor.errors import ProctorError
from proctor.models.control import Code
from proctor.server.answers import NotDone, Outcome
from proctor.server.desk import ResetOrder
from proctor.server.sandbox import host
from proctor.server.sandbox.bait import LIMITS, Baits, laid_out
from proctor.server.sandbox.findings import CHOICES, Finding, Probe, Report, TierReport, Verdict, refusal, strongest
from proctor.server.sandbox.nest import Nest
from proctor.server.sandbox.pipe import Work
from proctor.server.sandbox.place import InWorker
from proctor.server.sandbox.probes import Tried
from proctor.server.sandbox.tiers import SandboxWish, Tier

__all__ = ["Report", "full_report", "quick_report", "refusal", "strongest", "trial"]

TARGET: Final = Target("proctor.server.sandbox.probes:Probing")
WORK: Final = Work(TARGET.text, {}, False, False, None, None, False)
PATIENCE_SECONDS: Final = 10.0
START_SECONDS: Final = 30.0
ENDING: Final = frozenset((Probe.MEMORY_BOMB, Probe.MEMORY_OF_MANY, Probe.PTRACE))
"""What the kernel may answer by ending the process."""
QUICK: Final = tuple(probe for probe in Probe if probe is not Probe.MEMORY_OF_MANY)
"""What is tried whenever a server starts: all but the one that takes the memory of a whole limit several times."""
PLAIN: Final = "import sys; sys.path[:] = sys.argv[1:]; from proctor.server.sandbox.probes import main; main()"
LOGS: Final = ("proctor.sandbox", "proctor.environment")
SHARED: Final = "all sessions are in the server's own process"
Result = TypeVar("Result")


def full_report() -> Report:
    """Return what each of none..strict blocks on this host, by all probes; takes some seconds."""
    return Report(host.facts(), tuple(_run_probes(tier, tuple(Probe)) for tier in reversed(CHOICES)))


def quick_report(wish: SandboxWish) -> Report:
    """Return what the tier that is wished for blocks; for auto, what the strongest one blocks that holds."""
    wanted = CHOICES if wish.tier is None else (wish.tier,)
    tiers: list[TierReport] = []
    for tier in wanted:
        # In the server's own process there is nothing to be tried.
        tiers.append(TierReport(tier) if tier in (Tier.NONE, Tier.DOCKER) else _run_probes(tier, QUICK))
        if tiers[-1].holds():
            break
    return Report(host.facts(), tuple(tiers))


def trial(tier: Tier, probe: Probe) -> Finding:
    """Return what comes of one probe in one tier."""
    return _run_probes(tier, (probe,)).of(probe)


def _run_probes(tier: Tier, probes: Iterable[Probe]) -> TierReport:
    """Return what comes of some probes in a tier; one that cannot be started is lacking."""
    lacking = host.lacking(tier)
    if lacking is not None:
        return TierReport(tier, lacking=lacking)
    with laid_out() as baits, _quiet():
        if tier is Tier.NONE:
            return TierReport(tier, tuple(_plainly(probes, baits)))
        try:
            return _blocking(_in_workers(tier, probes, baits))
        except ProctorError as problem:
            return TierReport(tier, lacking=_why(str(problem)))


def _why(problem: str) -> str:
    """Return what went wrong, with the setting of the kernel that is likely to be the cause."""
    switch = host.user_namespaces()
    return problem if switch == host.ALLOWED or os.geteuid() == 0 else f"{problem}; user namespaces are {switch}"


# --------------------------------------------------------------------------------------------------- without a sandbox
def _plainly(probes: Iterable[Probe], baits: Baits) -> Iterator[Finding]:
    """Try what can be done without any sandbox, in a process of this user."""
    wanted = [probe for probe in probes if probe is not Probe.NEIGHBOURS]
    given = "\n".join(baits.bait(probe).model_dump_json() for probe in wanted)
    line = [sys.executable, "-I", "-c", PLAIN, *sys.path]
    done = subprocess.run(line, input=given.encode(), capture_output=True, check=False, timeout=60)  # noqa: S603
    for probe, said in zip(wanted, done.stdout.splitlines(), strict=False):
        yield _judged(probe, Tried.model_validate_json(said), baits)
    for probe in wanted[len(done.stdout.splitlines()) :]:
        yield Finding(probe, Verdict.UNPROVEN, "the process ended")
    if Probe.NEIGHBOURS in probes:
        yield Finding(Probe.NEIGHBOURS, Verdict.OPEN, SHARED)


# ---------------------------------------------------------------------------------------------------------- in workers
async def _in_workers(tier: Tier, probes: Iterable[Probe], baits: Baits) -> TierReport:
    wish = SandboxWish(tier, limits=LIMITS)
    nest = await asyncio.to_thread(Nest.started, TARGET, wish, tier, start_seconds=START_SECONDS)
    try:
        findings = [await _attacked(nest, probe, baits) for probe in probes]
        return TierReport(tier, tuple(findings), note=nest.report.costs)
    finally:
        await nest.close()


async def _attacked(nest: Nest, probe: Probe, baits: Baits) -> Finding:
    """Return what comes of a probe in a worker of its own."""
    try:
        place, _ = await _begun(nest, "")
    except NotDone as problem:
        return Finding(probe, Verdict.UNPROVEN, problem.problem.message)
    try:
        if probe is Probe.NEIGHBOURS:
            return await _beside(nest, place, baits)
        found = _judged(probe, await _attempt(place, probe, baits), baits)
    except NotDone as problem:
        return _ended(probe, problem)
    else:
        if probe is Probe.KERNEL_CALLS and found.verdict is Verdict.BLOCKED and not nest.filters_imports():
            return Finding(probe, Verdict.OPEN, "the process that imports the environment has no filter")
        return found
    finally:
        place.abandon()


async def _beside(nest: Nest, attacker: InWorker, baits: Baits) -> Finding:
    """Return what comes of an attack on another session's worker, which is asked afterwards whether it is still there."""
    neighbour, number = await _begun(nest, baits.token)
    try:
        said = await _attempt(attacker, Probe.NEIGHBOURS, baits, number)
        await neighbour.state()
    except NotDone:
        return Finding(Probe.NEIGHBOURS, Verdict.OPEN, "the worker of another session was ended")
    finally:
        neighbour.abandon()
    return _judged(Probe.NEIGHBOURS, said, baits)


async def _begun(nest: Nest, episode: str) -> tuple[InWorker, int]:
    """Return a place with an environment that attacks, and the number by which its process knows itself."""
    place = await nest.place(WORK)
    place.patience = PATIENCE_SECONDS
    outcome = await place.reset(ResetOrder(None, episode, None))
    return place, _observed(outcome).pid


async def _attempt(place: InWorker, probe: Probe, baits: Baits, neighbour: int = 0) -> Tried:
    bait = baits.bait(probe, neighbour)
    return _observed(await place.step(bait.model_dump_json().encode()))


def _observed(outcome: Any) -> Tried:
    return Tried.model_validate_json(outcome.observation if isinstance(outcome, Outcome) else b"")


# ------------------------------------------------------------------------------------------------------------ verdicts
def _judged(probe: Probe, tried: Tried, baits: Baits) -> Finding:
    """Return the verdict; where the host can see for itself, that counts."""
    seen = baits.taken(probe)
    succeeded = tried.succeeded if seen is None else seen
    if succeeded == tried.succeeded:
        return Finding(probe, Verdict.OPEN if succeeded else Verdict.BLOCKED, tried.said)
    if succeeded:
        return Finding(probe, Verdict.OPEN, "this machine saw that it was reached")
    return Finding(probe, Verdict.BLOCKED, "this machine saw nothing of it")


def _ended(probe: Probe, problem: NotDone) -> Finding:
    """Return the verdict on a probe after which the worker did not answer."""
    if problem.problem.code != Code.STEP_TIMEOUT and probe in ENDING:
        return Finding(probe, Verdict.BLOCKED, "the kernel ended the process")
    return Finding(probe, Verdict.UNPROVEN, problem.problem.message)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep out of the log what workers and zygotes say that are meant to end."""
    with ExitStack() as stack:
        for log in map(logging.getLogger, LOGS):
            log.addFilter(_nothing)
            stack.callback(log.removeFilter, _nothing)
        yield


def _nothing(_record: logging.LogRecord) -> bool:
    return False


def _blocking(work: Coroutine[Any, Any, Result]) -> Result:
    """Return what a coroutine returns; on a thread, because whoever asks may be inside an event loop."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()
