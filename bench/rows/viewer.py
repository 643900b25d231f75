"""The rows of the viewer: how soon a long episode is there, how it scrubs, and whether a fast live one chokes the page.

Rule 1: a page's figures are the browser's own: marks, measures, long tasks, frames. They are held against what a person
    notices, as times that go into one of it: one second until something is there, 50 ms as a pause, 200 ms as a page that hangs.
Rule 2: server, client and browser share the machine, as they do where somebody watches a run on a laptop; nothing is
    painted by a graphics card.
Rule 3: a live row counts only if the client really stepped as often as it says.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from bench.control_servers import started
from bench.ledger_files import RECORDED, folder, rows_in, with_ledger
from bench.measure import Gap, Probe, rate_of
from bench.peers import Peer
from bench.row import Opener, Row, ratio_at_least
from bench.rows.control import Driver, own_python
from bench.viewer_browser import COMPLETE, READY, Visitor, Watched, visiting
from bench.viewer_files import CHAIN, PLUME, linked, searched, viewed
from proctor.ledger.reader import Ledger
from proctor.ledger.storage.sqlite import Durability
from proctor.viewer.catalog import EpisodeCatalog

STEPS: Final = 10_000
LIVE_RATE: Final = 1_000.0
LIVE_DURABILITY: Final[Durability] = "off"
ENDLESS: Final = "max_steps=1000000000"
ENOUGH: Final = 0.9
A_WHILE: Final = 3.0
"""Seconds that a live episode is looked at, at least."""
SECOND, PAUSE, HANG = 1.0, 0.050, 0.200
FINEST: Final = 0.1
"""Milliseconds; browsers tell no shorter time."""
SHORT_TASK: Final = 50.0
"""Milliseconds; browsers note no task that takes less."""
PLAYER: Final = Driver("proctor", "bench.viewer_player", own_python)
Figure = Callable[[Watched], float]


def each(seconds: float) -> Opener:
    """How many times so many seconds go into one."""
    return lambda _stack: lambda _seconds: 1.0 / seconds


def opening(mark: str) -> Opener:
    """Pages a second, were one opened after the other: from the request of the page to a mark."""

    def opened(stack: ExitStack) -> Probe:
        visitor = visiting(stack, viewed(stack, searched(stack, STEPS)))

        def probe(_seconds: float) -> float:
            visitor.open(CHAIN)
            return 1000.0 / visitor.mark(mark)

        return probe

    return opened


def scrubbing(figure: Figure) -> Opener:
    """What the browser says of a long episode whose timeline is dragged to and fro, as how often it goes into a second."""

    def opened(stack: ExitStack) -> Probe:
        visitor = visiting(stack, viewed(stack, searched(stack, STEPS)))
        visitor.open(CHAIN)
        visitor.mark(COMPLETE)
        return lambda seconds: 1000.0 / max(figure(visitor.scrub(seconds)), FINEST)

    return opened


# ----------------------------------------------------------------------------------------------------------------- live
@dataclass(frozen=True, slots=True)
class Scene:
    """A server, a client that steps there at `LIVE_RATE`, and a browser that was let in."""

    place: Path
    player: Peer
    visitor: Visitor
    pool: ThreadPoolExecutor
    first: int
    """Rows before the first step."""

    def shown(self) -> int:
        """Return the last step that the page knows."""
        return int(self.visitor.page.locator(".step-entry").get_attribute("max") or 0)

    def recorded(self) -> int:
        """Return the last step that is on record."""
        return rows_in(self.place) - self.first

    def stepping(self, seconds: float) -> Future[float]:
        """Let the client step for so many seconds beside whatever else is done."""
        return self.pool.submit(self.player.measure, seconds)


def staged(stack: ExitStack) -> Scene:
    """Return a scene that `stack` takes down; the browser has an empty page."""
    place = folder(stack)
    there = started(stack, with_ledger(PLUME, place, LIVE_DURABILITY, "--set", ENDLESS))
    player = stack.enter_context(PLAYER.beside(there.url, str(LIVE_RATE)))
    visitor = visiting(stack, linked(there))
    pool = stack.enter_context(ThreadPoolExecutor(1))
    return Scene(place, player, visitor, pool, rows_in(place))


def watched(stack: ExitStack) -> Scene:
    """Return a scene whose browser shows the episode."""
    scene = staged(stack)
    scene.visitor.open(scene.visitor.newest())
    return scene


def living(figure: Callable[[Watched, float], float]) -> Opener:
    """What is said of a page that shows an episode in which a client steps all the time; `figure` gets the client's rate too."""

    def opened(stack: ExitStack) -> Probe:
        scene = watched(stack)

        def probe(seconds: float) -> float:
            long = max(A_WHILE, seconds)
            stepping = scene.stepping(long)
            found = scene.visitor.watch(long)
            return figure(found, really(stepping.result()))

        return probe

    return opened


def really(rate: float) -> float:
    """Return the rate of a client that kept its promise."""
    if rate < ENOUGH * LIVE_RATE:
        raise Gap(f"the client stepped {rate:.0f} times a second only: the machine is too busy for this row")
    return rate


def behind(stack: ExitStack) -> Probe:
    """How often the time goes into a second by which the page is behind the record."""
    scene = watched(stack)

    def probe(seconds: float) -> float:
        long = max(A_WHILE, seconds)
        stepping = scene.stepping(2 * long)
        scene.visitor.watch(long)
        shown = scene.shown()
        missing = scene.recorded() - shown
        return really(stepping.result()) / max(1, missing)

    return probe


def unwatched(stack: ExitStack) -> Probe:
    """Steps a second of the same client when nobody looks."""
    place = folder(stack)
    there = started(stack, with_ledger(PLUME, place, LIVE_DURABILITY, "--set", ENDLESS))
    return stack.enter_context(PLAYER.beside(there.url, str(LIVE_RATE))).measure


def blank(stack: ExitStack) -> Probe:
    """Frames a second of an empty page, while the same client steps."""
    scene = staged(stack)
    scene.visitor.page.goto("about:blank")

    def probe(seconds: float) -> float:
        long = max(A_WHILE, seconds)
        stepping = scene.stepping(long)
        found = scene.visitor.watch(long).frames_a_second
        really(stepping.result())
        return found

    return probe


# ------------------------------------------------------------------------------------------------------ the server's side
def sliced(stack: ExitStack) -> Probe:
    """Steps a second as they are handed to a page: the head and one slice, as JSON."""
    shelf = EpisodeCatalog(searched(stack, STEPS))
    stack.callback(shelf.close)

    def chunk() -> int:
        msgspec.json.encode(shelf.head(CHAIN))
        found = shelf.slice(CHAIN, most=STEPS)
        msgspec.json.encode(found)
        return len(found.steps.number)

    return rate_of(chunk)


def read(stack: ExitStack) -> Probe:
    """Rows a second of the same episode, read and decoded one by one."""
    ledger = stack.enter_context(Ledger.open(searched(stack, STEPS)))
    return rate_of(lambda: sum(1 for _ in ledger.rows(CHAIN)))


def _page(name: str, subject: Opener, noticed: float, anchor_name: str, unit: str, note: str) -> Row:
    """Return a row of one page in the browser, held against what a person notices."""
    return Row(
        name,
        subject,
        each(noticed),
        anchor_name,
        ratio_at_least(1.0),
        unit=unit,
        note=note,
        tier="none",
        durability=RECORDED,
    )


def _live(name: str, subject: Opener, anchor: Opener, anchor_name: str, unit: str, note: str, bound: float) -> Row:
    note = f"{note}, {LIVE_RATE:,.0f} steps/s"
    goal = ratio_at_least(bound)
    return Row(name, subject, anchor, anchor_name, goal, unit=unit, note=note, tier="none", durability=LIVE_DURABILITY)


LONG: Final = f"an episode of {STEPS:,} steps"
ROWS: Final = (
    _page("viewer.open/second", opening(READY), SECOND, "one second", "opens/s", f"{LONG}, until it is drawn"),
    _page("viewer.open-whole/second", opening(COMPLETE), SECOND, "one second", "opens/s", f"{LONG}, every step there"),
    _page(
        "viewer.scrub-draw/pause",
        scrubbing(lambda watched: watched.slow_draw),
        PAUSE,
        "50 ms, a visible pause",
        "draws/s",
        f"{LONG}, p95 of redrawing all panels",
    ),
    _page(
        "viewer.scrub-frames/pause",
        scrubbing(lambda watched: watched.longest_gap),
        PAUSE,
        "50 ms, a visible pause",
        "frames/s",
        f"{LONG}, the longest gap between two frames",
    ),
    _live(
        "viewer.live-task/hang",
        living(lambda watched, _rate: 1000.0 / max(watched.longest_task, SHORT_TASK)),
        each(HANG),
        "200 ms, a page that hangs",
        "tasks/s",
        "the longest task",
        1.0,
    ),
    _live(
        "viewer.live-idle/half",
        living(lambda watched, _rate: 1.0 - watched.busy),
        lambda _stack: lambda _seconds: 0.5,
        "half of the time",
        "of the time",
        "outside of long tasks",
        1.0,
    ),
    _live(
        "viewer.live-frames/blank",
        living(lambda watched, _rate: watched.frames_a_second),
        blank,
        "an empty page beside the same client",
        "frames/s",
        "drawn",
        0.5,
    ),
    _live(
        "viewer.live-steps/unwatched",
        living(lambda _watched, rate: rate),
        unwatched,
        "the same client, nobody looks",
        "steps/s",
        "of the client",
        0.9,
    ),
    _live(
        "viewer.live-behind/second",
        behind,
        each(SECOND),
        "one second",
        "1/s",
        "from a step's record to its picture",
        1.0,
    ),
    Row(
        "viewer.slice/rows",
        sliced,
        read,
        "the same rows, read and decoded one by one",
        unit="steps/s",
        note=f"{LONG}, head and slice as JSON",
        tier="none",
        durability=RECORDED,
    ),
)
