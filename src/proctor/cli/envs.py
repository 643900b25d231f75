"""`proctor envs`: what there is to run, with everything that can be set."""

import inspect
import json
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Annotated, Any

import gymnasium as gym
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from proctor.envs.evaluation import find_policies
from proctor.envs.plume.config import ComponentKind, component_types
from proctor.envs.registration import register
from proctor.envs.settings import Tree, find_creator, is_plume, list_keywords, make_env


def envs(as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False) -> None:
    """List what there is: ids, spaces, options, parts with their parameters and defaults, reset options, policies."""
    register()
    own = (spec.id for spec in gym.registry.values() if str(spec.entry_point).startswith("proctor.envs."))
    described = [_describe_env(env_id) for env_id in sorted(own)]
    if as_json:
        typer.echo(json.dumps({"environments": described}, indent=2))
        return
    console = Console(highlight=False)
    for environment in described:
        _print_env(console, environment)


def _describe_env(env_id: str) -> Tree:
    spec = gym.spec(env_id)
    creator = find_creator(spec)
    with closing(make_env(env_id, {})) as env:
        return {
            "id": env_id,
            "about": (inspect.getdoc(creator) or "").partition("\n")[0],
            "observation_space": str(env.observation_space),
            "action_space": str(env.action_space),
            "batched": spec.vector_entry_point is not None,
            "render_modes": list(env.metadata.get("render_modes", ())),
            "reset_options": list(getattr(env.unwrapped, "reset_options", ())),
            "options": _describe_options(list_keywords(creator)),
            "parts": {
                str(kind): {name: _describe_options(options) for name, options in component_types(kind).items()}
                for kind in ComponentKind
            }
            if is_plume(creator)
            else {},
            "policies": {name: entry.about for name, entry in find_policies(env).items()},
        }


def _describe_options(defaults: Mapping[str, Any]) -> Tree:
    described: Tree = {}
    for name, default in defaults.items():
        dumped = default.model_dump() if hasattr(default, "model_dump") else default
        # A part is named by its type alone.
        shown = dumped["type"] if isinstance(dumped, dict) and set(dumped) == {"type"} else dumped
        described[name] = {"required": True} if default is ... else {"default": shown}
    return described


def _print_env(console: Console, environment: Tree) -> None:
    facts = {
        "observation": f"{environment['observation_space']} by default",
        "action": f"{environment['action_space']} by default",
        "render modes": ", ".join(environment["render_modes"]),
        "reset options": ", ".join(environment["reset_options"]),
        "batched": "yes, by gymnasium.make_vec" if environment["batched"] else "no",
    }
    _print_section(console, f"{environment['id']}: {environment['about']}", facts.items())
    options = {name: _format_default(option) for name, option in environment["options"].items()}
    _print_section(console, "options with their defaults (--set name=value)", options.items())
    for kind, types in environment["parts"].items():
        rows = {
            name: ", ".join(f"{each}={_format_default(option)}" for each, option in options.items()) or "none"
            for name, options in types.items()
        }
        _print_section(console, f"{kind} types (--set {kind}.type=name, --set {kind}.parameter=value)", rows.items())
    _print_section(console, "policies (--policy name)", environment["policies"].items())


def _format_default(option: Tree) -> str:
    return "required" if option.get("required") else json.dumps(option["default"])


def _print_section(console: Console, title: str, rows: Iterable[tuple[str, str]]) -> None:
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    console.print(Text(title, style="bold"), table, "")
