"""Keys from the bytes that a terminal sends.

Rule 1: a letter is its lower case, an arrow is its name; what no game asks for is left out.
Rule 2: bytes come in pieces: an escape sequence that has only begun is kept until the rest is there.
Rule 3: no I/O and no clock. A lone escape means nothing to any game, so nobody has to wait for what may follow it.
"""

import re
from collections.abc import Iterator
from typing import Final

KEYS: Final = {b" ": "space", b"\r": "enter", b"\n": "enter"} | {
    bytes([code]): chr(code).lower() for code in range(0x21, 0x7F)
}
ARROWS: Final = {b"A": "up", b"B": "down", b"C": "right", b"D": "left"}
LONGEST: Final = 32
"""Bytes of a sequence that are waited for; what goes on longer is no key."""

# An arrow with or without modifiers, in either mode of the cursor keys; any other sequence; one byte.
TOKEN: Final = re.compile(
    rb"\x1b(?:\[[0-9;]*|O)(?P<arrow>[ABCD])|\x1b\[[0-?]*[ -/]*[@-~]|\x1bO[ -~]|(?P<byte>.)", re.DOTALL
)
BEGUN: Final = re.compile(rb"\x1b(?:O|\[[0-?]*[ -/]*)?\Z")


class Keyboard:
    """Remembers the bytes of a sequence that has only begun."""

    def __init__(self) -> None:
        self._begun = b""

    def keys(self, read: bytes) -> list[str]:
        """Return the keys that are complete with the bytes just read."""
        text = self._begun + read
        begun = BEGUN.search(text)
        end = len(text) if begun is None else begun.start()
        self._begun = text[end:] if len(text) - end <= LONGEST else b""
        return list(_keys(text[:end]))


def _keys(text: bytes) -> Iterator[str]:
    for token in TOKEN.finditer(text):
        key = ARROWS.get(token["arrow"]) or KEYS.get(token["byte"])
        if key is not None:
            yield key
