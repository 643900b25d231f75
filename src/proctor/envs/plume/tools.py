"""What an agent can do in the plume search: smell, and move in the ways that its action processor knows.

Rule 1: a table says which tools an action processor has. One that is not in it, a user's own, is driven by `act`.
Rule 2: an agent is told what its sensor tells. It learns neither where it is nor where the source is, and no reward.
Rule 3: how a sensor's readings are described is found by its type. The numbers of a sensor that is not ours are told as they
    are.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from pydantic import Field

from proctor.contracts.tools import ToolSafety, tool
from proctor.envs.plume import sensors
from proctor.envs.plume.actions import (
    ContinuousActions,
    DiscreteGridActions,
    EightDirectionActions,
    OrientedGridActions,
    RunTumbleActions,
)
from proctor.envs.plume.models import PlumeAction, PlumeObservation

Describer: TypeAlias = Callable[[Any], str]
"""Turns what a sensor gave, a row of numbers or several by their names, into text."""


def find_describer(sensor: Any) -> Describer:
    """Return how what `sensor` gives is told."""
    return partial(DESCRIBERS.get(type(sensor), _describe_any), sensor)


def _describe_any(sensor: Any, seen: Any) -> str:
    if isinstance(seen, Mapping):
        return " ".join(f"{name}: {_format_numbers(reading)}." for name, reading in seen.items())
    return f"The sensor reads {_format_numbers(seen)}."


def _describe_history(sensor: sensors.HistorySensor, seen: Sequence[float]) -> str:
    width = len(seen) // sensor.length
    rows = [_format_numbers(seen[start : start + width]) for start in range(0, len(seen), width)]
    return f"The last {sensor.length} readings, oldest first: {'; '.join(rows)}."


def _describe_several(sensor: sensors.DictSensor, seen: Mapping[str, Any]) -> str:
    return " ".join(f"{name}: {find_describer(sensor.sensors[name])(reading)}" for name, reading in seen.items())


def _format_numbers(row: Sequence[float]) -> str:
    return ", ".join(f"{number:.6g}" for number in row)


DESCRIBERS: Final[Mapping[type, Callable[[Any, Any], str]]] = {
    sensors.ConcentrationSensor: lambda sensor, seen: f"Concentration {seen[0]:.6g}, on a scale from 0 to 1.",
    sensors.BinaryHitSensor: lambda sensor, seen: "There is odor here." if seen[0] else "There is no odor here.",
    sensors.PoissonHitSensor: lambda sensor, seen: f"Odor hits in this step: {seen[0]:g}, of at most {sensor.most}.",
    sensors.AntennaePair: lambda sensor, seen: (
        f"Concentration {seen[0]:.6g} at the left antenna, {seen[1]:.6g} at the right one, on a scale from 0 to 1."
    ),
    sensors.WindSensor: lambda sensor, seen: (
        f"The wind blows {seen[0]:.6g} cells a step to the right (+x), {seen[1]:.6g} up (+y)."
    ),
    sensors.HistorySensor: _describe_history,
    sensors.DictSensor: _describe_several,
}
"""What each sensor of ours says."""


MOST_STEPS: Final = 20
"""How many steps one call may ask for."""

Steps: TypeAlias = Annotated[
    int, Field(ge=1, le=MOST_STEPS, description="How many steps to make with this call, one after the other.")
]
Latest: TypeAlias = Callable[[], PlumeObservation]

Four: TypeAlias = Literal["up", "right", "down", "left"]
Eight: TypeAlias = Literal[
    "north", "north_east", "east", "south_east", "south", "south_west", "west", "north_west", "stay"
]
FOUR: Final = get_args(Four)
EIGHT: Final = get_args(Eight)
"""The directions, in the order of the processors' actions."""


class SmellTools:
    """What every searcher can do."""

    def __init__(self, latest: Latest) -> None:
        self._latest = latest

    @tool(ToolSafety.READ, title="Smell where you are")
    def sniff(self) -> PlumeObservation:
        """Read your odor sensor again, where you are, without moving.

        You are searching for the source of an odor on a grid that you cannot see. What comes back is the latest reading,
        the one that your last step ended with. This changes nothing and takes no step, so it is the same until your next
        step. No other reading is kept for you: remember and compare them yourself.
        """
        return self._latest()


class FourDirectionTools(SmellTools):
    """Moves up, right, down and left."""

    @tool(ToolSafety.WRITE, title="Move on the grid")
    def move(self, direction: Four, steps: Steps = 1) -> list[PlumeAction]:
        """Move in one of four directions, and smell where you come to.

        Up is +y, right is +x. What comes back is the reading of your odor sensor at the last place only: to compare two
        places, move one step at a time. At the edge of the grid you stay where you are, and the step counts all the same.
        If the episode ends on the way, the remaining steps are not made.
        """
        return [PlumeAction(action=FOUR.index(direction))] * steps


class EightDirectionTools(SmellTools):
    """Moves along the compass, or stays."""

    @tool(ToolSafety.WRITE, title="Move on the grid")
    def move(self, direction: Eight, steps: Steps = 1) -> list[PlumeAction]:
        """Move in one of eight directions, or stay for a step, and smell where you come to.

        North is +y, east is +x. What comes back is the reading of your odor sensor at the last place only: to compare two
        places, move one step at a time. At the edge of the grid you slide along it or stay where you are, and the step
        counts all the same. If the episode ends on the way, the remaining steps are not made.
        """
        return [PlumeAction(action=EIGHT.index(direction))] * steps


class OrientedTools(SmellTools):
    """Moves ahead, and turns left and right."""

    @tool(ToolSafety.WRITE, title="Move ahead")
    def move(self, steps: Steps = 1) -> list[PlumeAction]:
        """Move straight ahead in the direction that you face, and smell where you come to.

        What comes back is the reading of your odor sensor at the last place only: to compare two places, move one step at
        a time. At the edge of the grid you stay where you are, and the step counts all the same. If the episode ends on
        the way, the remaining steps are not made.
        """
        return [PlumeAction(action=0)] * steps

    @tool(ToolSafety.WRITE, title="Turn")
    def turn(self, direction: Literal["left", "right"]) -> PlumeAction:
        """Turn by 90 degrees to the left or to the right, where you stand.

        This takes one step. What comes back is the reading of your odor sensor. An episode usually begins with you facing
        right (+x); from there, left is up (+y).
        """
        return PlumeAction(action=1 if direction == "left" else 2)


class VelocityTools(SmellTools):
    """Moves by a velocity."""

    @tool(ToolSafety.WRITE, title="Move by a velocity")
    def move(
        self,
        vx: Annotated[float, Field(ge=-1.0, le=1.0, description="To the right (+x), as a share of the full speed.")],
        vy: Annotated[float, Field(ge=-1.0, le=1.0, description="Upwards (+y), as a share of the full speed.")],
        steps: Steps = 1,
    ) -> list[PlumeAction]:
        """Move with a velocity (vx, vy), each from -1 to 1 of the full speed, and smell where you come to.

        Each step goes as many whole cells to the right and up as the velocity says, rounded: a small velocity may not move
        you at all. What comes back is the reading of your odor sensor at the last place only: to compare two places, move
        one step at a time. You cannot leave the grid. If the episode ends on the way, the remaining steps are not made.
        """
        return [PlumeAction(action=(vx, vy))] * steps


@lru_cache(maxsize=16)
def make_run_tumble_tools(n_headings: int) -> type[SmellTools]:
    """Return the tools of a searcher that runs ahead and turns to one of `n_headings`."""
    degrees = 360.0 / n_headings

    class RunAndTumble(SmellTools):
        """Runs ahead, and turns to one of its headings."""

        @tool(ToolSafety.WRITE, title="Run ahead")
        def move(self, steps: Steps = 1) -> list[PlumeAction]:
            """Run straight ahead in the direction that you face, and smell where you come to.

            What comes back is the reading of your odor sensor at the last place only: to compare two places, move one step
            at a time. At the edge of the grid you slide along it or stay where you are, and the step counts all the same.
            If the episode ends on the way, the remaining steps are not made.
            """
            return [PlumeAction(action=0)] * steps

        @tool(ToolSafety.WRITE, title="Turn to a heading")
        def turn(
            self,
            heading: Annotated[
                int,
                Field(
                    ge=0,
                    le=n_headings - 1,
                    description=f"Which one of {n_headings} headings: times {degrees:g} degrees, 0 is right (+x) and 90"
                    " degrees is up (+y).",
                ),
            ],
        ) -> PlumeAction:
            """Turn to one of the headings, where you stand, whatever you faced before.

            This takes one step. What comes back is the reading of your odor sensor.
            """
            return PlumeAction(action=heading + 1)

    return RunAndTumble


TOOLS: Final[Mapping[type, Callable[[Any], type[SmellTools]]]] = {
    DiscreteGridActions: lambda actions: FourDirectionTools,
    EightDirectionActions: lambda actions: EightDirectionTools,
    OrientedGridActions: lambda actions: OrientedTools,
    RunTumbleActions: lambda actions: make_run_tumble_tools(actions.n_headings),
    ContinuousActions: lambda actions: VelocityTools,
}
"""The tools of each action processor of ours."""


def make_tools(actions: Any, latest: Latest) -> SmellTools | None:
    """Return an object with the tools for these actions; None if they are none of ours."""
    found = TOOLS.get(type(actions))
    return None if found is None else found(actions)(latest)


def describe_rules(actions: Any, goal_radius: float, max_steps: int) -> str:
    """Return how far a move goes, where that is known, and how an episode ends."""
    stride = ""
    if isinstance(actions, ContinuousActions):
        stride = f"The full speed is {_format_cells(actions.max_speed)} a step. "
    elif type(actions) in TOOLS:
        stride = f"A move goes {_format_cells(actions.step_size)} a step. "
    goal = f"within {_format_cells(goal_radius)} of the source, which is your aim"
    return f"{stride}The episode ends when you are {goal}, or after {max_steps} steps."


def _format_cells(count: float) -> str:
    return "1 cell" if count == 1 else f"{count:g} cells"
