"""Kernels of every batch: illegal actions are found, and the seeds of later episodes follow from their roots."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.contracts import chance
from proctor.envs.vector.compiled_episodes import first_illegal, next_episode

FORMS = [pytest.param(lambda kernel: kernel, id="compiled"), pytest.param(lambda kernel: kernel.py_func, id="plain")]


@pytest.mark.parametrize("form", FORMS)
@given(actions=st.lists(st.integers(-2, 5) | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=9))
def test_the_first_action_out_of_range_is_found(form: Any, actions: list[int]) -> None:
    expected = next((i for i, action in enumerate(actions) if not 0 <= action < 4), -1)

    assert form(first_illegal)(np.array(actions, np.int64), np.int32(4)) == expected


@pytest.mark.parametrize("form", FORMS)
@given(root=st.integers(0, chance.SEED_LIMIT - 1), since=st.integers(0, 2**31), count=st.integers(1, 2**31))
def test_a_next_episode_is_counted_and_has_the_seed_that_its_root_predicts(
    form: Any, root: int, since: int, count: int
) -> None:
    seeds = np.array([[7, root], [7, since], [7, 7], [7, count]], np.int64)

    form(next_episode)(seeds, 1)

    assert seeds[:, 1].tolist() == [root, since + 1, chance.next_seed(root, since + 1), count + 1]
    assert seeds[:, 0].tolist() == [7, 7, 7, 7]
