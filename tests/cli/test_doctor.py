"""`proctor doctor`: what is printed for what was found."""

import json

import pytest

from proctor.cli import doctor
from proctor.cli.main import main
from proctor.server.sandbox.attacks import SandboxProbe
from proctor.server.sandbox.probe import ProbeVerdict, SandboxReport, TierReport
from proctor.server.sandbox.tiers import Tier
from tests.server.sandbox.made_up_reports import kept, reported

Capture = pytest.CaptureFixture[str]


def printed(monkeypatch: pytest.MonkeyPatch, capsys: Capture, report: SandboxReport, *arguments: str) -> str:
    monkeypatch.setattr(doctor, "full_report", lambda: report)
    monkeypatch.setenv("COLUMNS", "200")
    code = main(["doctor", *arguments])
    assert code == 0
    return capsys.readouterr().out


def row(text: str, probe: SandboxProbe) -> list[str]:
    line = next(line for line in text.splitlines() if line.startswith(probe))
    return line.removeprefix(probe).split()[:4]


def test_there_is_a_row_for_each_probe_and_a_column_for_each_tier(
    monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    text = printed(monkeypatch, capsys, reported())

    assert text.splitlines()[0].split()[-4:] == ["none", "process", "bwrap", "strict"]
    assert row(text, SandboxProbe.NETWORK) == ["open", "open", "blocked", "blocked"]
    assert row(text, SandboxProbe.FORK_BOMB) == ["open", "open", "open", "blocked"]
    assert all(row(text, probe) for probe in SandboxProbe)


def test_each_tier_has_its_sentence_and_the_choice_is_told(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    text = printed(monkeypatch, capsys, reported())

    assert all(tier.about in text for tier in Tier)
    assert "`proctor serve` chooses strict on this host." in text
    assert not [line for line in text.splitlines() if line.startswith("For ")]
    assert "podman can be called here" in text


def test_what_is_missing_for_the_next_tier_is_told(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    report = reported([TierReport(Tier.STRICT, lacking="there are no cgroups; start it as root")])
    text = printed(monkeypatch, capsys, report)

    assert "`proctor serve` chooses bwrap on this host." in text
    assert "For strict: there are no cgroups; start it as root." in text
    assert "Not to be had here." in text
    assert row(text, SandboxProbe.NETWORK) == ["open", "open", "blocked", "unproven"]


def test_a_promise_that_is_not_kept_stands_out(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    report = reported(
        [
            kept(Tier.BWRAP, {SandboxProbe.NETWORK: ProbeVerdict.OPEN}),
            kept(Tier.STRICT, {SandboxProbe.PROC: ProbeVerdict.OPEN}),
        ]
    )
    text = printed(monkeypatch, capsys, report)

    assert row(text, SandboxProbe.NETWORK) == ["open", "open", "open!", "blocked"]
    assert row(text, SandboxProbe.PROC) == ["open", "open", "blocked", "open!"]
    assert "For bwrap: network is open (so it is)." in text


def test_what_a_tier_costs_here_is_told(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    strict = kept(Tier.STRICT)
    costly = TierReport(strict.tier, strict.findings, note="each session starts a sandbox")

    assert "Here each session starts a sandbox." in printed(monkeypatch, capsys, reported([costly]))


def test_as_json_it_is_the_report_with_the_strongest_tier(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    said = json.loads(printed(monkeypatch, capsys, reported(), "--json"))

    assert said["strongest"] == "strict"
    assert said["host"]["bubblewrap"] == "0.8.0"
    assert [tier["tier"] for tier in said["tiers"]] == ["none", "process", "bwrap", "strict"]
    assert said["tiers"][3]["findings"][0] == {"probe": "network", "verdict": "blocked", "reason": "so it is"}


@pytest.mark.system
def test_on_this_host_it_finds_strict(capsys: Capture) -> None:
    code = main(["doctor", "--json"])
    said = json.loads(capsys.readouterr().out)

    assert (code, said["strongest"]) == (0, "strict")
