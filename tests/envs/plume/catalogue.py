"""One configuration of every action model and of every sensor, for tests that try them all."""

from typing import Any

ACTIONS = ["discrete_grid", "oriented_grid", "eight_direction", "continuous", "run_tumble"]
SENSORS: dict[str, Any] = {
    "concentration": "concentration",
    "binary hit": "binary_hit",
    "poisson hits": "poisson_hits",
    "antennae": "antennae",
    "wind": "wind",
    "history": {"type": "history", "sensor": "poisson_hits", "length": 3},
    "dict": {"type": "dict", "sensors": {"odor": "antennae", "past": {"type": "history", "length": 5}}},
}
