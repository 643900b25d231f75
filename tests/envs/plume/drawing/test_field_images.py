"""Fields of a scene: thumbnails, and the paint of every kind of field."""

from __future__ import annotations

import base64
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from proctor.contracts.chance import Chance
from proctor.contracts.spatial import Coordinates, GridSize
from proctor.envs.plume.drawing.picture import paint_field, paint_thumbnail
from proctor.envs.plume.fields import SIDE, AdvectedPlume, GaussianPlume, PuffPlume, make_thumbnail
from proctor.envs.plume.movies import MoviePlume

GRID = GridSize(16, 9)
SOURCE = Coordinates(5, 3)
FILM = np.random.default_rng(4).random((3, 9, 16))


KINDS: dict[str, Any] = {
    "gaussian": GaussianPlume(GRID, SOURCE, 2.5),
    "advected": AdvectedPlume(GRID, SOURCE, (1.0, 0.5)),
    "puffs": PuffPlume(GRID, SOURCE),
    "movie": MoviePlume(FILM),
    "still": FILM[0],
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def described(kind: str, seed: int) -> tuple[Any, Any, Any]:
    """Return the static part, the frame's part and the values of a field."""
    plume = KINDS[kind]
    if kind == "still":
        return make_thumbnail(plume), None, plume
    if hasattr(plume, "field_array"):
        return plume.describe(), None, plume.field_array
    field = plume.begin(Chance(seed))
    return plume.describe(), field.describe_frame(), field.field_array


@every_kind
def test_at_the_cells_themselves_the_paint_is_the_field(kind: str) -> None:
    static, frame, field = described(kind, 0)

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
def test_anywhere_else_the_paint_is_a_concentration(kind: str, seed: int, xs: list[float], ys: list[float]) -> None:
    static, frame, _ = described(kind, seed)

    painted = paint_field(static, frame, (SOURCE.x, SOURCE.y), np.array(xs), np.array(ys))

    assert painted.shape == (len(ys), len(xs))
    assert np.all((painted >= 0) & (painted <= 1))


def test_a_frame_s_own_image_goes_before_the_static_one() -> None:
    static, frame = make_thumbnail(np.zeros((2, 2))), make_thumbnail(np.ones((2, 2)))

    painted = paint_field(static, frame, (0, 0), np.arange(2.0), np.arange(2.0))

    assert painted.tolist() == [[1.0, 1.0], [1.0, 1.0]]


sides = st.integers(1, 130)


def values_of(seed: int, height: int, width: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).random((height, width))


def levels_of(image: dict[str, Any]) -> NDArray[np.float64]:
    """Return the thumbnail's levels in [0, 1], shape (rows, columns)."""
    columns, rows = image["size"]
    return np.frombuffer(base64.b64decode(image["levels"]), np.uint8).reshape(rows, columns) / 255.0


def block_means(values: NDArray[np.float64]) -> list[list[float]]:
    """Return the mean over each block, one block after the other."""
    height, width = values.shape
    rows, columns = min(height, SIDE), min(width, SIDE)
    across = [slice(width * n // columns, width * (n + 1) // columns) for n in range(columns)]
    down = [slice(height * n // rows, height * (n + 1) // rows) for n in range(rows)]
    return [[float(values[block, part].mean()) for part in across] for block in down]


@given(seed=st.integers(0, 1000), height=sides, width=sides)
@settings(max_examples=40)
def test_every_cell_is_the_mean_of_its_block_in_256_levels(seed: int, height: int, width: int) -> None:
    values = values_of(seed, height, width)

    image = make_thumbnail(values)

    assert image["kind"] == "image"
    assert image["covers"] == [width, height]
    assert image["size"] == [min(width, SIDE), min(height, SIDE)]
    np.testing.assert_allclose(levels_of(image), block_means(values), atol=0.5 / 255 + 1e-9)


@given(seed=st.integers(0, 1000), height=st.integers(1, SIDE), width=st.integers(1, SIDE))
@settings(max_examples=40)
def test_a_small_field_is_painted_back_as_it_was(seed: int, height: int, width: int) -> None:
    values = values_of(seed, height, width)

    painted = paint_thumbnail(make_thumbnail(values), np.arange(float(width)), np.arange(float(height)))

    np.testing.assert_allclose(painted, values, atol=0.5 / 255 + 1e-9)


@given(height=sides, width=sides, level=st.integers(0, 255))
@settings(max_examples=40)
def test_an_even_field_is_even_everywhere_also_beyond_its_edge(height: int, width: int, level: int) -> None:
    xs, ys = np.linspace(-0.5, width - 0.5, 17), np.linspace(-0.5, height - 0.5, 11)

    painted = paint_thumbnail(make_thumbnail(np.full((height, width), level / 255)), xs, ys)

    assert painted.shape == (11, 17)
    np.testing.assert_allclose(painted, level / 255, atol=1e-12)


@given(seed=st.integers(0, 1000), height=sides, width=sides)
@settings(max_examples=40)
def test_paint_stays_between_the_smallest_and_the_largest_level(seed: int, height: int, width: int) -> None:
    image = make_thumbnail(values_of(seed, height, width))

    painted = paint_thumbnail(image, np.linspace(-3, width + 3, 20), np.linspace(-3, height + 3, 20))

    levels = levels_of(image)
    assert painted.min() >= levels.min() - 1e-12
    assert painted.max() <= levels.max() + 1e-12


def test_half_way_between_two_cells_is_the_mean_of_both() -> None:
    image = make_thumbnail(np.array([[0.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))

    painted = paint_thumbnail(image, np.array([0.0, 0.5, 1.0, 1.5]), np.array([0.0, 0.5, 1.5]))

    np.testing.assert_allclose(painted, [[0.0, 0.5, 1.0, 0.5], [0.5, 0.75, 1.0, 0.5], [0.5, 0.5, 0.5, 0.25]])


def test_a_spot_in_a_large_field_is_painted_where_it_was() -> None:
    values = np.zeros((400, 1000))
    values[300:310, 100:120] = 1.0

    painted = paint_thumbnail(make_thumbnail(values), np.arange(1000.0), np.arange(400.0))

    row, column = np.unravel_index(painted.argmax(), painted.shape)
    assert abs(int(row) - 305) < 10
    assert abs(int(column) - 110) < 25


@pytest.mark.parametrize("shape", [(1, 1), (48, 48), (49, 47), (2000, 3000)])
def test_a_thumbnail_is_a_small_json_value(shape: tuple[int, int]) -> None:
    image = make_thumbnail(np.ones(shape))

    text = json.dumps(image)

    assert json.loads(text) == image
    assert len(text) < 4_000
