"""Pictures of environments that we do not know, which are never in the way of a step."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete

from proctor.envs.gym_adapter import MOST_BYTES, GymEnvironment, render_scene
from proctor.envs.settings import make_env
from proctor.models.arrays import unpack_array
from proctor.models.events import SessionOpened
from proctor.replay.replayer import replay_rows
from tests.replay.recorded_ledgers import Play, Sitting, record, rows_of


class Painter(gym.Env[Any, Any]):
    """Draws what it is told to."""

    metadata = {"render_modes": ["rgb_array", "ansi"]}
    action_space = Discrete(2)
    observation_space = Box(0, 1, (1,), np.float32)

    def __init__(self, picture: Any, render_mode: str | None = "rgb_array") -> None:
        self.picture = picture
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), 1.0, False, False, {}

    def render(self) -> Any:
        if isinstance(self.picture, BaseException):
            raise self.picture
        return self.picture


RED = np.full((4, 6, 3), (255, 0, 0), np.uint8)


def test_a_picture_is_a_scene_at_the_reset_and_a_frame_later() -> None:
    environment = GymEnvironment(Painter(RED))
    environment.reset(seed=1)
    scene, frame = environment.scene(begins=True), environment.scene(begins=False)

    assert scene == {"environment": "pixels", "frame": frame}
    assert np.array_equal(unpack_array(frame["pixels"]), RED)


@pytest.mark.parametrize(
    "picture",
    [
        RuntimeError("no display"),
        SystemExit(1),
        None,
        "text",
        [[0]],
        RED.astype(float),
        RED[:, :, :2],
        RED[0, 0],
        RED[:0],
        np.zeros((1, 1, MOST_BYTES // 4 + 1, 4), np.uint8),
        np.broadcast_to(np.uint8(0), (MOST_BYTES + 1, 1)),
    ],
    ids=["error", "exit", "none", "text", "list", "floats", "channels", "line", "empty", "dimensions", "huge"],
)
def test_what_is_no_picture_is_no_scene(picture: Any) -> None:
    environment = GymEnvironment(Painter(picture))
    environment.reset(seed=1)

    assert environment.scene(begins=True) is None
    assert environment.scene(begins=False) is None


def test_grey_pictures_and_views_of_larger_ones_are_taken() -> None:
    for picture in (RED[:, :, 0], RED[:, :, :1], RED[::2, ::-1]):
        frame = render_scene(Painter(picture), begins=False)

        assert frame is not None
        assert np.array_equal(unpack_array(frame["pixels"]), picture)


@pytest.mark.parametrize("mode", [None, "ansi"])
def test_without_the_mode_nothing_is_drawn(mode: str | None) -> None:
    assert render_scene(Painter(AssertionError("drawn"), mode), begins=True) is None


def test_an_environment_of_ours_keeps_its_own_scene() -> None:
    env = make_env("proctor/PlumeSearch-v0", {"render_mode": "rgb_array"})
    environment = GymEnvironment(env)
    environment.reset(seed=1)

    assert environment.scene(begins=True)["environment"] == "plume"


def test_an_episode_with_pixels_comes_out_the_same_again(tmp_path: Path) -> None:
    settings = {"render_mode": "rgb_array"}
    rows = rows_of(record(tmp_path / "ledger", Sitting("CartPole-v1", settings, [Play(1, 5)], scenes=True)))

    opened = rows[0].event
    assert isinstance(opened, SessionOpened)

    found = list(replay_rows(opened, rows))

    assert [bytes(row.event.scene) != b"null" for row in found] == [True] * 6  # type: ignore[union-attr]
    assert all(row.equal for row in found)
