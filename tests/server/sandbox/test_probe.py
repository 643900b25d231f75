"""What is really blocked: the tiers that need nothing quickly, the others in the system tests."""

import logging
import os
import platform
import secrets
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import ComponentError
from proctor.models.control import Code
from proctor.server.runtime.results import make_failure
from proctor.server.sandbox import probe
from proctor.server.sandbox.attacks import AttackResult, SandboxProbe, find_left_file
from proctor.server.sandbox.pool import bubblewrap, cgroups
from proctor.server.sandbox.pool.cgroups import limit_settings
from proctor.server.sandbox.pool.worker_pool import WorkerPool
from proctor.server.sandbox.probe import SWITCHES
from proctor.server.sandbox.tiers import SandboxLimits, SandboxRequest, Tier
from proctor.server.sandbox.worker import zygote
from tests.server.sandbox.made_up_reports import HOST, kept, reported


def run_probe(tier: Tier, tried: SandboxProbe) -> probe.ProbeFinding:
    return probe._run_probes(tier, (tried,)).of(tried)


def test_the_tier_process_keeps_its_two_promises_and_no_more() -> None:
    report = probe.quick_report(SandboxRequest(Tier.PROCESS))
    found = report.of(Tier.PROCESS)

    assert found is not None
    assert found.holds(), found.find_faults()
    assert (
        found.of(SandboxProbe.NETWORK).verdict is found.of(SandboxProbe.HOST_FILES).verdict is probe.ProbeVerdict.OPEN
    )
    assert found.of(SandboxProbe.NEIGHBOURS).verdict is probe.ProbeVerdict.OPEN
    assert probe.strongest(report) is Tier.PROCESS


def test_what_a_neighbour_left_in_a_shared_folder_is_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _: f"of-{os.getpid()}")
    found = run_probe(Tier.PROCESS, SandboxProbe.NEIGHBOURS)

    assert found.reason == "a temporary file of another session was seen"
    assert not find_left_file(f"canary-of-{os.getpid()}").exists()


@pytest.mark.parametrize("tier", [Tier.NONE, Tier.DOCKER])
def test_where_there_is_no_nest_nothing_is_tried_at_a_servers_start(tier: Tier) -> None:
    report = probe.quick_report(SandboxRequest(tier))

    assert report.tiers == (probe.TierReport(tier),)
    assert probe.refusal(SandboxRequest(tier), report) is None


def test_a_host_without_bubblewrap_falls_back_and_refuses_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "find_executable", lambda: None)
    tried: list[Tier] = []

    def holding(tier: Tier, *_: Any) -> probe.TierReport:
        tried.append(tier)
        return probe.TierReport(tier, lacking=probe.explain_lacking(tier))

    monkeypatch.setattr(probe, "_run_probes", holding)
    report = probe.quick_report(SandboxRequest())

    assert tried == [Tier.STRICT, Tier.BWRAP, Tier.PROCESS]
    assert probe.strongest(report) is Tier.PROCESS
    assert "install" in str(probe.refusal(SandboxRequest(Tier.STRICT), report))


def test_a_tier_that_does_not_start_is_lacking_with_the_likely_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> WorkerPool:
        raise ComponentError("the sandbox could not be started: No permissions")

    monkeypatch.setattr(probe, "explain_lacking", lambda _: None)
    monkeypatch.setattr(probe, "check_user_namespaces", lambda: "forbidden by a switch")
    monkeypatch.setattr(WorkerPool, "start", refuse)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = run_probe(Tier.BWRAP, SandboxProbe.NETWORK)

    assert found.verdict is probe.ProbeVerdict.UNPROVEN
    assert found.reason.endswith("No permissions; user namespaces are forbidden by a switch")


@pytest.mark.parametrize(
    ("succeeded", "seen", "verdict"),
    [
        (True, True, probe.ProbeVerdict.OPEN),
        (False, False, probe.ProbeVerdict.BLOCKED),
        (False, True, probe.ProbeVerdict.OPEN),
        (True, False, probe.ProbeVerdict.BLOCKED),
        (True, None, probe.ProbeVerdict.OPEN),
        (False, None, probe.ProbeVerdict.BLOCKED),
    ],
)
def test_what_this_machine_sees_counts_more_than_what_a_probe_says(
    monkeypatch: pytest.MonkeyPatch, succeeded: bool, seen: bool | None, verdict: probe.ProbeVerdict
) -> None:
    with probe.lay_out_decoys() as baits:
        monkeypatch.setattr(baits, "was_taken", lambda _: seen)
        found = probe._judge(SandboxProbe.SIGNALS, AttackResult(succeeded=succeeded, said="so it is"), baits)

    assert found.verdict is verdict


@pytest.mark.parametrize("each", SandboxProbe)
def test_a_worker_that_ended_proves_something_only_where_the_kernel_answers_so(each: SandboxProbe) -> None:
    ended = probe._judge_end(each, make_failure(Code.EXECUTION_ERROR, "the environment's process ended"))
    late = probe._judge_end(each, make_failure(Code.STEP_TIMEOUT, "late"))

    assert ended.verdict is (probe.ProbeVerdict.BLOCKED if each in probe.ENDING else probe.ProbeVerdict.UNPROVEN)
    assert late.verdict is probe.ProbeVerdict.UNPROVEN


def test_a_process_that_ends_before_it_has_tried_all_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "PLAIN", "")
    found = run_probe(Tier.NONE, SandboxProbe.NETWORK)

    assert (found.verdict, found.reason) == (probe.ProbeVerdict.UNPROVEN, "the process ended")


def test_nothing_is_logged_of_workers_that_are_meant_to_end(caplog: pytest.LogCaptureFixture) -> None:
    with probe._silence_logs():
        logging.getLogger("proctor.sandbox").error("a worker ended")
    logging.getLogger("proctor.sandbox").error("a worker ended later")

    assert caplog.messages == ["a worker ended later"]


@pytest.fixture(scope="module")
def report() -> probe.SandboxReport:
    return probe.full_report()


@pytest.mark.system
def test_this_host_enforces_strict_and_every_weaker_tier(report: probe.SandboxReport) -> None:
    assert probe.strongest(report) is Tier.STRICT
    assert [found.find_faults() for found in report.tiers] == [(), (), (), ()]
    assert [found.tier for found in report.tiers] == list(reversed(probe.CHOICES))
    assert all(probe.refusal(SandboxRequest(tier), report) is None for tier in probe.CHOICES)


@pytest.mark.system
def test_strict_blocks_everything_that_works_without_a_sandbox(report: probe.SandboxReport) -> None:
    none, strict = report.of(Tier.NONE), report.of(Tier.STRICT)
    assert none is not None
    assert strict is not None

    # The attacks are real: all of them succeed where nothing is in the way.
    assert {found.verdict for found in none.findings} == {probe.ProbeVerdict.OPEN}
    assert {found.verdict for found in strict.findings} == {probe.ProbeVerdict.BLOCKED}


@pytest.mark.system
def test_nothing_is_left_of_a_trial(report: probe.SandboxReport) -> None:
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
    report = probe.quick_report(SandboxRequest())

    assert [found.tier for found in report.tiers] == [Tier.STRICT]
    assert probe.strongest(report) is Tier.STRICT


@pytest.mark.system
@pytest.mark.parametrize("tier", [Tier.BWRAP, Tier.STRICT])
def test_a_zygote_without_a_filter_is_found_out(monkeypatch: pytest.MonkeyPatch, tier: Tier) -> None:
    assert run_probe(tier, SandboxProbe.KERNEL_CALLS).verdict is probe.ProbeVerdict.BLOCKED

    unfiltered = zygote.ENTRY.replace(
        "from proctor.server.sandbox.worker.zygote import main",
        "from proctor.server.sandbox.worker import confine; from proctor.server.sandbox.worker.zygote import main\n"
        "confine.load_filter = lambda use, load=confine.load_filter, **more: use == 'worker' and load(use, **more)",
    )
    monkeypatch.setattr(zygote, "ENTRY", unfiltered)

    assert run_probe(tier, SandboxProbe.KERNEL_CALLS).verdict is probe.ProbeVerdict.OPEN


@pytest.mark.system
def test_a_sandbox_with_a_hole_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = bubblewrap.command
    monkeypatch.setattr(bubblewrap, "command", lambda wish, binds, inside: _without_net(whole(wish, binds, inside)))
    sockets = run_probe(Tier.BWRAP, SandboxProbe.ABSTRACT_SOCKETS)
    monkeypatch.setattr(bubblewrap, "command", lambda wish, binds, inside: _with_tmp(whole(wish, binds, inside)))
    files = run_probe(Tier.BWRAP, SandboxProbe.HOST_FILES)
    writes = run_probe(Tier.BWRAP, SandboxProbe.HOST_WRITES)

    assert [each.verdict for each in (sockets, files, writes)] == [probe.ProbeVerdict.OPEN] * 3


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

    assert run_probe(Tier.STRICT, each).verdict is probe.ProbeVerdict.OPEN


def find_none() -> cgroups.Cgroups:
    raise cgroups.CgroupsMissing("not delegated")


def test_a_host_without_bubblewrap_is_told_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "find_executable", lambda: None)

    assert probe.explain_lacking(Tier.BWRAP) == probe.explain_lacking(Tier.STRICT) == probe.INSTALL
    assert probe.explain_lacking(Tier.PROCESS) is probe.explain_lacking(Tier.NONE) is None
    assert probe.collect_facts().bubblewrap is None


def test_strict_needs_cgroups_and_a_filter_for_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "find_executable", lambda: "/usr/bin/true")
    monkeypatch.setattr(cgroups, "find_cgroups", find_none)
    without_groups = probe.explain_lacking(Tier.STRICT)
    monkeypatch.setattr(cgroups, "find_cgroups", lambda: None)
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    monkeypatch.setattr(probe, "here", lambda: None)

    assert without_groups == "there are no cgroups: not delegated"
    assert "no seccomp filter for riscv64" in str(probe.explain_lacking(Tier.STRICT))
    assert "no seccomp filter for riscv64" in str(probe.explain_lacking(Tier.BWRAP))
    assert probe.explain_lacking(Tier.PROCESS) is None


def test_another_system_than_linux_has_no_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")

    assert probe.explain_lacking(Tier.PROCESS) == probe.NO_LINUX
    assert probe.explain_lacking(Tier.NONE) is None


@pytest.mark.parametrize(("name", "forbidding", "remedy"), SWITCHES)
def test_a_setting_that_forbids_user_namespaces_is_named(
    tmp_path: Path, name: str, forbidding: str, remedy: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir()
    allowed = probe.check_user_namespaces(tmp_path)
    path.write_text(f"{forbidding}\n")

    assert allowed == probe.ALLOWED
    assert probe.check_user_namespaces(tmp_path) == f"forbidden by {name.replace('/', '.')}; {remedy}"


@pytest.mark.parametrize(("path", "said"), [("/bin/echo", "echo"), ("/nowhere/bwrap", "does not run")])
def test_the_version_is_asked_of_the_program_itself(monkeypatch: pytest.MonkeyPatch, path: str, said: str) -> None:
    monkeypatch.setattr(bubblewrap, "find_executable", lambda: path)

    assert said in str(probe.collect_facts().bubblewrap)


def test_a_host_without_groups_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "find_cgroups", find_none)

    assert probe.collect_facts().cgroups == "not delegated"


VERDICTS = st.dictionaries(st.sampled_from(list(SandboxProbe)), st.sampled_from(list(probe.ProbeVerdict)), max_size=15)


def found_in(
    tier: Tier, verdicts: dict[SandboxProbe, probe.ProbeVerdict], lacking: str | None = None
) -> probe.TierReport:
    return probe.TierReport(
        tier, tuple(probe.ProbeFinding(each, verdict, "reason") for each, verdict in verdicts.items()), lacking
    )


TIERS = st.lists(
    st.builds(found_in, st.sampled_from(probe.CHOICES), VERDICTS, st.none() | st.just("no bubblewrap")),
    max_size=4,
    unique_by=lambda each: each.tier,
)


@given(TIERS)
def test_the_strongest_tier_holds_and_nothing_stronger_does(tiers: list[probe.TierReport]) -> None:
    report = probe.SandboxReport(HOST, tuple(tiers))
    chosen = probe.strongest(report)
    holding = [each.tier for each in tiers if each.holds()]

    assert chosen in holding or chosen is Tier.NONE
    assert all(tier.rank <= chosen.rank for tier in holding)


@given(TIERS, st.sampled_from([None, *Tier]))
def test_a_wish_is_refused_if_and_only_if_it_was_not_seen_to_hold(
    tiers: list[probe.TierReport], wished: Tier | None
) -> None:
    report = probe.SandboxReport(HOST, tuple(tiers))
    said = probe.refusal(SandboxRequest(wished), report)
    tried = None if wished is None else report.of(wished)

    if wished in (None, Tier.NONE, Tier.DOCKER):
        assert said is None
    else:
        assert (said is None) == (tried is not None and tried.holds())


@given(TIERS)
def test_what_is_missing_is_told_of_the_next_tier(tiers: list[probe.TierReport]) -> None:
    report = probe.SandboxReport(HOST, tuple(tiers))
    step = probe.find_next_tier(report)
    stronger = [each.tier.rank for each in tiers if each.tier.rank > probe.strongest(report).rank]

    assert (step is None) == (not stronger)
    if step is not None:
        assert step[0].rank == min(stronger)
        assert step[1]


@given(TIERS)
def test_a_report_survives_being_recorded(tiers: list[probe.TierReport]) -> None:
    report = probe.SandboxReport(HOST, tuple(tiers))

    assert msgspec.json.decode(msgspec.json.encode(report), type=probe.SandboxReport) == report


@pytest.mark.parametrize("tried", SandboxProbe)
def test_every_probe_is_promised_by_a_tier_that_it_can_break(tried: SandboxProbe) -> None:
    broken = reported([kept(Tier.STRICT, {tried: probe.ProbeVerdict.OPEN})])
    unproven = reported([kept(Tier.STRICT, {tried: probe.ProbeVerdict.UNPROVEN})])

    assert probe.strongest(reported()) is Tier.STRICT
    assert probe.strongest(broken) is probe.strongest(unproven) is Tier.BWRAP
    assert tried.about


def test_a_tier_is_not_held_to_what_only_a_stronger_one_promises() -> None:
    assert kept(Tier.PROCESS, {SandboxProbe.NETWORK: probe.ProbeVerdict.OPEN}).holds()
    assert not kept(Tier.PROCESS, {SandboxProbe.ENVIRONMENT: probe.ProbeVerdict.OPEN}).holds()


def test_a_network_is_always_a_broken_promise() -> None:
    assert probe.strongest(reported([kept(Tier.STRICT, {SandboxProbe.NETWORK: probe.ProbeVerdict.OPEN})])) is Tier.BWRAP


def test_a_refusal_says_what_is_open_or_what_to_do() -> None:
    leaking = reported([kept(Tier.BWRAP, {SandboxProbe.HOST_FILES: probe.ProbeVerdict.OPEN})])
    missing = reported([probe.TierReport(Tier.BWRAP, lacking="bubblewrap is not installed; install it")])
    wish = SandboxRequest(Tier.BWRAP)

    assert probe.refusal(wish, leaking) == (
        "this host does not enforce the sandbox bwrap: host files is open (so it is)"
    )
    assert "install it" in str(probe.refusal(wish, missing))
    assert "was not tried" in str(probe.refusal(wish, probe.SandboxReport(HOST, ())))


def test_a_probe_that_was_not_run_proves_nothing() -> None:
    lacking = probe.TierReport(Tier.STRICT, lacking="no cgroups").of(SandboxProbe.NETWORK)
    untried = probe.TierReport(Tier.STRICT).of(SandboxProbe.NETWORK)

    assert (lacking.verdict, lacking.reason) == (probe.ProbeVerdict.UNPROVEN, "no cgroups")
    assert untried.verdict is probe.ProbeVerdict.UNPROVEN
