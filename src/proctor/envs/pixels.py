"""Pictures of environments that we do not know, as scenes: what `render()` returns in the mode `rgb_array`.

Rule 1: a picture is for people who look at the record: one that fails, or is strange or huge, is no picture, and never fails
    the step that it was taken of.
Rule 2: how pixels are written is said in `models/pixels.py`.
"""

from typing import Any, Final

import gymnasium as gym
import numpy as np

from proctor.models.arrays import packed_array
from proctor.models.pixels import pixels_scene

RGB_ARRAY: Final = "rgb_array"
CHANNELS: Final = (1, 3, 4)
"""Grey, RGB, RGBA."""
MOST_BYTES: Final = 2**24
"""Of a picture that is kept."""
_RAISED: Final = (Exception, SystemExit)
"""What somebody else's code may raise."""


def drawn_scene(env: gym.Env[Any, Any], *, begins: bool) -> dict[str, Any] | None:
    """Return a picture of where the environment stands, as a scene or as its frame; None: it draws none."""
    picture = _drawn(env)
    return None if picture is None else pixels_scene(packed_array(picture, compress=True), begins=begins)


def _drawn(env: gym.Env[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint8]] | None:
    try:
        picture = env.render() if env.render_mode == RGB_ARRAY else None
    except _RAISED:
        return None
    return picture if isinstance(picture, np.ndarray) and _is_picture(picture) else None


def _is_picture(found: np.ndarray[Any, Any]) -> bool:
    """Return whether an array is height by width, of bytes, with channels or without, and not too large."""
    shaped = found.ndim == 2 or (found.ndim == 3 and found.shape[2] in CHANNELS)
    return bool(found.dtype == np.uint8 and shaped and 0 < found.nbytes <= MOST_BYTES)
