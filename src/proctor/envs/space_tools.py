"""`observe` and `act` for any Gymnasium environment, made from its spaces and from what its author wrote.

Rule 1: actions that the author named are taken by their names: `action_names`, `get_action_meanings()` or
    `metadata["action_names"]`, whichever is there first, as long as every action of a `Discrete` has a name of its own.
Rule 2: what the author wrote of actions and observations (Gymnasium's sections "## Action Space" and "## Observation
    Space") is told to agents; what is written of rewards is not.
Rule 3: tools and models are shared by all environments whose spaces, names and texts are the same.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from inspect import cleandoc
from typing import Annotated, Any, Final

import gymnasium as gym
import msgspec
from gymnasium import spaces
from pydantic import create_model

from proctor.contracts.tool_arguments import Spoken, schema_of
from proctor.contracts.toolboxes import act_tool, observe_tool, observing_and_acting
from proctor.contracts.tools import Tool, Toolbox
from proctor.models.space_words import SaidInSpace, space_in_words
from proctor.models.spaces import described, space_from
from proctor.models.wire import Action, Observation

AnyEnv = gym.Env[Any, Any]
Names = tuple[str, ...] | None

LONGEST: Final = 3000
"""Characters of an author's text that agents are told."""

_encode = msgspec.json.Encoder().encode


def space_toolbox(env: AnyEnv, made: Callable[[Any], Action], latest: Callable[[], Observation]) -> Toolbox:
    """Return the tools of an environment; `made` turns a value of its action space into an action."""
    observe, act, model = _tools(
        _encode(described(env.action_space)),
        _encode(described(env.observation_space)),
        action_names(env),
        documented(env, "Action Space"),
        documented(env, "Observation Space"),
    )
    validate: Callable[[bytes], Any] = model.__pydantic_validator__.validate_json

    def read(arguments: bytes) -> Action:
        return made(validate(arguments).action)

    return observing_and_acting(observe, act, read, latest)


@lru_cache(maxsize=64)
def _tools(
    action: bytes, observation: bytes, names: Names, about_action: str, about_observation: str
) -> tuple[Tool, Tool, type[Spoken]]:
    """Return `observe`, `act` and the model of its arguments for spaces that are described like this."""
    action_space, observation_space = (space_from(msgspec.json.decode(text)) for text in (action, observation))
    field: Any = (Annotated[Any, SaidInSpace(action_space, names)], ...)
    model = create_model("act", __base__=Spoken, action=field)
    observed = f"An observation is {space_in_words(observation_space)}."
    acted = f"The action is {space_in_words(action_space, names)}."
    return observe_tool(observed, about_observation), act_tool(schema_of(model), acted, about_action), model


def action_names(env: AnyEnv) -> Names:
    """Return the names that the author gave to the actions, from the first to the last; None if there are none."""
    inner = env.unwrapped
    found = getattr(inner, "action_names", None)
    if found is None and hasattr(inner, "get_action_meanings"):
        found = inner.get_action_meanings()
    if found is None:
        found = (inner.metadata or {}).get("action_names")
    return _names(found, env.action_space)


def _names(found: object, space: gym.Space[Any]) -> Names:
    """Return names that fit the space, else None."""
    if not isinstance(space, spaces.Discrete):
        return None
    if isinstance(found, Mapping):
        found = [found.get(int(space.start) + place) for place in range(len(found))]
    if not isinstance(found, Sequence) or isinstance(found, str) or len(found) != space.n:
        return None
    names = tuple(name for name in found if isinstance(name, str) and name)
    return names if len(set(names)) == space.n else None


def documented(env: AnyEnv, heading: str) -> str:
    """Return the section under this heading of the environment's docstring; "" if it has none."""
    return _section(type(env.unwrapped).__doc__ or "", f"## {heading}".lower())


@lru_cache(maxsize=128)
def _section(doc: str, heading: str) -> str:
    lines = cleandoc(doc).splitlines()
    starts = [place for place, line in enumerate(lines) if line.strip().lower() == heading]
    if not starts:
        return ""
    section = lines[starts[0] + 1 :]
    end = next((place for place, line in enumerate(section) if line.lstrip().startswith("## ")), len(section))
    text = cleandoc("\n" + "\n".join(section[:end]))
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ..."
