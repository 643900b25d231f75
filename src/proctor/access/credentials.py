"""Who may pass: secrets, of which only a hash stays in memory, and how a peer presents one.

Rule 1: a secret is given out once, by the call that made it or read it; what is kept is a `Credential`, its SHA-256.
Rule 2: what was presented is compared in constant time, and compared with something even if nothing was presented.
Rule 3: no repr, pickle or error text shows a secret.
Rule 4: a secret is presented in exactly one Authorization header, never in a path, a query or a cookie.

Where a server's own secret comes from, the first that is there:

    the environment   PROCTOR_CONTROL_TOKEN (each kind of credential has its own variable)
    a file            the one that was named on the command line; it may be a symbolic link, as mounted secrets are
    the state file    re-used, so that the secret outlives a restart; made where there is none
"""

import base64
import binascii
import hmac
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Final

from proctor.access.secret_files import read_or_make_private, read_private
from proctor.errors import ValidationError

Headers = Sequence[tuple[bytes, bytes]]
DrawSecret = Callable[[int], str]

SHORTEST: Final = 16
LONGEST: Final = 1024
SECRET_BYTES: Final = 32
MOST_HEADER_BYTES: Final = 4096
USER: Final = "proctor"
"""The user part of a Basic credential; the password is the secret."""

_VISIBLE: Final = re.compile(r"[!-~]+")
_WORDS: Final = f"{SHORTEST} to {LONGEST} visible ASCII characters without spaces"


@dataclass(frozen=True, slots=True)
class Credential:
    """What is kept of a secret: enough to know it again, not enough to say it."""

    digest: bytes = field(repr=False)

    @classmethod
    def of(cls, secret: str) -> "Credential":
        """Return the credential of an acceptable secret; anything else is a ValidationError."""
        return cls(_digest(check_secret(secret)))


class SecretSource(StrEnum):
    """Where a secret came from."""

    ENVIRONMENT = "environment"
    FILE = "file"
    STATE_FILE = "state file"


@dataclass(frozen=True, slots=True)
class CredentialKind:
    """One kind of credential: the variable and the state file that keep its secret."""

    variable: str
    file_name: str


CONTROL: Final = CredentialKind("PROCTOR_CONTROL_TOKEN", "control-token")
OPERATOR: Final = CredentialKind("PROCTOR_OPERATOR_TOKEN", "operator-token")
LEDGER_KEY: Final = CredentialKind("PROCTOR_LEDGER_KEY", "ledger-key")


@dataclass(frozen=True, slots=True)
class ServerCredential:
    """A server's own credential; `secret` is there only if it was made now, to be shown once.

    `path` is the file that holds the secret, None for the environment. A pickle or a copy has no secret.
    """

    secret: str | None = field(repr=False)
    credential: Credential
    source: SecretSource
    path: Path | None

    def __reduce__(self) -> tuple[object, ...]:
        return (ServerCredential, (None, self.credential, self.source, self.path))


def check_secret(secret: str, *, where: str = "the secret") -> str:
    """Return `secret` if it can be one, or raise a ValidationError that does not show it."""
    if SHORTEST <= len(secret) <= LONGEST and _VISIBLE.fullmatch(secret):
        return secret
    raise ValidationError(f"{where} is not acceptable", expected=_WORDS)


def generate_secret(*, draw: DrawSecret | None = None) -> tuple[str, Credential]:
    """Return a new secret of 256 bits and its credential; `draw` gives that many random bytes as URL-safe text."""
    secret = (secrets.token_urlsafe if draw is None else draw)(SECRET_BYTES)
    return secret, Credential.of(secret)


def generate_token(*, draw: DrawSecret | None = None) -> tuple[str, Credential]:
    """Return a secret for one session or one episode and its credential: as strong as any other, kept in no file."""
    return generate_secret(draw=draw)


def accepts(credential: Credential, presented: str | None) -> bool:
    """Return whether exactly the secret was presented; takes as long for none as for a wrong one."""
    usable = None if presented is None or len(presented) > MOST_HEADER_BYTES else presented
    matches = hmac.compare_digest(_digest(usable or ""), credential.digest)
    return matches and usable is not None


def read_presented_secret(headers: Headers) -> str | None:
    """Return the secret in the one Authorization header, as Bearer or Basic; None if there is none to be read."""
    values = [value for name, value in headers if name.lower() == b"authorization"]
    if len(values) != 1 or len(values[0]) > MOST_HEADER_BYTES or not values[0].isascii():
        return None
    scheme, _, rest = values[0].decode("ascii").strip(" \t").partition(" ")
    read = _SCHEMES.get(scheme.lower())
    return None if read is None else read(rest.lstrip(" "))


def _parse_bearer(text: str) -> str | None:
    return text if _VISIBLE.fullmatch(text) else None


def _parse_basic(text: str) -> str | None:
    try:
        raw = base64.b64decode(text, validate=True)
        user, _, password = raw.decode("ascii").partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    # Python also decodes what no encoder writes: too much padding, stray bits at the end.
    canonical = base64.b64encode(raw).decode("ascii") == text
    return _parse_bearer(password) if canonical and user == USER else None


_SCHEMES: Final[dict[str, Callable[[str], str | None]]] = {"bearer": _parse_bearer, "basic": _parse_basic}


def find_credential(
    kind: CredentialKind,
    environment: Mapping[str, str],
    file: Path | None,
    state_file: Path,
    *,
    hide: Callable[[str], object] | None = None,
    draw: DrawSecret | None = None,
) -> ServerCredential:
    """Return the credential of this kind, from the first source that has one.

    `hide` is called with the secret wherever it came from, so that a redactor knows what must never be logged.
    A source that is there and not acceptable is a ValidationError: the next one is not tried in silence.
    """
    secret, source, path, made = _find_secret(kind, environment, file, state_file, draw)
    check_secret(secret, where=f"the secret in {kind.variable if path is None else path}")
    if hide is not None:
        hide(secret)
    return ServerCredential(secret if made else None, Credential.of(secret), source, path)


def _find_secret(
    kind: CredentialKind, environment: Mapping[str, str], file: Path | None, state_file: Path, draw: DrawSecret | None
) -> tuple[str, SecretSource, Path | None, bool]:
    """Return the secret, its source, the file that holds it, and whether it was made now."""
    named = environment.get(kind.variable)
    if named is not None:
        return named, SecretSource.ENVIRONMENT, None, False
    if file is not None:
        return _read_named_file(file), SecretSource.FILE, file, False
    secret, made = read_or_make_private(state_file, lambda: generate_secret(draw=draw)[0])
    return secret, SecretSource.STATE_FILE, state_file, made


def _read_named_file(file: Path) -> str:
    try:
        return read_private(file, follow_links=True)
    except FileNotFoundError:
        raise ValidationError(f"there is no file {file}", expected="a file that holds the secret") from None


def default_state_file(environment: Mapping[str, str], kind: CredentialKind = CONTROL) -> Path:
    """Return where the secret of this kind is kept: under XDG_STATE_HOME, or else in the home folder."""
    state = Path(environment.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():  # the XDG rules say that a relative one does not count
        home = Path(environment.get("HOME", ""))
        if not home.is_absolute():
            raise ValidationError("there is no home folder", expected="XDG_STATE_HOME or HOME with an absolute path")
        state = home / ".local" / "state"
    return state / "proctor" / kind.file_name


def _digest(secret: str) -> bytes:
    # A peer's text may hold lone surrogates, which are no reason to fail.
    return sha256(secret.encode("utf-8", "surrogatepass")).digest()
