"""Any Gymnasium environment as an `Environment`: five values become one observation, spaces become models.

Rule 1: the lifecycle is not judged here; whoever serves an environment does that for all of them alike.
Rule 2: the wire shape is `{"action": value}` and `{"observation": value}` for every environment, typed by hand or not.
Rule 3: models are shared by all environments whose spaces are described alike.
Rule 4: an environment's pictures (`render()` in the mode `rgb_array`) are for people who look at the record: one that
    fails, or is strange or huge, is no picture, and never fails the step that it was taken of.
Rule 5: its tools are `observe` and `act`. Actions that the author named are taken by their names: `action_names`,
    `get_action_meanings()` or `metadata["action_names"]`, whichever is there first, as long as every action of a `Discrete`
    has a name of its own. What the author wrote of actions and observations (Gymnasium's sections "## Action Space" and
    "## Observation Space") is told to agents; what is written of rewards is not.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from inspect import cleandoc
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

import gymnasium as gym
import msgspec
import numpy as np
from gymnasium import spaces
from pydantic import JsonValue, create_model

from proctor.contracts.arguments import parse_count
from proctor.contracts.environment import ActT, Environment, ObsT, StateT
from proctor.contracts.guarded_env import GuardedEnv, parse_reset_options
from proctor.contracts.toolboxes import (
    act_tool,
    observe_act_toolbox,
    observe_tool,
    toolbox_from_methods,
    toolbox_from_types,
)
from proctor.contracts.tools import Tool, Toolbox, ToolMessage, make_json_schema
from proctor.errors import ComponentError, StateError
from proctor.models.arrays import describe_parts, make_pixels_scene, pack_array
from proctor.models.infos import info_to_json
from proctor.models.space_fields import InSpace, SpaceArgument, describe_space_argument
from proctor.models.spaces import Codec, codec_of, described, space_from
from proctor.models.wire import PLAIN, Action, Encoding, Observation, State, assemble_model

GymEnv = gym.Env[Any, Any]
Names = tuple[str, ...] | None

LONGEST: Final = 3000  # characters of an author's text that agents are told

_encode = msgspec.json.Encoder().encode


def space_toolbox(env: GymEnv, made: Callable[[Any], Action], latest: Callable[[], Observation]) -> Toolbox:
    """Return the tools of an environment; `made` turns a value of its action space into an action."""
    doc = type(env.unwrapped).__doc__
    observe, act, model = _tools(
        _encode(described(env.action_space)),
        _encode(described(env.observation_space)),
        find_action_names(env),
        read_doc_section(doc, "Action Space"),
        read_doc_section(doc, "Observation Space"),
    )
    validate: Callable[[bytes], Any] = model.__pydantic_validator__.validate_json

    def read(arguments: bytes) -> Action:
        return made(validate(arguments).action)

    return observe_act_toolbox(observe, act, read, latest)


@lru_cache(maxsize=64)
def _tools(
    action: bytes, observation: bytes, names: Names, about_action: str, about_observation: str
) -> tuple[Tool, Tool, type[ToolMessage]]:
    """Return `observe`, `act` and the model of its arguments for spaces that are described like this."""
    action_space, observation_space = (space_from(msgspec.json.decode(text)) for text in (action, observation))
    field: Any = (Annotated[Any, SpaceArgument(action_space, names)], ...)
    model = create_model("act", __base__=ToolMessage, action=field)
    observed = f"An observation is {describe_space_argument(observation_space)}."
    acted = f"The action is {describe_space_argument(action_space, names)}."
    return observe_tool(observed, about_observation), act_tool(make_json_schema(model), acted, about_action), model


def find_action_names(env: GymEnv) -> Names:
    """Return the names that the author gave to the actions, from the first to the last; None if there are none."""
    inner = env.unwrapped
    found = getattr(inner, "action_names", None)
    if found is None and hasattr(inner, "get_action_meanings"):
        found = inner.get_action_meanings()
    if found is None:
        found = (inner.metadata or {}).get("action_names")
    space = env.action_space
    if not isinstance(space, spaces.Discrete):
        return None
    if isinstance(found, Mapping):
        found = [found.get(int(space.start) + place) for place in range(len(found))]
    if not isinstance(found, Sequence) or isinstance(found, str) or len(found) != space.n:
        return None
    names = tuple(name for name in found if isinstance(name, str) and name)
    return names if len(set(names)) == space.n else None


@lru_cache(maxsize=128)
def read_doc_section(doc: str | None, heading: str) -> str:
    """Return the section under this heading of an environment's docstring; "" if it has none."""
    lines = cleandoc(doc or "").splitlines()
    starts = [place for place, line in enumerate(lines) if line.strip().lower() == f"## {heading}".lower()]
    if not starts:
        return ""
    section = lines[starts[0] + 1 :]
    end = next((place for place, line in enumerate(section) if line.lstrip().startswith("## ")), len(section))
    text = cleandoc("\n" + "\n".join(section[:end]))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."


CHANNELS: Final = (1, 3, 4)  # grey, RGB, RGBA
MOST_BYTES: Final = 2**24  # of a picture that is kept
_RAISED: Final = (Exception, SystemExit)  # what somebody else's code may raise


def render_scene(env: GymEnv, *, begins: bool) -> dict[str, Any] | None:
    """Return a picture of where the environment stands, as a scene or as its frame; None: it draws none."""
    try:
        picture = env.render() if env.render_mode == "rgb_array" else None
    except _RAISED:
        return None
    if not isinstance(picture, np.ndarray) or picture.dtype != np.uint8 or not 0 < picture.nbytes <= MOST_BYTES:
        return None
    if picture.ndim != 2 and (picture.ndim != 3 or picture.shape[2] not in CHANNELS):
        return None
    return make_pixels_scene(pack_array(picture, compress=True), begins=begins)


AnySpace = gym.Space[Any]

# Where the environments live whose steps take microseconds, and the wrappers that add some, as long as nothing is drawn.
QUICK: Final = ("proctor.envs.", "gymnasium.envs.classic_control.", "gymnasium.envs.toy_text.")
THIN: Final = ("gymnasium.wrappers.", "proctor.envs.")
LARGEST_SEED: Final = 2**64 - 1
MOST_AGENTS: Final = 1000


class AdaptedEnvironment(Environment[ActT, ObsT, StateT]):
    """What every adapted Gymnasium environment shares; a subclass says what its models hold."""

    def __init__(self, env: GymEnv) -> None:
        self._env = env
        self.quick = is_quick(env)
        self._read_agent_metadata(env.unwrapped.metadata or {})
        self._options: dict[str, JsonValue] | None = None
        self._episode_id: str | None = None
        self._step_count = 0
        self._latest: ObsT | None = None
        self._is_closed = False

    def _read_agent_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Let agents see what the author says in Gymnasium's `metadata`: `agent_info`, `shows_reward`, `max_agents`."""
        keys = metadata.get("agent_info", ())
        if isinstance(keys, str) or not all(isinstance(key, str) for key in keys):
            raise ComponentError(
                "agent_info is no list of keys", found=keys, expected="the keys of info that agents see"
            )
        self.agent_info = tuple(keys)
        self.shows_reward = metadata.get("shows_reward") is True
        self.max_agents = parse_count("max_agents", metadata.get("max_agents", 1), 1, MOST_AGENTS)

    @abstractmethod
    def _convert_action(self, action: ActT) -> Any:
        """Return what `env.step` takes for `action`."""

    @abstractmethod
    def _convert_observation(self, observation: Any) -> Any:
        """Return what the model's field `observation` holds for what the environment observed."""

    def configure(self, options: dict[str, JsonValue]) -> None:
        """Take options for the next reset; an environment of ours refuses unknown ones here, others when they reset."""
        inner = self._env.unwrapped
        if isinstance(inner, GuardedEnv):
            parse_reset_options(options, inner.reset_options)
        self._options = dict(options) or None

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> ObsT:
        """Begin an episode; the options that `configure` took are used up."""
        options, self._options = self._options, None
        if seed is not None:
            seed = parse_count("seed", seed, 0, LARGEST_SEED, clause="ENV-RESET-P2")
        observation, info = self._env.reset(seed=seed, options=options)
        self._latest = self._answer(observation, None, False, False, info)
        self._episode_id = episode_id
        self._step_count = 0
        return self._latest

    def step(self, action: ActT) -> ObsT:
        """Return what the action leads to; `metadata` is Gymnasium's info."""
        observation, reward, terminated, truncated, info = self._env.step(self._convert_action(action))
        if type(reward) is not float or not math.isfinite(reward):
            reward = parse_reward(reward)
        self._latest = self._answer(observation, reward, bool(terminated), bool(truncated), info)
        self._step_count += 1
        return self._latest

    def _answer(
        self, observation: Any, reward: float | None, terminated: bool, truncated: bool, info: dict[str, Any]
    ) -> ObsT:
        return assemble_model(
            self.observation_type,
            {
                "reward": reward,
                "terminated": terminated,
                "truncated": truncated,
                "metadata": info_to_json(info) if info else {},
                "observation": self._convert_observation(observation),
            },
        )

    def latest(self) -> ObsT:
        """Return the latest observation, or raise a StateError before the first reset."""
        if self._latest is None:
            raise StateError("nothing has been observed yet", expected="a reset, which begins an episode")
        return self._latest

    def toolbox(self) -> Toolbox:
        """Return the decorated methods as tools; if there are none, `observe` and `act`."""
        declared = toolbox_from_methods(self, self.action_type, self.observation_type)
        return self._generate_toolbox() if declared is None else declared

    def _generate_toolbox(self) -> Toolbox:
        return toolbox_from_types(self.action_type, self.observation_type, self.latest)

    def scene(self, *, begins: bool) -> Any:
        """Return the scene of an environment of ours, and later its frame; of others their pixels, if they draw any."""
        inner = self._env.unwrapped
        if not isinstance(inner, GuardedEnv):
            return render_scene(self._env, begins=begins)
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

    def __init__(self, env: GymEnv) -> None:
        super().__init__(env)
        self.action_type = action_model(_encode(described(env.action_space)))
        self.observation_type = observation_model(_encode(described(env.observation_space)))

    def _convert_action(self, action: AdaptedAction) -> Any:
        return action.action

    def _convert_observation(self, observation: Any) -> Any:
        return observation

    def _generate_toolbox(self) -> Toolbox:
        def make_action(value: Any) -> AdaptedAction:
            return assemble_model(self.action_type, {"action": value})

        return space_toolbox(self._env, make_action, self.latest)

    def describe_observation(self, observation: AdaptedObservation) -> str:
        """Return each part of the observation on a line of its own."""
        return describe_parts("observation", observation.observation)

    @property
    def state(self) -> State:
        """The episode and how many steps it has had."""
        return State(episode_id=self._episode_id, step_count=self._step_count)


@lru_cache(maxsize=64)
def action_model(description: bytes) -> type[AdaptedAction]:
    """Return the action model of all spaces that are described like this, in JSON."""
    field: Any = (Annotated[Any, InSpace(codec_of(space_from(msgspec.json.decode(description))))], ...)
    return create_model("AdaptedAction", __base__=AdaptedAction, __doc__=AdaptedAction.__doc__, action=field)


@lru_cache(maxsize=64)
def observation_model(description: bytes) -> type[AdaptedObservation]:
    """Return the observation model of all spaces that are described like this, in JSON."""
    codec = codec_of(space_from(msgspec.json.decode(description)))
    # Not bounded: what an environment observes beyond its own bounds still reaches whoever reads it.
    field: Any = (Annotated[Any, InSpace(codec, bounded=False)], ...)
    model = create_model(
        "AdaptedObservation", __base__=AdaptedObservation, __doc__=AdaptedObservation.__doc__, observation=field
    )
    model.codec = codec
    return model


def parse_reward(reward: Any) -> float:
    """Return a reward as a finite float, or raise a ComponentError."""
    try:
        number = float(reward.item() if isinstance(reward, np.ndarray) else reward)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ComponentError("the environment's reward is no finite number", found=reward, expected="a finite number")
    return number


def is_quick(env: GymEnv) -> bool:
    """Return whether every layer of `env` is known to take microseconds and to draw nothing."""
    if env.render_mode is not None:
        return False
    layer = env
    while isinstance(layer, gym.Wrapper):
        if not type(layer).__module__.startswith(THIN):
            return False
        layer = layer.env
    return type(layer).__module__.startswith(QUICK)
