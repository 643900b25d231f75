"""May this request come in? Judged from its headers alone, before a handshake ends.

A page that a browser loads from anywhere may send requests to a server on the same machine. Two checks stop it.
`Host`: by DNS rebinding the page's own name is made to point to 127.0.0.1, so that the browser sees one origin; but it
still sends that name, so only the names that the server is known by are answered. `Origin`: a page that asks across
origins says where it came from, and none is welcome unless it was named. The third check, the credential, is for
everybody else.

Rule 1: Host, then Origin, then the credential; the first that fails is the answer.
Rule 2: a verdict never repeats what the peer sent, nor tells which paths exist: without a credential all are alike.
Rule 3: Forwarded, X-Forwarded-Host and their like are not read: anybody can send them.
Rule 4: this file knows headers, never sockets, routes or sessions.
"""

import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from proctor.access.credentials import Credential, Headers, accepts, read_presented_secret
from proctor.errors import ValidationError

Address = tuple[str, int | None]
"""A name and a port; None is a port that was not said, or, in a policy, any."""

LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "[::1]")
HTTP_PORT: Final = 80
HIGHEST_PORT: Final = 65535
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

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.value[0]

    @property
    def text(self) -> str:
        """What is said to the peer; empty if the request may come in."""
        return self.value[1]

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
    A path in `open_paths` can be read without a credential; no credential at all needs loopback names only, or
    `many_tokens`: then the caller looks the token up by itself (`judge_address`).
    """

    hosts: frozenset[Address]
    credential: Credential | None
    port: int | None = None
    any_address: bool = False
    origins: frozenset[str] = frozenset()
    pages: bool = False
    open_paths: frozenset[str] = frozenset({"/health"})
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
    if not verdict.allowed or policy.credential is None or is_open_path(policy, method, path):
        return verdict
    known = accepts(policy.credential, read_presented_secret(headers))
    return AccessVerdict.ALLOWED if known else AccessVerdict.NO_CREDENTIAL


def is_open_path(policy: AccessPolicy, method: str, path: str) -> bool:
    """Return whether this can be asked for without a credential."""
    return path in policy.open_paths and method in READING


def judge_address(policy: AccessPolicy, path: str, headers: Headers) -> AccessVerdict:
    """Return the verdict on where a request comes from and where it goes, whoever sends it; never raises."""
    if not path.startswith("/"):
        return AccessVerdict.BAD_TARGET
    host = _read_host(headers)
    if host is None:
        return AccessVerdict.BAD_HOST
    if not _is_known(policy, host):
        return AccessVerdict.FOREIGN_HOST
    refusal = _judge_origin(policy, host, read_values(headers, b"origin"))
    return AccessVerdict.ALLOWED if refusal is None else refusal


def is_own_page(headers: Headers) -> bool:
    """Return whether a request whose address was judged names no page that it comes from, or one of the very address that it asks."""
    host, origins = _read_host(headers), read_values(headers, b"origin")
    return host is not None and all(origin is not None and _is_own(origin.lower(), host) for origin in origins)


def _read_host(headers: Headers) -> Address | None:
    values = read_values(headers, b"host")
    return _parse_address(values[0]) if len(values) == 1 else None


def _is_known(policy: AccessPolicy, host: Address) -> bool:
    name, port = host
    meant = HTTP_PORT if port is None else port
    if (name, meant) in policy.hosts or (name, None) in policy.hosts:
        return True
    return policy.any_address and meant == policy.port and _parse_ip(name) is not None


def _judge_origin(policy: AccessPolicy, host: Address, values: Sequence[str | None]) -> AccessVerdict | None:
    """Return why the Origin is refused, or None; a peer that is no page sends none."""
    if not values:
        return None
    if len(values) > 1 or values[0] is None:
        return AccessVerdict.BAD_ORIGIN
    origin = values[0].lower()
    if origin in policy.origins or (policy.pages and _is_own(origin, host)):
        return None
    return AccessVerdict.FOREIGN_ORIGIN


def _is_own(origin: str, host: Address) -> bool:
    match = _ORIGIN.fullmatch(origin)
    return match is not None and match["scheme"] in {"http", "https"} and _parse_address(match["authority"]) == host


def read_values(headers: Headers, wanted: bytes) -> list[str | None]:
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
