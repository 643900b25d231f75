"""Whatever the HTTP side is sent, as its own OpenAPI says or not, it never answers with a 5xx."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.core.result import Ok

from tests.server.attacks.judged import without_leaks
from tests.server.attacks.malformed import TARGET
from tests.server.attacks.vitals import Victim, victim
from tests.server.operator_server import CONTROL_SECRET, OPERATOR_SECRET, Operated, operated

FUZZED = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
OPERATED = settings(FUZZED, max_examples=15)
METHODS = st.sampled_from(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"])
PATHS = st.sampled_from(
    ["/", "/health", "/metadata", "/schema", "/openapi.json", "/metrics", "/mcp", "/ws", "/reset", "/step", "/state"]
) | st.binary(min_size=1, max_size=30).map(lambda raw: f"/{quote(raw, safe='')}")
TYPES = st.sampled_from(
    ["application/json", "text/plain", "multipart/form-data; boundary=x", "application/x-protobuf", ""]
)


@pytest.fixture(scope="module")
def server() -> Iterator[Victim]:
    with victim(TARGET) as there:
        yield there


@pytest.fixture(scope="module")
def client(server: Victim) -> Iterator[httpx.Client]:
    url = f"http://127.0.0.1:{server.address.port}"
    with httpx.Client(base_url=url, headers=headers_for(server), trust_env=False) as made:
        yield made


def headers_for(server: Victim) -> dict[str, str]:
    return {"Authorization": f"Bearer {server.address.secret}"}


@pytest.fixture(scope="module")
def governed() -> Iterator[Operated]:
    with operated() as there:
        yield there


def operations_of(server: Victim) -> dict[str, Any]:
    """The operations that the server's own document describes, by path."""
    return operations_at(f"http://127.0.0.1:{server.address.port}", headers_for(server))


def operations_at(url: str, headers: dict[str, str]) -> dict[str, Any]:
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json", headers=headers)
    operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    return {operation.path: operation for operation in operations}


def test_every_operation_answers_as_its_openapi_says_and_never_with_a_5xx(server: Victim) -> None:
    headers = headers_for(server)
    operations = operations_of(server)

    assert operations.keys() >= {"/health", "/metadata", "/schema", "/metrics", "/mcp"}
    for operation in operations.values():

        @FUZZED
        @given(operation.as_strategy(generation_mode=GenerationMode.POSITIVE))
        def fuzz(case: Any) -> None:
            without_leaks(case.path, case.call_and_validate(headers=headers).content)

        fuzz()


def test_what_the_openapi_forbids_is_never_answered_with_a_5xx(server: Victim) -> None:
    headers = headers_for(server)

    # The other operations take neither parameters nor a body: nothing about them could be wrong.
    @FUZZED
    @given(operations_of(server)["/mcp"].as_strategy(generation_mode=GenerationMode.NEGATIVE))
    def fuzz(case: Any) -> None:
        answer = case.call(headers=headers)
        without_leaks(case.path, answer.content)
        assert answer.status_code < 500

    fuzz()


def operators_operations(governed: Operated) -> list[Any]:
    found = operations_at(governed.url, {"Authorization": f"Bearer {CONTROL_SECRET}"})
    return [operation for path, operation in found.items() if path.startswith("/operator/")]


def hurried(case: Any) -> Any:
    """Nobody waits here: that a wait is bounded is shown elsewhere."""
    if case.path == "/operator/watch":
        case.query = {**(case.query or {}), "wait": 0}
    return case


def test_every_operation_of_the_operator_answers_as_its_openapi_says_and_never_with_a_5xx(governed: Operated) -> None:
    headers = {"Authorization": f"Bearer {OPERATOR_SECRET}"}
    operations = operators_operations(governed)

    assert len(operations) == 10
    for operation in operations:

        @OPERATED
        @given(operation.as_strategy(generation_mode=GenerationMode.POSITIVE))
        def fuzz(case: Any) -> None:
            without_leaks(case.path, hurried(case).call_and_validate(headers=headers).content)

        fuzz()


def test_what_the_openapi_forbids_an_operator_is_refused_and_changes_nothing(governed: Operated) -> None:
    headers = {"Authorization": f"Bearer {OPERATOR_SECRET}"}
    operations = [each for each in operators_operations(governed) if each.method.upper() == "POST"]

    for operation in operations:

        @OPERATED
        @given(operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
        def fuzz(case: Any) -> None:
            answer = case.call(headers=headers)
            without_leaks(case.path, answer.content)
            assert 400 <= answer.status_code < 500

        fuzz()
    assert governed.operator.acts == []


@FUZZED
@given(method=METHODS, path=PATHS, query=st.text(max_size=20), body=st.binary(max_size=200), media=TYPES)
def test_no_method_path_or_body_is_answered_with_a_5xx(
    client: httpx.Client, method: str, path: str, query: str, body: bytes, media: str
) -> None:
    answer = client.request(method, path, params={"q": query}, content=body, headers={"Content-Type": media})

    without_leaks(path, answer.content)
    assert answer.status_code < 500


def test_a_body_that_is_too_large_is_refused(client: httpx.Client) -> None:
    answer = client.post("/mcp", content=b"[" * (2**20 + 1))

    assert answer.status_code == 413


@pytest.mark.parametrize("path", ["/reset", "/step", "/state"])
def test_http_carries_no_reset_step_or_state(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 404
    assert client.post(path, json={}).status_code == 404
