"""Odor fields: those that stay by formula, cell by cell; moving puffs by a simulation with lists and dictionaries."""

from __future__ import annotations

import copy
import gc
import json
import math
import pickle
import weakref
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.contracts.arguments import parse_number
from proctor.contracts.chance import Chance, Stream
from proctor.contracts.components import ConcentrationField, VaryingPlume, WindField
from proctor.contracts.spatial import Coordinates, GridSize
from proctor.envs.plume.fields import (
    AdvectedPlume,
    GaussianPlume,
    PuffField,
    PuffPlume,
    compute_advected_values,
    compute_gaussian_values,
    compute_puff_values,
    parse_wind,
)
from proctor.errors import ValidationError

Field = GaussianPlume | AdvectedPlume
GRID = GridSize(7, 5)
SOURCE = Coordinates(2, 3)
CELLS = [Coordinates(x, y) for y in range(GRID.height) for x in range(GRID.width)]
speeds = st.just(0.0) | st.floats(0.001, 5) | st.floats(-5, -0.001)
winds = st.tuples(speeds, speeds).filter(any)


@st.composite
def sites(draw: st.DrawFn) -> tuple[GridSize, Coordinates]:
    """Return a small grid and a source on it."""
    grid = GridSize(draw(st.integers(1, 12)), draw(st.integers(1, 12)))
    return grid, Coordinates(draw(st.integers(0, grid.width - 1)), draw(st.integers(0, grid.height - 1)))


@st.composite
def fields(draw: st.DrawFn) -> Field:
    """Return a field of either kind."""
    grid, source = draw(sites())
    if draw(st.booleans()):
        return GaussianPlume(grid, source, draw(st.floats(0.3, 30) | st.floats(0.01, 1e6)))
    return AdvectedPlume(grid, source, draw(winds), draw(st.floats(0.01, 100)), draw(st.floats(0, 10)))


def advected(dx: float, dy: float, wind: tuple[float, float], spread: float, growth: float) -> float:
    """Return the documented formula, with the coordinates turned by the wind's angle."""
    angle = math.atan2(wind[1], wind[0])
    xi = dx * math.cos(angle) + dy * math.sin(angle)
    eta = dy * math.cos(angle) - dx * math.sin(angle)
    if xi < 0:
        return math.exp(-(xi * xi + eta * eta) / (2 * spread * spread))
    width = spread + growth * xi
    return spread / width * math.exp(-eta * eta / (2 * width * width))


@given(field=fields())
def test_a_sample_is_the_array_bit_for_bit_within_bounds_and_largest_at_the_source(field: Field) -> None:
    grid = field.grid_size

    array = field.field_array
    samples = [[field.sample(Coordinates(x, y)) for x in range(grid.width)] for y in range(grid.height)]

    assert array.dtype == np.float64
    assert array.tolist() == samples
    assert np.all((array >= 0) & (array <= 1))
    assert field.sample(field.source_location) == array.max() == 1.0


@given(site=sites(), sigma=st.floats(0.05, 1e4))
def test_the_gaussian_falls_with_the_squared_distance(site: tuple[GridSize, Coordinates], sigma: float) -> None:
    grid, source = site

    array = GaussianPlume(grid, source, sigma).field_array

    expected = [
        [math.exp(-(math.dist((x, y), (source.x, source.y)) ** 2) / (2 * sigma * sigma)) for x in range(grid.width)]
        for y in range(grid.height)
    ]
    np.testing.assert_allclose(array, expected, rtol=1e-9, atol=1e-300)


@given(site=sites(), wind=winds, spread=st.floats(0.1, 20), growth=st.floats(0, 3))
def test_the_advected_plume_follows_its_formula_along_any_wind(
    site: tuple[GridSize, Coordinates], wind: tuple[float, float], spread: float, growth: float
) -> None:
    grid, source = site

    array = AdvectedPlume(grid, source, wind, spread, growth).field_array

    expected = [
        [advected(x - source.x, y - source.y, wind, spread, growth) for x in range(grid.width)]
        for y in range(grid.height)
    ]
    np.testing.assert_allclose(array, expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("wind", [(1e-200, 0.0), (0.0, -1e-300), (2e4, 2e4), (5e-324, 0.0)])
def test_only_the_direction_of_the_wind_shapes_the_plume_however_weak_or_strong(wind: tuple[float, float]) -> None:
    gentle = tuple((speed > 0) - (speed < 0) for speed in wind)

    array = AdvectedPlume(GRID, SOURCE, wind).field_array

    np.testing.assert_allclose(array, AdvectedPlume(GRID, SOURCE, gentle).field_array, rtol=1e-9)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [GaussianPlume, AdvectedPlume])
@pytest.mark.parametrize("cell", [(-1, 0), (0, -1), (7, 0), (0, 5), (-1, -1), (700, 500), (-7, 2)])
def test_a_sample_off_the_grid_is_an_index_error_that_names_the_cell(kind: type[Field], cell: tuple[int, int]) -> None:
    field = kind(GRID, SOURCE)

    with pytest.raises(IndexError, match="FIELD-SAMPLE-P1") as caught:
        field.sample(Coordinates(*cell))

    assert str(cell) in str(caught.value)
    assert "7 x 5" in str(caught.value)


@pytest.mark.parametrize("kind", [GaussianPlume, AdvectedPlume])
def test_fields_of_the_same_parameters_share_one_read_only_array(kind: type[Field]) -> None:
    first, second = kind(GRID, SOURCE), kind(GridSize(7, 5), Coordinates(2, 3))

    array = first.field_array

    assert array is second.field_array
    assert array.shape == (5, 7)
    with pytest.raises(ValueError, match="read-only"):
        array[0, 0] = 0.5


@pytest.mark.parametrize("kind", [GaussianPlume, AdvectedPlume])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda field: pickle.loads(pickle.dumps(field))])
def test_a_copy_of_a_field_is_the_same_field_and_just_as_read_only(kind: type[Field], copied: Any) -> None:
    field = kind(GRID, SOURCE)

    twin = copied(field)

    assert [twin.sample(cell) for cell in CELLS] == [field.sample(cell) for cell in CELLS]
    assert twin.field_array.tolist() == field.field_array.tolist()
    assert not twin.field_array.flags.writeable
    assert twin.get_metadata() == field.get_metadata()


@pytest.mark.parametrize("kind", [GaussianPlume, AdvectedPlume, PuffPlume])
def test_a_source_off_the_grid_is_refused(kind: type[Any]) -> None:
    with pytest.raises(ValidationError, match="source") as caught:
        kind(GRID, Coordinates(7, 0))

    assert caught.value.found == (7, 0)


NO_NUMBERS: list[Any] = [
    True, "1", None, 1j, np.complex64(1), math.nan, math.inf, -math.inf, 10**400, [1.0], np.array([1.0]), np.True_,
]  # fmt: skip


@pytest.mark.parametrize("value", NO_NUMBERS, ids=lambda value: repr(value)[:20])
def test_what_is_no_finite_number_is_refused_everywhere(value: Any) -> None:
    with pytest.raises(ValidationError, match="breadth"):
        parse_number("breadth", value)
    with pytest.raises(ValidationError, match="sigma"):
        GaussianPlume(GRID, SOURCE, sigma=value)
    with pytest.raises(ValidationError, match="wind"):
        parse_wind((0.0, value))


@pytest.mark.parametrize("sigma", [0.0, -1.0, 1e-200, 5e-324])
def test_a_width_that_is_not_positive_or_whose_square_vanishes_is_refused(sigma: float) -> None:
    with pytest.raises(ValidationError, match="sigma"):
        GaussianPlume(GRID, SOURCE, sigma=sigma)
    with pytest.raises(ValidationError, match="spread"):
        AdvectedPlume(GRID, SOURCE, spread=sigma)


def test_an_array_is_a_wind_and_a_scalar_is_none() -> None:
    assert parse_wind(np.array([1.0, 2.0])) == (1.0, 2.0)
    with pytest.raises(ValidationError, match="wind"):
        parse_wind(np.array(1.0))


def test_an_array_is_shared_while_somebody_holds_it_and_then_forgotten() -> None:
    parameters = {"wind": (0.3, 0.7), "spread": 1.25}
    field = AdvectedPlume(GRID, SOURCE, **parameters)  # type: ignore[arg-type]
    alive = weakref.ref(field.field_array)

    assert AdvectedPlume(GRID, SOURCE, **parameters).field_array is field.field_array  # type: ignore[arg-type]
    del field
    gc.collect()
    assert alive() is None


@given(field=fields(), data=st.data())
@settings(max_examples=50)
def test_the_values_for_pictures_are_the_field_at_whole_coordinates(field: Field, data: st.DataObject) -> None:
    xs = np.arange(field.grid_size.width, dtype=np.float64)
    ys = np.arange(field.grid_size.height, dtype=np.float64)
    values_of = compute_gaussian_values if isinstance(field, GaussianPlume) else compute_advected_values

    values = values_of(field.describe(), (field.source_location.x, field.source_location.y), xs, ys)

    np.testing.assert_allclose(values, field.field_array, rtol=1e-9, atol=1e-300)


def test_the_wind_is_the_same_everywhere() -> None:
    wind = AdvectedPlume(GRID, SOURCE, wind=(0.5, -2)).wind_field

    assert {wind.sample(cell) for cell in CELLS} == {(0.5, -2.0)}
    assert isinstance(wind, WindField)


def test_the_fields_say_what_they_are() -> None:
    gaussian, steady = GaussianPlume(GRID, SOURCE, 3), AdvectedPlume(GRID, SOURCE, (1, 0), 2, 0.5)

    assert isinstance(gaussian, ConcentrationField)
    assert isinstance(steady, ConcentrationField)
    assert gaussian.get_metadata() == {"type": "gaussian", "parameters": {"sigma": 3.0}}
    assert gaussian.describe() == {"kind": "gaussian", "sigma": 3.0}
    parameters = {"wind": [1.0, 0.0], "spread": 2.0, "growth": 0.5}
    assert steady.get_metadata() == {"type": "advected", "parameters": parameters}
    assert steady.describe() == {"kind": "advected", **parameters}
    assert AdvectedPlume(GRID, SOURCE).get_metadata()["parameters"] == {**parameters, "growth": 0.15}


PUFF_GRID = GridSize(20, 12)
PUFF_SOURCE = Coordinates(3, 6)

options = st.fixed_dictionaries(
    {},
    optional={
        "wind": st.tuples(st.floats(-2, 2), st.floats(-2, 2)),
        "noise": st.floats(0, 2),
        "memory": st.floats(0, 0.999),
        "drift": st.floats(0, 1),
        "spread": st.floats(0.1, 5),
        "growth": st.floats(0, 2),
        "release_every": st.integers(1, 7),
        "lifetime": st.integers(1, 30),
        "warm_up": st.integers(0, 20),
    },
)
seeds = st.integers(0, 2**31 - 1)
DEFAULTS = {
    "wind": (0.8, 0.0), "noise": 0.25, "memory": 0.95, "drift": 0.08, "spread": 2.0, "growth": 0.25,
    "release_every": 3, "lifetime": 120, "warm_up": 60,
}  # fmt: skip


class Naive:
    """The same plume as a list of puffs, one dictionary each; the oldest one leaves when its place is needed."""

    def __init__(self, seed: int, **given: Any) -> None:
        self.options = {**DEFAULTS, **given}
        self.chance = Chance(seed)
        self.noise = [0.0, 0.0]
        self.wind: tuple[float, float] = self.options["wind"]
        self.puffs: list[dict[str, float]] = []
        self.tick = 0

    def advance(self) -> None:
        """Blow, grow, release."""
        o, tick, first = self.options, self.tick, self.options["spread"] ** 2
        kick = o["noise"] * math.sqrt(1 - o["memory"] ** 2)
        for axis in (0, 1):
            self.noise[axis] = o["memory"] * self.noise[axis] + kick * self.chance.normal(Stream.WIND, tick, axis)
        self.wind = (o["wind"][0] + self.noise[0], o["wind"][1] + self.noise[1])
        for puff in self.puffs:
            puff["x"] += self.wind[0] + puff["dx"]
            puff["y"] += self.wind[1] + puff["dy"]
            puff["variance"] += o["growth"]
        if tick % o["release_every"] == 0:
            dx, dy = (o["drift"] * self.chance.normal(Stream.PUFF, tick, axis) for axis in (0, 1))
            self.puffs.append({"x": PUFF_SOURCE.x, "y": PUFF_SOURCE.y, "dx": dx, "dy": dy, "variance": first})
            self.puffs = self.puffs[-math.ceil(o["lifetime"] / o["release_every"]) :]
        self.tick += 1

    def sample(self, x: int, y: int) -> float:
        """Return the sum over all puffs, capped."""
        total, first = 0.0, self.options["spread"] ** 2
        for puff in self.puffs:
            squared = (puff["x"] - x) ** 2 + (puff["y"] - y) ** 2
            total += first / puff["variance"] * math.exp(-squared / (2 * puff["variance"]))
        return min(total, 1.0)


def run_puffs(plume: PuffPlume, seed: int, steps: int) -> PuffField:
    """Return the field after so many steps."""
    chance = Chance(seed)
    field = plume.begin(chance)
    for time_step in range(1, steps + 1):
        field = plume.advance(field, chance, time_step)
    return field


def everything(field: PuffField) -> list[Any]:
    """Return all numbers of a field, for exact comparison."""
    arrays = (field.x, field.y, field.drift_x, field.drift_y, field.variance, field.strength)
    return [*(array.tolist() for array in arrays), field.noise, field.wind_field.velocity]


@given(given_options=options, seed=seeds, steps=st.integers(0, 25), data=st.data())
@settings(max_examples=60)
def test_the_plume_is_the_one_of_the_naive_simulation(
    given_options: dict[str, Any], seed: int, steps: int, data: st.DataObject
) -> None:
    naive = Naive(seed, **given_options)
    for _ in range(naive.options["warm_up"] + 1 + steps):
        naive.advance()
    x, y = data.draw(st.integers(0, PUFF_GRID.width - 1)), data.draw(st.integers(0, PUFF_GRID.height - 1))

    field = run_puffs(PuffPlume(PUFF_GRID, PUFF_SOURCE, **given_options), seed, steps)

    assert field.sample(Coordinates(x, y)) == pytest.approx(naive.sample(x, y), rel=1e-9, abs=1e-11)
    assert field.wind_field.sample(Coordinates(x, y)) == pytest.approx(naive.wind, rel=1e-9, abs=1e-12)


def test_a_copied_field_goes_on_identically() -> None:
    plume = PuffPlume(PUFF_GRID, PUFF_SOURCE)
    field = run_puffs(plume, 11, 6)

    copies = [copy.deepcopy(field), pickle.loads(pickle.dumps(field))]

    after = everything(plume.advance(field, Chance(11), 7))
    assert [everything(plume.advance(twin, Chance(11), 7)) for twin in copies] == [after, after]


@pytest.mark.parametrize(("release_every", "lifetime", "warm_up", "count"), [(5, 5, 0, 1), (3, 10, 50, 4)])
def test_no_more_puffs_are_alive_than_the_lifetime_allows(
    release_every: int, lifetime: int, warm_up: int, count: int
) -> None:
    plume = PuffPlume(PUFF_GRID, PUFF_SOURCE, release_every=release_every, lifetime=lifetime, warm_up=warm_up)

    assert {len(run_puffs(plume, 3, steps).describe_frame()["puffs"]) for steps in range(12)} == {count}


def test_the_wind_varies_about_its_mean_by_its_noise() -> None:
    plume = PuffPlume(PUFF_GRID, PUFF_SOURCE, wind=(0.8, -0.3), noise=0.25, memory=0.5, warm_up=20)

    winds = np.array([plume.begin(Chance(seed)).wind_field.velocity for seed in range(500)])

    np.testing.assert_allclose(winds.mean(axis=0), (0.8, -0.3), atol=0.05)
    np.testing.assert_allclose(winds.std(axis=0), (0.25, 0.25), rtol=0.15)


NO_WINDS: list[Any] = [(0.0, 0.0), (0, 0), (1.0,), (1.0, 2.0, 3.0), 1.0, "ab", None, {0: 1, 1: 1}]


@pytest.mark.parametrize(("name", "value"), [("growth", -0.1), *(("wind", wind) for wind in NO_WINDS)])
def test_an_advected_plume_without_a_wind_or_growing_narrower_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=name):
        AdvectedPlume(GRID, SOURCE, **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("wind", (1.0,)), ("wind", None), ("noise", -0.1), ("memory", 1.0), ("memory", -0.1), ("drift", -1.0),
        ("spread", 0.0), ("spread", 1e-200), ("growth", -1.0), ("release_every", 0), ("release_every", 1.5),
        ("lifetime", 0), ("lifetime", True), ("warm_up", -1), ("noise", math.nan),
    ],
)  # fmt: skip
def test_an_option_out_of_range_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=name):
        PuffPlume(PUFF_GRID, PUFF_SOURCE, **{name: value})


def test_the_plume_says_what_it_is() -> None:
    plume = PuffPlume(PUFF_GRID, PUFF_SOURCE)

    assert isinstance(plume, VaryingPlume)
    assert isinstance(plume.begin(Chance(0)), ConcentrationField)
    assert plume.describe() == {"kind": "puffs", "wind": [0.8, 0.0]}
    assert plume.get_metadata() == {"type": "puffs", "parameters": {**DEFAULTS, "wind": [0.8, 0.0]}}


def test_a_frame_is_a_short_list_of_puffs_in_json() -> None:
    frame = run_puffs(PuffPlume(GridSize(10_000, 10_000), Coordinates(5000, 5000)), 5, 20).describe_frame()

    text = json.dumps(frame)

    assert len(frame["puffs"]) <= 40
    assert all(len(puff) == 4 for puff in frame["puffs"])
    assert len(text) < 2_500


@given(seed=seeds)
@settings(max_examples=10)
def test_the_values_for_pictures_are_the_field_up_to_the_frame_s_rounding(seed: int) -> None:
    field = run_puffs(PuffPlume(PUFF_GRID, PUFF_SOURCE), seed, 5)
    xs, ys = np.arange(20.0), np.arange(12.0)

    values = compute_puff_values(field.describe_frame(), xs, ys)

    np.testing.assert_allclose(values, field.field_array, atol=0.02)


def test_a_frame_without_puffs_is_clean_air() -> None:
    values = compute_puff_values({"puffs": []}, np.arange(4.0), np.arange(3.0))

    assert values.tolist() == [[0.0] * 4] * 3
