"""The governors of one server whose episodes run, and the lines of all of them for whoever watches.

Rule: an episode that is lost runs no more: nobody finds its governor here.
"""

import secrets
from collections.abc import Iterator
from typing import Final, Generic, Protocol, TypeVar

from proctor.server.rows import Rows
from proctor.server.session import Session

MARK_DIGITS: Final = 6
"""Of the name of a run: enough to tell it from the one before, and few enough to be typed."""


class Registered(Protocol):
    """What a registry must know of a governor."""

    @property
    def session(self) -> Session:
        """Whose episode it governs."""
        ...


GovernorT = TypeVar("GovernorT", bound=Registered)


class Registry(Generic[GovernorT]):
    """Governors by session: of each the latest."""

    def __init__(self, boot: str | None = None) -> None:
        self.rows: Final = Rows()
        self.boot: Final = secrets.token_hex(8) if boot is None else boot
        """Names this run, in which rows are counted from 1."""
        self.mark: Final = self.boot[:MARK_DIGITS]
        """What ids that are made in this run end with."""
        self._governors: dict[str, GovernorT] = {}

    def __iter__(self) -> Iterator[GovernorT]:
        return iter([governor for governor in self._governors.values() if governor.session.loss is None])

    def add(self, governor: GovernorT) -> None:
        """Know a governor from now on; the one of its session's earlier episode is forgotten."""
        self._governors.pop(governor.session.name, None)
        self._governors[governor.session.name] = governor

    def remove(self, governor: GovernorT) -> None:
        """Forget a governor whose episode is closed."""
        if self._governors.get(governor.session.name) is governor:
            del self._governors[governor.session.name]

    def find(self, session: str) -> GovernorT | None:
        """Return the governor of a session's episode, if one runs."""
        found = self._governors.get(session)
        return None if found is None or found.session.loss is not None else found
