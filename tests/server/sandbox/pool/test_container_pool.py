"""A session has a container for itself: how it begins, how it ends, and what is removed of it. No engine is needed here."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from proctor import __version__
from proctor.envs.targets import Target
from proctor.errors import ComponentError, ValidationError
from proctor.models.control import Code
from proctor.server.runtime.env_adapter import EnvDescription, ResetRequest
from proctor.server.runtime.results import RequestFailed, RequestRefused
from proctor.server.sandbox.messages import LoadReport, StartMessage, Work, WorkerProblem, WorkerReply
from proctor.server.sandbox.pool import container_pool as container_module
from proctor.server.sandbox.pool.container_pool import (
    Container,
    ContainerPool,
    find_orphans,
    find_start_ticks,
    server_mark,
)
from proctor.server.sandbox.tiers import SandboxLimits, SandboxRequest, Tier
from tests.server.live_server import PATIENCE, until
from tests.server.sandbox.fake_engine import StandIn, canned, stand_in

pytestmark = pytest.mark.anyio

CARTPOLE = Target("CartPole-v1")
WORK = Work("CartPole-v1", {}, False, False, None, None, False)
ORDER = ResetRequest(1, "e", None)
DRIPS = """
import os, time
os.write(1, (60_000).to_bytes(4, "big"))
while True:
    os.write(1, b"x")
    time.sleep(0.05)
"""
FLOODS = """
import os
for _ in range(512):
    os.write(2, b"x" * 65536)
"""
HANGS = f'exec "{sys.executable}" -S -c "import threading; threading.Event().wait()"\n'
LOADED = LoadReport(version=__version__)
Result = TypeVar("Result")


@pytest.fixture
def engine(tmp_path: Path) -> StandIn:
    return stand_in(tmp_path)


@contextmanager
def pool(made: StandIn, target: Target = CARTPOLE, **options: Any) -> Iterator[ContainerPool]:
    """Give a pool of which nothing is left afterwards."""
    found = ContainerPool.start(target, SandboxRequest(Tier.DOCKER), "an-image:1", made.engine, **options)
    try:
        yield found
    finally:
        found.end()


def run(scenario: Coroutine[Any, Any, Result]) -> Result:
    async def bounded() -> Result:
        async with asyncio.timeout(2 * PATIENCE):
            return await scenario

    return uvloop.run(bounded())


def removed(made: StandIn) -> list[str]:
    return [line.split()[-1] for line in made.asked() if line.startswith("rm ")]


def open_files() -> set[str]:
    """Return the sockets and the nameless files that we hold open: what a container leaves if it leaves anything."""
    links = [str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink()]
    return {link for link in links if link.startswith("socket:") or link.endswith("(deleted)")}


OWN = "machine/1/100/5"


@given(st.text(max_size=40), st.integers(1, 2**22), st.integers(0, 2**60))
def test_what_is_no_mark_of_ours_is_never_taken_for_a_dead_servers(place: str, pid: int, began: int) -> None:
    for mark in (place, f"{place}/{pid}/{began}", f"machine/1/{place}", f"machine/1/{pid}/x"):
        assert find_orphans({"x": mark}, OWN, lambda _: None) == []


@pytest.mark.parametrize(
    ("mark", "gone"),
    [
        (OWN, False),
        ("machine/1/200/5", True),  # no such process
        ("machine/1/100/4", True),  # its number is another's by now
        ("other/1/200/5", False),  # another machine, or before a restart
        ("machine/2/200/5", False),  # in a container of its own
    ],
)
def test_only_containers_of_servers_that_are_surely_gone_are_swept(mark: str, gone: bool) -> None:
    assert find_orphans({"it": mark, "not-ours": ""}, OWN, {100: 5}.get) == (["it"] if gone else [])


def test_this_process_knows_its_own_mark() -> None:
    pid, began = server_mark().split("/")[2:]

    assert (int(pid), int(began)) == (os.getpid(), find_start_ticks(os.getpid()))
    assert find_orphans({"x": server_mark()}, server_mark()) == []


def test_a_process_that_has_ended_has_not_begun() -> None:
    with subprocess.Popen(["true"]) as process:
        process.wait(PATIENCE)

    assert find_start_ticks(process.pid) is None


def test_a_nest_begins_by_sweeping_what_dead_servers_left(engine: StandIn) -> None:
    living = server_mark()
    dead = f"{living}0"
    engine.answers("ps", f"proctor-dead-1\t{dead}\nproctor-living-1\t{living}\nproctor-odd\t\n")

    ContainerPool.start(CARTPOLE, SandboxRequest(Tier.DOCKER), "x", engine.engine)

    assert removed(engine) == ["proctor-dead-1"]


def test_without_an_image_it_is_said_how_to_make_one() -> None:
    with pytest.raises(ValidationError, match=r"docs/containers\.md"):
        ContainerPool.start(CARTPOLE, SandboxRequest(Tier.DOCKER), None)


@pytest.mark.parametrize("version", ["", "0.0.0-other"])
def test_an_image_of_another_version_is_refused(engine: StandIn, version: str) -> None:
    engine.runs(canned(LoadReport("what it could not read", version=version)))

    with pool(engine) as found, pytest.raises(ComponentError, match="another version of Proctor"):
        found.card()


def test_an_image_with_volumes_is_refused_because_they_would_be_writable_without_limit(engine: StandIn) -> None:
    engine.answers("image", [{"Id": "abc", "Config": {"Volumes": {"/var/data": {}, "/cache": {}}}}])

    with pytest.raises(ComponentError, match="volumes") as caught:
        ContainerPool.start(CARTPOLE, SandboxRequest(Tier.DOCKER), "x", engine.engine)

    assert caught.value.found == "/cache, /var/data"


def test_an_engine_that_cannot_set_the_limits_is_refused(engine: StandIn) -> None:
    engine.answers("info", {"ServerVersion": "1", "MemoryLimit": True, "CpuCfsQuota": True})

    with pytest.raises(ComponentError, match="processes"):
        ContainerPool.start(CARTPOLE, SandboxRequest(Tier.DOCKER), "x", engine.engine)


def test_the_report_says_what_keeps_sessions_apart(engine: StandIn) -> None:
    with pool(engine) as found:
        assert found.tier is Tier.DOCKER
        assert (found.report.tier, found.report.engine, found.report.image) == (
            *(Tier.DOCKER, "docker 1.2.3", "an-image:1"),
        )
        assert (found.report.digest, found.report.seccomp) == ("abc", "docker's profile default")
        assert "each session" in found.report.costs


def test_a_session_is_one_container_that_answers_as_every_worker_does(engine: StandIn) -> None:
    async def scenario(found: ContainerPool) -> Any:
        executor = await found.start_worker(WORK, "a session")
        begun = await executor.reset(ORDER)
        stepped = await executor.step(b'{"action":1}')
        state = await executor.state()
        await executor.close()
        return begun, stepped, state

    before = open_files()
    with pool(engine) as found:
        card = msgspec.msgpack.decode(found.card(), type=EnvDescription)
        begun, stepped, state = run(scenario(found))

    names = [re.findall(r"--name (\S+)", line)[0] for line in engine.asked() if line.startswith("run ")]
    assert card.name == "CartPole-v1"
    assert begun.observation.startswith(b'{"observation":[')
    assert stepped.reward == 1.0
    assert b'"step_count":1' in state
    assert len(set(names)) == 2
    assert sorted(removed(engine)) == sorted(names)
    assert open_files() <= before


def test_containers_are_labelled_with_their_server_and_their_nest(engine: StandIn) -> None:
    engine.runs(canned(LOADED, WorkerReply(card=b"its card")))
    with pool(engine) as found:
        assert found.card() == b"its card"

    (line,) = (line for line in engine.asked() if line.startswith("run "))
    (boot,) = re.findall(r"--label proctor=(\w+)", line)
    assert f"--name proctor-{boot}-1 " in line
    assert f"--label proctor.server={server_mark()} " in line
    assert line.endswith("sha256:abc -P -B -m proctor.server.sandbox.worker.worker")


async def test_a_container_does_not_learn_where_this_machine_has_its_modules(engine: StandIn) -> None:
    heard = engine.folder / "heard"
    engine.runs(f'tee "{heard}" | {canned(LOADED, WorkerReply()).removeprefix("exec ")}')

    with pool(engine) as found:
        (await found.start_worker(WORK)).abandon()

    assert b"CartPole-v1" in heard.read_bytes()
    assert not any(path.encode() in heard.read_bytes() for path in sys.path if path)


@pytest.mark.parametrize(
    ("answers", "problem", "reason"),
    [
        ((LoadReport("cannot import\x1b it", version=__version__),), ValidationError, r"cannot import\? it"),
        (
            (LOADED, WorkerReply(refused=WorkerProblem("no such setting", Code.FACTORY_ERROR))),
            ValidationError,
            "no such setting",
        ),
        ((LOADED, WorkerReply()), ComponentError, "no card"),
        ((LOADED,), ValidationError, "ended"),
    ],
)
def test_an_environment_that_cannot_be_made_is_told_to_whoever_starts_a_server(
    engine: StandIn, answers: tuple[Any, ...], problem: type[Exception], reason: str
) -> None:
    engine.runs(canned(*answers))

    with pool(engine) as found, pytest.raises(problem, match=reason):
        found.card()


def test_an_environment_that_is_not_made_in_time_is_not_waited_for(engine: StandIn) -> None:
    engine.runs(canned(LOADED).replace("sys.exit(int", "exactly(2**30); sys.exit(int"))

    with pool(engine, start_seconds=5.0) as found, pytest.raises(ComponentError, match="not made within"):
        found.card()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'docker: Error: no space left on device' >&2; exit 125\n", "no space left on device"),
        ("echo 'Unable to find image locally' >&2; exit 125\n", "docker has no such image"),
        ("printf 'nonsense that is no message'; cat\n", "nothing that a worker says"),
        ("printf '\\377\\377\\377\\377too long'; cat\n", "nothing that a worker says"),
        (HANGS, "not ready within 0.5 seconds"),
    ],
    ids=["no space", "no image", "nonsense", "too long", "hangs"],
)
async def test_a_container_that_does_not_begin_is_refused_with_a_number_and_logged_with_the_reason(
    engine: StandIn, caplog: pytest.LogCaptureFixture, script: str, reason: str
) -> None:
    engine.runs(script)

    with pool(engine, start_seconds=0.5 if script == HANGS else PATIENCE) as found:
        with pytest.raises(RequestRefused) as caught:
            await found.start_worker(WORK)
        problem = caught.value.problem

    assert problem.code == Code.FACTORY_ERROR
    assert reason in caplog.text
    assert str(problem.incident) in caplog.text
    assert "space" not in problem.message
    assert len(removed(engine)) == 1


def refused_start(engine: StandIn, script: str, seconds: float = 2.0) -> str:
    """Return why a container that runs a script of Python's does not begin."""
    (engine.folder / "script.py").write_text(script)
    engine.runs(f'exec "{sys.executable}" -S "{engine.folder}/script.py"\n')
    with ThreadPoolExecutor(1) as undertaker:
        container = Container(engine.engine, "proctor-x-1", undertaker, lambda _: None)
        try:
            with pytest.raises(ComponentError) as caught:
                container.start(["run"], StartMessage("CartPole-v1", {}, Tier.DOCKER, SandboxLimits(), False), seconds)
        finally:
            container.kill()
    assert container._client is not None
    assert container._client.stderr is not None
    assert container._client.stderr.closed
    return caught.value.message


def test_a_container_that_says_a_byte_now_and_then_is_not_waited_for_any_longer(engine: StandIn) -> None:
    assert refused_start(engine, DRIPS) == "the container was not ready within 2 seconds"


def test_a_container_that_floods_its_error_stream_fills_no_disk(engine: StandIn) -> None:
    ended = engine.folder / "ended"

    reason = refused_start(engine, f"{FLOODS}\nopen({str(ended)!r}, 'w')\nos.read(0, 1)\nimport time; time.sleep(9)")

    assert reason == "the container was not ready within 2 seconds"
    assert not ended.exists()  # most of the flood is where it came from


def test_a_container_that_hangs_up_and_lives_on_without_a_word_is_refused(
    engine: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_module, "BURIAL_SECONDS", 0.2)

    reason = refused_start(engine, "import os, threading\nos.close(0), os.close(1)\nthreading.Event().wait()", PATIENCE)

    assert reason == "docker says no: it gave no reason"


def test_an_engine_that_cannot_be_run_is_refused(engine: StandIn) -> None:
    async def scenario(found: ContainerPool) -> None:
        with pytest.raises(RequestRefused):
            await found.start_worker(WORK)

    with pool(engine) as found:
        (engine.folder / "docker").rename(engine.folder / "moved")
        try:
            run(scenario(found))
        finally:
            (engine.folder / "moved").rename(engine.folder / "docker")


@pytest.mark.parametrize(("code", "is_memory"), [(137, True), (9, False), (0, False)])
async def test_a_container_that_the_kernel_ended_needed_too_much_memory(
    engine: StandIn, code: int, is_memory: bool
) -> None:
    engine.runs(canned(LOADED, WorkerReply(), code=code))

    with pool(engine) as found:
        executor = await found.start_worker(WORK)
        with pytest.raises(RequestFailed) as caught:
            await executor.reset(ORDER)
        problem = caught.value.problem

    assert problem.code == Code.EXECUTION_ERROR
    assert ("more memory" in problem.message) == is_memory


def test_a_session_that_is_given_up_while_it_begins_leaves_nothing(engine: StandIn) -> None:
    engine.runs(f'echo $$ > "{engine.folder}/pid"\n' + HANGS)

    async def scenario(found: ContainerPool) -> int:
        opening = asyncio.create_task(found.start_worker(WORK))
        pid = await asyncio.to_thread(until, lambda: (engine.folder / "pid").exists() and read_pid(engine))
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        return int(pid)

    before = open_files()
    with pool(engine) as found:
        pid = run(scenario(found))

    assert not Path(f"/proc/{pid}").exists()
    assert len(removed(engine)) == 1
    assert open_files() <= before


def read_pid(engine: StandIn) -> str:
    return (engine.folder / "pid").read_text().strip()


def test_a_nest_that_closes_ends_every_container_and_begins_no_other(engine: StandIn) -> None:
    async def scenario(found: ContainerPool) -> tuple[RequestFailed, RequestRefused]:
        executor = await found.start_worker(WORK)
        engine.answers("ps", "proctor-late-1\t\n")
        await found.close()
        with pytest.raises(RequestFailed) as failed:
            await executor.step(b'{"action":1}')
        executor.abandon()
        with pytest.raises(RequestRefused) as refused:
            await found.start_worker(WORK)
        await found.close()
        return failed.value, refused.value

    engine.runs(canned(LOADED, WorkerReply()))
    with pool(engine) as found:
        failed, refused = run(scenario(found))

    assert failed.problem.code == Code.EXECUTION_ERROR
    assert refused.problem.code == Code.FACTORY_ERROR
    # The second is one that the engine made when its client was gone already.
    assert removed(engine)[1] == "proctor-late-1"


def test_a_container_that_cannot_be_removed_is_logged_and_tried_again_at_the_end(
    engine: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    engine.answers("rm", "device or resource busy")
    engine.runs(canned(LOADED, WorkerReply(card=b"")))
    with pool(engine) as found:
        found.card()
        until(lambda: "could not be removed" in caplog.text)
        (engine.folder / "rm").unlink()
        engine.answers("ps", "proctor-left-1\t\n")

    assert removed(engine)[-1] == "proctor-left-1"


def test_a_daemon_that_is_gone_at_the_end_is_logged_and_no_mistake(
    engine: StandIn, caplog: pytest.LogCaptureFixture
) -> None:
    with pool(engine):
        engine.answers("refuses", "Cannot connect to the Docker daemon")

    assert "containers may be left" in caplog.text


def start() -> StartMessage:
    return StartMessage("CartPole-v1", {}, Tier.DOCKER, SandboxLimits())


def test_a_container_that_was_killed_before_its_start_never_starts(engine: StandIn) -> None:
    over = threading.Event()
    with ThreadPoolExecutor(1) as undertaker:
        container = Container(engine.engine, "it", undertaker, lambda _: over.set())
        container.kill()
        container.kill()
        assert over.wait(PATIENCE)

        with pytest.raises(ComponentError, match="given up"):
            container.start(["run"], start(), 1.0)

    assert "run" not in engine.verbs()
    assert removed(engine) == ["it"]
    assert not container.out_of_memory()


def test_a_container_that_is_buried_while_it_starts_has_nothing_to_say(
    engine: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    buried = threading.Event()

    def greet_too_late(*_: object) -> None:
        assert buried.wait(PATIENCE)
        raise ConnectionResetError

    monkeypatch.setattr(container_module, "load_target_in", greet_too_late)
    engine.runs(HANGS)
    with ThreadPoolExecutor(2) as threads:
        container = Container(engine.engine, "it", threads, lambda _: buried.set())
        starting = threads.submit(container.start, ["run"], start(), PATIENCE)
        until(lambda: "run" in engine.verbs())
        container.kill()

        with pytest.raises(ComponentError, match="ended at once"):
            starting.result(PATIENCE)


def test_a_client_that_lives_on_is_not_out_of_memory(engine: StandIn) -> None:
    engine.runs(canned(LOADED))
    with ThreadPoolExecutor(1) as undertaker:
        container = Container(engine.engine, "it", undertaker, lambda _: None)
        channel = container.start(["run"], start(), PATIENCE)
        try:
            assert isinstance(channel, socket.socket)
            assert not container.out_of_memory()
        finally:
            container.kill()
