"""The section `Args:` of a docstring, argument by argument."""

from inspect import cleandoc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.contracts.declared_tools import parse_argument_descriptions

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
