"""HTTP says how the server is and what it serves; it carries no reset, no step and no state."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette

from proctor import __version__
from proctor.envs.targets import Target
from proctor.server.control.http_routes import make_http_routes, make_openapi_document
from proctor.server.control.session_registry import SessionRegistry
from proctor.server.grants import GrantRegistry, GrantService
from proctor.server.net.metrics import Metrics
from proctor.server.rewards.pipeline import plan_of
from proctor.server.runtime.env_adapter import describe_target
from proctor.server.sessions.recorders import NullRecorder
from proctor.server.sessions.session_spec import SessionSpec
from proctor.server.settings import parse_settings
from tests.server.live_server import PATIENCE, Served, Talk, serving

MOST_BODY = 1000
METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving(limits={"max_body_bytes": MOST_BODY}) as there:
        yield there


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.url, timeout=PATIENCE) as there:
        yield there


def test_a_server_that_takes_sessions_is_healthy(client: httpx.Client) -> None:
    answer = client.get("/health")

    assert (answer.status_code, answer.json()) == (200, {"status": "healthy"})
    assert answer.headers["content-type"] == "application/json"


def test_the_metadata_name_the_environment(client: httpx.Client) -> None:
    answer = client.get("/metadata").json()

    assert answer["name"] == "CartPole-v1"
    assert answer["description"]
    assert answer["server"] == f"proctor/{__version__}"
    assert answer["num_envs"] is True


def test_the_schemas_are_schemas(client: httpx.Client) -> None:
    answer = client.get("/schema").json()

    for name in ("action", "observation", "state"):
        jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **answer[name]})
    action = jsonschema_rs.Draft202012Validator(answer["action"])
    assert action.is_valid({"action": 1})
    assert not action.is_valid({"action": 2})
    assert answer["spaces"]["action"]


def test_http_and_the_socket_say_the_same(client: httpx.Client, served: Served) -> None:
    with Talk(served) as talk:
        assert talk.ask("metadata")["data"] == client.get("/metadata").json()
        assert talk.ask("schema")["data"] == client.get("/schema").json()


def test_the_counts_are_those_of_now(client: httpx.Client, served: Served) -> None:
    def sessions() -> str:
        lines = client.get("/metrics").text.splitlines()
        return next(line for line in lines if line.startswith("proctor_sessions "))

    before = sessions()
    with Talk(served) as talk:
        talk.ask("reset")
        during = sessions()

    assert (before, during) == ("proctor_sessions 0.0", "proctor_sessions 1.0")
    assert client.get("/metrics").headers["content-type"].startswith("text/plain")


def test_the_description_names_exactly_the_routes(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()
    described = {(method.upper(), path) for path, item in document["paths"].items() for method in item}

    answered = {
        (method, path)
        for path in document["paths"]
        for method in METHODS
        if client.request(method, path).status_code not in (404, 405)
    }

    assert answered == described
    assert document["info"]["version"] == __version__


def test_every_status_and_type_is_described(client: httpx.Client) -> None:
    document = client.get("/openapi.json").json()

    for path, item in document["paths"].items():
        for method, described in item.items():
            answer = client.request(method, path)
            response = described["responses"][str(answer.status_code)]
            assert answer.headers["content-type"].partition(";")[0] in response["content"]


def test_only_the_health_needs_no_credential() -> None:
    document = make_openapi_document(describe_target(Target("CartPole-v1")))

    open_paths = [
        path for path, item in document["paths"].items() for each in item.values() if each.get("security") == []
    ]

    assert open_paths == ["/health"]
    assert document["security"] == [{"control": []}]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "path", ["/reset", "/step", "/state", "/close", "/ws/", "/", "/HEALTH", "/health/", "//health"]
)
def test_http_carries_no_reset_no_step_and_no_state(client: httpx.Client, method: str, path: str) -> None:
    answer = client.request(method, path, json={})

    assert answer.status_code == 404
    assert answer.json() == {"error": "there is no such page"}


@pytest.mark.parametrize("path", ["/health", "/metadata", "/schema", "/openapi.json", "/metrics"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_pages_are_only_read(client: httpx.Client, method: str, path: str) -> None:
    answer = client.request(method, path)

    assert answer.status_code == 405
    assert answer.headers["allow"]
    assert answer.json() == {"error": "not with this method"}


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"nonsense", b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"reset"}}']
)
def test_an_agent_is_told_to_go_elsewhere(client: httpx.Client, body: bytes) -> None:
    answer = client.post("/mcp", content=body)

    assert answer.status_code == 200
    assert answer.json()["jsonrpc"] == "2.0"
    assert answer.json()["error"]["code"] == -32601
    assert "result" not in answer.json()


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_may_be_as_large_as_was_said_and_no_larger(client: httpx.Client, chunked: bool) -> None:
    def post(size: int) -> httpx.Response:
        body: Any = (b"x" for _ in range(size)) if chunked else b"x" * size
        return client.post("/mcp", content=body)

    fits, too_large = post(MOST_BODY), post(MOST_BODY + 1)

    assert fits.status_code == 200
    assert (too_large.status_code, too_large.json()) == (413, {"error": "the body is too large"})


@settings(max_examples=50)
@given(st.binary(max_size=2 * MOST_BODY))
def test_no_body_is_answered_with_anything_else(body: bytes) -> None:
    app = routes(stopping=False)

    status, answer = asyncio.run(asked(app, "POST", "/mcp", [body]))

    assert status == (200 if len(body) <= MOST_BODY else 413)
    assert json.loads(answer)


TARGET = Target("tests.server.environments:Counting")
CARD = describe_target(TARGET)


def routes(*, stopping: bool) -> Starlette:
    """Return the pages of a server that was never started."""
    metrics = Metrics()
    sessions = SessionRegistry(
        parse_settings({"target": TARGET.text, "sandbox": "none"}),
        SessionSpec(TARGET, CARD, "thread"),
        plan_of([]),
        NullRecorder(),
        metrics,
        GrantService(GrantRegistry(None, calls_per_second=None, clock=lambda: 0.0, wall=lambda: 0.0)),
        boot="boot",
        clock=lambda: 0.0,
        wall=lambda: 0.0,
    )
    sessions.stopping = stopping
    return make_http_routes(CARD, sessions, metrics, MOST_BODY)


async def asked(
    app: Starlette, method: str, path: str, pieces: list[bytes] | None = None, *, leaves: bool = False
) -> tuple[int, bytes]:
    """Return the status and the body of an answer; a peer that leaves sends its pieces and is gone."""
    waiting = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces or []]
    waiting.append({"type": "http.disconnect"} if leaves else {"type": "http.request", "body": b"", "more_body": False})
    sent: list[Any] = []

    async def receive() -> Any:
        return waiting.pop(0) if waiting else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "headers": [],
        "query_string": b"",
    }
    await app(scope, receive, send)
    starts = [message["status"] for message in sent if message["type"] == "http.response.start"]
    return (starts or [0])[0], b"".join(message.get("body", b"") for message in sent)


def test_a_server_that_is_stopping_says_so() -> None:
    status, answer = asyncio.run(asked(routes(stopping=True), "GET", "/health"))

    assert (status, json.loads(answer)) == (503, {"status": "stopping"})


def test_an_environment_without_spaces_is_described_without() -> None:
    _, answer = asyncio.run(asked(routes(stopping=False), "GET", "/schema"))

    assert json.loads(answer)["spaces"] is None


def test_a_peer_that_leaves_in_the_middle_of_its_body_is_no_error() -> None:
    status, _ = asyncio.run(asked(routes(stopping=False), "POST", "/mcp", [b"{"], leaves=True))

    assert status < 500
