"""Environments as text asks for them: an id, and settings as `key=value`.

Rule 1: a setting is a keyword of the environment's constructor or, for a plume search, a key of its configuration.
Rule 2: a key that is not known is refused with the list of those that are.
Rule 3: `render_mode` is a setting of every environment that draws, as it is for `gymnasium.make`.
Rule 4: the current directory can be imported from, as with `python -m`, where a user names a module; never for what is
    installed: a file that lies there by chance, or beside a record of somebody else, is nothing that was asked for.
Rule 5: whatever a module raises while it is imported, an exit too, becomes a ValidationError that names the module.
"""

import inspect
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeAlias, cast

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from proctor.envs.evaluation import Env
from proctor.envs.plume.config import ComponentKind, EnvironmentConfig
from proctor.envs.plume.env import PlumeSearchEnv
from proctor.envs.registration import register
from proctor.errors import RenderingError, ValidationError

Tree: TypeAlias = dict[str, Any]
RENDER_MODE: Final = "render_mode"
# What a constructor may raise for a keyword's value that it does not like.
REFUSALS: Final = (TypeError, ValueError, KeyError, AttributeError, AssertionError, SystemExit)


def add_working_directory() -> None:
    """Let modules be found in the current directory."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def import_user_module(module: str, *, installed: bool = False) -> ModuleType:
    """Return the module, one that is `installed` or also one that lies here; a ValidationError says why it cannot be imported."""
    if not installed:
        add_working_directory()
    try:
        return import_module(module)
    # A user's module may raise anything, and a script may end with an exit; here it becomes a message.
    except (Exception, SystemExit) as problem:
        reason = f"{type(problem).__name__}: {problem}"
        raise ValidationError(f"cannot import {module!r}: {reason}", expected="a module that imports") from problem


def import_member(module: str, member: str, *, installed: bool = False) -> Any:
    """Return what `module:member` names, a class or a function; dots in `member` go down."""
    found: Any = import_user_module(module, installed=installed)
    for part in member.split("."):
        if not hasattr(found, part):
            raise ValidationError(f"{module!r} has no such member", found=member, expected="a class or a function")
        found = getattr(found, part)
    if not callable(found):
        raise ValidationError(f"{module}:{member} cannot be called", found=found, expected="a class or a function")
    return found


def parse_settings(settings: Iterable[str]) -> Tree:
    """Return `key=value` texts as a tree: dots go down, a value is JSON or else a string."""
    tree: Tree = {}
    for text in settings:
        key, equals, value = text.partition("=")
        path = key.strip().split(".")
        if not equals or not all(path):
            raise ValidationError("not a setting", found=text, expected="KEY=VALUE, such as max_steps=200")
        try:
            _put(tree, path, json.loads(value))
        except ValueError:
            _put(tree, path, value.strip())
    return tree


def _put(tree: Tree, path: Sequence[str], value: Any) -> None:
    """Set `value` at `path`; a part that is set as a whole and by its options is both: `plume=puffs` is its type."""
    *way, last = path
    for name in way:
        tree[name] = _as_component_spec(tree.get(name, {}))
        tree = tree[name]
    tree[last] = {**tree[last], **_as_component_spec(value)} if isinstance(tree.get(last), dict) else value


def _as_component_spec(value: Any) -> Tree:
    return value if isinstance(value, dict) else {"type": value}


def make_env(env_id: str, tree: Tree, render_mode: str | None = None) -> Env:
    """Return the environment with these settings; a setting that it does not know is a ValidationError."""
    spec = find_spec(env_id)
    creator = find_creator(spec)
    asked = tree.get(RENDER_MODE)
    tree = {key: value for key, value in tree.items() if key != RENDER_MODE}
    mode = asked if render_mode is None else render_mode
    keywords = constructor_keywords(env_id, creator, tree)
    # Not every constructor knows the keyword, so it is passed only where it says something.
    if mode is not None:
        _check_render_mode(env_id, creator, mode)
        keywords[RENDER_MODE] = mode
    try:
        return gym.make(spec, disable_env_checker=True, **keywords)
    except ValidationError:
        raise
    except REFUSALS as problem:
        reason = f"{type(problem).__name__}: {problem}"
        raise ValidationError(f"{env_id} could not be made: {reason}", found=tree, expected="other settings") from None


def find_spec(env_id: str) -> EnvSpec:
    """Return what Gymnasium knows of the id; `module:Id-v0` imports the module first."""
    return gym.spec(resolve_id(env_id))


def is_registered(env_id: str) -> bool:
    """Return whether the id is known by what is installed here; nothing that it names is imported."""
    register()
    return env_id in gym.registry


def resolve_id(env_id: str) -> str:
    """Return the id alone, with all that may register it imported: Proctor, and the module in `module:Id-v0`."""
    register()
    module, _, name = env_id.rpartition(":")
    if module:
        import_user_module(module)
    return name


def find_creator(spec: EnvSpec) -> Callable[..., Any]:
    """Return the class or the function that makes the environment; who registered it could import it."""
    entry_point = spec.entry_point
    if entry_point is None:
        raise ValidationError("there is no single environment of this id", found=spec.id, expected="an entry point")
    if not isinstance(entry_point, str):
        return entry_point
    module, _, member = entry_point.partition(":")
    return cast("Callable[..., Any]", import_member(module, member, installed=True))


def is_plume(creator: Callable[..., Any]) -> bool:
    """Return whether it makes plume searches, which have a configuration of their own."""
    return inspect.isclass(creator) and issubclass(creator, PlumeSearchEnv)


def list_keywords(creator: Callable[..., Any]) -> dict[str, Any]:
    """Return the keywords that can be set with their defaults; `...` marks those that must be."""
    if is_plume(creator):
        return {name: field.get_default() for name, field in EnvironmentConfig.model_fields.items()}
    return {
        parameter.name: ... if parameter.default is parameter.empty else parameter.default
        for parameter in inspect.signature(creator).parameters.values()
        if parameter.name != RENDER_MODE and parameter.kind is not parameter.VAR_POSITIONAL
    }


def constructor_keywords(env_id: str, creator: Callable[..., Any], tree: Tree) -> dict[str, Any]:
    """Return the settings as keywords of the constructor, or raise a ValidationError for one that it does not know."""
    known = [*list_keywords(creator), "config" if is_plume(creator) else "max_episode_steps"]
    unknown = [key for key in tree if key not in known]
    parameters = inspect.signature(creator).parameters.values()
    if unknown and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        raise ValidationError(f"{env_id} has no such setting", found=unknown[0], expected=f"one of {', '.join(known)}")
    return {"config": _build_plume_config(tree)} if is_plume(creator) and tree else dict(tree)


def _build_plume_config(tree: Tree) -> Tree:
    """Return a plume search's configuration: the file that `config` names, if any, with the settings on top."""
    values = EnvironmentConfig.of(tree.get("config")).model_dump(exclude_unset=True)
    defaults = {str(kind): EnvironmentConfig.model_fields[kind].get_default().model_dump() for kind in ComponentKind}
    for key, value in tree.items():
        if key in defaults:
            part, options = values.get(key, defaults[key]), _as_component_spec(value)
            # Another type of part keeps none of the old options.
            values[key] = {**part, **options} if options.get("type", part["type"]) == part["type"] else options
        elif key != "config":
            values[key] = value
    return values


def _check_render_mode(env_id: str, creator: Callable[..., Any], mode: str) -> None:
    metadata = getattr(creator, "metadata", None)
    modes = [] if metadata is None else metadata.get("render_modes") or []
    if metadata is not None and mode not in modes:
        expected = f"one of {', '.join(map(str, modes))}" if modes else "no render mode"
        raise RenderingError(
            f"{env_id} {'does not draw so' if modes else 'draws no pictures'}", found=mode, expected=expected
        )
