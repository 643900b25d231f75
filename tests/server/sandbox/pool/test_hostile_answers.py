"""An environment that answers with the worst that is legal takes neither memory nor the loop from a server and its neighbours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from websockets.sync.client import ClientConnection, connect

from bench.attacks.hostile_answers import ATTACKS, FIRST_ATTACK, MIB, MOST_REPLY, STEP, TARGET, socket_of
from bench.control_servers import TOKEN, Server, ours, started
from proctor.models.control import Code
from tests.server.live_server import PATIENCE

KIB = 7900
"""A little less than an answer may have."""
LOST = ("errors", "left")
"""Attacks that no answer may have in it."""


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Give a server, in a process of its own, whose environment is hostile if its seed says so."""
    with ExitStack() as stack:
        yield started(stack, ours(TARGET, "--set", f"kib={KIB}", sandbox="process"))


@contextmanager
def session(server: Server, seed: int) -> Iterator[ClientConnection]:
    """Give a connection whose episode has begun."""
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with connect(
        socket_of(server.url), additional_headers=headers, max_size=MOST_REPLY, compression=None, ping_interval=None
    ) as connection:
        ask(connection, json.dumps({"type": "reset", "data": {"seed": seed}}))
        yield connection


def ask(connection: ClientConnection, message: str = STEP) -> bytes:
    connection.send(message)
    return connection.recv(PATIENCE, decode=False)


def memory(server: Server, field: str) -> int:
    """Return the bytes that the system says the server takes, or took at most."""
    status = Path(f"/proc/{server.pid}/status").read_text()
    found = re.search(rf"{field}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_hostile_answer_takes_little_memory_and_its_neighbour_goes_on(server: Server, attack: str) -> None:
    with session(server, 1) as witness, session(server, FIRST_ATTACK + list(ATTACKS).index(attack)) as hostile:
        first = json.loads(ask(witness))
        Path(f"/proc/{server.pid}/clear_refs").write_text("5")  # what it took at most is counted from here
        before = memory(server, "VmRSS")
        answers = [ask(hostile) for _ in range(2)]
        grown = memory(server, "VmHWM") - before
        second = json.loads(ask(witness))

    if attack in LOST:
        assert json.loads(answers[0])["data"]["lost"]
        assert json.loads(answers[1])["data"]["code"] == Code.EPISODE_LOST
    else:
        is_told = attack != "scenes"
        assert [len(each) > KIB * 1000 for each in answers] == [is_told, is_told]
    assert (first["data"]["observation"], second["data"]["observation"]) == ({"observation": 1}, {"observation": 2})
    # It takes 40 MiB, most of it copies of the answer; the lists, built, would take 180.
    assert grown < 120 * MIB


def test_an_answer_beyond_the_limit_loses_its_episode_and_the_next_begins() -> None:
    with ExitStack() as stack:
        server = started(stack, ours(TARGET, "--set", f"kib={KIB + 500}", sandbox="process"))
        with session(server, FIRST_ATTACK) as hostile:
            lost = json.loads(ask(hostile))["data"]
            ask(hostile, '{"type":"reset","data":{"seed":1}}')
            after = json.loads(ask(hostile))["data"]

    assert (lost["code"], lost["lost"]) == (Code.TOO_LARGE, True)
    assert after["observation"] == {"observation": 1}
