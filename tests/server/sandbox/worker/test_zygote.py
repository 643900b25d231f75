"""A zygote imports once, forks a worker for each socket, keeps nobody's body, and ends with its server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from proctor.envs.gym_adapter import GymEnvironment
from proctor.envs.plume.typed_env import PlumeEnvironment
from proctor.envs.popper.typed_env import PopperEnvironment
from proctor.envs.targets import Target
from proctor.server.sandbox import messages
from proctor.server.sandbox.messages import GO as GO_ON
from proctor.server.sandbox.pool.bubblewrap import VARIABLES
from proctor.server.sandbox.pool.worker_process import find_pid
from proctor.server.sandbox.tiers import SandboxLimits, Tier
from proctor.server.sandbox.worker import confine, zygote
from proctor.server.sandbox.worker.worker import load_target
from proctor.server.sandbox.worker.zygote import is_safe_to_warm_up, step_batch_once, warm_up_environment
from tests.server.environments import HIDDEN_TEXT, diary
from tests.server.live_server import PATIENCE, until
from tests.server.sandbox.processes import ENVIRONMENTS, ORDER, TROUBLE_MODULE, descendants, work

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "text", ["CartPole-v1", "proctor/PlumeSearch-v0", f"{ENVIRONMENTS}:corridor", f"{ENVIRONMENTS}:Corridor-v0"]
)
def test_what_makes_a_target_is_imported_and_nothing_is_made(text: str) -> None:
    assert load_target(Target(text)).problem is None


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("Nothing-v7", "Nothing"),
        ("nowhere_at_all:Thing", "nowhere_at_all"),
        (f"{ENVIRONMENTS}:Missing", "Missing"),
        (f"{ENVIRONMENTS}:NOT_A_FACTORY", "cannot be called"),
    ],
)
def test_what_cannot_be_imported_is_said_in_words(text: str, word: str) -> None:
    assert word in (load_target(Target(text)).problem or "")


@pytest.mark.parametrize(
    "body",
    [f"raise RuntimeError('{HIDDEN_TEXT}')", f"raise SystemExit('{HIDDEN_TEXT}')", f"1/0 # {HIDDEN_TEXT}", "x = ("],
)
def test_a_module_that_fails_while_it_is_imported_is_said_in_words(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"failing_{abs(hash(body))}"
    (tmp_path / f"{name}.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)

    assert name in (load_target(Target(f"{name}:Thing")).problem or "")


def test_a_zygote_finds_modules_where_we_do_and_nowhere_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "/somewhere", *sys.path])

    command = zygote.command(7)

    assert command[1] == "-I"
    assert command[5:8] == ["7", str(tmp_path), "/somewhere"]


def test_a_zygote_imports_nothing_of_the_server_that_is_heavy() -> None:
    asking = "import sys; import proctor.server.sandbox.worker.zygote; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", asking], capture_output=True, text=True, check=True).stdout.split()
    )

    assert "proctor.server.runtime.env_adapter" in loaded
    assert not loaded & {"starlette", "uvicorn", "uvloop", "mcp", "websockets", "prometheus_client", "typer", "numba"}


def test_a_zygote_gives_up_its_rights_in_the_order_of_its_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    for name in ("die_with_parent", "become_nobody", "no_new_privileges", "adopt_orphans", "load_filter"):
        monkeypatch.setattr(confine, name, lambda *given, name=name: done.append(" ".join(map(str, (name, *given)))))
    monkeypatch.setattr(sys, "path", list(sys.path))

    for tier, alone in ((Tier.PROCESS, False), (Tier.BWRAP, False), (Tier.STRICT, False), (Tier.STRICT, True)):
        zygote._drop_rights(messages.StartMessage("x", {}, tier, SandboxLimits(), alone=alone, user=7))

    assert done == [
        *("die_with_parent", "no_new_privileges", "adopt_orphans"),
        *("become_nobody 7", "no_new_privileges", "adopt_orphans", "load_filter shared"),
        *("become_nobody 7", "no_new_privileges", "adopt_orphans", "load_filter zygote"),
        *("become_nobody 7", "no_new_privileges", "adopt_orphans", "load_filter alone"),
    ]
    assert sys.path[-1] == str(Path.cwd())


def start(text: str) -> messages.StartMessage:
    return messages.StartMessage(text, {}, Tier.PROCESS, SandboxLimits())


@contextmanager
def brooding(text: str) -> Iterator[tuple[socket.socket, subprocess.Popen[bytes], messages.LoadReport]]:
    """Give the server's end of a zygote that was told to import a target, the process, and what it said."""
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE)
    messages.set_peer_identity(ours, wanted=True)
    command = zygote.command(theirs.fileno())
    with ours, theirs, subprocess.Popen(command, pass_fds=[theirs.fileno()], env=VARIABLES) as process:
        theirs.close()
        try:
            with messages.receive_handshake(ours) as word:
                assert (word.kind, find_pid(word.speaker)) == (messages.HERE, process.pid)
            ours.sendall(messages.encode_frame(start(text)))
            body = messages.read_message(ours)
            assert body is not None
            yield ours, process, messages.decode_message(body, messages.LoadReport)
        finally:
            process.kill()


@contextmanager
def forked(control: socket.socket) -> Iterator[tuple[socket.socket, int]]:
    """Give the socket of a new worker that is ready, and its number."""
    ours, theirs = socket.socketpair()
    ours.settimeout(PATIENCE)
    messages.set_peer_identity(ours, wanted=True)
    with ours:
        with theirs:
            socket.send_fds(control, [messages.FORK], [theirs.fileno()])
        with messages.receive_handshake(ours) as first:
            messages.send_handshake(ours, GO_ON)
            with messages.receive_handshake(ours) as last:
                pids = [find_pid(word.speaker) for word in (first, last)]
        assert (first.kind, last.kind, pids[0]) == (messages.HERE, messages.READY, pids[1])
        yield ours, pids[0]


def asked(channel: socket.socket, message: Any) -> messages.WorkerReply:
    channel.sendall(messages.encode_frame(message))
    body = messages.read_message(channel)
    assert body is not None
    return messages.decode_message(body, messages.WorkerReply)


def test_workers_of_one_zygote_share_what_it_imported_and_nothing_else() -> None:
    with (
        brooding(f"{TROUBLE_MODULE}:Noting") as (control, process, loaded),
        forked(control) as (one, first),
        forked(control) as (other, second),
    ):
        for channel in (one, other):
            asked(channel, work(f"{TROUBLE_MODULE}:Noting"))
        notes = [asked(channel, messages.WorkerCall("reset", ORDER)) for channel in (one, one, other)]
        held = [sorted(Path(f"/proc/{pid}/fd").iterdir()) for pid in (first, second)]
        alive = descendants(process.pid)

    assert (loaded.problem, loaded.threads) == (None, 0)
    assert [each.outcome and each.outcome.observation for each in notes] == [
        b'{"observation":1}',
        b'{"observation":2}',
        b'{"observation":1}',
    ]
    assert {first, second} <= set(alive)
    assert [len(each) for each in held] == [4, 4]  # three that lead nowhere, and its own socket


def test_workers_do_not_draw_the_same_numbers() -> None:
    with brooding(f"{TROUBLE_MODULE}:Drawing") as (control, _, _):
        drawn = []
        for _ in range(2):
            with forked(control) as (channel, _):
                asked(channel, work(f"{TROUBLE_MODULE}:Drawing"))
                drawn.append(asked(channel, messages.WorkerCall("reset", ORDER)).outcome)

    assert drawn[0] != drawn[1]


def test_a_zygote_that_cannot_import_ends_after_it_said_why() -> None:
    with brooding("nowhere_at_all:Thing") as (control, process, loaded):
        assert "nowhere_at_all" in (loaded.problem or "")
        assert messages.read_message(control) is None
        assert process.wait(PATIENCE) == 0


def test_no_worker_is_left_as_a_zombie() -> None:
    with brooding(f"{ENVIRONMENTS}:Counting") as (control, process, _):
        with forked(control) as (_, killed):
            os.kill(killed, signal.SIGKILL)
        with forked(control) as (_, left):
            pass

        until(lambda: descendants(process.pid) == {})
        assert not Path(f"/proc/{killed}").exists()
        assert not Path(f"/proc/{left}").exists()


def test_a_zygote_ends_with_its_server_and_its_workers_end_with_it() -> None:
    with brooding(f"{ENVIRONMENTS}:Counting") as (control, process, _), forked(control) as (channel, pid):
        control.close()

        assert process.wait(PATIENCE) == 0
        assert channel.recv(1) == b""
        until(lambda: not Path(f"/proc/{pid}").exists())


def test_a_zygote_that_is_killed_takes_its_workers_with_it() -> None:
    with brooding(f"{ENVIRONMENTS}:Counting") as (control, process, _), forked(control) as (channel, pid):
        process.kill()

        assert channel.recv(1) == b""
        until(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.parametrize("said", [b"?", messages.FORK, messages.COMPILE])
def test_a_zygote_that_is_told_nonsense_ends(said: bytes) -> None:
    with brooding(f"{ENVIRONMENTS}:Counting") as (control, process, _):
        control.sendall(said)

        assert process.wait(PATIENCE) == 0


KNOWN = {
    "CartPole-v1": GymEnvironment,
    "Pendulum-v1": GymEnvironment,
    "Blackjack-v1": GymEnvironment,
    "proctor/PlumeSearch-v0": PlumeEnvironment,
    "proctor/ColumnPopper-v0": PopperEnvironment,
}


@pytest.mark.parametrize("text", KNOWN)
def test_a_known_environment_is_made_stepped_and_closed(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    for name in ("reset", "step", "close"):
        original = getattr(KNOWN[text], name)

        def noted(self: object, *said: object, name: str = name, original: object = original, **also: object) -> object:
            done.append(name)
            return original(self, *said, **also)  # type: ignore[operator]  # it is the method

        monkeypatch.setattr(KNOWN[text], name, noted)

    warm_up_environment(Target(text))

    assert is_safe_to_warm_up(Target(text))
    assert done == ["reset", "step", "close"]


@pytest.mark.parametrize("text", [f"{ENVIRONMENTS}:Corridor-v0", f"{ENVIRONMENTS}:Counting", "Nothing-v7", "nowhere:x"])
def test_a_users_environment_is_never_made(text: str) -> None:
    made = diary("").made

    warm_up_environment(Target(text))
    step_batch_once(Target(text), "same_step")

    assert not is_safe_to_warm_up(Target(text))
    assert diary("").made == made


def test_a_rehearsal_that_fails_is_no_ones_concern() -> None:
    warm_up_environment(Target("CartPole-v1", {"no_such_setting": 1}))
