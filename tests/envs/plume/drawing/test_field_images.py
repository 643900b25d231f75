"""A scene's field as numbers: what is painted is what the agent would smell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.contracts.chance import Chance
from proctor.contracts.spatial import Coordinates, GridSize
from proctor.envs.plume.drawing.picture import paint_field
from proctor.envs.plume.fields import AdvectedPlume, GaussianPlume, PuffPlume, make_thumbnail
from proctor.envs.plume.movies import MoviePlume

GRID = GridSize(16, 9)
SOURCE = Coordinates(5, 3)
FILM = np.random.default_rng(4).random((3, 9, 16))


def gaussian(seed: int) -> tuple[Any, Any, Any]:
    plume = GaussianPlume(GRID, SOURCE, 2.5)
    return plume.describe(), None, plume.field_array


def advected(seed: int) -> tuple[Any, Any, Any]:
    plume = AdvectedPlume(GRID, SOURCE, (1.0, 0.5))
    return plume.describe(), None, plume.field_array


def puffs(seed: int) -> tuple[Any, Any, Any]:
    plume = PuffPlume(GRID, SOURCE)
    field = plume.begin(Chance(seed))
    return plume.describe(), field.describe_frame(), field.field_array


def movie(seed: int) -> tuple[Any, Any, Any]:
    plume = MoviePlume(FILM)
    frame = plume.begin(Chance(seed))
    return plume.describe(), frame.describe_frame(), frame.field_array


def still(seed: int) -> tuple[Any, Any, Any]:
    return make_thumbnail(FILM[0]), None, FILM[0]


every_kind = pytest.mark.parametrize("kind", [gaussian, advected, puffs, movie, still])


@every_kind
def test_at_the_cells_themselves_the_paint_is_the_field(kind: Any) -> None:
    static, frame, field = kind(0)

    painted = paint_field(static, frame, (SOURCE.x, SOURCE.y), np.arange(16.0), np.arange(9.0))

    assert painted.shape == (9, 16)
    np.testing.assert_allclose(painted, field, atol=0.02)


@every_kind
@given(
    seed=st.integers(0, 2**31 - 1),
    xs=st.lists(st.floats(-20, 40), min_size=1, max_size=9),
    ys=st.lists(st.floats(-20, 40), min_size=1, max_size=9),
)
@settings(max_examples=20)
def test_anywhere_else_the_paint_is_a_concentration(kind: Any, seed: int, xs: list[float], ys: list[float]) -> None:
    static, frame, _ = kind(seed)

    painted = paint_field(static, frame, (SOURCE.x, SOURCE.y), np.array(xs), np.array(ys))

    assert painted.shape == (len(ys), len(xs))
    assert np.all((painted >= 0) & (painted <= 1))


def test_a_frame_s_own_image_goes_before_the_static_one() -> None:
    static, frame = make_thumbnail(np.zeros((2, 2))), make_thumbnail(np.ones((2, 2)))

    painted = paint_field(static, frame, (0, 0), np.arange(2.0), np.arange(2.0))

    assert painted.tolist() == [[1.0, 1.0], [1.0, 1.0]]
