"""First bytes that are no handshake, or a wrong one: refused with a 4xx or by closing, never with a 5xx, never let in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.server.attacks.raw_socket import Address, handshake

Edit = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class BadHandshake:
    """What to send first; `patient` leaves the server waiting, and the attacker hangs up."""

    make: Callable[[Random, Address], bytes]
    patient: bool = False


def edited(*edits: Edit) -> BadHandshake:
    """Return a good handshake with one of the edits, each being what to find and what to put there."""

    def make(rng: Random, address: Address) -> bytes:
        found, put = rng.choice(edits)
        whole = handshake(address)
        if found not in whole:
            raise LookupError(found)
        return whole.replace(found, put, 1)

    return BadHandshake(make)


def with_key(key: bytes) -> Callable[[bytes], bytes]:
    """Return an edit of the key's line."""
    return lambda whole: b"\r\n".join(
        b"Sec-WebSocket-Key: " + key if line.startswith(b"Sec-WebSocket-Key") else line for line in whole.split(b"\r\n")
    )


def bad_key(rng: Random, address: Address) -> bytes:
    """Return a handshake whose key is none."""
    key = rng.choice((b"", b"x", b"AAAA", b"!" * 24, b"A" * 1_000, b"dGhlIHNhbXBsZSBub25jZQ", b"\xff" * 24))
    return with_key(key)(handshake(address))


def unknown_caller(rng: Random, address: Address) -> bytes:
    """Return a handshake without the secret, or with a wrong one."""
    secret = address.secret or ""
    tries = (
        *(b"", b"Bearer", b"Bearer ", b"Basic", b"Basic !!!", b"Basic cHJvY3Rvcjo=", b"Bearer x", b"Digest x"),
        b"Bearer " + b"x" * 5_000,
    )
    near = (f"Bearer {secret[:-1]}", f"Bearer {secret}x", f"Bearer {secret.upper()}", f"bearer  {secret[::-1]}", secret)
    line = rng.choice((*tries, *(text.encode() for text in near)))
    good = address.authorization().encode()
    return handshake(address).replace(good, b"Authorization: " + line + b"\r\n" if line else b"", 1)


def cut(rng: Random, address: Address) -> bytes:
    """Return the first part of a good handshake."""
    whole = handshake(address)
    return whole[: rng.randrange(1, len(whole) - 1)]


def garbage(rng: Random, _: Address) -> bytes:
    """Return what is no HTTP/1.1 at all."""
    return rng.choice(
        (
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(200),
            *(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x00" * 100 + b"\r\n\r\n"),
            *(rng.randbytes(rng.randrange(1, 300)) + b"\r\n\r\n", b"GET\r\n\r\n", b"GET /ws\r\n\r\n"),
            *(b"GET /ws HTTP/9.9\r\n\r\n", b"\r\n" * 50 + b"x\r\n\r\n", b"EHLO example\r\n\r\n"),
        )
    )


def smuggled(rng: Random, address: Address) -> bytes:
    """Return a request whose length is said twice, or falsely."""
    host = f"{address.host}:{address.port}".encode()
    common = b"POST /mcp HTTP/1.1\r\nHost: " + host + b"\r\n" + address.authorization().encode()
    return common + rng.choice(
        (
            b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /state HTTP/1.1\r\n\r\n",
            b"Content-Length: -5\r\n\r\n{}",
            b"Content-Length: 1, 2\r\n\r\n{}",
            b"Content-Length: abc\r\n\r\n{}",
            b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
            b"Transfer-Encoding: chunked\r\n\r\nzzz\r\n{}\r\n0\r\n\r\n",
            b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n{}\r\n",
        )
    )


CASES: Final[dict[str, BadHandshake]] = {
    "wrong upgrade": edited(
        (b"Upgrade: websocket", b"Upgrade: h2c"),
        (b"Upgrade: websocket\r\n", b""),
        (b"Connection: Upgrade\r\n", b"Connection: close\r\n"),
        (b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Version: 8"),
        (b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Version: 99999999999999999999"),
        (b"Sec-WebSocket-Version: 13\r\n", b""),
        (b"GET", b"POST"),
        (b"GET", b"PUT"),
    ),
    "bad key": BadHandshake(bad_key),
    "wrong path": edited(
        *((b"/ws", path) for path in (b"/", b"/ws/", b"//ws", b"/mcp", b"/ws/../ws", b"/%77s%00", b"/" + b"w" * 5_000))
    ),
    "wrong host or origin": edited(
        (b"Host: 127.0.0.1", b"Host: example.com"),
        (b"Host: 127.0.0.1", b"Host: 127.0.0.1.example.com"),
        (b"Host: 127.0.0.1", b"Host: x@127.0.0.1"),
        (b"Upgrade: ", b"Host: example.com\r\nUpgrade: "),
        (b"Upgrade: ", b"Origin: http://example.com\r\nUpgrade: "),
        (b"Upgrade: ", b"Origin: null\r\nUpgrade: "),
    ),
    "spoilt headers": edited(
        (b"Upgrade: ", b"X: " + b"y" * 200_000 + b"\r\nUpgrade: "),
        (b"Upgrade: ", b"X: 1\r\n" * 5_000 + b"Upgrade: "),
        (b"Upgrade: ", b"no colon here\r\nUpgrade: "),
        (b"Upgrade: ", b"X\x00Y: 1\r\nUpgrade: "),
        (b"Upgrade: ", b": nothing\r\nUpgrade: "),
    ),
    "unknown caller": BadHandshake(unknown_caller),
    "garbage": BadHandshake(garbage),
    "smuggled": BadHandshake(smuggled),
    "half a handshake": BadHandshake(cut, patient=True),
    "a body that never comes": BadHandshake(
        lambda _, address: (
            f"POST /mcp HTTP/1.1\r\nHost: {address.host}:{address.port}\r\n{address.authorization()}Content-Length: 99999\r\n\r\n{{"
        ).encode(),
        patient=True,
    ),
}
