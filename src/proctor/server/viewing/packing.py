"""Large answers made smaller, where the browser can read them so."""

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
