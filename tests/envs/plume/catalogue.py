"""One configuration of every action model and of every sensor, for tests that try them all; and a sensor of a user's own."""

from typing import Any

from gymnasium import spaces

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


class OwnSensor:
    """A user's own sensor, which always sees the same."""

    def __init__(self, space: spaces.Space[Any], seen: Any = None) -> None:
        self.observation_space = space
        self.seen = seen

    def get_observation(self, env_state: Any) -> Any:
        return self.seen

    def get_metadata(self) -> dict[str, Any]:
        return {"type": "own", "parameters": {}}
