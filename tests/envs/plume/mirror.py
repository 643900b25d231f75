"""Settings for both the batch and the single plume search, and the mirror that compares the two."""

from collections.abc import Mapping
from typing import Any

from gymnasium.vector import AutoresetMode
from hypothesis import strategies as st

from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.plume.vector.batched_env import BatchedPlumeSearch
from tests.envs import mirror

WINDS = st.tuples(st.floats(-2, 2), st.floats(-2, 2)).filter(lambda wind: wind != (0.0, 0.0))
PLUMES = st.one_of(
    st.fixed_dictionaries({"type": st.just("gaussian"), "sigma": st.floats(0.3, 30)}),
    st.fixed_dictionaries(
        {"type": st.just("advected"), "wind": WINDS, "spread": st.floats(0.3, 5), "growth": st.floats(0, 1)}
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("puffs"),
            "wind": WINDS,
            "noise": st.floats(0, 1),
            "memory": st.floats(0, 0.99),
            "drift": st.floats(0, 0.5),
            "spread": st.floats(0.3, 4),
            "growth": st.floats(0, 1),
            "release_every": st.integers(1, 5),
            "lifetime": st.integers(1, 20),
            "warm_up": st.integers(0, 20),
        }
    ),
)
ACTIONS = st.fixed_dictionaries(
    {"type": st.sampled_from(["discrete_grid", "oriented_grid", "eight_direction"]), "step_size": st.integers(1, 3)}
)
STILL_AIR = st.one_of(
    st.just({"type": "concentration"}),
    st.fixed_dictionaries({"type": st.just("binary_hit"), "threshold": st.floats(0, 1)}),
    st.fixed_dictionaries(
        {
            "type": st.just("poisson_hits"),
            "rate": st.floats(0.1, 50),
            "most": st.integers(1, 30),
            "channel": st.integers(0, 3),
        }
    ),
    st.fixed_dictionaries({"type": st.just("antennae"), "reach": st.floats(0.5, 5), "angle": st.floats(-180, 180)}),
)
WINDY = st.one_of(STILL_AIR, st.fixed_dictionaries({"type": st.just("wind"), "limit": st.floats(0.1, 3)}))
GOALS = st.one_of(
    st.just({"type": "sparse_goal"}),
    st.fixed_dictionaries({"type": st.just("sparse_goal"), "goal_radius": st.floats(0, 4)}),
    st.fixed_dictionaries(
        {"type": st.just("step_penalty"), "goal_reward": st.floats(-5, 5), "step_penalty": st.floats(-1, 1)}
    ),
)
REWARDS = st.one_of(
    GOALS,
    st.fixed_dictionaries(
        {"type": st.just("shaped"), "inner": GOALS, "scale": st.floats(-1, 1), "discount": st.floats(0, 1)}
    ),
)


@st.composite
def settings_of_a_batch(draw: st.DrawFn) -> dict[str, Any]:
    """Return keywords with which both the batch and the single environment can be built."""
    width, height = draw(st.integers(1, 24)), draw(st.integers(1, 24))
    plume = draw(PLUMES)
    sensors = STILL_AIR if plume["type"] == "gaussian" else WINDY
    several = st.fixed_dictionaries(
        {"type": st.just("dict"), "sensors": st.dictionaries(st.sampled_from("abc"), sensors, min_size=1)}
    )
    return {
        "grid_size": (width, height),
        "source_location": (draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))),
        "goal_radius": draw(st.floats(0.1, 6)),
        "max_steps": draw(st.integers(1, 25)),
        "config": {
            "plume": plume,
            "action": draw(ACTIONS),
            "observation": draw(st.one_of(sensors, several)),
            "reward": draw(REWARDS),
            "info_level": draw(st.sampled_from(["full", "minimal"])),
        },
    }


class Mirror(mirror.Mirror):
    """A batch of plume searches and its single twins."""

    def __init__(self, settings: Mapping[str, Any], num_envs: int, mode: AutoresetMode) -> None:
        super().__init__(BatchedPlumeSearch, PlumeSearchEnv, settings, num_envs, mode)
