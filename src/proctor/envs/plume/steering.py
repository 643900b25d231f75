"""Between a policy and an environment's parts: compass headings become actions, observations become readings.

Rule 1: what an action processor can do is a row of `_LEGS`, what a sensor's observation means a row of `_NOSES`; both
    are found by the type that the part's metadata names.
Rule 2: this file reads metadata and spaces, never the state of an environment.
Rule 3: headings are whole numbers 0 to count - 1, anticlockwise from East, evenly spaced. An episode begins with the
    heading 0; one that was reset with another `orientation` looks turned to a policy that has to turn itself.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, TypeAlias

import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import flatdim, unflatten

from proctor.contracts.components import ActionProcessor, ObservationModel
from proctor.errors import ValidationError

Action: TypeAlias = Any
Vector: TypeAlias = tuple[float, float]
Way: TypeAlias = Callable[[int, int], tuple[Action, ...]]

ALIKE: Final = 9  # decimals of a cosine within which two headings are equally good


@dataclass(frozen=True, slots=True)
class Steering:
    """What a processor's actions amount to: `way(facing, wanted)` makes one move along `wanted` with its last action."""

    count: int
    way: Way

    def direction(self, heading: int) -> Vector:
        """Return the unit vector along `heading`."""
        angle = math.tau * heading / self.count
        return math.cos(angle), math.sin(angle)

    def nearest(self, direction: Vector) -> int:
        """Return the heading that leads furthest along `direction`; the lowest of equals."""
        length = math.hypot(*direction) or 1.0
        return max(
            range(self.count), key=lambda heading: round(dot(self.direction(heading), direction) / length, ALIKE)
        )


def dot(one: Vector, other: Vector) -> float:
    """Return the inner product."""
    return one[0] * other[0] + one[1] * other[1]


def _discrete(parameters: Mapping[str, Any]) -> Steering:
    return Steering(4, lambda facing, wanted: ((1 - wanted) % 4,))  # actions count clockwise from North


def _eight(parameters: Mapping[str, Any]) -> Steering:
    return Steering(8, lambda facing, wanted: ((2 - wanted) % 8,))


_QUARTERS: Final = ((), (1,), (1, 1), (2,))  # the turns of an oriented agent, by quarters to the left


def _oriented(parameters: Mapping[str, Any]) -> Steering:
    return Steering(4, lambda facing, wanted: (*_QUARTERS[(wanted - facing) % 4], 0))


def _run_tumble(parameters: Mapping[str, Any]) -> Steering:
    return Steering(parameters["n_headings"], lambda facing, wanted: (0,) if facing == wanted else (wanted + 1, 0))


def _continuous(parameters: Mapping[str, Any]) -> Steering:
    """One cell at a time, to the eight neighbours."""
    share = min(1.0, 1.0 / parameters["max_speed"])
    ring = ((1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1))
    velocities = np.array(ring, np.float32) * np.float32(share)
    velocities.flags.writeable = False
    return Steering(8, lambda facing, wanted: (velocities[wanted],))


_LEGS: Final[Mapping[str, Callable[[Mapping[str, Any]], Steering]]] = {
    "discrete_grid": _discrete,
    "eight_direction_stay": _eight,
    "oriented_grid": _oriented,
    "run_tumble": _run_tumble,
    "continuous": _continuous,
}


def steering_of(processor: ActionProcessor) -> Steering:
    """Return how to steer with `processor`; a type that is not known is a ValidationError."""
    metadata = processor.get_metadata()
    legs = _LEGS.get(metadata["type"])
    if legs is None:
        raise ValidationError(
            "no policy can steer with this action type", found=metadata["type"], expected=f"one of {', '.join(_LEGS)}"
        )
    return legs(metadata["parameters"])


@dataclass(frozen=True, slots=True)
class Reading:
    """One observation as a policy uses it; the wind is None where none is felt."""

    odor: float
    wind: Vector | None = None


@dataclass(frozen=True, slots=True)
class Nose:
    """Where an observation has its odor and its wind; None where it has none."""

    odor: Callable[[Any], float] | None = None
    wind: Callable[[Any], Vector] | None = None

    def read(self, observation: Any) -> Reading:
        """Return the odor, 0 where nothing smells, and the wind."""
        return Reading(
            0.0 if self.odor is None else self.odor(observation),
            None if self.wind is None else self.wind(observation),
        )


def _mean(observation: Any) -> float:
    values = np.ravel(observation).tolist()
    return float(sum(values) / len(values))


def _velocity(observation: Any) -> Vector:
    u, v = observation.tolist()
    return u, v


def _plain(model: Any) -> Nose:
    space = model.observation_space
    if not isinstance(space, spaces.Box | spaces.MultiBinary | spaces.Discrete):
        raise ValidationError("no policy can read this observation", found=space, expected="numbers")
    return Nose(odor=_mean)


def _wind(model: Any) -> Nose:
    return Nose(wind=_velocity)


def _history(model: Any) -> Nose:
    """Read the newest entry."""
    inner = nose_of(model.sensor)
    space = model.sensor.observation_space
    size = flatdim(space)
    return _through(inner, lambda observation: unflatten(space, observation[-size:]))


def _dict(model: Any) -> Nose:
    """Take each sense from the first entry that has it."""
    noses = [_through(nose_of(sensor), itemgetter(name)) for name, sensor in model.sensors.items()]
    odors = (nose.odor for nose in noses if nose.odor is not None)
    winds = (nose.wind for nose in noses if nose.wind is not None)
    return Nose(next(odors, None), next(winds, None))


def _through(nose: Nose, part: Callable[[Any], Any]) -> Nose:
    """Return `nose` for an observation of which it reads `part`."""
    odor, wind = nose.odor, nose.wind
    return Nose(
        None if odor is None else lambda observation: odor(part(observation)),
        None if wind is None else lambda observation: wind(part(observation)),
    )


_NOSES: Final[Mapping[str, Callable[[Any], Nose]]] = {"wind": _wind, "history": _history, "dict": _dict}


def nose_of(model: ObservationModel) -> Nose:
    """Return how to read the observations of `model`; any row of numbers smells of its mean."""
    return _NOSES.get(model.get_metadata()["type"], _plain)(model)
