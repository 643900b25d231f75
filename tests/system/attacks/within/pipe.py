"""The worker's own socket to the server: whatever is said there, only its own session may suffer."""

from __future__ import annotations

import array
import os
import pickle
import socket
import stat
import struct
import threading
from collections.abc import Iterator
from typing import Any

import msgspec

from tests.system.attacks.within.tries import Tries, inside

PIECE = 2**20
FORGED = "a line that nobody wrote"


def own_socket() -> socket.socket:
    """Return the socket that leads to the server: the first that is open."""
    for number in range(3, 1024):
        try:
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                return socket.socket(fileno=os.dup(number))
        except OSError:
            continue
    raise LookupError("there is no socket")


def framed(value: Any) -> bytes:
    """Return a message as the server reads it."""
    body = value if isinstance(value, bytes) else msgspec.msgpack.encode(value)
    return struct.pack("!I", len(body)) + body


def outcome(observation: bytes = b"{}", **more: Any) -> dict[str, Any]:
    """Return a good answer to a step."""
    return {"outcome": {"observation": observation, "metadata": b"{}", **more}}


def never() -> None:
    """Leave it at what was said."""
    while True:
        threading.Event().wait(3600)


@inside
def nonsense(tries: Tries) -> None:
    """Answer with bytes that are no message."""
    own_socket().sendall(framed(os.urandom(500)))
    never()


@inside
def a_length_that_is_too_large(tries: Tries) -> None:
    """Say that four gigabytes follow, and send some."""
    own_socket().sendall(struct.pack("!I", 2**32 - 1) + b"x" * PIECE)
    never()


@inside
def half_a_message(tries: Tries) -> None:
    """Say that eight megabytes follow, send one, and wait."""
    own_socket().sendall(struct.pack("!I", 8 * PIECE) + b"x" * PIECE)
    never()


@inside
def a_flood(tries: Tries) -> None:
    """Send as much as the socket takes, without end, from several threads."""
    channel = own_socket()
    for _ in range(4):
        threading.Thread(target=_poured, args=(channel,), daemon=True).start()
    never()


def _poured(channel: socket.socket) -> None:
    piece = framed(outcome()) * 1000
    while True:
        channel.sendall(piece)


@inside
def an_answer_too_many(tries: Tries) -> None:
    """Answer, and answer again what nobody asked, in the hope that it is taken for the answer to another's question."""
    own_socket().sendall(framed(outcome(b'{"first":1}')) + framed(outcome(b'{"second":2}', terminated=True)))
    never()


@inside
def answers_while_nobody_asks(tries: Tries) -> None:
    """Leave a thread behind that goes on talking when the step is over."""
    channel = own_socket()

    def talk() -> None:
        threading.Event().wait(0.5)
        channel.sendall(framed(outcome(b'{"late":1}')))

    threading.Thread(target=talk, daemon=True).start()
    tries.held("a thread", True, "talks when nobody asked")


@inside
def a_pickle(tries: Tries) -> None:
    """Answer with a pickle that writes a file for whoever opens it."""
    own_socket().sendall(framed(pickle.dumps(_Opened(f"{tries.clue.folder}/pwned"))))
    never()


class _Opened:
    def __init__(self, path: str) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (self._path,))


@inside
def a_forged_code(tries: Tries) -> None:
    """Answer with an error of a code that there is not."""
    own_socket().sendall(framed({"failed": {"message": FORGED, "code": "ROOT"}}))
    never()


@inside
def a_forged_incident(tries: Tries) -> None:
    """Answer with an error whose incident and text would begin lines of their own in the log."""
    line = '\n{"time":"2020-01-01T00:00:00.000Z","level":"info","logger":"proctor.server","event":"' + FORGED + '"}\n'
    problem = {
        "message": FORGED + line * 3 + "\x1b[2J" + "x" * 100_000,
        "code": "EXECUTION_ERROR",
        "incident": line,
        "lost": True,
    }
    own_socket().sendall(framed({"failed": problem, "trace": line * 1000 + "\x1b]0;owned\x07"}))
    never()


@inside
def injected_fields(tries: Tries) -> None:
    """Answer with an observation that closes its own object and adds fields to the server's reply."""
    own_socket().sendall(
        framed(outcome(b'{"count":1},"reward":999999,"done":true,"session":"another","grant":{"token":"x"}'))
    )
    never()


@inside
def numbers_that_are_none(tries: Tries) -> None:
    """Answer with a reward that is not a number."""
    own_socket().sendall(framed(outcome(reward=float("nan"))))
    never()


@inside
def nested_without_end(tries: Tries) -> None:
    """Answer with JSON that is nested a million times, and with MessagePack that is."""
    own_socket().sendall(framed(outcome(b'{"a":' + b"[" * PIECE + b"]" * PIECE + b"}")))
    never()


@inside
def nested_messages(tries: Tries) -> None:
    """Answer with MessagePack that is nested a million times."""
    own_socket().sendall(framed(b"\x81\xa1a" + b"\x91" * PIECE + b"\xc0"))
    never()


@inside
def descriptors_for_the_server(tries: Tries) -> None:
    """Send the server thousands of descriptors, so that it has none left for others."""
    channel = own_socket()
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(100)]
    rights = array.array("i", opened)
    body = framed(outcome())
    channel.sendmsg([body[:4]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    for byte in body[4:-1]:
        channel.sendmsg([bytes([byte])], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    channel.sendall(body[-1:])
    never()


@inside
def a_very_long_answer(tries: Tries) -> None:
    """Answer with 200 MB."""
    _answered_with(200 * PIECE)
    never()


@inside
def a_rather_long_answer(tries: Tries) -> None:
    """Answer with 7 MB, which is allowed, so that others wait while they are read."""
    _answered_with(7 * PIECE)
    never()


@inside
def tiny_lists(tries: Tries) -> None:
    """Answer with 7 MB of empty lists, which is allowed, so that the server builds two million values."""
    observation = b'{"a":[' + b"[]," * (7 * PIECE // 3) + b"[]]}"
    head = b"\x81\xa7outcome\x82\xa8metadata\xc4\x02{}\xabobservation\xc6" + struct.pack("!I", len(observation))
    own_socket().sendall(struct.pack("!I", len(head) + len(observation)) + head + observation)
    never()


@inside
def errors_without_end(tries: Tries) -> None:
    """Refuse with seven million errors, so that the server builds them."""
    head = b"\x81\xa7refused\x83\xa7message\xa2no\xa4code\xa4BUSY\xa6errors\xdd" + struct.pack("!I", 7 * PIECE)
    own_socket().sendall(struct.pack("!I", len(head) + 7 * PIECE) + head + b"\x80" * (7 * PIECE))
    never()


def _answered_with(size: int) -> None:
    channel = own_socket()
    for piece in _long(size):
        channel.sendall(piece)


def _long(size: int) -> Iterator[bytes]:
    text = size - 8
    head = b"\x81\xa7outcome\x82\xa8metadata\xc4\x02{}\xabobservation\xc6" + struct.pack("!I", size)
    yield struct.pack("!I", len(head) + size) + head + b'{"a":"'
    for _ in range(text // PIECE):
        yield b"x" * PIECE
    yield b"x" * (text % PIECE) + b'"}'
