"""`observe` and `act`, for an environment whose author declared no tools."""

import json
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from pydantic import Field

from proctor.contracts.environment import Environment
from proctor.contracts.toolboxes import toolbox_from_types
from proctor.contracts.tools import ToolPlan
from proctor.errors import ValidationError
from proctor.models.wire import Action, Observation, State
from tests.models.space_strategies import json_values


class Move(Action):
    """A move of the crane, in metres.

    Positive is up.
    """

    height: Annotated[float, Field(ge=-1.0, le=1.0, description="How far.")]
    hook: Literal["open", "shut"] = "shut"


class View(Observation):
    """What the camera sees."""

    boxes: int
    light: float = 0.5


class Plain(Observation):
    boxes: int


class Crane(Environment[Move, View, State]):
    """A crane."""

    def reset(self, seed: int | None = None, episode_id: str | None = None) -> View:
        return View(boxes=1)

    def step(self, action: Move) -> View:
        return View(boxes=2)

    @property
    def state(self) -> State:
        return State()


BOX = Crane().toolbox()
OBSERVE, ACT = BOX.tools
SCHEMA = Draft202012Validator(ACT.input_schema)


def test_an_environment_without_tools_has_two() -> None:
    assert [(each.name, each.safety.value) for each in BOX.tools] == [("observe", "READ"), ("act", "WRITE")]
    assert (OBSERVE.output_schema, ACT.output_schema) == (None, None)


def test_act_takes_what_the_action_is() -> None:
    assert ACT.input_schema == {
        "type": "object",
        "properties": {
            "height": {"type": "number", "minimum": -1.0, "maximum": 1.0, "description": "How far."},
            "hook": {"type": "string", "enum": ["open", "shut"], "default": "shut"},
        },
        "required": ["height"],
        "additionalProperties": False,
    }


def test_the_descriptions_say_what_the_models_say() -> None:
    assert OBSERVE.description.endswith("takes no step.\n\nWhat the camera sees.")
    assert "A move of the crane, in metres.\n\nPositive is up." in ACT.description
    assert ACT.description.endswith(
        'It takes height (a number from -1 to 1), hook (one of "open", "shut"; "shut" if left out).'
    )


def test_a_model_without_a_docstring_borrows_none() -> None:
    observe, _ = toolbox_from_types(Move, Plain).tools

    assert observe.description.endswith("takes no step.")


def test_act_plans_one_action() -> None:
    assert BOX.plan("act", b'{"height": 1, "hook": "open"}') == ToolPlan((Move(height=1.0, hook="open"),))


@pytest.mark.parametrize("text", [b"{}", b'{"height": 2}', b'{"height": "1"}', b'{"height": 1, "a": 2}', b"3", b""])
def test_an_action_that_does_not_fit_is_refused(text: bytes) -> None:
    with pytest.raises(ValidationError, match="these are no arguments of act") as caught:
        BOX.plan("act", text)
    assert str(caught.value.expected).startswith("height (a number from -1 to 1)")


def test_observe_leaves_it_to_the_driver_to_know_the_latest_observation() -> None:
    assert BOX.plan("observe", b"{}") == ToolPlan()


def test_observe_shows_what_is_kept() -> None:
    kept = View(boxes=3)

    assert toolbox_from_types(Move, View, lambda: kept).plan("observe", b"{}") == ToolPlan(seen=kept)


def test_observe_takes_no_arguments() -> None:
    with pytest.raises(ValidationError, match="no arguments of observe"):
        BOX.plan("observe", b'{"height": 1}')


def test_equal_types_share_their_tools() -> None:
    assert Crane().toolbox().tools[1] is ACT


@st.composite
def near_actions(draw: st.DrawFn) -> Any:
    height = draw(st.floats(-1, 1) | json_values())
    hook = draw(st.sampled_from(["open", "shut"]) | json_values())
    return draw(st.sampled_from([{"height": height}, {"height": height, "hook": hook}, height]))


@given(action=near_actions())
def test_what_act_takes_fits_its_schema(action: Any) -> None:
    try:
        plan = BOX.plan("act", json.dumps(action).encode())
    except ValidationError:
        return
    assert SCHEMA.is_valid(action)
    assert isinstance(plan, ToolPlan)
    assert plan.actions == (Move.model_validate(action),)
