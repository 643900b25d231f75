"""Where an episode may start, judged by looking at every cell."""

from __future__ import annotations

import math
from collections import Counter

from hypothesis import example, given
from hypothesis import strategies as st

from proctor.contracts.chance import Chance, Stream
from proctor.contracts.spatial import Coordinates, GridSize
from proctor.envs.plume.env import StartCells, start_cells

Cell = tuple[int, int]

radii = (
    st.floats(0, 30)
    | st.integers(0, 30).map(float)
    | st.integers(0, 900).map(math.sqrt)
    | st.integers(1, 900).map(lambda square: math.nextafter(math.sqrt(square), 0.0))
    | st.sampled_from([1e9, 1e100, 1e200, 1.7976931348623157e308, 5e-324])
)


@st.composite
def sites(draw: st.DrawFn) -> tuple[GridSize, Coordinates]:
    """Return a grid and a source on it."""
    grid = GridSize(draw(st.integers(1, 20)), draw(st.integers(1, 20)))
    return grid, Coordinates(draw(st.integers(0, grid.width - 1)), draw(st.integers(0, grid.height - 1)))


def free_cells(grid: GridSize, source: Coordinates, radius: float) -> list[Cell]:
    """Return the legal starts by looking at every cell: outside the disc, else not the source, else all."""
    cells = [(x, y) for y in range(grid.height) for x in range(grid.width)]
    outside = [(x, y) for x, y in cells if not math.sqrt((x - source.x) ** 2 + (y - source.y) ** 2) <= radius]
    return outside or [cell for cell in cells if cell != (source.x, source.y)] or cells


def every_pick(cells: StartCells) -> list[Cell]:
    """Return what is picked in each of `total` equal parts of the range of 64 bits, at its middle."""
    return [cells.pick(((2 * rank + 1) << 64) // (2 * cells.total)) for rank in range(cells.total)]


@given(site=sites(), radius=radii)
@example(site=(GridSize(1, 1), Coordinates(0, 0)), radius=1.0)
@example(site=(GridSize(1, 1), Coordinates(0, 0)), radius=0.5)
@example(site=(GridSize(3, 2), Coordinates(1, 1)), radius=100.0)
@example(site=(GridSize(20, 20), Coordinates(0, 0)), radius=1e200)
def test_equal_parts_of_the_bits_fall_on_each_free_cell_exactly_once(
    site: tuple[GridSize, Coordinates], radius: float
) -> None:
    grid, source = site
    expected = free_cells(grid, source, radius)

    cells = start_cells(grid, source, radius)

    assert cells.total == len(expected)
    assert sorted(every_pick(cells)) == sorted(expected)


@given(site=sites(), radius=radii, bits=st.integers(0, 2**64 - 1))
@example(site=(GridSize(20, 20), Coordinates(3, 4)), radius=1.0, bits=2**64 - 1)
def test_any_bits_fall_on_a_free_cell(site: tuple[GridSize, Coordinates], radius: float, bits: int) -> None:
    grid, source = site

    cell = start_cells(grid, source, radius).pick(bits)

    assert cell in free_cells(grid, source, radius)


def test_a_cell_exactly_at_the_radius_belongs_to_the_goal() -> None:
    grid, source = GridSize(11, 11), Coordinates(5, 5)

    at, short = (every_pick(start_cells(grid, source, radius)) for radius in (5.0, math.nextafter(5.0, 0.0)))

    assert (8, 9) not in at
    assert (8, 9) in short


def test_seeds_fall_evenly_on_the_free_cells() -> None:
    grid, source = GridSize(6, 5), Coordinates(2, 2)
    cells = start_cells(grid, source, 1.0)
    draws = 25_000

    counts = Counter(cells.pick(Chance(seed).bits(Stream.START, 0)) for seed in range(draws))

    assert sorted(counts) == sorted(free_cells(grid, source, 1.0))
    expected = draws / cells.total
    chi_squared = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi_squared < 52.6  # 24 degrees of freedom: exceeded once in 1 500 times, and these seeds are fixed


def test_the_largest_grid_is_counted_exactly() -> None:
    side = 10_000
    cells = start_cells(GridSize(side, side), Coordinates(0, 0), 1.0)

    corners = [cells.pick(0), cells.pick(2**64 - 1)]

    assert cells.total == side * side - 3
    assert corners == [(2, 0), (side - 1, side - 1)]


def test_a_disc_larger_than_the_longest_side_leaves_the_far_corner() -> None:
    cells = start_cells(GridSize(10_000, 10_000), Coordinates(0, 0), 14_000.0)

    nearest = min(math.hypot(*cells.pick(bits)) for bits in range(0, 2**64, 2**58))

    assert nearest > 14_000.0


def test_the_same_site_is_counted_once() -> None:
    first = start_cells(GridSize(9, 9), Coordinates(4, 4), 2.0)

    assert start_cells(GridSize(9, 9), Coordinates(4, 4), 2.0) is first
