"""Parts by name: a registry of factories for the four kinds of component, open to a user's own types.

Rule 1: a factory is called as `factory(site, **parameters)`; its keyword-only signature is the list of its options.
Rule 2: a name or an option that is not known is refused with the list of those that are.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from proctor.contracts.spatial import Coordinates, GridSize
from proctor.envs.plume import actions, rewards
from proctor.envs.plume import sensors as sensors_of
from proctor.envs.plume.fields import AdvectedPlume, GaussianPlume
from proctor.envs.plume.movies import MoviePlume, load_movie
from proctor.envs.plume.puffs import PuffPlume
from proctor.errors import ComponentError, ValidationError


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
_REGISTRY: dict[ComponentKind, dict[str, Factory]] = {kind: {} for kind in ComponentKind}


def register_component(kind: str, type_name: str, factory: Factory) -> None:
    """Make `factory` available under `type_name` in configurations; a name that is taken is refused."""
    known = _REGISTRY[_parse_kind(kind)]
    if not callable(factory):
        raise ValidationError("not a factory", found=factory, expected="a callable (site, *, option=default, ...)")
    if type_name in known and known[type_name] is not factory:
        raise ValidationError(f"the {kind} type is taken", found=type_name, expected="a new name")
    known[type_name] = factory


def unregister_component(kind: str, type_name: str) -> None:
    """Forget a type that a user registered; one that is not known is no error, one of our own stays."""
    checked = _parse_kind(kind)
    if type_name in _BUILT_IN[checked]:
        raise ValidationError(f"the {kind} type is built in", found=type_name, expected="a registered type")
    _REGISTRY[checked].pop(type_name, None)


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
            f"unknown {kind} type", found=type_name, expected=f"one of {', '.join(sorted(known))}", clause="ENV-INIT-P1"
        )
    _check_options(kind, type_name, options, factory)
    try:
        return factory(site, **options)
    except ValidationError as problem:
        problem.clause = problem.clause or "ENV-INIT-P1"
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
            clause="ENV-INIT-P1",
        )


def _from_parameters(make: Factory) -> Factory:
    """Return a factory for a class whose every parameter is an option."""

    def factory(site: Site, **options: Any) -> Any:
        return make(**options)

    return _with_options(factory, make, ())


def _at_source(make: Factory) -> Factory:
    """Return a factory for a class that begins with the grid's size and the source's location."""

    def factory(site: Site, **options: Any) -> Any:
        return make(site.grid_size, site.source_location, **options)

    return _with_options(factory, make, ("grid_size", "source_location"))


def _at_goal(make: Factory) -> Factory:
    """Return a factory for a class that begins with the source's location and the goal's radius."""

    def factory(site: Site, *, goal_radius: float | None = None, **options: Any) -> Any:
        return make(site.source_location, site.goal_radius if goal_radius is None else goal_radius, **options)

    return _with_options(factory, make, ("source_location",), goal_radius=None)


def _with_options(factory: Factory, make: Factory, given: tuple[str, ...], **defaults: Any) -> Factory:
    """Give `factory` the signature that `make` has without the parameters that the site brings."""
    options = [
        parameter.replace(kind=parameter.KEYWORD_ONLY, default=defaults.get(parameter.name, parameter.default))
        for parameter in inspect.signature(make).parameters.values()
        if parameter.name not in given
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


_BUILT_IN: dict[ComponentKind, dict[str, Factory]] = {
    ComponentKind.PLUME: {
        "gaussian": _at_source(GaussianPlume),
        "advected": _at_source(AdvectedPlume),
        "puffs": _at_source(PuffPlume),
        "movie": _make_movie,
    },
    ComponentKind.ACTION: {
        "discrete_grid": _from_parameters(actions.DiscreteGridActions),
        "oriented_grid": _from_parameters(actions.OrientedGridActions),
        "eight_direction": _from_parameters(actions.EightDirectionActions),
        "continuous": _from_parameters(actions.ContinuousActions),
        "run_tumble": _from_parameters(actions.RunTumbleActions),
    },
    ComponentKind.OBSERVATION: {
        "concentration": _from_parameters(sensors_of.ConcentrationSensor),
        "binary_hit": _from_parameters(sensors_of.BinaryHitSensor),
        "poisson_hits": _from_parameters(sensors_of.PoissonHitSensor),
        "antennae": _from_parameters(sensors_of.AntennaePair),
        "wind": _from_parameters(sensors_of.WindSensor),
        "history": _make_history_sensor,
        "dict": _make_dict_sensor,
    },
    ComponentKind.REWARD: {
        "sparse_goal": _at_goal(rewards.SparseGoalReward),
        "step_penalty": _at_goal(rewards.StepPenaltyReward),
        "shaped": _make_shaped_reward,
    },
}
for _kind, _factories in _BUILT_IN.items():
    _REGISTRY[_kind].update(_factories)
