"""Policies to compare with: gradient greedy, run and tumble, surge and cast, beside the random one.

Rule 1: a policy sees observations only, never `info` or the source; what it knows besides is which actions and which
    sensor it was built for.
Rule 2: memory is the policy's own and begins anew at `reset`; chance is a function of the seed and the count of moves.
Rule 3: a policy that steers chooses headings; `steering` turns them into actions.
"""

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import count, repeat
from typing import Any, Final

from proctor.contracts.chance import Chance
from proctor.envs.episodes import Env, Policy
from proctor.envs.plume.steering import Action, Nose, Reading, Steering, Vector, nose_of, steering_of
from proctor.envs.policies import ANY, RANDOM, Entry
from proctor.errors import ValidationError

GREEDY, TUMBLING, CASTING = (RANDOM + k for k in range(1, 4))
LITTLE: Final = 1e-9
"""Keeps a fit solvable that has walked one axis only."""


class Searcher(ABC):
    """A policy that chooses headings and has them steered; the memory of a subclass begins in `_begin`."""

    def __init__(self, steering: Steering, nose: Nose) -> None:
        self._steering = steering
        self._nose = nose

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
            wanted = self._choose(self._nose.read(observation))
            self._pending = list(reversed(self._steering.way(self._facing, wanted)))
            self._facing = wanted
            self._moves += 1
        return self._pending.pop()

    @abstractmethod
    def _begin(self) -> None:
        """Set the memory up for an episode."""

    @abstractmethod
    def _choose(self, reading: Reading) -> int:
        """Return the heading of the next move."""


class RunTumble(Searcher):
    """Runs while the odor rises, turns to any other heading when it falls, and now and then when it stays."""

    TUMBLES: Final = {1: 0.0, 0: 0.2, -1: 1.0}
    """The chance of a tumble, by the sign of the change of odor since the last move."""

    def _begin(self) -> None:
        self._odor = 0.0
        self._heading = self._chance.below(self._steering.count, TUMBLING, 0)

    def _choose(self, reading: Reading) -> int:
        change = (reading.odor > self._odor) - (reading.odor < self._odor)
        self._odor = reading.odor
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

    def _choose(self, reading: Reading) -> int:
        self._past.append((self._at, reading.odor))
        slope = fitted_slope(self._past)
        if slope == (0.0, 0.0) or self._chance.uniform(GREEDY, self._moves, 0) < self.EXPLORES:
            heading = self._chance.below(self._steering.count, GREEDY, self._moves, 1)
        else:
            heading = self._steering.nearest(slope)
        self._at = plus(self._at, self._steering.direction(heading))
        return heading


def fitted_slope(past: Collection[tuple[Vector, float]]) -> Vector:
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
        self._feels_wind = self._nose.wind is not None
        self._wind: Vector | None = None
        self._course = self._steering.direction(self._chance.below(self._steering.count, CASTING, 0))
        self._wanted = self._course
        self._owed: Vector = (0.0, 0.0)
        self._past: deque[float] = deque([0.0], maxlen=self.SPAN)
        self._look_around()

    def _choose(self, reading: Reading) -> int:
        if reading.wind is not None:
            self._feel(reading.wind)
        if reading.odor > max(self._past) and not (self._feels_wind and reading.odor < self.FAINT):
            self._rise()
        else:
            self._wanted = turned(self._course, next(self._quarters))
        self._past.append(reading.odor)
        return self._along(self._wanted)

    def _feel(self, wind: Vector) -> None:
        """Set the course against the wind, smoothed; without any the course stays."""
        before = wind if self._wind is None else self._wind
        u, v = self._wind = (mixed(before[0], wind[0], self.SMOOTH), mixed(before[1], wind[1], self.SMOOTH))
        speed = math.hypot(u, v)
        if speed > 0.0:
            self._course = (-u / speed, -v / speed)

    def _rise(self) -> None:
        """Go on as before, and have a fresh plan for when the rise ends."""
        if not self._feels_wind:
            self._course = self._wanted
        self._look_around()

    def _look_around(self) -> None:
        first = 1 + 2 * self._chance.below(2, CASTING, self._moves, 1)
        surge, reach = (self.SURGE, self.REACH) if self._feels_wind else (0, 1)
        self._quarters = search_pattern(surge, reach, first)

    def _along(self, wanted: Vector) -> int:
        """Return the heading of a move along `wanted`; what a coarse compass cannot do is owed to the next moves."""
        owed = plus(self._owed, wanted)
        heading = self._steering.nearest(owed)
        x, y = self._steering.direction(heading)
        self._owed = (within_one(owed[0] - x), within_one(owed[1] - y))
        return heading


def search_pattern(surge: int, reach: int, first: int) -> Iterator[int]:
    """Yield quarter turns from the course, move by move: ahead, then across and back, ever wider, without end."""
    yield from repeat(0, surge)
    side = first
    for leg in count(1):
        yield from repeat(side, leg * reach)
        yield from repeat(2, (leg - 1) * reach)
        side = 4 - side


def turned(direction: Vector, quarters: int) -> Vector:
    """Return `direction` turned to the left by quarters of a circle."""
    x, y = direction
    return ((x, y), (-y, x), (-x, -y), (y, -x))[quarters]


def plus(one: Vector, other: Vector) -> Vector:
    """Return the sum."""
    return one[0] + other[0], one[1] + other[1]


def within_one(value: float) -> float:
    """Return the nearest number in [-1, 1]."""
    return min(max(value, -1.0), 1.0)


def mixed(old: float, new: float, share: float) -> float:
    """Return the mean of both, weighted by the share of the old."""
    return share * old + (1.0 - share) * new


def _searching(kind: type[Searcher]) -> Callable[[Env], Policy]:
    """Return a factory for a policy that needs to know a plume search's actions and sensor."""

    def make(env: Env) -> Policy:
        parts = getattr(env.unwrapped, "components", None)
        if not isinstance(parts, Mapping) or not {"action", "observation"} <= parts.keys():
            raise ValidationError(
                "this policy searches plumes only",
                found=type(env.unwrapped).__name__,
                expected="a plume search, or the policy 'random'",
            )
        return kind(steering_of(parts["action"]), nose_of(parts["observation"]))

    return make


POLICIES: Final[Mapping[str, Entry]] = {
    **ANY,
    "gradient_greedy": Entry("climbs the plane through its last readings", _searching(GradientGreedy)),
    "run_tumble": Entry("runs while the odor rises, else turns anywhere", _searching(RunTumble)),
    "surge_cast": Entry("surges upwind on a whiff, casts across when it is lost", _searching(SurgeCast)),
}
