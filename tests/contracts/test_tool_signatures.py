"""What a signature says of a tool: its return type what it is, its docstring what its arguments are."""

from collections.abc import Sequence
from inspect import cleandoc
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.contracts.toolboxes import ReturnKind, parse_argument_descriptions, read_return
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


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        *((each, ReturnKind.ACTIONS) for each in ACTING),
        *((each, ReturnKind.OBSERVATION) for each in SHOWING),
        *((each, ReturnKind.VALUE) for each in ANSWERING),
    ],
    ids=str,
)
def test_a_return_type_alone_decides_what_a_tool_is(annotation: Any, kind: ReturnKind) -> None:
    found, types = read_return(annotation, MIXED if kind is ReturnKind.ACTIONS else READ, "it")

    assert found is kind
    assert all(issubclass(each, Action if kind is ReturnKind.ACTIONS else Observation) for each in types)


@given(annotation=st.sampled_from([*ACTING, *SHOWING, *ANSWERING]), safety=st.sampled_from(ToolSafety))
def test_the_type_and_the_safety_agree_or_are_refused(annotation: Any, safety: ToolSafety) -> None:
    acts = any(annotation is each for each in ACTING)

    if acts is (safety is READ):
        with pytest.raises(ComponentError, match=f"it is declared as {safety} and returns"):
            read_return(annotation, safety, "it")
    else:
        assert (read_return(annotation, safety, "it")[0] is ReturnKind.ACTIONS) is acts


@pytest.mark.parametrize(
    "annotation", [Push | None, Push | Seen, list[Push | int], list[Seen], tuple[int, Push]], ids=str
)
@pytest.mark.parametrize("safety", ToolSafety)
def test_nobody_has_to_guess_whether_a_call_acts(annotation: Any, safety: ToolSafety) -> None:
    with pytest.raises(ComponentError, match="mixture"):
        read_return(annotation, safety, "it")


DOC = """Heat the room.

    More about it: a colon is no argument.

    Args:
        degrees: By how much,
            and not more.

        how (str, optional): The way: slow or fast.
        *rest: What is left.

    Returns:
        heat: not an argument.
    """


def test_every_argument_has_its_description_on_one_line() -> None:
    assert dict(parse_argument_descriptions(cleandoc(DOC))) == {
        "degrees": "By how much, and not more.",
        "how": "The way: slow or fast.",
        "rest": "What is left.",
    }


def test_a_line_that_begins_no_argument_goes_on_with_the_one_above() -> None:
    doc = "Args:\n    x: one\n    and on.\n    y: two of\n    - a: first"

    assert list(parse_argument_descriptions(doc)) == [("x", "one and on."), ("y", "two of - a: first")]


@pytest.mark.parametrize("heading", ["Args", "Arguments", "Parameters"])
def test_the_section_has_one_of_three_headings(heading: str) -> None:
    assert list(parse_argument_descriptions(f"{heading}:\n  a: One.")) == [("a", "One.")]


@pytest.mark.parametrize(
    "doc", ["", "Heat.", "Args:", "Args:\nnothing indented", "Args: a\n    b: c", "Args:\n    text"]
)
def test_without_a_section_there_is_nothing(doc: str) -> None:
    assert list(parse_argument_descriptions(doc)) == []


@given(
    names=st.lists(st.from_regex(r"[a-z_]{1,8}", fullmatch=True), unique=True), text=st.sampled_from(["One.", "A: b"])
)
def test_what_is_written_is_read(names: list[str], text: str) -> None:
    doc = "\n".join(["Do it.", "", "Args:", *(f"    {name}: {text}" for name in names)])

    assert list(parse_argument_descriptions(doc)) == [(name, text) for name in names]


@given(doc=st.text())
def test_no_docstring_is_too_strange(doc: str) -> None:
    assert all(name.isidentifier() or name.isalnum() for name, _ in parse_argument_descriptions(f"Args:\n{doc}"))
