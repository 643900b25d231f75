"""May this browser come in? One-time codes, the visits that they are traded for, and the check of each request.

An address with a secret in it is kept in a browser's history and shown over shoulders. So the address that a person is given
holds a code that is good once. What the browser gets for it is a cookie, which is kept from its scripts. A browser sends a cookie
whoever asks it to, and to every port of the same name. So more is asked of a request that comes with one: that no other page
sent it, and, if it may change something, that it carries the visit's own token.

Rule 1: Host and Origin come first (`request_policy.py`). The page itself, its scripts and styles, and the path where a code is
    traded need no credential.
Rule 2: a request with an Authorization header is judged by that alone; its cookie is not looked at.
Rule 3: with a cookie an Origin must be our own; what is more than reading needs one, and the visit's token. What the browser
    says of where a request comes from (Sec-Fetch-Site) must be ourselves, or a person.
Rule 4: of two cookies with our name neither counts.
Rule 5: of codes and cookies only digests are kept, of tokens nothing: a token is made of its cookie, with a key of this run.
    Everything is compared in constant time.
Rule 6: a code is good once and for an hour, a visit for twelve hours. There are at most so many of each: the oldest goes.
"""

import hmac
import secrets
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from proctor.access.credentials import SECRET_BYTES, DrawSecret, Headers, accepts, read_presented_secret
from proctor.access.request_policy import READING, AccessPolicy, AccessVerdict, is_own_page, judge_address, read_values

CODE_SECONDS: Final = 3600.0
VISIT_SECONDS: Final = 12 * 3600.0
MOST_CODES: Final = 16
MOST_VISITS: Final = 64
LONGEST: Final = 256
"""No code, cookie or token is longer."""


class Visits:
    """Who may come in with a code, and who has. It is used by one thread at a time."""

    __slots__ = ("_codes", "_draw", "_key", "_visits")

    def __init__(self, *, clock: Callable[[], float], draw: DrawSecret | None = None) -> None:
        self._draw = secrets.token_urlsafe if draw is None else draw
        self._key = self._draw(SECRET_BYTES).encode()
        self._codes = _ExpiringDigests(MOST_CODES, CODE_SECONDS, clock)
        self._visits = _ExpiringDigests(MOST_VISITS, VISIT_SECONDS, clock)

    def __repr__(self) -> str:
        return f"<Visits: {len(self._visits)} visits, {len(self._codes)} codes>"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("visits belong to one run of a server: they are neither copied nor pickled")

    def __len__(self) -> int:
        """Return how many visits there are that have not expired."""
        return len(self._visits)

    def code(self) -> str:
        """Return a new code, for whoever may come in."""
        return self._issue_secret(self._codes)

    def enter(self, code: str) -> str | None:
        """Return the cookie of a new visit, and spend the code; None if it is not a good one."""
        if not self._codes.take(_digest(code)):
            return None
        return self._issue_secret(self._visits)

    def has(self, cookie: str | None) -> bool:
        """Return whether this is the cookie of a visit; takes as long for none as for a wrong one."""
        return self._visits.has(_digest(cookie or "")) and cookie is not None

    def leave(self, cookie: str) -> bool:
        """End a visit; False if there was none."""
        return self._visits.take(_digest(cookie))

    def csrf(self, cookie: str) -> str:
        """Return the token that this visit's posts carry; of a cookie of no visit it is good for nothing."""
        return hmac.new(self._key, _digest(cookie), sha256).hexdigest()

    def accepts(self, cookie: str | None, csrf: str | None) -> bool:
        """Return whether the cookie is a visit's and the token is this visit's own."""
        right = hmac.compare_digest(self.csrf(cookie or "").encode(), _encode_text(csrf or ""))
        return self.has(cookie) and right and csrf is not None

    def _issue_secret(self, to: "_ExpiringDigests") -> str:
        secret = self._draw(SECRET_BYTES)
        to.add(_digest(secret))
        return secret


class _ExpiringDigests:
    """Digests, each for some time, the oldest first."""

    __slots__ = ("_clock", "_ends", "_life", "_most")

    def __init__(self, most: int, life: float, clock: Callable[[], float]) -> None:
        self._ends: dict[bytes, float] = {}
        self._most = most
        self._life = life
        self._clock = clock

    def __len__(self) -> int:
        self._forget()
        return len(self._ends)

    def add(self, digest: bytes) -> None:
        while len(self) >= self._most:
            del self._ends[next(iter(self._ends))]
        self._ends[digest] = self._clock() + self._life

    def has(self, digest: bytes) -> bool:
        self._forget()
        # Not `any`, which would end with the first: with all, none is told by the time that it takes.
        return sum(hmac.compare_digest(digest, each) for each in self._ends) > 0

    def take(self, digest: bytes) -> bool:
        found = self.has(digest)
        if found:
            del self._ends[digest]
        return found

    def _forget(self) -> None:
        now = self._clock()
        self._ends = {digest: end for digest, end in self._ends.items() if now < end}


def _digest(secret: str) -> bytes:
    return sha256(_encode_text(secret)).digest()


def _encode_text(text: str) -> bytes:
    # One character more than is possible, so that a longer text equals none of ours. A peer's may hold lone surrogates.
    return text[: LONGEST + 1].encode("utf-8", "surrogatepass")


PAGE_PATH: Final = "/viewer/"
FRONT_PATHS: Final = ("/", "/viewer")
"""What people type; from there they are led to the page."""
STATIC_PATH: Final = "/viewer/static/"
ENTER_PATH: Final = "/viewer/enter"
OPERATOR_PATH: Final = "/operator/"
OPERATOR_LINK_PATH: Final = "/operator/link"
CSRF_HEADER: Final = "x-proctor-csrf"
OWN_SITES: Final = frozenset({"same-origin", "none"})


def cookie_name(port: int | None) -> str:
    """Return the name of the cookie: a browser keeps those of all ports of a machine together."""
    return f"proctor_visit_{port or 0}"


def judge_visitor(
    policy: AccessPolicy, visits: Visits, port: int | None, method: str, path: str, headers: Headers
) -> AccessVerdict:
    """Return the verdict on a request for a page, or for what an operator does; never raises."""
    verdict = judge_address(policy, path, headers)
    if not verdict.allowed or is_open_page(method, path):
        return verdict
    if path.startswith(OPERATOR_PATH) and policy.credential is None:
        return verdict
    if any(name.lower() == b"authorization" for name, _ in headers):
        known = policy.credential is not None and accepts(policy.credential, read_presented_secret(headers))
        return AccessVerdict.ALLOWED if known else AccessVerdict.NO_CREDENTIAL
    return _judge_visit(visits, find_cookie(port, headers), method, path, headers)


def is_open_page(method: str, path: str) -> bool:
    """Return whether this needs no credential: the page, what it is made of, and where it trades its code."""
    if method == "POST":
        return path == ENTER_PATH
    return method in READING and (path == PAGE_PATH or path in FRONT_PATHS or path.startswith(STATIC_PATH))


def is_page_path(path: str) -> bool:
    """Return whether a path is one of the pages' own, or of what is asked there."""
    return path in FRONT_PATHS or path.startswith((PAGE_PATH, OPERATOR_PATH))


def find_cookie(port: int | None, headers: Headers) -> str | None:
    """Return the value of the one cookie with our name; None if there is none, or more than one."""
    wanted = f"{cookie_name(port)}=".encode()
    # Other programs of the host may have many; what bounds a request's headers bounds these.
    lines = [value for name, value in headers if name.lower() == b"cookie"]
    found = [part.strip(b" \t") for line in lines for part in line.split(b";")]
    values = [part.removeprefix(wanted) for part in found if part.startswith(wanted)]
    return values[0].decode("latin-1") if len(values) == 1 else None


def _judge_visit(visits: Visits, cookie: str | None, method: str, path: str, headers: Headers) -> AccessVerdict:
    if not visits.has(cookie) or path == OPERATOR_LINK_PATH:
        return AccessVerdict.NO_CREDENTIAL
    if not is_own_page(headers) or not OWN_SITES.issuperset(read_values(headers, b"sec-fetch-site")):
        return AccessVerdict.FOREIGN_ORIGIN
    if method in READING:
        return AccessVerdict.ALLOWED
    if not read_values(headers, b"origin"):
        return AccessVerdict.FOREIGN_ORIGIN
    tokens = read_values(headers, CSRF_HEADER.encode())
    token = tokens[0] if len(tokens) == 1 else None
    return AccessVerdict.ALLOWED if visits.accepts(cookie, token) else AccessVerdict.NO_TOKEN
