"""`proctor demo` as a process: what it shows, what it proves, what it keeps, and how it ends."""

import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from proctor.cli.main import main
from tests.cli.said import Run
from tests.server.commands import alive, variables
from tests.server.live_server import until

QUICK = ("--fast", "--sandbox", "none")
FINDS = "3"
"""A seed whose search is short."""
SECONDS = 90


def performed(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    home.mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "proctor", "demo", *arguments],
        env=variables(home),
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, and theirs."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return []
    return [found for child in map(int, children) for found in (child, *descendants(child))]


def test_the_whole_demo_is_a_readable_log_with_proofs_and_keeps_what_it_is_asked_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    home, kept = tmp_path / "home", tmp_path / "kept"
    home.mkdir()
    monkeypatch.chdir(home)
    for name, value in {**variables(home), "PROCTOR_CONTROL_TOKEN": "one-that-is-not-used"}.items():
        monkeypatch.setenv(name, value)

    code = main(["demo", *QUICK, "--keep", str(kept), "--page", str(tmp_path / "new" / "demo.html")])

    out, err = capsys.readouterr()
    assert (code, err) == (0, "")
    assert "refused by GOV-1" in out
    assert re.search(r"EscalationPacket No way leads to a stronger smell\..*accepted S3>S8", out)
    assert re.search(r"operator +record user_input shorter.*accepted S8>S3", out)
    assert re.search(r"search +found the source in 2\d\d steps", out)
    assert "conforming, closed in S7_REVIEW" in out
    assert "whole and signed" in out
    assert "bit for bit the same" in out
    assert 'id="proctor-episodes"' in (tmp_path / "new" / "demo.html").read_text("utf-8")
    assert sorted(path.name for path in kept.iterdir()) == [
        "agent.log",
        "ledger",
        "ledger-key.pub",
        "server.log",
        "state",
    ]
    assert list(home.iterdir()) == []


@pytest.mark.slow
def test_what_it_says_to_try_next_works(tmp_path: Path) -> None:
    done = performed(tmp_path / "home", *QUICK, "--seed", FINDS, "--keep", str(tmp_path / "kept"))

    commands = [shlex.split(line, comments=True) for line in done.stdout.splitlines() if line.startswith("  proctor ")]
    viewing, *mine = [command for command in commands if str(tmp_path) in " ".join(command)]

    assert viewing == ["proctor", "view", str(tmp_path / "kept" / "ledger"), "demo"]
    assert [command[:3] for command in mine][:2] == [["proctor", "ledger", "show"], ["proctor", "ledger", "verify"]]
    for command in mine:
        ended = subprocess.run(
            [sys.executable, "-m", *command],
            env=variables(tmp_path / "home"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
def test_without_keeping_nothing_stays(tmp_path: Path) -> None:
    home, temporary = tmp_path / "home", tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "proctor", "demo", *QUICK, "--seed", FINDS]
    home.mkdir()

    done = subprocess.run(
        command, env=variables(home, TMPDIR=str(temporary)), cwd=home, capture_output=True, timeout=SECONDS, check=False
    )

    assert done.returncode == 0
    assert list(temporary.iterdir()) == []
    assert list(home.iterdir()) == []
    assert b"proctor demo --keep" in done.stdout


def spawned(home: Path, *arguments: str) -> pexpect.spawn:
    home.mkdir()
    return pexpect.spawn(
        sys.executable,
        ["-m", "proctor", "demo", "--sandbox", "none", *arguments],
        dimensions=(30, 110),
        timeout=SECONDS,
        encoding="utf-8",
        env={**variables(home, TMPDIR=str(home), TERM="xterm-256color"), "COLUMNS": "110"},
    )


@pytest.mark.slow
def test_a_real_terminal_sees_field_machine_and_packets_live(tmp_path: Path) -> None:
    child = spawned(tmp_path / "home", "--fast")

    child.expect("▀")
    child.expect("GOV-1")
    child.expect("conforming")
    child.expect("bit for bit the same")
    child.expect(pexpect.EOF)
    child.close()

    assert child.exitstatus == 0


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.slow)]
)
def test_whatever_it_started_ends_with_it(number: int, code: int, tmp_path: Path) -> None:
    home = tmp_path / "home"
    child = spawned(home)
    child.expect("▀")
    until(lambda: len(descendants(child.pid)) >= 2)
    started = descendants(child.pid)

    child.kill(number)
    child.expect(pexpect.EOF)
    child.close()

    assert child.exitstatus == code
    until(lambda: not any(alive(pid) for pid in started))
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(("option", "says"), [("--governed=nonsense", "nonsense"), ("--keep=.", "not empty")])
def test_a_mistake_is_one_line(
    option: str, says: str, run_command: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "something").touch()
    monkeypatch.chdir(tmp_path)

    said = run_command("demo", *QUICK, option)

    assert (said.code, said.err.count("\n")) == (2, 1)
    assert says in said.err


@pytest.mark.slow
def test_an_agent_that_fails_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit('lost my way')")
    monkeypatch.setattr("proctor.cli.demo.agent_file", lambda: broken)

    code = main(["demo", *QUICK])

    assert code == 2
    assert "lost my way" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["open", "strict"])
def test_it_runs_under_the_other_policies_as_well(policy: str, tmp_path: Path) -> None:
    done = performed(tmp_path / "home", *QUICK, "--governed", policy)

    assert (done.returncode, done.stderr) == (0, "")
    assert "conforming" in done.stdout


@pytest.mark.system
def test_it_runs_in_the_strongest_sandbox(tmp_path: Path) -> None:
    done = performed(tmp_path / "home", "--fast", "--no-live")

    assert (done.returncode, done.stderr) == (0, "")
    assert "found the source" in done.stdout
