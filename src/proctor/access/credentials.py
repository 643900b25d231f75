"""Who may pass: secrets, of which only a hash stays in memory, and how a peer presents one.

Rule 1: a secret is given out once, by the call that made it or read it; what is kept is a `Credential`, its SHA-256.
Rule 2: what was presented is compared in constant time, and compared with something even if nothing was presented.
Rule 3: no repr, pickle or error text shows a secret.
Rule 4: a secret is presented in exactly one Authorization header, never in a path, a query or a cookie.
Rule 5: a file that anybody else can read, write or replace holds no secret: it is refused, with the command that mends it.
Rule 6: a file appears whole or not at all, and the first one stays: two processes that start at once end with the same secret.

Where a server's own secret comes from, the first that is there:

    the environment   PROCTOR_CONTROL_TOKEN (each kind of credential has its own variable)
    a file            the one that was named on the command line; it may be a symbolic link, as mounted secrets are
    the state file    re-used, so that the secret outlives a restart; made where there is none
"""

import base64
import binascii
import hmac
import os
import re
import secrets
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from pathlib import Path
from typing import Final

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
    path, made = file, False
    if kind.variable in environment:
        secret, source, path = environment[kind.variable], SecretSource.ENVIRONMENT, None
    elif file is not None:
        try:
            secret, source = read_private(file, follow_links=True), SecretSource.FILE
        except FileNotFoundError:
            raise ValidationError(f"there is no file {file}", expected="a file that holds the secret") from None
    else:
        source, path = SecretSource.STATE_FILE, state_file
        secret, made = read_or_make_private(state_file, lambda: generate_secret(draw=draw)[0])
    check_secret(secret, where=f"the secret in {kind.variable if path is None else path}")
    if hide is not None:
        hide(secret)
    return ServerCredential(secret if made else None, Credential.of(secret), source, path)


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


MOST_FILE_BYTES: Final = 4096
"""More than this is not a secret but some other file."""
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must not make the server wait for its writer
_MAKE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


def read_private(path: Path, *, follow_links: bool, most: int = MOST_FILE_BYTES) -> str:
    """Return the text of a file that only its owner, who is us, can read, without the newline at its end.

    Raises FileNotFoundError where there is none, and a ValidationError for anything that is not such a file.
    """
    try:
        descriptor = os.open(path, _READ if follow_links else _READ | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise
    except OSError as error:
        reason = ": it is a symbolic link" if path.is_symlink() else f" ({_reason(error)})"
        raise ValidationError(f"{path} cannot be read{reason}", expected="a regular file with mode 0600") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ValidationError(f"{path} is not a regular file", expected="a regular file with mode 0600")
        _check_owner(path, found)
        if found.st_mode & 0o077:
            expected = f"mode 0600: run  chmod 600 {path}"
            raise ValidationError(f"others can read {path}", found=_mode(found), expected=expected)
        content = os.read(descriptor, most + 1)
    finally:
        os.close(descriptor)
    if len(content) > most or not content.isascii():
        raise ValidationError(f"{path} does not hold a secret", expected=f"at most {most} ASCII characters")
    return content.decode("ascii").removesuffix("\n").removesuffix("\r")


def read_or_make_private(path: Path, make: Callable[[], str]) -> tuple[str, bool]:
    """Return the text of `path` and whether it was made now; where there is no file, one is made with `make()`."""
    _make_folder(path.parent)
    try:
        return read_private(path, follow_links=False), False
    except FileNotFoundError:
        text = make()
    try:
        first = _place_file(path, text)
    except OSError as error:
        reason = f"{path} could not be written ({_reason(error)})"
        raise ValidationError(reason, expected="a folder in which files can be made") from None
    if first:
        return text, True
    try:
        return read_private(path, follow_links=False), False
    except FileNotFoundError:
        raise ValidationError(f"{path} was removed while it was read", expected="a file that stays") from None


def _place_file(path: Path, text: str) -> bool:
    """Return whether `text` is now in `path`; False if a file was there first."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, _MAKE, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), 0o600)  # whatever the umask takes away
            file.write(text.encode("ascii") + b"\n")
            file.flush()
            os.fsync(file.fileno())
        # A link, not a rename: it never replaces what another process has placed meanwhile.
        path.hardlink_to(draft)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    return True


def _make_folder(folder: Path) -> None:
    """Make the folder and those above it for us alone, or refuse one in which others could replace a file."""
    try:
        for each in (*reversed(folder.parents), folder):
            if not each.exists():
                each.mkdir(mode=0o700, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        reason = f"the folder {folder} cannot be made ({_reason(error)})"
        raise ValidationError(reason, expected="a folder of our own") from None
    _check_owner(folder, found)
    if found.st_mode & 0o022:
        expected = f"mode 0700: run  chmod 700 {folder}"
        raise ValidationError(f"others can write in {folder}", found=_mode(found), expected=expected)


def _check_owner(path: Path, found: os.stat_result) -> None:
    own = os.geteuid()
    if found.st_uid != own:
        expected = f"the user {own}: run  chown {own} {path}"
        raise ValidationError(f"{path} belongs to another user", found=found.st_uid, expected=expected)


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else type(error).__name__


def _mode(found: os.stat_result) -> str:
    return f"mode {stat.S_IMODE(found.st_mode):04o}"
