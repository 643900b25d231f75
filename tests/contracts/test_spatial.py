"""Cells, grids and agent states are frozen values that refuse what they cannot be."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.contracts.spatial import MAX_SIDE, AgentState, Coordinates, GridSize, normalize_heading
from proctor.errors import ValidationError

whole = st.integers(-(10**6), 10**6)
cells = st.builds(Coordinates, whole, whole)
grids = st.builds(GridSize, st.integers(1, MAX_SIDE), st.integers(1, MAX_SIDE))
angles = st.floats(allow_nan=False, allow_infinity=False)


@given(cells, cells)
def test_the_distance_is_euclidean_and_symmetric(one: Coordinates, other: Coordinates) -> None:
    distance = one.distance_to(other)

    assert distance == other.distance_to(one)
    assert distance == pytest.approx(math.hypot(one.x - other.x, one.y - other.y))
    assert (distance == 0.0) == (one == other)


@given(grids, cells)
def test_a_grid_contains_exactly_the_cells_between_its_borders(grid: GridSize, cell: Coordinates) -> None:
    inside = cell.x in range(grid.width) and cell.y in range(grid.height)

    assert grid.contains(cell) == inside
    assert grid.contains(grid.center())
    assert grid.total_cells() == grid.width * grid.height


def test_the_centre_is_the_cell_at_half_of_each_side() -> None:
    assert GridSize(128, 5).center() == Coordinates(64, 2)
    assert GridSize(1, 1).center() == Coordinates(0, 0)


@given(whole, whole)
def test_numpy_integers_become_plain_ones(x: int, y: int) -> None:
    numbers: Any = np.array([x, y])
    cell = Coordinates(*numbers)

    assert (type(cell.x), type(cell.y)) == (int, int)
    assert cell == Coordinates(x, y)
    assert hash(cell) == hash(Coordinates(x, y))


@pytest.mark.parametrize("value", [1.0, "1", None, True, np.float32(1)])
def test_a_coordinate_that_is_no_integer_is_refused(value: Any) -> None:
    with pytest.raises(ValidationError) as caught:
        Coordinates(0, value)

    assert caught.value.found is value


@pytest.mark.parametrize("side", [0, -1, MAX_SIDE + 1])
@pytest.mark.parametrize("name", ["width", "height"])
def test_a_side_out_of_range_is_refused_by_name(name: str, side: int) -> None:
    with pytest.raises(ValidationError, match=name) as caught:
        GridSize(**{"width": 1, "height": 1, name: side})

    assert (caught.value.found, caught.value.clause) == (side, "ENV-INIT-P3")


@pytest.mark.parametrize("value", [Coordinates(1, 2), GridSize(3, 4), AgentState(Coordinates(1, 2))])
def test_a_value_cannot_be_changed(value: Any) -> None:
    before = copy.copy(value)
    name = type(value).__struct_fields__[0]

    with pytest.raises(AttributeError):
        setattr(value, name, 5)

    assert value == before


@given(angles)
def test_a_heading_lies_in_one_turn(degrees: float) -> None:
    turned = normalize_heading(degrees)

    assert 0.0 <= turned < 360.0
    assert normalize_heading(turned) == turned
    assert AgentState(Coordinates(0, 0), degrees).orientation == turned


@pytest.mark.parametrize(("degrees", "turned"), [(-90, 270.0), (360.0, 0.0), (-1e-20, 0.0), (725.0, 5.0), (45.5, 45.5)])
def test_headings_wrap_around(degrees: float, turned: float) -> None:
    assert normalize_heading(degrees) == turned


@pytest.mark.parametrize("degrees", [math.nan, math.inf, -math.inf])
def test_a_heading_that_is_not_finite_is_refused(degrees: float) -> None:
    with pytest.raises(ValidationError) as caught:
        AgentState(Coordinates(0, 0), degrees)

    assert caught.value.clause == "ENV-I2"


def test_an_agent_state_begins_with_nothing_done() -> None:
    agent = AgentState(Coordinates(1, 2))

    assert (agent.orientation, agent.step_count, agent.total_reward, agent.goal_reached) == (0.0, 0, 0.0, False)
