"""What is told of a tool, and a toolbox that plans calls and carries nothing out."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.contracts.tools import MARK_ATTRIBUTE, NAME, RESERVED, Tool, Toolbox, ToolPlan, ToolSafety, tool
from proctor.errors import ComponentError, ValidationError
from proctor.models.wire import Action

NOTHING: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}


class Push(Action):
    force: float = 1.0


def described(name: str) -> Tool:
    return Tool(name=name, description="Push.", safety=ToolSafety.WRITE, input_schema=NOTHING)


def pushes(arguments: bytes) -> ToolPlan:
    return ToolPlan((Push(),))


@pytest.mark.parametrize("name", ["look", "a", "toggle_column", "x2", "a" * 64])
def test_a_name_of_small_letters_digits_and_underscores_is_a_name(name: str) -> None:
    assert described(name).name == name


@pytest.mark.parametrize("name", ["", "Look", "2x", "_look", "a-b", "a b", "a" * 65, "look\n", "lōōk", "a.b"])
def test_any_other_name_is_refused(name: str) -> None:
    with pytest.raises(ComponentError, match="not a tool's name"):
        described(name)


@given(name=st.text(max_size=70))
def test_a_tool_is_made_exactly_if_its_name_is_one(name: str) -> None:
    legal = bool(NAME.fullmatch(name)) and name not in RESERVED

    if legal:
        assert described(name).name == name
    else:
        with pytest.raises(ComponentError):
            described(name)


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_what_only_an_orchestrator_does_is_the_name_of_no_tool(name: str) -> None:
    with pytest.raises(ComponentError, match="reserved"):
        described(name)


def test_a_tool_crosses_a_pipe_as_it_is() -> None:
    facts: dict[str, Any] = {"output_schema": {"type": "object"}, "title": "Look around", "destructive": True}
    sent = Tool(name="look", description="Look.", safety=ToolSafety.READ, input_schema=NOTHING, **facts)

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=Tool) == sent
    assert b'"READ"' in msgspec.json.encode(sent)


def test_a_tool_that_comes_out_of_a_pipe_has_a_legal_name_too() -> None:
    forged = {"name": "reset", "description": "", "safety": "READ", "input_schema": {}}

    with pytest.raises(ComponentError, match="reserved"):
        msgspec.msgpack.decode(msgspec.msgpack.encode(forged), type=Tool)


def test_a_toolbox_keeps_its_order_and_plans_by_name() -> None:
    box = Toolbox([(described("push"), pushes), (described("look"), lambda _: ToolPlan(value={"a": 1}))])

    assert [each.name for each in box.tools] == ["push", "look"]
    assert box.plan("push", b"{}") == ToolPlan((Push(),))
    assert box.plan("look", b"{}") == ToolPlan(value={"a": 1})


def test_an_unknown_tool_is_answered_with_the_tools_there_are() -> None:
    box = Toolbox([(described("push"), pushes), (described("pull"), pushes)])

    with pytest.raises(ValidationError) as caught:
        box.plan("x" * 1000, b"{}")
    assert caught.value.expected == "one of push, pull"
    assert len(str(caught.value)) < 200


def test_an_empty_toolbox_says_so() -> None:
    with pytest.raises(ValidationError, match="there are no tools"):
        Toolbox([]).plan("push", b"{}")


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ComponentError, match="same name") as caught:
        Toolbox([(described("look"), pushes), (described("push"), pushes), (described("push"), pushes)])
    assert caught.value.found == "push"


def test_a_note_is_said_by_every_tool_and_changes_no_plan() -> None:
    box = Toolbox([(described("push"), pushes), (described("pull"), pushes)])

    noted = box.with_note("The room is dark.")

    assert [each.description for each in noted.tools] == ["Push.\n\nThe room is dark."] * 2
    assert [each.description for each in box.tools] == ["Push."] * 2
    assert noted.plan("pull", b"{}") == ToolPlan((Push(),))


def test_a_decorated_method_stays_what_it_is() -> None:
    def push(self: object) -> Push:
        """Push."""
        return Push()

    decorated = tool(ToolSafety.WRITE, name="shove", title="Shove", destructive=True)(push)

    assert decorated is push
    assert hasattr(push, MARK_ATTRIBUTE)


@pytest.mark.parametrize("wrapper", [staticmethod, classmethod, property])
def test_only_a_method_that_takes_self_can_be_a_tool(wrapper: Any) -> None:
    with pytest.raises(ComponentError, match="only methods"):
        tool(ToolSafety.READ)(wrapper(lambda self: 1))


def test_a_decorator_without_its_parentheses_is_told_how_it_is_written() -> None:
    with pytest.raises(ComponentError, match=r"@tool\(ToolSafety.READ\)"):
        tool(lambda self: 1)  # type: ignore[arg-type]  # the mistake is the point


@pytest.mark.parametrize("safety", ["read", "DELETE", None])
def test_a_safety_that_is_none_is_refused(safety: Any) -> None:
    with pytest.raises(ComponentError, match="read or to act"):
        tool(safety)


@pytest.mark.parametrize("most", [0, -1, True, "64", 1.5])
def test_a_limit_of_arguments_is_a_number_of_bytes(most: Any) -> None:
    with pytest.raises(ComponentError, match="not a number of bytes"):
        Tool(name="a", description="A.", safety=ToolSafety.READ, input_schema={}, max_arguments_bytes=most)
