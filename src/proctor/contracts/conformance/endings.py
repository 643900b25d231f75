"""The checks of what `close` and `render` promise (ENV-CLOSE, ENV-RENDER)."""

import warnings
from typing import Any, Final

import numpy as np

from proctor.contracts.conformance.drives import SEEDS, Drive, each_state, need
from proctor.contracts.conformance.report import KEPT, CannotTell, Check, Outcome, Probe, short
from proctor.contracts.conformance.scopes import same
from proctor.contracts.guarded import GuardedEnv
from proctor.contracts.lifecycle import EnvironmentState

CREATED, READY, TERMINATED, TRUNCATED, CLOSED = EnvironmentState


def close_closes(probe: Probe) -> Outcome:
    """ENV-CLOSE-C1."""
    for _, drive in each_state(probe, CREATED, READY, TERMINATED, TRUNCATED):
        drive.close()
        if drive.get("_state") != CLOSED:
            return probe.broken(f"_state is {short(drive.get('_state'))}")
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


def _on_screen(probe: Probe) -> tuple[Drive, _Screen]:
    """Return an environment in the mode human whose window is a stand-in; only ours have that seam."""
    need(probe, "render_mode")
    if not isinstance(probe.make().unwrapped, GuardedEnv):
        raise CannotTell("it would open a window")
    drive, screen = Drive(probe, {"render_mode": "human"}), _Screen()
    drive.env.unwrapped._open_window = lambda: screen
    return drive, screen


def close_releases_the_window(probe: Probe) -> Outcome:
    """ENV-CLOSE-C2."""
    drive, screen = _on_screen(probe)
    drive.reset(seed=SEEDS[0])
    drive.render()
    drive.close()
    return KEPT if screen.closed else probe.broken("the window is still open")


def nothing_is_legal_after_close(probe: Probe) -> Outcome:
    """ENV-CLOSE-C3."""
    for _, drive in each_state(probe, CLOSED):
        found = drive.refuses("reset", "step", "render")
        if found is not None:
            return probe.broken(found)
    return KEPT


def close_is_safe_in_any_state_and_again(probe: Probe) -> Outcome:
    """ENV-CLOSE-I1."""
    for _, drive in each_state(probe, *EnvironmentState):
        for _ in range(3):
            drive.close()
    return KEPT


def render_is_refused_before_reset_and_after_close(probe: Probe) -> Outcome:
    """ENV-RENDER-P1."""
    for _, drive in each_state(probe, CREATED, CLOSED):
        found = drive.refuses("render")
        if found is not None:
            return probe.broken(found)
    return KEPT


def render_without_a_mode_warns(probe: Probe) -> Outcome:
    """ENV-RENDER-P2."""
    drive = Drive(probe)
    if drive.env.render_mode is not None:
        raise CannotTell(f"the environment comes with the render mode {short(drive.env.render_mode)}")
    drive.reset(seed=SEEDS[0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        picture = drive.render()
    if picture is not None:
        return probe.broken(f"returns {short(picture)}")
    return KEPT if caught else probe.broken("does not warn")


def render_returns_a_picture(probe: Probe) -> Outcome:
    """ENV-RENDER-C1."""
    need(probe, "render_mode")
    if "rgb_array" not in probe.make().metadata.get("render_modes", ()):
        raise CannotTell("the environment has no render mode rgb_array")
    drive = Drive(probe, {"render_mode": "rgb_array"})
    drive.reset(seed=SEEDS[0])
    before = drive.view()
    pictures = [drive.render() for _ in range(2)]
    for picture in pictures:
        if not isinstance(picture, np.ndarray) or picture.dtype != np.uint8:
            return probe.broken(f"returns {short(picture)}")
        if picture.ndim != 3 or picture.shape[2] != 3:
            return probe.broken(f"the picture has the shape {picture.shape}")
    return KEPT if same(*pictures) and drive.view() == before else probe.broken("rendering changes what it shows")


def render_shows_a_picture(probe: Probe) -> Outcome:
    """ENV-RENDER-C2."""
    drive, screen = _on_screen(probe)
    drive.reset(seed=SEEDS[0])
    shown, answer = len(screen.pictures), drive.render()
    if len(screen.pictures) <= shown:
        return probe.broken("shows nothing")
    return KEPT if answer is None else probe.broken(f"returns {short(answer)}")


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
