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
from proctor.contracts.spatial import AgentState, Coordinates
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
    None, {}, {"start": (0, 0)}, {"start": [3, 4], "orientation": -90}, {"orientation": 725.0},
)  # fmt: skip
BAD_OPTIONS: tuple[Any, ...] = ([], {"nowhere": 1}, {"start": (6, 0)}, {"start": (1.0, 1)}, {"orientation": math.nan})


class LifecycleMachine(RuleBasedStateMachine):
    """Calls in any order; after each one the model and the environment are compared."""

    @initialize(number=st.integers(0, 1000))
    def create(self, number: int) -> None:
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
        self.steps = self.episodes = 0
        self.cell: tuple[int, int] | None = None
        self.orientation = self.total = 0.0
        self.seed: int | None = None
        self.starts: dict[int, tuple[int, int]] = {}

    @rule(seed=st.sampled_from(GOOD_SEEDS) | st.integers(0, 2**31 - 1), options=st.sampled_from(GOOD_OPTIONS))
    def reset(self, seed: Any, options: Any) -> None:
        if self._refused(LifecycleMethod.RESET, lambda: self.env.reset(seed=seed, options=options)):
            return
        observation, info = self.env.reset(seed=seed, options=options)
        self.state = "ready"
        self.steps, self.total = 0, 0.0
        self.episodes += 1
        self.seed = info["seed"] if seed is None else int(seed)
        self.cell = self._expected_start(info["agent_xy"], options or {})
        self.orientation = (options or {}).get("orientation", 0.0) % 360.0
        assert (info["seed"], info["episode"], info["agent_xy"]) == (self.seed, self.episodes, self.cell)
        self._check_observation(observation)

    @rule(seed=st.sampled_from(BAD_SEEDS), options=st.sampled_from(GOOD_OPTIONS))
    def reset_with_a_bad_seed(self, seed: Any, options: Any) -> None:
        self._refuses_arguments(LifecycleMethod.RESET, lambda: self.env.reset(seed=seed, options=options))

    @rule(seed=st.sampled_from(GOOD_SEEDS), options=st.sampled_from(BAD_OPTIONS))
    def reset_with_bad_options(self, seed: Any, options: Any) -> None:
        self._refuses_arguments(LifecycleMethod.RESET, lambda: self.env.reset(seed=seed, options=options))

    @rule(action=st.sampled_from(GOOD_ACTIONS))
    def step(self, action: Any) -> None:
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

    @precondition(lambda self: self.state == "ready")
    @rule(actions=st.lists(st.sampled_from(GOOD_ACTIONS), min_size=1, max_size=8))
    def walk(self, actions: list[Any]) -> None:
        for action in actions:
            self.step(action)
            self.the_model_and_the_environment_agree()

    @rule(action=st.sampled_from(BAD_ACTIONS))
    def step_with_a_bad_action(self, action: Any) -> None:
        self._refuses_arguments(LifecycleMethod.STEP, lambda: self.env.step(action))

    @rule()
    def render(self) -> None:
        if not self._refused(LifecycleMethod.RENDER, self.env.render):
            picture = self.env.render()
            assert (picture.dtype, picture.ndim) == (np.uint8, 3)

    @rule()
    def look(self) -> None:
        """Ask for the scene; it is legal where a picture is, but no row of the table."""
        if self.state in ("created", "closed"):
            self._must_raise(StateError, self.env.scene)
            return
        frame = self.env.scene()["frame"]
        assert self.cell is not None
        assert (frame["agent"]["at"], frame["step"], frame["state"]) == (list(self.cell), self.steps, self.state)

    @rule()
    def close(self) -> None:
        self.env.close()
        self.state = "closed"

    @invariant()
    def the_model_and_the_environment_agree(self) -> None:
        """Check the invariants I1 to I9; the model itself keeps its counters and its heading in their ranges."""
        env, agent = self.env, self.env.agent_state
        assert isinstance(env._state, EnvironmentState)
        assert str(env.state) == self.state
        assert (env.step_count, env.episode_count, env.seed) == (self.steps, self.episodes, self.seed)
        assert None not in (env._action_proc, env._obs_model, env._reward_fn, env._plume)
        if self.cell is None:
            assert agent is None
        else:
            assert agent is not None
            model = AgentState(Coordinates(*self.cell), self.orientation, self.steps, self.total, agent.goal_reached)
            assert agent == model
        if self.state == "closed":
            for call in (env.reset, lambda: env.step(0), env.render, env.scene):
                self._must_raise(StateError, call)

    def _refused(self, method: LifecycleMethod, call: Callable[[], Any]) -> bool:
        """Return whether the model says that `method` is not legal now; if so the call must be a StateError."""
        legal = {
            LifecycleMethod.RESET: self.state != "closed",
            LifecycleMethod.STEP: self.state == "ready",
            LifecycleMethod.RENDER: self.state in ("ready", "terminated", "truncated"),
        }[method]
        if not legal:
            self._must_raise(StateError, call)
        return not legal

    def _refuses_arguments(self, method: LifecycleMethod, call: Callable[[], Any]) -> None:
        if not self._refused(method, call):
            self._must_raise(ValidationError, call)

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


LifecycleMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestAnyOrderOfCallsAgreesWithTheModel = LifecycleMachine.TestCase
