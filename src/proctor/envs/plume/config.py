"""The configuration of a plume search, and its parts by name.

Rule 1: what the constructor lacks (the plume's shape, the wind, the info level, ...) is set here and nowhere else.
Rule 2: unknown keys are errors, and a bool is no number.
Rule 3: a part's factory is called as `factory(site, **parameters)`; its keyword-only signature is the list of its options. The
    registry is open to a user's own types; a name or an option that is not known is refused with the list of those that are.
"""

import inspect
import json
import operator
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self

import numpy as np
import pydantic
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from proctor.contracts.spatial import MAX_SIDE, MOST_STEPS, Coordinates, GridSize
from proctor.envs.plume import actions, rewards
from proctor.envs.plume import sensors as sensors_of
from proctor.envs.plume.fields import AdvectedPlume, GaussianPlume, PuffPlume
from proctor.envs.plume.movies import MoviePlume, load_movie
from proctor.errors import ComponentError, ValidationError
from proctor.small_files import read_small_text

# Which clause of the contract a field belongs to; all others are "the factories resolve".
_CLAUSES = {"grid_size": "ENV-INIT-P3", "max_steps": "ENV-INIT-P4", "goal_radius": "ENV-INIT-P5"}
_PARTS_CLAUSE: Final = "ENV-INIT-P1"


def _parse_integer(value: Any) -> int:
    if isinstance(value, bool):
        raise ValueError("an integer, not a bool")
    try:
        return operator.index(value)
    except TypeError:
        raise ValueError("an integer") from None


def _refuse_non_numbers(value: Any) -> Any:
    if isinstance(value, bool | np.bool_ | str):
        raise ValueError("a number")
    return value


def _unpack_pair(value: Any) -> Any:
    if isinstance(value, GridSize):
        return (value.width, value.height)
    if isinstance(value, Coordinates):
        return (value.x, value.y)
    return value


Whole = Annotated[int, BeforeValidator(_parse_integer)]
Side = Annotated[Whole, Field(ge=1, le=MAX_SIDE)]


class ComponentSpec(BaseModel):
    """A part by the name of its type; every other key is an option of that type."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: str


Spec = Annotated[ComponentSpec, BeforeValidator(lambda value: {"type": value} if isinstance(value, str) else value)]


class EnvironmentConfig(BaseModel):
    """All that makes a plume search what it is, but for injected objects and the render mode."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    grid_size: Annotated[tuple[Side, Side], BeforeValidator(_unpack_pair)] = (128, 128)
    source_location: Annotated[tuple[Whole, Whole] | None, BeforeValidator(_unpack_pair)] = None
    """None is the centre."""
    max_steps: Annotated[Whole, Field(ge=1, le=MOST_STEPS)] = 1000
    goal_radius: Annotated[float, BeforeValidator(_refuse_non_numbers), Field(gt=0, allow_inf_nan=False)] = 1.0
    info_level: Literal["full", "minimal"] = "full"
    plume: Spec = ComponentSpec(type="gaussian")
    action: Spec = ComponentSpec(type="discrete_grid")
    observation: Spec = ComponentSpec(type="concentration")
    reward: Spec = ComponentSpec(type="sparse_goal")

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except pydantic.ValidationError as problem:
            raise _convert_error(problem) from None

    @classmethod
    def of(cls, source: "EnvironmentConfig | Mapping[str, Any] | str | Path | None", **overrides: Any) -> Self:
        """Return the configuration of `source` (a config, a mapping, a file's path, or None) with `overrides` on top.

        An override that is None does not count. Bad values are a ValidationError that names the clause.
        """
        values = {**_read_values(source), **{key: value for key, value in overrides.items() if value is not None}}
        return cls(**values)


def _read_values(source: EnvironmentConfig | Mapping[str, Any] | str | Path | None) -> dict[str, Any]:
    if source is None:
        return {}
    if isinstance(source, EnvironmentConfig):
        return source.model_dump(exclude_unset=True)
    if isinstance(source, Mapping):
        return {str(key): value for key, value in source.items()}
    if isinstance(source, str | Path):
        return _read_file(Path(source))
    raise _refusal("not a configuration", source, "an EnvironmentConfig, a dict, or the path of a TOML or JSON file")


def _refusal(why: str, found: object, expected: str) -> ValidationError:
    return ValidationError(why, found=found, expected=expected, clause=_PARTS_CLAUSE)


_READERS = {".toml": tomllib.loads, ".json": json.loads}


def _read_file(path: Path) -> dict[str, Any]:
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise _refusal("unknown configuration format", path.name, " or ".join(_READERS))
    expected = f"a {path.suffix[1:].upper()} file"
    try:
        values = reader(read_small_text(path, expected=expected))
    except (ValueError, RecursionError) as problem:
        why = f"not a readable configuration: {str(problem).splitlines()[0]}"
        raise _refusal(why, path.name, expected) from None
    if not isinstance(values, dict):
        raise _refusal("not a configuration", path.name, "a table of settings")
    return values


def _convert_error(problem: pydantic.ValidationError) -> ValidationError:
    first = problem.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    clause = _CLAUSES.get(str(first["loc"][0]), _PARTS_CLAUSE)
    if first["type"] == "extra_forbidden":
        known = ", ".join(EnvironmentConfig.model_fields)
        return ValidationError("unknown setting", found=place, expected=f"one of {known}", clause=clause)
    if first["type"] == "missing":
        return ValidationError(f"{place} is missing", found=first["input"], expected=f"a {place}", clause=clause)
    expected = first["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return ValidationError(f"{place} is not acceptable", found=first["input"], expected=expected, clause=clause)


# ---------------------------------------------------------------------------------------------------- parts by name
class ComponentKind(StrEnum):
    """What a component is for; also its key in a configuration."""

    PLUME = "plume"
    ACTION = "action"
    OBSERVATION = "observation"
    REWARD = "reward"


@dataclass(frozen=True, slots=True)
class Site:
    """What a factory may know of the environment that it builds for."""

    grid_size: GridSize
    source_location: Coordinates
    goal_radius: float


Factory = Callable[..., Any]


def register_component(kind: str, type_name: str, factory: Factory) -> None:
    """Make `factory` available under `type_name` in configurations; a name that is taken is refused."""
    known = _REGISTRY[_parse_kind(kind)]
    if not callable(factory):
        raise ValidationError("not a factory", found=factory, expected="a callable (site, *, option=default, ...)")
    if type_name in known and known[type_name] is not factory:
        raise ValidationError(f"the {kind} type is taken", found=type_name, expected="a new name")
    known[type_name] = factory


def component_types(kind: str) -> dict[str, dict[str, Any]]:
    """Return the known types of `kind`, each with its options and their defaults."""
    return {name: list_options(factory) for name, factory in sorted(_REGISTRY[_parse_kind(kind)].items())}


def list_options(factory: Factory) -> dict[str, Any]:
    """Return the keyword-only parameters of `factory` with their defaults; `...` marks one that must be given."""
    parameters = inspect.signature(factory).parameters.values()
    return {
        parameter.name: ... if parameter.default is parameter.empty else parameter.default
        for parameter in parameters
        if parameter.kind is parameter.KEYWORD_ONLY
    }


def _parse_kind(kind: str) -> ComponentKind:
    try:
        return ComponentKind(kind)
    except ValueError:
        raise ValidationError("unknown kind of component", found=kind, expected=", ".join(ComponentKind)) from None


def build(kind: str, spec: Mapping[str, Any] | str, site: Site) -> Any:
    """Return the component that `spec` describes: a type name, or a mapping with `type` and that type's options."""
    known = _REGISTRY[_parse_kind(kind)]
    options = dict(spec) if isinstance(spec, Mapping) else {"type": spec}
    type_name = options.pop("type", None)
    factory = known.get(type_name) if isinstance(type_name, str) else None
    if factory is None:
        raise ComponentError(
            f"unknown {kind} type", found=type_name, expected=f"one of {', '.join(sorted(known))}", clause=_PARTS_CLAUSE
        )
    _check_options(kind, type_name, options, factory)
    try:
        return factory(site, **options)
    except ValidationError as problem:
        problem.clause = problem.clause or _PARTS_CLAUSE
        raise


def _check_options(kind: str, type_name: object, options: Mapping[str, Any], factory: Factory) -> None:
    accepted = list_options(factory)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(factory).parameters.values())
    unknown = [] if takes_any else sorted(set(options) - set(accepted))
    missing = sorted(name for name, default in accepted.items() if default is ... and name not in options)
    if unknown or missing:
        raise ComponentError(
            f"{kind} {type_name!r}: " + ("unknown option" if unknown else "option missing"),
            found=(unknown or missing)[0],
            expected=f"options {', '.join(accepted) or 'none'}",
            clause=_PARTS_CLAUSE,
        )


def _from_class(make: Factory) -> Factory:
    """Return a factory for a class: the site brings what it knows, and every other parameter is an option."""
    parameters = inspect.signature(make).parameters

    def factory(site: Site, **options: Any) -> Any:
        known = [name for name in parameters if name in Site.__slots__ and options.get(name) is None]
        return make(**options | {name: getattr(site, name) for name in known})

    options = [
        parameter.replace(kind=parameter.KEYWORD_ONLY, default=None if name == "goal_radius" else parameter.default)
        for name, parameter in parameters.items()
        if name not in ("grid_size", "source_location")
    ]
    site = inspect.Parameter("site", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    factory.__signature__ = inspect.Signature([site, *options])  # type: ignore[attr-defined]  # a documented hook
    return factory


def _make_movie(
    site: Site, *, path: str, steps_per_frame: int = 1, first_frame: int = 0, at_end: str = "hold"
) -> MoviePlume:
    return MoviePlume(load_movie(path), steps_per_frame, first_frame, at_end)


def _make_history_sensor(site: Site, *, sensor: Any = "concentration", length: int = 4) -> sensors_of.HistorySensor:
    return sensors_of.HistorySensor(build(ComponentKind.OBSERVATION, sensor, site), length)


def _make_dict_sensor(site: Site, *, sensors: Mapping[str, Any]) -> sensors_of.DictSensor:
    if not isinstance(sensors, Mapping):
        raise ValidationError("not a table of sensors", found=sensors, expected="names with their sensors")
    return sensors_of.DictSensor({name: build(ComponentKind.OBSERVATION, spec, site) for name, spec in sensors.items()})


def _make_shaped_reward(
    site: Site, *, inner: Any = "sparse_goal", scale: float = 0.01, discount: float = 0.99
) -> rewards.ShapedReward:
    return rewards.ShapedReward(build(ComponentKind.REWARD, inner, site), site.source_location, scale, discount)


_REGISTRY: dict[ComponentKind, dict[str, Factory]] = {
    ComponentKind.PLUME: {
        "gaussian": _from_class(GaussianPlume),
        "advected": _from_class(AdvectedPlume),
        "puffs": _from_class(PuffPlume),
        "movie": _make_movie,
    },
    ComponentKind.ACTION: {
        "discrete_grid": _from_class(actions.DiscreteGridActions),
        "oriented_grid": _from_class(actions.OrientedGridActions),
        "eight_direction": _from_class(actions.EightDirectionActions),
        "continuous": _from_class(actions.ContinuousActions),
        "run_tumble": _from_class(actions.RunTumbleActions),
    },
    ComponentKind.OBSERVATION: {
        "concentration": _from_class(sensors_of.ConcentrationSensor),
        "binary_hit": _from_class(sensors_of.BinaryHitSensor),
        "poisson_hits": _from_class(sensors_of.PoissonHitSensor),
        "antennae": _from_class(sensors_of.AntennaePair),
        "wind": _from_class(sensors_of.WindSensor),
        "history": _make_history_sensor,
        "dict": _make_dict_sensor,
    },
    ComponentKind.REWARD: {
        "sparse_goal": _from_class(rewards.SparseGoalReward),
        "step_penalty": _from_class(rewards.StepPenaltyReward),
        "shaped": _make_shaped_reward,
    },
}
