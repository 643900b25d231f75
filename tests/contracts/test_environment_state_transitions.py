"""The tests that the contract of the environment's state machine lists by name, one for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.contracts.lifecycle import EnvironmentState
from proctor.contracts.spatial import AgentState
from proctor.envs.plume.actions import EightDirectionActions
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.errors import StateError

CREATED, READY, TERMINATED, TRUNCATED, CLOSED = EnvironmentState
UP, RIGHT, DOWN = 0, 1, 2


def created() -> PlumeSearchEnv:
    """Five by five cells, the source in the middle, three steps."""
    return PlumeSearchEnv(grid_size=(5, 5), max_steps=3)


def ready(**options: Any) -> PlumeSearchEnv:
    env = created()
    env.reset(seed=1, options={"start": (0, 0), **options})
    return env


def terminated() -> PlumeSearchEnv:
    env = ready(start=(0, 2))
    env.step(RIGHT)
    return env


def truncated() -> PlumeSearchEnv:
    env = ready()
    for action in (UP, DOWN, DOWN):
        env.step(action)
    return env


def closed() -> PlumeSearchEnv:
    env = ready()
    env.close()
    return env


MAKERS = {CREATED: created, READY: ready, TERMINATED: terminated, TRUNCATED: truncated, CLOSED: closed}


def wander(env: PlumeSearchEnv) -> list[EnvironmentState]:
    """Reset, step to the end, reset and close; return every state on the way."""
    states = [env.state]
    env.reset(seed=3)
    states.append(env.state)
    while env.state is READY:
        env.step(UP)
        states.append(env.state)
    env.reset()
    states.append(env.state)
    env.close()
    return [*states, env.state]


def test_initial_state_is_created() -> None:
    assert created()._state is CREATED


def rule_that_refuses(call: Callable[..., Any], *arguments: Any) -> str | None:
    with pytest.raises(StateError) as caught:
        call(*arguments)
    return caught.value.clause


def test_cannot_step_before_reset() -> None:
    assert rule_that_refuses(created().step, UP) == "NO-STEP-BEFORE-RESET"


def test_reset_transitions_to_ready() -> None:
    env = created()
    env.reset(seed=1)

    assert env._state is READY


def test_step_keeps_ready_when_not_terminal() -> None:
    env = ready()
    _, _, terminated, truncated, _ = env.step(UP)

    assert (env._state, terminated, truncated) == (READY, False, False)


def test_step_transitions_to_terminated_on_goal() -> None:
    env = ready(start=(0, 2))
    _, reward, terminated, truncated, info = env.step(RIGHT)

    assert (env._state, terminated, truncated) == (TERMINATED, True, False)
    assert (reward, info["goal_reached"]) == (1.0, True)


def test_step_transitions_to_truncated_on_timeout() -> None:
    env = ready()
    flags = [env.step(action)[2:4] for action in (UP, DOWN, DOWN)]

    assert flags == [(False, False), (False, False), (False, True)]
    assert env._state is TRUNCATED


def test_a_goal_on_the_last_step_sets_both_flags_and_terminates() -> None:
    env = PlumeSearchEnv(grid_size=(5, 5), max_steps=1)
    env.reset(seed=1, options={"start": (0, 2)})
    _, _, terminated, truncated, _ = env.step(RIGHT)

    assert (env._state, terminated, truncated) == (TERMINATED, True, True)


def test_can_reset_from_terminated() -> None:
    env = terminated()
    env.reset()

    assert env._state is READY


def test_can_reset_from_truncated() -> None:
    env = truncated()
    env.reset()

    assert env._state is READY


@pytest.mark.parametrize("state", EnvironmentState)
def test_close_from_any_state(state: EnvironmentState) -> None:
    env = MAKERS[state]()
    before = env._state
    env.close()

    assert (before, env._state) == (state, CLOSED)


def test_cannot_reset_after_close() -> None:
    assert rule_that_refuses(closed().reset) == "NO-RESET-AFTER-CLOSE"


def test_cannot_step_after_close() -> None:
    assert rule_that_refuses(closed().step, UP) == "NO-STEP-AFTER-CLOSE"


@pytest.mark.parametrize("state", [TERMINATED, TRUNCATED])
def test_cannot_step_after_the_end_and_nothing_changes(state: EnvironmentState) -> None:
    env = MAKERS[state]()
    before = (env.agent_state, env.step_count, env.state)

    assert rule_that_refuses(env.step, UP) == "NO-STEP-AFTER-END"
    assert (env.agent_state, env.step_count, env.state) == before


def test_close_is_idempotent() -> None:
    env = ready()
    for _ in range(3):
        env.close()

    assert env._state is CLOSED


def test_state_always_valid() -> None:
    states = wander(created())

    assert all(isinstance(state, EnvironmentState) for state in states)
    assert {states[0], states[-1]} == {CREATED, CLOSED}


def test_agent_state_exists_when_ready() -> None:
    env = created()
    before = env._agent_state
    env.reset(seed=1, options={"orientation": -90.0})
    agent = env._agent_state

    assert before is None
    assert isinstance(agent, AgentState)
    assert agent.orientation == 270.0


def test_episode_count_monotonic() -> None:
    env = created()
    counts = [env._episode_count]
    for _ in range(3):
        env.reset()
        env.step(UP)
        counts.append(env._episode_count)
    env.close()

    assert counts == [0, 1, 2, 3]
    assert env._episode_count == 3


def test_step_count_non_negative() -> None:
    env = created()
    counts = [env._step_count]
    env.reset(seed=1, options={"start": (0, 0)})
    for action in (UP, DOWN, DOWN):
        env.step(action)
        counts.append(env._step_count)

    assert counts == [0, 1, 2, 3]


def test_step_count_resets_with_episode() -> None:
    env = truncated()
    before = env._step_count
    env.reset()

    assert (before, env._step_count) == (3, 0)


@given(max_steps=st.integers(1, 20))
def test_step_count_bounded(max_steps: int) -> None:
    env = PlumeSearchEnv(grid_size=(9, 9), max_steps=max_steps)
    env.reset(seed=1, options={"start": (0, 0)})
    while env._state is READY:
        assert env._step_count <= max_steps
        env.step(2)

    assert env._step_count == max_steps


@given(seed=st.integers(0, 2**31 - 1))
def test_reset_determinism(seed: int) -> None:
    one, other = created(), created()
    first, info = one.reset(seed=seed)
    second, same_info = other.reset(seed=seed)

    assert np.array_equal(first, second)
    assert info == same_info
    assert one.agent_state == other.agent_state


@given(seed=st.integers(0, 2**31 - 1), actions=st.lists(st.integers(0, 8)))
def test_episode_determinism(seed: int, actions: list[int]) -> None:
    envs = [PlumeSearchEnv(grid_size=(7, 7), max_steps=30, action_processor=EightDirectionActions()) for _ in range(2)]
    for env in envs:
        env.reset(seed=seed)
    for action in actions:
        if envs[0].state is not READY:
            break
        one, other = (env.step(action) for env in envs)

        assert np.array_equal(one[0], other[0])
        assert one[1:] == other[1:]
