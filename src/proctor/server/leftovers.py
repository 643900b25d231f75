"""Sessions of workers that this run of the server does not have: nobody can come back to them, so they are closed.

Rule: they are closed on record, once, and said in the log. A file that another server has open is left alone.
"""

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

from proctor.errors import ProctorError
from proctor.ledger.writer import LedgerWriter, Unfinished
from proctor.models.events import BatchStepped, EpisodeStepped, SessionClosed

LOG: Final = logging.getLogger("proctor.sessions")
_WORKER: Final = re.compile(r"worker-(\d+)\.ledger")


async def close_leftovers(
    folder: Path, workers: int, writer_of: Callable[[int], LedgerWriter], wall: Callable[[], float]
) -> None:
    """Close what workers with a number of `workers` or higher left open in the ledger."""
    found = [_WORKER.fullmatch(path.name) for path in folder.iterdir()]
    for number in sorted(int(each[1]) for each in found if each is not None):
        if number >= workers:
            await _closed(writer_of, number, wall)


async def _closed(writer_of: Callable[[int], LedgerWriter], number: int, wall: Callable[[], float]) -> None:
    try:
        writer = writer_of(number)
    except ProctorError as problem:
        LOG.warning("the ledger of worker %d could not be looked at: %s", number, problem.message)
        return
    try:
        left = writer.unfinished()
        for each in left:
            safe = writer.record(_last_word(each, wall()))
            if safe is not None:
                await safe
    finally:
        writer.close()
    if left:
        LOG.warning("%d sessions of worker %d are lost: this run has fewer workers", len(left), number)


def _last_word(left: Unfinished, at: float) -> SessionClosed:
    steps = left.steps_before + sum(isinstance(event, EpisodeStepped | BatchStepped) for event in left.events)
    return SessionClosed(
        session=left.opened.session,
        at=at,
        principal="system",
        reason="lost",
        episodes=left.all_epochs,
        steps=steps,
    )
