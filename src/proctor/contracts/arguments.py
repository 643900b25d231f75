"""Numbers that a caller passes: each is returned in its plain form, or refused by name.

A bool is no number, though Python counts it among the integers.
"""

import math
from typing import Any

import numpy as np

from proctor.errors import ValidationError


def parse_count(name: str, value: Any, least: int, most: int, *, clause: str | None = None) -> int:
    """Return `value` as an int in [least, most], or raise a ValidationError."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or not least <= value <= most:
        raise ValidationError(
            f"{name} out of range", found=value, expected=f"an integer from {least} to {most}", clause=clause
        )
    return int(value)


def is_choice(value: Any, count: int) -> bool:
    """Return whether `value` is an int, a numpy integer or a 0-d integer array in [0, count); bools are not."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and 0 <= int(value) < count


def parse_number(
    name: str,
    value: Any,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    most: float = math.inf,
    clause: str | None = None,
) -> float:
    """Return `value` as a finite float that is > `above`, >= `least` and <= `most`, or raise a ValidationError."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ValidationError(f"{name} is not a number", found=value, expected="a real number", clause=clause)
    try:
        number = float(value)
    except OverflowError:  # an int beyond the floats
        number = math.inf
    if not (math.isfinite(number) and number > above and least <= number <= most):
        bounds = ((" >", above), (" >=", least), (" <=", most))
        limits = " and".join(f"{sign} {bound:g}" for sign, bound in bounds if math.isfinite(bound))
        raise ValidationError(f"{name} out of range", found=value, expected=f"a finite number{limits}", clause=clause)
    return number
