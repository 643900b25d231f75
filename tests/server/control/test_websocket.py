"""One socket under stress: what may hold it up, in which order it answers, and how it ends."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import threading
import uuid
import weakref
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed

from proctor.models.control import PROTOCOL
from proctor.server.control import plane
from proctor.server.control.plane import ControlConnection
from proctor.server.net.uvicorn_websocket import ABORT, WRITABLE
from proctor.server.sessions.session import Session as ServerSession
from tests.server.attacks.raw_socket import Address, RawSocket, handshake
from tests.server.environments import diary
from tests.server.live_server import PATIENCE, Served, Session, Talk, serving, until
from tests.server.witness_env import LEDGER

pytestmark = pytest.mark.anyio

WITNESS = "tests.server.witness_env:Witness"
HELD = 7
"""The number of the request that is held in these tests."""


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(WITNESS, max_pending=2) as there:
        yield there
        LEDGER.release_all()


def step(nonce: int, how: str = "move") -> dict[str, Any]:
    return {"nonce": nonce, "how": how}


def held(session: Session) -> int:
    """Begin an episode and a step that stays inside; return the step's id."""
    session.ask("reset", {"seed": 1})
    number = session.send("step", step(HELD, "hold"))
    until(lambda: HELD in LEDGER.holding)
    return number


def held_without_hello(talk: Talk) -> None:
    talk.ask("reset", {"seed": 1})
    talk.send("step", step(HELD, "hold"))
    until(lambda: HELD in LEDGER.holding)


def closed_with(talk: Talk) -> int | None:
    """Return the code of the server's close frame, which must be the next that comes."""
    with pytest.raises(ConnectionClosed) as end:
        talk.receive()
    return None if end.value.rcvd is None else end.value.rcvd.code


def code_of(message: dict[str, Any]) -> str:
    code: str = message["data"]["code"]
    return code


def connections(served: Served) -> int:
    found: int = served.on_loop(lambda: len(served.server.plane.connections))
    return found


def taken(served: Served) -> int:
    found: int = served.on_loop(lambda: served.server.sessions.slots.taken)
    return found


def waiting(served: Served) -> int:
    found: int = served.on_loop(lambda: served.server.sessions.slots.waiting)
    return found


# ---------------------------------------------------------------------------------------------------- not held up
@pytest.mark.parametrize("greet", [False, True])
def test_pings_are_answered_while_a_step_runs(served: Served, greet: bool) -> None:
    with Talk(served, greet=True) if greet else Talk(served) as talk:
        held(Session(talk)) if greet else held_without_hello(talk)

        assert talk.socket.ping().wait(PATIENCE)


def test_without_hello_a_full_queue_stops_neither_pings_nor_the_end_of_the_connection(served: Served) -> None:
    talk = Talk(served)
    held_without_hello(talk)
    for _ in range(2):
        talk.send("state")

    assert talk.socket.ping().wait(PATIENCE)

    talk.send("state")
    assert closed_with(talk) == 1008
    until(lambda: (connections(served), taken(served)) == (0, 0))


def test_a_slow_session_does_not_delay_a_quick_one_on_the_same_socket(served: Served) -> None:
    with Talk(served, greet=True) as talk:
        slow, quick = Session(talk), Session(talk)
        number = held(slow)
        quick.ask("reset", {"seed": 2})
        for nonce in range(10, 20):
            reply = quick.ask("step", step(nonce))
            assert (reply["session"], reply["data"]["observation"]["nonce"]) == (quick.name, nonce)
        LEDGER.release(HELD)
        late = talk.receive()

    assert (late["session"], late["id"], late["data"]["observation"]["nonce"]) == (slow.name, number, HELD)


def test_a_full_queue_answers_busy_and_the_refused_id_can_be_sent_again(served: Served) -> None:
    with Talk(served, greet=True) as talk:
        session = Session(talk)
        number = held(session)
        for nonce in (11, 12):
            session.send("step", step(nonce))
        busy = session.ask("step", step(13))
        LEDGER.release(HELD)
        replies = [talk.receive() for _ in range(3)]
        session.last_id -= 1
        again = session.ask("step", step(13))

    assert (busy["id"], code_of(busy)) == (number + 3, "BUSY")
    assert [reply["data"]["observation"]["nonce"] for reply in replies] == [HELD, 11, 12]
    assert (again["id"], again["data"]["observation"]["nonce"], again["data"]["step"]) == (number + 3, 13, 4)
    assert LEDGER.asked[13] == 1


def test_a_cancel_gets_through_a_full_queue(served: Served) -> None:
    with Talk(served, greet=True) as talk:
        session = Session(talk)
        number = held(session)
        for nonce in (11, 12):
            session.send("step", step(nonce))
        answer = session.ask("cancel", {"id": number + 1})
        dropped = talk.receive()

    assert answer["data"] == {"id": number + 1, "outcome": "dropped"}
    assert (dropped["id"], code_of(dropped)) == (number + 1, "CANCELLED")
    assert LEDGER.asked[11] == 0


def test_a_peer_that_never_reads_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never_read(served: Served) -> None:
        raw = await RawSocket.upgraded(Address(served.port, None))
        await raw.ask({"type": "hello", "data": {"protocols": [1]}, "id": 1})
        opened = await raw.ask({"type": "open", "data": {}, "id": 2})
        monkeypatch.setattr(plane, "SEND_SECONDS", 0.1)
        raw.writer.transport.pause_reading()  # type: ignore[attr-defined]  # a transport that reads, too
        for number in range(1, 33):  # each reply has a megabyte
            await raw.say({"type": "reset", "session": opened["session"], "data": {"seed": 1}, "id": number})
        await asyncio.to_thread(until, lambda: connections(served) == 0)
        monkeypatch.undo()
        raw.reset()

    with serving("tests.server.witness_env:Talkative") as served:
        asyncio.run(never_read(served))

        with Talk(served, greet=True) as talk:
            assert Session(talk).ask("state")["type"] == "state"


@pytest.mark.parametrize("target", ["Witness", "QuickWitness", "AsyncWitness"])
@pytest.mark.parametrize("greet", [False, True])
def test_a_large_message_keeps_its_place_among_small_ones(target: str, greet: bool) -> None:
    said = {"greet": True} if greet else {}
    with serving(f"tests.server.witness_env:{target}") as served, Talk(served, **said) as talk:
        session = Session(talk) if greet else None
        send = talk.send if session is None else session.send
        send("reset", {"seed": 1})
        if session is not None:
            session.epoch = 1  # as it will be when the reset is answered
        for nonce in range(2, 20, 3):
            send("step", step(nonce))
            send("step", {**step(nonce + 1), "filler": "x" * 10**6})
            send("step", step(nonce + 2))
        replies = [talk.receive() for _ in range(1 + 3 * 6)]

    seen = [reply["data"].get("code") or reply["data"]["observation"]["nonce"] for reply in replies]
    assert seen == [1] + [each for nonce in range(2, 20, 3) for each in (nonce, "VALIDATION_ERROR", nonce + 2)]
    assert [reply.get("id") for reply in replies] == (list(range(1, 20)) if greet else [None] * 19)


def test_what_goes_wrong_in_the_server_itself_is_told_by_a_number(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a text from inside")

    with Talk(served, greet=True) as talk:
        session = Session(talk)
        session.ask("reset", {"seed": 1})
        monkeypatch.setattr(served.server.sessions, "resume", broken)
        monkeypatch.setattr(served.server.sessions, "open", broken)
        replies = [talk.ask("resume", {"session": "x", "resume_token": "y"}, id=3), talk.ask("open", {}, id=4)]

        for number, reply in enumerate(replies, start=3):
            assert (reply["id"], code_of(reply)) == (number, "SESSION_ERROR")
            assert reply["data"]["incident"]
            assert "inside" not in json.dumps(reply)
        assert session.ask("step", step(2))["data"]["step"] == 1


def test_no_more_sessions_are_opened_at_once_on_one_connection_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plane, "MOST_TASKS", 3)
    with serving(WITNESS, max_sessions=1) as served, Talk(served, greet=True) as talk:
        Session(talk)
        for number in range(2, 5):
            talk.send("open", {}, id=number)
        until(lambda: waiting(served) == 3)

        refusal = talk.ask("open", {}, id=5)

        assert (refusal["id"], code_of(refusal)) == (5, "BUSY")


# ------------------------------------------------------------------------------------------------- without a hello
def test_without_hello_replies_come_in_the_order_of_requests_whatever_they_are(served: Served) -> None:
    with Talk(served) as talk:
        held_without_hello(talk)
        talk.socket.send("{")
        talk.send("metadata")
        assert talk.socket.ping().wait(PATIENCE)
        LEDGER.release(HELD)
        replies = [talk.receive() for _ in range(3)]

    assert [reply["type"] for reply in replies] == ["observation", "error", "metadata"]


def test_without_hello_a_close_lets_the_running_step_be_answered(served: Served) -> None:
    with Talk(served) as talk:
        held_without_hello(talk)
        talk.send("close")
        assert talk.socket.ping(ack_on_close=True).wait(PATIENCE)
        LEDGER.release(HELD)

        assert talk.receive()["data"]["observation"]["nonce"] == HELD
        assert closed_with(talk) == 1000
    until(lambda: taken(served) == 0)


def test_without_hello_a_reply_says_no_more_than_openenv_knows(served: Served) -> None:
    with Talk(served) as talk:
        begun = talk.ask("reset", {"seed": 5, "episode_id": "one"})
        seen = talk.ask("step", step(6, "end"))
        state = talk.ask("state")
        late = talk.ask("step", step(8))

    instance = begun["data"]["observation"]["instance"]
    assert begun == {
        "type": "observation",
        "data": {
            "observation": {"instance": instance, "episode": 1, "step": 0, "nonce": 5},
            "reward": None,
            "done": False,
        },
    }
    assert seen["data"] == {
        "observation": {"instance": instance, "episode": 1, "step": 1, "nonce": 6},
        "reward": 6.0,
        "done": True,
    }
    assert state["data"]["episode_id"] == "one"
    assert set(late) == {"type", "data"}
    assert (code_of(late), late["data"]["clause"]) == ("STATE_ERROR", "NO-STEP-AFTER-END")


# ----------------------------------------------------------------------------------------------------- when all is full
def test_without_hello_a_full_server_says_so_in_openenvs_words_and_closes() -> None:
    with serving(WITNESS, max_sessions=1, max_waiting=0) as served, Talk(served) as first, Talk(served) as second:
        first.ask("reset", {"seed": 1})

        reply = second.ask("reset", {"seed": 2})

        assert (reply["type"], set(reply)) == ("error", {"type", "data"})
        assert code_of(reply) == "CAPACITY_REACHED"
        assert (reply["data"]["active_sessions"], reply["data"]["max_sessions"]) == (1, 1)
        assert closed_with(second) == 1000
        assert first.ask("step", step(3))["type"] == "observation"


def test_after_hello_a_full_server_refuses_a_session_and_the_socket_lives() -> None:
    with serving(WITNESS, max_sessions=1, max_waiting=0) as served, Talk(served, greet=True) as talk:
        session = Session(talk)

        refusal = talk.ask("open", {}, id=9)

        assert (code_of(refusal), refusal["id"]) == ("CAPACITY_REACHED", 9)
        assert session.ask("close")["type"] == "closed"
        until(lambda: taken(served) == 0)
        assert talk.ask("open", {}, id=10)["type"] == "opened"


@pytest.mark.parametrize("greet", [False, True])
def test_who_waits_for_a_slot_gets_it_when_another_session_ends(greet: bool) -> None:
    with serving(WITNESS, max_sessions=1) as served, Talk(served) as first:
        first.ask("reset", {"seed": 1})
        with Talk(served, greet=True) if greet else Talk(served) as second:
            _wish(second, greet)
            until(lambda: waiting(served) == 1)
            first.send("close")

            assert second.receive()["type"] == ("opened" if greet else "observation")
            assert (taken(served), waiting(served)) == (1, 0)


@pytest.mark.parametrize("greet", [False, True])
def test_who_waits_for_a_slot_and_leaves_gives_its_place_up(greet: bool) -> None:
    with serving(WITNESS, max_sessions=1) as served, Talk(served) as first:
        first.ask("reset", {"seed": 1})
        gone = Talk(served, greet=True) if greet else Talk(served)
        _wish(gone, greet)
        until(lambda: waiting(served) == 1)
        gone.socket.close()
        until(lambda: waiting(served) == 0)
        with Talk(served, greet=True) as next_one:
            _wish(next_one, True)
            until(lambda: waiting(served) == 1)
            first.send("close")

            assert next_one.receive()["type"] == "opened"
        until(lambda: connections(served) == 0)


def _wish(talk: Talk, greet: bool) -> None:
    if greet:
        talk.send("open", {}, id=1)
    else:
        talk.send("reset", {"seed": 2})


def test_who_leaves_while_its_environment_is_made_leaves_nothing_behind() -> None:
    with serving(WITNESS, max_sessions=1) as served:
        for _ in range(20):
            talk = Talk(served, greet=True)
            talk.send("open", {}, id=1)
            talk.socket.close_socket()
        # Some of them got a session before they were gone; it waits for its client, and ends by the clock alone.
        until(lambda: connections(served) == 0)
        until(lambda: waiting(served) == 0)
        sessions = served.server.sessions
        until(lambda: taken(served) == served.on_loop(lambda: len(sessions.channels)))


# --------------------------------------------------------------------------------------------------------- greetings
def test_hello_is_answered_with_what_was_agreed_on(served: Served) -> None:
    with Talk(served, packed=True, compression=True, client="a test") as talk:
        welcome = talk.welcome

    assert welcome["type"] == "hello"
    assert welcome["data"] == {
        "protocol": PROTOCOL,
        "server": welcome["data"]["server"],
        "boot": served.server.sessions.boot,
        "environment": "Witness",
        "address": None,
        "packed": True,
        "compression": True,
        "max_message_bytes": 16 * 2**20,
        "max_pending": 2,
    }


def test_hello_a_second_time_is_refused_and_changes_nothing(served: Served) -> None:
    with Talk(served, greet=True) as talk:
        session = Session(talk)
        session.ask("reset", {"seed": 1})

        refusal = talk.ask("hello", {"protocols": [1]}, id=5)

        assert (code_of(refusal), refusal["id"]) == ("PROTOCOL_ERROR", 5)
        assert session.ask("step", step(3))["type"] == "observation"


def test_hello_after_another_message_is_refused_and_the_session_goes_on_without(served: Served) -> None:
    with Talk(served) as talk:
        talk.ask("reset", {"seed": 1})

        refusal = talk.ask("hello", {"protocols": [1]})

        assert code_of(refusal) == "PROTOCOL_ERROR"
        assert set(talk.ask("step", step(3))) == {"type", "data"}


def test_a_protocol_that_nobody_speaks_is_refused_and_openenvs_is_left(served: Served) -> None:
    with Talk(served) as talk:
        refusal = talk.ask("hello", {"protocols": [2, 99]})

        assert code_of(refusal) == "UNSUPPORTED_PROTOCOL"
        assert talk.ask("reset", {"seed": 1})["type"] == "observation"


def test_the_highest_common_protocol_is_taken(served: Served) -> None:
    with Talk(served) as talk:
        assert talk.ask("hello", {"protocols": [99, 1]}, id=1)["data"]["protocol"] == PROTOCOL


# ------------------------------------------------------------------------------------------------ what is no request
@pytest.mark.parametrize("greet", [False, True])
def test_a_binary_frame_is_refused_and_touches_no_session(served: Served, greet: bool) -> None:
    with Talk(served, greet=True) if greet else Talk(served) as talk:
        session = Session(talk) if greet else None
        ask = talk.ask if session is None else session.ask
        ask("reset", {"seed": 1})
        talk.socket.send(b'{"type": "step"}')
        refusal = talk.receive()

        assert (refusal["type"], code_of(refusal)) == ("error", "INVALID_JSON")
        assert ask("step", step(3))["data"]["observation"]["step"] == 1


def test_a_message_that_is_too_large_ends_the_connection_with_1009_and_its_session_can_be_resumed() -> None:
    with serving(WITNESS, limits={"max_message_bytes": 1000}) as served:
        talk = Talk(served, greet=True)
        session = Session(talk)
        session.ask("reset", {"seed": 1})
        talk.socket.send("x" * 2000)

        assert closed_with(talk) == 1009
        with Talk(served, greet=True) as second:
            wish = {"session": session.name, "resume_token": session.opened["resume_token"]}
            assert second.ask("resume", wish, id=1)["type"] == "resumed"


def test_too_many_requests_are_refused_and_can_be_sent_again() -> None:
    with serving(WITNESS, limits={"requests_per_second": 0.001, "burst": 4}) as served:
        with Talk(served, greet=True) as talk:
            session = Session(talk)
            session.ask("reset", {"seed": 1})
            session.ask("step", step(2))

            refusal = session.ask("step", step(3))

        assert (code_of(refusal), refusal["id"], refusal["session"]) == ("RATE_LIMITED", 3, session.name)
        assert 0 < refusal["data"]["retry_after_seconds"] <= 1000
        assert LEDGER.asked[3] == 0
        with Talk(served, greet=True) as second:
            wish = {"session": session.name, "resume_token": session.opened["resume_token"]}
            assert second.ask("resume", wish, id=1)["data"]["last_id"] == 2
            beside = {"id": 3, "session": session.name, "epoch": 1}
            assert second.ask("step", step(3), **beside)["data"]["step"] == 2


def test_frames_that_are_no_requests_count_as_requests_do() -> None:
    with serving(WITNESS, limits={"requests_per_second": 0.001, "burst": 2}) as served, Talk(served) as talk:
        codes = []
        for frame in (b"binary", "{", b"binary", "{"):
            talk.socket.send(frame)
            codes.append(code_of(talk.receive()))

    assert codes == ["INVALID_JSON", "INVALID_JSON", "RATE_LIMITED", "RATE_LIMITED"]


# --------------------------------------------------------------------------------------------------------- going over
def test_a_session_is_resumed_by_its_own_connection_too(served: Served) -> None:
    with Talk(served, greet=True) as talk:
        session = Session(talk)
        session.ask("reset", {"seed": 1})
        wish = {"session": session.name, "resume_token": session.opened["resume_token"]}

        resumed = talk.ask("resume", wish, id=7)

        assert (resumed["type"], resumed["id"], resumed["epoch"], resumed["data"]["step"]) == ("resumed", 7, 1, 0)
        assert session.ask("step", step(3))["type"] == "observation"


class LateReader:
    """Reads large frames only when it is told to."""

    def __init__(self) -> None:
        self.reads = threading.Event()
        self._released = asyncio.Event()

    async def read(self, work: Callable[[], Any], name: str) -> Any:
        self.reads.set()
        await self._released.wait()
        return work()

    def release(self, served: Served) -> None:
        """Let the frame be read and answered."""
        assert self.reads.wait(PATIENCE)
        served.on_loop(self._released.set)
        served.on_loop(lambda: asyncio.sleep(0))


def large(kind: str, data: Any, **beside: Any) -> str:
    return json.dumps({"type": kind, "data": data, **beside}) + " " * (plane.LARGE + 1)


def test_a_resume_that_is_read_when_its_connection_is_gone_takes_the_session_from_nobody(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = LateReader()
    with Talk(served, greet=True) as holder:
        session = Session(holder)
        session.ask("reset", {"seed": 1})
        monkeypatch.setattr(plane, "run_on_thread", reader.read)
        gone = Talk(served, greet=True)
        wish = {"session": session.name, "resume_token": session.opened["resume_token"]}
        gone.socket.send(large("resume", wish, id=1))
        assert reader.reads.wait(PATIENCE)
        gone.socket.close_socket()
        until(lambda: connections(served) == 1)

        reader.release(served)

        assert session.ask("step", step(3))["type"] == "observation"


def test_a_request_that_is_read_when_its_connection_is_gone_opens_no_session(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = LateReader()
    monkeypatch.setattr(plane, "run_on_thread", reader.read)
    gone = Talk(served)
    gone.socket.send(large("reset", {"seed": 1}))
    assert reader.reads.wait(PATIENCE)
    gone.socket.close_socket()
    until(lambda: connections(served) == 0)

    reader.release(served)
    monkeypatch.undo()

    with Talk(served) as other:  # what came before it has been begun by now
        assert other.ask("reset", {"seed": 1})["type"] == "observation"
        assert taken(served) == 1


# ---------------------------------------------------------------------------------------------------------- encodings
def batch(served: Served, **hello: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what a batch session is told after a reset and a step."""
    with Talk(served, greet=True, **hello) as talk:
        session = Session(talk, num_envs=512)
        actions = [number % 2 for number in range(512)]
        begun = session.ask("reset", {"seed": 3})
        return begun["data"], session.ask("step", {"actions": actions})["data"]


def unpacked(packed: dict[str, Any]) -> Any:
    raw = base64.b64decode(packed["data"])
    raw = zlib.decompress(raw) if packed.get("zip") == "zlib" else raw
    return np.frombuffer(raw, packed["dtype"]).reshape(packed["shape"])


def test_arrays_are_lists_unless_bytes_were_agreed_on_and_small_ones_stay_as_they_are() -> None:
    with serving("CartPole-v1") as served:
        plain = batch(served)
        packed = batch(served, packed=True)
        small = batch(served, packed=True, compression=True)

    for told, as_bytes, made_smaller in zip(plain, packed, small, strict=True):
        observations = np.asarray(told["observations"], np.float32)
        assert "zip" not in as_bytes["observations"]
        assert made_smaller["observations"]["zip"] == "zlib"
        np.testing.assert_array_equal(unpacked(as_bytes["observations"]), observations)
        np.testing.assert_array_equal(unpacked(made_smaller["observations"]), observations)
    assert "zip" not in small[1]["terminations"]
    np.testing.assert_array_equal(unpacked(small[1]["rewards"]), plain[1]["rewards"])


async def test_the_socket_itself_compresses_nothing(served: Served) -> None:
    raw = await RawSocket.connected(Address(served.port, None))
    await raw.send(handshake(Address(served.port, None), extra="Sec-WebSocket-Extensions: permessage-deflate\r\n"))
    status, head = await raw.response_head()
    raw.reset()
    assert status == 101
    assert b"permessage-deflate" not in head


def test_metadata_and_schema_say_the_same_as_http(served: Served) -> None:
    with Talk(served) as talk:
        metadata, schema = talk.ask("metadata"), talk.ask("schema")

    assert metadata["data"]["name"] == "Witness"
    assert set(schema["data"]["action"]["properties"]) == {"nonce", "how"}
    assert json.dumps(schema["data"]["spaces"]) == "null"


HERE = "tests.server.environments"


def test_a_closed_session_is_forgotten_although_its_connection_goes_on() -> None:
    with serving() as served, Talk(served, greet=True) as talk:
        kept = []
        for _ in range(5):
            session = Session(talk)
            session.ask("reset")
            kept.append(served.on_loop(partial(watched, served, session.name)))
            assert session.ask("close")["type"] == "closed"

        until(lambda: served.on_loop(gc.collect) >= 0 and not [each for each in kept if each() is not None])
        assert talk.ask("metadata", id=99)["type"] == "metadata"


def watched(served: Served, name: str) -> weakref.ref[ServerSession]:
    return weakref.ref(served.server.sessions.channels[name].session)


class Slow:
    """A socket whose first reply waits until it is let go."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.gate = asyncio.Event()

    async def send(self, message: Any) -> None:
        if not self.sent:
            self.sent.append({})
            await self.gate.wait()
        self.sent.append(json.loads(message["text"]))


def test_no_frame_overtakes_another_that_waits_for_one_before_it() -> None:
    with serving() as served:
        types = served.on_loop(lambda: overtaking(served))

    assert types == ["metadata", "schema", "error"]


async def overtaking(served: Served) -> list[str]:
    """Return the replies to a metadata, a schema and nonsense, where the first is held up and the last is heard early."""
    socket, inbox, writable = Slow(), asyncio.Queue[Any](), asyncio.Event()
    writable.set()
    scope = {"extensions": {ABORT: lambda: None, WRITABLE: writable}, "headers": []}
    connection = ControlConnection(served.server.plane, scope, socket.send)
    serve = asyncio.create_task(connection.serve(inbox.get))
    assert connection.hear('{"type":"metadata"}')
    inbox.put_nowait({"type": "websocket.receive", "text": '{"type":"schema"}'})
    for _ in range(5):
        await asyncio.sleep(0)
    socket.gate.set()
    for _ in range(20):
        # As a socket does: at once if it can be, else behind the others.
        if not inbox.qsize() and connection.hear('{"type":"nonsense"}'):
            break
        await asyncio.sleep(0)
    inbox.put_nowait({"type": "websocket.disconnect"})
    await serve
    return [message["type"] for message in socket.sent[1:]]


def test_a_server_that_stops_begins_nothing_new_in_the_sessions_that_it_has() -> None:
    key = f"test-{uuid.uuid4().hex}"
    blocking = serving(f"{HERE}:Blocking", settings={"key": key}, drain_seconds=15)
    with blocking as served, Talk(served, greet=True) as talk, Talk(served, greet=True) as other:
        held_up, free = Session(talk), Session(other)
        held_up.ask("reset")
        free.ask("reset")
        held_up.send("step", {"action": 9})
        assert diary(key).reached.wait(300)
        served.loop.call_soon_threadsafe(served.server.stop)
        assert other.receive()["type"] == "warning"

        refusal = free.ask("step", {"action": 1})
        diary(key).gate.set()

        assert refusal["data"]["code"] == "SHUTTING_DOWN"
        assert talk.receive()["type"] == "warning"
        assert talk.receive()["type"] == "observation"
