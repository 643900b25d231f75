"""Action, Observation and State: what an environment takes and gives, as pydantic models that can cross a wire.

Rule 1: everything here can be said in JSON; a model with a field that cannot is refused when its class is made.
Rule 2: models are frozen, and a field that they do not name is refused.
Rule 3: what every observation has (`OUTSIDE`) travels beside it; `inside` writes only the others.
Rule 4: no numpy and no Gymnasium, so that a typed client stays light; arrays are the business of `spaces`. A typed field
    of numbers takes packed arrays, too, if it is marked as `Packable`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler, JsonValue
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUndefinedAnnotation
from pydantic_core import CoreSchema, core_schema

from proctor.errors import ComponentError

OUTSIDE: Final = frozenset({"reward", "terminated", "truncated", "metadata"})
"""The fields of an observation that travel beside it, not in it."""
_OUTSIDE: Final = set(OUTSIDE)  # pydantic's serializer takes no frozenset

NO_JSON: Final = frozenset({"any", "bytes", "callable", "generator", "is-instance", "is-subclass"})
"""pydantic's names for what JSON cannot say, or not in one way only; `JsonValue` is the way to say "any JSON"."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """How arrays are written: as lists, or packed as base64, where `compress` makes large ones smaller."""

    packed: bool = False
    compress: bool = False


PLAIN: Final = Encoding()
ModelT = TypeVar("ModelT", bound=BaseModel)

MOST_TYPED_BYTES: Final = 2**20
"""A typed field of numbers is small: no packed array beyond this is unfolded into one."""

PACKED: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "dtype": {"type": "string"},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}},
        "data": {"type": "string", "contentEncoding": "base64"},
        "zip": {"const": "zlib"},
    },
    "required": ["dtype", "shape", "data"],
    "additionalProperties": False,
}
"""The JSON Schema of any packed array."""

_SKIPPED: Final = ("serialization", "metadata", "default", "config", "ref", "strict_schema")
"""Parts of a core schema that say nothing about what JSON must carry."""


def check_wire_type(model: type[BaseModel]) -> None:
    """Raise a ComponentError if `model` takes unknown fields, can change, or has a field that JSON cannot say."""
    config = model.model_config
    if config.get("extra") != "forbid" or not config.get("frozen"):
        raise ComponentError(
            f"{model.__name__} does not keep to the wire's rules",
            found={"extra": config.get("extra"), "frozen": bool(config.get("frozen"))},
            expected="extra='forbid' and frozen=True",
        )
    try:
        model.model_rebuild()
    except PydanticUndefinedAnnotation as problem:
        raise _no_wire_type(model, problem.message) from problem
    found = next(_find_unspeakable(model.__pydantic_core_schema__), None)
    if found is not None:
        raise _no_wire_type(model, found)
    try:
        model.model_json_schema()
        model.model_json_schema(mode="serialization")
    except PydanticInvalidForJsonSchema as problem:
        raise _no_wire_type(model, problem.message) from problem


def _no_wire_type(model: type[BaseModel], found: str) -> ComponentError:
    return ComponentError(
        f"{model.__name__} cannot be said in JSON", found=found, expected="fields of JSON-compatible types"
    )


def _find_unspeakable(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        kind = schema.get("type")
        # Where fields are listed by name, one may be called `type`: then it is no word.
        if isinstance(kind, str) and kind in NO_JSON:
            yield kind
        if kind == "json-or-python":
            # Here JSON is read in a way of its own: only that way counts, and whatever it yields has been JSON.
            yield from (found for found in _find_unspeakable(schema["json_schema"]) if found != "any")
        else:
            yield from _find_unspeakable([part for key, part in schema.items() if key not in _SKIPPED])
    elif isinstance(schema, list | tuple):
        for part in schema:
            yield from _find_unspeakable(part)


class WireModel(BaseModel):
    """A frozen value that JSON can say; infinities and NaN are the strings "Infinity", "-Infinity" and "NaN"."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        # A class with names that are not yet known is checked when an environment names it as its type.
        if cls.__pydantic_complete__:
            check_wire_type(cls)


class Action(WireModel):
    """What an orchestrator asks an environment to do; a subclass adds the fields."""


class State(WireModel):
    """Where an environment stands; a subclass adds what an orchestrator may know besides."""

    episode_id: str | None = None
    step_count: int = Field(default=0, ge=0)


class Observation(WireModel):
    """What an environment answers; a subclass adds what is observed. `reward` is None after a reset."""

    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    metadata: dict[str, JsonValue] = Field(default_factory=dict)

    @property
    def done(self) -> bool:
        """Whether the episode has ended, one way or the other."""
        return self.terminated or self.truncated

    def inside(self, encoding: Encoding = PLAIN) -> bytes:
        """Return the fields inside as one JSON object, without `OUTSIDE`."""
        return self.__pydantic_serializer__.to_json(self, exclude=_OUTSIDE, context=encoding)


class Packable:
    """Marks a typed field of numbers, so that it takes a packed array as well: `Annotated[tuple[float, ...], Packable()]`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_unpack_value, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        said = handler(schema)
        return {"anyOf": [said, PACKED]} if handler.mode == "validation" else said


def _unpack_value(value: Any) -> Any:
    if not isinstance(value, dict) or "dtype" not in value:
        return value
    # Only now: whoever never meets a packed array never imports numpy.
    from proctor.models.arrays import unpack_array

    return unpack_array(value, most=MOST_TYPED_BYTES).tolist()


def assemble_model(model: type[ModelT], fields: dict[str, Any]) -> ModelT:
    """Return a model of all its `fields`, which the caller knows to be right: nothing is checked.

    This is `model_construct` at a third of its time, for what is made in every step.
    """
    made = model.__new__(model)
    _set(made, "__dict__", fields)
    _set(made, "__pydantic_fields_set__", set(fields))
    _set(made, "__pydantic_extra__", None)
    _set(made, "__pydantic_private__", None)
    return made


_set = object.__setattr__
