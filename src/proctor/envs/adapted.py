"""Any Gymnasium environment as an `Environment`: five values become one observation, spaces become models.

Rule 1: the lifecycle is not judged here; whoever serves an environment does that for all of them alike.
Rule 2: the wire shape is `{"action": value}` and `{"observation": value}` for every environment, typed by hand or not.
Rule 3: models are shared by all environments whose spaces are described alike.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import gymnasium as gym
import msgspec
import numpy as np
from pydantic import JsonValue, create_model

from proctor.contracts.arguments import checked_count
from proctor.contracts.environment import ActT, Environment, ObsT, StateT
from proctor.contracts.guarded import GuardedEnv, checked_options
from proctor.contracts.toolboxes import declared_toolbox, generated_toolbox
from proctor.contracts.tools import Toolbox
from proctor.envs.pixels import drawn_scene
from proctor.envs.space_tools import space_toolbox
from proctor.errors import ComponentError, StateError
from proctor.models.array_words import told_parts
from proctor.models.infos import plain_info
from proctor.models.spaces import Codec, InSpace, codec_of, described, space_from
from proctor.models.wire import PLAIN, Action, Encoding, Observation, State, assembled

AnyEnv = gym.Env[Any, Any]
AnySpace = gym.Space[Any]

QUICK: Final = ("proctor.envs.", "gymnasium.envs.classic_control.", "gymnasium.envs.toy_text.")
"""Where the environments live whose steps take microseconds."""
THIN: Final = ("gymnasium.wrappers.", "proctor.envs.")
"""Where the wrappers live that add microseconds, as long as nothing is drawn."""
LARGEST_SEED: Final = 2**64 - 1
MOST_AGENTS: Final = 1000

_encode = msgspec.json.Encoder().encode


class AdaptedEnvironment(Environment[ActT, ObsT, StateT]):
    """What every adapted Gymnasium environment shares; a subclass says what its models hold."""

    def __init__(self, env: AnyEnv) -> None:
        self._env = env
        self.quick = is_quick(env)
        self._tell_agents(env.unwrapped.metadata or {})
        self._options: dict[str, JsonValue] | None = None
        self._episode_id: str | None = None
        self._step_count = 0
        self._latest: ObsT | None = None
        self._is_closed = False

    def _tell_agents(self, metadata: Mapping[str, Any]) -> None:
        """Let agents see what the author says in Gymnasium's `metadata`: `agent_info`, `shows_reward`, `max_agents`."""
        keys = metadata.get("agent_info", ())
        if isinstance(keys, str) or not all(isinstance(key, str) for key in keys):
            raise ComponentError(
                "agent_info is no list of keys", found=keys, expected="the keys of info that agents see"
            )
        self.agent_info = tuple(keys)
        self.shows_reward = metadata.get("shows_reward") is True
        self.max_agents = checked_count("max_agents", metadata.get("max_agents", 1), 1, MOST_AGENTS)

    @abstractmethod
    def _value_of(self, action: ActT) -> Any:
        """Return what `env.step` takes for `action`."""

    @abstractmethod
    def _seen(self, observation: Any) -> Any:
        """Return what the model's field `observation` holds for what the environment observed."""

    def configure(self, options: dict[str, JsonValue]) -> None:
        """Take options for the next reset; an environment of ours refuses unknown ones here, others when they reset."""
        inner = self._env.unwrapped
        if isinstance(inner, GuardedEnv):
            checked_options(options, inner.reset_options)
        self._options = dict(options) or None

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> ObsT:
        """Begin an episode; the options that `configure` took are used up."""
        options, self._options = self._options, None
        if seed is not None:
            seed = checked_count("seed", seed, 0, LARGEST_SEED, clause="ENV-RESET-P2")
        observation, info = self._env.reset(seed=seed, options=options)
        answer = self._answer(observation, None, False, False, info)
        self._episode_id = episode_id
        self._step_count = 0
        self._latest = answer
        return answer

    def step(self, action: ActT) -> ObsT:
        """Return what the action leads to; `metadata` is Gymnasium's info."""
        observation, reward, terminated, truncated, info = self._env.step(self._value_of(action))
        if type(reward) is not float or not math.isfinite(reward):
            reward = checked_reward(reward)
        answer = self._answer(observation, reward, bool(terminated), bool(truncated), info)
        self._step_count += 1
        self._latest = answer
        return answer

    def _answer(
        self, observation: Any, reward: float | None, terminated: bool, truncated: bool, info: dict[str, Any]
    ) -> ObsT:
        return assembled(
            self.observation_type,
            {
                "reward": reward,
                "terminated": terminated,
                "truncated": truncated,
                "metadata": plain_info(info) if info else {},
                "observation": self._seen(observation),
            },
        )

    def latest(self) -> ObsT:
        """Return the latest observation, or raise a StateError before the first reset."""
        if self._latest is None:
            raise StateError("nothing has been observed yet", expected="a reset, which begins an episode")
        return self._latest

    def toolbox(self) -> Toolbox:
        """Return the decorated methods as tools; if there are none, `observe` and `act`."""
        declared = declared_toolbox(self, self.action_type, self.observation_type)
        return self._generated() if declared is None else declared

    def _generated(self) -> Toolbox:
        return generated_toolbox(self.action_type, self.observation_type, self.latest)

    def scene(self, *, begins: bool) -> Any:
        """Return the scene of an environment of ours, and later its frame; of others their pixels, if they draw any."""
        inner = self._env.unwrapped
        if not isinstance(inner, GuardedEnv):
            return drawn_scene(self._env, begins=begins)
        return inner.scene() if begins else inner.frame()

    def close(self) -> None:
        """Close the environment; calling it again does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._env.close()

    @property
    def name(self) -> str:
        """The id under which the environment is registered, else its class's name."""
        spec = self._env.spec
        return type(self._env.unwrapped).__name__ if spec is None else spec.id

    @property
    def description(self) -> str:
        """The first line, but for headings, of what the environment says of itself."""
        lines = (line.strip() for line in (type(self._env.unwrapped).__doc__ or "").splitlines())
        return next((line for line in lines if line and not line.startswith("#")), "")

    @property
    def version(self) -> str:
        """The version in the registered id; 0 if there is none."""
        spec = self._env.spec
        return "0" if spec is None or spec.version is None else str(spec.version)

    @property
    def spaces(self) -> tuple[AnySpace, AnySpace]:
        """The spaces of action and observation."""
        return self._env.action_space, self._env.observation_space


class AdaptedAction(Action):
    """`{"action": value}`; the field is made from the space."""

    if TYPE_CHECKING:
        action: Any


class AdaptedObservation(Observation):
    """`{"observation": value}`; the field is made from the space."""

    codec: ClassVar[Codec]

    if TYPE_CHECKING:
        observation: Any

    def inside(self, encoding: Encoding = PLAIN) -> bytes:
        """Return what pydantic would write, in less time."""
        return _encode({"observation": self.codec.encode(self.observation, encoding)})


class GymEnvironment(AdaptedEnvironment[AdaptedAction, AdaptedObservation, State]):
    """A Gymnasium environment whose models are made from its spaces."""

    def __init__(self, env: AnyEnv) -> None:
        super().__init__(env)
        self.action_type = action_model(env.action_space)
        self.observation_type = observation_model(env.observation_space)

    def _value_of(self, action: AdaptedAction) -> Any:
        return action.action

    def _seen(self, observation: Any) -> Any:
        return observation

    def _generated(self) -> Toolbox:
        return space_toolbox(self._env, self._said, self.latest)

    def _said(self, value: Any) -> AdaptedAction:
        return assembled(self.action_type, {"action": value})

    def told(self, observation: AdaptedObservation) -> str:
        """Return each part of the observation on a line of its own."""
        return told_parts("observation", observation.observation)

    @property
    def state(self) -> State:
        """The episode and how many steps it has had."""
        return State(episode_id=self._episode_id, step_count=self._step_count)


def action_model(space: AnySpace) -> type[AdaptedAction]:
    """Return the action model of all spaces that are described as this one is."""
    return _action_model(_encode(described(space)))


def observation_model(space: AnySpace) -> type[AdaptedObservation]:
    """Return the observation model of all spaces that are described as this one is."""
    return _observation_model(_encode(described(space)))


@lru_cache(maxsize=64)
def _codec(description: bytes) -> Codec:
    return codec_of(space_from(msgspec.json.decode(description)))


@lru_cache(maxsize=64)
def _action_model(description: bytes) -> type[AdaptedAction]:
    field: Any = (Annotated[Any, InSpace(_codec(description))], ...)
    return create_model("AdaptedAction", __base__=AdaptedAction, __doc__=AdaptedAction.__doc__, action=field)


@lru_cache(maxsize=64)
def _observation_model(description: bytes) -> type[AdaptedObservation]:
    codec = _codec(description)
    # Not bounded: what an environment observes beyond its own bounds still reaches whoever reads it.
    field: Any = (Annotated[Any, InSpace(codec, bounded=False)], ...)
    model = create_model(
        "AdaptedObservation", __base__=AdaptedObservation, __doc__=AdaptedObservation.__doc__, observation=field
    )
    model.codec = codec
    return model


def checked_reward(reward: Any) -> float:
    """Return a reward as a finite float, or raise a ComponentError."""
    try:
        number = float(reward.item() if isinstance(reward, np.ndarray) else reward)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ComponentError("the environment's reward is no finite number", found=reward, expected="a finite number")
    return number


def is_quick(env: AnyEnv) -> bool:
    """Return whether every layer of `env` is known to take microseconds and to draw nothing."""
    if env.render_mode is not None:
        return False
    layer = env
    while isinstance(layer, gym.Wrapper):
        if not _lives_in(layer, THIN):
            return False
        layer = layer.env
    return _lives_in(layer, QUICK)


def _lives_in(layer: AnyEnv, places: tuple[str, ...]) -> bool:
    return type(layer).__module__.startswith(places)
