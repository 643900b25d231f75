"""What a reply to an attack must look like: coded, and without a word from inside."""

from __future__ import annotations

import json
import re
from typing import Final

from proctor.models.control import Code
from tests.server.attacks.patient import BROKEN

FROM_INSIDE: Final = re.compile(
    rb"Traceback|File \\?\"|site-packages|\.py\b|\b[A-Z]\w*(?:Error|Exception|Warning)\b"
    rb"|pydantic|msgspec|starlette|uvicorn|websockets\.|json\.|proctor\.|0x[0-9a-f]{6,}|<class|object at|"
    + re.escape(BROKEN.encode())
)
"""Words that only an exception, a path or a module of the server could have put there."""
CODES: Final = frozenset(map(str, Code))


class Misjudged(AssertionError):
    """A reply is not what a server may say to an attacker."""


def without_leaks(case: str, said: bytes) -> None:
    """Raise if a server's words come from inside."""
    found = FROM_INSIDE.search(said)
    if found:
        raise Misjudged(f"{case}: the server said {found.group()!r}: {said[:500]!r}")


def coded_error(case: str, sent: bytes, said: bytes) -> str:
    """Return the code of the one error that a bad message must get."""
    without_leaks(case, said)
    reply = json.loads(said)
    if reply["type"] != "error" or reply["data"]["code"] not in CODES:
        raise Misjudged(f"{case}: {sent[:200]!r} was answered with {said[:500]!r}")
    code: str = reply["data"]["code"]
    return code
