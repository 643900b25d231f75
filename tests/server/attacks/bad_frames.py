"""Frames that break RFC 6455, or a limit: the server must close the connection, and only that one.

Rule 1: each case is what is sent after the handshake, and the close codes that a server may give; None stands for a
    connection closed without a close frame.
Rule 2: `patient` cases leave the server waiting for bytes that never come: there the attacker hangs up.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.server.attacks.raw_socket import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, frame, head

STATE: Final = b'{"type":"state"}'
BAD_UTF8: Final = (
    *(b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b'{"type":"\xe2\x28\xa1"}', STATE + b"\xc3"),
    b"\x80" * 500,
)
BROKEN_RULE: Final = frozenset({1002, None})
BAD_TEXT: Final = frozenset({1007, None})
TOO_LARGE: Final = frozenset({1009, None})
MASK: Final = b"abcd"


@dataclass(frozen=True, slots=True)
class BadFrames:
    """What to send, and how it may end."""

    make: Callable[[Random], bytes]
    codes: frozenset[int | None] = BROKEN_RULE
    patient: bool = False


def control_too_long(rng: Random) -> bytes:
    """Return a control frame of more than 125 bytes."""
    return frame(b"x" * rng.randrange(126, 5_000), rng.choice((PING, PONG, CLOSE)))


def reserved_opcode(rng: Random) -> bytes:
    """Return a frame of a kind that does not exist."""
    return frame(STATE, rng.choice((3, 4, 5, 6, 7, 0xB, 0xC, 0xD, 0xE, 0xF)))


def interleaved(rng: Random) -> bytes:
    """Return a message that begins inside of another."""
    inner = frame(STATE, rng.choice((TEXT, BINARY)), final=rng.random() < 0.5)
    return frame(STATE[:5], final=False) + inner + frame(STATE[5:], CONTINUATION)


def endless(rng: Random) -> bytes:
    """Return fragments that add up to more than a message may have, and no end."""
    piece = frame(b"[" * 65_536, CONTINUATION, final=False)
    return frame(b"[", rng.choice((TEXT, BINARY)), final=False) + piece * 20


def claim(rng: Random) -> bytes:
    """Return the head of a frame that says it is far too large, and a little of it."""
    length = rng.choice((64 * 2**20, 2**31, 2**32 + 7, 2**62, 2**20 + 1))
    return head(length, rng.choice((TEXT, BINARY))) + b"x" * rng.randrange(64)


def negative_claim(rng: Random) -> bytes:
    """Return a length whose highest bit is set, which no length may have."""
    return struct.pack("!BBQ", 0x81, 0xFF, 2**63 + rng.randrange(2**20)) + MASK + b"x" * 16


def length_lie(rng: Random) -> bytes:
    """Return a frame that says it is longer than what comes."""
    said = rng.randrange(len(STATE) + 1, 100_000)
    return head(said) + STATE


def bad_close(rng: Random) -> bytes:
    """Return a close frame with a code or a reason that must not be sent."""
    codes = (0, 1, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535)
    return rng.choice(
        (
            frame(b"\x03", CLOSE),
            frame(struct.pack("!H", rng.choice(codes)), CLOSE),
            frame(struct.pack("!H", 1000) + b"\xff\xfe", CLOSE),
        )
    )


def bomb(rng: Random) -> bytes:
    """Return 64 MB in a few thousand bytes, as a compressed frame: refused, or stopped while it grows."""
    return frame(_BOMB, TEXT, reserved=0b100)


def _squeezed() -> bytes:
    squeezer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = b"[" * 2**20
    whole = b"".join(squeezer.compress(block) for _ in range(64)) + squeezer.flush(zlib.Z_SYNC_FLUSH)
    return whole[:-4]


_BOMB: Final = _squeezed()

CASES: Final[dict[str, BadFrames]] = {
    "unmasked": BadFrames(lambda rng: frame(STATE, rng.choice((TEXT, BINARY, PING)), masked=False)),
    "reserved bits": BadFrames(lambda rng: frame(STATE, reserved=rng.randrange(1, 8))),
    "reserved opcode": BadFrames(reserved_opcode),
    "control too long": BadFrames(control_too_long),
    "control in fragments": BadFrames(lambda rng: frame(b"x", rng.choice((PING, PONG, CLOSE)), final=False)),
    "continues nothing": BadFrames(lambda rng: frame(STATE, CONTINUATION, final=rng.random() < 0.5)),
    "interleaved": BadFrames(interleaved),
    "bad UTF-8": BadFrames(lambda rng: frame(rng.choice(BAD_UTF8)), BAD_TEXT),
    "bad UTF-8 in fragments": BadFrames(
        lambda rng: frame(STATE, final=False) + frame(rng.choice(BAD_UTF8), CONTINUATION), BAD_TEXT
    ),
    "bad close": BadFrames(bad_close, frozenset({1002, 1007, None})),
    "talks after close": BadFrames(
        lambda rng: frame(struct.pack("!H", 1000), CLOSE) + frame(STATE) * rng.randrange(1, 50), frozenset({1000, None})
    ),
    "claims too much": BadFrames(claim, TOO_LARGE),
    "claims a negative length": BadFrames(negative_claim, frozenset({1002, 1009, None})),
    "endless fragments": BadFrames(endless, TOO_LARGE),
    "compressed bomb": BadFrames(bomb, frozenset({1002, 1009, None})),
    "length lie": BadFrames(length_lie, patient=True),
    "half a head": BadFrames(lambda rng: head(300)[: rng.randrange(1, 8)], patient=True),
    "fragments without an end": BadFrames(
        lambda rng: frame(b"[", final=False) + frame(b"1,", CONTINUATION, final=False) * rng.randrange(1, 500),
        patient=True,
    ),
}
