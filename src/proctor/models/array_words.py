"""What a Gymnasium environment observes, as short text that a language model reads well.

Rule 1: short arrays are told in full, with dtype and shape; long ones by shape, least, most, mean and first values. The exact
    values travel beside the text.
Rule 2: parts are told one to a line, each under the names that lead to it.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from gymnasium.spaces import GraphInstance

from proctor.models.arrays import Array
from proctor.models.value_words import FIRST, MOST_VALUES, summary, told_value

DTYPES: Final = {dtype.char: dtype.name for dtype in map(np.dtype, "?bBhHiIlLqQefdg")}
"""The names of dtypes: numpy makes each one anew, which takes longer than to tell a short array."""


def told_parts(name: str, value: Any) -> str:
    """Return one line for each part of what was observed: `name`, or the names of the parts."""
    return "\n".join(f"{path}: {told_leaf(leaf)}" for path, leaf in _leaves(name, value))


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield every leaf with the names that lead to it."""
    if isinstance(value, GraphInstance):
        value = value._asdict()
    if isinstance(value, tuple):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        yield path, value
        return
    for key, part in value.items():
        yield from _leaves(f"{path}.{key}", part)


def told_leaf(value: Any) -> str:
    """Return a number, a text or an array as text."""
    if isinstance(value, np.ndarray):
        return _array(value)
    return told_value(value.item() if isinstance(value, np.generic) else value)


def _array(array: Array) -> str:
    form = f"({DTYPES.get(array.dtype.char, 'values')}, shape {_shape(array.shape)})" if array.ndim else ""
    if array.size <= MOST_VALUES:
        return f"{told_value(array.tolist())} {form}".rstrip()
    first = ", ".join([told_value(each) for each in array.reshape(-1)[:FIRST].tolist()])
    numbers = summary(array.size, array.min().item(), array.max().item(), _mean(array))
    return f"[{first}, ...] {form}: {numbers}"


def _mean(array: Array) -> float:
    """Return the mean, which lies between the least and the most even where a sum would be beyond all numbers."""
    with np.errstate(over="ignore", invalid="ignore"):
        mean = float(array.mean(dtype=np.float64))
        if np.isinf(mean) and np.isfinite(array).all():
            mean = float((array / array.size).sum(dtype=np.float64))
        return mean


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
