"""Rows as JSON, one object a line: everything that is on record, with the observations' values.

Rule 1: a line says what the ledger says of its row, and no more: number, chain, seq, hash, event. `digest` is there where
    an observation is, and `"values": false` where its values were not kept.
Rule 2: of governed episodes the packets and records can be had alone, in the bytes in which they were judged, so that they
    can be judged again: `proctor ledger export LEDGER --packets | proctor judge -`.
"""

from collections.abc import Iterable, Iterator

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from proctor.ledger.reader import EpisodeSummary, Ledger, Row
from proctor.models.events import PacketJudged


class JsonlRow(Struct, frozen=True, gc=False):
    """A row as it is written."""

    number: int
    chain: str
    seq: int
    hash: str
    event: Raw
    digest: str | UnsetType = UNSET
    values: bool | UnsetType = UNSET


def encode_row(row: Row) -> bytes:
    """Return a row as one line of JSON, with its end."""
    line = JsonlRow(
        row.number,
        row.chain,
        row.seq,
        row.hash.hex(),
        Raw(remove_line_breaks(msgspec.json.encode(row.event))),
        UNSET if row.digest is None else row.digest,
        UNSET if row.values else False,
    )
    return msgspec.json.encode(line) + b"\n"


def remove_line_breaks(text: bytes) -> bytes:
    """Return a JSON text without breaks; JSON allows them wherever it allows a blank."""
    return msgspec.json.format(text, indent=-1) if b"\n" in text or b"\r" in text else text


def encode_rows(rows: Iterable[Row]) -> Iterator[bytes]:
    """Yield the line of every row."""
    return map(encode_row, rows)


def encode_packets(rows: Iterable[Row]) -> Iterator[bytes]:
    """Yield the packets and records that were judged, each as it was, with the line's end."""
    for row in rows:
        if isinstance(row.event, PacketJudged) and row.event.judged:
            yield remove_line_breaks(bytes(row.event.line)) + b"\n"


def read_rows(ledger: Ledger, episodes: Iterable[EpisodeSummary] | None) -> Iterator[Row]:
    """Yield the rows of these episodes, one after the other; None: all rows of the ledger, the server's own too."""
    if episodes is None:
        yield from ledger.all_rows()
        return
    for each in episodes:
        yield from ledger.rows(each.chain)
