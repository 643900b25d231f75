"""The viewer's rows: what is looked at is real and the same every time, and figures are read as a browser tells them."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.measure import Gap
from bench.row import Better
from bench.rows import viewer as rows
from bench.rows.viewer import ENOUGH, LIVE_RATE, ROWS, each, read, really, sliced
from bench.viewer_browser import Watched
from bench.viewer_files import CHAIN, LINK, searched
from bench.viewer_player import CHUNK, begun, pacing
from proctor.ledger.reader import Ledger
from proctor.models.events import EpisodeReset, EpisodeStepped
from tests.server.live_server import serving

times = st.floats(0.0, 10_000.0, allow_nan=False)


def watched(**found: tuple[float, ...]) -> Watched:
    return Watched(2.0, found.get("frames", ()), found.get("tasks", ()), found.get("draws", ()))


def test_a_search_is_real_and_has_its_scenes() -> None:
    with ExitStack() as stack:
        place = searched(stack, 30)
        with Ledger.open(place) as ledger:
            events = [row.event for row in ledger.rows(CHAIN)]

    steps = [event for event in events if isinstance(event, EpisodeStepped)]
    assert [step.step for step in steps] == list(range(1, 31))
    assert len({bytes(step.scene) for step in steps}) == 30
    assert b'"plume"' in next(bytes(event.scene) for event in events if isinstance(event, EpisodeReset))


def test_what_a_page_is_handed_and_what_is_read_are_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "STEPS", 50)
    with ExitStack() as stack:
        rates = [opener(stack)(0.01) for opener in (sliced, read)]

    assert all(rate > 0.0 for rate in rates)


def test_figures_are_read_as_the_browser_tells_them() -> None:
    found = watched(frames=(0.0, 16.0, 66.0, 82.0), tasks=(60.0, 140.0), draws=(1.0,) * 19 + (9.0,))

    assert (found.frames_a_second, found.longest_gap, found.longest_task) == (2.0, 50.0, 140.0)
    assert found.busy == pytest.approx(0.1)
    assert 1.0 <= found.slow_draw <= 9.0


@given(frames=st.lists(times, max_size=20).map(sorted), tasks=st.lists(times, max_size=20))
def test_no_figure_is_negative(frames: list[float], tasks: list[float]) -> None:
    found = watched(frames=tuple(frames), tasks=tuple(tasks))

    assert min(found.frames_a_second, found.longest_gap, found.longest_task, found.busy) >= 0.0


def test_a_page_that_was_not_drawn_has_no_figure() -> None:
    with pytest.raises(RuntimeError, match="not drawn"):
        _ = watched().slow_draw


def test_a_client_that_was_too_slow_is_a_gap() -> None:
    assert really(LIVE_RATE) == LIVE_RATE
    with pytest.raises(Gap, match="too busy"):
        really(ENOUGH * LIVE_RATE - 1.0)


def test_the_player_steps_in_one_episode_and_keeps_its_pace() -> None:
    with serving("proctor/PlumeSearch-v0", max_pending=64) as served, served.connect() as socket:
        chunk = pacing(socket, begun(socket), 1e6)

        done = [chunk() for _ in range(5)]

    assert done == [CHUNK] * 5


def test_a_link_is_found_in_a_line() -> None:
    found = LINK.search("ledger can be looked at: http://127.0.0.1:1/viewer/#code=a-_9")

    assert found is not None
    assert found.group().endswith("#code=a-_9")


def test_what_a_person_notices_is_said_as_a_rate() -> None:
    assert each(0.05)(ExitStack())(1.0) == pytest.approx(20.0)


def test_every_row_of_a_page_has_a_goal_and_says_how_it_was_recorded() -> None:
    pages = [row for row in ROWS if row.name != "viewer.slice/rows"]

    assert all(row.goal is not None and row.better is Better.HIGHER for row in pages)
    assert {row.durability for row in ROWS} == {"normal", "off"}
    assert {row.tier for row in ROWS} == {"none"}
