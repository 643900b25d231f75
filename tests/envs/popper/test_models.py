"""Column Popper's wire types, as a typed client uses them."""

from typing import Any

import numpy as np
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.contracts.lifecycle import EnvironmentState
from proctor.envs.popper.models import PopperAction, PopperObservation, PopperState, PopperView, TimedPopperView
from proctor.models.arrays import pack_array

cells = st.integers(0, 9)
boards = st.lists(st.tuples(cells, cells, cells), min_size=1, max_size=4).map(tuple)


@given(board=boards, selection=st.tuples(cells, cells), left=st.none() | st.floats(0, 1))
def test_a_view_is_the_same_after_a_journey_and_tells_time_only_if_it_did(
    board: Any, selection: tuple[int, int], left: float | None
) -> None:
    plain = PopperView(board=board, selection=selection)
    view = plain if left is None else TimedPopperView(board=board, selection=selection, time_left_norm=(left,))
    sent = PopperObservation(observation=view)

    back = PopperObservation.model_validate_json(sent.inside())

    assert back == sent
    assert type(back.observation) is type(view)


def test_a_view_may_come_packed() -> None:
    parts = {"board": np.array([[1, 2], [0, 3]], np.int32), "selection": np.array([0, 0], np.int32)}

    view = PopperView.model_validate({name: pack_array(part) for name, part in parts.items()})

    assert view == PopperView(board=((1, 2), (0, 3)), selection=(0, 0))


@pytest.mark.parametrize("text", ['{"action": true}', '{"action": 1.0}', '{"action": "1"}', '{"action": null}', "{}"])
def test_an_action_is_an_integer(text: str) -> None:
    with pytest.raises(pydantic.ValidationError):
        PopperAction.model_validate_json(text)


def test_what_an_observation_tells_is_read_by_name() -> None:
    seen = PopperObservation(
        observation=PopperView(board=((0,),), selection=(0, 0)),
        metadata={
            "score": 9,
            "time_left": 12,
            "pops_this_step": 3,
            "action_mask": [1, 0, 1],
            "reward_parts": {"pop": 3.0, "odd": None},
            "fault": "overflow",
        },
    )

    assert (seen.score, seen.time_left, seen.pops_this_step) == (9, 12.0, 3)
    assert (seen.action_mask, seen.reward_parts, seen.fault) == ((True, False, True), {"pop": 3.0}, "overflow")


@pytest.mark.parametrize(
    "metadata", [{}, {"score": "x", "time_left": "x", "action_mask": 1, "reward_parts": 1, "fault": 1}]
)
def test_what_is_not_told_is_nothing(metadata: Any) -> None:
    seen = PopperObservation(observation=PopperView(board=((0,),), selection=(0, 0)), metadata=metadata)

    assert (seen.score, seen.time_left, seen.pops_this_step) == (0, 0.0, 0)
    assert (seen.action_mask, seen.reward_parts, seen.fault) == ((), {}, None)


def test_a_state_is_the_same_after_a_journey() -> None:
    state = PopperState(lifecycle=EnvironmentState.READY, seed=3, score=9, clock_ms=100, held=2, next_fall_ms=2900)

    assert PopperState.model_validate_json(state.model_dump_json()) == state
