"""What is really blocked: the tiers that need nothing quickly, the others in the system tests."""

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import ComponentError
from proctor.models.control import Code
from proctor.server.runtime.results import make_failure
from proctor.server.sandbox.pool import bubblewrap, cgroups
from proctor.server.sandbox.pool.cgroups import limit_settings
from proctor.server.sandbox.pool.worker_pool import WorkerPool
from proctor.server.sandbox.probe import run
from proctor.server.sandbox.probe.attacks import AttackResult, SandboxProbe, find_left_file
from proctor.server.sandbox.probe.run import (
    CHOICES,
    ENDING,
    ProbeVerdict,
    SandboxReport,
    TierReport,
    full_report,
    lay_out_decoys,
    quick_report,
    refusal,
    run_probe,
    strongest,
)
from proctor.server.sandbox.tiers import SandboxLimits, SandboxRequest, Tier
from proctor.server.sandbox.worker import zygote


def test_the_tier_process_keeps_its_two_promises_and_no_more() -> None:
    report = quick_report(SandboxRequest(Tier.PROCESS))
    found = report.of(Tier.PROCESS)

    assert found is not None
    assert found.holds(), found.find_faults()
    assert found.of(SandboxProbe.NETWORK).verdict is found.of(SandboxProbe.HOST_FILES).verdict is ProbeVerdict.OPEN
    assert found.of(SandboxProbe.NEIGHBOURS).verdict is ProbeVerdict.OPEN
    assert strongest(report) is Tier.PROCESS


def test_what_a_neighbour_left_in_a_shared_folder_is_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _: f"of-{os.getpid()}")
    found = run_probe(Tier.PROCESS, SandboxProbe.NEIGHBOURS)

    assert found.reason == "a temporary file of another session was seen"
    assert not find_left_file(f"canary-of-{os.getpid()}").exists()


@pytest.mark.parametrize("tier", [Tier.NONE, Tier.DOCKER])
def test_where_there_is_no_nest_nothing_is_tried_at_a_servers_start(tier: Tier) -> None:
    report = quick_report(SandboxRequest(tier))

    assert report.tiers == (TierReport(tier),)
    assert refusal(SandboxRequest(tier), report) is None


def test_a_host_without_bubblewrap_falls_back_and_refuses_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "find_executable", lambda: None)
    tried: list[Tier] = []

    def holding(tier: Tier, *_: Any) -> TierReport:
        tried.append(tier)
        return TierReport(tier, lacking=run.explain_lacking(tier))

    monkeypatch.setattr(run, "_run_probes", holding)
    report = quick_report(SandboxRequest())

    assert tried == [Tier.STRICT, Tier.BWRAP, Tier.PROCESS]
    assert strongest(report) is Tier.PROCESS
    assert "install" in str(refusal(SandboxRequest(Tier.STRICT), report))


def test_a_tier_that_does_not_start_is_lacking_with_the_likely_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> WorkerPool:
        raise ComponentError("the sandbox could not be started: No permissions")

    monkeypatch.setattr(run, "explain_lacking", lambda _: None)
    monkeypatch.setattr(run, "check_user_namespaces", lambda: "forbidden by a switch")
    monkeypatch.setattr(WorkerPool, "start", refuse)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = run_probe(Tier.BWRAP, SandboxProbe.NETWORK)

    assert found.verdict is ProbeVerdict.UNPROVEN
    assert found.reason.endswith("No permissions; user namespaces are forbidden by a switch")


@pytest.mark.parametrize(
    ("succeeded", "seen", "verdict"),
    [
        (True, True, ProbeVerdict.OPEN),
        (False, False, ProbeVerdict.BLOCKED),
        (False, True, ProbeVerdict.OPEN),
        (True, False, ProbeVerdict.BLOCKED),
        (True, None, ProbeVerdict.OPEN),
        (False, None, ProbeVerdict.BLOCKED),
    ],
)
def test_what_this_machine_sees_counts_more_than_what_a_probe_says(
    monkeypatch: pytest.MonkeyPatch, succeeded: bool, seen: bool | None, verdict: ProbeVerdict
) -> None:
    with lay_out_decoys() as baits:
        monkeypatch.setattr(baits, "was_taken", lambda _: seen)
        found = run._judge(SandboxProbe.SIGNALS, AttackResult(succeeded=succeeded, said="so it is"), baits)

    assert found.verdict is verdict


@pytest.mark.parametrize("each", SandboxProbe)
def test_a_worker_that_ended_proves_something_only_where_the_kernel_answers_so(each: SandboxProbe) -> None:
    ended = run._judge_end(each, make_failure(Code.EXECUTION_ERROR, "the environment's process ended"))
    late = run._judge_end(each, make_failure(Code.STEP_TIMEOUT, "late"))

    assert ended.verdict is (ProbeVerdict.BLOCKED if each in ENDING else ProbeVerdict.UNPROVEN)
    assert late.verdict is ProbeVerdict.UNPROVEN


def test_a_process_that_ends_before_it_has_tried_all_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "PLAIN", "")
    found = run_probe(Tier.NONE, SandboxProbe.NETWORK)

    assert (found.verdict, found.reason) == (ProbeVerdict.UNPROVEN, "the process ended")


def test_nothing_is_logged_of_workers_that_are_meant_to_end(caplog: pytest.LogCaptureFixture) -> None:
    with run._silence_logs():
        logging.getLogger("proctor.sandbox").error("a worker ended")
    logging.getLogger("proctor.sandbox").error("a worker ended later")

    assert caplog.messages == ["a worker ended later"]


# --------------------------------------------------------------------------------------------- with root and bubblewrap
@pytest.fixture(scope="module")
def report() -> SandboxReport:
    return full_report()


@pytest.mark.system
def test_this_host_enforces_strict_and_every_weaker_tier(report: SandboxReport) -> None:
    assert strongest(report) is Tier.STRICT
    assert [found.find_faults() for found in report.tiers] == [(), (), (), ()]
    assert [found.tier for found in report.tiers] == list(reversed(CHOICES))
    assert all(refusal(SandboxRequest(tier), report) is None for tier in CHOICES)


@pytest.mark.system
def test_strict_blocks_everything_that_works_without_a_sandbox(report: SandboxReport) -> None:
    none, strict = report.of(Tier.NONE), report.of(Tier.STRICT)
    assert none is not None
    assert strict is not None

    # The attacks are real: all of them succeed where nothing is in the way.
    assert {found.verdict for found in none.findings} == {ProbeVerdict.OPEN}
    assert {found.verdict for found in strict.findings} == {ProbeVerdict.BLOCKED}


@pytest.mark.system
def test_nothing_is_left_of_a_trial(report: SandboxReport) -> None:
    found = cgroups.find_cgroups()

    assert report.tiers
    assert not [home for home in found.homes if list(home.glob(f"proctor-{os.getpid()}-*"))]
    assert not [line for line in _children() if b"canary-" in line or b"bwrap" in line]


def _children() -> Iterator[bytes]:
    """Yield the command lines of this process's children."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):
            if int((process / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                yield (process / "cmdline").read_bytes()


@pytest.mark.system
def test_auto_tries_the_strongest_first_and_stops_there() -> None:
    report = quick_report(SandboxRequest())

    assert [found.tier for found in report.tiers] == [Tier.STRICT]
    assert strongest(report) is Tier.STRICT


@pytest.mark.system
@pytest.mark.parametrize("tier", [Tier.BWRAP, Tier.STRICT])
def test_a_zygote_without_a_filter_is_found_out(monkeypatch: pytest.MonkeyPatch, tier: Tier) -> None:
    assert run_probe(tier, SandboxProbe.KERNEL_CALLS).verdict is ProbeVerdict.BLOCKED

    unfiltered = zygote.ENTRY.replace(
        "from proctor.server.sandbox.worker.zygote import main",
        "from proctor.server.sandbox.worker import confine; from proctor.server.sandbox.worker.zygote import main\n"
        "confine.load_filter = lambda use, load=confine.load_filter, **more: use == 'worker' and load(use, **more)",
    )
    monkeypatch.setattr(zygote, "ENTRY", unfiltered)

    assert run_probe(tier, SandboxProbe.KERNEL_CALLS).verdict is ProbeVerdict.OPEN


@pytest.mark.system
def test_a_sandbox_with_a_hole_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bubblewrap.command
    monkeypatch.setattr(bubblewrap, "command", lambda wish, binds, inside: _without_net(whole(wish, binds, inside)))
    sockets = run_probe(Tier.BWRAP, SandboxProbe.ABSTRACT_SOCKETS)
    monkeypatch.setattr(bubblewrap, "command", lambda wish, binds, inside: _with_tmp(whole(wish, binds, inside)))
    files = run_probe(Tier.BWRAP, SandboxProbe.HOST_FILES)
    writes = run_probe(Tier.BWRAP, SandboxProbe.HOST_WRITES)

    assert [each.verdict for each in (sockets, files, writes)] == [ProbeVerdict.OPEN] * 3


def _without_net(line: list[str]) -> list[str]:
    return [word for word in line if word != "--unshare-net"]


def _with_tmp(line: list[str]) -> list[str]:
    """Show the host's temporary files, where the canary is."""
    place = line.index("--remount-ro")
    return [*line[:place], "--bind", "/tmp", "/tmp", *line[place:]]


@pytest.mark.system
@pytest.mark.parametrize("each", [SandboxProbe.FORK_BOMB, SandboxProbe.MEMORY_BOMB, SandboxProbe.MEMORY_OF_MANY])
def test_a_group_without_limits_is_found_out(monkeypatch: pytest.MonkeyPatch, each: SandboxProbe) -> None:
    large = SandboxLimits(memory_bytes=2**33, processes=1000)
    monkeypatch.setattr(cgroups, "limit_settings", lambda version, _limits: limit_settings(version, large))

    assert run_probe(Tier.STRICT, each).verdict is ProbeVerdict.OPEN
