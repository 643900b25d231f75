"""Where a server is and the credential for it: read from what a user gives, without any I/O.

Rule 1: the credential is in no `repr`, no error and no address that is shown; it is sent in one header, nowhere else.
Rule 2: an address that a server announces is followed only where the credential may go: the same host, or from one
    loopback address to another, and never from an encrypted connection to a plain one.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from proctor.errors import ValidationError

TOKEN_VARIABLE: Final = "PROCTOR_CONTROL_TOKEN"  # noqa: S105  # the name of a variable, not a secret
WEBSOCKET_PATH: Final = "/ws"
SCHEMES: Final = {"http": "ws", "https": "wss", "ws": "ws", "wss": "wss"}
EXPECTED: Final = "http://host:port, https://host, ws://host:port/ws, wss://host or unix:///path/to/socket"


@dataclass(frozen=True, slots=True)
class Address:
    """One server: `uri` is its WebSocket, `socket_path` the Unix socket where there is one."""

    uri: str
    host: str
    secure: bool = False
    socket_path: str | None = None
    token: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return self.uri if self.socket_path is None else f"unix://{self.socket_path}"

    @property
    def is_local(self) -> bool:
        """Whether what is sent there stays on this machine."""
        return self.socket_path is not None or is_loopback(self.host)

    @property
    def headers(self) -> dict[str, str]:
        """What presents the credential; empty where there is none."""
        return {} if self.token is None else {"Authorization": f"Bearer {self.token}"}


def parse_address(
    url: str,
    *,
    token: str | None = None,
    environment: Mapping[str, str] | None = None,
    variable: str = TOKEN_VARIABLE,
) -> Address:
    """Return the address that `url` names, or raise a ValidationError.

    The credential is `token`, else the user part of the URL (`http://proctor:SECRET@host`), else the `variable` of
    `environment`.
    """
    parts = _split_url(url)
    user, _, where = parts.netloc.rpartition("@")
    name, _, password = user.partition(":")
    given = [token, unquote(password or name) or None, (environment or {}).get(variable) or None]
    secret = next((each for each in given if each is not None), None)
    if secret is not None and not (secret.isascii() and secret.isprintable() and " " not in secret and secret):
        # Without `found`: an error never shows a credential.
        raise ValidationError("not a credential", expected="printable ASCII characters without spaces")
    if parts.scheme == "unix":
        return Address(f"ws://localhost{WEBSOCKET_PATH}", "localhost", socket_path=unquote(parts.path), token=secret)
    scheme, path = SCHEMES[parts.scheme], parts.path.rstrip("/").removesuffix(WEBSOCKET_PATH) + WEBSOCKET_PATH
    return Address(f"{scheme}://{where.lower()}{path}", parts.hostname or "", secure=scheme == "wss", token=secret)


def follow_address(address: Address, announced: str | None) -> Address:
    """Return where to find the sessions of `address` again: what the server announced, if Rule 2 allows it."""
    if announced is None:
        return address
    try:
        found = parse_address(announced)
    except ValidationError:
        return address
    same_host = found.host == address.host and (found.socket_path is None) == (address.socket_path is None)
    if not (same_host or (found.is_local and address.is_local)) or (address.secure and not found.secure):
        return address
    return replace(found, token=address.token)


def is_loopback(host: str) -> bool:
    """Return whether `host` is this machine, by its name or its number alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _split_url(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValidationError("not the address of a server", expected=EXPECTED) from None
    where = parts.netloc.rpartition("@")[2]
    if parts.scheme == "unix":
        known = parts.path.startswith("/") and not where
    else:
        known = parts.scheme in SCHEMES and bool(parts.hostname)
    if not known or parts.query or parts.fragment or port == 0:
        # Without what may be a secret: the user part, the query and the fragment.
        shown = f"{parts.scheme}://{where}{parts.path}"
        raise ValidationError("not the address of a server", found=shown, expected=EXPECTED)
    return parts
