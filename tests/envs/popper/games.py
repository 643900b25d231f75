"""Strategies for Column Popper: settings, boards and actions."""

from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from proctor.envs.popper.rewards import PARTS

POOLS = st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True)
WEIGHTS = st.floats(-5, 5)
TABLES = st.dictionaries(st.sampled_from(PARTS), WEIGHTS) | st.sampled_from(["contract", "pops", "dense"])


@st.composite
def curves(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Return a fall curve of one to four stretches."""
    starts = draw(st.lists(st.integers(1, 8_000), max_size=3, unique=True))
    return [(begins, draw(st.integers(1, 3_000))) for begins in sorted([0, *starts])]


@st.composite
def settings_of_a_game(draw: st.DrawFn) -> dict[str, Any]:
    """Return keywords of `ColumnPopperEnv`."""
    return {
        "height": draw(st.integers(1, 7)),
        "columns": draw(st.integers(1, 5)),
        "number_pool": draw(POOLS),
        "strict_invalid": draw(st.booleans()),
        "include_time_left_norm": draw(st.booleans()),
        "duration_ms": draw(st.integers(1, 9_000)),
        "action_ms": draw(st.integers(50, 700)),
        "fall_curve": draw(curves()),
        "manual_fall": draw(st.sampled_from(["one_row", "fast_forward"])),
        "reward_preset": draw(TABLES),
    }


@st.composite
def boards(draw: st.DrawFn, height: int = 12, columns: int = 3, pool: tuple[int, ...] = (1, 2, 3)) -> NDArray[np.int32]:
    """Return a board without holes."""
    board = np.zeros((height, columns), np.int32)
    for column in range(columns):
        blocks = draw(st.lists(st.sampled_from(pool), max_size=height))
        board[: len(blocks), column] = blocks
    return board


def actions(most: int = 3, min_size: int = 0, max_size: int = 80) -> st.SearchStrategy[list[int]]:
    """Return actions from 0 to `most`, mostly toggles."""
    return st.lists(st.integers(0, most) | st.integers(0, most - 1), min_size=min_size, max_size=max_size)
