"""Every exception that Proctor raises on purpose.

    ProctorError
    ├── ValidationError (also ValueError)   a value that a caller passed is not acceptable
    ├── StateError                          the call is not legal in this state of the lifecycle
    ├── ComponentError                      an injected or configured part breaks its contract
    │   └── RecordLimitError                a recorder stores no more: a limit is reached, or the disk is nearly full
    ├── RenderingError                      a picture could not be made or shown
    ├── RemoteError                         a server refused or failed; `code` says how
    ├── EpisodeLost                         nobody can know where the episode stands: only a reset goes on
    ├── ConnectionFailed (also ConnectionError) a server could not be reached, or would not let us in
    ├── RequestTimeout (also TimeoutError)  a server did not answer in time; the request had no effect
    ├── Missed                              of what agents did, some rows are no longer kept
    └── MissingExtraError (also ImportError) an optional dependency is needed and absent

Each says what was found, what was expected and, where a contract is broken, the id of the clause. A refused call
changes nothing.
"""

import reprlib
from functools import partial
from typing import Final, Literal

_SHORT: Final = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 120


class _Missing:
    """Stands for "no value was given", where None could be the value that was found."""

    def __repr__(self) -> str:
        return "<missing>"

    def __reduce__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()


class ProctorError(Exception):
    """The root of the tree; `found`, `expected` and `clause` are attributes for programs, `str()` is for people."""

    def __init__(
        self, message: str, *, found: object = MISSING, expected: str | None = None, clause: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.found = found
        self.expected = expected
        self.clause = clause

    def __str__(self) -> str:
        parts = [self.message]
        if self.found is not MISSING:
            parts.append(f"found {_SHORT.repr(self.found)}")
        if self.expected is not None:
            parts.append(f"expected {self.expected}")
        text = "; ".join(parts)
        return text if self.clause is None else f"{text} [{self.clause}]"


class ValidationError(ProctorError, ValueError):
    """A value passed by the caller is not acceptable."""


class StateError(ProctorError):
    """The call is not legal in the present state of the lifecycle."""


class ComponentError(ProctorError):
    """An injected or configured component is missing a part, or answered outside its contract."""


class RecordLimitError(ComponentError):
    """A recorder does not store an event; `limit` says why: of one step, of the episode, or of the disk."""

    def __init__(
        self,
        message: str,
        *,
        limit: Literal["step", "episode", "disk"],
        found: object = MISSING,
        expected: str | None = None,
    ) -> None:
        super().__init__(message, found=found, expected=expected)
        self.limit: Final = limit


class RenderingError(ProctorError):
    """A picture could not be made or shown."""


class RemoteError(ProctorError):
    """A server answered with an error; the episode is where it was."""

    def __init__(self, message: str, *, code: str = "", expected: str | None = None, clause: str | None = None) -> None:
        super().__init__(message, expected=expected, clause=clause)
        self.code = code

    def __str__(self) -> str:
        return f"{super().__str__()} (code: {self.code})"


class EpisodeLost(ProctorError):
    """Continuity is broken, and the server or the client says so instead of going on; `code` says by what."""

    def __init__(self, message: str, *, code: str = "") -> None:
        super().__init__(message, expected="reset(), which begins a new episode")
        self.code = code

    def __str__(self) -> str:
        return f"{super().__str__()} (code: {self.code})"


class ConnectionFailed(ProctorError, ConnectionError):
    """A server could not be reached, or refused the credential, the Host or the Origin."""


class RequestTimeout(ProctorError, TimeoutError):
    """A server did not answer in time; the request was taken back before it had any effect."""


class Missed(ProctorError):
    """Of what agents did, `missed` rows were forgotten before they were read; `next_row` can still be had."""

    def __init__(self, message: str, *, missed: int = 0, next_row: int = 0) -> None:
        super().__init__(message, expected=f"watch(after={next_row - 1}), or on_missed='skip'")
        self.missed = missed
        self.next_row = next_row


class MissingExtraError(ProctorError, ImportError):
    """An optional dependency is needed; the message names the extra that brings it."""

    def __init__(self, what: str, *, package: str, extra: str) -> None:
        super().__init__(
            f"{what} needs the package {package!r}, which is not installed: pip install 'proctor-rl[{extra}]'",
            expected=f"the extra {extra!r}",
        )
        self.package = package
        self.extra = extra
        self._what = what

    def __reduce__(self) -> tuple[object, ...]:
        return (partial(MissingExtraError, self._what, package=self.package, extra=self.extra), ())
