"""What a connection may not do however long it lasts: keep what has ended, let a frame overtake, or hold up the end."""

from __future__ import annotations

import asyncio
import gc
import json
import uuid
import weakref
from functools import partial
from typing import Any

from proctor.access.limits import RequestLimits
from proctor.server.control.websocket import ControlConnection
from proctor.server.sessions.session import Session as ServerSession
from tests.server.environments import diary
from tests.server.live_server import Served, Session, Talk, serving, until

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
    server = served.server
    connection = ControlConnection(
        socket.send,
        lambda: None,
        writable,
        server.sessions,
        server.plane._description,
        server.metrics,
        limits=RequestLimits(),
        max_pending=4,
        address=None,
    )
    serve = asyncio.create_task(connection.serve(inbox.get, lambda listener: None))
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
