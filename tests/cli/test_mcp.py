"""`proctor mcp-config`: configurations that start the bridge, and hold no secret."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.cli.main import main
from proctor.cli.mcp import DesktopClient, bridge_command, configuration
from tests.server.agents.stand_in import TOKEN, handshake, plane_of

KEYS = {DesktopClient.CLAUDE: "mcpServers", DesktopClient.CURSOR: "mcpServers", DesktopClient.VSCODE: "servers"}


@pytest.mark.parametrize("client", list(DesktopClient))
def test_each_client_gets_the_command_in_the_shape_that_it_reads(
    client: DesktopClient, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    grant = tmp_path / "a folder" / "grant.json"

    assert main(["mcp-config", "--client", client, "--grant", str(grant)]) == 0

    printed = json.loads(capsys.readouterr().out)
    assert printed.keys() == {KEYS[client]}
    server = printed[KEYS[client]]["proctor"]
    assert server["args"][-3:] == ["mcp", "--grant", str(grant)]
    assert Path(server["command"]).is_absolute()
    assert (server.get("type") == "stdio") is (client is DesktopClient.VSCODE)


def test_the_grant_is_named_by_its_whole_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)

    assert bridge_command(Path("grant.json"))[-1] == str(tmp_path / "grant.json")


def test_no_secret_is_in_it_even_if_the_file_and_the_environment_have_some(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_CONTROL_TOKEN", "a-control-token-to-be-kept")
    grant = tmp_path / "grant.json"
    grant.write_text(json.dumps({"address": "http://127.0.0.1:1/mcp", "token": TOKEN}))

    main(["mcp-config", "--client", "claude", "--grant", str(grant)])

    shown = "".join(capsys.readouterr())
    assert TOKEN not in shown
    assert "a-control-token" not in shown


def test_where_the_command_is_not_installed_the_interpreter_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)

    assert bridge_command(Path("/g"))[:3] == [sys.executable, "-m", "proctor"]


def test_the_command_that_is_printed_works(tmp_path: Path) -> None:
    grant = tmp_path / "grant.json"
    server = configuration(DesktopClient.CURSOR, bridge_command(grant))["mcpServers"]["proctor"]
    with plane_of() as plane:
        grant.write_text(json.dumps({"address": plane.url, "token": TOKEN}))
        grant.chmod(0o600)

        with subprocess.Popen(
            [server["command"], *server["args"]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            env=dict(os.environ),
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(handshake()) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            process.stdin.close()

    assert answer["result"]["instructions"] == "Walk with move, look with look."
