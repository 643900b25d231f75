"""What can be read off this host."""

import platform
import sys
from pathlib import Path

import pytest

from proctor.server.sandbox import bubblewrap, cgroups, host
from proctor.server.sandbox.host import SWITCHES
from proctor.server.sandbox.tiers import Tier


def test_a_host_without_bubblewrap_is_told_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "executable", lambda: None)

    assert host.lacking(Tier.BWRAP) == host.lacking(Tier.STRICT) == host.INSTALL
    assert host.lacking(Tier.PROCESS) is host.lacking(Tier.NONE) is None
    assert host.facts().bubblewrap is None


def test_strict_needs_cgroups_and_a_filter_for_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "executable", lambda: "/usr/bin/true")
    monkeypatch.setattr(cgroups, "missing", lambda: "not delegated")
    without_groups = host.lacking(Tier.STRICT)
    monkeypatch.setattr(cgroups, "missing", lambda: None)
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    monkeypatch.setattr(host, "here", lambda: None)

    assert without_groups == "there are no cgroups: not delegated"
    assert "no seccomp filter for riscv64" in str(host.lacking(Tier.STRICT))
    assert "no seccomp filter for riscv64" in str(host.lacking(Tier.BWRAP))
    assert host.lacking(Tier.PROCESS) is None


def test_another_system_than_linux_has_no_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")

    assert host.lacking(Tier.PROCESS) == host.NO_LINUX
    assert host.lacking(Tier.NONE) is None


@pytest.mark.parametrize(("name", "forbidding", "remedy"), SWITCHES)
def test_a_setting_that_forbids_user_namespaces_is_named(
    tmp_path: Path, name: str, forbidding: str, remedy: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir()
    allowed = host.user_namespaces(tmp_path)
    path.write_text(f"{forbidding}\n")

    assert allowed == host.ALLOWED
    assert host.user_namespaces(tmp_path) == f"forbidden by {name.replace('/', '.')}; {remedy}"


@pytest.mark.parametrize(("path", "said"), [("/bin/echo", "echo"), ("/nowhere/bwrap", "does not run")])
def test_the_version_is_asked_of_the_program_itself(monkeypatch: pytest.MonkeyPatch, path: str, said: str) -> None:
    monkeypatch.setattr(bubblewrap, "executable", lambda: path)

    assert said in str(host.facts().bubblewrap)


def test_a_host_without_groups_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroups, "found", lambda: None)
    monkeypatch.setattr(cgroups, "missing", lambda: "not delegated")

    assert host.facts().cgroups == "not delegated"
