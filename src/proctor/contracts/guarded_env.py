"""A Gymnasium environment under the lifecycle: what every environment of ours shares.

Rule 1: `_start` and `step` of a subclass compute first and commit last; a call that raises changes nothing.
Rule 2: `np_random` draws episode seeds and nothing else; an episode is a function of its seed and its actions.
"""

from contextlib import suppress
from typing import Any, ClassVar, Final, TypeVar

import gymnasium as gym

from proctor.contracts.arguments import parse_count
from proctor.contracts.chance import SEED_LIMIT
from proctor.contracts.lifecycle import EnvironmentState, LifecycleMethod, guard
from proctor.errors import ValidationError

NO_SNAPSHOT: Final[dict[str, Any]] = {}
"""Stands for a snapshot where nothing is shown, so that nothing has to be taken back."""

ObsT = TypeVar("ObsT")
ActT = TypeVar("ActT")


def parse_seed(seed: object) -> int:
    """Return `seed` as an int in [0, 2^31), or raise a ValidationError."""
    return parse_count("seed", seed, 0, SEED_LIMIT - 1, clause="ENV-RESET-P2")


def parse_reset_options(options: object, known: tuple[str, ...]) -> dict[str, Any]:
    """Return `options` as a dict whose keys are all known, or raise a ValidationError."""
    if options is None:
        return {}
    if not isinstance(options, dict):
        raise ValidationError("not reset options", found=options, expected="a dict or None", clause="ENV-RESET-P3")
    unknown = [key for key in options if key not in known]
    if unknown:
        expected = "no options" if not known else "only " + ", ".join(known)
        raise ValidationError("unknown reset option", found=unknown[0], expected=expected, clause="ENV-RESET-P3")
    return options


class GuardedEnv(gym.Env[ObsT, ActT]):
    """The lifecycle, the seeds and the counters; a subclass adds what happens in an episode.

    A subclass implements `_start`, `step`, `scene` and `_draw`, and lists its reset options in `reset_options`.
    """

    reset_options: ClassVar[tuple[str, ...]] = ()

    def __init__(self, render_mode: str | None) -> None:
        modes = self.metadata["render_modes"]
        if render_mode is not None and render_mode not in modes:
            raise ValidationError(
                "unknown render mode", found=render_mode, expected=f"None or one of {modes}", clause="ENV-INIT-P6"
            )
        self.render_mode = render_mode
        self._shows = render_mode == "human"
        self._state = EnvironmentState.CREATED
        self._episode_count = 0
        self._step_count = 0
        self._seed: int | None = None
        self._pending_seed: int | None = None
        self._window: Any = None

    @property
    def state(self) -> EnvironmentState:
        """Where the environment stands in its lifecycle."""
        return self._state

    @property
    def step_count(self) -> int:
        """Steps taken in this episode."""
        return self._step_count

    @property
    def episode_count(self) -> int:
        """Episodes started so far."""
        return self._episode_count

    @property
    def seed(self) -> int | None:
        """The seed that replays the present episode; None before the first reset."""
        return self._seed

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ObsT, dict[str, Any]]:
        """Begin an episode; `info["seed"]` replays it exactly."""
        guard(self._state, LifecycleMethod.RESET)
        if seed is not None:
            seed = parse_seed(seed)
        checked = parse_reset_options(options, self.reset_options)
        if checked:
            self._check_options(checked, seed)
        episode_seed = self._draw_seed() if seed is None else seed
        before = self._snapshot() if self._shows else NO_SNAPSHOT
        observation, info = self._start(episode_seed, checked)
        # Only now: a start that fails must leave the generator as it was.
        if seed is not None:
            super().reset(seed=seed)
        self._pending_seed = None
        self._seed = episode_seed
        self._step_count = 0
        self._episode_count += 1
        self._state = EnvironmentState.READY
        if self._shows:
            self._show(before)
        return observation, {"seed": episode_seed, "episode": self._episode_count, **info}

    def _draw_seed(self) -> int:
        """Return a seed from `np_random`; it stays the next one until an episode has begun with it."""
        if self._pending_seed is None:
            # Not integers(), which takes five times as long.
            self._pending_seed = int(self.np_random.random() * SEED_LIMIT)
        return self._pending_seed

    def render(self) -> Any:
        """Return a picture as the render mode says; with no render mode a warning and None."""
        guard(self._state, LifecycleMethod.RENDER)
        if self.render_mode is None:
            gym.logger.warn("render() without a render mode shows nothing: pass render_mode to gym.make()")
            return None
        picture = self._draw(self.scene())
        if not self._shows:
            return picture
        if self._window is None:
            self._window = self._open_window()
        self._window.show(picture)
        return None

    def _snapshot(self) -> dict[str, Any]:
        """Return what `_show` needs to take a call back; a subclass copies what it changes in place."""
        return dict(self.__dict__)

    def _show(self, before: dict[str, Any]) -> None:
        """Show the window after a reset or a step; if that raises, the environment is as it was `before`."""
        shown = False
        try:
            self.render()
            shown = True
        finally:
            if not shown:
                # The window itself is kept, so that close() can still close it.
                self.__dict__.update({**before, "_window": self._window})

    def close(self) -> None:
        """End the environment for good; calling it again does nothing."""
        window, self._window = self._window, None
        self._state = EnvironmentState.CLOSED
        if window is not None:
            # Whatever a window system may raise, close() never does: it runs in clean-up code.
            with suppress(Exception):
                window.close()

    def __getstate__(self) -> dict[str, Any]:
        # A window belongs to its process; a copy opens its own when it renders.
        return {**self.__dict__, "_window": None}

    def scene(self) -> dict[str, Any]:
        """Return what is to be seen, as a small JSON value; legal where `render()` is."""
        raise NotImplementedError  # abstract: every environment describes its own scene

    def frame(self) -> dict[str, Any]:
        """Return what of the scene changes with a step, without what the frames before it tell."""
        frame: dict[str, Any] = self.scene()["frame"]
        return frame

    def _check_options(self, options: dict[str, Any], episode_seed: int | None) -> None:
        """Raise a ValidationError for an option that the episode of this seed cannot have; nothing has changed yet.

        None is a seed that is still to be drawn; `_draw_seed` tells which it will be.
        """

    def _start(self, episode_seed: int, options: dict[str, Any]) -> tuple[ObsT, dict[str, Any]]:
        """Place the agent for the episode of this seed; return the first observation and its info."""
        raise NotImplementedError  # abstract: every environment starts in its own way

    def _draw(self, scene: dict[str, Any]) -> Any:
        """Return `scene` as a picture."""
        raise NotImplementedError  # abstract: every environment draws in its own way

    def _open_window(self) -> Any:
        """Return a window with `show(picture)` and `close()`."""
        raise NotImplementedError  # abstract: pixels need the `human` extra, which this room must not know
