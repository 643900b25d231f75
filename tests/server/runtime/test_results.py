"""What a peer learns of a problem is what was written for it, and never more than a page."""

from __future__ import annotations

import pickle
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET
from pydantic import AfterValidator, BaseModel, TypeAdapter
from pydantic import ValidationError as ModelError

from proctor.errors import ComponentError, ProctorError, StateError, ValidationError
from proctor.models.control import Code, Problem
from proctor.server.runtime.results import (
    MOST_ERRORS,
    RequestError,
    RequestFailed,
    RequestRefused,
    make_failure,
    make_refusal,
    refusal_from_error,
    refusal_from_model_error,
)

SECRET = "swordfish"


def told(problem: RequestError) -> str:
    """Return everything that a peer gets."""
    return msgspec.json.encode(problem.problem).decode()


def model_error(kind: Any, value: object) -> ModelError:
    with pytest.raises(ModelError) as caught:
        TypeAdapter(kind).validate_python(value)
    return caught.value


def raising(problem: Exception) -> Any:
    def check(value: int) -> int:
        raise problem

    return Annotated[int, AfterValidator(check)]


def test_a_refusal_does_not_say_that_the_episode_is_lost() -> None:
    refusal = make_refusal(Code.BUSY, "wait", retry_after_seconds=1.0)

    assert isinstance(refusal, RequestRefused)
    assert refusal.problem == Problem("wait", Code.BUSY, retry_after_seconds=1.0)
    assert refusal.problem.lost is UNSET


def test_a_failure_says_that_the_episode_is_lost() -> None:
    failure = make_failure(Code.STEP_TIMEOUT, "too late", incident="7")

    assert isinstance(failure, RequestFailed)
    assert failure.problem == Problem("too late", Code.STEP_TIMEOUT, incident="7", lost=True)


@pytest.mark.parametrize("problem", [make_refusal(Code.BUSY, "wait"), make_failure(Code.STEP_TIMEOUT, "late")])
def test_a_problem_survives_pickling(problem: RequestError) -> None:
    again = pickle.loads(pickle.dumps(problem))

    assert type(again) is type(problem)
    assert again.problem == problem.problem
    assert str(again) == problem.problem.code


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StateError("not now", clause="NO-STEP-BEFORE-RESET"), Code.STATE_ERROR),
        (ValidationError("not this", clause="ENV-STEP-P1"), Code.VALIDATION_ERROR),
        (ComponentError("broken", clause="X"), Code.VALIDATION_ERROR),
    ],
)
def test_an_error_of_ours_is_told_with_its_code_and_its_clause(error: ProctorError, code: Code) -> None:
    problem = refusal_from_error(error).problem

    assert (problem.code, problem.message, problem.clause) == (code, error.message, error.clause)


def test_what_an_error_does_not_say_is_left_out() -> None:
    assert told(refusal_from_error(ValidationError("no"))) == '{"message":"no","code":"VALIDATION_ERROR"}'


def test_what_was_found_is_not_told() -> None:
    refusal = refusal_from_error(ValidationError("no", found=SECRET, expected="a word"))

    assert SECRET not in told(refusal)
    assert refusal.problem.expected == "a word"


def test_a_wrong_value_is_told_by_its_place_and_what_was_expected() -> None:
    problem = refusal_from_model_error("an action", model_error(dict[str, int], {"x": SECRET})).problem

    assert problem.code == Code.VALIDATION_ERROR
    assert problem.errors == [
        {
            "loc": ["x"],
            "msg": "Input should be a valid integer, unable to parse string as an integer",
            "type": "int_parsing",
        }
    ]
    assert problem.message.startswith("this is not an action: x: Input should be a valid integer")


def test_a_wrong_whole_is_called_it() -> None:
    refusal = refusal_from_model_error("an action", model_error(int, SECRET))

    assert refusal.problem.message.startswith("this is not an action: it: ")
    assert SECRET not in told(refusal)


@pytest.mark.parametrize("inner", [ValueError(SECRET), AssertionError(SECRET)])
def test_the_text_of_a_validators_own_exception_stays_inside(inner: Exception) -> None:
    refusal = refusal_from_model_error("an action", model_error(raising(inner), 1))

    assert SECRET not in told(refusal)
    assert refusal.problem.errors is not UNSET
    assert refusal.problem.errors[0]["msg"] == "the value is not acceptable"


@pytest.mark.parametrize(
    ("inner", "message"),
    [
        (ValidationError("not there", found=SECRET, expected="a cell"), "not there; expected a cell"),
        (ValidationError("not there", found=SECRET), "not there"),
    ],
)
def test_a_validators_exception_that_is_ours_is_told_without_what_was_found(inner: Exception, message: str) -> None:
    refusal = refusal_from_model_error("an action", model_error(raising(inner), 1))

    assert SECRET not in told(refusal)
    assert refusal.problem.errors is not UNSET
    assert refusal.problem.errors[0]["msg"] == message


class Strict(BaseModel, extra="forbid"):
    """Takes nothing."""


@given(st.dictionaries(st.text(max_size=300), st.integers(), min_size=1, max_size=60))
def test_however_much_is_wrong_the_answer_is_short(wrong: dict[str, int]) -> None:
    problem = refusal_from_model_error("an action", model_error(Strict, wrong)).problem

    assert problem.errors is not UNSET
    assert len(problem.errors) == min(len(wrong), MOST_ERRORS)
    assert all(len(str(part)) <= 100 for error in problem.errors for part in error["loc"])
    assert len(problem.message) < 1000


@given(st.lists(st.text(min_size=1), min_size=1, max_size=50))
def test_the_place_in_a_list_is_a_number(words: list[str]) -> None:
    problem = refusal_from_model_error(
        "an action", model_error(list[bool], [f"{word}{SECRET}" for word in words])
    ).problem

    assert problem.errors is not UNSET
    assert [error["loc"] for error in problem.errors] == [[index] for index in range(min(len(words), MOST_ERRORS))]
    assert all(SECRET not in error["msg"] for error in problem.errors)
