"""What the parts of a batch share: how they refuse, and how they hand numbers to kernels."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proctor.errors import ComponentError


def cannot_batch(why: str, *, found: object, expected: str) -> ComponentError:
    """Return the error for a configuration that only the single environment can run."""
    return ComponentError(
        f"this configuration cannot be batched: {why}; use vectorization_mode='sync' or 'async'",
        found=found,
        expected=expected,
    )


def no_batched_form(part: object, known: Iterable[type]) -> ComponentError:
    """Return the error for a component whose exact type is not known; a subclass may behave differently."""
    return cannot_batch(
        "a part has no batched form",
        found=type(part).__name__,
        expected=f"one of {', '.join(kind.__name__ for kind in known)}",
    )


def packed(kind: np.dtype[Any], values: Mapping[str, Any]) -> NDArray[Any]:
    """Return the values as one record of this kind, as kernels read it."""
    record = np.zeros(1, kind)
    for name, value in values.items():
        record[name] = value
    return record
