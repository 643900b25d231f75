"""A sprite does what its marks did, wherever it is pasted."""

from functools import partial

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from proctor.envs.drawing.raster import Brush, Canvas, Floats, apply_ink, capture, flat_brush, paste, rectangle, stamp

CANVAS = Canvas(24, 18)
SIZES = st.floats(2.0, 12.0)


@given(st.integers(0, 255), st.floats(0.0, 1.0), SIZES, SIZES, st.integers(0, 6), st.integers(0, 6))
def test_a_pasted_sprite_looks_like_its_marks(
    ground: int, opacity: float, across: float, up: float, left: int, top: int
) -> None:
    shape = partial(rectangle, half=(across, up), radius=2.0)
    marks = [stamp(CANVAS, (12.0, 9.0), 16.0, shape, Brush((255, 120, 0), opacity))]
    drawn = np.full((18, 24, 3), ground, np.uint8)
    for ink in marks:
        apply_ink(drawn, ink)
    pasted = np.full((30, 40, 3), ground, np.uint8)
    paste(pasted, capture(CANVAS, marks), left, top)

    assert np.abs(pasted[top : top + 18, left : left + 24].astype(int) - drawn).max() <= 2
    pasted[top : top + 18, left : left + 24] = ground
    assert (pasted == ground).all()


def at(x: float, y: float) -> tuple[Floats, Floats]:
    return np.array([x]), np.array([y])


@given(SIZES, SIZES, st.floats(0.5, 2.0))
def test_the_distance_to_a_slab_is_measured_from_its_edge(across: float, up: float, radius: float) -> None:
    shape = partial(rectangle, half=(across, up), radius=radius)

    assert np.isclose(shape(*at(0.0, 0.0)), -min(across, up))
    assert np.isclose(shape(*at(across + 3.0, 0.0)), 3.0)
    assert np.isclose(shape(*at(0.0, -up - 3.0)), 3.0)
    assert np.isclose(shape(*at(across, up)), radius * (np.sqrt(2.0) - 1.0))


def test_a_flat_brush_leaves_no_outline() -> None:
    shape = partial(rectangle, half=(4.0, 4.0), radius=1.0)
    picture = np.full((18, 24, 3), 200, np.uint8)
    apply_ink(picture, stamp(CANVAS, (12.0, 9.0), 10.0, shape, flat_brush((255, 255, 255), 0.5)))

    assert picture.min() == 200
    assert picture.max() > 220
