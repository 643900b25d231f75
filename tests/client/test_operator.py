"""The operator's client against a real server's routes, and against servers that are none."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.client import OperatorClient
from proctor.client import operator as exchange_module
from proctor.client.operator import TOKEN_VARIABLE, JudgedRows, next_after
from proctor.errors import (
    ConnectionFailed,
    Missed,
    ProctorError,
    RemoteError,
    RequestTimeout,
    StateError,
    ValidationError,
)
from proctor.models.control import Code
from proctor.models.operator import Done
from proctor.server.runtime.results import make_refusal
from proctor.server.sessions.episode_status import RowLog
from tests.server.live_server import PATIENCE, until
from tests.server.operator_server import (
    CONTROL_SECRET,
    OPERATOR_SECRET,
    Operated,
    StandIn,
    operated,
    question,
    row,
    standing,
)


@pytest.fixture(scope="module")
def running() -> Iterator[Operated]:
    with operated() as there:
        yield there


@pytest.fixture
def there(running: Operated) -> Operated:
    """A server that knows one session and one question."""
    operator = running.operator
    operator.waiting, operator.standings, operator.acts = {"q1": question()}, [standing()], []
    operator.rows, operator.judge = RowLog(), StandIn.judge
    return running


@pytest.fixture
def client(there: Operated) -> OperatorClient:
    return OperatorClient(there.url, token=OPERATOR_SECRET, timeout=PATIENCE)


# -------------------------------------------------------------------------------------------------- reading and acting
def test_an_operator_reads_what_waits_and_answers_it(client: OperatorClient, there: Operated) -> None:
    (waiting,) = client.pending()
    done = client.answer(waiting, waiting.options[1].option_id, text="enough")

    assert (done.accepted, done.state) == (True, "S3_DECIDE")
    assert there.operator.acts == [("answer", "a-session.1", "q1", "stop", "enough")]
    assert client.pending() == []


def test_every_act_arrives_as_it_was_meant(client: OperatorClient, there: Operated) -> None:
    there.operator.waiting = {name: question(name) for name in ("q1", "q2", "q3")}
    first, second, third = client.pending()
    client.answer(first, text="no")
    client.approve(second, uses=1, life_seconds=2.5)
    client.deny(third, text="not this one")
    client.alert(first, "it circles", severity="WARNING")
    client.clear("a-session.1", "looked at")
    client.revoke("a-session.1", token_id="t1")
    client.revoke(client.sessions()[0], grant="g1")
    client.approve_budget("a-session.1", token_budget=1, tool_call_budget=2, time_budget_seconds=3, note="more")

    assert there.operator.acts == [
        ("answer", "a-session.1", "q1", None, "no"),
        ("approve", "a-session.1", "q2", 1, 2.5, ""),
        ("deny", "a-session.1", "q3", "not this one"),
        ("alert", "a-session.1", "WARNING", "it circles"),
        ("clear", "a-session.1", "looked at"),
        ("revoke", "a-session.1", "t1", None),
        ("revoke", "a-session.1", None, "g1"),
        ("budget", "a-session.1", 1, 2, 3, "more"),
    ]


def test_a_question_is_found_by_its_name_and_by_its_id(client: OperatorClient, there: Operated) -> None:
    name = "pkt_a-session_1_7"
    there.operator.waiting = {name: question(name), "request_a-session_1_8": question("request_a-session_1_8")}

    assert client.question("a-session.1.7").id == client.question(name).id == name
    assert client.question("a-session.1.8").id == "request_a-session_1_8"


def test_a_question_is_answered_by_its_name_only_while_it_waits(client: OperatorClient, there: Operated) -> None:
    there.operator.waiting = {name: question(name) for name in ("q1", "q2", "q3")}
    client.answer("a-session.1.q1", "stop")
    client.approve("a-session.1.q2", uses=1)
    client.deny("a-session.1.q3")
    for act in (client.answer, client.approve, client.deny):
        with pytest.raises(RemoteError) as problem:
            act("a-session.2.q1")
        assert problem.value.code == Code.STALE_QUESTION

    assert [act[:3] for act in there.operator.acts] == [
        ("answer", "a-session.1", "q1"),
        ("approve", "a-session.1", "q2"),
        ("deny", "a-session.1", "q3"),
    ]


def test_a_name_that_fits_two_questions_is_refused(client: OperatorClient, there: Operated) -> None:
    there.operator.waiting = {"one": question("pkt_yes"), "two": question("pkt_yes", session="b-session")}

    with pytest.raises(ValidationError, match="several questions") as problem:
        client.question("pkt_yes")

    assert problem.value.expected == "one of a-session.1.pkt_yes, b-session.1.pkt_yes"
    assert client.question("b-session.1.pkt_yes").session == "b-session"


@pytest.mark.parametrize("name", ["", "q2", "a-session.2.q1", "a-session.1", "1.q1"])
def test_a_name_that_fits_no_question_is_refused(client: OperatorClient, there: Operated, name: str) -> None:
    with pytest.raises(RemoteError) as problem:
        client.question(name)

    assert problem.value.code == Code.STALE_QUESTION
    assert there.operator.acts == []


@pytest.mark.parametrize(
    "name", ["", "a-session", ".1", "a-session.", "a-session.x", "a-session.-1", "a-session.\u0661"]
)
def test_a_text_that_names_no_episode_is_refused_here(client: OperatorClient, there: Operated, name: str) -> None:
    with pytest.raises(ValidationError, match="names no episode"):
        client.alert(name, "stop")

    assert there.operator.acts == []


def test_sessions_are_read_as_they_stand(client: OperatorClient) -> None:
    (found,) = client.sessions()

    assert found == standing()


def test_what_the_judge_refuses_is_no_exception(client: OperatorClient, there: Operated) -> None:
    there.operator.judge = lambda: Done("a-session", 1, False, "S2_MODEL", rules=["FSM"], reason="not in safe mode")

    done = client.clear("a-session.1")

    assert (done.accepted, done.rules, done.reason) == (False, ["FSM"], "not in safe mode")


# ------------------------------------------------------------------------------------------------------------ watching
def test_rows_come_as_they_are_judged(client: OperatorClient, there: Operated) -> None:
    there.say(kind="ObservationPacket", principal="system")
    rows = client.watch()
    first = next(rows)
    later = threading.Timer(0.05, lambda: there.say(kind="DecisionPacket", accepted=False, reason="too early"))
    later.start()
    second = next(rows)
    later.join()

    assert (first.row, first.kind, first.principal) == (1, "ObservationPacket", "system")
    assert (second.row, second.accepted, second.reason) == (2, False, "too early")


def test_without_follow_it_ends_with_the_last_row(client: OperatorClient, there: Operated) -> None:
    for _ in range(3):
        there.say()

    assert [each.row for each in client.watch(follow=False)] == [1, 2, 3]
    assert [each.row for each in client.watch(2, follow=False)] == [3]
    assert list(client.watch(3, follow=False)) == []


def test_rows_that_are_no_longer_kept_are_named(client: OperatorClient, there: Operated) -> None:
    there.operator.rows = RowLog(most=2)
    for _ in range(5):
        there.say()

    with pytest.raises(Missed) as missed:
        next(client.watch(1))

    assert (missed.value.missed, missed.value.next_row) == (2, 4)
    assert [each.row for each in client.watch(1, follow=False, on_missed="skip")] == [4, 5]


def test_a_server_that_was_started_anew_is_read_from_its_first_row(client: OperatorClient, there: Operated) -> None:
    there.say()

    assert [each.row for each in client.watch(70, follow=False)] == [1]
    assert next(client.watch(70)).row == 1


@given(after=st.integers(0, 50), last=st.integers(0, 50), kept=st.integers(0, 50), most=st.integers(1, 20))
def test_asking_on_reaches_the_last_row_and_never_one_twice(after: int, last: int, kept: int, most: int) -> None:
    rows = RowLog(most=max(kept, 1))
    for number in range(1, last + 1):
        rows.add(msgspec.json.encode(row(number)))
    seen: list[int] = []
    for _ in range(60):
        page = rows.after(after, most)
        found = tuple(msgspec.json.decode(each, type=type(row(1))) for each in page.rows)
        seen += [each.row for each in found]
        after = next_after(JudgedRows(found, rows.last, page.missed), after)

    assert after == last
    assert seen == sorted(set(seen))


# ------------------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize("secret", [CONTROL_SECRET, "another-secret-0123456789", None])
def test_another_credential_is_refused_and_never_shown(
    there: Operated, secret: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    client = OperatorClient(there.url, token=secret)

    with pytest.raises(ConnectionFailed, match="refused the operator's credential") as problem:
        client.clear("a-session.1")

    assert problem.value.found == 401
    assert secret is None or secret not in f"{problem.value} {client!r} {client.address!r}"
    assert there.operator.acts == []


def test_the_credential_can_come_from_the_environment_or_the_address(
    there: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, OPERATOR_SECRET)
    from_environment = OperatorClient(there.url).pending()
    monkeypatch.setenv(TOKEN_VARIABLE, "another-secret-0123456789")
    from_address = OperatorClient(f"http://proctor:{OPERATOR_SECRET}@127.0.0.1:{there.port}").pending()

    assert len(from_environment) == len(from_address) == 1


def test_the_control_credential_of_the_environment_is_not_taken(
    there: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    monkeypatch.setenv("PROCTOR_CONTROL_TOKEN", OPERATOR_SECRET)

    assert OperatorClient(there.url).address.token is None


@pytest.mark.parametrize(
    ("code", "kind"),
    [(Code.VALIDATION_ERROR, ValidationError), (Code.STATE_ERROR, StateError), (Code.EPISODE_LOST, RemoteError)],
)
def test_a_coded_refusal_is_the_exception_that_it_means(
    client: OperatorClient, there: Operated, code: Code, kind: type[ProctorError]
) -> None:
    def judge() -> Done:
        raise make_refusal(code, "it cannot be done", expected="something else")

    there.operator.judge = judge

    with pytest.raises(kind, match="it cannot be done") as problem:
        client.answer(question(), "go")

    assert problem.value.expected == "something else"


def test_a_server_without_governed_episodes_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with operated(governed=False) as there, pytest.raises(ConnectionFailed, match="no episode is governed") as problem:
        OperatorClient(there.url, token=CONTROL_SECRET).pending()

    assert problem.value.found == 404


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("answer", (question(""),)),
        ("answer", (question("x" * 301),)),
        ("alert", ("a-session.1", "")),
        ("clear", ("a-session.1", "x" * 10_001)),
    ],
)
def test_what_no_server_would_take_is_refused_here(
    client: OperatorClient, there: Operated, name: str, arguments: tuple[Any, ...]
) -> None:
    with pytest.raises(ValidationError, match="cannot be asked for"):
        getattr(client, name)(*arguments)

    assert there.operator.acts == []


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan")])
def test_a_time_that_is_none_is_refused(timeout: float) -> None:
    with pytest.raises(ValidationError, match="timeout"):
        OperatorClient("http://127.0.0.1:1", timeout=timeout)


# ----------------------------------------------------------------------------------------------- servers that are none
@contextmanager
def answering(said: bytes | None, path: Path | None = None) -> Iterator[str]:
    """Listen and say the same to everybody, or nothing at all; yield the address."""
    listener = socket.socket(socket.AF_INET if path is None else socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0) if path is None else str(path))
    listener.listen()
    listener.settimeout(0.05)
    over = threading.Event()
    taken: list[socket.socket] = []

    def serve() -> None:
        while not over.is_set():
            try:
                peer, _ = listener.accept()
            except TimeoutError:
                continue
            taken.append(peer)
            if said is not None:
                peer.settimeout(PATIENCE)
                peer.recv(65536)
                peer.sendall(said)
                peer.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}" if path is None else f"unix://{path}"
    finally:
        over.set()
        thread.join(PATIENCE)
        for each in [*taken, listener]:
            each.close()


def http(status: str, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


NONE = http("200 OK", b'{"waiting": []}')


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"nonsense\r\n\r\n",
        http("200 OK", b"nonsense"),
        http("200 OK", b"\xff"),
        http("200 OK", b'{"waiting": 1}'),
        http("500 Oh", b"<html>"),
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{",
        http("307 Elsewhere", b"", "Location: http://127.0.0.1:1/operator/pending"),
    ],
)
def test_what_is_no_answer_is_a_failed_connection(said: bytes) -> None:
    with answering(said) as url, pytest.raises(ConnectionFailed):
        OperatorClient(url, token=OPERATOR_SECRET, timeout=PATIENCE).pending()


def test_nobody_there_is_a_failed_connection() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]

    with pytest.raises(ConnectionFailed, match="no connection to"):
        OperatorClient(f"http://127.0.0.1:{port}", token=OPERATOR_SECRET).pending()


def test_only_a_request_that_changes_nothing_promises_that_nothing_has_changed() -> None:
    with answering(None) as url:
        client = OperatorClient(url, token=OPERATOR_SECRET, timeout=0.1)
        with pytest.raises(RequestTimeout):
            client.pending()
        with pytest.raises(ConnectionFailed, match="is not known"):
            client.clear("a-session.1")


def test_a_connection_that_breaks_after_an_act_says_that_nobody_knows() -> None:
    with answering(b"") as url, pytest.raises(ConnectionFailed, match="is not known"):
        OperatorClient(url, token=OPERATOR_SECRET, timeout=PATIENCE).clear("a-session.1")


def test_an_answer_without_end_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange_module, "MOST_BYTES", 10)

    with answering(NONE) as url, pytest.raises(ConnectionFailed, match="larger than"):
        OperatorClient(url, token=OPERATOR_SECRET, timeout=PATIENCE).pending()


def test_a_unix_socket_is_an_address_like_any_other(tmp_path: Path) -> None:
    with answering(NONE, tmp_path / "s") as url:
        assert OperatorClient(url, token=OPERATOR_SECRET, timeout=PATIENCE).pending() == []


def test_a_path_before_the_routes_is_kept() -> None:
    heard: list[bytes] = []

    def once(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer:
            heard.append(peer.recv(65536))
            peer.sendall(NONE)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=once, args=(listener,))
        thread.start()
        OperatorClient(f"http://127.0.0.1:{listener.getsockname()[1]}/far/away", token=OPERATOR_SECRET).pending()
        thread.join(PATIENCE)

    assert heard[0].startswith(b"GET /far/away/operator/pending HTTP/1.1\r\n")
    assert f"Authorization: Bearer {OPERATOR_SECRET}".encode() in heard[0]


def test_a_wait_for_rows_is_no_time_out(client: OperatorClient, there: Operated) -> None:
    hasty: Any = OperatorClient(there.url, token=OPERATOR_SECRET, timeout=2.0)

    assert hasty.page(0, 2.1).rows == ()
    until(lambda: there.on_loop(lambda: there.operator.watchers) == 0)
