"""Moving puffs, judged by a simulation written here with lists and dictionaries."""

from __future__ import annotations

import copy
import json
import math
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.contracts.chance import Chance, Stream
from proctor.contracts.components import ConcentrationField, VaryingPlume
from proctor.contracts.spatial import Coordinates, GridSize
from proctor.envs.plume.fields import PuffField, PuffPlume, compute_puff_values
from proctor.errors import ValidationError

GRID = GridSize(20, 12)
SOURCE = Coordinates(3, 6)

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
            self.puffs.append({"x": SOURCE.x, "y": SOURCE.y, "dx": dx, "dy": dy, "variance": first})
            self.puffs = self.puffs[-math.ceil(o["lifetime"] / o["release_every"]) :]
        self.tick += 1

    def sample(self, x: int, y: int) -> float:
        """Return the sum over all puffs, capped."""
        total, first = 0.0, self.options["spread"] ** 2
        for puff in self.puffs:
            squared = (puff["x"] - x) ** 2 + (puff["y"] - y) ** 2
            total += first / puff["variance"] * math.exp(-squared / (2 * puff["variance"]))
        return min(total, 1.0)


def run(plume: PuffPlume, seed: int, steps: int) -> PuffField:
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
    x, y = data.draw(st.integers(0, GRID.width - 1)), data.draw(st.integers(0, GRID.height - 1))

    field = run(PuffPlume(GRID, SOURCE, **given_options), seed, steps)

    assert field.sample(Coordinates(x, y)) == pytest.approx(naive.sample(x, y), rel=1e-9, abs=1e-11)
    assert field.wind_field.sample(Coordinates(x, y)) == pytest.approx(naive.wind, rel=1e-9, abs=1e-12)


def test_another_seed_gives_another_plume() -> None:
    plume = PuffPlume(GRID, SOURCE)

    assert everything(run(plume, 1, 5)) != everything(run(plume, 2, 5))


def test_a_copied_field_goes_on_identically() -> None:
    plume = PuffPlume(GRID, SOURCE)
    field = run(plume, 11, 6)

    copies = [copy.deepcopy(field), pickle.loads(pickle.dumps(field))]

    after = everything(plume.advance(field, Chance(11), 7))
    assert [everything(plume.advance(twin, Chance(11), 7)) for twin in copies] == [after, after]


def test_the_source_smells_fully_when_a_puff_has_just_left() -> None:
    plume = PuffPlume(GRID, SOURCE, release_every=1, warm_up=0)

    field = plume.begin(Chance(0))

    assert field.sample(SOURCE) == 1.0
    assert field.sample(Coordinates(19, 0)) < 0.01


def test_a_puff_is_gone_when_its_lifetime_is_over() -> None:
    plume = PuffPlume(GRID, SOURCE, release_every=5, lifetime=5, warm_up=0)

    puffs = [len(run(plume, 3, steps).describe_frame()["puffs"]) for steps in range(12)]

    assert set(puffs) == {1}


def test_no_more_puffs_are_alive_than_the_lifetime_allows() -> None:
    plume = PuffPlume(GRID, SOURCE, release_every=3, lifetime=10, warm_up=50)

    field = run(plume, 3, 7)

    assert len(field.describe_frame()["puffs"]) == 4


def test_the_wind_varies_about_its_mean_by_its_noise() -> None:
    plume = PuffPlume(GRID, SOURCE, wind=(0.8, -0.3), noise=0.25, memory=0.5, warm_up=20)

    winds = np.array([plume.begin(Chance(seed)).wind_field.velocity for seed in range(500)])

    np.testing.assert_allclose(winds.mean(axis=0), (0.8, -0.3), atol=0.05)
    np.testing.assert_allclose(winds.std(axis=0), (0.25, 0.25), rtol=0.15)


def test_without_noise_and_drift_the_puffs_march_along_the_wind() -> None:
    plume = PuffPlume(GRID, SOURCE, wind=(1.0, 0.5), noise=0.0, drift=0.0, release_every=2, lifetime=6, warm_up=0)

    puffs = run(plume, 9, 4).describe_frame()["puffs"]

    assert sorted(puff[:2] for puff in puffs) == [[3.0, 6.0], [5.0, 7.0], [7.0, 8.0]]
    assert sorted(puff[3] for puff in puffs) == [0.8, 0.889, 1.0]


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
        PuffPlume(GRID, SOURCE, **{name: value})


def test_a_source_off_the_grid_is_refused() -> None:
    with pytest.raises(ValidationError, match="source"):
        PuffPlume(GRID, Coordinates(20, 0))


def test_the_plume_says_what_it_is() -> None:
    plume = PuffPlume(GRID, SOURCE)

    assert isinstance(plume, VaryingPlume)
    assert isinstance(plume.begin(Chance(0)), ConcentrationField)
    assert plume.describe() == {"kind": "puffs", "wind": [0.8, 0.0]}
    assert plume.get_metadata() == {"type": "puffs", "parameters": {**DEFAULTS, "wind": [0.8, 0.0]}}


def test_a_frame_is_a_short_list_of_puffs_in_json() -> None:
    frame = run(PuffPlume(GridSize(10_000, 10_000), Coordinates(5000, 5000)), 5, 20).describe_frame()

    text = json.dumps(frame)

    assert len(frame["puffs"]) <= 40
    assert all(len(puff) == 4 for puff in frame["puffs"])
    assert len(text) < 2_500


@given(seed=seeds)
@settings(max_examples=10)
def test_the_values_for_pictures_are_the_field_up_to_the_frame_s_rounding(seed: int) -> None:
    field = run(PuffPlume(GRID, SOURCE), seed, 5)
    xs, ys = np.arange(20.0), np.arange(12.0)

    values = compute_puff_values(field.describe_frame(), xs, ys)

    np.testing.assert_allclose(values, field.field_array, atol=0.02)


def test_a_frame_without_puffs_is_clean_air() -> None:
    values = compute_puff_values({"puffs": []}, np.arange(4.0), np.arange(3.0))

    assert values.tolist() == [[0.0] * 4] * 3
