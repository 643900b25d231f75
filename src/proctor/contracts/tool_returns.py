"""What a tool's return type means: actions to carry out, an observation to show, or a value to answer with.

Rule: the type alone decides, and it must agree with the tool's safety. A mixture is a ComponentError, because nobody could
know from the outside whether a call acts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

from proctor.contracts.tools import ToolSafety
from proctor.errors import ComponentError
from proctor.models.wire import Action, Observation

ROWS: Final = (list, tuple, Sequence)
UNIONS: Final = (Union, UnionType)


class Meaning(StrEnum):
    """What a tool's answer is."""

    ACTIONS = "actions"
    OBSERVATION = "observation"
    VALUE = "value"


@dataclass(frozen=True, slots=True)
class Return:
    """What a tool returns: its meaning, and the actions or observations that it can be."""

    meaning: Meaning
    kinds: tuple[type[Any], ...] = ()


def read_return(annotation: Any, safety: ToolSafety, where: str) -> Return:
    """Return what a return type means, or raise a ComponentError; `where` names the tool."""
    if annotation is None or annotation is type(None):
        raise ComponentError(
            f"{where} does not say what it returns",
            expected="-> an Action or a list of them if it acts, else -> an Observation or a value",
        )
    found = _meant(annotation, where)
    acts = found.meaning is Meaning.ACTIONS
    if acts and safety is ToolSafety.READ:
        raise ComponentError(
            f"{where} is declared as READ and returns an Action",
            found=annotation,
            expected="WRITE or MIXED, or another return type",
        )
    if not acts and safety is not ToolSafety.READ:
        raise ComponentError(
            f"{where} is declared as {safety} and returns no Action",
            found=annotation,
            expected="-> an Action or a list of them, which is then carried out; or READ",
        )
    return found


def _meant(annotation: Any, where: str) -> Return:
    is_row = get_origin(_bare(annotation)) in ROWS
    kinds = tuple(_kinds(annotation))
    actions = [_is(each, Action) for each in kinds]
    shown = [_is(each, Observation) for each in kinds]
    if kinds and all(actions):
        return Return(Meaning.ACTIONS, kinds)
    if kinds and all(shown) and not is_row:
        return Return(Meaning.OBSERVATION, kinds)
    if any(actions) or any(shown):
        raise ComponentError(
            f"{where} returns a mixture",
            found=annotation,
            expected="an Action, a list of them (which may be empty), an Observation, or a value without either",
        )
    return Return(Meaning.VALUE)


def _kinds(annotation: Any) -> Iterator[Any]:
    """Yield what a return type is made of: itself, the members of a union, what is in a row."""
    bare = _bare(annotation)
    if get_origin(bare) in (*ROWS, *UNIONS):
        for part in get_args(bare):
            if part is not Ellipsis:
                yield from _kinds(part)
    else:
        yield bare


def _bare(annotation: Any) -> Any:
    """Return a type without its notes; of a type variable its bound."""
    if get_origin(annotation) is Annotated:
        return get_args(annotation)[0]
    if isinstance(annotation, TypeVar) and annotation.__bound__ is not None:
        return annotation.__bound__
    return annotation


def _is(kind: Any, parent: type) -> bool:
    return isinstance(kind, type) and issubclass(kind, parent)
