"""The checks of what `close` and `render` promise (ENV-CLOSE, ENV-RENDER)."""

import warnings
from typing import Any, Final

import numpy as np

from proctor.contracts.conformance.env_driver import SEEDS, EnvDriver, reach_each_state, require_keywords
from proctor.contracts.conformance.report import KEPT, CannotTell, Check, CheckProbe, Outcome, shorten
from proctor.contracts.conformance.samples import is_identical
from proctor.contracts.guarded_env import GuardedEnv
from proctor.contracts.lifecycle import EnvironmentState

CREATED, READY, TERMINATED, TRUNCATED, CLOSED = EnvironmentState


def close_closes(probe: CheckProbe) -> Outcome:
    """ENV-CLOSE-C1."""
    for _, drive in reach_each_state(probe, CREATED, READY, TERMINATED, TRUNCATED):
        drive.close()
        if drive.get("_state") != CLOSED:
            return probe.broken(f"_state is {shorten(drive.get('_state'))}")
    return KEPT


class _Screen:
    """Stands for a window, and remembers what was done to it."""

    def __init__(self) -> None:
        self.pictures: list[Any] = []
        self.closed = False

    def show(self, picture: Any) -> None:
        self.pictures.append(picture)

    def close(self) -> None:
        self.closed = True


def _on_screen(probe: CheckProbe) -> tuple[EnvDriver, _Screen]:
    """Return an environment in the mode human whose window is a stand-in; only ours have that seam."""
    require_keywords(probe, "render_mode")
    if not isinstance(probe.make().unwrapped, GuardedEnv):
        raise CannotTell("it would open a window")
    drive, screen = EnvDriver(probe, {"render_mode": "human"}), _Screen()
    drive.env.unwrapped._open_window = lambda: screen
    return drive, screen


def close_releases_the_window(probe: CheckProbe) -> Outcome:
    """ENV-CLOSE-C2."""
    drive, screen = _on_screen(probe)
    drive.reset(seed=SEEDS[0])
    drive.render()
    drive.close()
    return KEPT if screen.closed else probe.broken("the window is still open")


def nothing_is_legal_after_close(probe: CheckProbe) -> Outcome:
    """ENV-CLOSE-C3."""
    for _, drive in reach_each_state(probe, CLOSED):
        found = drive.refuses("reset", "step", "render")
        if found is not None:
            return probe.broken(found)
    return KEPT


def close_is_safe_in_any_state_and_again(probe: CheckProbe) -> Outcome:
    """ENV-CLOSE-I1."""
    for _, drive in reach_each_state(probe, *EnvironmentState):
        for _ in range(3):
            drive.close()
    return KEPT


def render_is_refused_before_reset_and_after_close(probe: CheckProbe) -> Outcome:
    """ENV-RENDER-P1."""
    for _, drive in reach_each_state(probe, CREATED, CLOSED):
        found = drive.refuses("render")
        if found is not None:
            return probe.broken(found)
    return KEPT


def render_without_a_mode_warns(probe: CheckProbe) -> Outcome:
    """ENV-RENDER-P2."""
    drive = EnvDriver(probe)
    if drive.env.render_mode is not None:
        raise CannotTell(f"the environment comes with the render mode {shorten(drive.env.render_mode)}")
    drive.reset(seed=SEEDS[0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        picture = drive.render()
    if picture is not None:
        return probe.broken(f"returns {shorten(picture)}")
    return KEPT if caught else probe.broken("does not warn")


def render_returns_a_picture(probe: CheckProbe) -> Outcome:
    """ENV-RENDER-C1."""
    require_keywords(probe, "render_mode")
    if "rgb_array" not in probe.make().metadata.get("render_modes", ()):
        raise CannotTell("the environment has no render mode rgb_array")
    drive = EnvDriver(probe, {"render_mode": "rgb_array"})
    drive.reset(seed=SEEDS[0])
    before = drive.view()
    pictures = [drive.render() for _ in range(2)]
    for picture in pictures:
        if not isinstance(picture, np.ndarray) or picture.dtype != np.uint8:
            return probe.broken(f"returns {shorten(picture)}")
        if picture.ndim != 3 or picture.shape[2] != 3:
            return probe.broken(f"the picture has the shape {picture.shape}")
    return (
        KEPT if is_identical(*pictures) and drive.view() == before else probe.broken("rendering changes what it shows")
    )


def render_shows_a_picture(probe: CheckProbe) -> Outcome:
    """ENV-RENDER-C2."""
    drive, screen = _on_screen(probe)
    drive.reset(seed=SEEDS[0])
    shown, answer = len(screen.pictures), drive.render()
    if len(screen.pictures) <= shown:
        return probe.broken("shows nothing")
    return KEPT if answer is None else probe.broken(f"returns {shorten(answer)}")


CHECKS: Final[dict[str, Check]] = {
    "ENV-CLOSE-C1": close_closes,
    "ENV-CLOSE-C2": close_releases_the_window,
    "ENV-CLOSE-C3": nothing_is_legal_after_close,
    "ENV-CLOSE-I1": close_is_safe_in_any_state_and_again,
    "ENV-RENDER-P1": render_is_refused_before_reset_and_after_close,
    "ENV-RENDER-P2": render_without_a_mode_warns,
    "ENV-RENDER-C1": render_returns_a_picture,
    "ENV-RENDER-C2": render_shows_a_picture,
}
