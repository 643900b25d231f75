"""A worker in a container talks over its standard streams, and nothing else that is written there is heard."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from proctor.server.runtime.env_adapter import ResetRequest
from proctor.server.sandbox import messages
from proctor.server.sandbox.tiers import SandboxLimits, Tier
from proctor.server.sandbox.worker import confine
from proctor.server.sandbox.worker import worker as worker_module
from proctor.server.sandbox.worker.worker import MODULE, StreamSocket, confine_and_load
from tests.server.live_server import PATIENCE

NOISY = """
import os, sys
import gymnasium as gym
print("printed when imported")
os.write(1, b"written when imported")
os.system("echo from a shell")

class Noisy(gym.Env):
    observation_space = action_space = gym.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        print("printed in reset", flush=True)
        sys.stderr.write("complained")
        os.system("echo from a shell; echo so 1>&2; cat")
        return 0, {"folder": os.getcwd(), "input": os.read(0, 10).decode(), "inherited": os.popen("ls /proc/self/fd | wc -w").read().strip()}
    def step(self, action):
        return 1, 0.0, False, False, {}
"""


@contextmanager
def worker(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], StreamSocket]]:
    """Give a worker in a process, and its streams."""
    command = [sys.executable, "-P", "-m", MODULE]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, bufsize=0
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process, StreamSocket(process.stdout.fileno(), process.stdin.fileno())
        finally:
            process.kill()


def start(target: str) -> messages.StartMessage:
    return messages.StartMessage(target, {}, Tier.DOCKER, SandboxLimits())


def test_what_an_environment_prints_is_not_heard_and_it_hears_nothing(tmp_path: Path) -> None:
    (tmp_path / "noisy_env.py").write_text(NOISY)
    with worker(tmp_path) as (process, streams):
        asked = [start("noisy_env:Noisy"), messages.Work("noisy_env:Noisy", {}, False, False, None, None, False)]
        asked += [
            messages.WorkerCall("reset", ResetRequest(1, "e", None)),
            messages.WorkerCall("step", None, b'{"action":1}'),
        ]
        heard = []
        for message in asked:
            streams.sendall(messages.encode_frame(message))
            heard.append(messages.read_message(streams))  # type: ignore[arg-type]  # it is read like a socket
        assert process.stdin is not None
        process.stdin.close()
        code = process.wait(PATIENCE)
        assert process.stderr is not None
        complaints = process.stderr.read()

    loaded, made, begun, stepped = (body or pytest.fail("no answer") for body in heard)
    assert messages.decode_message(loaded, messages.LoadReport).problem is None
    assert messages.decode_message(made, messages.WorkerReply) == messages.WorkerReply()
    outcome = messages.decode_message(begun, messages.WorkerReply).outcome
    assert outcome is not None
    assert b'"input":""' in outcome.metadata
    assert b'"folder":"/tmp"' in outcome.metadata
    assert b'"inherited":"4"' in outcome.metadata  # three that lead nowhere, and the folder itself
    assert messages.decode_message(stepped, messages.WorkerReply).outcome is not None
    assert (code, complaints) == (0, b"")


def test_a_module_that_cannot_be_imported_is_told_and_the_worker_ends(tmp_path: Path) -> None:
    with worker(tmp_path) as (process, streams):
        streams.sendall(messages.encode_frame(start("no_such_module_here:Env")))
        body = messages.read_message(streams)  # type: ignore[arg-type]  # it is read like a socket
        code = process.wait(PATIENCE)

    assert body is not None
    assert "no_such_module_here" in (messages.decode_message(body, messages.LoadReport).problem or "")
    assert code == 0


def test_a_worker_that_nobody_talks_to_ends(tmp_path: Path) -> None:
    with worker(tmp_path) as (process, _):
        assert process.stdin is not None
        process.stdin.close()

        assert process.wait(PATIENCE) == 0


def test_a_worker_that_cannot_be_confined_imports_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_: object, **__: object) -> None:
        raise OSError(38, "there is no seccomp filter")

    monkeypatch.setattr(confine, "settle", refuses)
    monkeypatch.setattr(worker_module, "load_target", lambda target: pytest.fail("it was imported"))

    assert "could not be confined" in (confine_and_load(start("CartPole-v1")).problem or "")


def test_a_confined_worker_says_how_the_import_went(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr(confine, "settle", lambda *given, **named: seen.append((given, named)))

    assert confine_and_load(start("CartPole-v1")).problem is None
    assert seen == [((Tier.STRICT, SandboxLimits()), {"network": False})]


def test_streams_send_all_of_a_long_message_and_end_when_the_other_side_does() -> None:
    incoming, outgoing = os.pipe()
    ours = StreamSocket(incoming, outgoing)
    os.set_blocking(incoming, False)
    try:
        ours.sendall(b"x" * 5_000)

        assert ours.recv(10_000) == b"x" * 5_000
    finally:
        os.close(outgoing)
        assert ours.recv(1) == b""
        os.close(incoming)
    with pytest.raises(OSError, match="Bad file descriptor"):
        ours.sendall(b"x")
