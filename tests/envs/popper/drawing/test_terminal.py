"""Column Popper in a terminal: coloured cells where there are colours, ASCII where there are none."""

import io
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.segment import Segment

from proctor.envs.popper.drawing.picture import AMBER, BLOCKS, RED
from proctor.envs.popper.drawing.terminal import as_text, picture
from proctor.errors import RenderingError
from tests.envs.popper.scenes import scene, scenes

POPPED = {"column": 2, "row": 0, "count": 3, "value": 1}


def console(colours: bool, width: int = 100, **options: Any) -> Console:
    system = "truecolor" if colours else None
    return Console(file=io.StringIO(), color_system=system, force_terminal=colours, width=width, **options)  # type: ignore[arg-type]  # a literal


def segments(seen: dict[str, Any], columns: int, rows: int, *, on: Console) -> list[list[Segment]]:
    return on.render_lines(picture(seen, columns, rows), pad=False)


def printed(seen: dict[str, Any], columns: int = 80, rows: int = 20, *, on: Console | None = None) -> list[str]:
    """Return the lines that a console, plain unless it is given, would show, without their colours."""
    chosen = console(colours=False) if on is None else on
    return ["".join(part.text for part in line) for line in segments(seen, columns, rows, on=chosen)]


@settings(max_examples=60, deadline=None)
@given(scenes(), st.integers(1, 90), st.integers(1, 40), st.booleans())
def test_a_picture_keeps_to_its_room(seen: dict[str, Any], columns: int, rows: int, colours: bool) -> None:
    lines = printed(seen, columns, rows, on=console(colours))

    assert 1 <= len(lines) <= rows
    assert {len(line) for line in lines} <= set(range(1, columns + 1))
    assert len({len(line) for line in lines}) == 1


@settings(max_examples=40, deadline=None)
@given(scenes(heights=(1, 17)))
def test_a_board_that_fits_is_shown_whole(seen: dict[str, Any]) -> None:
    shown = [line[1 : 1 + 3 * seen["static"]["columns"]] for line in printed(seen)]
    rows = [[int(sign) if sign.isdigit() else 0 for sign in line[1::3]] for line in shown]
    height = seen["static"]["height"]

    assert rows[1 : height + 1] == seen["frame"]["board"]


@settings(max_examples=40, deadline=None)
@given(scenes(), st.integers(4, 30))
def test_the_held_block_is_always_in_the_window(seen: dict[str, Any], rows: int) -> None:
    text = "".join(printed(seen, 80, rows))

    assert text.count("[") == text.count("]") == (seen["frame"]["held"] is not None)


def test_the_standard_board_leaves_four_lines_of_a_small_terminal() -> None:
    lines = printed(scene(), 80, 20)

    assert len(lines) == 15
    assert sum(line.startswith(("|", "!")) for line in lines) == 12


def test_the_plain_text_of_a_small_scene_is_this() -> None:
    seen = scene([[1, 2], [3, 2, 2, 1], []], 4, held=0, popped=POPPED)

    assert as_text(seen).splitlines() == [
        "+---------+  score  27",
        "| 1  3  * |  time   58.3  ##########",
        "|[2] 2  * |  fall   1.3   ####------",
        "| .  2  * |  held   2 from column 0",
        "! .  1  . !  step   17",
        "+---------+  return 3.20",
        "  0  1  2",
    ]


def test_the_plain_text_of_an_ended_game_says_how() -> None:
    seen = scene([[1]], 1, state="terminated", fault="overflow", time_left_ms=0, next_fall_ms=0)

    assert as_text(seen).splitlines() == [
        "+---+  score  27",
        "! 1 !  time   0.0   ----------",
        "+---+  fall   0.0   ----------",
        "  0    held   -",
        "       step   17",
        "       return 3.20",
        "       OVERFLOW",
    ]


@settings(max_examples=40, deadline=None)
@given(scenes())
def test_the_plain_text_is_ascii_and_has_every_row_of_any_board(seen: dict[str, Any]) -> None:
    lines = as_text(seen).splitlines()

    assert "".join(lines).isascii()
    assert sum(line.startswith(("|", "!")) for line in lines) == seen["static"]["height"]
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize(
    ("state", "fault", "words", "colour"),
    [
        ("truncated", None, "TIME UP", AMBER),
        ("terminated", "overflow", "OVERFLOW", RED),
        ("terminated", "invalid_full_drop", "FULL COLUMN", RED),
    ],
)
def test_the_verdict_has_its_colour(state: str, fault: str | None, words: str, colour: tuple[int, int, int]) -> None:
    lines = segments(scene(state=state, fault=fault), 80, 20, on=console(colours=True))
    told = next(part for line in lines for part in line if words in part.text)

    assert told.style is not None
    assert told.style.color is not None
    assert tuple(told.style.color.get_truecolor()) == colour


@pytest.mark.parametrize("value", BLOCKS)
def test_a_block_has_the_colour_of_its_number_and_the_number(value: int) -> None:
    lines = segments(scene([[value], [], []]), 80, 20, on=console(colours=True))
    block = lines[1][1]

    assert block.text == f" {value} "
    assert block.style is not None
    assert block.style.bgcolor is not None
    assert tuple(block.style.bgcolor.get_truecolor()) == BLOCKS[value]


def test_popped_cells_are_stars_until_something_falls_into_them() -> None:
    fresh = as_text(scene([[1], [2], []], popped=POPPED))
    fallen = as_text(scene([[1], [2], [3]], popped=POPPED))

    assert fresh.count("*") == 3
    assert fallen.count("*") == 2


def test_a_high_board_tells_how_many_rows_are_not_shown() -> None:
    lines = printed(scene([[1] * 30, [], []], 64), rows=13)

    assert " 21 more " in lines[0]
    assert " 33 more " in lines[11]
    assert [line[2] for line in lines[1:11]] == ["1"] * 9 + ["."]


def test_a_narrow_board_tells_it_in_figures() -> None:
    lines = printed(scene([[1] * 30], 64), columns=5, rows=13)

    assert "21" in lines[0]
    assert "33" in lines[11]


def test_columns_that_do_not_fit_are_told_by_an_arrow() -> None:
    lines = printed(scene([[1]] * 16), columns=20)

    assert lines[1] == "| 1  1  1  1  1  1 >"


def test_the_panel_is_left_out_where_it_does_not_fit() -> None:
    assert "score" in "".join(printed(scene(), columns=37))
    assert "score" not in "".join(printed(scene(), columns=36))


def test_colours_come_with_lines_and_without_them_there_is_only_ascii() -> None:
    coloured, plain = ("".join(printed(scene(), on=console(colours))) for colours in (True, False))

    assert {"┌", "│", "┃", "█"} <= set(coloured)
    assert plain.isascii()


def test_a_console_that_wants_no_colour_gets_ascii_without_styles() -> None:
    lines = segments(scene(), 80, 20, on=console(colours=True, no_color=True))

    assert "".join(part.text for line in lines for part in line).isascii()
    assert all(part.style is None or not part.style for line in lines for part in line)


def test_a_narrow_console_narrows_the_picture() -> None:
    assert max(map(len, printed(scene(), 80, 30, on=console(colours=False, width=20)))) <= 20


@pytest.mark.parametrize(("columns", "width"), [(80, 37), (20, 11), (4, 4)])
def test_a_picture_tells_its_width_to_what_frames_it(columns: int, width: int) -> None:
    measured = console(colours=False).measure(picture(scene(), columns, 20))

    assert measured.minimum == measured.maximum == width


@pytest.mark.parametrize("show", [as_text, lambda broken: picture(broken, 10, 10)])
def test_what_is_no_scene_is_refused(show: Any) -> None:
    with pytest.raises(RenderingError, match="no popper's scene"):
        show({"static": {}})
