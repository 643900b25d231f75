"""`proctor serve` as a process: what it says, what it keeps secret, what it refuses, and how it ends."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect, unix_connect

from proctor.cli.main import main
from tests.cli.said import Run, Said, assert_mistake
from tests.server.commands import Command, finished, harmless, serve, told_to_stop_after, variables
from tests.server.live_server import PATIENCE, until

WHEREABOUTS = "tests.server.witness_env:Whereabouts"
SECRET = "a-secret-for-one-server"
TOKEN = {"PROCTOR_CONTROL_TOKEN": SECRET}
FREE = ("--port", "0")


def asked(websocket: Any, kind: str, data: Any = None) -> dict[str, Any]:
    websocket.send(json.dumps({"type": kind, "data": {} if data is None else data}))
    message: dict[str, Any] = json.loads(websocket.recv(PATIENCE))
    return message


def rewards(address: str, secret: str | None, actions: list[Any]) -> list[float]:
    """Return what a client is paid for its actions."""
    headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    with connect(address, additional_headers=headers, compression=None) as websocket:
        asked(websocket, "reset", {"seed": 1})
        return [asked(websocket, "step", action)["data"]["reward"] for action in actions]


# ---------------------------------------------------------------------------------------------------- its credential
def test_the_secret_is_made_and_shown_once_and_kept_for_the_next_start(tmp_path: Path) -> None:
    home = tmp_path / "home"
    kept = home / "state" / "proctor" / "control-token"
    with serve(home, WHEREABOUTS, *FREE, "--json") as command:
        first = command.document
        paid = rewards(first["websocket"], first["token"], [{}, {}])
        assert command.stopped() == 0
    with serve(home, WHEREABOUTS, *FREE, "--json") as command:
        second = command.document
        paid += rewards(second["websocket"], first["token"], [{}])
        shown = command.out + command.log

    assert (first["credential"], first["credential_file"]) == ("state file", str(kept))
    assert kept.read_text().strip() == first["token"]
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.parent.stat().st_mode & 0o777 == 0o700
    assert (second["credential"], second["token"]) == ("state file", None)
    assert first["token"] not in shown
    assert paid == [1.0, 2.0, 1.0]


def test_the_secret_can_come_from_the_environment_and_is_then_shown_nowhere_and_to_nobody(tmp_path: Path) -> None:
    with serve(tmp_path / "home", WHEREABOUTS, *FREE, "--json", more=TOKEN) as command:
        document = command.document
        headers = {"Authorization": f"Bearer {SECRET}"}
        with connect(document["websocket"], additional_headers=headers, compression=None) as websocket:
            knows = asked(websocket, "reset")["data"]["observation"]["knows"]

        assert (document["credential"], document["credential_file"], document["token"]) == ("environment", None, None)
        assert knows is False
        assert SECRET not in command.out + command.log
        assert not (tmp_path / "home" / "state").exists()


def test_the_secret_can_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o600)
    with serve(tmp_path / "home", WHEREABOUTS, *FREE, "--json", "--token-file", str(file)) as command:
        document = command.document

        assert (document["credential"], document["credential_file"], document["token"]) == ("file", str(file), None)
        assert rewards(document["websocket"], SECRET, [{}]) == [1.0]
        with pytest.raises(InvalidStatus, match="401"), connect(document["websocket"]):
            pass


@pytest.mark.parametrize(
    ("level", "form"), [("debug", ("--log-json",)), ("debug", ())], ids=["for programs", "for people"]
)
def test_the_secret_is_in_no_line_of_the_log(tmp_path: Path, level: str, form: tuple[str, ...]) -> None:
    arguments = (WHEREABOUTS, *FREE, "--json", "--log-level", level, *form)
    with serve(tmp_path / "home", *arguments) as command:
        document = command.document
        token = document["token"]
        port = document["url"].rpartition(":")[2]
        rewards(document["websocket"], token, [{}])
        # Everything that a server might write down: paths, queries, headers, messages, what was refused.
        for url in (f"{document['url']}/{token}", f"{document['url']}/metadata?token={token}"):
            for auth in (None, ("proctor", token), (token, token)):
                httpx.get(url, auth=auth, timeout=60.0)
        with connect(document["websocket"], additional_headers={"Authorization": f"Bearer {token}"}) as websocket:
            for text in (token, json.dumps({"type": token}), json.dumps({"type": "reset", "data": {token: token}})):
                websocket.send(text)
                websocket.recv(PATIENCE)
            asked(websocket, "hello", {"protocols": [1], "client": token})
        with socket.create_connection(("127.0.0.1", int(port)), PATIENCE) as raw:
            raw.sendall(f"GET {token} HTTP/9.9\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
            raw.recv(4096)
        assert command.stopped() == 0

        assert token not in command.log
        assert command.out.count(token) == 1


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_without_a_credential_nobody_else_is_served(address: str, run_command: Run) -> None:
    assert_mistake(run_command("serve", "CartPole-v1", "--insecure", "--host", address), "loopback")


def test_insecure_says_what_it_does_and_takes_everybody_on_this_machine(tmp_path: Path) -> None:
    with serve(tmp_path / "home", WHEREABOUTS, *FREE, "--insecure") as command:
        said = command.said("Ctrl-C")
        url = re.search(r"http://\S+", said)

        assert url is not None
        assert "insecure: no credential: every process on this machine can reset and step" in said
        assert rewards(f"ws{url[0].removeprefix('http')}/ws", None, [{}]) == [1.0]
        assert httpx.get(url[0], headers={"Host": "evil.example"}, timeout=60.0).status_code == 403


# ------------------------------------------------------------------------------------------------------- what it says
@pytest.fixture(scope="module")
def talkative(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    with serve(tmp_path_factory.mktemp("talkative") / "home", "CartPole-v1", *FREE) as command:
        command.said("Ctrl-C")
        yield command


def snippet(said: str) -> str:
    """Return the lines of Python in what the command printed."""
    found = re.search(r"^(?:from|import) .*?(?=\n\n(?!env)|\nCtrl-C)", said, re.MULTILINE | re.DOTALL)
    assert found is not None, said
    return found[0]


def run(code: str, home: Path, **more: str) -> str:
    answer = subprocess.run(
        [sys.executable, "-c", f"{code}\nprint('paid', reward)\nenv.close()"],
        env=variables(home, **more),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_the_snippet_that_it_prints_runs(talkative: Command) -> None:
    assert run(snippet(talkative.out), talkative.home) == "paid 1.0\n"


def test_the_secret_stands_in_one_line_and_the_snippet_names_where_it_is_kept(talkative: Command) -> None:
    kept = talkative.home / "state" / "proctor" / "control-token"
    secret = kept.read_text().strip()

    assert sum(secret in line for line in talkative.out.splitlines()) == 1
    assert f"shown this once, kept in {kept}" in talkative.out
    assert secret not in snippet(talkative.out)
    assert str(kept) in snippet(talkative.out)


def test_the_snippet_for_a_secret_from_the_environment_runs_on_a_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    with serve(tmp_path / "home", "CartPole-v1", "--unix-socket", str(path), more=TOKEN) as command:
        said = command.said("Ctrl-C")

        assert f"unix://{path}" in said
        assert path.stat().st_mode & 0o777 == 0o600
        assert run(snippet(said), command.home, **TOKEN) == "paid 1.0\n"
        assert command.stopped() == 0
    assert not path.exists()


def test_json_says_everything_on_one_line(tmp_path: Path) -> None:
    with serve(tmp_path / "home", "CartPole-v1", *FREE, "--json", "--insecure") as command:
        document = command.document

        assert len(command.out.splitlines()) == 1
        assert document == {
            "target": "CartPole-v1",
            "url": document["url"],
            "websocket": f"ws{document['url'].removeprefix('http')}/ws",
            "insecure": True,
            "credential": None,
            "credential_file": None,
            "token": None,
            "workers": 1,
            "pid": command.process.pid,
            "agents": [],
            "sandbox": "none",
            "operator": None,
            "ledger": None,
            "viewer": None,
        }
        assert httpx.get(f"{document['url']}/health", timeout=60.0).json() == {"status": "healthy"}


@pytest.mark.slow
def test_agents_are_served_where_the_document_says_and_nowhere_else(tmp_path: Path) -> None:
    arguments = ("CartPole-v1", *FREE, "--agent-port", "0", "--json", "--insecure", "--sandbox", "process")
    with serve(tmp_path / "home", *arguments) as command:
        (address,) = command.document["agents"]

        assert command.document["sandbox"] == "process"
        assert httpx.get(f"{address.removesuffix('/mcp')}/health", timeout=60.0).json() == {"status": "healthy"}
        assert httpx.post(address, json={}, timeout=60.0).status_code == 401
        lost = httpx.post(f"{command.document['url']}/mcp", json={}, timeout=60.0).json()
        assert address in lost["error"]["message"]
        assert "result" not in lost


def test_a_server_on_every_address_must_say_where_agents_find_it(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["serve", "CartPole-v1", "--host", "0.0.0.0", "--agent-port", "0"])

    assert code == 2
    assert "agent_url" in capsys.readouterr().err


def test_help_names_every_option(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")

    assert main(["serve", "--help"]) == 0

    said = capsys.readouterr().out
    options = "--config --set --host --port --unix-socket --insecure --token-file --workers --max-sessions --place"
    options += " --agent-port --sandbox --mount --network --image"
    options += " --max-step-bytes --max-episode-bytes --max-packet-bytes --min-free-bytes"
    options += " --step-timeout --grace --idle --record --allow-host --allow-origin --log-level --log-json --json"
    assert [option for option in options.split() if option not in said] == []
    assert "Serve an environment to orchestrators" in said


# ----------------------------------------------------------------------------------------------------------- settings
@pytest.mark.slow
def test_a_file_sets_everything_and_the_command_line_beats_it(tmp_path: Path) -> None:
    config = tmp_path / "serve.toml"
    record = tmp_path / "events.jsonl"
    config.write_text(
        f"""
        target = "CartPole-v1"
        host = "localhost"
        port = 1
        insecure = true
        record = "{record}"
        settings = {{ max_episode_steps = 3 }}

        [[transforms]]
        type = "scale"
        factor = 0.5

        [[transforms]]
        type = "step_cost"
        cost = 2.0

        [limits]
        max_depth = 5
        """
    )
    with serve(tmp_path / "home", "--config", str(config), *FREE, "--json") as command:
        document = command.document
        paid = rewards(document["websocket"], None, [{"action": 1}, {"action": 0}, {"action": 1}])
        with connect(document["websocket"], compression=None) as websocket:
            deep = asked(websocket, "step", {"action": [[[[[[1]]]]]]})

    steps = [json.loads(line) for line in record.read_text().splitlines() if "episode_stepped" in line]
    assert re.fullmatch(r"http://localhost:\d+", document["url"])
    assert paid == [-1.5, -1.5, -1.5]
    assert [(step["raw_reward"], step["reward"]) for step in steps] == [(1.0, -1.5)] * 3
    assert [list(step["parts"].values()) for step in steps] == [[-0.5, -2.0]] * 3
    assert [step["truncated"] for step in steps] == [False, False, True]
    assert deep["data"]["code"] == "TOO_DEEP"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "nothing to serve"),
        (["CartPole-v1", "--port", "70000"], "port"),
        (["CartPole-v1", "--port", "many"], "port"),
        (["CartPole-v1", "--place", "moon"], "place"),
        (["CartPole-v1", "--step-timeout", "-1"], "step_timeout"),
        (["CartPole-v1", "--max-sessions", "0"], "max_sessions"),
        (["CartPole-v1", "--log-level", "loud"], "log_level"),
        (["CartPole-v1", "--no-such-option"], "--no-such-option"),
        (["CartPole-v1", "--config", "nowhere.toml"], "nowhere.toml"),
        (["CartPole-v1", "--set", "no-value"], "no-value"),
    ],
)
def test_a_setting_that_makes_no_sense_is_one_line_and_code_2(
    arguments: list[str], words: str, run_command: Run
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:  # so that a setting that is taken after all ends it, too
        port = [] if "--port" in arguments else ["--port", taken.getsockname()[1]]
        assert_mistake(run_command("serve", *arguments, "--insecure", *port), words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("target = ", "cannot read"),
        ('target = "CartPole-v1"\nnumber = 3', "number"),
        ('target = "CartPole-v1"\ninsecure = true\n[[transforms]]\ntype = "magic"', "magic"),
        ('target = "CartPole-v1"\ninsecure = true\n[limits]\nmax_depth = "deep"', "max_depth"),
    ],
)
def test_a_file_that_makes_no_sense_is_one_line_and_code_2(tmp_path: Path, text: str, words: str) -> None:
    config = tmp_path / "serve.toml"
    config.write_text(text)

    assert_mistake(Said(*finished(tmp_path / "home", "--config", str(config), *FREE)), words)


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("Nowhere-v0", "Nowhere"),
        ("no.such.module:Thing", "no.such.module"),
        ("tests.server.witness_env:Nobody", "Nobody"),
        ("tests.server.witness_env:PATIENCE", "PATIENCE"),
    ],
)
def test_a_target_that_is_none_is_one_line_and_code_2(tmp_path: Path, target: str, words: str) -> None:
    assert_mistake(Said(*finished(tmp_path / "home", target, *FREE, "--insecure")), words)


def test_a_port_that_is_taken_is_one_line_and_code_2(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = Said(*finished(tmp_path / "home", "CartPole-v1", "--port", str(port), "--insecure"))

    assert_mistake(said, f"cannot listen on 127.0.0.1:{port}")


@pytest.mark.parametrize("mode", [0o644, 0o660])
def test_a_secret_that_others_can_read_is_one_line_and_code_2_and_not_shown(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "secret"
    file.write_text(SECRET)
    file.chmod(mode)

    said = Said(*finished(tmp_path / "home", "CartPole-v1", *FREE, "--token-file", str(file)))

    assert_mistake(said, f"chmod 600 {file}")
    assert SECRET not in said.err


# ----------------------------------------------------------------------------------------------- in this very process
@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("PROCTOR_CONTROL_TOKEN", raising=False)
    return tmp_path


def is_listened_to(path: Path) -> bool:
    """Return whether somebody takes connections there; a socket is seen before that."""
    with socket.socket(socket.AF_UNIX) as asking:
        return asking.connect_ex(str(path)) == 0


def served_here(path: Path, *arguments: str, secret: str | None = None) -> tuple[int, str]:
    """Serve on a Unix socket in this process until a visitor has been there; return the exit code and the reply's type."""
    headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}

    def visit() -> str:
        until(lambda: is_listened_to(path))
        how = {"additional_headers": headers, "compression": None, "open_timeout": PATIENCE}
        with unix_connect(str(path), "ws://localhost/ws", **how) as websocket:  # type: ignore[arg-type]
            kind: str = asked(websocket, "reset")["type"]
            return kind

    with harmless():
        visiting = told_to_stop_after(visit)
        code = main(["serve", "CartPole-v1", "--unix-socket", str(path), *arguments])
    return code, visiting.result(PATIENCE)


def test_a_secret_from_the_environment_is_named_and_not_shown(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_CONTROL_TOKEN", SECRET)
    path = home / "control.sock"

    found = served_here(path, secret=SECRET)

    said = capsys.readouterr().out
    assert found == (0, "observation")
    assert f"proctor serves CartPole-v1 at unix://{path}" in said
    assert "credential: as kept in PROCTOR_CONTROL_TOKEN" in said
    assert 'token=os.environ["PROCTOR_CONTROL_TOKEN"]' in snippet(said)
    assert SECRET not in said
    assert not path.exists()


def test_without_a_credential_a_unix_socket_serves_its_owner(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = home / "control.sock"

    assert served_here(path, "--insecure", "--json") == (0, "observation")

    document = json.loads(capsys.readouterr().out)
    assert (document["url"], document["websocket"], document["insecure"]) == (f"unix://{path}", None, True)


def test_a_secret_that_was_made_is_not_shown_by_a_server_that_does_not_start(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = home / "state" / "proctor" / "control-token"

    with harmless(), socket.create_server(("127.0.0.1", 0)) as taken:
        code = main(["serve", "CartPole-v1", "--port", str(taken.getsockname()[1])])

    assert code == 2
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.read_text().strip() not in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------------------- its end
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_says_goodbye_and_ends_with_code_0(tmp_path: Path, number: int) -> None:
    path, record = tmp_path / "control.sock", tmp_path / "events.jsonl"
    arguments = (WHEREABOUTS, "--unix-socket", str(path), "--insecure", "--record", str(record), "--json")
    with serve(tmp_path / "home", *arguments) as command:
        assert command.document["websocket"] is None
        with unix_connect(str(path), "ws://localhost/ws", compression=None) as websocket:
            asked(websocket, "reset")
            code = command.stopped(number)
            with pytest.raises(ConnectionClosed) as end:
                websocket.recv(PATIENCE)

        assert code == 0
        assert end.value.rcvd is not None
        assert end.value.rcvd.code == 1001
        assert "Traceback" not in command.log
    events = [json.loads(line)["event"] for line in record.read_text().splitlines()]
    assert events == ["session_opened", "episode_reset", "episode_closed", "session_closed"]
    assert not path.exists()


@pytest.mark.slow
def test_a_server_that_was_killed_leaves_a_socket_that_the_next_one_takes(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    arguments = (WHEREABOUTS, "--unix-socket", str(path), "--insecure", "--json")
    with serve(tmp_path / "home", *arguments) as command:
        assert command.document
        command.stopped(signal.SIGKILL)
    assert path.is_socket()
    with serve(tmp_path / "home", *arguments) as command:
        assert command.document
        with unix_connect(str(path), "ws://localhost/ws", compression=None) as websocket:
            assert asked(websocket, "reset")["data"]["observation"]["pid"] == command.process.pid
        code, _, error = finished(tmp_path / "other", *arguments)

    assert code == 2
    assert "somebody listens" in error
    assert os.path.lexists(path) is False


@pytest.mark.slow
def test_with_a_ledger_the_ports_that_were_chosen_are_taken_again(tmp_path: Path) -> None:
    arguments = (
        "CartPole-v1",
        *FREE,
        "--agent-port",
        "0",
        "--json",
        "--insecure",
        "--ledger",
        str(tmp_path / "ledger"),
    )
    found = []
    for _ in range(2):
        with serve(tmp_path / "home", *arguments) as command:
            found.append((command.document["url"], command.document["agents"]))

    assert found[0] == found[1]
