"""What can be read of an episode, as a table: the path, what is asked, what is told, and who tells it.

Rule 1: each runs where somebody reads for the pages (`reader.py`), beside the server and not in it, and returns the bytes that
    are sent. What takes long is apart from what does not. Forks, which run an environment's code, are on a thread of the server.
Rule 2: what brings the judge, the environments or the page's scripts is imported when it is first asked for.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from proctor.server.asking import JSON
from proctor.server.viewing.forms import ChainQuery, ForkOrder, NoQuery, PairQuery, RowQuery, SliceQuery
from proctor.viewer.documents import Difference, Explanation, Head, Machine, Slice

if TYPE_CHECKING:
    from proctor.ledger.reader import Ledger
    from proctor.viewer.shelf import Shelf

HTML: Final = "text/html; charset=utf-8"
PNG: Final = "image/png"
encode: Final = msgspec.json.encode


class Source:
    """The ledger at a path, opened as what is needed of it."""

    def __init__(self, path: Path, *, live: bool = False) -> None:
        self.path: Final = path
        self._live = live

    @cached_property
    def shelf(self) -> "Shelf":
        """Its episodes, of which no row is read twice."""
        from proctor.viewer.shelf import Shelf

        return Shelf(self.path, live=self._live)

    def ledger(self) -> "AbstractContextManager[Ledger]":
        """Its rows, opened for a block."""
        from proctor.ledger.reader import Ledger

        return Ledger.open(self.path)

    def close(self) -> None:
        """Let go of the files."""
        if "shelf" in self.__dict__:
            self.shelf.close()


@dataclass(frozen=True, slots=True)
class Reading:
    """One thing to read; `says` is the document, None where the answer is no document of ours."""

    path: str
    about: str
    asks: type[Struct]
    says: type[Struct] | None
    read: Callable[[Source, Any], bytes]
    media: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    is_long: bool = False
    """Whether it may take seconds, so that nothing quick should wait for it."""


def _explained(source: Source, query: RowQuery) -> bytes:
    from proctor.viewer.explaining import explanation

    with source.ledger() as ledger:
        return encode(explanation(ledger, query.chain, query.number))


def _compared(source: Source, query: PairQuery) -> bytes:
    from proctor.viewer.comparing import difference

    with source.ledger() as ledger:
        return encode(difference(ledger, query.one, query.other))


def _machine(source: Source, query: NoQuery) -> bytes:
    from proctor.viewer.machine import machine

    return encode(machine())


def _page(source: Source, query: ChainQuery) -> bytes:
    from proctor.viewer.single_file import page

    with source.ledger() as ledger:
        return page(ledger, [query.chain]).encode()


def forked(source: Source, order: ForkOrder, *, trusts: bool) -> bytes:
    """Return the fork that was ordered; without trust, only of an environment that is installed and registered here."""
    from proctor.replay.trust import check_episode
    from proctor.viewer.comparing import fork

    with source.ledger() as ledger:
        if not trusts:
            check_episode(ledger, order.chain, trusting="proctor view --trust")
        return encode(fork(ledger, order.chain, order.step, order.actions))


READINGS: Final = (
    Reading(
        "/viewer/api/head",
        "What an episode's page needs before its steps.",
        ChainQuery,
        Head,
        lambda source, query: encode(source.shelf.head(query.chain)),
    ),
    Reading(
        "/viewer/api/slice",
        "Steps, packets and notes after a row.",
        SliceQuery,
        Slice,
        lambda source, query: encode(
            source.shelf.slice(query.chain, after=query.after, most=query.most, thin=query.thin)
        ),
    ),
    Reading(
        "/viewer/api/raw",
        "A row as it is on record.",
        RowQuery,
        None,
        lambda source, query: source.shelf.raw(query.chain, query.number),
    ),
    Reading(
        "/viewer/api/pixels",
        "The picture of a step, where there is one.",
        RowQuery,
        None,
        lambda source, query: source.shelf.pixels(query.chain, query.number),
        PNG,
    ),
    Reading("/viewer/api/explanation", "A verdict in words.", RowQuery, Explanation, _explained, is_long=True),
    Reading(
        "/viewer/api/difference", "Where two episodes differ first.", PairQuery, Difference, _compared, is_long=True
    ),
    Reading("/viewer/api/machine", "The machine of packets.", NoQuery, Machine, _machine),
    Reading(
        "/viewer/api/page",
        "An episode as one file that needs no server.",
        ChainQuery,
        None,
        _page,
        HTML,
        {"content-disposition": "attachment"},
        is_long=True,
    ),
)
