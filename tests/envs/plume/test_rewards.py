"""What a step is worth; and that shaping leaves the optimal policy as it is."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.contracts.components import RewardFunction
from proctor.contracts.spatial import AgentState, Coordinates, GridSize
from proctor.envs.plume.actions import DiscreteGridActions
from proctor.envs.plume.fields import GaussianPlume
from proctor.envs.plume.rewards import ShapedReward, SparseGoalReward, StepPenaltyReward
from proctor.errors import ValidationError

GRID = GridSize(30, 30)
SOURCE = Coordinates(9, 11)
FIELD = GaussianPlume(GRID, SOURCE)

cells = st.builds(Coordinates, st.integers(0, 29), st.integers(0, 29))
radii = st.floats(0, 45) | st.sampled_from([0.0, 1.0, math.sqrt(2), math.sqrt(5), 5.0])


def reach(cell: Coordinates) -> float:
    return math.sqrt((cell.x - SOURCE.x) ** 2 + (cell.y - SOURCE.y) ** 2)


@given(before=cells, after=cells, radius=radii, action=st.integers(0, 3))
def test_the_sparse_reward_is_one_within_the_radius_inclusive_and_nothing_elsewhere(
    before: Coordinates, after: Coordinates, radius: float, action: int
) -> None:
    reward = SparseGoalReward(SOURCE, radius).compute_reward(AgentState(before), action, AgentState(after), FIELD)

    assert reward == (1.0 if reach(after) <= radius else 0.0)
    assert type(reward) is float


@given(before=cells, after=cells, radius=radii, goal=st.floats(-5, 5), penalty=st.floats(-5, 5))
def test_the_penalty_is_paid_everywhere_but_at_the_goal(
    before: Coordinates, after: Coordinates, radius: float, goal: float, penalty: float
) -> None:
    reward_fn = StepPenaltyReward(SOURCE, radius, goal, penalty)

    reward = reward_fn.compute_reward(AgentState(before), 0, AgentState(after), FIELD)

    assert reward == (goal if reach(after) <= radius else -penalty)


def test_the_defaults_of_the_penalty_are_the_contract_s() -> None:
    reward_fn = StepPenaltyReward(SOURCE, 1.0)
    away, there = AgentState(Coordinates(0, 0)), AgentState(SOURCE)

    assert reward_fn.compute_reward(away, 0, there, FIELD) == 1.0
    assert reward_fn.compute_reward(there, 0, away, FIELD) == -0.01


def test_the_edge_of_the_goal_disc_belongs_to_it() -> None:
    edge = AgentState(Coordinates(SOURCE.x + 3, SOURCE.y + 4))
    just_short = math.nextafter(5.0, 0.0)

    rewards = [SparseGoalReward(SOURCE, radius).compute_reward(edge, 0, edge, FIELD) for radius in (5.0, just_short)]

    assert rewards == [1.0, 0.0]


@given(path=st.lists(cells, min_size=2, max_size=15), scale=st.floats(-2, 2), discount=st.floats(0.1, 1))
def test_the_discounted_shaping_of_a_path_is_what_lies_between_its_ends(
    path: list[Coordinates], scale: float, discount: float
) -> None:
    nothing = SparseGoalReward(Coordinates(-99, -99), 0.0)
    shaped = ShapedReward(nothing, SOURCE, scale, discount)
    states = [AgentState(cell) for cell in path]

    total = sum(
        discount**step * shaped.compute_reward(before, 0, after, FIELD)
        for step, (before, after) in enumerate(pairwise(states))
    )

    ends = discount ** (len(path) - 1) * -scale * reach(path[-1]) + scale * reach(path[0])
    assert total == pytest.approx(ends, abs=1e-9)


def test_the_potential_of_the_terminal_state_is_zero_wherever_it_is() -> None:
    shaped = ShapedReward(SparseGoalReward(SOURCE, 2.0), SOURCE, scale=0.5, discount=0.9)
    before = AgentState(Coordinates(SOURCE.x + 3, SOURCE.y))
    goal = AgentState(Coordinates(SOURCE.x + 2, SOURCE.y), goal_reached=True)

    reward = shaped.compute_reward(before, 3, goal, FIELD)

    assert reward == 1.0 + 0.5 * 3


Policy = dict[Coordinates, frozenset[int]]


def optimal_actions(
    reward_fn: RewardFunction, grid: GridSize, source: Coordinates, radius: float, discount: float
) -> Policy:
    """Return the best actions in every cell outside the goal, by value iteration."""
    processor = DiscreteGridActions()
    cells = [Coordinates(x, y) for x in range(grid.width) for y in range(grid.height)]
    goal = {cell for cell in cells if cell.distance_to(source) <= radius}
    outcomes: dict[Coordinates, list[tuple[float, Coordinates]]] = {}
    for cell in (cell for cell in cells if cell not in goal):
        before = AgentState(cell)
        outcomes[cell] = []
        for action in range(4):
            there = processor.process_action(action, before, grid).position
            after = AgentState(there, step_count=1, goal_reached=there in goal)
            outcomes[cell].append((reward_fn.compute_reward(before, action, after, FIELD), there))
    value = dict.fromkeys(cells, 0.0)
    worth: dict[Coordinates, list[float]] = {}
    for _ in range(400):
        worth = {cell: [reward + discount * value[there] for reward, there in row] for cell, row in outcomes.items()}
        value.update({cell: max(row) for cell, row in worth.items()})
    return {
        cell: frozenset(action for action in range(4) if row[action] >= max(row) - 1e-9) for cell, row in worth.items()
    }


@given(
    width=st.integers(2, 6),
    height=st.integers(2, 5),
    radius=st.sampled_from([0.0, 1.0, 1.5]),
    discount=st.sampled_from([0.8, 0.9, 0.95]),
    scale=st.sampled_from([0.01, 0.3, 5.0, -1.0]),
    penalised=st.booleans(),
    data=st.data(),
)
@settings(max_examples=12)
def test_shaping_leaves_every_optimal_action_optimal_and_no_other(
    width: int, height: int, radius: float, discount: float, scale: float, penalised: bool, data: st.DataObject
) -> None:
    grid = GridSize(width, height)
    source = Coordinates(data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1)))
    plain = StepPenaltyReward(source, radius) if penalised else SparseGoalReward(source, radius)
    shaped = ShapedReward(plain, source, scale, discount)

    with_shaping = optimal_actions(shaped, grid, source, radius, discount)

    assert with_shaping == optimal_actions(plain, grid, source, radius, discount)


def test_shaping_for_another_discount_would_change_the_policy() -> None:
    grid, source = GridSize(5, 4), Coordinates(0, 0)
    plain = SparseGoalReward(source, 0.0)
    wrong = ShapedReward(plain, source, scale=-5.0, discount=0.5)

    policy = optimal_actions(wrong, grid, source, 0.0, 0.95)

    assert policy != optimal_actions(plain, grid, source, 0.0, 0.95)


def test_a_nested_shaping_adds_both() -> None:
    away, nearer = AgentState(Coordinates(12, 11)), AgentState(Coordinates(11, 11))
    inner = ShapedReward(SparseGoalReward(SOURCE, 1.0), SOURCE, 1.0, 1.0)

    reward = ShapedReward(inner, SOURCE, 2.0, 1.0).compute_reward(away, 3, nearer, FIELD)

    assert reward == pytest.approx(1.0 + 2.0)


PAYING = partial(StepPenaltyReward, SOURCE, 1.0)
SHAPING = partial(ShapedReward, SparseGoalReward(SOURCE, 1.0), SOURCE)
NO_RADII = (-0.1, math.nan, math.inf, True, "1", None)


@pytest.mark.parametrize(
    ("make", "name", "value"),
    [
        *((partial(SparseGoalReward, SOURCE), "goal_radius", radius) for radius in NO_RADII),
        *((partial(StepPenaltyReward, SOURCE), "goal_radius", radius) for radius in NO_RADII),
        (PAYING, "goal_reward", math.nan),
        (PAYING, "goal_reward", True),
        (PAYING, "step_penalty", math.inf),
        (SHAPING, "scale", math.nan),
        (SHAPING, "discount", -0.1),
        (SHAPING, "discount", math.inf),
    ],
)
def test_an_option_out_of_range_is_refused_by_name(make: Any, name: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=name):
        make(**{name: value})


def test_the_rewards_say_what_they_are() -> None:
    sparse, penalty = SparseGoalReward(SOURCE, 1), StepPenaltyReward(SOURCE, 2, 3, 0.5)

    metadata = ShapedReward(penalty, SOURCE, 0.1, 0.9).get_metadata()

    inner = {"type": "step_penalty", "parameters": {"goal_radius": 2.0, "goal_reward": 3.0, "step_penalty": 0.5}}
    assert metadata == {"type": "shaped", "parameters": {"inner": inner, "scale": 0.1, "discount": 0.9}}
    by_default = ShapedReward(penalty, SOURCE).get_metadata()["parameters"]
    assert by_default == {"inner": inner, "scale": 0.01, "discount": 0.99}
    assert sparse.get_metadata() == {"type": "sparse_goal", "parameters": {"goal_radius": 1.0}}
    assert isinstance(sparse, RewardFunction)
