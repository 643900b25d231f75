"""The description and the routes are the same thing, and whatever is sent, nothing is answered with a 5xx."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.core.result import Ok

from proctor.access.request_policy import is_open_page
from proctor.server.viewer_http.endpoints import EVENTS_PATH, FORK_PATH, describe_paths, describe_schemas
from tests.server.attacks.judged import without_leaks
from tests.server.viewer_http.served_viewer import Viewed, viewed

FUZZED = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Viewed]:
    with viewed(tmp_path_factory.mktemp("ledger"), governed="standard", agent_port=0) as there:
        there.episode()
        yield there


def operations(server: Viewed) -> list[Any]:
    """What the server's own document says of its pages; events never end, and are tried elsewhere."""
    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json", headers=server.as_control)
    found = [each.ok() for each in schema.get_all_operations() if isinstance(each, Ok)]
    pages = [each for each in found if each.path.startswith(("/viewer/", "/operator/link"))]
    return [each for each in pages if each.path != EVENTS_PATH]


def test_the_description_names_exactly_the_routes(server: Viewed) -> None:
    with server.client(**server.as_operator) as client:
        document = client.get("/openapi.json", headers=server.as_control).json()
        described = {
            (method.upper(), path) for path, item in document["paths"].items() for method in item if "/viewer/" in path
        }
        answered = {
            (method, path)
            for _, path in described - {("GET", EVENTS_PATH)}
            for method in METHODS
            if client.request(method, path.replace("{path}", "style.css")).status_code != 405
        }

    assert answered | {("GET", EVENTS_PATH)} == described


def test_what_needs_no_credential_is_described_as_such() -> None:
    paths = describe_paths(can_fork=True)

    described = {
        (method.upper(), path)
        for path, item in paths.items()
        for method, each in item.items()
        if each["security"] == []
    }

    assert described == {(method, path) for path in paths for method in ("GET", "POST") if is_open_page(method, path)}


def test_every_schema_that_is_named_is_there_and_forks_are_described_where_there_are_some() -> None:
    text = str(describe_paths(can_fork=True)) + str(describe_schemas())
    named = {part.partition("'")[0] for part in text.split("#/components/schemas/")[1:]}

    assert named <= describe_schemas().keys()
    assert FORK_PATH in describe_paths(can_fork=True)
    assert FORK_PATH not in describe_paths(can_fork=False)


@pytest.mark.slow
def test_every_page_answers_as_its_openapi_says_and_never_with_a_5xx(server: Viewed) -> None:
    found = operations(server)

    assert len(found) == 15
    for operation in found:

        @FUZZED
        @given(operation.as_strategy(generation_mode=GenerationMode.POSITIVE))
        def fuzz(case: Any) -> None:
            without_leaks(case.path, case.call_and_validate(headers=server.as_operator).content)

        fuzz()


def test_what_the_openapi_forbids_is_refused(server: Viewed) -> None:
    asking = [each for each in operations(server) if "slice" in each.path or "enter" in each.path]

    assert len(asking) == 2
    for operation in asking:

        @FUZZED
        @given(operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))
        def fuzz(case: Any) -> None:
            answer = case.call(headers=server.as_operator)
            without_leaks(case.path, answer.content)
            assert 400 <= answer.status_code < 500

        fuzz()
