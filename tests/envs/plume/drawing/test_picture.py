"""A plume's picture shows what its scene says, at any size of the grid."""

import copy
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from proctor.envs.drawing.raster import GROUND, MARK, Picture
from proctor.envs.plume.drawing.picture import AGENT, MARGIN, TRAIL, draw, tint
from proctor.envs.plume.fields import make_thumbnail
from proctor.errors import RenderingError
from tests.envs.plume.scenes import scene

SIDES = st.one_of(st.integers(1, 40), st.integers(1, 10_000))
FIELDS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "gaussian": ({"kind": "gaussian", "sigma": 6.0}, None),
    "advected": ({"kind": "advected", "wind": [1.0, 0.2], "spread": 2.0, "growth": 0.15}, None),
    "puffs": ({"kind": "puffs"}, {"puffs": [[40.0, 50.0, 6.0, 0.8]]}),
    "image": (make_thumbnail(np.linspace(0.0, 1.0, 64 * 64).reshape(64, 64)), None),
}


def where(picture: Picture, colour: tuple[int, int, int], within: int = 8) -> NDArray[np.intp]:
    """Return the rows and columns of the pixels that have `colour`, or nearly."""
    return np.argwhere(np.abs(picture.astype(int) - colour).max(axis=-1) <= within)


@settings(max_examples=25, deadline=None)
@given(SIDES, SIDES)
def test_any_grid_has_a_picture_of_even_sides_that_is_neither_huge_nor_tiny(width: int, height: int) -> None:
    picture = draw(scene((width, height)))

    assert picture.dtype == np.uint8
    assert picture.shape[2] == 3
    assert picture.shape[0] % 2 == picture.shape[1] % 2 == 0
    assert max(picture.shape) == 512
    assert min(picture.shape[:2]) >= 64


@settings(max_examples=25, deadline=None)
@given(SIDES, SIDES, st.floats(0.01, 20_000.0))
def test_the_goal_ring_is_seen_at_any_size(width: int, height: int, goal_radius: float) -> None:
    picture = draw(scene((width, height), goal_radius=goal_radius))
    rows, columns = picture.shape[0] - 2 * MARGIN, picture.shape[1] - 2 * MARGIN
    x, y = (width // 2 + 0.5) / width, (height // 2 + 0.5) / height
    source = (MARGIN + (1.0 - y) * rows, MARGIN + x * columns)
    marked = where(picture, MARK)
    beyond_the_dot = np.hypot(*(marked + 0.5 - source).T) > 4.5

    assert beyond_the_dot.sum() >= 12


@settings(max_examples=25, deadline=None)
@given(SIDES, SIDES, st.data())
def test_the_agent_is_seen_wherever_it_is(width: int, height: int, data: st.DataObject) -> None:
    at = [data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))]
    picture = draw(scene((width, height), at=at, heading=data.draw(st.floats(0.0, 359.0))))

    assert len(where(picture, AGENT["ready"], within=2)) >= 20


@settings(max_examples=25, deadline=None)
@given(SIDES, SIDES)
def test_a_changing_field_fits_any_grid(width: int, height: int) -> None:
    puff = {"puffs": [[width / 2, height / 2, max(width, height) / 4, 1.0]]}
    changing = draw(scene((width, height), kind={"kind": "puffs"}, field=puff))

    assert changing.shape == draw(scene((width, height))).shape


def test_a_changing_field_looks_like_the_same_field_standing_still() -> None:
    still = draw(scene(kind={"kind": "gaussian", "sigma": 12.0}))
    moving = draw(scene(kind={"kind": "puffs"}, field={"puffs": [[32.0, 32.0, 12.0, 1.0]]}))

    assert np.abs(still.astype(int) - moving).max() <= 6


@pytest.mark.parametrize("kind", FIELDS)
def test_the_same_scene_gives_the_same_picture_and_is_left_alone(kind: str) -> None:
    static, changing = FIELDS[kind]
    seen = scene(kind=static, field=changing, trail=[[3, 3], [4, 3], [4, 4]], wind=[1.0, 0.5])
    before = copy.deepcopy(seen)
    first = draw(seen)

    assert (draw(json.loads(json.dumps(seen))) == first).all()
    assert seen == before
    assert len(np.unique(first[MARGIN:-MARGIN, MARGIN:-MARGIN].reshape(-1, 3), axis=0)) > 20


@pytest.mark.parametrize("kind", FIELDS)
def test_a_picture_belongs_to_its_caller(kind: str) -> None:
    static, changing = FIELDS[kind]
    seen = scene(kind=static, field=changing)
    first = draw(seen)
    expected = first.copy()
    first[:] = 77

    assert (draw(seen) == expected).all()


def test_up_looks_up_and_east_looks_right() -> None:
    low, high, east = (where(draw(scene(at=at)), AGENT["ready"], 2).mean(axis=0) for at in ([5, 5], [5, 60], [60, 5]))

    assert high[0] < low[0] - 300
    assert east[1] > low[1] + 300
    assert abs(east[0] - low[0]) < 1


def test_an_asymmetric_field_is_drawn_the_right_way_up() -> None:
    picture = draw(scene(source=[10, 60], at=[60, 5]))
    bright = picture[MARGIN:-MARGIN, MARGIN:-MARGIN].sum(axis=-1)

    assert bright[:200, :200].mean() > 2 * bright[300:, 300:].mean()


@pytest.mark.parametrize(("heading", "ahead"), [(0.0, (0, 1)), (90.0, (-1, 0)), (180.0, (0, -1)), (270.0, (1, 0))])
def test_the_heading_is_where_the_tip_is(heading: float, ahead: tuple[int, int]) -> None:
    body = where(draw(scene(at=[10, 10], heading=heading, kind={"kind": "gaussian", "sigma": 1.0})), (255, 255, 255), 2)
    along = body @ ahead
    across = body @ (ahead[1], ahead[0])
    middle = (along.max() + along.min()) / 2

    assert np.ptp(across[along > middle]) < np.ptp(across[along < middle])


@pytest.mark.parametrize("state", ["terminated", "truncated"])
def test_an_ended_episode_shows_how_it_ended(state: str) -> None:
    ended, running = draw(scene(at=[9, 9], state=state)), draw(scene(at=[9, 9]))

    assert len(where(ended, AGENT[state], 2)) > 60
    assert len(where(running, AGENT[state], 2)) == 0


def test_the_trail_fades_with_age() -> None:
    trail = [[x, 8] for x in range(2, 60)]
    picture, bare = (draw(scene(at=[59, 8], trail=cells)).astype(int) for cells in (trail, []))
    change = np.abs(picture - bare).sum(axis=-1).max(axis=0)

    assert change[40:80].max() < change[380:420].max()
    assert change[40:80].max() > 0


def test_a_trail_of_every_step_that_bumped_into_a_wall_is_no_trail() -> None:
    assert (draw(scene(trail=[[0, 0]] * 9)) == draw(scene(trail=[[0, 0]]))).all()


def test_a_long_trail_on_a_small_grid_keeps_its_newest_part() -> None:
    trail = [[0, 4], [4, 4]] + [[0, 0], [4, 0]] * 127
    picture = draw(scene((5, 5), at=[4, 0], trail=trail, kind={"kind": "gaussian", "sigma": 0.3}))
    rows = where(picture, TRAIL, within=40)[:, 0]

    assert len(rows) > 200
    assert rows.min() > 256


def test_the_wind_is_shown_in_the_corner_and_points_downwind() -> None:
    still, east, west = (draw(scene(wind=wind)) for wind in (None, [1.0, 0.0], [-1.0, 0.0]))
    changed = np.argwhere((still != east).any(axis=-1))
    widest = [np.bincount(where(picture, TRAIL, 2)[:, 1]).argmax() for picture in (east, west)]

    assert changed[:, 0].max() < 60
    assert changed[:, 1].min() > 450
    assert widest[1] < 481 < widest[0]


def test_no_wind_blowing_is_not_the_same_as_no_wind_known() -> None:
    assert (draw(scene(wind=[0.0, 0.0])) != draw(scene())).any()


def test_a_changing_field_follows_its_puffs() -> None:
    left, right = (draw(scene(kind={"kind": "puffs"}, field={"puffs": [[x, 40.0, 3.0, 1.0]]})) for x in (10.0, 50.0))
    column = [
        picture[MARGIN:-MARGIN, MARGIN:-MARGIN].astype(int).sum(axis=(0, 2)).argmax() for picture in (left, right)
    ]

    assert column[0] == pytest.approx(10.5 * 496 / 64, abs=4)
    assert column[1] == pytest.approx(50.5 * 496 / 64, abs=4)


def test_the_grid_has_a_border_and_nothing_beyond_it() -> None:
    picture = draw(scene(at=[32, 10]))

    assert (picture[: MARGIN - 1] == GROUND).all()
    assert (picture[MARGIN - 1, MARGIN - 1 : 1 - MARGIN] != GROUND).any(axis=-1).all()


def test_cells_are_told_apart_only_where_they_are_large() -> None:
    flat = {"kind": "gaussian", "sigma": 1e6}
    large, small = (draw(scene((side, side), at=[0, 0], kind=flat)) for side in (10, 100))

    assert len(np.unique(large[-30, 40:-40].reshape(-1, 3), axis=0)) > 1
    assert len(np.unique(small[-30, 40:-40].reshape(-1, 3), axis=0)) == 1


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_more_odor_is_never_darker(one: float, other: float) -> None:
    low, high = tint(np.sort(np.array([one, other]))).astype(float) @ (0.299, 0.587, 0.114)

    assert low <= high


def test_a_trace_of_odor_is_seen() -> None:
    nothing, trace = tint(np.array([0.0, 0.01])).astype(int).sum(axis=-1)

    assert trace > nothing + 30


@pytest.mark.parametrize(
    "broken",
    [
        {},
        {**scene(), "static": {}},
        {**scene(), "frame": {**scene()["frame"], "state": "lost"}},
        {**scene(), "static": {**scene()["static"], "grid": [0, 5]}},
        {**scene(), "frame": None},
    ],
)
def test_what_is_no_scene_of_a_plume_is_refused(broken: dict[str, Any]) -> None:
    with pytest.raises(RenderingError, match="scene") as refused:
        draw(broken)

    assert refused.value.found == broken
