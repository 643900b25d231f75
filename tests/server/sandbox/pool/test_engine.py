"""What is asked of docker and podman, word for word, and what a user learns when they refuse."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import ComponentError, ValidationError
from proctor.server.sandbox.pool.container_pool import (
    Engine,
    EngineFacts,
    ImageFacts,
    explain_failure,
    parse_facts,
    run_arguments,
)
from proctor.server.sandbox.pool.worker_process import FIRST_USER
from proctor.server.sandbox.tiers import Mount, SandboxLimits, SandboxRequest, Tier
from tests.server.sandbox.fake_engine import stand_in

IMAGE = ImageFacts("abc")
LIMITS = SandboxLimits(memory_bytes=100, processes=7, cpus=0.5, file_bytes=200, tmp_bytes=300, open_files=40)


def words(engine: str = "docker", wish: SandboxRequest | None = None) -> list[str]:
    wish = SandboxRequest(Tier.DOCKER, limits=LIMITS) if wish is None else wish
    return run_arguments(engine, IMAGE, "proctor-b-1", {"proctor": "b"}, wish, ["-m", "worker"], user=FIRST_USER)


def after(said: list[str], option: str) -> list[str]:
    """Return the words that follow an option, wherever it stands."""
    return [said[index + 1] for index, word in enumerate(said) if word == option]


def test_a_container_is_closed_in_every_direction() -> None:
    said = words()

    assert said[0] == "run"
    assert said[-3:] == ["sha256:abc", "-m", "worker"]
    assert after(said, "--network") == ["none"]
    assert {"--rm", "--interactive", "--read-only", "--no-healthcheck"} <= set(said)
    assert after(said, "--cap-drop") == ["ALL"]
    assert after(said, "--security-opt") == ["no-new-privileges"]
    assert after(said, "--user") == ["536870912:65534"]
    assert after(said, "--pull") == ["never"]
    assert after(said, "--ipc") == ["private"]
    assert after(said, "--log-driver") == ["none"]
    assert after(said, "--workdir") == ["/"]
    assert after(said, "--name") == ["proctor-b-1"]
    assert after(said, "--label") == ["proctor=b"]
    assert after(said, "--entrypoint") == ["python3"]
    assert not {"--privileged", "--mount", "--volume", "--tty", "--cap-add", "--device"} & set(said)


def test_the_limits_are_those_of_the_wish() -> None:
    said = words()

    assert after(said, "--memory") == after(said, "--memory-swap") == ["100"]
    assert after(said, "--pids-limit") == ["7"]
    assert after(said, "--cpus") == ["0.5"]
    assert after(said, "--shm-size") == ["300"]
    assert after(said, "--tmpfs") == ["/tmp:rw,noexec,nosuid,nodev,mode=1777,size=300"]
    assert after(said, "--ulimit") == [
        *("fsize=200:200", "core=0:0", "nofile=40:40"),
        *("memlock=0:0", "msgqueue=0:0", "sigpending=256:256"),
    ]


def test_only_what_is_named_is_mounted_and_the_network_only_if_asked_for() -> None:
    mounts = (Mount(Path("/data")), Mount(Path("/out"), writable=True), Mount(Path("/a"), inside=Path("/b")))

    said = words(wish=SandboxRequest(Tier.DOCKER, mounts, network=True))

    assert after(said, "--mount") == [
        "type=bind,source=/data,target=/data,readonly",
        "type=bind,source=/out,target=/out",
        "type=bind,source=/a,target=/b,readonly",
    ]
    assert after(said, "--network") == ["bridge"]


@pytest.mark.parametrize("path", ["/a,source=/etc", '/a"b', "/a\nb"])
def test_a_path_that_would_be_read_as_options_is_refused(path: str) -> None:
    with pytest.raises(ValidationError, match="cannot be mounted"):
        words(wish=SandboxRequest(Tier.DOCKER, (Mount(Path(path)),)))


def test_nothing_of_the_servers_environment_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_SECRET", "canary")

    variables = after(words(), "--env")

    assert not [each for each in variables if "canary" in each or each.startswith("PATH=")]
    assert all("=" in each for each in variables)
    assert {"HOME=/tmp", "OPENBLAS_NUM_THREADS=1"} <= set(variables)


def test_podman_gets_the_same_words_and_two_of_its_own() -> None:
    docker, podman = words(), words("podman")

    assert [word for word in podman if word not in docker] == ["--read-only-tmpfs=false", "nproc=16384:16384"]
    assert after(podman, "--ulimit")[:-1] == after(docker, "--ulimit")


@given(st.integers(1, 2**40), st.floats(0.01, 1024), st.integers(1, 65536))
def test_any_limits_are_numbers_that_an_engine_reads(size: int, cpus: float, processes: int) -> None:
    limits = SandboxLimits(memory_bytes=size, cpus=cpus, processes=processes)
    said = words(wish=SandboxRequest(Tier.DOCKER, limits=limits))

    assert after(said, "--memory") == [str(size)]
    assert float(after(said, "--cpus")[0]) == pytest.approx(cpus, rel=1e-3)
    assert all(isinstance(word, str) for word in said)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?", "systemctl start docker"),
        ("permission denied while trying to connect to the Docker daemon socket", "that you may use"),
        ("Error: No such image: nope:1", "docs/containers.md"),
        ("Error: inspecting object: nope: image not known", "docs/containers.md"),
        ("docker: Error response from daemon: no space left on device.", "no space left"),
        ("", "it gave no reason"),
    ],
)
def test_a_refusal_says_what_to_do(said: str, expected: str) -> None:
    assert expected in str(explain_failure("docker", said))


def test_a_long_refusal_is_cut_short() -> None:
    assert len(str(explain_failure("docker", "word " * 10_000))) < 1_000


def test_an_engine_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")

    with pytest.raises(ComponentError, match="docker or podman installed"):
        Engine.find()
    with pytest.raises(ComponentError, match="cannot be run"):
        Engine("docker", ("/nowhere/docker",)).check()


def test_the_first_engine_that_answers_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = stand_in(tmp_path)
    podman = tmp_path / "podman"
    podman.write_text("#!/bin/sh\nexit 0\n")
    podman.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    first = Engine.find()
    docker.answers("refuses", "Cannot connect to the Docker daemon")
    second = Engine.find()

    assert (first.name, second.name) == ("docker", "podman")


def test_an_engine_that_does_not_answer_is_not_waited_for() -> None:
    engine = Engine("docker", (sys.executable, "-c", "import threading; threading.Event().wait()"))

    with pytest.raises(ComponentError, match=r"did not answer in 0\.3 s"):
        engine.run("version", seconds=0.3)


def test_docker_says_what_it_lacks() -> None:
    told = {"ServerVersion": "20.10", "MemoryLimit": True, "PidsLimit": False, "SecurityOptions": ["name=apparmor"]}

    assert parse_facts(told) == EngineFacts("20.10", "none", ("processes", "cpus"))


@pytest.mark.parametrize("option", ["name=rootless", "name=userns"])
def test_an_engine_says_whether_it_gives_users_other_numbers(option: str) -> None:
    assert parse_facts({"SecurityOptions": ["name=seccomp,profile=default", option]}).maps_users
    assert parse_facts({"host": {"security": {"rootless": True}}}).maps_users
    assert not parse_facts({"SecurityOptions": ["name=seccomp"]}).maps_users
    assert not parse_facts({"host": {"security": {"rootless": False}}}).maps_users


def test_podman_says_what_it_lacks() -> None:
    host = {"cgroupControllers": ["memory"], "security": {"seccompEnabled": True}}

    assert parse_facts({"host": host, "version": {"Version": "4.3"}}) == EngineFacts(
        "4.3", "podman's own profile", ("processes", "cpus")
    )
    assert parse_facts({"host": {}}).seccomp == "none"


def test_the_default_profile_of_docker_is_named(tmp_path: Path) -> None:
    assert stand_in(tmp_path).engine.facts() == EngineFacts("1.2.3", "docker's profile default")


@pytest.mark.parametrize(("name", "field"), [("docker", ".Label"), ("podman", "index .Labels")])
def test_containers_are_told_with_their_servers(tmp_path: Path, name: str, field: str) -> None:
    made = stand_in(tmp_path, name)
    made.answers("ps", "one\tserver/1\ntwo\t\n")

    assert made.engine.containers("proctor") == {"one": "server/1", "two": ""}
    assert f'{{{{{field} "proctor.server"}}}}' in made.asked()[-1]


@pytest.mark.parametrize("said", ["Error: No such container: one", "removal of container one is already in progress"])
def test_a_container_that_is_gone_is_no_mistake(tmp_path: Path, said: str) -> None:
    made = stand_in(tmp_path)
    made.answers("rm", said)

    made.engine.remove(["one", "two"])

    assert made.asked() == ["rm --force --volumes one", "rm --force --volumes two"]


def test_a_container_that_cannot_be_removed_is_told(tmp_path: Path) -> None:
    made = stand_in(tmp_path)
    made.answers("rm", "device or resource busy")

    with pytest.raises(ComponentError, match="busy"):
        made.engine.remove(["one"])


def test_an_image_is_told_with_its_volumes(tmp_path: Path) -> None:
    made = stand_in(tmp_path)
    plain = made.engine.image("x")
    made.answers("image", [{"Id": "sha256:def", "Config": {"Volumes": {"/var/data": {}, "/cache": {}}}}])

    assert plain == ImageFacts("abc")
    assert made.engine.image("x") == ImageFacts("def", ("/cache", "/var/data"))
