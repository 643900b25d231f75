"""The universal tests that the contract of the action processor lists by name, for every processor of ours."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

from proctor.contracts.components import ActionProcessor
from proctor.contracts.conformance.samples import members
from proctor.contracts.spatial import AgentState, Coordinates, GridSize
from proctor.envs.plume import actions

PROCESSORS: dict[str, Callable[[], ActionProcessor]] = {
    "discrete": actions.DiscreteGridActions,
    "discrete, long steps": lambda: actions.DiscreteGridActions(step_size=3),
    "oriented": actions.OrientedGridActions,
    "eight directions": actions.EightDirectionActions,
    "continuous": actions.ContinuousActions,
    "run and tumble": lambda: actions.RunTumbleActions(n_headings=5, step_size=2),
}
TEN = GridSize(10, 10)


@pytest.fixture(params=PROCESSORS, scope="module")
def action_processor(request: pytest.FixtureRequest) -> ActionProcessor:
    return PROCESSORS[request.param]()


@pytest.fixture
def action_proc(action_processor: ActionProcessor) -> ActionProcessor:
    """The same under the name that the contract's edge tests use."""
    return action_processor


def action_strategy(processor: ActionProcessor) -> st.SearchStrategy[Any]:
    space = processor.action_space
    if isinstance(space, spaces.Discrete):
        return st.integers(0, int(space.n) - 1)
    speed = st.floats(-1.0, 1.0, width=32)
    return st.tuples(speed, speed).map(lambda pair: np.array(pair, np.float32))


def grid_size_strategy() -> st.SearchStrategy[GridSize]:
    """Small grids, and one of more cells than are interned."""
    side = st.integers(1, 40)
    return st.one_of(st.builds(GridSize, side, side), st.just(GridSize(300, 290)))


def agent_state_strategy(grid: GridSize) -> st.SearchStrategy[AgentState]:
    cell = st.builds(Coordinates, st.integers(0, grid.width - 1), st.integers(0, grid.height - 1))
    return st.builds(AgentState, cell, st.floats(0.0, 360.0, exclude_max=True), st.integers(0, 99), st.floats(-9, 9))


def questions(processor: ActionProcessor) -> st.SearchStrategy[tuple[Any, AgentState, GridSize]]:
    """Draw an action, a state on a grid, and the grid."""
    return grid_size_strategy().flatmap(
        lambda grid: st.tuples(action_strategy(processor), agent_state_strategy(grid), st.just(grid))
    )


class TestActionProcessorInterface:
    """Universal: holds for every action processor."""

    @given(data=st.data())
    def test_boundary_safety(self, action_processor: ActionProcessor, data: st.DataObject) -> None:
        action, state, grid = data.draw(questions(action_processor))
        after = action_processor.process_action(action, state, grid)

        assert grid.contains(after.position), f"{after.position} is outside {grid}"

    @given(data=st.data())
    def test_determinism(self, action_processor: ActionProcessor, data: st.DataObject) -> None:
        action, state, grid = data.draw(questions(action_processor))
        once = action_processor.process_action(action, state, grid)
        again = action_processor.process_action(action, state, grid)

        assert once == again

    def test_purity(self, action_processor: ActionProcessor) -> None:
        grid = GridSize(128, 128)
        state = AgentState(position=Coordinates(10, 10), orientation=0.0)
        before = copy.copy(state)
        for action in members(action_processor.action_space):
            after = action_processor.process_action(action, state, grid)

            assert state == before
            assert after is not state

    def test_space_immutability(self, action_processor: ActionProcessor) -> None:
        space1 = action_processor.action_space
        space2 = action_processor.action_space

        assert space1 is space2

    @given(data=st.data())
    def test_validate_action_consistency(self, action_processor: ActionProcessor, data: st.DataObject) -> None:
        action = data.draw(action_strategy(action_processor))
        answer = action_processor.validate_action(action)

        assert answer is True
        assert action_processor.action_space.contains(action)


def positions_after(processor: ActionProcessor, *starts: tuple[int, int]) -> list[Coordinates]:
    """Return where every action leads from these cells of a grid of 10 x 10."""
    states = [AgentState(position=Coordinates(*cell), orientation=0.0) for cell in starts]
    choices = list(members(processor.action_space))
    return [processor.process_action(action, state, TEN).position for state in states for action in choices]


def test_corner_actions(action_proc: ActionProcessor) -> None:
    assert all(map(TEN.contains, positions_after(action_proc, (0, 0), (9, 0), (0, 9), (9, 9))))


def test_edge_actions(action_proc: ActionProcessor) -> None:
    assert all(map(TEN.contains, positions_after(action_proc, (5, 0), (9, 5), (5, 9), (0, 5))))
