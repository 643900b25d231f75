"""Decorated methods as tools: a signature becomes an input schema, a docstring a description, a return type a meaning.

Rule 1: everything that can be known of a method is found out once for its class: the models, the schemas, the mistakes.
Rule 2: a declaration that cannot work is a ComponentError that says what to do, when the first toolbox of the class is
    made.
Rule 3: a method that is overridden stays a tool. What it takes, gives and says is the override's; how it was decorated is
    inherited. None in its place takes the tool away.
"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from inspect import Parameter
from typing import Any, Final, get_args, get_origin, get_type_hints
from weakref import WeakKeyDictionary

from pydantic import Field
from pydantic import ValidationError as ModelError
from pydantic.fields import FieldInfo

from proctor.contracts.docstrings import described_arguments
from proctor.contracts.tool_arguments import Spoken, refusal_of, schema_of, spoken_model
from proctor.contracts.tool_returns import Meaning, Return, read_return
from proctor.contracts.tools import MARK, Mark, Tool
from proctor.errors import ComponentError
from proctor.models.json_schemas import with_descriptions

Method = Callable[..., Any]
Hints = Mapping[str, Any]

RESULT: Final = "result"
"""Under this name a value travels that is no object."""
BY_NAME: Final = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class Declared:
    """All that is known of a decorated method."""

    attribute: str
    tool: Tool
    takes: type[Spoken]
    names: tuple[str, ...]
    """The parameters, in the order of the fields of `takes`."""
    gives: Return
    answer: type[Spoken] | None
    """The model of a value, in its field `RESULT`; None if no value is returned."""
    wrapped: bool
    """Whether a value travels under that name, because it is no object itself."""
    later: bool
    """Whether the method has to be awaited."""

    def read(self, arguments: bytes) -> dict[str, Any]:
        """Return the keywords of the method that this JSON text says, or raise a ValidationError."""
        try:
            made = self.takes.__pydantic_validator__.validate_json(arguments, strict=True)
        except ModelError as problem:
            raise refusal_of(self.tool, problem) from None
        return dict(zip(self.names, made.__dict__.values(), strict=True))

    def as_told(self, problem: ModelError) -> Exception:
        """Return what the method raised, as a refusal where it says that the arguments make no action."""
        if any(problem.title == kind.__name__ for kind in self.gives.kinds):
            return refusal_of(self.tool, problem)
        return problem


_KNOWN: Final[WeakKeyDictionary[type, tuple[Declared, ...]]] = WeakKeyDictionary()


def declarations(cls: type) -> tuple[Declared, ...]:
    """Return what is declared by the decorated methods of `cls`, in the order of their definitions."""
    known = _KNOWN.get(cls)
    if known is None:
        known = _KNOWN[cls] = tuple(_declared(cls, name, mark) for name, mark in _marks(cls).items())
    return known


def _marks(cls: type) -> dict[str, Mark]:
    found: dict[str, Mark] = {}
    for each in reversed(cls.__mro__):
        for name, member in vars(each).items():
            mark = vars(member).get(MARK) if inspect.isfunction(member) else None
            if isinstance(mark, Mark):
                found[name] = mark
            elif not inspect.isfunction(member):
                found.pop(name, None)
    return found


def _declared(cls: type, attribute: str, mark: Mark) -> Declared:
    method: Method = getattr(cls, attribute)
    where = f"the tool {cls.__name__}.{attribute}"
    doc = _doc(cls, attribute, where)
    hints = _hints(method, where)
    name = mark.name or attribute
    takes, names = _parameters(method, name, hints, where)
    returned, later = _awaited(hints.get("return"))
    gives = read_return(returned, mark.safety, where)
    answer = spoken_model(name, {RESULT: (returned, ...)}, where) if gives.meaning is Meaning.VALUE else None
    output, wrapped = (None, False) if answer is None else _output_schema(answer)
    described = Tool(
        name=name,
        description=doc,
        safety=mark.safety,
        input_schema=with_descriptions(schema_of(takes), described_arguments(doc)),
        output_schema=output,
        title=mark.title,
        destructive=mark.destructive,
        max_arguments_bytes=mark.max_arguments_bytes,
    )
    later = later or inspect.iscoroutinefunction(method)
    return Declared(attribute, described, takes, names, gives, answer, wrapped, later)


def _doc(cls: type, attribute: str, where: str) -> str:
    found = (vars(each)[attribute].__doc__ for each in cls.__mro__ if attribute in vars(each))
    doc = inspect.cleandoc(next((text for text in found if text), ""))
    if not doc:
        raise ComponentError(
            f"{where} says nothing of itself", expected="a docstring, which is all that a language model knows of it"
        )
    return doc


def _hints(method: Method, where: str) -> Hints:
    try:
        return get_type_hints(method, include_extras=True)
    except (NameError, TypeError) as problem:
        raise ComponentError(
            f"{where} has a type that cannot be found", found=str(problem), expected="types that its module knows"
        ) from problem


def _parameters(method: Method, name: str, hints: Hints, where: str) -> tuple[type[Spoken], tuple[str, ...]]:
    """Return the model of a method's parameters, and their names."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    for each in parameters:
        _check(each, hints, where)
    # Under names of their own, so that a parameter may be called as a member of pydantic's is; `json`, for example.
    fields: dict[str, Any] = {
        f"argument_{place}": (hints[each.name], Field(_default(each), alias=each.name))
        for place, each in enumerate(parameters)
    }
    return spoken_model(name, fields, where), tuple(each.name for each in parameters)


def _check(parameter: Parameter, hints: Hints, where: str) -> None:
    """Raise a ComponentError unless this parameter can be one of a JSON object's."""
    if parameter.kind not in BY_NAME:
        raise ComponentError(
            f"{where} has a parameter that cannot be given by name", found=str(parameter), expected="parameters by name"
        )
    if parameter.name not in hints:
        raise ComponentError(
            f"{where} has a parameter without a type", found=parameter.name, expected=f"{parameter.name}: its type"
        )
    if isinstance(parameter.default, FieldInfo):
        raise ComponentError(
            f"{where} has a Field as a default",
            found=parameter.name,
            expected="Annotated[its type, Field(...)] = default",
        )


def _default(parameter: Parameter) -> Any:
    return ... if parameter.default is Parameter.empty else parameter.default


def _awaited(returned: Any) -> tuple[Any, bool]:
    """Return what a method gives in the end, and whether its annotation says that it has to be awaited."""
    if get_origin(returned) in (Awaitable, Coroutine):
        return get_args(returned)[-1], True
    return returned, False


def _output_schema(answer: type[Spoken]) -> tuple[dict[str, Any], bool]:
    """Return the JSON Schema of the object that says a value, and whether the value is wrapped in it."""
    wrapped = schema_of(answer, answers=True)
    definitions = wrapped.get("$defs", {})
    inner = wrapped["properties"][RESULT]
    if set(inner) == {"$ref"}:
        inner = definitions[inner["$ref"].removeprefix("#/$defs/")]
    if inner.get("type") != "object":
        return wrapped, True
    return ({**inner, "$defs": definitions} if definitions else dict(inner)), False
