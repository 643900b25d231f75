"""Recorded plumes: an array (t, y, x) from a `.npy`, `.npz` or Zarr file, shown frame by frame.

Rule 1: the step-to-frame rule is `frame = step // steps_per_frame`, from `first_frame`; past the end the movie is held
    on its last frame or starts again (`at_end`).
Rule 2: a frame is checked and copied to float64 when it is shown; a movie larger than memory stays on disk.
"""

import math
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proctor.contracts.arguments import parse_count
from proctor.contracts.chance import Chance
from proctor.contracts.components import DescribedPart
from proctor.contracts.spatial import MOST_STEPS, GridSize
from proctor.envs.plume.fields import Array, TableField, make_read_only, make_thumbnail
from proctor.errors import ComponentError, MissingExtraError, ValidationError

MOST_UNPACKED: Final = 2**31
"""Bytes of a compressed movie, or of a chunk of a Zarr store, which is unpacked as a whole."""
MOST_HEADER: Final = 2**16
"""Bytes in which an array says its dtype and shape; numpy takes fewer, but reads all that are claimed before it looks."""
BOUNDED: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""How an archive may hold a movie: of the other ways Python's module unpacks all that a few bytes say, however little is read."""
AT_END: Final = ("hold", "loop")


def _load_npy(path: Path) -> Any:
    with path.open("rb") as file:
        _check_header(file)
    return np.lib.format.open_memmap(path, mode="r")


def _load_npz(path: Path) -> Any:
    if not zipfile.is_zipfile(path):
        raise ValueError("not an archive")
    with path.open("rb") as file, zipfile.ZipFile(file) as archive:
        names = archive.namelist()
        if len(names) != 1:
            arrays = [name.removesuffix(".npy") for name in names]
            raise ValidationError("which array is the movie?", found=arrays, expected="exactly one array")
        member_info = archive.getinfo(names[0])
        if member_info.compress_type not in BOUNDED:
            raise ValidationError(
                "the movie is compressed in a way that is not read",
                found=f"method {member_info.compress_type}",
                expected="an archive that numpy.savez or numpy.savez_compressed wrote",
            )
        # What an archive says of its size is what is unpacked at most; a few bytes can say a thousand times as many.
        size = member_info.file_size
        if size > MOST_UNPACKED:
            raise ValidationError(
                "the movie is too large to be unpacked", found=size, expected=f"at most {MOST_UNPACKED} bytes, or .npy"
            )
        with archive.open(names[0]) as member:
            _check_header(member)
        with archive.open(names[0]) as member:
            _check_claim(member, size)
        with archive.open(names[0]) as member:
            return np.lib.format.read_array(member, allow_pickle=False)


def _check_header(file: IO[bytes]) -> None:
    """Raise a ValueError if an array says more than `MOST_HEADER` bytes about itself."""
    version = np.lib.format.read_magic(file)
    size = int.from_bytes(file.read(2 if version == (1, 0) else 4), "little")
    if size > MOST_HEADER:
        raise ValueError("the header is too long")


def _check_claim(member: IO[bytes], size: int) -> None:
    """Raise a ValueError if the array in the archive says that it is larger than all that is there."""
    version = np.lib.format.read_magic(member)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(member)
    if math.prod(shape) * dtype.itemsize > size:
        raise ValueError("the array is cut off")


def _load_zarr(path: Path) -> Any:
    try:
        import zarr
    except ImportError:
        raise MissingExtraError("a movie in a Zarr store", package="zarr", extra="movies") from None
    node = zarr.open(str(path), mode="r")
    if not isinstance(node, zarr.Array):
        raise ValidationError("not a Zarr array", found=str(path), expected="an array, not a group")
    chunk = math.prod(node.chunks) * node.dtype.itemsize
    if chunk > MOST_UNPACKED:
        raise ValidationError(
            "a chunk of the movie is too large to be unpacked", found=chunk, expected=f"at most {MOST_UNPACKED} bytes"
        )
    return node


_LOADERS: Final = {".npy": _load_npy, ".npz": _load_npz, ".zarr": _load_zarr}


def load_movie(path: str | Path) -> Any:
    """Return the array in the file, still on disk where the format allows it."""
    if not isinstance(path, str | Path):
        raise ValidationError("not a path", found=path, expected="the path of a movie")
    path = Path(path)
    loader = _LOADERS.get(path.suffix.lower())
    if loader is None:
        raise ValidationError("unknown movie format", found=path.name, expected=" or ".join(_LOADERS))
    if not path.exists():
        raise ValidationError("no such movie", found=path.name, expected="an existing file")
    try:
        return loader(path)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as problem:
        if isinstance(problem, ValidationError):
            raise
        raise ValidationError("not a readable movie", found=path.name, expected=f"a {path.suffix} array") from problem


class MovieFrame(TableField):
    """One frame as a field."""

    def __init__(self, values: Array, number: int) -> None:
        self.field_array = make_read_only(values)
        self.number = number
        self.grid_size = GridSize(values.shape[1], values.shape[0])

    def __reduce__(self) -> tuple[object, ...]:
        # A copied array would be writable.
        return MovieFrame, (self.field_array, self.number)

    def describe_frame(self) -> dict[str, Any]:
        """Return a thumbnail of the frame."""
        return make_thumbnail(self.field_array)


class MoviePlume(DescribedPart):
    """A recorded plume; `frames` is an array (t, y, x) with values in [0, 1]."""

    type_name = "movie"
    parameters = ("steps_per_frame", "first_frame", "at_end")

    def __init__(self, frames: ArrayLike, steps_per_frame: int = 1, first_frame: int = 0, at_end: str = "hold") -> None:
        movie: Any = frames
        self._frames: Any = movie if hasattr(movie, "shape") else np.asarray(movie)
        shape = self._frames.shape
        if len(shape) != 3 or shape[0] < 1:
            raise ValidationError("not a movie", found=shape, expected="an array of shape (t, y, x)")
        if np.dtype(self._frames.dtype).kind not in "fiub":
            raise ValidationError("not a movie", found=str(self._frames.dtype), expected="real numbers")
        if at_end not in AT_END:
            raise ValidationError("unknown at_end", found=at_end, expected=" or ".join(AT_END))
        self.grid_size = GridSize(int(shape[2]), int(shape[1]))
        self.steps_per_frame = parse_count("steps_per_frame", steps_per_frame, 1, MOST_STEPS)
        self.first_frame = parse_count("first_frame", first_frame, 0, int(shape[0]) - 1)
        self.at_end = at_end

    def __getstate__(self) -> dict[str, Any]:
        # A movie that lies on disk stays there: a copy opens it again.
        path = getattr(self._frames, "filename", None)
        return {**self.__dict__, "_frames": self._frames if path is None else Path(path)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(self._frames, Path):
            self._frames = load_movie(self._frames)

    def frame_number(self, time_step: int) -> int:
        """Return which frame is shown at `time_step`."""
        number = self.first_frame + time_step // self.steps_per_frame
        count = int(self._frames.shape[0])
        return number % count if self.at_end == "loop" else min(number, count - 1)

    def begin(self, chance: Chance) -> MovieFrame:
        """Return the first frame."""
        return self._frame(self.frame_number(0))

    def advance(self, field: MovieFrame, chance: Chance, time_step: int) -> MovieFrame:
        """Return the frame of `time_step`; the same one while it is shown."""
        number = self.frame_number(time_step)
        return field if number == field.number else self._frame(number)

    def _frame(self, number: int) -> MovieFrame:
        values: NDArray[np.float64] = np.array(self._frames[number], dtype=np.float64)
        # A NaN compares false with everything.
        if not bool(np.all((values >= 0.0) & (values <= 1.0))):
            raise ComponentError(
                f"frame {number} of the movie has values outside [0, 1]",
                found=(float(values.min()), float(values.max())),
                expected="finite values in [0, 1]",
                clause="FIELD-2",
            )
        return MovieFrame(values, number)

    def describe(self) -> dict[str, Any]:
        """Return the static part of a scene; each frame brings its own picture."""
        return {"kind": "image"}
