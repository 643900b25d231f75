"""What can be read of an episode, as a table: the path, what is asked, what is told, and who tells it.

Rule 1: each runs on a thread, and returns the bytes that are sent.
Rule 2: what brings the judge, the environments or the page's scripts is imported when it is first asked for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from proctor.server.asking import JSON
from proctor.server.viewing.forms import ChainQuery, ForkOrder, NoQuery, PairQuery, RowQuery, SliceQuery
from proctor.viewer.documents import Difference, Explanation, Head, Machine, Slice

if TYPE_CHECKING:
    from proctor.viewer.shelf import Shelf

HTML: Final = "text/html; charset=utf-8"
PNG: Final = "image/png"
encode: Final = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Reading:
    """One thing to read; `says` is the document, None where the answer is no document of ours."""

    path: str
    about: str
    asks: type[Struct]
    says: type[Struct] | None
    read: Callable[["Shelf", Any], bytes]
    media: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


def _explained(shelf: "Shelf", query: RowQuery) -> bytes:
    from proctor.viewer.explaining import explanation

    with shelf.ledger() as ledger:
        return encode(explanation(ledger, query.chain, query.number))


def _compared(shelf: "Shelf", query: PairQuery) -> bytes:
    from proctor.viewer.comparing import difference

    with shelf.ledger() as ledger:
        return encode(difference(ledger, query.one, query.other))


def _machine(shelf: "Shelf", query: NoQuery) -> bytes:
    from proctor.viewer.machine import machine

    return encode(machine())


def _page(shelf: "Shelf", query: ChainQuery) -> bytes:
    from proctor.viewer.single_file import page

    with shelf.ledger() as ledger:
        return page(ledger, [query.chain]).encode()


def forked(shelf: "Shelf", order: ForkOrder) -> bytes:
    """Return the fork that was ordered."""
    from proctor.viewer.comparing import fork

    with shelf.ledger() as ledger:
        return encode(fork(ledger, order.chain, order.step, order.actions))


READINGS: Final = (
    Reading(
        "/viewer/api/head",
        "What an episode's page needs before its steps.",
        ChainQuery,
        Head,
        lambda shelf, query: encode(shelf.head(query.chain)),
    ),
    Reading(
        "/viewer/api/slice",
        "Steps, packets and notes after a row.",
        SliceQuery,
        Slice,
        lambda shelf, query: encode(shelf.slice(query.chain, after=query.after, most=query.most, thin=query.thin)),
    ),
    Reading(
        "/viewer/api/raw",
        "A row as it is on record.",
        RowQuery,
        None,
        lambda shelf, query: shelf.raw(query.chain, query.number),
    ),
    Reading(
        "/viewer/api/pixels",
        "The picture of a step, where there is one.",
        RowQuery,
        None,
        lambda shelf, query: shelf.pixels(query.chain, query.number),
        PNG,
    ),
    Reading("/viewer/api/explanation", "A verdict in words.", RowQuery, Explanation, _explained),
    Reading("/viewer/api/difference", "Where two episodes differ first.", PairQuery, Difference, _compared),
    Reading("/viewer/api/machine", "The machine of packets.", NoQuery, Machine, _machine),
    Reading(
        "/viewer/api/page",
        "An episode as one file that needs no server.",
        ChainQuery,
        None,
        _page,
        HTML,
        {"content-disposition": 'attachment; filename="episode.html"'},
    ),
)
