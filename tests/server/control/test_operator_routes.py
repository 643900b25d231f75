"""The operator's side over HTTP: who is let in, what is read, what is done, and what changes nothing."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from proctor.client import OperatorClient
from proctor.errors import RemoteError, ValidationError
from proctor.models.control import Code, Reset
from proctor.models.operator import Answer, Done
from proctor.server.control import http_routes
from proctor.server.control.http_routes import MOST_WAITING, OPERATOR_ACTIONS, OPERATOR_QUERIES, WATCH_PATH, WatchQuery
from proctor.server.governed.governance import Governance
from proctor.server.governed.policy import load_policy
from proctor.server.net import connections
from proctor.server.net.http_requests import parse_body, parse_query
from proctor.server.net.metrics import Metrics
from proctor.server.runtime.results import RequestRefused, make_failure, make_refusal
from tests.server.bare_sessions import Room
from tests.server.live_server import PATIENCE, until
from tests.server.operator_server import (
    CONTROL_SECRET,
    GRANT_SECRET,
    LIMITS,
    OPERATOR_SECRET,
    Operated,
    StandIn,
    made_plane,
    operated,
    question,
    standing,
)

EPISODE = {"session": "a-session", "epoch": 1}
GOOD: dict[str, dict[str, Any]] = {
    "/operator/answer": {**EPISODE, "id": "q1", "choice": "go", "text": "but slowly"},
    "/operator/approve": {**EPISODE, "id": "q1", "uses": 2, "life_seconds": 5.5, "text": "two"},
    "/operator/deny": {**EPISODE, "id": "q1", "text": "no"},
    "/operator/alert": {**EPISODE, "severity": "CRITICAL", "summary": "stop"},
    "/operator/clear": {**EPISODE, "summary": "looked at"},
    "/operator/revoke": {**EPISODE, "token_id": "t1"},
    "/operator/budget": {**EPISODE, "tool_call_budget": 3, "note": "three more"},
}
DONE: dict[str, tuple[Any, ...]] = {
    "/operator/answer": ("answer", "a-session.1", "q1", "go", "but slowly"),
    "/operator/approve": ("approve", "a-session.1", "q1", 2, 5.5, "two"),
    "/operator/deny": ("deny", "a-session.1", "q1", "no"),
    "/operator/alert": ("alert", "a-session.1", "CRITICAL", "stop"),
    "/operator/clear": ("clear", "a-session.1", "looked at"),
    "/operator/revoke": ("revoke", "a-session.1", "t1", None),
    "/operator/budget": ("budget", "a-session.1", 0, 3, 0, "three more"),
}
ROUTES = [
    *(("GET", each.path) for each in OPERATOR_QUERIES),
    ("GET", WATCH_PATH),
    *(("POST", each.path) for each in OPERATOR_ACTIONS),
]
OTHERS = ["/schema", "/openapi.json", "/metrics", "/mcp", "/ws", "/nothing", "/operator", "//operator/pending"]
QUICK = settings(max_examples=60, deadline=None)


@pytest.fixture(scope="module")
def running() -> Iterator[Operated]:
    with operated() as there:
        yield there


@pytest.fixture
def there(running: Operated) -> Operated:
    """A server that knows one session and one question, and has done nothing."""
    operator = running.operator
    operator.waiting, operator.standings, operator.acts = {"q1": question()}, [standing()], []
    operator.judge = StandIn.judge
    return running


@contextmanager
def client(there: Operated, secret: str | None = OPERATOR_SECRET) -> Iterator[httpx.Client]:
    headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
    with httpx.Client(base_url=there.url, headers=headers, timeout=PATIENCE, trust_env=False, verify=False) as made:
        yield made


def asked(there: Operated, method: str, path: str, body: Any = None, secret: str | None = OPERATOR_SECRET) -> Any:
    with client(there, secret) as made:
        return made.request(method, path, json=body)


def count(there: Operated, name: str) -> float:
    page = there.on_loop(there.metrics.page).decode()
    return sum(float(each) for each in re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", page, re.MULTILINE))


# ----------------------------------------------------------------------------------------------------- who is let in
@pytest.mark.parametrize(
    "secret",
    [CONTROL_SECRET, GRANT_SECRET, None, OPERATOR_SECRET[:-1], OPERATOR_SECRET.upper()],
    ids=["control", "grant", "none", "nearly", "other case"],
)
@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_only_the_operators_credential_opens_the_operators_routes(
    there: Operated, method: str, path: str, secret: str | None
) -> None:
    refusals = count(there, "proctor_refused_total")

    answer = asked(there, method, path, GOOD.get(path), secret)

    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert there.operator.acts == []
    assert list(there.operator.waiting) == ["q1"]
    assert count(there, "proctor_refused_total") == refusals + 1


@pytest.mark.parametrize("path", OTHERS)
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "HEAD"])
def test_the_operators_credential_opens_nothing_else(there: Operated, method: str, path: str) -> None:
    assert asked(there, method, path).status_code == 401


@pytest.mark.parametrize("path", ["/health", "/metadata"])
def test_an_operator_may_read_how_the_server_is_and_what_it_serves(there: Operated, path: str) -> None:
    refusals = count(there, "proctor_refused_total")

    assert asked(there, "GET", path).status_code == 200
    assert asked(there, "GET", path, secret=CONTROL_SECRET).status_code == 200
    assert count(there, "proctor_refused_total") == refusals
    assert asked(there, "POST", "/metadata").status_code == 401


@pytest.mark.parametrize("path", ["/ws", "/operator/watch", "/operator/ws", "/metadata", "/health"])
def test_the_operators_credential_opens_no_socket(there: Operated, path: str) -> None:
    refusals = count(there, "proctor_refused_total")
    headers = {"Authorization": f"Bearer {OPERATOR_SECRET}"}

    with (
        pytest.raises(InvalidStatus) as refusal,
        connect(f"ws://127.0.0.1:{there.port}{path}", additional_headers=headers),
    ):
        pass

    assert refusal.value.response.status_code == 401
    assert there.on_loop(lambda: len(there.plane.connections)) == 0
    assert count(there, "proctor_refused_total") == refusals + 1


def test_the_control_credential_still_opens_the_socket(there: Operated) -> None:
    headers = {"Authorization": f"Bearer {CONTROL_SECRET}"}

    with connect(f"ws://127.0.0.1:{there.port}/ws", additional_headers=headers) as socket:
        socket.send('{"type": "metadata"}')
        answer = json.loads(socket.recv(PATIENCE))

    assert answer["type"] == "metadata"


@pytest.mark.parametrize(("header", "value"), [("Host", "evil.example"), ("Origin", "https://evil.example")])
def test_host_and_origin_are_judged_before_the_operators_credential(there: Operated, header: str, value: str) -> None:
    with client(there) as made:
        answer = made.post("/operator/alert", json=GOOD["/operator/alert"], headers={header: value})

    assert answer.status_code == 403
    assert there.operator.acts == []


def test_a_refusal_at_the_door_is_logged_without_the_secret(
    there: Operated, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests may have used up the lines of these seconds.
    monkeypatch.setattr(connections, "MOST_LINES", 10**6)
    with caplog.at_level(logging.INFO, "proctor.control"):
        asked(there, "POST", "/operator/clear", GOOD["/operator/clear"], CONTROL_SECRET)

    refusals = [record for record in caplog.records if record.name == "proctor.control"]
    assert [getattr(record, "status", None) for record in refusals] == [401]
    assert CONTROL_SECRET not in caplog.text


def test_without_governed_episodes_there_is_no_operators_side() -> None:
    with operated(governed=False) as there, client(there, CONTROL_SECRET) as control:
        found = {control.request(method, path).status_code for method, path in ROUTES}
        described = control.get("/openapi.json").json()

        assert found == {404}
        assert asked(there, "GET", "/operator/pending").status_code == 401
        assert asked(there, "GET", "/metadata").status_code == 401
        assert not [path for path in described["paths"] if path.startswith("/operator")]
        assert "operator" not in described["components"]["securitySchemes"]


def test_one_secret_for_both_doors_is_refused_before_anything_is_served() -> None:
    routes = http_routes.OperatorRoutes(StandIn(), Metrics(), LIMITS)  # type: ignore[arg-type]  # a stand-in

    with pytest.raises(ValidationError, match="operator's credential") as problem:
        made_plane(1, Metrics(), routes, control=CONTROL_SECRET, secret=CONTROL_SECRET)

    assert CONTROL_SECRET not in str(problem.value)


def test_an_operators_door_without_a_lock_needs_a_server_without_any() -> None:
    routes = http_routes.OperatorRoutes(StandIn(), Metrics(), LIMITS)  # type: ignore[arg-type]  # a stand-in

    with pytest.raises(ValidationError, match="the operator has no credential"):
        made_plane(1, Metrics(), routes, control=CONTROL_SECRET, secret=None)

    for secret in (None, OPERATOR_SECRET):
        assert made_plane(1, Metrics(), routes, control=None, secret=secret).connections == set()


# ------------------------------------------------------------------------------------------------------ what is read
def test_what_waits_is_told_with_the_question_and_the_options(there: Operated) -> None:
    (told,) = asked(there, "GET", "/operator/pending").json()["waiting"]

    assert (told["id"], told["question"]) == ("q1", "May I go on?")
    assert [each["option_id"] for each in told["options"]] == ["go", "stop"]
    assert told["packet"] == {"header": {}}


def test_sessions_are_told_as_they_stand(there: Operated) -> None:
    (told,) = asked(there, "GET", "/operator/sessions").json()["sessions"]

    assert (told["session"], told["state"], told["obligations"]) == ("a-session", "S8_ESCALATED", ["an answer"])


# ------------------------------------------------------------------------------------------------------- what is done
@pytest.mark.parametrize("path", GOOD)
def test_an_act_is_done_once_and_as_it_was_asked_for(there: Operated, path: str) -> None:
    answer = asked(there, "POST", path, GOOD[path])

    assert answer.status_code == 200
    assert answer.json()["accepted"] is True
    assert there.operator.acts == [DONE[path]]


def test_what_the_judge_refuses_is_an_answer(there: Operated) -> None:
    there.operator.judge = lambda: Done("a-session", 1, False, "S2_MODEL", rules=["FSM"], reason="not in safe mode")

    answer = asked(there, "POST", "/operator/clear", GOOD["/operator/clear"])

    assert answer.status_code == 200
    assert (answer.json()["accepted"], answer.json()["rules"]) == (False, ["FSM"])


@pytest.mark.parametrize("path", GOOD)
def test_what_is_not_there_is_a_conflict_with_a_code(there: Operated, path: str) -> None:
    there.operator.waiting, there.operator.standings = {}, []
    errors = count(there, "proctor_errors_total")

    answer = asked(there, "POST", path, GOOD[path])

    code = "STALE_QUESTION" if "id" in GOOD[path] else "VALIDATION_ERROR"
    assert (answer.status_code, answer.json()["code"]) == (409, code)
    assert there.operator.acts == []
    assert count(there, "proctor_errors_total") == errors + 1


@pytest.mark.parametrize("path", GOOD)
def test_an_act_that_names_another_episode_of_the_session_is_a_conflict(there: Operated, path: str) -> None:
    answer = asked(there, "POST", path, {**GOOD[path], "epoch": 2})

    assert (answer.status_code, answer.json()["code"]) == (
        409,
        "STALE_QUESTION" if "id" in GOOD[path] else "STALE_EPOCH",
    )
    assert there.operator.acts == []


@pytest.mark.parametrize("missing", ["session", "epoch", "id"])
@pytest.mark.parametrize("path", GOOD)
def test_an_act_that_does_not_say_what_it_is_about_is_refused(there: Operated, path: str, missing: str) -> None:
    body = {key: value for key, value in GOOD[path].items() if key != missing}

    answer = asked(there, "POST", path, body)

    if missing in GOOD[path]:
        assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_ERROR")
        assert there.operator.acts == []
    else:
        assert answer.status_code == 200


@pytest.mark.parametrize(
    ("problem", "status", "code"),
    [
        (make_refusal(Code.STATE_ERROR, "not now"), 409, "STATE_ERROR"),
        (make_failure(Code.RECORDING_FAILED, "it is not on record"), 500, "RECORDING_FAILED"),
        (RuntimeError("something from inside"), 500, "SESSION_ERROR"),
    ],
)
def test_what_goes_wrong_is_told_by_its_code_and_nothing_from_inside(
    there: Operated, problem: Exception, status: int, code: str
) -> None:
    def judge() -> Done:
        raise problem

    there.operator.judge = judge
    answer = asked(there, "POST", "/operator/answer", GOOD["/operator/answer"])

    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert "inside" not in answer.text
    assert list(there.operator.waiting) == ["q1"]


# ------------------------------------------------------------------------------------------------------ what is refused
BAD_BODIES = {
    "nothing": (b"", "INVALID_JSON"),
    "no JSON": (b"nonsense", "INVALID_JSON"),
    "no UTF-8": (b"\xff{}", "INVALID_JSON"),
    "a list": (b"[]", "VALIDATION_ERROR"),
    "null": (b"null", "VALIDATION_ERROR"),
    "a field too few": (b"{}", "VALIDATION_ERROR"),
    "a field too many": (
        b'{"id": "q1", "session": "a-session", "epoch": 1, "summary": "x", "reset": true}',
        "VALIDATION_ERROR",
    ),
    "a wrong type": (b'{"id": 1, "session": 1, "epoch": "1", "summary": 1}', "VALIDATION_ERROR"),
    "an empty name": (b'{"id": "", "session": "", "epoch": 1, "summary": "x"}', "VALIDATION_ERROR"),
    "a long name": (b'{"session": "%s", "epoch": 1, "id": "q1"}' % (b"x" * 301), "VALIDATION_ERROR"),
    "a negative epoch": (b'{"session": "a-session", "epoch": -1, "id": "q1"}', "VALIDATION_ERROR"),
    "a depth": (b"[" * 17 + b"]" * 17, "TOO_DEEP"),
    "half of one": (b'{"id', "INVALID_JSON"),
}


@pytest.mark.parametrize("name", BAD_BODIES)
@pytest.mark.parametrize("path", GOOD)
def test_a_body_that_is_none_gets_a_code_and_changes_nothing(there: Operated, path: str, name: str) -> None:
    body, code = BAD_BODIES[name]

    with client(there) as made:
        answer = made.post(path, content=body)

    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert there.operator.acts == []


@pytest.mark.parametrize("path", GOOD)
def test_a_key_that_is_there_twice_is_refused(there: Operated, path: str) -> None:
    with client(there) as made:
        answer = made.post(path, content=json.dumps(GOOD[path])[:-1] + ', "epoch": 1}')

    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_JSON")
    assert there.operator.acts == []


WAITS = ("-1", "61", "nan", "inf")
"""None that is taken."""


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_refused_before_it_is_read(there: Operated, chunked: bool) -> None:
    size = LIMITS.max_body_bytes + 1
    body: Any = (b" " * 1000 for _ in range(size // 1000 + 1)) if chunked else b" " * size

    with client(there) as made:
        answer = made.post("/operator/alert", content=body)

    assert (answer.status_code, answer.json()["code"]) == (413, "TOO_LARGE")
    assert there.operator.acts == []


@pytest.mark.parametrize(
    "query", [*(f"after={n}" for n in ("-1", "x", "1.5", "", "1&after=2")), *(f"wait={n}" for n in WAITS), "most=3"]
)
def test_a_query_that_is_none_gets_a_code(there: Operated, query: str) -> None:
    answer = asked(there, "GET", f"{WATCH_PATH}?{query}")

    assert (answer.status_code, answer.json()["code"]) == (400, "VALIDATION_ERROR")


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_route_takes_one_method(there: Operated, method: str, path: str) -> None:
    other = "POST" if method == "GET" else "GET"

    assert asked(there, other, path).status_code == 405
    assert asked(there, "DELETE", path).status_code == 405
    assert there.operator.acts == []


def result(read: Callable[[], Any]) -> Any:
    """Return what is read, or the code of the refusal."""
    try:
        return read()
    except RequestRefused as refusal:
        return refusal.problem.code


@QUICK
@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.booleans() | st.text(max_size=5), st.lists).map(repr).map(str.encode)
)
def test_whatever_is_sent_is_read_or_refused(raw: bytes) -> None:
    found = result(lambda: parse_body(Answer, raw, 8))

    assert isinstance(found, Answer) or found in {"INVALID_JSON", "VALIDATION_ERROR", "TOO_DEEP"}


@QUICK
@given(
    st.lists(st.tuples(st.sampled_from(["after", "wait", "x"]), st.text(max_size=8) | st.floats().map(str)), max_size=3)
)
def test_whatever_a_query_says_is_within_bounds_or_refused(items: list[tuple[str, str]]) -> None:
    found = result(lambda: parse_query(WatchQuery, items))

    assert found == "VALIDATION_ERROR" or (0 <= found.after <= 2**53 and 0 <= found.wait <= 60)


# ------------------------------------------------------------------------------------------------------- what is watched
@pytest.fixture
def fresh() -> Iterator[Operated]:
    with operated() as there:
        yield there


def watched(there: Operated, query: str) -> Future[Any]:
    """Ask on another thread."""
    pool = ThreadPoolExecutor(1)
    answer = pool.submit(asked, there, "GET", f"{WATCH_PATH}?{query}")
    pool.shutdown(wait=False)
    return answer


def waiting(there: Operated, number: int = 1) -> None:
    until(lambda: there.on_loop(lambda: there.operator.watchers) == number)


def test_rows_come_in_order_and_after_the_one_that_is_named(fresh: Operated) -> None:
    for number in range(5):
        fresh.say(reason=f"row {number}")

    page = asked(fresh, "GET", f"{WATCH_PATH}?after=2&wait=0").json()

    assert [row["row"] for row in page["rows"]] == [3, 4, 5]
    assert (page["last"], page["missed"]) == (5, 0)


def test_a_wait_of_nothing_is_answered_at_once(fresh: Operated) -> None:
    assert asked(fresh, "GET", f"{WATCH_PATH}?wait=0").json() == {"rows": [], "last": 0, "missed": 0}


def test_whoever_waits_is_told_as_soon_as_there_is_something(fresh: Operated) -> None:
    answer = watched(fresh, "after=0&wait=60")
    waiting(fresh)
    fresh.say(kind="DecisionPacket")

    (row,) = answer.result(PATIENCE).json()["rows"]
    assert row["kind"] == "DecisionPacket"
    waiting(fresh, 0)


def test_who_has_seen_more_rows_than_there_are_is_told_at_once(fresh: Operated) -> None:
    fresh.say()

    assert asked(fresh, "GET", f"{WATCH_PATH}?after=2&wait=60").json() == {"rows": [], "last": 1, "missed": 0}


def test_a_wait_ends_by_itself(fresh: Operated) -> None:
    answer = asked(fresh, "GET", f"{WATCH_PATH}?wait=0.05")

    assert (answer.status_code, answer.json()["rows"]) == (200, [])
    waiting(fresh, 0)


def test_a_wait_ends_when_the_peer_leaves(fresh: Operated) -> None:
    with client(fresh) as made:
        impatient = httpx.Timeout(PATIENCE, read=0.2)
        with pytest.raises(httpx.ReadTimeout):
            made.get(f"{WATCH_PATH}?wait=60", timeout=impatient)

    waiting(fresh, 0)


def test_every_wait_ends_when_the_server_stops_and_says_why() -> None:
    with operated() as there:
        answers = [watched(there, "wait=60") for _ in range(3)]
        waiting(there, 3)

    found = [answer.result(PATIENCE) for answer in answers]
    assert {answer.status_code for answer in found} == {503}
    assert {answer.json()["code"] for answer in found} == {"SHUTTING_DOWN"}


def test_nobody_waits_on_a_server_that_stops_but_what_is_there_is_told(fresh: Operated) -> None:
    fresh.say()
    fresh.on_loop(fresh.plane.close_connections)

    with_rows = asked(fresh, "GET", f"{WATCH_PATH}?after=0&wait=60")
    without = asked(fresh, "GET", f"{WATCH_PATH}?after=1&wait=60")

    assert (with_rows.status_code, len(with_rows.json()["rows"])) == (200, 1)
    assert (without.status_code, without.json()["code"]) == (503, "SHUTTING_DOWN")


def test_so_many_can_wait_and_no_more(fresh: Operated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_routes, "MOST_WAITING", 2)
    answers = [watched(fresh, "wait=60") for _ in range(2)]
    waiting(fresh, 2)

    one_more = asked(fresh, "GET", f"{WATCH_PATH}?wait=60")
    at_once = asked(fresh, "GET", f"{WATCH_PATH}?wait=0")
    fresh.say()

    assert (one_more.status_code, one_more.json()["code"]) == (429, "BUSY")
    assert at_once.status_code == 200
    assert [answer.result(PATIENCE).status_code for answer in answers] == [200, 200]
    assert MOST_WAITING > 2


# ---------------------------------------------------------------------------------------------------- what is described
def test_the_description_names_exactly_the_operators_routes(there: Operated) -> None:
    document = asked(there, "GET", "/openapi.json", secret=CONTROL_SECRET).json()
    described = {
        (method.upper(), path)
        for path, item in document["paths"].items()
        if path.startswith("/operator")
        for method in item
    }

    answered = {
        (method, path)
        for method, path in ROUTES
        if asked(there, method, f"{path}?wait=0").status_code not in (404, 405)
    }

    assert described == answered == set(ROUTES)


def test_the_description_says_which_credential_opens_what(there: Operated) -> None:
    document = asked(there, "GET", "/openapi.json", secret=CONTROL_SECRET).json()
    security = {
        path: each.get("security", document["security"])
        for path, item in document["paths"].items()
        for each in item.values()
    }

    assert all(security[path] == [{"operator": []}] for _, path in ROUTES)
    assert security["/metadata"] == [{"control": []}, {"operator": []}]
    assert security["/health"] == []
    assert security["/schema"] == [{"control": []}]


def test_every_reference_of_the_description_leads_somewhere(there: Operated) -> None:
    text = asked(there, "GET", "/openapi.json", secret=CONTROL_SECRET).text
    schemas = json.loads(text)["components"]["schemas"]

    named = set(re.findall(r'"#/components/schemas/([^"]+)"', text))
    assert named <= schemas.keys()
    assert "JudgedRow" in named


def test_a_peer_that_leaves_in_the_middle_of_its_body_does_nothing() -> None:
    operator, metrics = StandIn(standings=[standing()]), Metrics()
    routes = http_routes.OperatorRoutes(operator, metrics, LIMITS)  # type: ignore[arg-type]  # a stand-in
    act = next(route for route in routes.routes() if route.path == "/operator/alert")
    messages = [{"type": "http.request", "body": b'{"session": "a-ses', "more_body": True}, {"type": "http.disconnect"}]
    sent: list[Any] = []

    async def receive() -> Any:
        return messages.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/operator/alert", "headers": [], "query_string": b""}
    asyncio.run(act.handle(scope, receive, send))

    assert sent[0]["status"] == 400
    assert operator.acts == []


def test_acts_of_many_operators_are_all_done(there: Operated) -> None:
    barrier = threading.Barrier(8)

    def clear(number: int) -> int:
        barrier.wait(PATIENCE)
        body = {**EPISODE, "summary": str(number)}
        return int(asked(there, "POST", "/operator/clear", body).status_code)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(clear, range(8)))

    assert found == [200] * 8
    assert sorted(act[2] for act in there.operator.acts) == [str(number) for number in range(8)]


# -------------------------------------------------------------------------------------------- with the real one behind it
def test_an_operator_stops_a_real_episode_and_lets_it_go_on() -> None:
    governance = Governance(load_policy("standard"))
    with operated(governance.operator) as there:
        client = OperatorClient(there.url, token=OPERATOR_SECRET, timeout=PATIENCE)

        async def begin() -> Room:
            room = Room()
            await room.session.open()
            await governance.begin(room.session, await room.session.reset(Reset(seed=1), None))
            return room

        room = there.on_loop(begin)
        before = client.sessions()[0]
        too_early = client.clear(before)
        alert = client.alert(before, "it circles")
        halted = client.sessions()[0]
        cleared = client.clear(before, "looked at")
        rows = list(client.watch(follow=False))
        with pytest.raises(RemoteError) as stale:
            client.answer(question("nothing", session=before.session), "go")
        with pytest.raises(RemoteError) as gone_on:
            client.clear(f"{before.session}.2")
        there.on_loop(lambda: room.session.close("closed"))

    assert (stale.value.code, gone_on.value.code) == (Code.STALE_QUESTION, Code.STALE_EPOCH)
    assert (before.state, before.safe_mode, before.policy) == ("S1_SENSE", False, "standard")
    assert (too_early.accepted, alert.accepted, cleared.accepted) == (False, True, True)
    assert (alert.state, halted.safe_mode, cleared.state) == ("S9_SAFEMODE", True, "S7_REVIEW")
    assert [(row.row, row.principal, row.kind) for row in rows] == [
        (1, "system", "open"),
        (2, "system", "ObservationPacket"),
        (3, "operator", "IntegrityAlertPacket"),
        (4, "operator", "IntegrityAlertPacket"),
    ]
    assert all(row.accepted for row in rows)
