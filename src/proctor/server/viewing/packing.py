"""Answers as they are sent: large ones made smaller where the browser can read them so, and news as events."""

import zlib
from typing import Final

LARGE: Final = 32 * 1024
LEVEL: Final = 1
"""The quickest: the way is short."""
GZIP: Final = 16 + zlib.MAX_WBITS


def accepts_gzip(header: str) -> bool:
    """Return whether an Accept-Encoding header takes gzip."""
    for each in header.lower().split(","):
        name, _, weight = each.partition(";")
        if name.strip() in {"gzip", "*"}:
            return weight.replace(" ", "") not in {"q=0", "q=0.0", "q=0.00", "q=0.000"}
    return False


def packed(body: bytes) -> bytes:
    """Return the body as gzip has it."""
    press = zlib.compressobj(LEVEL, wbits=GZIP)
    return press.compress(body) + press.flush()


def packed_if_large(body: bytes, packs: bool) -> tuple[bytes, bool]:
    """Return the body, packed if it may be and that is worth it, and whether it is."""
    return (packed(body), True) if packs and len(body) > LARGE else (body, False)


def event(name: str, raw: bytes) -> bytes:
    """Return an event; what agents wrote may hold line breaks, each of which needs a `data` of its own."""
    return b"".join((f"event: {name}\n".encode(), *(b"data: %b\n" % part for part in raw.splitlines()), b"\n"))
