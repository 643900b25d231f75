"""Several processes behind one address: whose session is where, and what is left when one of them dies."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from proctor.server import workers
from proctor.server.app import Keys
from proctor.server.net.uvicorn_server import bind_tcp, port_of
from proctor.server.settings import parse_settings
from proctor.server.workers import run_workers
from tests.server.commands import Command, alive, finished, harmless, serve, told_to_stop_after
from tests.server.live_server import PATIENCE, until
from tests.server.restarts import ADDING

SECRET = "a-secret-for-two-workers"
HEADERS = {"Authorization": f"Bearer {SECRET}"}
WHEREABOUTS = "tests.server.witness_env:Whereabouts"


class Visitor:
    """A client that said hello and has a session in its first episode; `pid` is the worker's."""

    def __init__(self, address: str) -> None:
        opening: Any = connect(address, additional_headers=HEADERS, compression=None, open_timeout=PATIENCE)
        self.socket = opening.__enter__()
        self.asked_at = address
        self.welcome = self.ask("hello", {"protocols": [1]}, id=1)["data"]
        self.last_id = 0

    def ask(self, kind: str, data: Any = None, **beside: Any) -> dict[str, Any]:
        self.socket.send(json.dumps({"type": kind, "data": data, **beside}))
        message: dict[str, Any] = json.loads(self.socket.recv(PATIENCE))
        return message

    def open(self) -> None:
        opened = self.ask("open", {}, id=2)
        self.session = opened["session"]
        self.token = opened["data"]["resume_token"]
        begun = self.ask("reset", {"seed": 1}, id=1, session=self.session)
        self.pid = begun["data"]["observation"].get("pid")

    def step(self, number: int) -> dict[str, Any]:
        return self.ask("step", {}, id=number, session=self.session, epoch=1)

    @property
    def home(self) -> str:
        """Where its worker is found."""
        return self.welcome["address"] or self.asked_at

    def resumed(self, other: Visitor) -> dict[str, Any]:
        return self.ask("resume", {"session": other.session, "resume_token": other.token}, id=9)

    def close(self) -> None:
        self.socket.close()


TWO = (WHEREABOUTS, "--workers", "2", "--port", "0", "--json")
TOKEN = {"PROCTOR_CONTROL_TOKEN": SECRET}


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """Two workers that live as long as these tests; nobody may harm them."""
    with serve(tmp_path_factory.mktemp("workers") / "home", *TWO, more=TOKEN) as there:
        yield there


def one_of_each(command: Command, stack: ExitStack) -> tuple[Visitor, Visitor]:
    """Return a visitor of each worker; the kernel chooses, so it may take a few."""
    found: dict[str, Visitor] = {}

    def came() -> bool:
        visitor = Visitor(command.document["websocket"])
        if visitor.home in found:
            visitor.close()
        else:
            found[visitor.home] = visitor
            stack.callback(visitor.close)
            visitor.open()
        return len(found) == 2

    until(came)
    first, second = found.values()
    return first, second


def metric(command: Command, name: str) -> float:
    page = httpx.get(f"{command.document['url']}/metrics", headers=HEADERS, timeout=60.0).text
    return sum(float(each) for each in re.findall(rf"^{name}(?:\{{.*\}})? (\S+)$", page, re.MULTILINE))


def test_each_worker_has_an_address_of_its_own_where_its_sessions_are_found_again(command: Command) -> None:
    with ExitStack() as stack:
        first, second = one_of_each(command, stack)
        first.step(2)
        first.socket.close_socket()
        at_home, elsewhere = Visitor(first.home), Visitor(second.home)
        for each in (at_home, elsewhere):
            stack.callback(each.close)
        lost = elsewhere.resumed(first)
        resumed = at_home.resumed(first)
        at_home.session = first.session

        assert first.home != second.home
        assert first.pid != second.pid
        assert command.process.pid not in {first.pid, second.pid}
        assert (at_home.welcome["address"], at_home.welcome["boot"]) == (None, first.welcome["boot"])
        assert (lost["data"]["code"], lost["data"]["lost"]) == ("EPISODE_LOST", True)
        assert (resumed["type"], resumed["data"]["step"], resumed["data"]["last_id"]) == ("resumed", 1, 2)
        assert at_home.step(3)["data"]["reward"] == 2.0
        assert second.step(2)["data"]["observation"]["pid"] == second.pid


def test_the_counts_of_all_workers_are_summed_whoever_is_asked(command: Command) -> None:
    def counts() -> tuple[float, ...]:
        names = ("proctor_sessions_opened_total", "proctor_sessions", "proctor_steps_total")
        return tuple(metric(command, name) for name in names)

    with ExitStack() as stack:
        before = counts()
        first, second = one_of_each(command, stack)
        for number in range(2, 12):
            first.step(number)
        second.step(2)

        for _ in range(5):  # whichever worker answers
            assert tuple(now - then for now, then in zip(counts(), before, strict=True)) == (2, 2, 11)


def test_no_worker_and_no_environment_can_read_the_secret(command: Command) -> None:
    with ExitStack() as stack:
        for each in one_of_each(command, stack):
            assert each.step(2)["data"]["observation"]["knows"] is False
            assert SECRET not in Path(f"/proc/{each.pid}/environ").read_text()
    assert SECRET not in command.log + command.out


@pytest.mark.slow
def test_a_worker_that_is_killed_takes_its_own_sessions_with_it_and_no_other(tmp_path: Path) -> None:
    with serve(tmp_path / "home", *TWO, more=TOKEN) as command, ExitStack() as stack:
        first, second = one_of_each(command, stack)
        os.kill(first.pid, signal.SIGKILL)
        with pytest.raises(ConnectionClosed):
            first.step(2)
        again = Visitor(first.home)
        stack.callback(again.close)
        lost = again.resumed(first)
        again.open()

        assert (lost["data"]["code"], lost["data"]["lost"]) == ("EPISODE_LOST", True)
        assert again.welcome["boot"] != first.welcome["boot"]
        assert again.pid not in {first.pid, second.pid}
        assert second.step(2)["data"]["observation"]["pid"] == second.pid
        assert "its sessions are lost" in command.log
        assert metric(command, "proctor_sessions") == 2


@pytest.mark.slow
def test_with_a_ledger_sessions_survive_their_workers_and_the_parent(tmp_path: Path) -> None:
    with bind_tcp("127.0.0.1", 0) as listener:
        port = str(port_of(listener))
    arguments = (ADDING, "--workers", "2", "--port", port, "--json", "--ledger", str(tmp_path / "ledger"))
    with serve(tmp_path / "home", *arguments, more=TOKEN) as command, ExitStack() as stack:
        visitors = one_of_each(command, stack)
        for worker in command.children():
            os.kill(worker, signal.SIGKILL)
        homes = [each.home for each in visitors]
        after_workers = [_gone_on(each, 2, stack) for each in visitors]
        pids = command.children()
        command.stopped(signal.SIGKILL)
        until(lambda: not any(alive(pid) for pid in pids))
        with serve(tmp_path / "home", *arguments, more=TOKEN):
            after_parent = [_gone_on(each, 3, stack) for each in visitors]

    assert [each["data"]["observation"]["total"] for each in (*after_workers, *after_parent)] == [2, 2, 3, 3]
    assert len(set(homes)) == 2


def _gone_on(visitor: Visitor, number: int, stack: ExitStack) -> dict[str, Any]:
    """Return the reply to the next step of a session, asked where its worker is found."""

    def back() -> Visitor | None:
        try:
            return Visitor(visitor.home)
        except (OSError, ConnectionClosed):
            return None

    again: Visitor = until(back, 60)
    stack.callback(again.close)
    resumed = again.resumed(visitor)
    assert resumed["type"] == "resumed", resumed
    again.session = visitor.session
    return again.step(number)


@pytest.mark.slow
def test_told_to_stop_all_of_them_do_with_a_record_each_and_nothing_is_left(tmp_path: Path) -> None:
    record = ("--record", str(tmp_path / "events.jsonl"))
    with serve(tmp_path / "home", *TWO, *record, more=TOKEN) as command, ExitStack() as stack:
        visitors = one_of_each(command, stack)
        pids = {*command.children(), *(each.pid for each in visitors)}
        code = command.stopped()
        ends = [_end_of(each) for each in visitors]

        assert (code, ends) == (0, [1001, 1001])
        until(lambda: not any(alive(pid) for pid in pids))
        assert "Traceback" not in command.log
    for each in visitors:
        events = [json.loads(line) for line in (tmp_path / f"events-{each.pid}.jsonl").read_text().splitlines()]
        assert [event["event"] for event in events] == [
            "session_opened",
            "episode_reset",
            "episode_closed",
            "session_closed",
        ]
        assert {event["session"] for event in events} == {each.session}


def _end_of(visitor: Visitor) -> int | None:
    """Return the code with which the server closed, after a warning at most."""
    try:
        while True:
            assert json.loads(visitor.socket.recv(PATIENCE))["type"] == "warning"
    except ConnectionClosed as end:
        return None if end.rcvd is None else end.rcvd.code


# ------------------------------------------------------------------------------------------- the parent, seen from inside
def test_the_parent_starts_a_dead_worker_again_and_stops_when_told() -> None:
    settings = parse_settings({"target": WHEREABOUTS, "sandbox": "none", "workers": 2, "insecure": True})
    visits: list[Future[tuple[int, int, str]]] = []

    def visit() -> tuple[int, int, str]:
        with ExitStack() as stack:
            first = Visitor(f"ws://127.0.0.1:{port_of(shared)}/ws")
            stack.callback(first.close)
            first.open()
            os.kill(first.pid, signal.SIGKILL)
            again = Visitor(first.home)
            stack.callback(again.close)
            lost = again.resumed(first)
            again.open()
            return first.pid, again.pid, lost["data"]["code"]

    with bind_tcp("127.0.0.1", 0) as shared, harmless():
        code = run_workers(settings, Keys(), shared, None, lambda tier: visits.append(told_to_stop_after(visit)))

    first, again, lost = visits[0].result(PATIENCE)
    assert (code, lost) == (0, "EPISODE_LOST")
    assert first != again
    assert not alive(first)
    assert not alive(again)


def test_workers_that_keep_dying_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "MOST_FAILURES", 2)
    settings = parse_settings(
        {"target": "tests.server.witness_env:only_at_home", "sandbox": "none", "workers": 2, "insecure": True}
    )
    said: list[str] = []

    with bind_tcp("127.0.0.1", 0) as shared, harmless():
        code = run_workers(settings, Keys(), shared, None, lambda tier: said.append("ready"))

    assert (code, said) == (1, [])


@pytest.mark.parametrize(
    "arguments",
    [
        ("Nowhere-v0", "--workers", "2", "--port", "0"),
        (WHEREABOUTS, "--workers", "2", "--unix-socket", "control.sock"),
        (WHEREABOUTS, "--workers", "0"),
    ],
    ids=["target", "unix socket", "number"],
)
def test_what_workers_cannot_do_is_one_line_and_code_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code, out, error = finished(tmp_path / "home", *arguments, "--insecure")

    assert (code, out) == (2, "")
    assert len(error.strip().splitlines()) == 1
    assert error.startswith("proctor: ")
