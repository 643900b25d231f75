"""What each sensor says, in words."""

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.contracts.components import ObservationModel
from proctor.envs.plume import sensors
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.plume.sensors import (
    AntennaePair,
    BinaryHitSensor,
    ConcentrationSensor,
    DictSensor,
    HistorySensor,
    PoissonHitSensor,
    WindSensor,
)
from proctor.envs.plume.tools import DESCRIBERS, find_describer
from proctor.envs.plume.typed_env import PlumeEnvironment


class Own:
    """A sensor that nobody knows."""

    observation_space = spaces.Box(0, 1, (2,), np.float32)


@pytest.mark.parametrize(
    ("sensor", "seen", "text"),
    [
        (ConcentrationSensor(), (0.0132456789,), "Concentration 0.0132457, on a scale from 0 to 1."),
        (ConcentrationSensor(), (1e-9,), "Concentration 1e-09, on a scale from 0 to 1."),
        (BinaryHitSensor(), (1,), "There is odor here."),
        (BinaryHitSensor(), (0,), "There is no odor here."),
        (PoissonHitSensor(most=7), (3.0,), "Odor hits in this step: 3, of at most 7."),
        (
            AntennaePair(),
            (0.25, 0.5),
            "Concentration 0.25 at the left antenna, 0.5 at the right one, on a scale from 0 to 1.",
        ),
        (WindSensor(), (0.5, -1.0), "The wind blows 0.5 cells a step to the right (+x), -1 up (+y)."),
        (HistorySensor(ConcentrationSensor(), 3), (0.0, 0.0, 0.5), "The last 3 readings, oldest first: 0; 0; 0.5."),
        (HistorySensor(AntennaePair(), 2), (0, 0, 0.25, 0.5), "The last 2 readings, oldest first: 0, 0; 0.25, 0.5."),
        (
            DictSensor({"odor": ConcentrationSensor(), "hit": BinaryHitSensor()}),
            {"odor": (0.5,), "hit": (1,)},
            "odor: Concentration 0.5, on a scale from 0 to 1. hit: There is odor here.",
        ),
        (Own(), (0.5, 1.0), "The sensor reads 0.5, 1."),
        (Own(), {"a": (0.5,), "b": (1, 2)}, "a: 0.5. b: 1, 2."),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_sensor_is_told_in_words(sensor: Any, seen: Any, text: str) -> None:
    assert find_describer(sensor)(seen) == text


def test_every_sensor_of_ours_has_its_words() -> None:
    ours = {each for each in vars(sensors).values() if isinstance(each, type) and hasattr(each, "get_observation")}

    assert ours - {ObservationModel} == set(DESCRIBERS)


@settings(max_examples=20)
@given(seed=st.integers(0, 2**31 - 1))
def test_what_is_told_is_what_the_sensor_gave(seed: int) -> None:
    environment = PlumeEnvironment(PlumeSearchEnv())

    seen = environment.reset(seed=seed)

    assert environment.describe_observation(seen) == f"Concentration {seen.concentration:.6g}, on a scale from 0 to 1."
