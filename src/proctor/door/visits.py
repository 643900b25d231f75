"""Browsers that were let in: one-time codes, the visits that they are traded for, and the tokens of their posts.

An address with a secret in it is kept in a browser's history and shown over shoulders. So the address that a person is given
holds a code that is good once. What the browser gets for it, a cookie, is kept from its scripts; and since a browser sends a
cookie whoever asks for it, whatever changes something must carry the visit's own token as well.

Rule 1: of codes and cookies only digests are kept, of tokens nothing: a token is made of its cookie, with a key of this run.
Rule 2: what was presented is compared in constant time with all that there is.
Rule 3: a code is good once and for an hour, a visit for twelve hours. Of either there are so many and no more: the oldest goes.
Rule 4: this file knows neither headers nor sockets; what time it is comes from outside.
"""

import hmac
import secrets
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from proctor.door.credentials import SECRET_BYTES, Draw

CODE_SECONDS: Final = 3600.0
VISIT_SECONDS: Final = 12 * 3600.0
MOST_CODES: Final = 16
MOST_VISITS: Final = 64
LONGEST: Final = 256
"""No code, cookie or token is longer."""


class Visits:
    """Who may come in with a code, and who has. It is used by one thread at a time."""

    __slots__ = ("_clock", "_codes", "_draw", "_key", "_visits")

    def __init__(self, *, clock: Callable[[], float], draw: Draw | None = None) -> None:
        self._clock = clock
        self._draw = secrets.token_urlsafe if draw is None else draw
        self._key = self._draw(SECRET_BYTES).encode()
        self._codes = _Kept(MOST_CODES, CODE_SECONDS)
        self._visits = _Kept(MOST_VISITS, VISIT_SECONDS)

    def __repr__(self) -> str:
        return f"<Visits: {len(self._visits)} visits, {len(self._codes)} codes>"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("visits belong to one run of a server: they are neither copied nor pickled")

    def __len__(self) -> int:
        """Return how many visits there are that have not expired."""
        return self._visits.live(self._clock())

    def code(self) -> str:
        """Return a new code, for whoever may come in."""
        return self._given(self._codes)

    def enter(self, code: str) -> str | None:
        """Return the cookie of a new visit, and spend the code; None if it is not a good one."""
        if not self._codes.take(_digest(code), self._clock()):
            return None
        return self._given(self._visits)

    def has(self, cookie: str | None) -> bool:
        """Return whether this is the cookie of a visit; takes as long for none as for a wrong one."""
        found = self._visits.has(_digest(cookie or ""), self._clock())
        return found and cookie is not None

    def leave(self, cookie: str) -> bool:
        """End a visit; False if there was none."""
        return self._visits.take(_digest(cookie), self._clock())

    def csrf(self, cookie: str) -> str:
        """Return the token that this visit's posts carry; of a cookie of no visit it is good for nothing."""
        return hmac.new(self._key, _digest(cookie), sha256).hexdigest()

    def accepts(self, cookie: str | None, csrf: str | None) -> bool:
        """Return whether the cookie is a visit's and the token is this visit's own."""
        right = hmac.compare_digest(self.csrf(cookie or "").encode(), _bounded(csrf or ""))
        return self.has(cookie) and right and csrf is not None

    def _given(self, to: "_Kept") -> str:
        secret = self._draw(SECRET_BYTES)
        to.add(_digest(secret), self._clock())
        return secret


class _Kept:
    """Digests, each for some time, the oldest first."""

    __slots__ = ("_ends", "_life", "_most")

    def __init__(self, most: int, life: float) -> None:
        self._ends: dict[bytes, float] = {}
        self._most = most
        self._life = life

    def __len__(self) -> int:
        return len(self._ends)

    def live(self, now: float) -> int:
        self._forget(now)
        return len(self._ends)

    def add(self, digest: bytes, now: float) -> None:
        self._forget(now)
        while len(self._ends) >= self._most:
            del self._ends[next(iter(self._ends))]
        self._ends[digest] = now + self._life

    def has(self, digest: bytes, now: float) -> bool:
        self._forget(now)
        # Not `any`, which would end with the first: with all, none is told by the time that it takes.
        return sum(hmac.compare_digest(digest, each) for each in self._ends) > 0

    def take(self, digest: bytes, now: float) -> bool:
        found = self.has(digest, now)
        if found:
            del self._ends[digest]
        return found

    def _forget(self, now: float) -> None:
        self._ends = {digest: end for digest, end in self._ends.items() if now < end}


def _digest(secret: str) -> bytes:
    return sha256(_bounded(secret)).digest()


def _bounded(text: str) -> bytes:
    # One character more than is possible, so that a longer text equals none of ours. A peer's may hold lone surrogates.
    return text[: LONGEST + 1].encode("utf-8", "surrogatepass")
