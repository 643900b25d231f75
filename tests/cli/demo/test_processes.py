"""The processes of the demo: what they are given, where they keep things, and what is said when one fails."""

import subprocess
import sys
from pathlib import Path

import pytest

import proctor
from proctor.cli.demo import DemoFolder, agent_file, check_exit, run_agent
from proctor.client import Grant
from proctor.errors import ComponentError, ValidationError

SHOWS = "import os, pathlib; print(dict(os.environ), pathlib.Path.cwd())"
GRANT = Grant("grant_1", "http://127.0.0.1:1/mcp", "a-token-of-some-length", ("move",), None, "e1")


def test_the_server_finds_no_credential_of_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_CONTROL_TOKEN", "the-users-own-secret")
    monkeypatch.setenv("PROCTOR_LEDGER_KEY", "0" * 64)
    monkeypatch.setenv("LANG", "C.UTF-8")

    given = DemoFolder(tmp_path).variables

    assert not [name for name in given if name.startswith("PROCTOR_")]
    assert given["XDG_STATE_HOME"] == str(tmp_path / "state")
    assert given["LANG"] == "C.UTF-8"


def test_the_public_key_is_written_and_the_secret_one_stays_private(tmp_path: Path) -> None:
    place = DemoFolder(tmp_path)

    public = place.write_public_key()

    assert place.public_key.read_text().strip() == public.hex()
    assert (tmp_path / "state" / "proctor" / "ledger-key").stat().st_mode & 0o777 == 0o600


def test_the_agent_is_given_its_grant_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "shows.py"
    script.write_text(SHOWS)
    monkeypatch.setattr("proctor.cli.demo.agent_file", lambda: script)
    place = DemoFolder(tmp_path)

    with run_agent(place, GRANT, []) as process:
        process.wait(300)

    told = place.agent_log.read_text()
    assert "PROCTOR_GRANT_ADDRESS" in told
    assert "PROCTOR_GRANT_TOKEN" in told
    assert not [name for name in ("PATH", "HOME", "XDG_STATE_HOME") if f"'{name}'" in told]
    assert told.endswith(" /\n")


def test_a_process_that_does_not_end_is_ended_with_its_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "waits.py"
    script.write_text("import signal; signal.pause()")
    monkeypatch.setattr("proctor.cli.demo.agent_file", lambda: script)

    with run_agent(DemoFolder(tmp_path), GRANT, []) as process:
        pass

    assert process.returncode is not None


def test_a_failure_is_told_with_the_last_lines_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "agent.log"
    log.write_text("\n".join(f"line {number}" for number in range(100)))
    failed = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    failed.wait(300)

    with pytest.raises(ComponentError, match=r"exit code 3:\nline 88\n(.*\n)*line 99"):
        check_exit(failed, log)


def test_the_agent_is_found_beside_the_source_or_in_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = agent_file()
    package = tmp_path / "site-packages" / "proctor"
    (package / "examples").mkdir(parents=True)
    monkeypatch.setattr(proctor, "__file__", str(package / "__init__.py"))
    with pytest.raises(ValidationError, match="governed_agent"):
        agent_file()
    (package / "examples" / "governed_agent.py").touch()

    assert beside.parent.name == "examples"
    assert agent_file() == package / "examples" / "governed_agent.py"
