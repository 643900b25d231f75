"""The values that the component contracts speak of: cells, grids and the agent's state.

Rule 1: tuples are always (x, y) and (width, height); arrays are indexed [y, x].
Rule 2: values are frozen. They are msgspec Structs because a step makes several of them (see docs/decisions.md).
Rule 3: degrees, 0 is +x (East), 90 is +y (North), always in [0, 360).
"""

import math
import operator
from typing import Final, SupportsIndex

import msgspec
from msgspec.structs import force_setattr

from proctor.contracts.arguments import parse_count
from proctor.errors import ValidationError

MAX_SIDE: Final = 10_000
MOST_STEPS: Final = 2**31 - 1
"""The longest episode: a step is a counter of `chance`, and an int32 in a batch."""
FARTHEST: Final = 2 * MAX_SIDE
"""No stride, reach or speed is longer: it would lead across any grid."""


def _as_int(value: SupportsIndex, what: str) -> int:
    try:
        if not isinstance(value, bool):
            return operator.index(value)
    except TypeError:
        pass
    raise ValidationError(f"{what} must be an integer", found=value, expected="an int")


def normalize_heading(degrees: float) -> float:
    """Return `degrees` brought into [0, 360); a non-finite angle is refused."""
    if not math.isfinite(degrees):
        raise ValidationError("an orientation must be finite", found=degrees, expected="degrees", clause="ENV-I2")
    turned = float(degrees) % 360.0
    # The float remainder of a tiny negative angle rounds up to 360.0 itself.
    return 0.0 if turned == 360.0 else turned


class Coordinates(msgspec.Struct, frozen=True, gc=False):
    """One cell; may lie off the grid, and be negative."""

    x: int
    y: int

    def __post_init__(self) -> None:
        if type(self.x) is not int:
            force_setattr(self, "x", _as_int(self.x, "x"))
        if type(self.y) is not int:
            force_setattr(self, "y", _as_int(self.y, "y"))

    def distance_to(self, other: "Coordinates") -> float:
        """Return the Euclidean distance in cells."""
        dx = self.x - other.x
        dy = self.y - other.y
        return math.sqrt(dx * dx + dy * dy)


class GridSize(msgspec.Struct, frozen=True, gc=False):
    """Width and height in cells, 1 to 10 000 each."""

    width: int
    height: int

    def __post_init__(self) -> None:
        for name in ("width", "height"):
            side = _as_int(getattr(self, name), name)
            force_setattr(self, name, parse_count(f"grid {name}", side, 1, MAX_SIDE, clause="ENV-INIT-P3"))

    def contains(self, cell: Coordinates) -> bool:
        """Return whether `cell` lies on the grid."""
        return 0 <= cell.x < self.width and 0 <= cell.y < self.height

    def center(self) -> Coordinates:
        """Return the cell (width // 2, height // 2)."""
        return Coordinates(self.width // 2, self.height // 2)

    def total_cells(self) -> int:
        """Return the number of cells."""
        return self.width * self.height


class AgentState(msgspec.Struct, frozen=True, gc=False):
    """Where the agent is and how its episode stands; the orientation is normalised on the way in."""

    position: Coordinates
    orientation: float = 0.0
    step_count: int = 0
    total_reward: float = 0.0
    goal_reached: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.orientation < 360.0:
            force_setattr(self, "orientation", normalize_heading(self.orientation))
