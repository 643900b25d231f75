"""Frames of any environment in a window on the screen, and as a film on disk.

Rule 1: pygame and the encoder are looked for when the first frame is there, never before.
Rule 2: pygame has one display per process, so the window that opened last owns it; an older one counts as closed. A window
    that was closed, by whomever, stays closed: `show` then does nothing, and a run goes on without it.
Rule 3: a film is streamed: one frame at a time leaves this process, however long it is. (A GIF shares one palette, so there
    the encoder, a process of its own, keeps them until the last one has come.)
Rule 4: a film is whole or it is not there: it is written beside its place and moved when it is complete.
Rule 5: what a film's suffix means is a row of `_ENCODERS`. The encoder says nothing on the terminal; what went wrong is in the
    error.
"""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from itertools import chain
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen
from tempfile import TemporaryFile
from types import ModuleType
from typing import IO, Any, ClassVar, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from proctor.errors import MissingExtraError, RenderingError, ValidationError

Picture: TypeAlias = NDArray[np.uint8]
Options: TypeAlias = Sequence[str]

GIF_FPS: Final = 50.0  # browsers slow down a GIF that asks for more


class Window:
    """A window of its first frame's size that the user can resize; frames keep their proportions.

    `fps` is the environment's `metadata["render_fps"]`: `show` waits so that frames come no faster; 0 means no wait.
    The close button and the escape key close it.
    """

    _owner: ClassVar["Window | None"] = None

    def __init__(self, title: str, *, fps: float) -> None:
        self._title = title
        self._fps = fps
        self._pygame: ModuleType | None = None
        self._clock: Any = None
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether the window shows nothing any more."""
        return self._closed or (self._pygame is not None and Window._owner is not self)

    def show(self, frame: Picture) -> bool:
        """Show `frame`, uint8 (height, width, 3), and answer the user; return whether the window is still open."""
        if self.closed:
            return False
        pygame = self._open(frame.shape[1], frame.shape[0])
        closing = ((pygame.QUIT, None), (pygame.KEYDOWN, pygame.K_ESCAPE))
        if any((event.type, getattr(event, "key", None)) in closing for event in pygame.event.get()):
            self.close()
            return False
        _show_in_middle(pygame, frame)
        pygame.display.flip()
        self._clock.tick(self._fps)
        return True

    def close(self) -> None:
        """Close the window; a second time, or before the first frame, it only stays closed."""
        if self._pygame is not None and Window._owner is self:
            self._pygame.display.quit()
            Window._owner = None
        self._closed = True

    def _open(self, width: int, height: int) -> ModuleType:
        if self._pygame is not None:
            return self._pygame
        # Standard output may be somebody's protocol: pygame must not greet there.
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        try:
            import pygame
        except ImportError:
            raise MissingExtraError("render_mode 'human'", package="pygame", extra="human") from None
        try:
            pygame.display.init()
            pygame.display.set_mode((width, height), pygame.RESIZABLE)
        except pygame.error as problem:
            raise RenderingError("no window could be opened", found=str(problem), expected="a display") from problem
        pygame.display.set_caption(self._title)
        self._pygame, self._clock, Window._owner = pygame, pygame.time.Clock(), self
        return pygame


def _show_in_middle(pygame: ModuleType, frame: Picture) -> None:
    """Put `frame` on the display as large as it fits, in the middle."""
    screen = pygame.display.get_surface()
    height, width, _ = frame.shape
    picture = pygame.image.frombuffer(frame.tobytes(), (width, height), "RGB")
    room = screen.get_size()
    scale = min(room[0] / width, room[1] / height)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    if size != (width, height):
        picture = pygame.transform.smoothscale(picture, size)
    screen.fill((0, 0, 0))
    screen.blit(picture, ((room[0] - size[0]) // 2, (room[1] - size[1]) // 2))


def write_video(path: str | os.PathLike[str], frames: Iterable[Picture], fps: float) -> None:
    """Write `frames`, uint8 arrays (height, width, 3) of one size, as a film; the suffix of `path` picks the format.

    An unknown suffix, a missing folder, a bad frame rate, no frame at all and a frame of another shape are a
    ValidationError, a place that cannot be written to is a RenderingError, and a file that was there before stays as it
    was. A GIF loops for ever, at up to 50 frames per second of the same running time.
    """
    target = Path(path)
    encoding = _find_encoding(target)
    if not (math.isfinite(fps) and fps > 0):
        raise ValidationError("no frame rate", found=fps, expected="frames per second, a number > 0")
    check_place(target)
    try:
        import imageio_ffmpeg
    except ImportError:
        raise MissingExtraError("writing a film", package="imageio-ffmpeg", extra="video") from None
    checked = _check_frames(frames)
    first = next(checked)
    frames_in = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{first.shape[1]}x{first.shape[0]}"]
    rate = ["-r", str(Fraction(fps).limit_denominator()), "-i", "-", "-y", "-v", "quiet"]
    command = [imageio_ffmpeg.get_ffmpeg_exe(), *frames_in, *rate, *encoding(fps)]
    with (
        _report_write_errors(target),
        _replace_when_complete(target) as partial,
        _encoder([*command, str(partial)]) as film,
    ):
        for frame in chain([first], checked):
            film.write(frame.data)


def check_place(path: str | os.PathLike[str]) -> None:
    """Refuse a place where no film can be written, before there is a frame; what is there stays as it is."""
    target = Path(path)
    _find_encoding(target)
    if not target.parent.is_dir():
        raise ValidationError("no such folder", found=str(target.parent), expected="a folder to write the film to")
    with _report_write_errors(target), TemporaryFile(dir=target.parent):
        pass


def _gif(fps: float) -> Options:
    # No dithering: a flat colour stays flat, and what does not move costs nothing.
    filters = f"fps={min(fps, GIF_FPS)},split[a][b];[a]palettegen[p];[b][p]paletteuse=dither=none:diff_mode=rectangle"
    return ["-vcodec", "gif", "-pix_fmt", "pal8", "-filter_complex", filters, "-loop", "0"]


def _mp4(fps: float) -> Options:
    even = "pad=ceil(iw/2)*2:ceil(ih/2)*2"  # the pixel format that every player knows has even sides
    params = ["-vf", even, "-crf", "18", "-tune", "animation", "-movflags", "+faststart"]
    return ["-vcodec", "libx264", "-pix_fmt", "yuv420p", *params]


_ENCODERS: Final[Mapping[str, Callable[[float], Options]]] = {".gif": _gif, ".mp4": _mp4}


def _find_encoding(target: Path) -> Callable[[float], Options]:
    encoding = _ENCODERS.get(target.suffix.lower())
    if encoding is None:
        known = ", ".join(_ENCODERS)
        raise ValidationError("no film has this suffix", found=target.name, expected=f"one of {known}")
    return encoding


@contextmanager
def _encoder(command: Sequence[str]) -> Iterator[IO[bytes]]:
    """Yield what frames are written to; an encoder that fails, then or at the end, is an OSError."""
    # A group of its own: an interrupt at the keyboard is for this process, which then ends the other.
    process = Popen(command, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL, process_group=0)  # noqa: S603  fixed arguments
    try:
        with process.stdin as film:  # type: ignore[union-attr]  # it is a pipe
            yield film
    except BaseException:
        process.kill()
        raise
    finally:
        code = process.wait()
    if code != 0:
        raise OSError(f"the encoder ended with code {code}")


def _check_frames(frames: Iterable[Picture]) -> Iterator[Picture]:
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
def _replace_when_complete(target: Path) -> Iterator[Path]:
    partial = target.with_name(f".{target.stem}.partial{target.suffix}")
    try:
        yield partial
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _report_write_errors(target: Path) -> Iterator[None]:
    """Say in one line what the system or the encoder has against `target`."""
    try:
        yield
    except OSError as problem:
        raise RenderingError(
            f"the film could not be written: {problem.strerror or problem}",
            found=str(target),
            expected="a file that can be written",
        ) from problem
