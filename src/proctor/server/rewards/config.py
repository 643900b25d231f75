"""Reads reward transforms from tables, as a TOML file has them: `[[transforms]] type = "clip" low = -1.0 high = 1.0`.

Rule 1: everything is checked here, when a server starts: types, options, ranges, and that functions can be imported
    and called. A ValidationError names the place: `transforms[0].low`.
Rule 2: `KINDS` is the whole list of types; a reader takes its options one by one, and what it did not take is unknown.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from proctor.contracts.arguments import parse_number
from proctor.envs.settings import import_member
from proctor.errors import ValidationError
from proctor.server.rewards.transforms import Clip, CustomTransform, Normalise, Potential, Scale, StepCost, Transform

LONGEST_NAME: Final = 64


@dataclass(slots=True)
class TransformOptions:
    """One table: options are taken by name, and `spec` collects what they came to, defaults included."""

    place: str
    table: Mapping[str, object]
    spec: dict[str, Any]
    known: list[str] = field(default_factory=lambda: ["type"])

    def number(
        self,
        key: str,
        default: float | None = None,
        *,
        above: float = -math.inf,
        least: float = -math.inf,
        most: float = math.inf,
    ) -> float:
        """Return a finite number within its bounds; without a default it is needed."""
        self.known.append(key)
        found = self.table.get(key, default)
        if found is None:
            raise ValidationError(f"{self.place}.{key} is missing", expected="a number")
        number = parse_number(f"{self.place}.{key}", found, above=above, least=least, most=most)
        self.spec[key] = number
        return number

    def bound(self, key: str) -> float | None:
        """Return a finite number, or None where the option is left out."""
        self.known.append(key)
        return self.number(key) if key in self.table else None

    def text(self, key: str) -> str | None:
        """Return a text, or None where the option is left out."""
        self.known.append(key)
        if key not in self.table:
            return None
        found = self.table[key]
        if not isinstance(found, str) or not found:
            raise ValidationError(f"{self.place}.{key} is not a text", found=found, expected="a text")
        self.spec[key] = found
        return found

    def function(self, key: str, arguments: int) -> Callable[..., float] | None:
        """Return the function that `module:function` names, or None where the option is left out."""
        named = self.text(key)
        return None if named is None else import_function(f"{self.place}.{key}", named, arguments)

    def finish(self) -> None:
        """Raise a ValidationError for an option that nobody took."""
        for key in self.table:
            if key not in self.known:
                known = ", ".join(dict.fromkeys(self.known))
                raise ValidationError(f"{self.place}.{key} is unknown", found=key, expected=f"one of {known}")


def _clip(name: str, options: TransformOptions) -> Transform[Any]:
    low, high = options.bound("low"), options.bound("high")
    if low is None and high is None:
        raise ValidationError(f"{options.place} clips nothing", expected="low, high or both")
    if low is not None and high is not None and low > high:
        raise ValidationError(f"{options.place}.low lies above high", found=low, expected=f"a number <= {high:g}")
    return Clip(name, low, high)


def _scale(name: str, options: TransformOptions) -> Transform[Any]:
    return Scale(name, options.number("factor"))


def _step_cost(name: str, options: TransformOptions) -> Transform[Any]:
    return StepCost(name, options.number("cost", least=0.0))


def _potential(name: str, options: TransformOptions) -> Transform[Any]:
    function, key = options.function("function", 1), options.text("key")
    if (function is None) == (key is None):
        raise ValidationError(f"{options.place} needs one potential", expected="either function or key")
    return Potential(
        name, function, key, options.number("gamma", 0.99, least=0.0, most=1.0), options.number("weight", 1.0)
    )


def _normalise(name: str, options: TransformOptions) -> Transform[Any]:
    gamma = options.number("gamma", 0.99, least=0.0, most=1.0)
    return Normalise(name, gamma, options.number("epsilon", 1e-8, above=0.0))


def _own(name: str, options: TransformOptions) -> Transform[Any]:
    function = options.function("function", 2)
    if function is None:
        raise ValidationError(f"{options.place}.function is missing", expected='"module:function"')
    return CustomTransform(name, function)


KINDS: Final[Mapping[str, Callable[[str, TransformOptions], Transform[Any]]]] = {
    "clip": _clip,
    "scale": _scale,
    "step_cost": _step_cost,
    "potential": _potential,
    "normalise": _normalise,
    "own": _own,
}


def parse_transforms(tables: object) -> list[tuple[Transform[Any], dict[str, Any]]]:
    """Return each transform with its complete spec, which gives the same transform again; or a ValidationError."""
    if not isinstance(tables, Sequence) or isinstance(tables, str | bytes):
        raise ValidationError("transforms is not a list", found=tables, expected="a list of tables")
    read: list[tuple[Transform[Any], dict[str, Any]]] = []
    names: set[str] = set()
    for index, table in enumerate(tables):
        transform, spec = _read(f"transforms[{index}]", table, names)
        names.add(transform.name)
        read.append((transform, spec))
    return read


def _read(place: str, table: object, taken: set[str]) -> tuple[Transform[Any], dict[str, Any]]:
    if not isinstance(table, Mapping):
        raise ValidationError(f"{place} is not a table", found=table, expected='a table with a "type"')
    kind = table.get("type")
    build = KINDS.get(kind) if isinstance(kind, str) else None
    if build is None or not isinstance(kind, str):
        raise ValidationError(f"{place}.type is unknown", found=kind, expected="one of " + ", ".join(KINDS))
    options = TransformOptions(place, table, {"type": kind})
    transform = build(_name(options, kind, taken), options)
    options.finish()
    return transform, options.spec


def _name(options: TransformOptions, kind: str, taken: set[str]) -> str:
    """Return the name that was given, or the type, numbered where it is taken."""
    name = options.text("name")
    if name is None:
        tries = (kind if number == 1 else f"{kind}-{number}" for number in range(1, len(taken) + 2))
        name = next(each for each in tries if each not in taken)
    if name in taken or len(name) > LONGEST_NAME:
        expected = f"at most {LONGEST_NAME} characters that no other transform has"
        raise ValidationError(f"{options.place}.name cannot be used", found=name, expected=expected)
    options.spec["name"] = name
    return name


def import_function(place: str, named: str, arguments: int) -> Callable[..., float]:
    """Return the function that `named` ("module:function") names and that takes so many arguments."""
    module, _, member = named.partition(":")
    expected = f'"module:function", importable, of {arguments} argument{"" if arguments == 1 else "s"}'
    if not (module and member):
        raise ValidationError(f"{place} names no function", found=named, expected=expected)
    try:
        found = import_member(module, member)
    except ValidationError as problem:
        raise ValidationError(f"{place}: {problem.message}", found=named, expected=expected) from problem
    if inspect.iscoroutinefunction(found) or not _takes(found, arguments):
        raise ValidationError(f"{place} is no such function", found=named, expected=expected)
    function: Callable[..., float] = found
    return function


def _takes(function: Callable[..., float], arguments: int) -> bool:
    """Return whether the function can be called with so many arguments; True where Python cannot tell."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return True
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        return False
    return True
