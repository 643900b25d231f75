"""Frames of any environment as a film on disk.

Rule 1: frames are streamed: one at a time leaves this process, however long the film is. (A GIF shares one palette, so
there the encoder, a process of its own, keeps them until the last one has come.)
Rule 2: a film is whole or it is not there: it is written beside its place and moved when it is complete.
Rule 3: what a suffix means is a row of `_ENCODERS`.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from proctor.errors import MissingExtraError, ValidationError

Picture: TypeAlias = NDArray[np.uint8]
Options: TypeAlias = Mapping[str, Any]

GIF_FPS: Final = 50.0  # browsers slow down a GIF that asks for more


def write_video(path: str | PathLike[str], frames: Iterable[Picture], fps: float) -> None:
    """Write `frames`, uint8 arrays (height, width, 3) of one size, as a film; the suffix of `path` picks the format.

    An unknown suffix, a bad frame rate, no frame at all and a frame of another shape are a ValidationError, and a file
    that was there before stays as it was. A GIF loops for ever, at up to 50 frames per second of the same running time.
    """
    target = Path(path)
    options = _options(target, fps)
    encoder = _encoder()
    checked = _checked(frames)
    first = next(checked)
    size = (first.shape[1], first.shape[0])
    with _placed(target) as partial, closing(encoder.write_frames(str(partial), size, **options)) as film:
        film.send(None)
        film.send(first)
        for frame in checked:
            film.send(frame)


def _gif(fps: float) -> Options:
    # No dithering: a flat colour stays flat, and what does not move costs nothing.
    filters = f"fps={min(fps, GIF_FPS)},split[a][b];[a]palettegen[p];[b][p]paletteuse=dither=none:diff_mode=rectangle"
    return {"codec": "gif", "pix_fmt_out": "pal8", "output_params": ["-filter_complex", filters, "-loop", "0"]}


def _mp4(fps: float) -> Options:
    even = "pad=ceil(iw/2)*2:ceil(ih/2)*2"  # the pixel format that every player knows has even sides
    params = ["-vf", even, "-crf", "18", "-tune", "animation", "-movflags", "+faststart"]
    return {"codec": "libx264", "pix_fmt_out": "yuv420p", "output_params": params}


_ENCODERS: Final[Mapping[str, Callable[[float], Options]]] = {".gif": _gif, ".mp4": _mp4}


def _options(target: Path, fps: float) -> Options:
    encoder = _ENCODERS.get(target.suffix.lower())
    if encoder is None:
        known = ", ".join(_ENCODERS)
        raise ValidationError("no film has this suffix", found=target.name, expected=f"one of {known}")
    if not (math.isfinite(fps) and fps > 0):
        raise ValidationError("no frame rate", found=fps, expected="frames per second, a number > 0")
    shared = {"fps": fps, "quality": None, "macro_block_size": 1, "ffmpeg_log_level": "error"}
    return {**shared, **encoder(fps)}


def _encoder() -> ModuleType:
    try:
        import imageio_ffmpeg
    except ImportError:
        raise MissingExtraError("writing a film", package="imageio-ffmpeg", extra="video") from None
    module: ModuleType = imageio_ffmpeg
    return module


def _checked(frames: Iterable[Picture]) -> Iterator[Picture]:
    """Yield the frames, contiguous; at least one, all like the first."""
    shape: tuple[int, ...] | None = None
    for frame in frames:
        if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or frame.shape != (shape or frame.shape):
            like = "(height, width, 3)" if shape is None else str(shape)
            raise ValidationError("not a frame", found=(frame.shape, str(frame.dtype)), expected=f"{like}, uint8")
        shape = frame.shape
        yield np.ascontiguousarray(frame)
    if shape is None:
        raise ValidationError("a film needs frames", found=0, expected="at least one frame")


@contextmanager
def _placed(target: Path) -> Iterator[Path]:
    partial = target.with_name(f".{target.stem}.partial{target.suffix}")
    try:
        yield partial
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
