"""Frames of any environment in a window on the screen.

Rule 1: pygame is imported when the first frame is shown, never before.
Rule 2: pygame has one display per process, so the window that opened last owns it; an older one counts as closed.
Rule 3: a window that was closed, by whomever, stays closed: `show` then does nothing, and a run goes on without it.
"""

import os
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from proctor.errors import MissingExtraError, RenderingError


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

    def show(self, frame: NDArray[np.uint8]) -> bool:
        """Show `frame`, uint8 (height, width, 3), and answer the user; return whether the window is still open."""
        if self.closed:
            return False
        pygame = self._open(frame.shape[1], frame.shape[0])
        closing = ((pygame.QUIT, None), (pygame.KEYDOWN, pygame.K_ESCAPE))
        if any((event.type, getattr(event, "key", None)) in closing for event in pygame.event.get()):
            self.close()
            return False
        _blit(pygame, frame)
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


def _blit(pygame: ModuleType, frame: NDArray[np.uint8]) -> None:
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
