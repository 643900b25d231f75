"""May this request come in? Judged from its headers alone, before a handshake ends; with a cookie of a browser, by its visit too.

A page that a browser loads from anywhere may send requests to a server on the same machine. Two checks stop it.
`Host`: by DNS rebinding the page's own name is made to point to 127.0.0.1, so that the browser sees one origin; but it
still sends that name, so only the names that the server is known by are answered. `Origin`: a page that asks across
origins says where it came from, and none is welcome unless it was named. The third check, the credential, is for
everybody else.

Rule 1: Host, then Origin, then the credential; the first that fails is the answer.
Rule 2: a verdict never repeats what the peer sent, nor tells which paths exist: without a credential all are alike.
Rule 3: Forwarded, X-Forwarded-Host and their like are not read: anybody can send them.
Rule 4: this file knows headers, never sockets, routes or sessions.

An address with a secret in it is kept in a browser's history and shown over shoulders. So the address that a person is given
holds a code that is good once. What the browser gets for it is a cookie, which is kept from its scripts. A browser sends a cookie
whoever asks it to, and to every port of the same name. So more is asked of a request that comes with one: that no other page
sent it, and, if it may change something, that it carries the visit's own token.

Rule 5: the page itself, its scripts and styles, and the path where a code is traded need no credential.
Rule 6: a request with an Authorization header is judged by that alone; its cookie is not looked at.
Rule 7: with a cookie an Origin must be our own; what is more than reading needs one, and the visit's token. What the browser
    says of where a request comes from (Sec-Fetch-Site) must be ourselves, or a person. Of two cookies with our name neither counts.
Rule 8: of codes and cookies only digests are kept, of tokens nothing: a token is made of its cookie, with a key of this run.
    Everything is compared in constant time.
Rule 9: a code is good once and for an hour, a visit for twelve hours. There are at most so many of each: the oldest goes.
"""

import hmac
import ipaddress
import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from typing import Final

from proctor.access.credentials import SECRET_BYTES, Credential, DrawSecret, Headers, accepts, read_presented_secret
from proctor.errors import ValidationError

Address = tuple[str, int | None]
"""A name and a port; None is a port that was not said, or, in a policy, any."""

LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
HIGHEST_PORT: Final = 65535
OPEN_PATH: Final = "/health"
READING: Final = frozenset({"GET", "HEAD"})

# No trailing dot and no leading zero: one spelling for each name, so that a comparison is enough.
_LABELS: Final = r"[a-z0-9](?:[a-z0-9_-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9_-]*[a-z0-9])?)*"
_AUTHORITY: Final = re.compile(rf"(?P<name>{_LABELS}|\[[0-9a-f:.]+\])(?::(?P<port>0|[1-9][0-9]{{0,4}}))?")
_ORIGIN: Final = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<authority>[^/?#@\\]+)")
_LONGEST: Final = 300


class AccessVerdict(Enum):
    """The answer to a request: an HTTP status and a text for the peer."""

    ALLOWED = (200, "")
    BAD_TARGET = (400, "the request target is not a path")
    BAD_HOST = (400, "exactly one well-formed Host header is needed")
    BAD_ORIGIN = (400, "at most one well-formed Origin header is possible")
    FOREIGN_HOST = (403, "this server does not answer to that Host")
    FOREIGN_ORIGIN = (403, "this server does not answer pages of that Origin")
    NO_CREDENTIAL = (401, "a valid credential is needed")
    NO_TOKEN = (403, "a page's own token is needed")

    def __init__(self, status: int, text: str) -> None:
        self.status = status
        self.text = text
        """What is said to the peer; empty if the request may come in."""

    @property
    def allowed(self) -> bool:
        """Whether the request may come in."""
        return self is AccessVerdict.ALLOWED

    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """The headers that belong to the answer."""
        return _CHALLENGE if self is AccessVerdict.NO_CREDENTIAL else ()


# Only Bearer, although Basic is taken: a browser that is offered Basic asks for a password, keeps it, and sends it
# along with whatever another page asks of us.
_CHALLENGE: Final = ((b"www-authenticate", b'Bearer realm="proctor"'),)


@dataclass(frozen=True, slots=True)
class AccessPolicy:
    """Who is answered. Made by `policy_for`.

    `hosts` are the addresses that the server is known by; `any_address` also takes every IP address with `port` (a
    number cannot be rebound); `pages` allows the origin that is the server itself, for a socket that serves pages.
    No credential at all needs loopback names only, or `many_tokens`: then the caller looks the token up by itself
    (`judge_address`).
    """

    hosts: frozenset[Address]
    credential: Credential | None
    port: int | None = None
    any_address: bool = False
    origins: frozenset[str] = frozenset()
    pages: bool = False
    many_tokens: bool = False

    def __post_init__(self) -> None:
        if self.credential is not None or self.many_tokens:
            return
        if self.any_address or not all(is_loopback(name) for name, _ in self.hosts):
            raise ValidationError("a server without a credential", expected="loopback addresses only, or a credential")


def policy_for(
    host: str,
    port: int | None,
    credential: Credential | None,
    *,
    allow_hosts: Iterable[str] = (),
    allow_origins: Iterable[str] = (),
    pages: bool = False,
    many_tokens: bool = False,
) -> AccessPolicy:
    """Return the policy of a server that is bound to `host` and `port`; None for a Unix socket, for which loopback names stand.

    An allowed host is `name` (any port) or `name:port`; an allowed origin is `scheme://name` or `scheme://name:port`.
    """
    own = parse_host(f"[{host}]" if ":" in host and not host.startswith("[") else host)[0]
    number = _parse_ip(own)
    everywhere = port is not None and number is not None and number.is_unspecified
    names = set() if everywhere or port is None else {own}
    if everywhere or port is None or is_loopback(own):
        names.update(LOOPBACK_NAMES)
    return AccessPolicy(
        hosts=frozenset({(name, port) for name in names} | {parse_host(each) for each in allow_hosts}),
        credential=credential,
        port=port,
        any_address=everywhere,
        origins=frozenset(parse_origin(each) for each in allow_origins),
        pages=pages,
        many_tokens=many_tokens,
    )


def judge_request(policy: AccessPolicy, method: str, path: str, headers: Headers) -> AccessVerdict:
    """Return the verdict on a request; never raises.

    `method` is the HTTP method, or "WEBSOCKET" for a handshake; `path` is the one that will be routed, without query.
    """
    verdict = judge_address(policy, path, headers)
    if not verdict.allowed or policy.credential is None or is_open_path(method, path):
        return verdict
    known = accepts(policy.credential, read_presented_secret(headers))
    return AccessVerdict.ALLOWED if known else AccessVerdict.NO_CREDENTIAL


def is_open_path(method: str, path: str) -> bool:
    """Return whether this can be asked for without a credential."""
    return path == OPEN_PATH and method in READING


def judge_address(policy: AccessPolicy, path: str, headers: Headers) -> AccessVerdict:
    """Return the verdict on where a request comes from and where it goes, whoever sends it; never raises."""
    if not path.startswith("/"):
        return AccessVerdict.BAD_TARGET
    host, origins = _read_host(headers), _read_values(headers, b"origin")
    if host is None:
        return AccessVerdict.BAD_HOST
    name, port = host[0], 80 if host[1] is None else host[1]
    is_named = (name, port) in policy.hosts or (name, None) in policy.hosts
    if not is_named and not (policy.any_address and port == policy.port and _parse_ip(name) is not None):
        return AccessVerdict.FOREIGN_HOST
    if not origins:
        return AccessVerdict.ALLOWED  # a peer that is no page sends none
    if len(origins) > 1 or origins[0] is None:
        return AccessVerdict.BAD_ORIGIN
    origin = origins[0].lower()
    is_welcome = origin in policy.origins or (policy.pages and _is_own(origin, host))
    return AccessVerdict.ALLOWED if is_welcome else AccessVerdict.FOREIGN_ORIGIN


def is_own_page(headers: Headers) -> bool:
    """Return whether a request whose address was judged names no page that it comes from, or one of the very address that it asks."""
    host, origins = _read_host(headers), _read_values(headers, b"origin")
    return host is not None and all(origin is not None and _is_own(origin.lower(), host) for origin in origins)


def _read_host(headers: Headers) -> Address | None:
    values = _read_values(headers, b"host")
    return _parse_address(values[0]) if len(values) == 1 else None


def _is_own(origin: str, host: Address) -> bool:
    match = _ORIGIN.fullmatch(origin)
    return match is not None and match["scheme"] in {"http", "https"} and _parse_address(match["authority"]) == host


def _read_values(headers: Headers, wanted: bytes) -> list[str | None]:
    """Return the values of a header; None for one that is not visible ASCII or is too long."""
    values = [value.strip(b" \t") for name, value in headers if name.lower() == wanted]
    return [value.decode("ascii") if value.isascii() and len(value) <= _LONGEST else None for value in values]


def _parse_address(text: str | None) -> Address | None:
    """Return name and port, each in its one spelling; None for anything but `name`, `name:port` or an IP address."""
    match = None if text is None or not text.isascii() else _AUTHORITY.fullmatch(text.lower())
    if match is None:
        return None
    name, port = match["name"], None if match["port"] is None else int(match["port"])
    if port is not None and port > HIGHEST_PORT:
        return None
    if name.startswith("["):
        number = _parse_ip(name)
        return (f"[{number}]", port) if isinstance(number, ipaddress.IPv6Address) else None
    return name, port


def parse_host(text: str) -> Address:
    """Return a host that a user named, or raise a ValidationError."""
    address = _parse_address(text)
    if address is None:
        raise ValidationError("not a host", found=text, expected="name, name:port or [IPv6 address]:port")
    return address


def parse_origin(text: str) -> str:
    """Return an origin that a user named as browsers write it, or raise a ValidationError."""
    match = _ORIGIN.fullmatch(text.lower())
    if match is None or _parse_address(match["authority"]) is None:
        raise ValidationError("not an origin", found=text, expected="scheme://name or scheme://name:port")
    return text.lower()


def is_loopback(name: str) -> bool:
    """Return whether only this machine answers to the name."""
    number = _parse_ip(name)
    return name == "localhost" if number is None else number.is_loopback


def _parse_ip(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return None


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
    if not is_own_page(headers) or not OWN_SITES.issuperset(_read_values(headers, b"sec-fetch-site")):
        return AccessVerdict.FOREIGN_ORIGIN
    if method in READING:
        return AccessVerdict.ALLOWED
    if not _read_values(headers, b"origin"):
        return AccessVerdict.FOREIGN_ORIGIN
    tokens = _read_values(headers, CSRF_HEADER.encode())
    token = tokens[0] if len(tokens) == 1 else None
    return AccessVerdict.ALLOWED if visits.accepts(cookie, token) else AccessVerdict.NO_TOKEN
