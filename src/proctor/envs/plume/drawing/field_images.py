"""Fields of a scene: described in their own words or as a coarse picture, and painted as numbers at any resolution."""

import base64
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from proctor.envs.plume.fields import Array, Point, compute_advected_values, compute_gaussian_values
from proctor.envs.plume.puffs import compute_puff_values
from proctor.errors import RenderingError

Values = NDArray[np.float64]

SIDE: Final = 48
"""The most cells that a thumbnail has along an axis."""


def make_thumbnail(values: Values) -> dict[str, Any]:
    """Return `values` (height, width) as a scene's description: the mean over each block, in 256 levels."""
    height, width = values.shape
    rows, columns = min(height, SIDE), min(width, SIDE)
    row_starts = np.arange(rows) * height // rows
    column_starts = np.arange(columns) * width // columns
    sums = np.add.reduceat(np.add.reduceat(values, row_starts, axis=0), column_starts, axis=1)
    counts = np.multiply.outer(np.diff(np.append(row_starts, height)), np.diff(np.append(column_starts, width)))
    levels = np.rint(sums / counts * 255.0).astype(np.uint8)
    return {
        "kind": "image",
        "covers": [width, height],
        "size": [columns, rows],
        "levels": base64.b64encode(levels.tobytes()).decode("ascii"),
    }


def paint_thumbnail(image: Mapping[str, Any], xs: Values, ys: Values) -> Values:
    """Return the thumbnail at continuous cell coordinates, bilinear between its cells."""
    columns, rows = image["size"]
    width, height = image["covers"]
    levels = np.frombuffer(base64.b64decode(image["levels"]), np.uint8).reshape(rows, columns) / 255.0
    column = np.clip((xs + 0.5) * columns / width - 0.5, 0, columns - 1)
    row = np.clip((ys + 0.5) * rows / height - 0.5, 0, rows - 1)
    left, low = column.astype(int), row.astype(int)
    right, high = np.minimum(left + 1, columns - 1), np.minimum(low + 1, rows - 1)
    along, up = column - left, (row - low)[:, np.newaxis]
    bottom = levels[low][:, left] * (1 - along) + levels[low][:, right] * along
    top = levels[high][:, left] * (1 - along) + levels[high][:, right] * along
    values: Values = bottom * (1 - up) + top * up
    return values


def describe_plume(plume: Any, *, varying: bool) -> dict[str, Any]:
    """Return the static part; a plume without a description of its own is shown by a thumbnail."""
    if hasattr(plume, "describe"):
        described: dict[str, Any] = plume.describe()
        return described
    return {"kind": "image"} if varying else make_thumbnail(plume.field_array)


def describe_field(field: Any) -> dict[str, Any]:
    """Return the part that changes with every step."""
    described: dict[str, Any] = (
        field.describe_frame() if hasattr(field, "describe_frame") else make_thumbnail(field.field_array)
    )
    return described


_PAINTERS = {
    "gaussian": lambda static, frame, source, xs, ys: compute_gaussian_values(static, source, xs, ys),
    "advected": lambda static, frame, source, xs, ys: compute_advected_values(static, source, xs, ys),
    "puffs": lambda static, frame, source, xs, ys: compute_puff_values(frame, xs, ys),
    "image": lambda static, frame, source, xs, ys: paint_thumbnail(frame or static, xs, ys),
}


def paint_field(
    static: Mapping[str, Any], frame: Mapping[str, Any] | None, source: Point, xs: Array, ys: Array
) -> Array:
    """Return the field's values, shape (len(ys), len(xs)), at continuous cell coordinates (cell centres are whole)."""
    painter = _PAINTERS.get(str(static.get("kind")))
    if painter is None:
        raise RenderingError(
            "unknown kind of field", found=static.get("kind"), expected=f"one of {', '.join(_PAINTERS)}"
        )
    values: Array = painter(static, frame, source, xs, ys)
    return np.clip(values, 0.0, 1.0)
