"""What is judged on a server, as it comes: rows of fixed width, or JSON lines.

Rule 1: nothing is left out in silence: rows that are no longer kept are counted, a server that has gone is named.
Rule 2: a server that was started anew is followed from its first row; one that does not come back ends the feed.
Rule 3: no text of a packet reaches the terminal before `printable` has seen it.
"""

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Final

from rich.text import Text

from proctor.cli.output import printable
from proctor.cli.verdicts.verdict_json import ACCEPTED, REFUSED
from proctor.cli.verdicts.verdict_table import COLOURS, shorten
from proctor.client.operator import WAIT_SECONDS, JudgedRows, OperatorClient, next_after
from proctor.errors import ConnectionFailed, ProctorError, RemoteError, RequestTimeout
from proctor.models.control import Code
from proctor.models.operator import JudgedRow

FEED_COLUMNS: Final = {"time": 12, "episode": 19, "state": 12, "who": 8, "packet": 16, "verdict": 8}
HEADINGS: Final = (*FEED_COLUMNS, "reason")
COLUMNS_WIDTH: Final = sum(FEED_COLUMNS.values()) + len(FEED_COLUMNS)
RETRY_SECONDS: Final = 60.0
PAUSE_SECONDS: Final = 1.0
RETRIED_ERRORS: Final = (ConnectionFailed, RequestTimeout, RemoteError)
"""What may mean that a server is not there."""
BEYOND_LAST_ROW: Final = 2**53
"""After this row there is none: an answer tells how many there are."""


def read_pages(
    client: OperatorClient,
    after: int,
    *,
    follow: bool,
    note: Callable[[str], object],
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], object] = time.sleep,
) -> Iterator[JudgedRows]:
    """Yield what was judged after row `after`, and with `follow` what comes, page by page.

    A server that goes away is waited for; one that stays away, or was never there, is the error that says so.
    """
    patience = RetryTimer(note, clock, pause)
    while True:
        try:
            page = client.page(after, WAIT_SECONDS if follow else 0.0)
        except RETRIED_ERRORS as problem:
            if not follow or not patience.wait_for_retry(problem):
                raise
            continue
        patience.note_answer()
        if page.missed:
            note(f"{page.missed} rows are no longer kept")
        after = next_after(page, after)
        yield page
        if not follow and after >= page.last:
            return


class RetryTimer:
    """How long a server that was there may be away."""

    def __init__(
        self, note: Callable[[str], object], clock: Callable[[], float], pause: Callable[[float], object]
    ) -> None:
        self._note = note
        self._clock = clock
        self._pause = pause
        self._met = False
        self._gone: float | None = None

    def note_answer(self) -> None:
        """Note that the server is there."""
        self._met, self._gone = True, None

    def wait_for_retry(self, problem: ProctorError) -> bool:
        """Pause and return True if it may come back; False if nothing is to be hoped for."""
        now = self._clock()
        if self._gone is None:
            self._gone = now
            if self._met and _is_temporary(problem):
                self._note(f"the server has gone ({problem}); waiting for it")
        if not self._met or not _is_temporary(problem) or now - self._gone > RETRY_SECONDS:
            return False
        self._pause(PAUSE_SECONDS)
        return True


def _is_temporary(problem: ProctorError) -> bool:
    """Return whether the server may answer again: it is stopping, or nobody is there; but it has refused nothing."""
    if isinstance(problem, RemoteError):
        return problem.code == Code.SHUTTING_DOWN
    return not isinstance(problem.found, int)


def find_last_row(client: OperatorClient) -> int:
    """Return the last row that there is."""
    return client.page(BEYOND_LAST_ROW, 0.0).last


def format_heading() -> Text:
    """Return the line above the rows."""
    return Text(_format_cells(HEADINGS), style="bold")


def format_row(row: JudgedRow, width: int | None) -> Text:
    """Return a row in a terminal of this width; None is for a page, on which the reason stays whole."""
    word = ACCEPTED if row.accepted else REFUSED
    at = datetime.fromtimestamp(row.at).astimezone().strftime("%H:%M:%S.%f")[:-3]
    told = printable(_describe_reason(row))
    cells = (at, f"{row.session}.{row.epoch}", row.state or "-", row.principal, _describe_kind(row), word)
    text = _format_cells((*cells, told if width is None else _shorten(told, width - COLUMNS_WIDTH)))
    line = Text(text)
    start = text.index(word, COLUMNS_WIDTH - FEED_COLUMNS["verdict"] - 1)
    line.stylize(COLOURS[word], start, start + len(word))
    return line


def _format_cells(cells: tuple[str, ...]) -> str:
    fixed = (
        shorten(printable(cell), width).ljust(width) for cell, width in zip(cells, FEED_COLUMNS.values(), strict=False)
    )
    return " ".join([*fixed, cells[-1]]).rstrip()


def _describe_kind(row: JudgedRow) -> str:
    return row.kind.removesuffix("Packet") or "unreadable"


def _describe_reason(row: JudgedRow) -> str:
    """Return why a line was refused; of an accepted one, the tool that said it."""
    if not row.accepted:
        return f"{', '.join(row.rules)}: {row.reason}" if row.rules else row.reason
    return row.reason or row.tool or ""


def _shorten(text: str, width: int) -> str:
    """Return the beginning of a reason, which says more than its end."""
    width = max(width, 10)
    return text if len(text) <= width else f"{text[: width - 1]}…"
