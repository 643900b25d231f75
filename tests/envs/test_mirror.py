"""The mirror of batches sees what an info says of one sub-environment, and notices a difference."""

from typing import Any

import numpy as np

from tests.envs.mirror import agree, same, told

EVERYONE, SECOND = np.ones(2, np.bool_), np.array([False, True])
INFO: dict[str, Any] = {
    "score": np.array([3, 6]),
    "_score": EVERYONE,
    "fault": np.array([None, "overflow"], object),
    "_fault": EVERYONE,
    "seed": np.array([1, 2]),
    "_seed": SECOND,
    "reward_parts": {"pops": np.array([0.0, 9.0]), "end": np.array([0.0, -1.0]), "_end": SECOND},
    "_reward_parts": EVERYONE,
    "final_obs": np.array([None, None], object),
    "_final_obs": SECOND,
}


def test_an_info_is_told_as_the_single_environment_would() -> None:
    assert told(INFO, 0) == {"score": 3, "fault": None, "reward_parts": {"pops": 0.0}}
    assert agree(told(INFO, 0), {"score": 3, "fault": None, "reward_parts": {"pops": np.float64(0)}})
    assert not agree(told(INFO, 0), told(INFO, 1))
    assert told(INFO, 1) == {"score": 6, "fault": "overflow", "seed": 2, "reward_parts": {"pops": 9.0, "end": -1.0}}


def test_the_same_is_the_same_in_every_bit() -> None:
    assert same({"a": (np.zeros(2), "x")}, {"a": (np.zeros(2), "x")})
    assert not same(np.zeros(2), -np.zeros(2))
    assert not same(np.zeros(2), np.zeros(2, np.float32))
