"""Any field of a scene as numbers at any resolution: one row per kind of field."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from proctor.envs.plume.fields import Array, Point, advected_values, gaussian_values
from proctor.envs.plume.puffs import puff_values
from proctor.envs.plume.thumbnail import paint_thumbnail
from proctor.errors import RenderingError

_PAINTERS = {
    "gaussian": lambda static, frame, source, xs, ys: gaussian_values(static, source, xs, ys),
    "advected": lambda static, frame, source, xs, ys: advected_values(static, source, xs, ys),
    "puffs": lambda static, frame, source, xs, ys: puff_values(frame, xs, ys),
    "image": lambda static, frame, source, xs, ys: paint_thumbnail(frame or static, xs, ys),
}


def paint(static: Mapping[str, Any], frame: Mapping[str, Any] | None, source: Point, xs: Array, ys: Array) -> Array:
    """Return the field's values, shape (len(ys), len(xs)), at continuous cell coordinates (cell centres are whole)."""
    painter = _PAINTERS.get(str(static.get("kind")))
    if painter is None:
        raise RenderingError(
            "unknown kind of field", found=static.get("kind"), expected=f"one of {', '.join(_PAINTERS)}"
        )
    values: Array = painter(static, frame, source, xs, ys)
    return np.clip(values, 0.0, 1.0)
