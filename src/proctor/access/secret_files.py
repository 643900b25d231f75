"""Secrets in files: the only module of `access` that reads and writes files.

Rule 1: a file that anybody else can read, write or replace holds no secret: it is refused, with the command that
    mends it.
Rule 2: a file appears whole or not at all, and the first one stays: two processes that start at once end with the same
    secret.
Rule 3: no error shows what is in a file.
"""

import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from proctor.errors import ValidationError

MOST_BYTES: Final = 4096
"""More than this is not a secret but some other file."""

_FOR_OTHERS: Final = 0o077
_WRITABLE_BY_OTHERS: Final = 0o022
_READ: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe must not make the server wait for its writer
_MAKE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


def read_private(path: Path, *, follow_links: bool, most: int = MOST_BYTES) -> str:
    """Return the text of a file that only its owner, who is us, can read, without the newline at its end.

    Raises FileNotFoundError where there is none, and a ValidationError for anything that is not such a file.
    """
    try:
        descriptor = os.open(path, _READ if follow_links else _READ | os.O_NOFOLLOW)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _read_error(path, error) from None
    try:
        _check_private(path, os.fstat(descriptor))
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
        raise ValidationError(
            f"{path} could not be written ({_reason(error)})", expected="a folder in which files can be made"
        ) from None
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
        raise ValidationError(
            f"the folder {folder} cannot be made ({_reason(error)})", expected="a folder of our own"
        ) from None
    _check_owner(folder, found)
    if found.st_mode & _WRITABLE_BY_OTHERS:
        raise ValidationError(
            f"others can write in {folder}", found=_mode(found), expected=f"mode 0700: run  chmod 700 {folder}"
        )


def _check_private(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ValidationError(f"{path} is not a regular file", expected="a regular file with mode 0600")
    _check_owner(path, found)
    if found.st_mode & _FOR_OTHERS:
        raise ValidationError(
            f"others can read {path}", found=_mode(found), expected=f"mode 0600: run  chmod 600 {path}"
        )


def _check_owner(path: Path, found: os.stat_result) -> None:
    if found.st_uid != os.geteuid():
        raise ValidationError(
            f"{path} belongs to another user",
            found=found.st_uid,
            expected=f"the user {os.geteuid()}: run  chown {os.geteuid()} {path}",
        )


def _read_error(path: Path, error: OSError) -> ValidationError:
    if path.is_symlink():
        return ValidationError(f"{path} cannot be read: it is a symbolic link", expected="a regular file")
    return ValidationError(f"{path} cannot be read ({_reason(error)})", expected="a regular file with mode 0600")


def _reason(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else type(error).__name__


def _mode(found: os.stat_result) -> str:
    return f"mode {stat.S_IMODE(found.st_mode):04o}"
