"""A plume in a terminal: half blocks where there are colours, ASCII where there are none."""

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from proctor.envs.plume.drawing.picture import AGENT
from proctor.envs.plume.drawing.terminal import ARROWS, ASCII_ARROWS, SOURCE, picture
from proctor.errors import RenderingError
from tests.envs.plume.scenes import scene as any_scene


def scene(grid: tuple[int, int] = (32, 32), **frame: Any) -> dict[str, Any]:
    return any_scene(grid, kind={"kind": "gaussian", "sigma": 4.0}, **frame)


def console(colours: bool, width: int = 100, **options: Any) -> Console:
    system = "truecolor" if colours else None
    return Console(file=io.StringIO(), color_system=system, force_terminal=colours, width=width, **options)  # type: ignore[arg-type]  # a literal


def printed(seen: dict[str, Any], columns: int = 40, rows: int = 20, *, on: Console | None = None) -> list[str]:
    """Return the lines that a console, plain unless it is given, would show, without their colours."""
    chosen = console(colours=False) if on is None else on
    lines = chosen.render_lines(picture(seen, columns, rows), pad=False)
    return ["".join(segment.text for segment in line) for line in lines]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 10_000), st.integers(1, 10_000), st.integers(1, 90), st.integers(1, 40), st.booleans())
def test_a_picture_keeps_to_its_room(width: int, height: int, columns: int, rows: int, colours: bool) -> None:
    lines = printed(scene((width, height)), columns, rows, on=console(colours))

    assert 1 <= len(lines) <= rows
    assert {len(line) for line in lines} <= set(range(1, columns + 1))
    assert len({len(line) for line in lines}) == 1


def test_plain_text_is_ascii_and_names_the_source_and_the_agent() -> None:
    text = "\n".join(printed(scene(at=[2, 2])))

    assert text.isascii()
    assert (text.count("S"), text.count(">"), text.count("\x1b")) == (1, 1, 0)


PLAIN_SIGNS = [(False, 0, ">"), (False, 90, "^"), (False, 180, "<"), (False, 270, "v"), (False, 359, ">")]


@pytest.mark.parametrize(
    ("colours", "heading", "sign"), PLAIN_SIGNS + [(True, 45 * place, sign) for place, sign in enumerate(ARROWS)]
)
def test_the_arrow_points_where_the_agent_heads(colours: bool, heading: float, sign: str) -> None:
    assert sign in "".join(printed(scene(heading=heading), on=console(colours)))


@pytest.mark.parametrize("colours", [True, False])
def test_up_is_up(colours: bool) -> None:
    arrow = (ARROWS if colours else ASCII_ARROWS)[0]
    low, high = (
        [arrow in line for line in printed(scene(at=[3, y]), on=console(colours))].index(True) for y in (1, 30)
    )

    assert high < 3
    assert low > 16


def test_the_field_is_densest_at_the_source() -> None:
    lines = printed(scene(at=[0, 0], goal_radius=0.5))
    row = next(line for line in lines if "S" in line)

    assert "@S@" in row or "%S@" in row
    assert row[0] == row[-1] == " "


def test_the_edge_of_a_large_goal_is_drawn() -> None:
    assert "o" in "".join(printed(scene(goal_radius=8.0)))
    assert "o" not in "".join(printed(scene(goal_radius=0.1)))


def test_colours_come_as_half_blocks_with_the_source_and_the_agent_on_top() -> None:
    text = "".join(printed(scene(at=[2, 2]), on=console(colours=True)))

    assert set(text) == {"▀", SOURCE, ARROWS[0]}


@pytest.mark.parametrize("options", [{"no_color": True}, {"legacy_windows": False, "no_color": True}])
def test_a_console_that_wants_no_colour_gets_ascii(options: dict[str, Any]) -> None:
    assert "".join(printed(scene(), on=console(colours=True, **options))).isascii()


@pytest.mark.parametrize("state", list(AGENT))
def test_the_agent_has_the_colour_of_the_episodes_state(state: str) -> None:
    lines = console(colours=True).render_lines(picture(scene(at=[2, 2], state=state), 40, 20), pad=False)
    agent = next(segment for line in lines for segment in line if segment.text == ARROWS[0])

    assert agent.style is not None
    assert agent.style.color is not None
    assert tuple(agent.style.color.get_truecolor()) == AGENT[state]


def test_the_trail_changes_colours_along_the_way() -> None:
    scenes = (scene(at=[28, 2], trail=trail) for trail in ([[2, 2], [28, 2]], [[28, 2]]))
    one, other = (console(colours=True).render_lines(picture(seen, 40, 20), pad=False) for seen in scenes)

    assert one != other


def test_a_narrow_console_narrows_the_picture() -> None:
    lines = printed(scene(), 80, 30, on=console(colours=False, width=20))

    assert max(map(len, lines)) <= 20


def test_a_picture_tells_its_width_to_what_frames_it() -> None:
    assert set(console(colours=False).measure(picture(scene(), 40, 10))) == {20}


def test_a_changing_field_is_drawn() -> None:
    seen = scene(field={"puffs": [[4.0, 28.0, 2.0, 1.0]]})
    seen["static"]["field"] = {"kind": "puffs"}
    lines = printed(seen)
    dense = np.argwhere(np.array([[sign in "@%#" for sign in line] for line in lines]))

    assert dense[:, 0].max() < len(lines) // 2
    assert dense[:, 1].max() < len(lines[0]) // 2


def test_what_is_no_scene_is_refused() -> None:
    with pytest.raises(RenderingError):
        picture({"static": {}}, 10, 10)
