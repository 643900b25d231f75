"""How actions move the agent, judged by arithmetic written here a second time."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import IntEnum
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.contracts.components import ActionProcessor
from proctor.contracts.spatial import AgentState, Coordinates, GridSize
from proctor.envs.plume import actions
from proctor.errors import ValidationError

FOUR = {0: (0, 1), 1: (1, 0), 2: (0, -1), 3: (-1, 0)}
EIGHT = dict(enumerate([(0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1), (0, 0)]))
COMPASS = {actions.DiscreteGridActions: FOUR, actions.EightDirectionActions: EIGHT}

DISCRETE: dict[str, Callable[[], ActionProcessor]] = {
    "discrete": actions.DiscreteGridActions,
    "discrete, two cells": lambda: actions.DiscreteGridActions(step_size=2),
    "eight": actions.EightDirectionActions,
    "oriented": actions.OrientedGridActions,
    "run and tumble": actions.RunTumbleActions,
    "run and tumble, seven headings": lambda: actions.RunTumbleActions(n_headings=7, step_size=3),
}
every_discrete_processor = pytest.mark.parametrize("make", DISCRETE.values(), ids=DISCRETE)

HERE = AgentState(Coordinates(4, 5), 90.0, 7, 2.5, True)
GRID = GridSize(10, 12)


class Compass(IntEnum):
    UP = 0


@st.composite
def places(draw: st.DrawFn, largest: int = 40) -> tuple[GridSize, AgentState]:
    """Return a grid and a state on it; one grid in a few is too large for the shared tables."""
    side = st.integers(1, largest) | st.integers(300, 320)
    grid = GridSize(draw(side), draw(side))
    cell = Coordinates(draw(st.integers(0, grid.width - 1)), draw(st.integers(0, grid.height - 1)))
    turn = st.sampled_from([0.0, 45.0, 90.0, 180.0, 270.0, 359.99999999999994]) | st.floats(0, 359.9)
    state = AgentState(cell, draw(turn), draw(st.integers(0, 999)), draw(st.floats(-9, 9)), draw(st.booleans()))
    return grid, state


def within(grid: GridSize, x: int, y: int) -> Coordinates:
    """Return the nearest cell of the grid, by sorting: the middle of (0, value, last)."""
    return Coordinates(sorted((0, x, grid.width - 1))[1], sorted((0, y, grid.height - 1))[1])


@pytest.mark.parametrize("kind", COMPASS)
@given(place=places(), step_size=st.integers(1, 4), data=st.data())
@settings(max_examples=60)
def test_a_compass_move_is_its_direction_times_the_step_clamped_to_the_grid(
    kind: type[actions.DiscreteGridActions | actions.EightDirectionActions],
    place: tuple[GridSize, AgentState],
    step_size: int,
    data: st.DataObject,
) -> None:
    grid, state = place
    processor = kind(step_size=step_size)
    action = data.draw(st.integers(0, len(COMPASS[kind]) - 1))
    dx, dy = COMPASS[kind][action]

    after = processor.process_action(action, state, grid)

    assert after.position == within(grid, state.position.x + dx * step_size, state.position.y + dy * step_size)
    assert after.orientation == state.orientation


def test_the_same_move_on_the_same_grid_gives_the_same_cell_object_whoever_makes_it() -> None:
    first = actions.DiscreteGridActions().process_action(1, AgentState(Coordinates(3, 3)), GridSize(9, 9))
    second = actions.DiscreteGridActions().process_action(1, AgentState(Coordinates(3, 3)), GridSize(9, 9))

    assert first.position is second.position


def test_a_processor_can_go_from_grid_to_grid() -> None:
    processor = actions.EightDirectionActions()
    corner = AgentState(Coordinates(1, 1))

    moved = [processor.process_action(1, corner, GridSize(side, side)).position for side in (2, 3, 400, 2)]

    assert moved == [Coordinates(1, 1), Coordinates(2, 2), Coordinates(2, 2), Coordinates(1, 1)]


@pytest.mark.parametrize(
    ("orientation", "moved"),
    [(0.0, (5, 5)), (90.0, (4, 6)), (180.0, (3, 5)), (270.0, (4, 4)), (45.0, (5, 6)), (20.0, (5, 5)), (225.0, (3, 4))],
)
def test_forward_moves_along_the_heading_with_cosine_and_sine_rounded(
    orientation: float, moved: tuple[int, int]
) -> None:
    state = AgentState(Coordinates(4, 5), orientation)

    oriented = actions.OrientedGridActions().process_action(0, state, GRID)
    tumbling = actions.RunTumbleActions().process_action(0, state, GRID)

    assert oriented.position == tumbling.position == Coordinates(*moved)
    assert oriented.orientation == orientation


@given(orientation=st.floats(0, 359.99), step_size=st.integers(1, 50))
def test_a_step_along_a_heading_is_within_half_a_cell_of_the_true_one(orientation: float, step_size: int) -> None:
    dx, dy = actions.move_along(orientation, step_size)

    assert abs(dx - step_size * math.cos(orientation / 180 * math.pi)) <= 0.5 + 1e-9
    assert abs(dy - step_size * math.sin(orientation / 180 * math.pi)) <= 0.5 + 1e-9


@given(turns=st.lists(st.sampled_from([1, 2]), max_size=20), start=st.sampled_from([0.0, 90.0, 10.0, 350.0]))
def test_turns_add_up_to_the_whole_angle(turns: list[int], start: float) -> None:
    processor = actions.OrientedGridActions()
    state = AgentState(Coordinates(0, 0), start)
    for action in turns:
        state = processor.process_action(action, state, GRID)

    assert state.orientation == (start + 90 * (turns.count(1) - turns.count(2))) % 360
    assert state.position == Coordinates(0, 0)


@pytest.mark.parametrize("n_headings", [2, 3, 7, 8, 360])
def test_a_tumble_faces_its_heading_whatever_the_one_before(n_headings: int) -> None:
    processor = actions.RunTumbleActions(n_headings=n_headings)

    faced = [processor.process_action(action, HERE, GRID).orientation for action in range(1, n_headings + 1)]

    assert faced == pytest.approx([float(Fraction(360 * k, n_headings)) for k in range(n_headings)])
    assert processor.process_action(1, HERE, GRID).position == HERE.position
    assert processor.action_space.n == n_headings + 1


@given(
    vx=st.floats(-1, 1, width=32),
    vy=st.floats(-1, 1, width=32),
    max_speed=st.sampled_from([0.5, 1.0, 2.0, 3.0, 5.0, 7.25]),
)
def test_a_velocity_moves_by_its_product_with_the_speed_rounded_half_to_even(
    vx: float, vy: float, max_speed: float
) -> None:
    processor = actions.ContinuousActions(max_speed=max_speed)
    state = AgentState(Coordinates(50, 50))
    way = [round(Fraction(v) * Fraction(max_speed)) for v in (vx, vy)]

    after = processor.process_action(np.array([vx, vy], np.float32), state, GridSize(101, 101))

    assert after.position == Coordinates(50 + way[0], 50 + way[1])


def test_half_a_cell_rounds_to_the_even_one() -> None:
    state = AgentState(Coordinates(4, 5))

    slow = actions.ContinuousActions(max_speed=1.0).process_action((0.5, -0.5), state, GRID)
    fast = actions.ContinuousActions(max_speed=3.0).process_action((0.5, -0.5), state, GRID)

    assert slow.position == Coordinates(4, 5)
    assert fast.position == Coordinates(6, 3)


@every_discrete_processor
@pytest.mark.parametrize("wrap", [int, np.int8, np.uint16, np.int64, lambda value: np.array(value, np.int32)])
def test_an_integer_of_any_kind_within_range_is_a_discrete_action(
    make: Callable[[], ActionProcessor], wrap: Callable[[int], Any]
) -> None:
    processor = make()
    action = wrap(1)

    after = processor.process_action(action, HERE, GRID)

    assert processor.validate_action(action) is True
    assert processor.action_space.contains(action)
    assert after == processor.process_action(1, HERE, GRID)
    assert type(after.position.x) is int


@pytest.mark.parametrize("action", [np.uint64(0), Compass.UP])  # the space itself is stricter
def test_an_unsigned_word_and_an_int_enum_member_are_discrete_actions(action: Any) -> None:
    processor = actions.DiscreteGridActions()

    after = processor.process_action(action, HERE, GRID)

    assert processor.validate_action(action) is True
    assert after.position == Coordinates(4, 6)


NO_DISCRETE_ACTIONS: list[Any] = [
    -1, 99, True, False, np.True_, np.array(True), 1.0, np.float32(1), np.array(1.0), "1", None, [1], (1,),
    np.array([1]), np.array([], int), np.int64(-1), 2**70, {"action": 1}, 1j, math.nan, b"1",
]  # fmt: skip


@every_discrete_processor
@pytest.mark.parametrize("action", NO_DISCRETE_ACTIONS, ids=repr)
def test_anything_else_is_no_discrete_action(make: Callable[[], ActionProcessor], action: Any) -> None:
    processor = make()

    with pytest.raises(ValidationError) as caught:
        processor.process_action(action, HERE, GRID)

    assert processor.validate_action(action) is False
    assert isinstance(caught.value, ValueError)
    assert caught.value.found is action
    assert caught.value.clause == "ACT-PROC-P1"
    assert "Discrete" in str(caught.value)


@every_discrete_processor
def test_the_first_number_beyond_the_range_is_no_action(make: Callable[[], ActionProcessor]) -> None:
    processor: Any = make()
    beyond = int(processor.action_space.n)

    with pytest.raises(ValidationError):
        processor.process_action(beyond, HERE, GRID)

    assert [processor.validate_action(action) for action in (beyond, beyond - 1)] == [False, True]


class Tensor:
    """What other libraries call an array: a float if it must be, an array if asked."""

    def __init__(self, *values: float) -> None:
        self._values = values

    def __repr__(self) -> str:
        return f"Tensor{self._values}"

    def __float__(self) -> float:
        raise TypeError("only one value can be a float")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self._values, dtype)


VELOCITIES: list[Any] = [
    np.array([0.5, -1.0], np.float32), np.array([0.5, -1.0]), np.array([0.5, -1.0], np.float16), [0.5, -1.0],
    (0.5, -1.0), (np.float32(0.5), -1), Tensor(0.5, -1.0),
]  # fmt: skip


@pytest.mark.parametrize("action", VELOCITIES, ids=repr)
def test_a_pair_of_real_numbers_within_bounds_is_a_velocity(action: Any) -> None:
    processor = actions.ContinuousActions(max_speed=2.0)

    after = processor.process_action(action, HERE, GRID)

    assert processor.validate_action(action) is True
    assert after.position == Coordinates(5, 3)


NO_VELOCITIES: list[Any] = [
    np.array([1.1, 0.0]), [0.0, -1.0000001], [math.nan, 0.0], [0.0, math.inf], [0.0], [0.0, 0.0, 0.0], np.zeros((2, 1)),
    0, 0.5, np.float32(0.5), "ab", b"ab", ["0", "0"], None, [None, 0.0], {0: 0.0, 1: 0.0}, {0.0, 1.0}, [1j, 0],
    np.array([True, False]), [[0.0], [0.0, 0.0]], np.array(["0", "0"]),
]  # fmt: skip


@pytest.mark.parametrize("action", NO_VELOCITIES, ids=repr)
def test_anything_else_is_no_velocity(action: Any) -> None:
    processor = actions.ContinuousActions()

    with pytest.raises(ValidationError) as caught:
        processor.process_action(action, HERE, GRID)

    assert processor.validate_action(action) is False
    assert caught.value.found is action
    assert caught.value.clause == "ACT-PROC-P1"


@given(vx=st.floats(), vy=st.floats())
def test_exactly_the_finite_pairs_within_bounds_are_velocities(vx: float, vy: float) -> None:
    legal = actions.ContinuousActions().validate_action([vx, vy])

    assert legal is (abs(vx) <= 1 and abs(vy) <= 1)


TURNED = {"step_size": 1, "n_actions": 7, "n_headings": 6}


@pytest.mark.parametrize(
    ("processor", "kind", "parameters", "movement"),
    [
        (actions.DiscreteGridActions(2), "discrete_grid", {"step_size": 2, "n_actions": 4}, "cardinal_directions"),
        (
            actions.EightDirectionActions(),
            "eight_direction_stay",
            {"step_size": 1, "n_actions": 9},
            "eight_directions_plus_stay",
        ),
        (
            actions.OrientedGridActions(),
            "oriented_grid",
            {"step_size": 1, "n_actions": 3},
            "forward_turn_left_turn_right",
        ),
        (actions.ContinuousActions(max_speed=3), "continuous", {"max_speed": 3.0}, "velocity_control"),
        (actions.RunTumbleActions(n_headings=6), "run_tumble", TURNED, "run_or_turn_to_heading"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_metadata_say_type_parameters_and_movement_model(
    processor: ActionProcessor, kind: str, parameters: dict[str, Any], movement: str
) -> None:
    assert processor.get_metadata() == {"type": kind, "parameters": parameters, "movement_model": movement}


BY_STEPS = (
    actions.DiscreteGridActions,
    actions.EightDirectionActions,
    actions.OrientedGridActions,
    actions.RunTumbleActions,
)
NO_SPEEDS = (0.49, 0, -2.0, math.nan, math.inf, "2", None, True, 1j, np.complex128(2), 10**400)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        *((kind, "step_size", size) for kind in BY_STEPS for size in (0, -1, True, 1.0, "1", None)),
        *((actions.RunTumbleActions, "n_headings", count) for count in (1, 0, -3, True, 4.0, None)),
        *((actions.ContinuousActions, "max_speed", speed) for speed in NO_SPEEDS),
    ],
    ids=lambda value: getattr(value, "__name__", repr(value)[:20]),
)
def test_an_option_out_of_range_is_refused_by_name(kind: Any, name: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=name):
        kind(**{name: value})
