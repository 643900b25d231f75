"""A return type alone decides what a tool is."""

from collections.abc import Sequence
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.contracts.declared_tools import ReturnKind, ToolReturn, read_return
from proctor.contracts.tools import ToolSafety
from proctor.errors import ComponentError
from proctor.models.wire import Action, Observation

READ, WRITE, MIXED = ToolSafety


class Push(Action):
    pass


class Seen(Observation):
    pass


ACTING: list[Any] = [Push, list[Push], Sequence[Push], tuple[Push, ...], Annotated[Push, "note"], list[Action | Push]]
SHOWING: list[Any] = [Seen, Observation, Seen | Observation, Annotated[Seen, "note"]]
ANSWERING: list[Any] = [int, str | None, list[int], dict[str, Any], dict[str, Seen], tuple[()]]


@pytest.mark.parametrize("annotation", ACTING, ids=str)
@pytest.mark.parametrize("safety", [WRITE, MIXED])
def test_actions_act(annotation: Any, safety: ToolSafety) -> None:
    found = read_return(annotation, safety, "it")

    assert found.kind is ReturnKind.ACTIONS
    assert all(issubclass(kind, Action) for kind in found.types)


@pytest.mark.parametrize("annotation", SHOWING, ids=str)
def test_an_observation_is_shown(annotation: Any) -> None:
    found = read_return(annotation, READ, "it")

    assert found.kind is ReturnKind.OBSERVATION
    assert all(issubclass(kind, Observation) for kind in found.types)


@pytest.mark.parametrize("annotation", ANSWERING, ids=str)
def test_anything_else_is_a_value(annotation: Any) -> None:
    assert read_return(annotation, READ, "it") == ToolReturn(ReturnKind.VALUE)


@given(annotation=st.sampled_from([*ACTING, *SHOWING, *ANSWERING]), safety=st.sampled_from(ToolSafety))
def test_the_type_and_the_safety_agree_or_are_refused(annotation: Any, safety: ToolSafety) -> None:
    acts = any(annotation is each for each in ACTING)

    if acts is (safety is READ):
        with pytest.raises(ComponentError, match=f"it is declared as {safety} and returns"):
            read_return(annotation, safety, "it")
    else:
        assert (read_return(annotation, safety, "it").kind is ReturnKind.ACTIONS) is acts


@pytest.mark.parametrize(
    "annotation", [Push | None, Push | Seen, list[Push | int], list[Seen], tuple[int, Push]], ids=str
)
@pytest.mark.parametrize("safety", ToolSafety)
def test_nobody_has_to_guess_whether_a_call_acts(annotation: Any, safety: ToolSafety) -> None:
    with pytest.raises(ComponentError, match="mixture"):
        read_return(annotation, safety, "it")


@pytest.mark.parametrize("annotation", [None, type(None)])
def test_nothing_is_no_answer(annotation: Any) -> None:
    with pytest.raises(ComponentError, match="does not say what it returns"):
        read_return(annotation, READ, "it")
