"""The reward table and its presets."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.envs.popper.rewards import LARGEST, PARTS, PRESETS, RewardTable, parse_reward_table
from proctor.errors import ValidationError

CONTRACT = RewardTable(1.0, 3.0, -0.01, -0.1, -1.0, -1.0, -0.5)


@pytest.mark.parametrize(
    ("preset", "table"),
    [
        ("contract", CONTRACT),
        ("pops", replace(CONTRACT, valid_action=0.0)),
        ("dense", replace(CONTRACT, valid_action=0.0, pair=1.0, crowding=-2.0)),
    ],
)
def test_a_preset_is_worth_what_it_says(preset: str, table: RewardTable) -> None:
    assert PRESETS[preset] == parse_reward_table(preset) == table


@given(st.dictionaries(st.sampled_from(PARTS), st.floats(-LARGEST, LARGEST) | st.integers(-5, 5)))
def test_a_table_of_ones_own_is_worth_what_it_says_and_nothing_else(weights: dict[str, float]) -> None:
    table = parse_reward_table(weights)

    assert {name: getattr(table, name) for name in PARTS} == {name: weights.get(name, 0.0) for name in PARTS}
    assert parse_reward_table(table) == table


@pytest.mark.parametrize(
    "preset",
    [
        "best",
        None,
        3,
        [],
        {"gold": 1.0},
        {"step": "1"},
        {"step": float("nan")},
        {"step": 1e10},
        {"step": True},
        {1: 1},
        RewardTable(step=inf),
    ],
)
def test_anything_else_is_refused_by_its_clause(preset: Any) -> None:
    with pytest.raises(ValidationError, match="POP-INIT-P6"):
        parse_reward_table(preset)


def test_a_table_with_a_bad_weight_is_refused_too() -> None:
    with pytest.raises(ValidationError, match="POP-INIT-P6"):
        parse_reward_table(RewardTable(step=float("inf")))
