"""A grant in an orchestrator's hand: what an agent needs to reach the tools of one episode.

Rule 1: the token is shown by no `repr` and goes into no pickle; whoever wants it says `token`, `headers()` or `save()`.
Rule 2: a file with a token is its owner's alone, and appears whole or not at all.
"""

import json
import os
import secrets
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

import msgspec

from proctor.errors import ValidationError
from proctor.models.grants import Granted, GrantWish

OWNERS: Final = 0o600
FOR_OTHERS: Final = 0o077
_MAKE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


@dataclass(frozen=True, slots=True)
class Grant:
    """The tools of one episode: good until its end, the next reset, `expires_at` or a revocation."""

    grant: str
    """Names it; this opens nothing."""
    address: str
    """Of the agent plane: an MCP server over streamable HTTP."""
    token: str = field(repr=False)
    tools: tuple[str, ...]
    expires_at: float | None
    """In seconds since 1970; None: with its episode."""
    episode_id: str

    @classmethod
    def of(cls, granted: Granted) -> Self:
        """Return what a server gave."""
        return cls(
            granted.grant,
            granted.address,
            granted.token,
            tuple(granted.tools),
            granted.expires_at,
            granted.episode_id,
        )

    def headers(self) -> dict[str, str]:
        """Return the headers that an MCP client sends with every request."""
        return {"Authorization": f"Bearer {self.token}"}

    def save(self, path: str | Path) -> Path:
        """Write the file that `proctor mcp --grant FILE` reads, for us alone; a file that others can read is left alone."""
        path = Path(path)
        fields = {
            "address": self.address,
            "token": self.token,
            "tools": self.tools,
            "expires_at": self.expires_at,
            "episode_id": self.episode_id,
            "grant": self.grant,
        }
        try:
            _check_replaceable(path)
            # In ASCII, whatever an episode is called: readers of secrets take nothing else.
            _write_private(path, json.dumps(fields).encode("ascii") + b"\n")
        except OSError as problem:
            raise ValidationError(
                f"{path} could not be written ({problem.strerror})", expected="a folder in which files can be made"
            ) from None
        return path

    def __reduce__(self) -> str:
        raise TypeError("a grant holds a token and is not pickled or copied: save() keeps it in a file of its own")


def wish_of(wish: GrantWish | bool | None) -> GrantWish | None:
    """Return the wish that is to be sent, None for none; what no server would take is a ValidationError."""
    if wish is None or wish is False:
        return None
    if wish is True:
        return GrantWish()
    if not isinstance(wish, GrantWish):
        raise ValidationError("not a wish for a grant", found=wish, expected="a GrantWish, True or None")
    try:
        return msgspec.convert(msgspec.to_builtins(wish), GrantWish)
    except (msgspec.ValidationError, TypeError) as problem:
        raise ValidationError(f"not a wish for a grant: {problem}", expected="as GrantWish says") from None


def _check_replaceable(path: Path) -> None:
    """Raise if there is something that is not to be replaced."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        raise ValidationError(f"{path} is not a file of ours", expected="a regular file, or none")
    if found.st_mode & FOR_OTHERS:
        raise ValidationError(
            f"others can read {path}",
            found=f"mode {stat.S_IMODE(found.st_mode):04o}",
            expected=f"mode 0600: run  chmod 600 {path}",
        )


def _write_private(path: Path, text: bytes) -> None:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, _MAKE, OWNERS)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), OWNERS)  # whatever the umask takes away
            file.write(text)
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
