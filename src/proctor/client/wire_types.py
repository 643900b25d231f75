"""The wire types of a client class: found from its parameters, and compared with what a server says.

Rule 1: `class PlumeClient(EnvClient[PlumeAction, PlumeObservation, PlumeState])` names its types once, there.
Rule 2: schemas agree if every value that one side sends is described alike by both; titles, descriptions, defaults and
    what travels beside an observation say nothing about that.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar, get_args, get_origin

from pydantic import BaseModel

from proctor.models.wire import OUTSIDE

SILENT: Final = frozenset({"title", "description", "default", "examples", "$defs", "$schema"})
"""What a schema says to people only, or what is looked up where it is referred to."""
REFERENCE: Final = "#/$defs/"
DEEPEST: Final = 32


def parameters_of(cls: type, root: type) -> tuple[Any, ...]:
    """Return what `cls` puts in the place of each parameter of the generic class `root`; None where it is open."""
    variables: tuple[TypeVar, ...] = getattr(root, "__parameters__", ())
    known = _assigned(cls, root, variables)
    return tuple(None if isinstance(known[each], TypeVar) else known[each] for each in variables)


def _assigned(cls: type, root: type, variables: tuple[TypeVar, ...]) -> Mapping[TypeVar, Any]:
    if cls is root:
        return {each: each for each in variables}
    for alias in vars(cls).get("__orig_bases__", cls.__bases__):
        origin = get_origin(alias) or alias
        if isinstance(origin, type) and issubclass(origin, root):
            given = dict(zip(getattr(origin, "__parameters__", ()), get_args(alias), strict=False))
            inner = _assigned(origin, root, variables)
            return {each: given.get(found, found) for each, found in inner.items()}
    raise TypeError(cls)


def difference(model: type[BaseModel], theirs: Mapping[str, Any], *, sent: bool) -> str | None:
    """Return where the server's schema differs from the client's model, None if it does not.

    `sent`: the client sends such values; otherwise it receives them.
    """
    mine = model.model_json_schema(mode="validation" if sent else "serialization")
    return next(_differences(mine, theirs, (mine, theirs), ""), None)


def _differences(mine: Any, theirs: Any, roots: tuple[Any, Any], where: str) -> Iterator[str]:
    mine, theirs = _looked_up(mine, roots[0]), _looked_up(theirs, roots[1])
    if where.count("/") > DEEPEST:
        return
    if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
        for key in sorted((mine.keys() | theirs.keys()) - SILENT):
            if (key in mine) != (key in theirs):
                yield f"{where}/{key} is {'missing on the server' if key in mine else 'unknown to the client'}"
            else:
                yield from _differences(*_inside(key, mine[key], theirs[key], where), roots, f"{where}/{key}")
    elif isinstance(mine, list) and isinstance(theirs, list) and len(mine) == len(theirs):
        for index, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            yield from _differences(one, other, roots, f"{where}/{index}")
    elif mine != theirs:
        yield f"{where} is {mine!r} for the client and {theirs!r} for the server"


def _inside(key: str, mine: Any, theirs: Any, where: str) -> tuple[Any, Any]:
    """Return both without what travels beside an observation, which is not part of it; only the top has such fields."""
    if where or key not in ("properties", "required"):
        return mine, theirs
    if key == "required":
        return sorted(set(mine) - OUTSIDE), sorted(set(theirs) - OUTSIDE)
    return tuple({name: part for name, part in side.items() if name not in OUTSIDE} for side in (mine, theirs))  # type: ignore[return-value]


def _looked_up(schema: Any, root: Any) -> Any:
    reference = schema.get("$ref") if isinstance(schema, Mapping) else None
    if isinstance(reference, str) and reference.startswith(REFERENCE):
        return root.get("$defs", {}).get(reference.removeprefix(REFERENCE), schema)
    return schema
