"""The wire types of Column Popper: what a typed client imports; no engine comes with them."""

from typing import Annotated

from pydantic import StrictInt

from proctor.contracts.lifecycle import EnvironmentState
from proctor.models.wire import Action, Observation, Packable, State, WireModel


class PopperAction(Action):
    """A column picks or places there; the number after the last column lets a row fall."""

    action: StrictInt


class PopperView(WireModel):
    """The board, row 0 on top, 0 is empty; `selection` is (is something held, its value)."""

    board: Annotated[tuple[tuple[StrictInt, ...], ...], Packable()]
    selection: Annotated[tuple[StrictInt, StrictInt], Packable()]


class TimedPopperView(PopperView):
    """The view with `include_time_left_norm`: the share of the time that is left."""

    time_left_norm: Annotated[tuple[float], Packable()]


class PopperObservation(Observation):
    """What the player sees; `score`, `time_left` and the others are read from `metadata`."""

    observation: TimedPopperView | PopperView

    @property
    def score(self) -> int:
        """Three points for every cell that has popped."""
        score = self.metadata.get("score")
        return score if isinstance(score, int) else 0

    @property
    def time_left(self) -> float:
        """Seconds until time is up."""
        left = self.metadata.get("time_left")
        return float(left) if isinstance(left, int | float) else 0.0

    @property
    def pops_this_step(self) -> int:
        """How many cells popped."""
        pops = self.metadata.get("pops_this_step")
        return pops if isinstance(pops, int) else 0

    @property
    def action_mask(self) -> tuple[bool, ...]:
        """Which actions do something, one after the other."""
        mask = self.metadata.get("action_mask")
        return tuple(each == 1 for each in mask) if isinstance(mask, list) else ()

    @property
    def reward_parts(self) -> dict[str, float]:
        """What the reward is made of; empty after a reset."""
        parts = self.metadata.get("reward_parts")
        told = parts if isinstance(parts, dict) else {}
        return {name: float(part) for name, part in told.items() if isinstance(part, int | float)}

    @property
    def fault(self) -> str | None:
        """How the game was lost, if it was."""
        fault = self.metadata.get("fault")
        return fault if isinstance(fault, str) else None


class PopperState(State):
    """Where the game stands; before the first reset nothing has happened."""

    lifecycle: EnvironmentState
    seed: int | None = None
    episode_count: int = 0
    score: int = 0
    total_reward: float = 0.0
    clock_ms: int = 0
    held: int | None = None  # the column of the block that is held
    next_fall_ms: int | None = None
    fault: str | None = None
