"""A pipeline that is declared wrongly never starts, and the message names the place."""

import math
import re
import tomllib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import ValidationError
from proctor.server.rewards.pipeline import ArrayFormat, Moment, Plan, plan_of
from proctor.server.rewards.transforms import (
    KINDS,
    Clip,
    CustomTransform,
    Normalise,
    Potential,
    RewardStep,
    Scale,
    StepCost,
)
from tests.server.rewards import reward_functions

YES, NO = np.ones(1, np.bool_), np.zeros(1, np.bool_)
STEP = Moment(np.zeros(1), NO, NO, b"{}")
TURN = RewardStep(NO, NO, YES, np.ones(1, np.int64), ArrayFormat().read_outputs(STEP)[0])
OWN = {"type": "own", "function": "tests.server.rewards.reward_functions:doubled"}
numbers = st.floats(-1e6, 1e6)
fractions = st.floats(0.0, 1.0)
tables: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.fixed_dictionaries({"type": st.just("clip"), "low": st.floats(-9, 0)}, optional={"high": st.floats(0, 9)}),
    st.fixed_dictionaries({"type": st.just("scale"), "factor": numbers}),
    st.fixed_dictionaries({"type": st.just("step_cost"), "cost": st.floats(0, 9)}),
    st.fixed_dictionaries(
        {"type": st.just("potential"), "key": st.just("phi")}, optional={"gamma": fractions, "weight": numbers}
    ),
    st.fixed_dictionaries({"type": st.just("normalise")}, optional={"gamma": fractions, "epsilon": st.floats(1e-9, 1)}),
    st.just(OWN),
)


def test_a_toml_file_declares_a_pipeline() -> None:
    text = """
        [[transforms]]
        type = "clip"
        low = -1
        high = 1.0

        [[transforms]]
        type = "step_cost"
        cost = 0.01

        [[transforms]]
        type = "potential"
        key = "distance_to_source"
        weight = -0.5

        [[transforms]]
        type = "normalise"

        [[transforms]]
        type = "scale"
        name = "louder"
        factor = 2.0
    """

    plan = plan_of(tomllib.loads(text)["transforms"])

    assert plan.transforms == (
        Clip("clip", -1.0, 1.0),
        StepCost("step_cost", 0.01),
        Potential("potential", None, "distance_to_source", 0.99, -0.5),
        Normalise("normalise", 0.99, 1e-8),
        Scale("louder", 2.0),
    )


@given(declared=st.lists(tables, max_size=5))
def test_a_plans_specs_declare_the_same_plan(declared: list[dict[str, Any]]) -> None:
    plan = plan_of(declared)

    assert plan_of(plan.specs) == plan
    assert plan_of(plan.specs).specs == plan.specs
    assert len({spec["name"] for spec in plan.specs}) == len(declared)


def test_transforms_of_one_type_are_numbered() -> None:
    plan = plan_of([{"type": "scale", "factor": factor} for factor in (1, 2, 3)])

    assert [transform.name for transform in plan.transforms] == ["scale", "scale-2", "scale-3"]


def test_nothing_declared_is_an_empty_plan() -> None:
    assert plan_of([]) == Plan()
    assert not plan_of([])
    assert plan_of([OWN])


@pytest.mark.parametrize(
    ("table", "looks"),
    [
        ({"type": "scale", "factor": 2.0}, False),
        ({"type": "normalise"}, False),
        ({"type": "potential", "key": "phi"}, True),
        (OWN, True),
    ],
)
def test_a_plan_knows_whether_it_looks_at_what_the_environment_says(table: dict[str, Any], looks: bool) -> None:
    assert plan_of([table]).reads_outputs is looks


@pytest.mark.parametrize(("named", "factor"), [("doubled", 2.0), ("half", 0.5)])
def test_a_function_is_anything_that_can_be_called_with_so_many_arguments(named: str, factor: float) -> None:
    (own,) = plan_of([{"type": "own", "function": f"tests.server.rewards.reward_functions:{named}"}]).transforms

    assert own == CustomTransform("own", getattr(reward_functions, named))
    assert own.apply(np.array([3.0]), TURN, None)[0].tolist() == [3.0 * factor]


@pytest.mark.parametrize(
    ("declared", "place"),
    [
        ("clip", "transforms is not a list"),
        ({"type": "clip"}, "transforms is not a list"),
        (["clip"], "transforms[0] is not a table"),
        ([{}], "transforms[0].type is unknown"),
        ([{"type": ["clip"]}], "transforms[0].type is unknown"),
        ([OWN, {"type": "clamp"}], "transforms[1].type is unknown"),
        ([{"type": "clip"}], "transforms[0] clips nothing"),
        ([{"type": "clip", "low": 2.0, "high": 1.0}], "transforms[0].low lies above high"),
        ([{"type": "clip", "low": math.nan}], "transforms[0].low out of range"),
        ([{"type": "clip", "low": -1, "hihg": 1}], "transforms[0].hihg is unknown"),
        ([{"type": "clip", "low": "-1"}], "transforms[0].low is not a number"),
        ([{"type": "clip", "low": True}], "transforms[0].low is not a number"),
        ([{"type": "scale"}], "transforms[0].factor is missing"),
        ([{"type": "scale", "factor": math.inf}], "transforms[0].factor out of range"),
        ([{"type": "scale", "factor": 10**400}], "transforms[0].factor out of range"),
        ([{"type": "step_cost", "cost": -0.1}], "transforms[0].cost out of range"),
        ([{"type": "potential"}], "transforms[0] needs one potential"),
        ([{"type": "potential", "key": ""}], "transforms[0].key is not a text"),
        ([{"type": "potential", "key": 5}], "transforms[0].key is not a text"),
        (
            [{"type": "potential", "key": "phi", "function": "tests.server.rewards.reward_functions:height"}],
            "transforms[0] needs one potential",
        ),
        ([{"type": "potential", "key": "phi", "gamma": 1.1}], "transforms[0].gamma out of range"),
        (
            [{"type": "potential", "function": "tests.server.rewards.reward_functions:doubled"}],
            "transforms[0].function is no such",
        ),
        ([{"type": "normalise", "epsilon": 0.0}], "transforms[0].epsilon out of range"),
        ([{"type": "normalise", "gamma": -0.1}], "transforms[0].gamma out of range"),
        ([{"type": "own"}], "transforms[0].function is missing"),
        ([{"type": "own", "function": "doubled"}], "transforms[0].function names no function"),
        ([{"type": "own", "function": "no.such.module:f"}], "transforms[0].function: cannot import"),
        ([{"type": "own", "function": "tests.server.rewards.reward_functions:nobody"}], "transforms[0].function: "),
        (
            [{"type": "own", "function": "tests.server.rewards.reward_functions:not_callable"}],
            "transforms[0].function: ",
        ),
        (
            [{"type": "own", "function": "tests.server.rewards.reward_functions:later"}],
            "transforms[0].function is no such",
        ),
        (
            [{"type": "own", "function": "tests.server.rewards.reward_functions:of_three"}],
            "transforms[0].function is no such",
        ),
        ([{**OWN, "name": "x" * 65}], "transforms[0].name cannot be used"),
        ([{**OWN, "name": "mine"}, {**OWN, "name": "mine"}], "transforms[1].name cannot be used"),
    ],
)
def test_a_wrong_declaration_is_refused_by_its_place(declared: object, place: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(place)):
        plan_of(declared)


def test_an_unknown_option_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValidationError) as refused:
        plan_of([{"type": "potential", "key": "phi", "discount": 0.9}])

    assert refused.value.expected == "one of type, name, function, key, gamma, weight"


def test_a_function_whose_arguments_python_cannot_tell_is_taken() -> None:
    assert plan_of([{"type": "own", "function": "builtins:max"}])


@given(
    table=st.dictionaries(
        st.sampled_from(["type", "name", "low", "factor", "key"]), st.sampled_from(list(KINDS)) | numbers
    )
)
def test_garbage_is_a_validation_error_and_nothing_else(table: dict[str, Any]) -> None:
    try:
        plan = plan_of([table])
    except ValidationError:
        return

    assert len(plan.transforms) == 1
