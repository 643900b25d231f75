"""What a picture needs is on record where it was asked for, wherever the environment works, and agents never see it."""

from __future__ import annotations

import json
from typing import Any

import gymnasium as gym
import pytest

from proctor.envs.targets import Target
from proctor.models.control import Reset
from proctor.models.events import EpisodeClosed, EpisodeReset, EpisodeStepped
from proctor.server.rewards.pipeline import plan_of
from proctor.server.runtime.env_adapter import describe_target
from proctor.server.sandbox.pool.worker_pool import WorkerPool
from proctor.server.sandbox.tiers import SandboxRequest, Tier
from proctor.server.sessions.response_builder import SingleResponseBuilder
from proctor.server.sessions.session import Session
from proctor.server.sessions.session_spec import ExecutorKind, SessionSpec
from tests.server.bare_sessions import run
from tests.server.memory_recorder import MemoryRecorder

PLUME, POPPER = "proctor/PlumeSearch-v0", "proctor/ColumnPopper-v0"
GO = b'{"action":1}'


def events_of(
    target: str, *, scenes: bool, kind: ExecutorKind = "inline", pool: WorkerPool | None = None
) -> tuple[Any, ...]:
    """Return what two short episodes put on record."""
    found = Target(target, {})
    opening = SessionSpec(found, describe_target(found), kind, scenes=scenes, pool=pool)
    recorder = MemoryRecorder()
    account = SingleResponseBuilder(plan_of([]).pipeline(None), extended=True)
    session = Session("s", opening, account, recorder, clock=lambda: 1.0, boot="b", step_timeout=None)

    async def scenario() -> None:
        await session.open()
        for seed in (3, 4):
            await session.reset(Reset(seed=seed), None)
            await session.step(GO, None)
        await session.close("client")

    run(scenario())
    return recorder.events


def played(target: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the scene after a reset and the frame after a step, as the environment itself tells them."""
    env: Any = gym.make(target).unwrapped
    env.reset(seed=3)
    scene = env.scene()
    env.step(1)
    return scene, env.frame()


@pytest.mark.parametrize("target", [PLUME, POPPER])
def test_an_episode_begins_with_the_scene_and_goes_on_with_frames(target: str) -> None:
    _, begun, stepped, *_ = events_of(target, scenes=True)

    scene, frame = played(target)
    assert (json.loads(bytes(begun.scene)), json.loads(bytes(stepped.scene))) == (scene, frame)
    assert "trail" not in frame


def test_a_sandbox_tells_the_same_scenes() -> None:
    pool = WorkerPool.start(Target(PLUME), SandboxRequest(), Tier.PROCESS)
    try:
        apart = events_of(PLUME, scenes=True, kind="process", pool=pool)
    finally:
        pool.end()

    assert apart[1:] == events_of(PLUME, scenes=True)[1:]


def test_nobody_draws_what_nobody_asked_for() -> None:
    _, begun, stepped, *_ = events_of(PLUME, scenes=False)

    assert bytes(begun.scene) == bytes(stepped.scene) == b"null"


def test_an_environment_without_a_picture_says_so() -> None:
    _, begun, stepped, *_ = events_of("CartPole-v1", scenes=True)

    assert bytes(begun.scene) == bytes(stepped.scene) == b"null"


def test_every_episode_says_which_reset_of_its_environment_began_it_and_how_it_ended() -> None:
    events = events_of(PLUME, scenes=False)

    assert [event.nth for event in events if isinstance(event, EpisodeReset)] == [1, 2]
    assert [event.steps for event in events if isinstance(event, EpisodeClosed)] == [1, 1]
    assert [event.reason for event in events if isinstance(event, EpisodeClosed)] == ["reset", "client"]
    assert [type(event).__name__ for event in events[1:5]] == [
        "EpisodeReset",
        EpisodeStepped.__name__,
        "EpisodeClosed",
        "EpisodeReset",
    ]
