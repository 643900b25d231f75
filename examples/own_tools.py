"""Tools of one's own: an environment whose decorated methods are what agents get, and what becomes of their calls."""

import json
from math import log2
from typing import Annotated, Any, Literal

from pydantic import Field

from proctor.contracts.chance import Chance, Stream
from proctor.contracts.environment import Environment
from proctor.contracts.tools import Toolbox, ToolSafety, tool
from proctor.errors import ValidationError
from proctor.models.wire import Action, Observation, State

SHELVES = 12
STEPS = 40


class Drive(Action):
    """Drive to a shelf beside this one, or lift what lies there."""

    what: Literal["left", "right", "lift"]


class Aisle(Observation):
    """What the robot sees."""

    shelf: int
    """The number of the shelf, from 0."""
    signal: float
    """How strongly the parcel's tag answers: 1 beside it, and half as strongly with every shelf."""
    loaded: bool = False


class Warehouse(Environment[Drive, Aisle, State]):
    """Find a parcel in an aisle of shelves by the signal of its tag, and lift it.

    An episode ends when the parcel is lifted, or after 40 steps. The reward is 1 for the parcel and -0.01 for each step.
    """

    quick = True

    def __init__(self) -> None:
        self._parcel = 0
        self._seen = Aisle(shelf=0, signal=0.0)
        self._steps = 0
        self._episode_id: str | None = None

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> Aisle:
        """Put the parcel somewhere; the robot begins at shelf 0."""
        self._parcel = Chance(seed or 0).below(SHELVES, Stream.USER, 0)
        self._steps, self._episode_id = 0, episode_id
        self._seen = Aisle(shelf=0, signal=self._signal(0))
        return self._seen

    def step(self, action: Drive) -> Aisle:
        """Drive, or lift."""
        self._steps += 1
        way = {"left": -1, "right": 1, "lift": 0}[action.what]
        shelf = min(max(self._seen.shelf + way, 0), SHELVES - 1)
        loaded = action.what == "lift" and shelf == self._parcel
        self._seen = Aisle(
            shelf=shelf,
            signal=self._signal(shelf),
            loaded=loaded,
            reward=1.0 if loaded else -0.01,
            terminated=loaded,
            truncated=self._steps == STEPS and not loaded,
        )
        return self._seen

    def _signal(self, shelf: int) -> float:
        return 0.5 ** abs(shelf - self._parcel)

    @property
    def state(self) -> State:
        """Where the episode stands."""
        return State(episode_id=self._episode_id, step_count=self._steps)

    def describe_observation(self, observation: Aisle) -> str:
        """Return what a language model reads."""
        parcel = "The parcel is loaded." if observation.loaded else f"Signal {observation.signal:.4g}."
        return f"The robot is at shelf {observation.shelf}. {parcel}"

    @tool(ToolSafety.READ)
    def scan(self) -> Aisle:
        """Scan for the parcel's tag where the robot is. This takes no step.

        What comes back is the number of the shelf and the signal: 1 beside the parcel, half as strong with every shelf
        between.
        """
        return self._seen

    @tool(ToolSafety.READ)
    def plan_of_the_aisle(self) -> dict[str, int]:
        """Read how many shelves the aisle has, and how many steps the episode has left."""
        return {"shelves": SHELVES, "steps_left": STEPS - self._steps}

    @tool(ToolSafety.WRITE)
    def drive(
        self, direction: Literal["left", "right"], shelves: Annotated[int, Field(ge=1, le=SHELVES - 1)] = 1
    ) -> list[Drive]:
        """Drive along the aisle; every shelf is one step. At the end of the aisle the robot stays where it is.

        Args:
            direction: Shelf 0 is the leftmost.
            shelves: How far.
        """
        return [Drive(what=direction)] * shelves

    @tool(ToolSafety.WRITE, destructive=True)
    def lift(self) -> Drive:
        """Lift what lies on this shelf, which takes one step. If it is the parcel, the episode ends, and you have won."""
        if self._seen.signal < 0.25:
            raise ValidationError("the parcel is not here", expected="a signal of at least 0.25")
        return Drive(what="lift")


def called(house: Warehouse, box: Toolbox, name: str, **arguments: Any) -> Any:
    """Do what a server does with an agent's call: plan it, carry the actions out, tell what came of it."""
    print(f"> {name} {json.dumps(arguments)}")
    try:
        plan: Any = box.plan(name, json.dumps(arguments).encode())
    except ValidationError as problem:
        print(f"  refused: {problem}")
        return None
    if plan.value is not None:
        print(f"  {json.dumps(plan.value)}")
        return plan.value
    seen = plan.seen
    for action in plan.actions:
        seen = house.step(action)
        if seen.done:
            break
    print(f"  {house.describe_observation(seen)}")
    return seen


def main() -> None:
    """Show the tools, then find the parcel with nothing else."""
    house = Warehouse()
    box = house.toolbox()
    for each in box.tools:
        print(f"{each.name} ({each.safety}): {each.description.splitlines()[0]}")
        print(f"  takes {json.dumps(each.input_schema['properties'])}")

    house.reset(seed=4)
    called(house, box, "plan_of_the_aisle")
    called(house, box, "drive", direction="up", shelves=0)
    called(house, box, "lift")
    seen = called(house, box, "scan")
    while not seen.done:
        # Half as strong with every shelf: the signal says how far it is, if not in which direction.
        missing = round(-log2(seen.signal))
        seen = (
            called(house, box, "drive", direction="right", shelves=missing) if missing else called(house, box, "lift")
        )
    print(f"{house.state.step_count} steps")


if __name__ == "__main__":
    main()
