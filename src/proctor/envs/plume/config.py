"""The configuration of a plume search: a pydantic model, from keywords, a dict, TOML or JSON.

Rule 1: what the constructor lacks (the plume's shape, the wind, the info level, ...) is set here and nowhere else.
Rule 2: unknown keys are errors, and a bool is no number.
"""

import json
import operator
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import numpy as np
import pydantic
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from proctor.contracts.spatial import MAX_SIDE, MOST_STEPS, Coordinates, GridSize
from proctor.errors import ValidationError
from proctor.small_files import read_small_text

# Which clause of the contract a field belongs to; all others are "the factories resolve".
_CLAUSES = {"grid_size": "ENV-INIT-P3", "max_steps": "ENV-INIT-P4", "goal_radius": "ENV-INIT-P5"}


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


def _spec_from_name(value: Any) -> Any:
    return {"type": value} if isinstance(value, str) else value


Whole = Annotated[int, BeforeValidator(_parse_integer)]
Side = Annotated[int, BeforeValidator(_parse_integer), Field(ge=1, le=MAX_SIDE)]


class ComponentSpec(BaseModel):
    """A part by the name of its type; every other key is an option of that type."""

    model_config = ConfigDict(extra="allow", frozen=True)

    type: str


Spec = Annotated[ComponentSpec, BeforeValidator(_spec_from_name)]


class EnvironmentConfig(BaseModel):
    """All that makes a plume search what it is, but for injected objects and the render mode."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    grid_size: Annotated[tuple[Side, Side], BeforeValidator(_unpack_pair)] = (128, 128)
    source_location: Annotated[tuple[Whole, Whole] | None, BeforeValidator(_unpack_pair)] = None
    """None is the centre."""
    max_steps: Annotated[int, BeforeValidator(_parse_integer), Field(ge=1, le=MOST_STEPS)] = 1000
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
    raise ValidationError(
        "not a configuration",
        found=source,
        expected="an EnvironmentConfig, a dict, or the path of a TOML or JSON file",
        clause="ENV-INIT-P1",
    )


_READERS = {".toml": tomllib.loads, ".json": json.loads}


def _read_file(path: Path) -> dict[str, Any]:
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise ValidationError(
            "unknown configuration format", found=path.name, expected=" or ".join(_READERS), clause="ENV-INIT-P1"
        )
    try:
        values = reader(read_small_text(path, expected=f"a {path.suffix[1:].upper()} file"))
    except (ValueError, RecursionError) as problem:
        reason = str(problem).splitlines()[0]
        raise ValidationError(
            f"not a readable configuration: {reason}",
            found=path.name,
            expected=f"a {path.suffix[1:].upper()} file",
            clause="ENV-INIT-P1",
        ) from None
    if not isinstance(values, dict):
        raise ValidationError(
            "not a configuration", found=path.name, expected="a table of settings", clause="ENV-INIT-P1"
        )
    return values


def _convert_error(problem: pydantic.ValidationError) -> ValidationError:
    first = problem.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    clause = _CLAUSES.get(str(first["loc"][0]), "ENV-INIT-P1")
    if first["type"] == "extra_forbidden":
        known = ", ".join(EnvironmentConfig.model_fields)
        return ValidationError("unknown setting", found=place, expected=f"one of {known}", clause=clause)
    if first["type"] == "missing":
        return ValidationError(f"{place} is missing", found=first["input"], expected=f"a {place}", clause=clause)
    expected = first["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    return ValidationError(f"{place} is not acceptable", found=first["input"], expected=expected, clause=clause)
