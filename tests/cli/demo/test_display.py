"""The show: a picture that changes in place for a terminal, a running log for anything else."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from proctor.cli.demo.display import LiveDisplay, LogDisplay, draw_view, make_display
from proctor.cli.demo.story import EpisodeStory
from tests.cli.episodes import begun


def plain() -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, width=100, height=30, _environ={}), out


def terminal(width: int = 110, height: int = 30) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=width, height=height, color_system="truecolor", _environ={})
    return console, out


def story() -> EpisodeStory:
    found = EpisodeStory()
    for row in begun().rows:
        found.add_row(row)
    return found


def test_a_terminal_gets_pictures_and_anything_else_a_log() -> None:
    assert isinstance(make_display(terminal()[0], live=True), LiveDisplay)
    assert isinstance(make_display(terminal()[0], live=False), LogDisplay)
    assert isinstance(make_display(plain()[0], live=True), LogDisplay)


def test_the_log_has_a_line_for_every_packet_with_its_verdict_and_the_field_twice() -> None:
    console, out = plain()
    with LogDisplay(console) as show:
        for row in begun().rows:
            show.add_row(row)
            show.draw()

    lines = out.getvalue().splitlines()
    assert "+ agent    believe           S1>S2     BeliefUpdatePacket world.odor" in out.getvalue()
    assert "move: 2 steps, up to step 2" in out.getvalue()
    assert any("x agent    submit_packet" in line and "refused, GOV-1" in line for line in lines)
    assert sum("S" in line and "=" in line for line in lines) == 2


def interrupted(show: LogDisplay) -> None:
    with show:
        for row in begun().rows[:5]:
            show.add_row(row)
        raise KeyboardInterrupt


def test_a_log_that_broke_off_tells_the_last_steps() -> None:
    console, out = plain()

    with pytest.raises(KeyboardInterrupt):
        interrupted(LogDisplay(console))

    assert out.getvalue().endswith("move: 2 steps, up to step 2\n")


def test_the_last_picture_stays_and_has_field_state_and_packets() -> None:
    console, out = terminal()
    with LiveDisplay(console) as show:
        for row in begun().rows:
            show.add_row(row)
        show.draw()

    shown = out.getvalue()
    assert "▀" in shown
    assert "[S2]" in shown
    assert "3 lines" not in shown
    assert "2 lines judged, 1 refused" in shown
    assert "GOV-1: an agent may not state this" in shown
    assert "governed by 'standard'" in shown


def test_before_the_first_row_there_is_something_to_see() -> None:
    console, out = terminal()

    console.print(draw_view(EpisodeStory(), 110, 30))

    assert "waiting" in out.getvalue()


@settings(max_examples=20, deadline=None)
@given(st.integers(20, 160), st.integers(6, 50))
def test_a_picture_never_takes_more_than_the_terminal_has(width: int, height: int) -> None:
    console, _ = terminal(width, height)

    lines = console.render_lines(draw_view(story(), width, height), pad=False)

    assert len(lines) < max(height, 9)
    assert all(sum(segment.cell_length for segment in line) <= width for line in lines)
