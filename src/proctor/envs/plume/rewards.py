"""Reward functions: pure, finite, and blind to everything but the two states and the field."""

from math import sqrt
from typing import Any

from proctor.contracts.arguments import parse_number
from proctor.contracts.components import ConcentrationField, DescribedPart, RewardFunction
from proctor.contracts.spatial import AgentState, Coordinates


class _GoalReward(DescribedPart):
    """One value within `goal_radius` of the source (inclusive), another elsewhere."""

    def __init__(self, source_location: Coordinates, goal_radius: float, at_goal: float, elsewhere: float) -> None:
        self.source_location = source_location
        self.goal_radius = parse_number("goal_radius", goal_radius, least=0.0)
        self.at_goal = at_goal
        self.elsewhere = elsewhere
        self._x, self._y = source_location.x, source_location.y

    def compute_reward(
        self, prev_state: AgentState, action: Any, next_state: AgentState, plume_field: ConcentrationField
    ) -> float:
        """Return the goal's value or the other one."""
        here = next_state.position
        dx = here.x - self._x
        if not -self.goal_radius <= dx <= self.goal_radius:
            return self.elsewhere  # nearly always; it spares the square root
        dy = here.y - self._y
        return self.at_goal if sqrt(dx * dx + dy * dy) <= self.goal_radius else self.elsewhere


class SparseGoalReward(_GoalReward):
    """1.0 when the agent is within `goal_radius` of the source (inclusive), else 0.0."""

    type_name = "sparse_goal"
    parameters = ("goal_radius",)

    def __init__(self, source_location: Coordinates, goal_radius: float) -> None:
        super().__init__(source_location, goal_radius, at_goal=1.0, elsewhere=0.0)


class StepPenaltyReward(_GoalReward):
    """`goal_reward` at the goal, `-step_penalty` elsewhere."""

    type_name = "step_penalty"
    parameters = ("goal_radius", "goal_reward", "step_penalty")

    def __init__(
        self, source_location: Coordinates, goal_radius: float, goal_reward: float = 1.0, step_penalty: float = 0.01
    ) -> None:
        self.goal_reward = parse_number("goal_reward", goal_reward)
        self.step_penalty = parse_number("step_penalty", step_penalty)
        super().__init__(source_location, goal_radius, self.goal_reward, -self.step_penalty)


class ShapedReward(DescribedPart):
    """Another reward plus `discount * potential(next) - potential(prev)`, which leaves the optimal policy unchanged.

    The potential is `-scale * distance to the source`, and 0 in the terminal state: without that zero, ending the
    episode would itself be paid for.
    """

    type_name = "shaped"
    parameters = ("inner", "scale", "discount")

    def __init__(
        self, inner: RewardFunction, source_location: Coordinates, scale: float = 0.01, discount: float = 0.99
    ) -> None:
        self.inner = inner
        self.source_location = source_location
        self.scale = parse_number("scale", scale)
        self.discount = parse_number("discount", discount, least=0.0)

    def _potential(self, state: AgentState) -> float:
        return 0.0 if state.goal_reached else -self.scale * state.position.distance_to(self.source_location)

    def compute_reward(
        self, prev_state: AgentState, action: Any, next_state: AgentState, plume_field: ConcentrationField
    ) -> float:
        """Return the inner reward plus the change of potential."""
        reward = self.inner.compute_reward(prev_state, action, next_state, plume_field)
        return reward + (self.discount * self._potential(next_state) - self._potential(prev_state))
