"""The environment that a session drives: typed, one reset, one step, one state.

Rule 1: `reset` and `step` may be plain or `async`; whoever drives an environment awaits what can be awaited.
Rule 2: the three wire types are found from the class's parameters, however many generic classes lie between. An
    environment that makes its types when it is made sets them on itself.
Rule 3: this file knows no engine, no server and no lifecycle: the guard is applied by whoever serves the environment.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping
from inspect import cleandoc, isabstract
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypeVar, get_args, get_origin

from pydantic import JsonValue

from proctor.contracts.toolboxes import toolbox_from_methods, toolbox_from_types
from proctor.contracts.tools import Toolbox
from proctor.errors import ComponentError, ValidationError
from proctor.models.descriptions import describe_fields
from proctor.models.wire import Action, Observation, State, WireModel, check_wire_type

if TYPE_CHECKING:
    import gymnasium as gym

ActT = TypeVar("ActT", bound=Action)
ObsT = TypeVar("ObsT", bound=Observation)
StateT = TypeVar("StateT", bound=State)

WIRE_TYPES: Final[Mapping[str, type[WireModel]]] = {
    "action_type": Action,
    "observation_type": Observation,
    "state_type": State,
}
"""The attributes that hold the wire types, in the order of the parameters, with what each must derive from."""


class Environment(ABC, Generic[ActT, ObsT, StateT]):
    """What is simulated, behind typed calls; one instance has one episode at a time.

    A subclass names its types, `Environment[MyAction, MyObservation, MyState]`, and implements `reset`, `step` and
    `state`. A call that raises a ValidationError has changed nothing; after any other exception nobody can know.
    """

    quick: bool = False
    """Whether a step takes microseconds and never blocks, so that a server may run it on its event loop."""

    agent_info: tuple[str, ...] = ()
    """The keys of an observation's metadata that agents may see."""

    shows_reward: bool = False
    """Whether agents see the reward."""

    max_agents: int = 1
    """How many agents may hold a grant on one episode at the same time."""

    action_type: type[ActT]
    observation_type: type[ObsT]
    state_type: type[StateT]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        alias, _ = _find_parent(cls)
        if not get_args(alias):
            return  # the types are those of the parent
        for (name, parent), found in zip(WIRE_TYPES.items(), _resolve_type_parameters(cls).values(), strict=True):
            if name not in vars(cls) and not isinstance(found, TypeVar):
                if not isinstance(found, type) or not issubclass(found, parent):
                    raise ComponentError(
                        f"{cls.__name__}.{name} is no wire type",
                        found=found,
                        expected=f"a subclass of {parent.__name__}",
                    )
                check_wire_type(found)
                setattr(cls, name, found)

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Self:
        """Return an environment whose types are known, or raise a ComponentError."""
        missing = [name for name in WIRE_TYPES if not hasattr(cls, name)]
        if missing and not isabstract(cls):
            raise ComponentError(
                f"{cls.__name__} does not name its wire types",
                found=f"no {', '.join(missing)}",
                expected="a subclass of Environment[an Action, an Observation, a State]",
            )
        return super().__new__(cls)

    def configure(self, options: dict[str, JsonValue]) -> None:
        """Take options for the next reset, or raise a ValidationError and change nothing; by default there are none."""
        if options:
            raise ValidationError(
                "unknown reset option", found=next(iter(options)), expected="no options", clause="ENV-RESET-P3"
            )

    @abstractmethod
    def reset(self, seed: int | None = None, episode_id: str | None = None) -> ObsT | Awaitable[ObsT]:
        """Begin an episode and return its first observation, which has no reward."""

    @abstractmethod
    def step(self, action: ActT) -> ObsT | Awaitable[ObsT]:
        """Return what `action` leads to, with its reward."""

    @property
    @abstractmethod
    def state(self) -> StateT:
        """Where the environment stands; legal at any time, changes nothing."""

    def toolbox(self) -> Toolbox:
        """Return the tools of agents: the methods decorated with `tool`; if there are none, `observe` and `act`.

        A ComponentError says what is wrong with a declaration.
        """
        declared = toolbox_from_methods(self, self.action_type, self.observation_type)
        return toolbox_from_types(self.action_type, self.observation_type) if declared is None else declared

    def describe_observation(self, observation: ObsT) -> str:
        """Return an observation as text for a language model; by default one line for each field.

        What agents may not see does not belong in it: the reward, the seed, what is hidden.
        """
        return describe_fields(observation)

    def scene(self, *, begins: bool) -> JsonValue:
        """Return what a picture of where it stands needs: all of it when an episode `begins`, then what has changed.

        It is for the record and for people who look at it; agents never see it. None: there is no picture.
        """
        return None

    def close(self) -> Awaitable[None] | None:
        """Give back what the environment holds; calling it again does nothing."""
        return None

    @property
    def name(self) -> str:
        """What the environment is called; by default its class's name."""
        return type(self).__name__

    @property
    def description(self) -> str:
        """What it is, in one sentence; by default the first line of the class's docstring."""
        return cleandoc(type(self).__doc__ or "").partition("\n")[0]

    @property
    def version(self) -> str:
        """The version of the environment's behaviour."""
        return "0"

    @property
    def spaces(self) -> "tuple[gym.Space[Any], gym.Space[Any]] | None":
        """The Gymnasium spaces of action and observation, where there are some."""
        return None


def _find_parent(cls: type) -> tuple[Any, Any]:
    """Return the environment that `cls` derives from: with its parameters, if it has some, and without."""
    parents = ((alias, get_origin(alias) or alias) for alias in vars(cls).get("__orig_bases__", cls.__bases__))
    return next((alias, origin) for alias, origin in parents if issubclass(origin, Environment))


def _resolve_type_parameters(cls: type) -> Mapping[Any, Any]:
    """Return the value of each parameter of Environment, in their order, as `cls` sees it; an open one is a variable."""
    if cls is Environment:
        return {ActT: ActT, ObsT: ObsT, StateT: StateT}
    alias, origin = _find_parent(cls)
    given = dict(zip(origin.__parameters__, get_args(alias), strict=False))
    return {each: given.get(found, found) for each, found in _resolve_type_parameters(origin).items()}
