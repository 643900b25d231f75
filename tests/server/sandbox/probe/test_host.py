"""What can be read off this run."""

import platform
import sys
from pathlib import Path

import pytest

from proctor.server.sandbox.pool import bubblewrap, cgroups
from proctor.server.sandbox.probe import run
from proctor.server.sandbox.probe.run import SWITCHES
from proctor.server.sandbox.tiers import Tier


def find_none() -> cgroups.Cgroups:
    raise cgroups.CgroupsMissing("not delegated")


def test_a_host_without_bubblewrap_is_told_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "find_executable", lambda: None)

    assert run.explain_lacking(Tier.BWRAP) == run.explain_lacking(Tier.STRICT) == run.INSTALL
    assert run.explain_lacking(Tier.PROCESS) is run.explain_lacking(Tier.NONE) is None
    assert run.collect_facts().bubblewrap is None


def test_strict_needs_cgroups_and_a_filter_for_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "find_executable", lambda: "/usr/bin/true")
    monkeypatch.setattr(cgroups, "find_cgroups", find_none)
    without_groups = run.explain_lacking(Tier.STRICT)
    monkeypatch.setattr(cgroups, "find_cgroups", lambda: None)
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    monkeypatch.setattr(run, "here", lambda: None)

    assert without_groups == "there are no cgroups: not delegated"
    assert "no seccomp filter for riscv64" in str(run.explain_lacking(Tier.STRICT))
    assert "no seccomp filter for riscv64" in str(run.explain_lacking(Tier.BWRAP))
    assert run.explain_lacking(Tier.PROCESS) is None


def test_another_system_than_linux_has_no_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")

    assert run.explain_lacking(Tier.PROCESS) == run.NO_LINUX
    assert run.explain_lacking(Tier.NONE) is None


@pytest.mark.parametrize(("name", "forbidding", "remedy"), SWITCHES)
def test_a_setting_that_forbids_user_namespaces_is_named(
    tmp_path: Path, name: str, forbidding: str, remedy: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir()
    allowed = run.check_user_namespaces(tmp_path)
    path.write_text(f"{forbidding}\n")

    assert allowed == run.ALLOWED
    assert run.check_user_namespaces(tmp_path) == f"forbidden by {name.replace('/', '.')}; {remedy}"


@pytest.mark.parametrize(("path", "said"), [("/bin/echo", "echo"), ("/nowhere/bwrap", "does not run")])
def test_the_version_is_asked_of_the_program_itself(monkeypatch: pytest.MonkeyPatch, path: str, said: str) -> None:
    monkeypatch.setattr(bubblewrap, "find_executable", lambda: path)

    assert said in str(run.collect_facts().bubblewrap)


def test_a_host_without_groups_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "find_cgroups", find_none)

    assert run.collect_facts().cgroups == "not delegated"
