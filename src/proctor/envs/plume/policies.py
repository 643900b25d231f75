"""Policies to compare with: gradient greedy, run and tumble, surge and cast, beside the random one.

Rule 1: a policy sees observations only, never `info` or the source; what it knows besides is which actions and which
    sensor it was built for.
Rule 2: memory is the policy's own and begins anew at `reset`; chance is a function of the seed and the count of moves.
Rule 3: a policy that steers chooses headings; a `Steering` turns them into actions.
Rule 4: what an action processor can do is a row of `_STEERINGS`, what a sensor's observation means a row of `_READERS`;
    both are found by the type that the part's metadata names. Nothing reads the state of an environment.
Rule 5: headings are whole numbers 0 to count - 1, anticlockwise from East, evenly spaced. An episode begins with the
    heading 0; one that was reset with another `orientation` looks turned to a policy that has to turn itself.
"""

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, repeat
from typing import Any, Final, TypeAlias

import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import flatdim, unflatten

from proctor.contracts.chance import Chance
from proctor.contracts.components import ActionProcessor, ObservationModel
from proctor.envs.evaluation import GENERAL_POLICIES, RANDOM_STREAM, Env, Policy, PolicyEntry
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


def _turn_and_go(parameters: Mapping[str, Any]) -> Steering:
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


_STEERINGS: Final[Mapping[str, Callable[[Mapping[str, Any]], Steering]]] = {
    "discrete_grid": _discrete,
    "eight_direction_stay": _eight,
    "oriented_grid": _turn_and_go,
    "run_tumble": _run_tumble,
    "continuous": _continuous,
}


def find_steering(processor: ActionProcessor) -> Steering:
    """Return how to steer with `processor`; a type that is not known is a ValidationError."""
    kind, parameters = (processor.get_metadata()[key] for key in ("type", "parameters"))
    if kind not in _STEERINGS:
        raise ValidationError(
            "no policy can steer with this action type", found=kind, expected=f"one of {', '.join(_STEERINGS)}"
        )
    return _STEERINGS[kind](parameters)


@dataclass(frozen=True, slots=True)
class SensorReading:
    """One observation as a policy uses it; None where nothing smells, or no wind is felt."""

    odor: float | None = None
    wind: Vector | None = None


Reader: TypeAlias = Callable[[Any], SensorReading]


def _plain(model: Any) -> Reader:
    space = model.observation_space
    if not isinstance(space, spaces.Box | spaces.MultiBinary | spaces.Discrete):
        raise ValidationError("no policy can read this observation", found=space, expected="numbers")

    def read(observation: Any) -> SensorReading:
        values = np.ravel(observation).tolist()
        return SensorReading(odor=float(sum(values) / len(values)))

    return read


def _wind(model: Any) -> Reader:
    return lambda observation: SensorReading(wind=tuple(observation.tolist()))


def _history(model: Any) -> Reader:
    """Read the newest entry."""
    read, space = find_reader(model.sensor), model.sensor.observation_space
    size = flatdim(space)
    return lambda observation: read(unflatten(space, observation[-size:]))


def _dict(model: Any) -> Reader:
    """Take each sense from the first entry that has it."""
    readers = {name: find_reader(sensor) for name, sensor in model.sensors.items()}

    def read(observation: Any) -> SensorReading:
        parts = [reader(observation[name]) for name, reader in readers.items()]
        odors = (part.odor for part in parts if part.odor is not None)
        winds = (part.wind for part in parts if part.wind is not None)
        return SensorReading(next(odors, None), next(winds, None))

    return read


_READERS: Final[Mapping[str, Callable[[Any], Reader]]] = {"wind": _wind, "history": _history, "dict": _dict}


def find_reader(model: ObservationModel) -> Reader:
    """Return how to read the observations of `model`; any row of numbers smells of its mean."""
    return _READERS.get(model.get_metadata()["type"], _plain)(model)


GREEDY, TUMBLING, CASTING = (RANDOM_STREAM + k for k in range(1, 4))
LITTLE: Final = 1e-9
"""Keeps a fit solvable that has walked one axis only."""


class Searcher(ABC):
    """A policy that chooses headings and has them steered; the memory of a subclass begins in `_begin`."""

    def __init__(self, steering: Steering, model: ObservationModel) -> None:
        self._steering = steering
        self._read = find_reader(model)
        self._feels_wind = bool(getattr(model, "needs_wind", False))

    def reset(self, seed: int) -> None:
        """Forget everything and begin an episode."""
        self._chance = Chance(seed)
        self._moves = 0
        self._facing = 0
        self._pending: list[Action] = []
        self._begin()

    def act(self, observation: Any) -> Action:
        """Return the next action; a new heading is chosen when the last move is made."""
        if not self._pending:
            reading = self._read(observation)
            wanted = self._choose(reading.odor or 0.0, reading.wind)
            self._pending = list(reversed(self._steering.way(self._facing, wanted)))
            self._facing = wanted
            self._moves += 1
        return self._pending.pop()

    @abstractmethod
    def _begin(self) -> None:
        """Set the memory up for an episode."""

    @abstractmethod
    def _choose(self, odor: float, wind: Vector | None) -> int:
        """Return the heading of the next move; there is no wind where none is felt."""


class RunTumble(Searcher):
    """Runs while the odor rises, turns to any other heading when it falls, and now and then when it stays."""

    TUMBLES: Final = {1: 0.0, 0: 0.2, -1: 1.0}
    """The chance of a tumble, by the sign of the change of odor since the last move."""

    def _begin(self) -> None:
        self._odor = 0.0
        self._heading = self._chance.below(self._steering.count, TUMBLING, 0)

    def _choose(self, odor: float, wind: Vector | None) -> int:
        change = (odor > self._odor) - (odor < self._odor)
        self._odor = odor
        if self._chance.uniform(TUMBLING, self._moves, 1) < self.TUMBLES[change]:
            others = self._steering.count - 1
            turn = 1 + self._chance.below(others, TUMBLING, self._moves, 2)
            self._heading = (self._heading + turn) % (others + 1)
        return self._heading


class GradientGreedy(Searcher):
    """Fits a plane to its last few readings and climbs it; one move in five explores.

    Where it was it knows by counting its own moves, so walls, which it cannot see, spoil the fit for a while.
    """

    SPAN: Final = 8
    EXPLORES: Final = 0.2

    def _begin(self) -> None:
        self._at = (0.0, 0.0)
        self._past: deque[tuple[Vector, float]] = deque(maxlen=self.SPAN)

    def _choose(self, odor: float, wind: Vector | None) -> int:
        self._past.append((self._at, odor))
        slope = fit_slope(self._past)
        if slope == (0.0, 0.0) or self._chance.uniform(GREEDY, self._moves, 0) < self.EXPLORES:
            heading = self._chance.below(self._steering.count, GREEDY, self._moves, 1)
        else:
            heading = self._steering.nearest(slope)
        (x, y), (dx, dy) = self._at, self._steering.direction(heading)
        self._at = x + dx, y + dy
        return heading


def fit_slope(past: Collection[tuple[Vector, float]]) -> Vector:
    """Return the slope of the plane through (place, odor), by least squares; an axis that was not walked has none."""
    size = len(past)
    centre_x, centre_y = (sum(at[axis] for at, _ in past) / size for axis in (0, 1))
    middle = sum(odor for _, odor in past) / size
    rows = [(x - centre_x, y - centre_y, odor - middle) for (x, y), odor in past]
    xx, yy = (LITTLE + sum(row[axis] * row[axis] for row in rows) for axis in (0, 1))
    xy = sum(x * y for x, y, _ in rows)
    x_rise, y_rise = (sum(row[axis] * row[2] for row in rows) for axis in (0, 1))
    scale = xx * yy - xy * xy
    return (x_rise * yy - y_rise * xy) / scale, (y_rise * xx - x_rise * xy) / scale


class SurgeCast(Searcher):
    """Follows a rise of odor to its end, then surges upwind a little, then casts to and fro across the wind.

    A rise is more odor than in the last few readings. Casts widen, each begins further downwind, and any rise ends
    them. Where no wind is felt, upwind is the heading of the last rise, and the surge is the rise itself.
    """

    SPAN: Final = 10
    SURGE: Final = 8
    REACH: Final = 4
    """Cells by which casts widen; without wind they widen by one."""
    FAINT: Final = 1e-4
    """Odor that is not worth a surge in a wind, which carries it away from the source."""
    SMOOTH: Final = 0.9

    def _begin(self) -> None:
        self._wind: Vector | None = None
        self._course = self._steering.direction(self._chance.below(self._steering.count, CASTING, 0))
        self._wanted = self._course
        self._owed: Vector = (0.0, 0.0)
        self._past: deque[float] = deque([0.0], maxlen=self.SPAN)
        self._look_around()

    def _choose(self, odor: float, wind: Vector | None) -> int:
        if wind is not None:
            self._feel(wind)
        if odor > max(self._past) and not (self._feels_wind and odor < self.FAINT):
            # Go on as before, and have a fresh plan for when the rise ends.
            if not self._feels_wind:
                self._course = self._wanted
            self._look_around()
        else:
            self._wanted = turn_by_quarters(self._course, next(self._quarters))
        self._past.append(odor)
        return self._along(self._wanted)

    def _feel(self, wind: Vector) -> None:
        """Set the course against the wind, smoothed; without any the course stays."""
        before = wind if self._wind is None else self._wind
        u, v = (self.SMOOTH * old + (1.0 - self.SMOOTH) * new for old, new in zip(before, wind, strict=True))
        self._wind = u, v
        speed = math.hypot(u, v)
        if speed > 0.0:
            self._course = (-u / speed, -v / speed)

    def _look_around(self) -> None:
        first = 1 + 2 * self._chance.below(2, CASTING, self._moves, 1)
        surge, reach = (self.SURGE, self.REACH) if self._feels_wind else (0, 1)
        self._quarters = search_pattern(surge, reach, first)

    def _along(self, wanted: Vector) -> int:
        """Return the heading of a move along `wanted`; what a coarse compass cannot do is owed to the next moves."""
        x, y = self._owed[0] + wanted[0], self._owed[1] + wanted[1]
        heading = self._steering.nearest((x, y))
        dx, dy = self._steering.direction(heading)
        self._owed = min(max(x - dx, -1.0), 1.0), min(max(y - dy, -1.0), 1.0)
        return heading


def search_pattern(surge: int, reach: int, first: int) -> Iterator[int]:
    """Yield quarter turns from the course, move by move: ahead, then across and back, ever wider, without end."""
    yield from repeat(0, surge)
    side = first
    for leg in count(1):
        yield from repeat(side, leg * reach)
        yield from repeat(2, (leg - 1) * reach)
        side = 4 - side


def turn_by_quarters(direction: Vector, quarters: int) -> Vector:
    """Return `direction` turned to the left by quarters of a circle."""
    x, y = direction
    return ((x, y), (-y, x), (-x, -y), (y, -x))[quarters]


def _make_factory(kind: type[Searcher]) -> Callable[[Env], Policy]:
    """Return a factory for a policy that needs to know a plume search's actions and sensor."""

    def make(env: Env) -> Policy:
        parts = getattr(env.unwrapped, "components", None)
        if not isinstance(parts, Mapping) or not {"action", "observation"} <= parts.keys():
            raise ValidationError(
                "this policy searches plumes only",
                found=type(env.unwrapped).__name__,
                expected="a plume search, or the policy 'random'",
            )
        return kind(find_steering(parts["action"]), parts["observation"])

    return make


POLICIES: Final[Mapping[str, PolicyEntry]] = {
    **GENERAL_POLICIES,
    "gradient_greedy": PolicyEntry("climbs the plane through its last readings", _make_factory(GradientGreedy)),
    "run_tumble": PolicyEntry("runs while the odor rises, else turns anywhere", _make_factory(RunTumble)),
    "surge_cast": PolicyEntry("surges upwind on a whiff, casts across when it is lost", _make_factory(SurgeCast)),
}
