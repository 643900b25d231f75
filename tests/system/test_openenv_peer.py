"""OpenEnv 0.10's own client, server and validator, from a virtual environment of their own, against ours."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bench.control_servers import Server, openenv, ours, started
from bench.peers import openenv_python
from proctor.client import GenericClient, JsonAction
from proctor.errors import EpisodeLost, RemoteError, StateError, ValidationError
from tests.server.attacks.judged import FROM_INSIDE

pytestmark = pytest.mark.system

HERE = Path(__file__).parent
PATIENT = ours("tests.server.attacks.patient:Patient")
INSECURE = ours("tests.server.attacks.patient:Patient", "--insecure")
LIMIT = 100


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server of ours, as the command line starts it."""
    with ExitStack() as stack:
        yield started(stack, PATIENT)


@pytest.fixture(scope="module")
def their_server() -> Iterator[Server]:
    """OpenEnv's own server with the echo of the benchmark."""
    with ExitStack() as stack:
        yield started(stack, openenv())


@pytest.fixture(scope="module")
def found(server: Server) -> dict[str, Any]:
    """What OpenEnv's clients found on our server."""
    script = HERE / "peers" / "openenv_client.py"
    answer = subprocess.run(
        [openenv_python(), script, server.url], capture_output=True, text=True, check=False, timeout=LIMIT
    )
    assert answer.returncode == 0, answer.stderr
    parts: dict[str, Any] = json.loads(answer.stdout)
    return parts


def seen(echoed: str, count: int, reward: float | None = 1.0) -> dict[str, Any]:
    return {
        "observation": {"echoed": echoed, "count": count},
        "reward": reward,
        "done": False,
        "metadata": None,
    }


def test_their_client_plays_an_episode_on_our_server(found: dict[str, Any]) -> None:
    episode = found["an_episode"]

    assert episode["reset"] == seen("", 0, None)
    assert episode["steps"] == [seen(f"word {number}", number + 1) for number in range(3)]
    assert episode["state"] == {"episode_id": "ep1", "step_count": 3}


def test_their_synchronous_client_does_too(found: dict[str, Any]) -> None:
    assert found["the_sync_way"]["reset"] == seen("", 0, None)
    assert found["the_sync_way"]["step"] == seen("sync", 1)
    assert found["the_sync_way"]["state"]["step_count"] == 1


@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("before the reset", "STATE_ERROR"),
        ("bad action", "VALIDATION_ERROR"),
        ("bad reset", "VALIDATION_ERROR"),
        ("broken", "EXECUTION_ERROR"),
        ("after the break", "EPISODE_LOST"),
    ],
)
def test_their_client_hears_a_coded_error(found: dict[str, Any], case: str, code: str) -> None:
    said = found["errors"][case]

    assert said.startswith("RuntimeError: Server error: ")
    assert said.endswith(f"(code: {code})")
    assert FROM_INSIDE.search(said.removeprefix("RuntimeError").encode()) is None


def test_a_refusal_leaves_their_episode_where_it_was(found: dict[str, Any]) -> None:
    assert found["errors"]["going on"] == seen("two", 2)
    assert found["errors"]["begun again"] == seen("", 0, None)


@pytest.mark.parametrize(
    ("case", "code"),
    [
        ("unknown type", "UNKNOWN_TYPE"),
        ("no JSON", "INVALID_JSON"),
        ("an array", "VALIDATION_ERROR"),
        ("additional key", "VALIDATION_ERROR"),
        ("binary", "INVALID_JSON"),
    ],
)
def test_what_their_client_never_sends_is_refused_and_the_socket_lives(
    found: dict[str, Any], case: str, code: str
) -> None:
    reply = found["raw_messages"][case]

    assert (reply["type"], reply["data"]["code"]) == ("error", code)
    assert found["raw_messages"]["reset"]["type"] == "observation"


def test_close_ends_their_socket_with_1000(found: dict[str, Any]) -> None:
    assert found["raw_messages"]["closed with"] == 1000


def test_their_pings_are_answered_while_a_step_runs(found: dict[str, Any]) -> None:
    assert found["a_slow_step"] == seen("slower", 1)


def test_their_client_brings_the_secret_in_its_address_or_in_a_header(found: dict[str, Any]) -> None:
    assert found["with_a_header"] == seen("", 0, None)
    assert "401" in found["wrong_secret"]


SIX = (
    "openapi_version_available",
    "health_endpoint",
    "metadata_endpoint",
    "schema_endpoint",
    "mcp_endpoint",
    "mode_endpoint_consistency",
)


def validated(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    """What the real `openenv validate --url` says."""
    command: list[str | Path] = [openenv_python().with_name("openenv"), "validate", "--url", url, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT)


def test_their_validator_passes_six_of_six_with_the_secret_in_the_address(server: Server) -> None:
    answer = validated(server.url)

    assert answer.returncode == 0
    assert [line.split() for line in answer.stdout.splitlines() if line.startswith("  PASS")] == [
        ["PASS", name] for name in SIX
    ]
    assert "Verdict: PASS" in answer.stdout
    assert "FAIL" not in answer.stdout


def test_their_validator_passes_six_of_six_on_an_insecure_server() -> None:
    with ExitStack() as stack:
        there = started(stack, INSECURE)
        report = json.loads(validated(f"http://127.0.0.1:{there.port}", "--json").stdout)

    assert report["passed"] is True
    assert {criterion["id"]: criterion["passed"] for criterion in report["criteria"]} == dict.fromkeys(SIX, True)


def test_their_validator_without_the_secret_learns_nothing_but_health(server: Server) -> None:
    report = json.loads(validated(f"http://127.0.0.1:{server.port}", "--json").stdout)

    assert report["passed"] is False
    assert [criterion["id"] for criterion in report["criteria"] if criterion["passed"]] == ["health_endpoint"]


# ------------------------------------------------------------------------------------- our client on their server


async def failure(call: Awaitable[object]) -> BaseException:
    """The exception that a call ends with."""
    try:
        await call
    except Exception as problem:  # noqa: BLE001  # which one it is, is what the test asks
        return problem
    raise AssertionError("the call did not fail")


def test_our_client_plays_an_episode_on_their_server(their_server: Server) -> None:
    async def episode() -> tuple[Any, list[Any], Any]:
        async with GenericClient(their_server.url) as client:
            begun = await client.reset(seed=1, episode_id="theirs")
            steps = [await client.step({"message": f"word {number}"}) for number in range(3)]
            return begun, steps, await client.state()

    begun, steps, state = asyncio.run(episode())

    assert (begun["echoed"], begun["count"], begun.reward, begun.done) == ("", 0, None, False)
    assert [(step["echoed"], step["count"], step.reward) for step in steps] == [
        (f"word {number}", number + 1, 1.0) for number in range(3)
    ]
    assert (state.episode_id, state.step_count) == ("theirs", 3)


def test_our_client_without_await_does_too(their_server: Server) -> None:
    with GenericClient.blocking(their_server.url) as client:
        client.reset()
        stepped = client.step(JsonAction(fields={"message": "sync"}))

    assert (stepped["echoed"], stepped["count"]) == ("sync", 1)


def test_what_their_server_refuses_is_a_coded_error_and_the_episode_goes_on(their_server: Server) -> None:
    async def episode() -> tuple[BaseException, BaseException, Any]:
        async with GenericClient(their_server.url) as client:
            await client.reset()
            await client.step({"message": "one"})
            bad = await failure(client.step({"massage": "x"}))
            going_on = await client.step({"message": "two"})
            broken = await failure(client.step({"message": "break the chain"}))
            return bad, broken, going_on

    bad, broken, going_on = asyncio.run(episode())

    assert isinstance(bad, ValidationError)
    assert "message: Field required" in str(bad)
    assert going_on["count"] == 2
    assert isinstance(broken, EpisodeLost | RemoteError)
    assert broken.code == "EXECUTION_ERROR"


def test_our_client_refuses_a_step_before_the_reset_which_their_server_would_run(their_server: Server) -> None:
    async def episode() -> BaseException:
        async with GenericClient(their_server.url) as client:
            return await failure(client.step({"message": "x"}))

    assert isinstance(asyncio.run(episode()), StateError)


def test_a_server_of_theirs_that_restarts_is_a_lost_episode_and_never_a_fresh_one() -> None:
    async def episode(first: ExitStack, second: ExitStack) -> tuple[list[BaseException], Any]:
        there = started(first, openenv())
        async with GenericClient(there.url) as client:
            await client.reset()
            await client.step({"message": "one"})
            first.close()
            lost = [await failure(client.step({"message": "two"}))]
            started(second, openenv(), there.port)
            lost += [await failure(client.step({"message": "three"})), await failure(client.state())]
            begun = await client.reset()
            return lost, begun

    with ExitStack() as first, ExitStack() as second:
        lost, begun = asyncio.run(episode(first, second))

    assert [type(problem) for problem in lost] == [EpisodeLost] * 3
    assert begun["count"] == 0
