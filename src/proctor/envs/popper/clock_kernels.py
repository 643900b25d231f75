"""The clocks of a batch of Column Popper as loops over arrays. Names as in `kernels`."""

from typing import Any

import numpy as np

from proctor.envs.compiler import compiled
from proctor.envs.popper.board_kernels import places_of


@compiled
def next_fall(curve: Any, action_ms: Any, last_fall: Any) -> Any:
    """Return the tick of the next scheduled fall, given the tick of the last one."""
    due = np.int64(0)
    for stretch in range(curve.shape[0]):
        wait = max(np.int64(curve[stretch, 1]), np.int64(curve[stretch, 0]) - last_fall)
        due = last_fall + (wait + action_ms - 1) // action_ms * action_ms
        if stretch + 1 == curve.shape[0] or due < curve[stretch + 1, 0]:
            break
    return due


@compiled
def _forward(manual: Any, elapsed: Any, last_fall: Any, rules: Any, curve: Any) -> None:
    """Take the clocks to the next scheduled fall where a fall is asked for."""
    for i in places_of(manual):
        due = next_fall(curve, np.int64(rules.action_ms), np.int64(last_fall[i]))
        elapsed[i] = min(due, np.int64(rules.last_tick))


@compiled
def tick(manual: Any, clock: Any, rules: Any, curve: Any, due: Any) -> None:
    """Move the clocks, read the intervals, and mark the boards where a row is due."""
    elapsed, last_fall, interval = clock[0], clock[1], clock[4]
    action_ms = rules.action_ms
    for i in range(elapsed.size):
        elapsed[i] += action_ms
    if rules.fast_forward:
        _forward(manual, elapsed, last_fall, rules, curve)
    for stretch in range(curve.shape[0]):
        begins, length = curve[stretch, 0], curve[stretch, 1]
        for i in range(elapsed.size):
            now, before = elapsed[i], interval[i]
            interval[i] = length if now >= begins else before
    at_once = rules.fast_forward == 0
    for i in range(elapsed.size):
        due[i] = (np.int32(elapsed[i] - last_fall[i]) >= interval[i]) | (at_once & manual[i])
