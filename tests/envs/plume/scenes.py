"""Scenes to draw, without an environment."""

from typing import Any


def scene(grid: tuple[int, int] = (64, 64), **frame: Any) -> dict[str, Any]:
    """Return a scene as an environment would describe it, with parts of it replaced."""
    at = frame.pop("at", [0, 0])
    return {
        "environment": "plume",
        "static": {
            "grid": list(grid),
            "source": frame.pop("source", [grid[0] // 2, grid[1] // 2]),
            "goal_radius": frame.pop("goal_radius", 1.0),
            "max_steps": 1000,
            "field": frame.pop("kind", {"kind": "gaussian", "sigma": 6.0}),
        },
        "frame": {
            "step": 0,
            "total_reward": 0.0,
            "state": "ready",
            "agent": {"at": at, "heading": frame.pop("heading", 0.0)},
            "trail": [at],
            "field": None,
            "wind": None,
            **frame,
        },
    }
