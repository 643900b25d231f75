"""Scenes of Column Popper to draw, without an environment."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

ENDS = (("ready", None), ("terminated", "overflow"), ("terminated", "invalid_full_drop"), ("truncated", None))


def hanging(stacks: Sequence[Sequence[int]], height: int) -> list[list[int]]:
    """Return the board whose columns hold `stacks`, each from the top downwards."""
    return [[stack[row] if row < len(stack) else 0 for stack in stacks] for row in range(height)]


def scene(stacks: Sequence[Sequence[int]] = ((1, 2), (3,), ()), height: int = 12, **changes: Any) -> dict[str, Any]:
    """Return a scene as the environment would describe it, with parts of its frame replaced."""
    return {
        "environment": "popper",
        "static": {"height": height, "columns": len(stacks), "pool": [1, 2, 3], "duration_ms": 60_000},
        "frame": {
            "step": 17,
            "total_reward": 3.2,
            "state": "ready",
            "board": hanging(stacks, height),
            "held": None,
            "score": 27,
            "time_left_ms": 58_300,
            "fall_interval_ms": 3_000,
            "next_fall_ms": 1_300,
            "popped": None,
            "fault": None,
            **changes,
        },
    }


def emptied(stacks: Sequence[Sequence[int]], height: int, count: int, value: int) -> dict[str, int] | None:
    """Return what a pop under the shortest stack says, or None where there is no room for one."""
    column = min(range(len(stacks)), key=lambda at: len(stacks[at]))
    row = len(stacks[column])
    return {"column": column, "row": row, "count": count, "value": value} if row + count <= height else None


@st.composite
def scenes(draw: st.DrawFn, heights: tuple[int, int] = (1, 64), columns: tuple[int, int] = (1, 16)) -> dict[str, Any]:
    """Return any legal scene: any board, held or not, popped or not, running or ended."""
    height, across = draw(st.integers(*heights)), draw(st.integers(*columns))
    depths = draw(st.lists(st.integers(0, height), min_size=across, max_size=across))
    seed = draw(st.integers(1, 1_000))
    stacks = [[1 + (seed * (row + 2) + 7 * column) % 9 for row in range(depth)] for column, depth in enumerate(depths)]
    filled = [column for column in range(across) if stacks[column]]
    state, fault = draw(st.sampled_from(ENDS))
    return scene(
        stacks,
        height,
        state=state,
        fault=fault,
        held=draw(st.sampled_from([None, *filled])),
        popped=draw(st.sampled_from([None, emptied(stacks, height, 3, 4)])),
        score=draw(st.integers(0, 10**12)),
        step=draw(st.integers(0, 10**9)),
        total_reward=draw(st.floats(-1e12, 1e12)),
        time_left_ms=draw(st.integers(0, 10**7)),
        next_fall_ms=draw(st.integers(0, 10_000)),
    )
