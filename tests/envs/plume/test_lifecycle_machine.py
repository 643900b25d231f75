"""Any order of calls with any arguments keeps the environment beside a naive model of a few lines.

The model knows a state, two counters and a cell; it never asks the environment what comes next. The only things it takes
from the environment are what chance decides: the start cell and the seed of an unseeded episode.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proctor.contracts.lifecycle import EnvironmentState, LifecycleMethod
from proctor.contracts.spatial import AgentState
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.errors import StateError, ValidationError

WIDTH, HEIGHT, SOURCE, RADIUS, MAX_STEPS = 6, 5, (3, 2), 1.0, 7
MOVES = ((0, 1), (1, 0), (0, -1), (-1, 0))
PENALTY = 0.125

GOOD_ACTIONS: tuple[Any, ...] = (0, 1, 2, 3, np.int64(1), np.uint8(2), np.array(3))
BAD_ACTIONS: tuple[Any, ...] = (-1, 4, True, 1.0, "0", None, [0], np.array([0]), math.nan, np.True_)
GOOD_SEEDS: tuple[Any, ...] = (None, 0, 1, 2, np.int64(3), 2**31 - 1)
BAD_SEEDS: tuple[Any, ...] = (-1, 2**31, True, 1.5, "1", [1], np.float32(1))
GOOD_OPTIONS: tuple[Any, ...] = (
    None,
    {},
    {"start": (0, 0)},
    {"start": [3, 4], "orientation": -90},
    {"orientation": 725.0},
)
BAD_OPTIONS: tuple[Any, ...] = ([], {"nowhere": 1}, {"start": (6, 0)}, {"start": (1.0, 1)}, {"orientation": math.nan})


class Exam:
    """One environment and the model beside it; each method makes one call and judges what came of it."""

    def __init__(self, number: int) -> None:
        self.env = PlumeSearchEnv(
            grid_size=(WIDTH, HEIGHT),
            source_location=SOURCE,
            goal_radius=RADIUS,
            max_steps=MAX_STEPS,
            config={"reward": {"type": "step_penalty", "step_penalty": PENALTY}},
            render_mode="rgb_array",
        )
        self.env.np_random = np.random.default_rng(number)
        self.state = "created"
        self.steps = 0
        self.episodes = 0
        self.cell: tuple[int, int] | None = None
        self.orientation = 0.0
        self.total = 0.0
        self.seed: int | None = None
        self.starts: dict[int, tuple[int, int]] = {}

    def reset(self, seed: Any, options: Any) -> None:
        """Reset with good arguments."""
        if self._refused(LifecycleMethod.RESET, lambda: self.env.reset(seed=seed, options=options)):
            return
        observation, info = self.env.reset(seed=seed, options=options)
        self.state = "ready"
        self.steps, self.total = 0, 0.0
        self.episodes += 1
        self.seed = info["seed"] if seed is None else int(seed)
        self.cell = self._expected_start(info["agent_xy"], options or {})
        self.orientation = (options or {}).get("orientation", 0.0) % 360.0
        assert info["seed"] == self.seed
        assert info["episode"] == self.episodes
        assert info["agent_xy"] == self.cell
        self._check_observation(observation)

    def reset_badly(self, seed: Any, options: Any) -> None:
        """Reset with an argument that is refused."""
        if self._refused(LifecycleMethod.RESET, lambda: self.env.reset(seed=seed, options=options)):
            return
        self._must_raise(ValidationError, lambda: self.env.reset(seed=seed, options=options))

    def step(self, action: Any) -> None:
        """Step with a legal action."""
        if self._refused(LifecycleMethod.STEP, lambda: self.env.step(action)):
            return
        observation, reward, terminated, truncated, info = self.env.step(action)
        dx, dy = MOVES[int(action)]
        assert self.cell is not None
        self.cell = (min(max(self.cell[0] + dx, 0), WIDTH - 1), min(max(self.cell[1] + dy, 0), HEIGHT - 1))
        self.steps += 1
        found, late = math.dist(self.cell, SOURCE) <= RADIUS, self.steps == MAX_STEPS
        self.state = "terminated" if found else "truncated" if late else "ready"
        expected_reward = 1.0 if found else -PENALTY
        self.total += expected_reward
        assert (reward, terminated, truncated) == (expected_reward, found, late)
        assert info == {
            "step_count": self.steps,
            "total_reward": self.total,
            "goal_reached": found,
            "agent_xy": self.cell,
            "distance_to_source": math.dist(self.cell, SOURCE),
        }
        self._check_observation(observation)

    def step_badly(self, action: Any) -> None:
        """Step with an action that is refused."""
        if self._refused(LifecycleMethod.STEP, lambda: self.env.step(action)):
            return
        self._must_raise(ValidationError, lambda: self.env.step(action))

    def render(self) -> None:
        """Ask for a picture."""
        if self._refused(LifecycleMethod.RENDER, self.env.render):
            return
        picture = self.env.render()
        assert picture.dtype == np.uint8
        assert picture.ndim == 3

    def look(self) -> None:
        """Ask for the scene; it is legal where a picture is, but no row of the table."""
        if self.state in ("created", "closed"):
            self._must_raise(StateError, self.env.scene)
            return
        frame = self.env.scene()["frame"]
        assert self.cell is not None
        assert (frame["agent"]["at"], frame["step"], frame["state"]) == (list(self.cell), self.steps, self.state)

    def close(self) -> None:
        """Close the environment, perhaps again."""
        self.env.close()
        self.state = "closed"

    def check(self) -> None:
        """Check that the environment is where the model is, and the invariants I1 to I9."""
        env = self.env
        assert str(env.state) == self.state
        assert (env.step_count, env.episode_count, env.seed) == (self.steps, self.episodes, self.seed)
        agent = env.agent_state
        if self.cell is None:
            assert agent is None
        else:
            assert agent is not None
            assert (agent.position.x, agent.position.y) == self.cell
            assert (agent.orientation, agent.step_count, agent.total_reward) == (
                self.orientation,
                self.steps,
                self.total,
            )
        check_invariants(env)

    def _refused(self, method: LifecycleMethod, call: Callable[[], Any]) -> bool:
        """Return whether the model says that `method` is not legal now; if so the call must be a StateError."""
        legal = {
            LifecycleMethod.RESET: self.state != "closed",
            LifecycleMethod.STEP: self.state == "ready",
            LifecycleMethod.RENDER: self.state in ("ready", "terminated", "truncated"),
        }[method]
        if legal:
            return False
        self._must_raise(StateError, call)
        return True

    def _must_raise(self, error: type[Exception], call: Callable[[], Any]) -> None:
        before = self._picture()
        try:
            call()
        except error:
            assert self._picture() == before, "a refused call left a trace"
        else:
            raise AssertionError(f"no {error.__name__} in the state {self.state}")

    def _picture(self) -> tuple[Any, ...]:
        env = self.env
        random_state = repr(env.np_random.bit_generator.state)
        return (env.state, env.step_count, env.episode_count, env.seed, env.agent_state, env.plume_field, random_state)

    def _expected_start(self, shown: tuple[int, int], options: dict[str, Any]) -> tuple[int, int]:
        """Return the start cell that the options or the seed ask for; a seed that is new decides for good."""
        if "start" in options:
            x, y = options["start"]
            return (x, y)
        assert math.dist(shown, SOURCE) > RADIUS
        assert self.seed is not None
        return self.starts.setdefault(self.seed, shown)

    def _check_observation(self, observation: Any) -> None:
        assert self.cell is not None
        assert self.env.observation_space.contains(observation)
        expected = math.exp(-(math.dist(self.cell, SOURCE) ** 2) / (2 * 12.0**2))
        assert math.isclose(observation[0], expected, rel_tol=1e-6)


def check_invariants(env: PlumeSearchEnv) -> None:
    """Check I1 to I9; I4 and I8, that the episode count never falls, are in the model's own count."""
    state = env._state
    assert isinstance(state, EnvironmentState)  # I1
    if state is EnvironmentState.READY:
        agent = env._agent_state
        assert isinstance(agent, AgentState)  # I2
        assert 0.0 <= agent.orientation < 360.0
        assert env._step_count <= env._max_steps  # I7
    if state is EnvironmentState.CLOSED:  # I3
        for call in (env.reset, lambda: env.step(0), env.render, env.scene):
            try:
                call()
            except StateError:
                continue
            raise AssertionError("a closed environment answered")
    assert env._episode_count >= 0  # I4
    assert None not in (env._action_proc, env._obs_model, env._reward_fn, env._plume)  # I5
    assert env._step_count >= 0  # I6
    assert env._seed is None or 0 <= env._seed < 2**31  # I9


class LifecycleMachine(RuleBasedStateMachine):
    """Calls in any order; after each one the model and the invariants are compared."""

    exam: Exam

    @initialize(number=st.integers(0, 1000))
    def create(self, number: int) -> None:
        self.exam = Exam(number)

    @rule(seed=st.sampled_from(GOOD_SEEDS) | st.integers(0, 2**31 - 1), options=st.sampled_from(GOOD_OPTIONS))
    def reset(self, seed: Any, options: Any) -> None:
        self.exam.reset(seed, options)

    @rule(seed=st.sampled_from(BAD_SEEDS), options=st.sampled_from(GOOD_OPTIONS))
    def reset_with_a_bad_seed(self, seed: Any, options: Any) -> None:
        self.exam.reset_badly(seed, options)

    @rule(seed=st.sampled_from(GOOD_SEEDS), options=st.sampled_from(BAD_OPTIONS))
    def reset_with_bad_options(self, seed: Any, options: Any) -> None:
        self.exam.reset_badly(seed, options)

    @rule(action=st.sampled_from(GOOD_ACTIONS))
    def step(self, action: Any) -> None:
        self.exam.step(action)

    @precondition(lambda self: self.exam.state == "ready")
    @rule(actions=st.lists(st.sampled_from(GOOD_ACTIONS), min_size=1, max_size=8))
    def walk(self, actions: list[Any]) -> None:
        for action in actions:
            self.exam.step(action)
            self.exam.check()

    @rule(action=st.sampled_from(BAD_ACTIONS))
    def step_with_a_bad_action(self, action: Any) -> None:
        self.exam.step_badly(action)

    @rule()
    def render(self) -> None:
        self.exam.render()

    @rule()
    def look(self) -> None:
        self.exam.look()

    @rule()
    def close(self) -> None:
        self.exam.close()

    @invariant()
    def the_model_and_the_environment_agree(self) -> None:
        self.exam.check()


LifecycleMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestAnyOrderOfCallsAgreesWithTheModel = LifecycleMachine.TestCase
