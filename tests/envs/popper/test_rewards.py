"""The reward table and its presets."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.envs.popper.rewards import LARGEST, PARTS, PRESETS, RewardTable, parse_reward_table
from proctor.errors import ValidationError


def test_the_contract_is_told_by_its_preset() -> None:
    assert PRESETS["contract"] == RewardTable(
        valid_action=1.0,
        popped_cell=3.0,
        step=-0.01,
        invalid_action=-0.1,
        full_drop=-1.0,
        overflow=-1.0,
        time_up=-0.5,
    )


def test_pops_is_the_contract_without_pay_for_moving() -> None:
    differences = [name for name in PARTS if getattr(PRESETS["pops"], name) != getattr(PRESETS["contract"], name)]

    assert differences == ["valid_action"]
    assert PRESETS["pops"].valid_action == 0.0


def test_dense_adds_only_what_changes_are_worth() -> None:
    differences = [name for name in PARTS if getattr(PRESETS["dense"], name) != getattr(PRESETS["pops"], name)]

    assert differences == ["pair", "crowding"]


@given(st.dictionaries(st.sampled_from(PARTS), st.floats(-LARGEST, LARGEST) | st.integers(-5, 5)))
def test_a_table_of_ones_own_is_worth_what_it_says_and_nothing_else(weights: dict[str, float]) -> None:
    table = parse_reward_table(weights)

    assert {name: getattr(table, name) for name in PARTS} == {name: weights.get(name, 0.0) for name in PARTS}
    assert parse_reward_table(table) == table


@pytest.mark.parametrize(
    "preset",
    ["best", None, 3, [], {"gold": 1.0}, {"step": "1"}, {"step": float("nan")}, {"step": 1e10}, {"step": True}, {1: 1}],
)
def test_anything_else_is_refused_by_its_clause(preset: Any) -> None:
    with pytest.raises(ValidationError, match="POP-INIT-P6"):
        parse_reward_table(preset)


def test_a_table_with_a_bad_weight_is_refused_too() -> None:
    with pytest.raises(ValidationError, match="POP-INIT-P6"):
        parse_reward_table(RewardTable(step=float("inf")))
