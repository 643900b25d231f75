"""Openers for Gymnasium environments, ours and others alike: both sides of a row are driven by the same code.

Rule 1: actions are drawn before the clock runs, as plain ints for one environment and as int64 rows for a batch.
Rule 2: a step that only resets, as vector environments have them, counts as a step on both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from bench.measure import Probe, drawn_actions, rate_of, stepping
from bench.row import Opener
from proctor.envs.registration import register

SINGLE_ACTIONS: Final = 4096
BATCH_STEPS: Final = 16
RESETS: Final = 64


def made(stack: ExitStack, env_id: str, *, unwrapped: bool = False, **options: Any) -> Any:
    """Return a fresh, reset environment that `stack` closes."""
    register()
    env: Any = gym.make(env_id, **options)
    stack.callback(env.close)
    env.reset(seed=0)
    return env.unwrapped if unwrapped else env


def made_vector(stack: ExitStack, env_id: str, num_envs: int, mode: str | None = None, **options: Any) -> Any:
    """Return a fresh, reset vector environment that `stack` closes; `mode` None takes the best one there is."""
    register()
    env: Any = gym.make_vec(env_id, num_envs=num_envs, vectorization_mode=mode, **options)
    stack.callback(env.close)
    env.reset(seed=0)
    return env


def drawn_rows(kinds: int, steps: int, num_envs: int) -> NDArray[np.int64]:
    """Return random actions for `steps` steps of a batch, shape (steps, num_envs)."""
    return np.random.default_rng(0).integers(kinds, size=(steps, num_envs))


def single(env_id: str, *, unwrapped: bool = False, **options: Any) -> Opener:
    """Steps a second of one environment, resets included."""

    def opened(stack: ExitStack) -> Probe:
        env = made(stack, env_id, unwrapped=unwrapped, **options)
        return rate_of(stepping(env, drawn_actions(SINGLE_ACTIONS, int(env.action_space.n))))

    return opened


def batched(env_id: str, num_envs: int, mode: str | None = None, **options: Any) -> Opener:
    """Environment steps a second of a vector environment."""

    def opened(stack: ExitStack) -> Probe:
        env = made_vector(stack, env_id, num_envs, mode, **options)
        rows = drawn_rows(int(env.single_action_space.n), BATCH_STEPS, num_envs)
        return rate_of(stepping_batch(env, rows))

    return opened


def stepping_batch(env: Any, rows: NDArray[np.int64]) -> Callable[[], int]:
    """Return a chunk that makes one step of the batch with each row of actions."""
    step = env.step

    def chunk() -> int:
        for actions in rows:
            step(actions)
        return rows.size

    return chunk


def resets(env_id: str, **options: Any) -> Opener:
    """Resets a second of one environment, each with the next episode's own seed."""

    def opened(stack: ExitStack) -> Probe:
        return rate_of(_resetting(made(stack, env_id, **options), 1))

    return opened


def batched_resets(env_id: str, num_envs: int, mode: str | None = None, **options: Any) -> Opener:
    """Environment resets a second of a vector environment, the whole batch at a time."""

    def opened(stack: ExitStack) -> Probe:
        return rate_of(_resetting(made_vector(stack, env_id, num_envs, mode, **options), num_envs))

    return opened


def _resetting(env: Any, num_envs: int) -> Callable[[], int]:
    reset = env.reset

    def chunk() -> int:
        for _ in range(RESETS):
            reset()
        return RESETS * num_envs

    return chunk
