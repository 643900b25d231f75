"""The parts joined: a server that starts when it is ready, says goodbye when it stops, and records before it answers."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect, unix_connect

from proctor.errors import ComponentError, ValidationError
from proctor.ledger.verify import verify
from proctor.models.events import (
    EpisodeClosed,
    EpisodeReset,
    EpisodeStepped,
    Event,
    Failed,
    SessionClosed,
    SessionOpened,
)
from proctor.server.app import Keys, Listening, Server
from proctor.server.governed.governance import Governance
from proctor.server.net.uvicorn_server import bind_tcp, bind_unix, port_of
from proctor.server.sessions.recorders import read_events
from proctor.server.settings import parse_settings
from tests.server.attacks.raw_socket import Address, RawSocket
from tests.server.control.outlets import Clock
from tests.server.live_server import PATIENCE, Served, Session, Talk, serving, until
from tests.server.memory_recorder import MemoryRecorder
from tests.server.witness_env import LEDGER

WITNESS = "tests.server.witness_env:Witness"
HELD = 7


@pytest.fixture(autouse=True)
def ledger() -> Iterator[None]:
    LEDGER.clear()
    yield
    LEDGER.release_all()


def step(nonce: int, how: str = "move") -> dict[str, Any]:
    return {"nonce": nonce, "how": how}


def code_of(message: dict[str, Any]) -> str:
    found: str = message["data"]["code"]
    return found


def closed_with(talk: Talk) -> int | None:
    with pytest.raises(ConnectionClosed) as end:
        talk.receive()
    return None if end.value.rcvd is None else end.value.rcvd.code


def stop(served: Served) -> None:
    served.loop.call_soon_threadsafe(served.server.stop)


@contextmanager
def running(server: Server) -> Iterator[None]:
    """Run a server on a thread of its own until the block ends."""
    started = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(started.set)), daemon=True)
    thread.start()
    assert started.wait(PATIENCE)
    try:
        yield
    finally:
        server.stop()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def asked(websocket: Any, kind: str, data: Any = None, **beside: Any) -> dict[str, Any]:
    websocket.send(json.dumps({"type": kind, "data": data, **beside}))
    message: dict[str, Any] = json.loads(websocket.recv(PATIENCE))
    return message


# --------------------------------------------------------------------------------------------------------- stopping
def test_a_server_that_stops_takes_nothing_new_answers_what_runs_and_says_goodbye() -> None:
    recorder = MemoryRecorder()
    with serving(WITNESS, recorder=recorder) as served, Talk(served, greet=True) as talk:
        session, idle = Session(talk), Session(talk)
        session.ask("reset", {"seed": 1})
        number = session.send("step", step(HELD, "hold"))
        until(lambda: HELD in LEDGER.holding)

        stop(served)
        warnings = [talk.receive(), talk.receive()]
        health = httpx.get(f"{served.url}/health", timeout=60.0)
        refusal = talk.ask("open", {}, id=9)
        with pytest.raises(Exception, match="503"):
            served.connect()
        LEDGER.release(HELD)
        reply = talk.receive()

        assert {(each["type"], each["session"], code_of(each)) for each in warnings} == {
            ("warning", each.name, "SHUTTING_DOWN") for each in (session, idle)
        }
        assert (health.status_code, health.json()) == (503, {"status": "stopping"})
        assert (refusal["id"], code_of(refusal)) == (9, "SHUTTING_DOWN")
        assert (reply["id"], reply["data"]["observation"]["nonce"]) == (number, HELD)
        assert closed_with(talk) == 1001
    closings = {event.session: event for event in recorder.events if isinstance(event, SessionClosed)}
    assert {name: event.reason for name, event in closings.items()} == {
        each.name: "shutdown" for each in (session, idle)
    }
    assert (closings[session.name].episodes, closings[session.name].steps) == (1, 1)
    with pytest.raises(ComponentError):
        recorder.record(recorder.events[0])


def test_without_hello_the_running_step_is_answered_before_the_goodbye() -> None:
    with serving(WITNESS) as served, Talk(served) as talk:
        talk.ask("reset", {"seed": 1})
        talk.send("step", step(HELD, "hold"))
        until(lambda: HELD in LEDGER.holding)
        stop(served)
        until(lambda: httpx.get(f"{served.url}/health", timeout=60.0).status_code == 503)
        LEDGER.release(HELD)

        assert talk.receive()["data"]["observation"]["nonce"] == HELD
        assert closed_with(talk) == 1001


def test_a_step_that_does_not_end_is_given_up_when_the_drain_is_over() -> None:
    recorder = MemoryRecorder()
    with serving(WITNESS, recorder=recorder, drain_seconds=0.2) as served, Talk(served, greet=True) as talk:
        session = Session(talk)
        session.ask("reset", {"seed": 1})
        session.send("step", step(HELD, "hold"))
        until(lambda: HELD in LEDGER.holding)
        stop(served)

        assert code_of(talk.receive()) == "SHUTTING_DOWN"
        assert closed_with(talk) == 1001
    assert [event.reason for event in recorder.events if isinstance(event, SessionClosed)] == ["shutdown"]
    assert not any(isinstance(event, EpisodeStepped) for event in recorder.events)


def test_who_waits_for_a_session_when_the_server_stops_is_told_so() -> None:
    recorder = MemoryRecorder()
    full = serving(WITNESS, recorder=recorder, max_sessions=1)
    with full as served, Talk(served, greet=True) as first, Talk(served, greet=True) as second:
        Session(first)
        second.send("open", {}, id=1)
        until(lambda: served.on_loop(lambda: served.server.sessions.slots.waiting) == 1)
        stop(served)

        assert code_of(second.receive()) == "SHUTTING_DOWN"
        assert closed_with(second) == 1001
    assert [type(event) for event in recorder.events] == [SessionOpened, SessionClosed]


def test_a_client_that_never_says_goodbye_does_not_hold_the_server_up() -> None:
    async def stay(served: Served) -> RawSocket:
        raw = await RawSocket.upgraded(Address(served.port, None))
        await raw.ask({"type": "reset", "data": {"seed": 1}})
        return raw

    with asyncio.Runner() as runner:
        with serving(WITNESS) as served:
            raw = runner.run(stay(served))
        raw.reset()

    until(lambda: LEDGER.closed.keys() == LEDGER.made)


def test_after_a_restart_every_session_is_lost() -> None:
    with serving(WITNESS) as served, Talk(served, greet=True) as talk:
        session = Session(talk)
        session.ask("reset", {"seed": 1})
    wish = {"session": session.name, "resume_token": session.opened["resume_token"]}
    with serving(WITNESS) as again, Talk(again, greet=True) as talk:
        resumed = talk.ask("resume", wish, id=1)
        stepped = talk.ask("step", step(2), id=2, session=session.name, epoch=1)

    assert (code_of(resumed), resumed["data"]["lost"]) == ("EPISODE_LOST", True)
    assert (code_of(stepped), stepped["data"]["lost"]) == ("EPISODE_LOST", True)
    assert LEDGER.asked[2] == 0
    assert served.server.sessions.boot != again.server.sessions.boot


# ------------------------------------------------------------------------------------------------------------- time
def test_an_unused_session_is_warned_and_ended_by_the_server_itself() -> None:
    clock = Clock()
    times: dict[str, Any] = {"grace_seconds": 0.2, "idle_seconds": 100, "warn_seconds": 20}
    with serving(WITNESS, clock=clock, **times) as served, Talk(served, greet=True) as talk:
        session = Session(talk)
        clock.now += 85
        warning = talk.receive()
        clock.now += 15
        until(lambda: not served.on_loop(lambda: dict(served.server.sessions.channels)))
        late = session.ask("state")

        assert (warning["type"], warning["session"], code_of(warning)) == ("warning", session.name, "IDLE")
        assert warning["data"]["seconds_left"] == 15.0
        assert (code_of(late), late["data"]["lost"]) == ("EPISODE_LOST", True)


def test_a_request_that_runs_is_never_cut_by_the_clock() -> None:
    clock = Clock()
    impatient = serving(WITNESS, clock=clock, grace_seconds=0.2, idle_seconds=100)
    with impatient as served, Talk(served, greet=True) as talk:
        session = Session(talk)
        session.ask("reset", {"seed": 1})
        number = session.send("step", step(HELD, "hold"))
        until(lambda: HELD in LEDGER.holding)
        clock.now += 100_000
        for _ in range(3):
            served.on_loop(served.server.sessions.sweep)
        LEDGER.release(HELD)

        assert talk.receive()["id"] == number
        assert session.ask("step", step(8))["data"]["step"] == 2


# -------------------------------------------------------------------------------------------------------- the record
def test_every_event_is_on_file_before_its_reply_leaves(tmp_path: Path) -> None:
    record = tmp_path / "events.jsonl"
    told: list[Event] = []

    def news() -> list[Any]:
        found = list(read_events(record))
        new = found[len(told) :]
        told.extend(new)  # type: ignore[arg-type]  # a torn line would fail below
        return new

    with serving(WITNESS, record=record) as served, Talk(served, greet=True) as talk:
        session = Session(talk)
        assert [type(event) for event in news()] == [SessionOpened]
        for kind, data, event_type in (
            ("reset", {"seed": 3, "episode_id": "one"}, EpisodeReset),
            ("step", step(4), EpisodeStepped),
            ("step", {"how": "nowhere"}, Failed),
            ("step", step(5, "refuse"), Failed),
            ("step", step(6, "end"), EpisodeStepped),
            ("step", step(7), Failed),
            ("reset", {"seed": 8}, EpisodeReset),
            ("step", step(9, "raise"), Failed),
            ("state", None, Failed),
            ("reset", {"seed": 10}, EpisodeReset),
        ):
            reply = session.ask(kind, data)
            *before, event = news()
            assert [type(each) for each in before] in ([], [EpisodeClosed])
            assert (type(event), event.request_id, event.session) == (event_type, reply["id"], session.name)
            assert (reply["type"] == "error") is (event_type is Failed)
            if isinstance(event, EpisodeStepped):
                assert json.loads(bytes(event.observation)) == reply["data"]["observation"]
                assert (event.reward, event.raw_reward) == (reply["data"]["reward"],) * 2
        assert session.ask("state")["type"] == "state"
        assert news() == []
        session.ask("close")
        until(lambda: any(isinstance(event, SessionClosed) for event in news()))
    closed = told[-1]
    assert isinstance(closed, SessionClosed)
    assert (closed.reason, closed.episodes, closed.steps) == ("closed", 3, 2)


# ------------------------------------------------------------------------------------------------------ its addresses
def test_a_server_listens_on_a_unix_socket_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "control.sock"
    listener = bind_unix(path)
    server = Server(
        parse_settings({"target": WITNESS, "sandbox": "none", "unix_socket": path, "insecure": True}),
        Keys(),
        Listening([listener]),
    )

    with running(server), unix_connect(str(path), "ws://localhost/ws", compression=None) as websocket:
        assert path.stat().st_mode & 0o777 == 0o600
        assert asked(websocket, "reset", {"seed": 1})["type"] == "observation"
        assert asked(websocket, "step", step(2))["data"]["observation"]["nonce"] == 2
    listener.close()


def test_a_session_is_found_again_at_the_address_that_hello_told() -> None:
    shared, own = bind_tcp("127.0.0.1", 0), bind_tcp("127.0.0.1", 0)
    settings = parse_settings({"target": WITNESS, "sandbox": "none", "insecure": True})
    server = Server(settings, Keys(), Listening([shared, own], port_of(own)))

    with running(server):
        with connect(f"ws://localhost:{port_of(shared)}/ws", compression=None) as first:
            address = asked(first, "hello", {"protocols": [1]}, id=1)["data"]["address"]
            opened = asked(first, "open", {}, id=2)
        with connect(address, compression=None) as second:
            welcome = asked(second, "hello", {"protocols": [1]}, id=1)
            wish = {"session": opened["session"], "resume_token": opened["data"]["resume_token"]}
            resumed = asked(second, "resume", wish, id=2)
    for listener in (shared, own):
        listener.close()

    assert address == f"ws://localhost:{port_of_address(address)}/ws"
    assert welcome["data"]["address"] is None
    assert resumed["type"] == "resumed"


def port_of_address(address: str) -> int:
    return int(address.rpartition(":")[2].removesuffix("/ws"))


def test_every_port_answers_to_its_own_number_only() -> None:
    shared, own = bind_tcp("127.0.0.1", 0), bind_tcp("127.0.0.1", 0)
    ports = [port_of(shared), port_of(own)]
    server = Server(
        parse_settings({"target": WITNESS, "sandbox": "none", "insecure": True}),
        Keys(),
        Listening([shared, own], ports[1]),
    )

    with running(server):
        found = {
            (port, named): httpx.get(
                f"http://127.0.0.1:{port}/health", headers={"Host": f"localhost:{named}"}, timeout=60.0
            )
            for port in ports
            for named in ports
        }
    for listener in (shared, own):
        listener.close()

    assert {pair: reply.status_code for pair, reply in found.items()} == {
        (port, named): 200 if port == named else 403 for port in ports for named in ports
    }


# -------------------------------------------------------------------------------------------------------- its target
def unmade() -> Any:
    raise RuntimeError("no such thing")


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("Nowhere-v0", gym.error.NameNotFound),
        ("no.such.module:Thing", ValidationError),
        ("tests.server.test_app:unmade", RuntimeError),
    ],
)
def test_a_target_that_cannot_be_made_stops_the_server_before_anybody_connects(
    target: str, problem: type[Exception]
) -> None:
    with bind_tcp("127.0.0.1", 0) as listener, pytest.raises(problem):
        Server(parse_settings({"target": target, "sandbox": "none", "insecure": True}), Keys(), Listening([listener]))


def test_the_first_environment_is_made_once_to_be_described_and_closed() -> None:
    with serving(WITNESS) as served:
        assert len(LEDGER.made) == 1
        assert LEDGER.closed.keys() == LEDGER.made
        assert httpx.get(f"{served.url}/metadata", timeout=60.0).json()["name"] == "Witness"


def test_ready_is_said_once_when_the_sockets_are_listened_on() -> None:
    said: list[int] = []
    listener = bind_tcp("127.0.0.1", 0)
    server = Server(
        parse_settings({"target": WITNESS, "sandbox": "none", "insecure": True}), Keys(), Listening([listener])
    )

    def ready() -> None:
        with socket.create_connection(("127.0.0.1", port_of(listener) or 0), PATIENCE):
            said.append(1)
        server.stop()

    asyncio.run(server.serve(ready))
    listener.close()

    assert said == [1]


def test_a_server_without_sessions_stops_as_any_other() -> None:
    with serving("CartPole-v1") as served:
        assert served.on_loop(lambda: served.server.sessions.stopping) is False
    assert served.server.sessions.stopping is True


@pytest.mark.parametrize("reason", ["no such module", "a policy for other tools"])
def test_a_server_that_cannot_start_leaves_a_ledger_that_is_closed(
    reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ValidationError(reason)

    if reason == "no such module":
        values: dict[str, Any] = {"target": "nosuch_module:Thing"}
    else:
        values = {"target": "CartPole-v1", "governed": "strict", "agent_port": 0}
        monkeypatch.setattr(Governance, "check", refuse)
    folder = tmp_path / "ledger"
    settings = parse_settings({"sandbox": "process", "insecure": True, "ledger": str(folder), **values})

    with bind_tcp("127.0.0.1", 0) as listener, pytest.raises(ValidationError):
        Server(settings, Keys(None, None), Listening([listener]))
    assert [finding.what for finding in verify(folder).findings] == []
