"""What can be read of an episode, as a table: the path, the query, the answer, and the function that reads it; and their Structs.

Rule 1: each runs in a process beside the server (`reader_process.py`), and returns the bytes that are sent. What takes long is
    apart from what does not. Forks, which run an environment's code, are on a thread of the server.
Rule 2: what brings the judge, the environments or the page's scripts is imported when it is first asked for.
Rule 3: a request has exactly the fields that are described here, each within its bounds; anything else is refused.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import msgspec
from msgspec import Meta, Struct

from proctor.server.net.http_requests import JSON
from proctor.viewer.documents import (
    MOST_ACTIONS,
    EpisodeDifference,
    EpisodeHead,
    EpisodeLine,
    EpisodeSlice,
    Explanation,
    MachineDiagram,
)

if TYPE_CHECKING:
    from proctor.ledger.reader import Ledger
    from proctor.viewer.catalog import EpisodeCatalog

MOST_STEPS: Final = 20_000
ChainName: TypeAlias = Annotated[str, Meta(min_length=1, max_length=300)]
RowNumber: TypeAlias = Annotated[int, Meta(ge=0, le=2**53 - 1)]


class EntryCode(Struct, forbid_unknown_fields=True):
    """The one-time code that an address held."""

    code: Annotated[str, Meta(min_length=1, max_length=256)]


class ViewerVisit(Struct):
    """What a browser that was let in may know of where it is."""

    csrf: str | None
    """Goes with every post, in the header X-Proctor-CSRF. Told once, when the code is traded: a cookie, which other
    programs on this host may come to see, does not bring it back."""
    server: str
    """The version."""
    environment: str | None
    can_act: bool
    """Whether there is an operator's side."""
    can_fork: bool
    live: bool
    """Whether there may be more to come."""


class VisitLeft(Struct):
    """A visit has ended."""

    left: bool = True


class EpisodeLines(Struct):
    """All episodes, the newest first."""

    lines: list[EpisodeLine]
    remarks: list[str] = []
    """What the list leaves out, in sentences."""


class NoQuery(Struct, forbid_unknown_fields=True):
    """Nothing is asked for."""


class ChainQuery(Struct, forbid_unknown_fields=True):
    """An episode."""

    chain: ChainName


class RowQuery(Struct, forbid_unknown_fields=True):
    """A row of an episode."""

    chain: ChainName
    number: RowNumber


class SliceQuery(Struct, forbid_unknown_fields=True):
    """What comes after a row; `thin` covers everything up to the end with at most `most` steps."""

    chain: ChainName
    after: RowNumber = 0
    most: Annotated[int, Meta(ge=1, le=MOST_STEPS)] = 5000
    thin: bool = False


class PairQuery(Struct, forbid_unknown_fields=True):
    """Two episodes."""

    one: ChainName
    other: ChainName


class ForkOrder(Struct, forbid_unknown_fields=True):
    """Drive an episode again up to a step, and from there with other actions."""

    chain: ChainName
    step: RowNumber
    actions: Annotated[list[Any], Meta(max_length=MOST_ACTIONS)]
    """Each as the environment takes it."""


HTML: Final = "text/html; charset=utf-8"
PNG: Final = "image/png"
encode: Final = msgspec.json.encode


class LedgerSource:
    """The ledger at a path, opened as what is needed of it."""

    def __init__(self, path: Path, *, live: bool = False) -> None:
        self.path: Final = path
        self._live = live

    @cached_property
    def catalog(self) -> "EpisodeCatalog":
        """Its episodes, of which no row is read twice."""
        from proctor.viewer.catalog import EpisodeCatalog

        return EpisodeCatalog(self.path, live=self._live)

    def ledger(self) -> "AbstractContextManager[Ledger]":
        """Its rows, opened for a block."""
        from proctor.ledger.reader import Ledger

        return Ledger.open(self.path)

    def close(self) -> None:
        """Let go of the files."""
        if "catalog" in self.__dict__:
            self.catalog.close()


@dataclass(frozen=True, slots=True)
class ReadEndpoint:
    """One thing to read; `says` is the document, None where the answer is no document of ours."""

    path: str
    about: str
    asks: type[Struct]
    says: type[Struct] | None
    read: Callable[[LedgerSource, Any], bytes]
    media: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    is_long: bool = False
    """Whether it may take seconds, so that nothing quick should wait for it."""


def _read_explanation(source: LedgerSource, query: RowQuery) -> bytes:
    from proctor.viewer.explanations import explain_line

    with source.ledger() as ledger:
        return encode(explain_line(ledger, query.chain, query.number))


def _read_difference(source: LedgerSource, query: PairQuery) -> bytes:
    from proctor.viewer.comparison import compare_episodes

    with source.ledger() as ledger:
        return encode(compare_episodes(ledger, query.one, query.other))


def _read_machine(source: LedgerSource, query: NoQuery) -> bytes:
    from proctor.viewer.machine import build_machine

    return encode(build_machine())


def _read_page(source: LedgerSource, query: ChainQuery) -> bytes:
    from proctor.viewer.single_file import build_page

    with source.ledger() as ledger:
        return build_page(ledger, [query.chain]).encode()


def run_fork(source: LedgerSource, order: ForkOrder, *, trusts: bool) -> bytes:
    """Return the fork that was ordered; without trust, only of an environment that is installed and registered here."""
    from proctor.replay.replayer import check_episode
    from proctor.viewer.comparison import fork_episode

    with source.ledger() as ledger:
        if not trusts:
            check_episode(ledger, order.chain, trusting="proctor view --trust")
        return encode(fork_episode(ledger, order.chain, order.step, order.actions))


READ_ENDPOINTS: Final = (
    ReadEndpoint(
        "/viewer/api/head",
        "What an episode's page needs before its steps.",
        ChainQuery,
        EpisodeHead,
        lambda source, query: encode(source.catalog.head(query.chain)),
    ),
    ReadEndpoint(
        "/viewer/api/slice",
        "Steps, packets and notes after a row.",
        SliceQuery,
        EpisodeSlice,
        lambda source, query: encode(
            source.catalog.slice(query.chain, after=query.after, most=query.most, thin=query.thin)
        ),
    ),
    ReadEndpoint(
        "/viewer/api/raw",
        "A row as it is on record.",
        RowQuery,
        None,
        lambda source, query: source.catalog.raw(query.chain, query.number),
    ),
    ReadEndpoint(
        "/viewer/api/pixels",
        "The picture of a step, where there is one.",
        RowQuery,
        None,
        lambda source, query: source.catalog.pixels(query.chain, query.number),
        PNG,
    ),
    ReadEndpoint(
        "/viewer/api/explanation", "A verdict in words.", RowQuery, Explanation, _read_explanation, is_long=True
    ),
    ReadEndpoint(
        "/viewer/api/difference",
        "Where two episodes differ first.",
        PairQuery,
        EpisodeDifference,
        _read_difference,
        is_long=True,
    ),
    ReadEndpoint("/viewer/api/machine", "The machine of packets.", NoQuery, MachineDiagram, _read_machine),
    ReadEndpoint(
        "/viewer/api/page",
        "An episode as one file that needs no server.",
        ChainQuery,
        None,
        _read_page,
        HTML,
        {"content-disposition": "attachment"},
        is_long=True,
    ),
)
