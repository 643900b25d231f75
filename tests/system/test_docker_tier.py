"""Environments in containers, by a dockerd of our own and by podman: what they can do, what they cannot, and what is left."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import uvloop

from proctor.client import RemoteEnv
from proctor.envs.targets import Target
from proctor.errors import ComponentError
from proctor.models.control import Code
from proctor.models.wire import Encoding
from proctor.server.runtime.env_adapter import EnvAdapter, ResetRequest
from proctor.server.runtime.results import EnvOutcome, RequestFailed, new_incident
from proctor.server.sandbox.attacks import AttackResult, SandboxProbe
from proctor.server.sandbox.messages import Work
from proctor.server.sandbox.pool.container_pool import SERVER_LABEL, ContainerPool, Engine, server_mark
from proctor.server.sandbox.pool.worker_executor import WorkerExecutor
from proctor.server.sandbox.pool.worker_process import FIRST_USER, MOST_USERS
from proctor.server.sandbox.probe import LIMITS, Decoys, lay_out_decoys
from proctor.server.sandbox.probe import TARGET as PROBING
from proctor.server.sandbox.tiers import MIB, Mount, SandboxLimits, SandboxRequest, Tier
from tests.server.commands import finished, serve
from tests.server.live_server import until
from tests.server.test_workers import TOKEN, Visitor
from tests.system.engines import SITE, derive, import_image, own_docker, own_podman

pytestmark = [pytest.mark.anyio, pytest.mark.system, pytest.mark.timeout(180)]

PATIENCE = 120.0
ORDER = ResetRequest(1, "e", None)
Result = TypeVar("Result")

HOSTILE = r'''
import os
import stat
from pathlib import Path
import gymnasium as gym

def shout(words):
    """Write to every stream that leads out of the process."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISCHR(os.fstat(int(name)).st_mode):
                os.write(int(name), words)
        except OSError:
            continue

def writable():
    """Return every folder in which a file can be made."""
    found = []
    for folder, below, _ in os.walk("/"):
        below[:] = [name for name in below if os.path.join(folder, name) not in ("/proc", "/sys")]
        try:
            Path(folder, "canary").touch()
        except OSError:
            continue
        found.append(folder)
    return found

class Hostile(gym.Env):
    observation_space = action_space = gym.spaces.Discrete(9)

    def __init__(self, marker=None):
        self.marker = marker

    def reset(self, *, seed=None, options=None):
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        told = {name: status[name].strip() for name in ("CapEff", "CapBnd", "NoNewPrivs", "Seccomp", "Uid", "Gid", "Groups")}
        told["pid"], told["processes"] = os.getpid(), sorted(n for n in os.listdir("/proc") if n.isdigit())
        told["variables"], told["interfaces"] = sorted(os.environ), os.listdir("/sys/class/net")
        return 0, told

    def step(self, action):
        if action == 1:
            return 0, 0.0, False, False, {"writable": writable()}
        if action == 2:
            hoard = []
            while True:
                hoard.append(bytearray(os.urandom(1024) * 4096))
        if action == 3:
            if self.marker is not None:
                Path(self.marker, "inside").touch()
            while True:
                pass
        if action == 4:
            shout(b"nonsense that is no message" * 1000)
        if action == 5:
            shout(b"\xff\xff\xff\xff")
        if action == 6:
            shout((2**20).to_bytes(4, "big"))
            os._exit(0)
        return 0, 0.0, False, False, {}
'''
MOUNTED = """
import os
from pathlib import Path
import gymnasium as gym

class Looking(gym.Env):
    observation_space = action_space = gym.spaces.Discrete(9)

    def __init__(self, read, write, elsewhere):
        self.read, self.write, self.elsewhere = read, write, elsewhere

    def reset(self, *, seed=None, options=None):
        told = {"read": Path(self.read).read_text(), "elsewhere": Path(self.elsewhere).exists()}
        Path(self.write, "left").write_text("by the environment")
        try:
            Path(self.read).write_text("changed")
        except OSError as problem:
            told["refused"] = problem.strerror
        return 0, told

    def step(self, action):
        return 0, 0.0, False, False, {}
"""


def run(scenario: Coroutine[Any, Any, Result]) -> Result:
    async def bounded() -> Result:
        async with asyncio.timeout(120):
            return await scenario

    return uvloop.run(bounded())


def work(target: Target) -> Work:
    return Work(target.text, target.settings, False, False, None, None, False)


@pytest.fixture(scope="module")
def docker() -> Iterator[Engine]:
    with own_docker() as engine:
        yield engine


@pytest.fixture(scope="module")
def podman() -> Iterator[Engine]:
    with own_podman() as engine:
        yield engine


def host_of(engine: Engine) -> str:
    return engine.command[-1]


@pytest.fixture(scope="module")
def hostile_module(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile") / "hostile_env.py"
    path.write_text(HOSTILE)
    return path


@pytest.fixture(scope="module")
def in_docker(docker: Engine, hostile_module: Path) -> str:
    return import_image(docker, "an-env:1", hostile_module)


@pytest.fixture(scope="module")
def in_podman(podman: Engine, hostile_module: Path) -> str:
    return import_image(podman, "an-env:1", hostile_module)


@contextmanager
def container_pool(engine: Engine, image: str, target: Target, **wish: Any) -> Iterator[ContainerPool]:
    """Give a pool of containers, of which no container is left afterwards."""
    found = ContainerPool.start(target, SandboxRequest(Tier.DOCKER, **wish), image, engine)
    try:
        yield found
    finally:
        found.end()
    # What the engine says it is removing already may be there for another moment.
    until(lambda: not ours(engine), PATIENCE)


def ours(engine: Engine) -> list[str]:
    return list(engine.containers("proctor"))


async def gone(engine: Engine) -> None:
    await asyncio.to_thread(until, lambda: not ours(engine), PATIENCE)


def metadata(outcome: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(outcome.metadata)
    return found


async def episode(place: WorkerExecutor) -> list[Any]:
    begun = await place.reset(ORDER)
    return [begun, *[await place.step(b'{"action":%d}' % (number % 2)) for number in range(10)]]


def in_process() -> list[Any]:
    desk = EnvAdapter(Target("CartPole-v1").make(), Encoding(), new_incident)
    return [desk.reset(ORDER), *[desk.step(b'{"action":%d}' % (number % 2)) for number in range(10)]]


@pytest.mark.parametrize("name", ["docker", "podman"])
async def test_a_session_in_a_container_is_stepped_as_any_other_and_gone_when_it_is_closed(
    name: str, request: pytest.FixtureRequest
) -> None:
    engine, image = request.getfixturevalue(name), request.getfixturevalue(f"in_{name}")

    with container_pool(engine, image, Target("CartPole-v1")) as found:
        place = await found.start_worker(work(Target("CartPole-v1")))
        assert len(ours(engine)) == 1
        outcomes = await episode(place)
        await place.close()
        await gone(engine)
        result = outcomes

        assert result == in_process()


def test_a_server_serves_from_containers_and_leaves_none(docker: Engine, in_docker: str, tmp_path: Path) -> None:
    host = {"DOCKER_HOST": host_of(docker)}
    arguments = ("CartPole-v1", "--port", "0", "--insecure", "--json", "--sandbox", "docker")

    with serve(tmp_path / "home", *arguments, "--image", in_docker, more=host) as command:
        told = command.document
        with RemoteEnv(told["url"]) as env:
            observation, _ = env.reset(seed=1)
            _, reward, *_ = env.step(1)
            during = ours(docker)
        code = command.stopped()

    assert told["sandbox"] == "docker"
    assert observation.shape == (4,)
    assert reward == 1.0
    assert len(during) == 1
    assert code == 0
    assert ours(docker) == []


@pytest.mark.parametrize(
    ("image", "host", "reason"),
    [
        ((), None, "needs an image"),
        (("--image", "nope:1"), None, "has no such image"),
        (("--image", "nope:1"), "unix:///nowhere/docker.sock", "daemon does not answer"),
    ],
)
def test_a_server_without_image_or_daemon_says_what_to_do(
    docker: Engine, tmp_path: Path, image: tuple[str, ...], host: str | None, reason: str
) -> None:
    # Without podman, which would be asked next.
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "docker").symlink_to(subprocess.check_output(["which", "docker"], text=True).strip())
    more = {"DOCKER_HOST": host or host_of(docker), "PATH": str(tmp_path / "bin")}

    code, _, log = finished(
        tmp_path / "home", "CartPole-v1", "--port", "0", "--insecure", "--sandbox", "docker", *image, more=more
    )

    assert code == 2
    assert reason in log
    assert "Traceback" not in log


async def attempts(
    place: WorkerExecutor, probes: list[SandboxProbe], baits: Decoys
) -> dict[SandboxProbe, tuple[bool, str]]:
    """Return what each probe came to, by its own word or by what the host saw."""
    await place.reset(ResetRequest(None, "", None))
    found = {}
    for probe in probes:
        outcome = await place.step(baits.targets_for(probe).model_dump_json().encode())
        assert isinstance(outcome, EnvOutcome)
        tried = AttackResult.model_validate_json(outcome.observation)
        seen = baits.was_taken(probe)
        found[probe] = (tried.succeeded or bool(seen), tried.said)
    return found


ENDING = [SandboxProbe.MEMORY_BOMB, SandboxProbe.MEMORY_OF_MANY, SandboxProbe.PTRACE, SandboxProbe.NEIGHBOURS]
"""Neighbours have a container each; the other three may end the process, and are tried elsewhere or last."""


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_every_attack_of_the_probe_fails_in_a_container(name: str, request: pytest.FixtureRequest) -> None:
    engine, image = request.getfixturevalue(name), request.getfixturevalue(f"in_{name}")

    async def scenario(found: ContainerPool, baits: Decoys) -> dict[SandboxProbe, tuple[bool, str]]:
        place = await found.start_worker(work(PROBING))
        place.timeout = PATIENCE
        return await attempts(place, [probe for probe in SandboxProbe if probe not in ENDING], baits)

    with lay_out_decoys() as baits, container_pool(engine, image, PROBING, limits=LIMITS) as found:
        outcomes = run(scenario(found, baits))

    assert len(outcomes) == len(SandboxProbe) - len(ENDING)
    reached = {probe: said for probe, (succeeded, said) in outcomes.items() if succeeded}
    # A private file is tried first; the list of users is the image's own, with two in it.
    assert reached in ({}, {SandboxProbe.HOST_FILES: "/etc/passwd was read"})


SURPRISES = (
    *("USER root", 'ENTRYPOINT ["nothing"]', "WORKDIR /root", "EXPOSE 80", "ENV PYTHONINSPECT=1"),
    *("ENV PYTHONPATH=/tmp", "ENV HOME=/root"),
)
"""What an image can say of users, folders and variables; it changes nothing."""


@pytest.mark.parametrize("surprises", [(), SURPRISES], ids=["plain", "surprising"])
def test_a_hostile_environment_sees_and_writes_nothing_but_its_own(
    docker: Engine, in_docker: str, monkeypatch: pytest.MonkeyPatch, surprises: tuple[str, ...]
) -> None:
    monkeypatch.setenv("PROCTOR_CANARY", "canary")
    image = derive(docker, in_docker, "surprising:1", *surprises) if surprises else in_docker
    target = Target("hostile_env:Hostile")

    async def scenario(found: ContainerPool) -> tuple[dict[str, Any], list[str]]:
        place = await found.start_worker(work(target))
        told = metadata(await place.reset(ORDER))
        return told, metadata(await place.step(b'{"action":1}'))["writable"]

    with container_pool(docker, image, target) as found:
        told, writable = run(scenario(found))

    assert sorted(writable) == ["/dev/shm", "/tmp"]
    assert int(told["CapEff"], 16) == int(told["CapBnd"], 16) == 0
    assert (told["NoNewPrivs"], told["Seccomp"]) == ("1", "2")
    users = set(told["Uid"].split())
    assert len(users) == 1
    assert int(users.pop()) in range(FIRST_USER, FIRST_USER + MOST_USERS)
    assert set(told["Gid"].split()) == {"65534"}
    assert told["Groups"] in ("", "65534")
    assert (told["pid"], told["processes"]) == (1, ["1"])
    assert told["interfaces"] == ["lo"]
    assert "PROCTOR_CANARY" not in told["variables"]


async def test_an_environment_that_takes_too_much_memory_ends_with_a_code_and_nobody_else_does(
    docker: Engine, in_docker: str
) -> None:
    target = Target("hostile_env:Hostile")
    limits = SandboxLimits(memory_bytes=200 * MIB)

    with container_pool(docker, in_docker, target, limits=limits) as found:
        glutton, neighbour = await asyncio.gather(*(found.start_worker(work(target)) for _ in range(2)))
        for place in (glutton, neighbour):
            await place.reset(ORDER)
        with pytest.raises(RequestFailed) as caught:
            await glutton.step(b'{"action":2}')
        assert (await neighbour.step(b'{"action":0}')) is not None
        await asyncio.to_thread(until, lambda: len(ours(docker)) == 1, PATIENCE)
        problem = caught.value.problem

    assert problem.code == Code.EXECUTION_ERROR
    assert problem.lost is True
    assert "more memory" in problem.message


async def test_an_environment_that_hangs_is_killed_and_its_container_is_gone(docker: Engine, in_docker: str) -> None:
    target = Target("hostile_env:Hostile")

    with container_pool(docker, in_docker, target) as found:
        place = await found.start_worker(work(target))
        await place.reset(ORDER)
        place.timeout = 0.5
        with pytest.raises(RequestFailed) as caught:
            await place.step(b'{"action":3}')
        await gone(docker)

        assert caught.value.problem.code == Code.STEP_TIMEOUT


@pytest.mark.parametrize(
    ("action", "code"),
    [(4, Code.TOO_LARGE), (5, Code.TOO_LARGE), (6, Code.EXECUTION_ERROR)],
    ids=["nonsense that reads as a length", "too long", "half a message"],
)
async def test_an_environment_that_writes_into_the_conversation_ends_its_own_session(
    docker: Engine, in_docker: str, action: int, code: Code
) -> None:
    target = Target("hostile_env:Hostile")

    with container_pool(docker, in_docker, target) as found:
        liar, neighbour = await asyncio.gather(*(found.start_worker(work(target)) for _ in range(2)))
        for place in (liar, neighbour):
            await place.reset(ORDER)
        with pytest.raises(RequestFailed) as caught:
            await liar.step(b'{"action":%d}' % action)
        assert (await neighbour.step(b'{"action":0}')) is not None
        await asyncio.to_thread(until, lambda: len(ours(docker)) == 1, PATIENCE)
        problem = caught.value.problem

    assert (problem.code, problem.lost) == (code, True)
    assert "nonsense" not in problem.message


@pytest.mark.parametrize("name", ["docker", "podman"])
def test_an_image_with_a_volume_is_refused(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    engine, image = request.getfixturevalue(name), request.getfixturevalue(f"in_{name}")
    derived = derive(engine, image, "with-volume:1", "VOLUME /data")

    with pytest.raises(ComponentError, match="volumes"):
        ContainerPool.start(Target("CartPole-v1"), SandboxRequest(Tier.DOCKER), derived, engine)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("import os, time; [(os.write(2, b'x' * 65536)) for _ in range(4096)]; time.sleep(999)", "not ready within"),
        ("import os, time; os.write(1, bytes([0, 0, 99, 0])); [(os.write(1, b'x'), time.sleep(1)) for _ in range(999)]", "not ready within"),
        ("import os; os.write(1, b'nonsense' * 999)", "nothing that a worker says"),
        ("raise SystemExit('a word of the image')", "a word of the image"),
    ],
    ids=["flood", "drip", "nonsense", "end"],
)  # fmt: skip
def test_an_image_that_starts_another_program_is_refused_in_time(
    docker: Engine, in_docker: str, tmp_path: Path, script: str, reason: str
) -> None:
    other = tmp_path / "usr" / "local" / "bin" / "python3"
    other.parent.mkdir(parents=True)
    other.write_text(f"#!/usr/bin/python3\n{script}\n")
    other.chmod(0o755)
    image = derive(docker, in_docker, "another-program:1", files=tmp_path / "usr")
    wish = SandboxRequest(Tier.DOCKER)

    seconds = 10.0 if reason == "not ready within" else PATIENCE
    found = ContainerPool.start(Target("CartPole-v1"), wish, image, docker, start_seconds=seconds)
    try:
        with pytest.raises(ComponentError, match=reason):
            found.card()
    finally:
        found.end()

    until(lambda: not ours(docker), PATIENCE)


@pytest.mark.parametrize("name", ["docker", "podman"])
async def test_the_image_that_was_checked_is_run_though_its_name_means_another_by_then(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    engine, image = request.getfixturevalue(name), request.getfixturevalue(f"in_{name}")
    engine.run("tag", image, "moving:1")
    derive(engine, image, "with-volume:2", "VOLUME /data")

    with container_pool(engine, "moving:1", Target("CartPole-v1")) as found:
        engine.run("tag", "with-volume:2", "moving:1")
        await found.start_worker(work(Target("CartPole-v1")))
        images = [json.loads(engine.run("inspect", each))[0]["Image"].removeprefix("sha256:") for each in ours(engine)]
        digest = found.report.digest

    assert images == [digest]
    assert engine.image("moving:1").digest != digest


async def test_only_what_is_mounted_by_name_is_seen(docker: Engine, in_docker: str, tmp_path: Path) -> None:
    (tmp_path / "looking_env.py").write_text(MOUNTED)
    (tmp_path / "data").write_text("of the host")
    (tmp_path / "hidden").write_text("of the host")
    (tmp_path / "out").mkdir()
    for name, mode in (("out", 0o777), ("data", 0o666), ("hidden", 0o666), ("looking_env.py", 0o644)):
        (tmp_path / name).chmod(mode)
    paths = [str(tmp_path / name) for name in ("data", "out", "hidden")]
    target = Target("looking_env:Looking", dict(zip(("read", "write", "elsewhere"), paths, strict=True)))
    mounts = (
        Mount(tmp_path / "looking_env.py", inside=Path(f"/{SITE}/looking_env.py")),
        Mount(tmp_path / "data"),
        Mount(tmp_path / "out", writable=True),
    )

    with container_pool(docker, in_docker, target, mounts=mounts) as found:
        told = metadata(await (await found.start_worker(work(target))).reset(ORDER))

    assert told == {"read": "of the host", "elsewhere": False, "refused": "Read-only file system"}
    assert (tmp_path / "data").read_text() == "of the host"
    assert (tmp_path / "out" / "left").read_text() == "by the environment"


def test_a_server_that_was_killed_leaves_containers_that_the_next_one_removes(docker: Engine, in_docker: str) -> None:
    own = server_mark()
    dead = f"{own}0"
    idle = (
        *("--network", "none", "--entrypoint", "python3", in_docker, "-c"),
        "import threading; threading.Event().wait()",
    )
    for name, mark in (("proctor-dead-1", dead), ("proctor-living-1", own)):
        docker.run("run", "--detach", "--rm", "--name", name, "--label", f"{SERVER_LABEL}={mark}", *idle)
    try:
        ContainerPool.start(Target("CartPole-v1"), SandboxRequest(Tier.DOCKER), in_docker, docker).end()
        left = list(docker.containers(SERVER_LABEL))
    finally:
        docker.remove(["proctor-dead-1", "proctor-living-1"])

    assert left == ["proctor-living-1"]


def test_a_container_that_outlives_a_killed_server_is_removed_by_the_next_one(
    docker: Engine, in_docker: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    out.chmod(0o777)
    target = ("hostile_env:Hostile", "--set", f"marker={out}", "--mount", f"{out}:rw")
    arguments = (*target, "--port", "0", "--json", "--sandbox", "docker", "--image", in_docker)
    more = {**TOKEN, "DOCKER_HOST": host_of(docker)}

    with serve(tmp_path / "home", *arguments, more=more) as command:
        visitor = Visitor(command.document["websocket"])
        visitor.open()
        step = {"type": "step", "data": {"action": 3}, "id": 2, "session": visitor.session, "epoch": 1}
        visitor.socket.send(json.dumps(step))
        until((out / "inside").exists, PATIENCE)
        command.stopped(signal.SIGKILL)
    visitor.close()
    outliving = ours(docker)
    with serve(tmp_path / "home", *arguments, more=more) as command:
        assert command.document["sandbox"] == "docker"
        swept = ours(docker)
        code = command.stopped()

    assert len(outliving) == 1
    assert outliving[0] not in swept  # the container that was asked for a description may still be ending
    assert (code, ours(docker)) == (0, [])


async def test_a_nest_that_closes_in_the_middle_of_everything_leaves_nothing(docker: Engine, in_docker: str) -> None:
    with container_pool(docker, in_docker, Target("CartPole-v1")) as found:
        place = await found.start_worker(work(Target("CartPole-v1")))
        opening = asyncio.create_task(found.start_worker(work(Target("CartPole-v1"))))
        await asyncio.to_thread(until, lambda: len(ours(docker)) == 2, PATIENCE)
        place.abandon()
        await found.close()
        await asyncio.gather(opening, return_exceptions=True)

    assert ours(docker) == []
    assert os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None  # no zombie of ours
